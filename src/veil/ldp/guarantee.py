"""What a released form promises: an epsilon that holds for a stated unit, or plainly no proof."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from veil.errors import RangeError

Unit = Literal["feature", "image", "session"]


@dataclass(frozen=True, kw_only=True)
class LocalDP:
    """Local differential privacy of one `unit` with the given `epsilon`; it composes over units.

    Raises RangeError if epsilon is NaN, negative or infinite.
    """

    epsilon: float
    unit: Unit

    def __post_init__(self) -> None:
        if not 0 <= self.epsilon < math.inf:
            raise RangeError(f"epsilon must be finite and >= 0, got {self.epsilon!r}; infinity promises nothing")


@dataclass(frozen=True, kw_only=True)
class NoProof:
    """No proof of privacy exists; `reason` says in full sentences what is known to break the form."""

    reason: str

    def __post_init__(self) -> None:
        if not self.reason.strip():
            raise RangeError("a NoProof without a reason hides what the user must know; say what breaks the form")


Guarantee = LocalDP | NoProof
