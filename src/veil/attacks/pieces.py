"""What an attack answered on the features that there was time for."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Int64

from veil.attacks.claims import Estimates, Lists, joined


@dataclass(frozen=True, kw_only=True, eq=False)
class Done:
    """The features that there was time for, in ascending order, the parts of the answer and where each of their rows goes."""

    rows: Int64[np.ndarray, "done"]
    place: Int64[np.ndarray, "done"]
    left_out: int
    seconds: float

    @property
    def common(self) -> dict[str, Any]:
        """What an attempt says of them."""
        return {"rows": self.rows, "left_out": self.left_out, "seconds": self.seconds}

    def estimates(self, parts: Iterable[Estimates]) -> Estimates:
        """Of all parts, in the order of `rows`."""
        return joined(list(parts)).take(self.place)

    def lists(self, parts: Iterable[Lists]) -> Lists:
        """Of all parts, in the order of `rows`."""
        each = list(parts)
        candidates = tuple(found for part in each for found in part.candidates)
        return Lists(candidates=candidates, certified=np.concatenate([part.certified for part in each])).take(self.place)
