"""Area under the ROC curve of scores of several objects, with its interval over objects.

A file of its own: other studies may weigh scores so.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

DRAWS = 2000


@dataclass(frozen=True, kw_only=True)
class Separation:
    """Area under the ROC curve, `auc`, and the ends of its 95 % bootstrap interval over objects."""

    auc: float
    low: float
    high: float

    def as_json(self) -> dict:
        """The stable record of docs/reference/json.md."""
        return {"auc": self.auc, "low": self.low, "high": self.high}


def separated(present: Sequence[Sequence[float]], absent: Sequence[Sequence[float]], *, seed: int = 0) -> Separation:
    """Probability that a score of `present` is above one of `absent`, ties counting half (Mann and Whitney 1947).

    Each holds the scores of its objects, one list an object; the bootstrap draws whole objects anew, on both sides.
    """
    wins, pairs = np.zeros((len(present), len(absent))), np.zeros((len(present), len(absent)))
    for row, ours in enumerate(present):
        for column, theirs in enumerate(absent):
            difference = np.subtract.outer(np.asarray(ours, dtype=np.float64), np.asarray(theirs, dtype=np.float64))
            wins[row, column] = (difference > 0).sum() + (difference == 0).sum() / 2
            pairs[row, column] = difference.size
    random, drawn = np.random.default_rng(seed), []
    for _ in range(DRAWS):
        chosen = np.ix_(random.integers(len(present), size=len(present)), random.integers(len(absent), size=len(absent)))
        drawn.append(wins[chosen].sum() / pairs[chosen].sum())
    low, high = np.quantile(drawn, [0.025, 0.975])
    return Separation(auc=float(wins.sum() / pairs.sum()), low=float(low), high=float(high))
