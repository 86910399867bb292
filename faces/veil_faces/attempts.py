"""The limit of failed attempts: five at once, then a number a day, for each person who is verified, and for identification.

Time alone gives attempts back. A right answer would give them to whoever has one accepted face, as every attacker has who asks
at the border of what is accepted (docs/theory/faces.md#a-limit-of-questions).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from datetime import UTC, datetime

from veil.errors import InputError, RangeError, Remedy

# Failed attempts at once: NIST SP 800-63B (2017), Sec. 5.2.3, where attacks with artefacts are not detected.
AT_ONCE = 5
DAY_S = 86400.0
# Largest number of failed attempts a day; more would be no limit.
MOST_A_DAY = 10_000
# Moments nearer than this are one: seconds since 1970 have no more digits.
ROUNDING_S = 1e-3


class AttemptsSpent(InputError):
    """A question that was refused, unanswered, as too many failed before it; `again_at_s` is when one may be asked again.

    Times are seconds since 1970 (UTC).
    """

    def __init__(self, whose: str, again_at_s: float, remedy: Remedy) -> None:
        cause = f"{whose} had too many failed attempts, and nothing was compared; ask again at {utc(again_at_s)}"
        super().__init__(cause, facts={"again_at_s": again_at_s}, remedy=remedy)
        self.again_at_s = again_at_s


@dataclass(frozen=True, kw_only=True)
class AttemptLimit:
    """Limit of failed attempts: `AT_ONCE` at once, and `a_day` of them are given back each day, evenly over it.

    Raises RangeError for fewer than 1 or more than `MOST_A_DAY` a day.
    """

    a_day: int = 1

    def __post_init__(self) -> None:
        if not 1 <= self.a_day <= MOST_A_DAY:
            raise RangeError(f"failed attempts a day are 1 to {MOST_A_DAY}, got {self.a_day!r}")

    def within(self, days: int) -> int:
        """Largest number of failed attempts in a number of days."""
        return AT_ONCE + days * self.a_day


@dataclass(frozen=True, kw_only=True)
class FailedAttempts:
    """Number of failed attempts that count, at a moment in seconds since 1970; days give them back, in parts.

    Raises RangeError for a number or a moment that is negative or not finite, or for a number that no limit allows.
    """

    number: float = 0.0
    at_s: float = 0.0

    def __post_init__(self) -> None:
        if not (0 <= self.number <= AT_ONCE and 0 <= self.at_s < math.inf):
            raise RangeError(f"failed attempts are 0 to {AT_ONCE} at a moment since 1970, got {self!r}")

    def after(self, limit: AttemptLimit, now_s: float) -> FailedAttempts:
        """Those that still count now. A clock that was set back gives nothing back."""
        back = max(0.0, now_s - self.at_s) / DAY_S * limit.a_day
        return FailedAttempts(number=max(0.0, self.number - back), at_s=now_s)

    def wait_s(self, limit: AttemptLimit) -> float:
        """Seconds until another attempt may fail; 0 if it may now."""
        wait_s = max(0.0, self.number + 1 - AT_ONCE) / limit.a_day * DAY_S
        return wait_s if wait_s > ROUNDING_S else 0.0

    def charged(self) -> FailedAttempts:
        """One more."""
        return FailedAttempts(number=float(min(self.number + 1, AT_ONCE)), at_s=self.at_s)

    def given_back(self) -> FailedAttempts:
        """One fewer, of an attempt that did not fail."""
        return FailedAttempts(number=max(0.0, self.number - 1), at_s=self.at_s)


def utc(moment_s: float) -> str:
    """A moment of seconds since 1970, rounded up to a second, as 2026-01-31T12:00:00Z."""
    return datetime.fromtimestamp(math.ceil(moment_s), tz=UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
