"""Answers of an attack that ran piece by piece within its time, joined in the order of the features."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Int64

from veil.attacks.claims import Estimates, Lists, joined


@dataclass(frozen=True, kw_only=True, eq=False)
class AttackedRows:
    """Features that there was time for, and how their answers are put in order.

    `rows` are the features in ascending order. `order` sorts the concatenated answers of all pieces into the order of `rows`.
    `left_out` counts the features that there was no time for; `seconds` is processor time.
    """

    rows: Int64[np.ndarray, "done"]
    order: Int64[np.ndarray, "done"]
    left_out: int
    seconds: float

    @property
    def attempt_fields(self) -> dict[str, Any]:
        """Keyword arguments of an `Attempt` that say which features were attacked, and how long that took."""
        return {"rows": self.rows, "left_out": self.left_out, "seconds": self.seconds}

    def estimates(self, parts: Iterable[Estimates]) -> Estimates:
        """Estimates of all `parts` (one for each piece, in the order in which they ran), in the order of `rows`."""
        return joined(list(parts)).take(self.order)

    def lists(self, parts: Iterable[Lists]) -> Lists:
        """Candidate lists of all `parts` (one for each piece, in the order in which they ran), in the order of `rows`."""
        pieces = list(parts)
        candidates = tuple(entries for piece in pieces for entries in piece.candidates)
        certified = np.concatenate([piece.certified for piece in pieces])
        return Lists(candidates=candidates, certified=certified).take(self.order)
