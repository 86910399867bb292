"""Guarantees of what leaves the device: an epsilon or no proof of a released form, privacy of what a fetch was for."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from veil.errors import RangeError
from veil.one_line import one_line

PrivacyUnit = Literal["feature", "image", "session"]
FetchUnit = Literal["query", "session"]

# What every server sees of every fetch: docs/theory/pir.md#what-is-not-hidden.
SEEN = ("how many records were asked for", "when", "from which network address")


@dataclass(frozen=True, kw_only=True)
class LocalDP:
    """Local differential privacy: any two inputs of one unit give each output with probabilities within a factor e^epsilon.

    - `epsilon`: the privacy loss of one unit, >= 0 (docs/theory/words.md, Eq. 1-7).
    - `unit`: what one input is: "feature", "image" or "session". Several units compose: their losses add up.

    Raises RangeError if epsilon is NaN, negative or infinite.
    """

    epsilon: float
    unit: PrivacyUnit

    __repr__ = one_line

    def __post_init__(self) -> None:
        if not 0 <= self.epsilon < math.inf:
            raise RangeError(f"epsilon must be finite and >= 0, got {self.epsilon!r}; infinity promises nothing")


@dataclass(frozen=True, kw_only=True)
class NoProof:
    """The absence of a proof of privacy; `reason` says in full sentences what is known to break the form.

    Raises RangeError for an empty reason.
    """

    reason: str

    __repr__ = one_line

    def __post_init__(self) -> None:
        if not self.reason.strip():
            raise RangeError("a NoProof without a reason hides what the user must know; say what breaks the form")


@dataclass(frozen=True, kw_only=True)
class PerfectPrivacy:
    """Perfect privacy of a fetch: what a server sees is distributed alike for all records, however much it computes.

    - `non_colluding`: how many servers must keep to themselves what they receive; 0 if nothing that is sent depends on the
      records (everything is downloaded).
    - `of`: how many servers are asked.
    - `unit`: what it holds for. Perfect privacy does not wear out: of a "query" it is that of a "session".
    - `learns`: what each server does learn.

    Raises RangeError for numbers of servers that cannot be, and if nothing is said to be learned.
    """

    non_colluding: int
    of: int
    unit: FetchUnit
    learns: tuple[str, ...] = SEEN

    __repr__ = one_line

    def __post_init__(self) -> None:
        if not 0 <= self.non_colluding <= self.of or self.of < 1:
            raise RangeError(
                f"of {self.of!r} servers {self.non_colluding!r} cannot be honest; give 0 to `of`, and one server or more"
            )
        _require_learns(self.learns)

    @property
    def sentence(self) -> str:
        """The guarantee in one sentence."""
        condition = f"while at least {self.non_colluding} of {self.of} servers keeps to itself what it receives, " * bool(
            self.non_colluding
        )
        return _sentence(
            f"{condition}no server learns which records a {self.unit} fetched, however much it computes", self.learns
        )


@dataclass(frozen=True, kw_only=True)
class ComputationalPrivacy:
    """Privacy of a fetch under an assumption: to tell apart what is sent for any two records takes 2^bits operations.

    - `assumption`: the problem that is taken to be hard, with its parameters and the source of the estimate.
    - `bits`: the logarithm of the estimated cost of the best known attack.
    - `unit`: what it holds for. Of Q queries the advantages add up, so that a session has log2(Q) bits less.
    - `learns`: what the server does learn.

    Raises RangeError for an empty assumption, bits that are not positive and finite, and if nothing is said to be learned.
    """

    assumption: str
    bits: float
    unit: FetchUnit
    learns: tuple[str, ...] = SEEN

    __repr__ = one_line

    def __post_init__(self) -> None:
        if not self.assumption.strip():
            raise RangeError("computational privacy needs its assumption; name the problem, its parameters and the estimate")
        if not 0 < self.bits < math.inf:
            raise RangeError(f"bits must be positive and finite, got {self.bits!r}; perfect privacy is another type")
        _require_learns(self.learns)

    @property
    def sentence(self) -> str:
        """The guarantee in one sentence."""
        return _sentence(
            f"to learn which record a {self.unit} fetched, the server needs an estimated 2^{self.bits:g} operations "
            f"({self.assumption})",
            self.learns,
        )


def _require_learns(learns: tuple[str, ...]) -> None:
    """Raise RangeError unless something is said to be learned: every server sees at least that it was asked."""
    if not learns or not all(item.strip() for item in learns):
        raise RangeError("a fetch hides neither itself nor its size; say what each server learns")


def _sentence(promise: str, learns: tuple[str, ...]) -> str:
    """A promise and what it leaves open, as one sentence."""
    *rest, last = learns
    seen = f"{', '.join(rest)} and {last}" if rest else last
    return f"{promise[0].upper()}{promise[1:]}; each server learns {seen}."


Guarantee = LocalDP | NoProof
FetchGuarantee = PerfectPrivacy | ComputationalPrivacy | NoProof
