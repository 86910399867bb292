"""Guarantees of released forms: an epsilon that holds for a stated unit, or no proof, with the reason."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from veil.errors import RangeError

PrivacyUnit = Literal["feature", "image", "session"]


@dataclass(frozen=True, kw_only=True)
class LocalDP:
    """Local differential privacy: any two inputs of one unit give each output with probabilities within a factor e^epsilon.

    - `epsilon`: the privacy loss of one unit, >= 0 (docs/theory/words.md, Eq. 1-7).
    - `unit`: what one input is: "feature", "image" or "session". Several units compose: their losses add up.

    Raises RangeError if epsilon is NaN, negative or infinite.
    """

    epsilon: float
    unit: PrivacyUnit

    def __post_init__(self) -> None:
        if not 0 <= self.epsilon < math.inf:
            raise RangeError(f"epsilon must be finite and >= 0, got {self.epsilon!r}; infinity promises nothing")


@dataclass(frozen=True, kw_only=True)
class NoProof:
    """The absence of a proof of privacy; `reason` says in full sentences what is known to break the form.

    Raises RangeError for an empty reason.
    """

    reason: str

    def __post_init__(self) -> None:
        if not self.reason.strip():
            raise RangeError("a NoProof without a reason hides what the user must know; say what breaks the form")


Guarantee = LocalDP | NoProof
