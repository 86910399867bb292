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

    Each holds the scores of its objects, a list with one or more for each object; equal infinities tie. The bootstrap draws
    whole objects anew, on both sides.
    """
    ours, theirs = (np.concatenate([np.asarray(scores, dtype=np.float64) for scores in side]) for side in (present, absent))
    firsts, seconds = (np.cumsum([0, *(len(scores) for scores in side[:-1])]) for side in (present, absent))
    won = np.greater.outer(ours, theirs) + np.equal.outer(ours, theirs) / 2
    wins, pairs = (
        np.add.reduceat(np.add.reduceat(counted, firsts, axis=0), seconds, axis=1) for counted in (won, np.ones_like(won))
    )
    random, drawn = np.random.default_rng(seed), []
    for _ in range(DRAWS):
        chosen = np.ix_(random.integers(len(present), size=len(present)), random.integers(len(absent), size=len(absent)))
        drawn.append(wins[chosen].sum() / pairs[chosen].sum())
    low, high = np.quantile(drawn, [0.025, 0.975])
    return Separation(auc=float(wins.sum() / pairs.sum()), low=float(low), high=float(high))
