"""Processor time for an audit's attacks: each has a share, and what one does not spend passes on to those after it.

An attack that has not time for all features is run on fewer of them, drawn at random. Its shares are then of these, with the
wider intervals of so few (docs/theory/audit.md, "Time").
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
from jaxtyping import Int64

from veil.errors import RangeError

Result = TypeVar("Result")

# The first feature is not timed, nor taken from its attack's share: it may compile code for longer than that. The next few tell
# how long one takes, or the next one where the first took so long that it may be the attack that is slow.
FIRST, NEXT = 1, 7
# A piece is at most so many times as large as all that its time is judged by.
GROWTH = 4
# Processor seconds: with the pictures, fifteen photographs end within three minutes on two cores.
AUDIT_SECONDS = 150


@dataclass(frozen=True, kw_only=True)
class Spending:
    """Of one attack over all releases: its share of the time, what it took (processor seconds), and features."""

    share_seconds: float
    seconds: float
    wanted: int
    attacked: int

    @property
    def cut_short(self) -> bool:
        """Whether features were left out for want of time."""
        return self.attacked < self.wanted


class TimeBudget:
    """`seconds` of processor time over `turns` releases; `begin_turn` starts each. Infinite seconds cut nothing.

    `shares` holds each attack's part of one release's time, by name: what searches has more than what looks up. Attacks that it
    does not name compare all features with each other and are not cut; what they take is taken from the others.
    """

    def __init__(
        self, seconds: float, *, turns: int, shares: Mapping[str, float], clock: Callable[[], float] = time.process_time
    ) -> None:
        if not seconds > 0 or turns < 1:
            raise RangeError(f"a budget needs a positive time and at least one turn, got {seconds!r} and {turns!r}")
        self.seconds, self.turns, self.clock, self.shares = seconds, turns, clock, shares
        self._left, self._turns_left = seconds, turns
        self._shares_left = self._charged = 0.0
        self._spent: dict[str, Spending] = {}
        self._timed: dict[str, tuple[float, int]] = {}  # seconds and features that an attack's pace is judged by

    @property
    def spent(self) -> Mapping[str, Spending]:
        """What was spent, by attack."""
        return self._spent

    @property
    def used_seconds(self) -> float:
        """Processor seconds of all attacks together."""
        return self._charged + sum(item.seconds for item in self._spent.values())

    def begin_turn(self) -> None:
        """The next release: whatever attacks were not run on the last one leave their time to this one."""
        self._shares_left = sum(self.shares.values())
        self._turns_left = max(self._turns_left - 1, 0)

    def allowance(self, attack: str) -> float:
        """Processor seconds that the attack may take on this release: its share of all that is left."""
        if math.isinf(self.seconds):
            return math.inf
        share = self.shares[attack]
        return self._left * share / (max(self._shares_left, share) + self._turns_left * sum(self.shares.values()))

    def run(
        self, attack: str, rows: Int64[np.ndarray, "wanted"], work: Callable[[Int64[np.ndarray, "piece"]], Result], seed: int
    ) -> list[tuple[Int64[np.ndarray, "piece"], Result]]:
        """`work` on pieces of `rows`, until all are done or the allowance is spent; the rows of each piece with its result.

        All in one piece if the pace is known and the time is enough. Which rows are done is drawn by `seed`.
        """
        allowed, begun = self.allowance(attack), self.clock()
        order = np.random.default_rng([seed, *attack.encode()]).permutation(rows)
        done, found, first = 0, [], 0.0
        while done < len(rows):
            left = allowed - (self.clock() - begun - first)
            size = self._next(attack, left, len(rows) - done, NEXT if first <= allowed else 1)
            if not size:
                break
            piece = np.sort(order[done : done + size])
            start = self.clock()
            found.append((piece, work(piece)))
            first += 0.0 if attack in self._timed else self.clock() - start
            self._learn(attack, self.clock() - start, size)
            done += size
        self._account(attack, self.clock() - begun, len(rows), done)
        self._shares_left -= self.shares.get(attack, 0.0)
        return found

    def charge(self, seconds: float) -> None:
        """Seconds that an attack took which is not cut."""
        self._left = max(0.0, self._left - seconds)
        self._charged += seconds

    def _next(self, attack: str, left: float, remaining: int, unknown: int) -> int:
        """How many features there is time for, at the attack's pace so far; `unknown` of them where that is not known."""
        if math.isinf(self.seconds):
            return remaining
        if attack not in self._timed:  # every attack has a first feature, or its pace would never be known
            return min(FIRST, remaining)
        seconds, features = self._timed[attack]
        if not features:
            return min(unknown, remaining) if left > 0 else 0
        pace = seconds / features
        return max(0, min(remaining, GROWTH * features, math.floor(left / pace) if pace > 0 else remaining))

    def _learn(self, attack: str, seconds: float, features: int) -> None:
        before = self._timed.get(attack)
        self._timed[attack] = (0.0, 0) if before is None else (before[0] + seconds, before[1] + features)

    def _account(self, attack: str, seconds: float, wanted: int, attacked: int) -> None:
        self._left = max(0.0, self._left - seconds)
        before = self._spent.get(attack)
        part = 1.0 if math.isinf(self.seconds) else self.shares[attack] / sum(self.shares.values())
        self._spent[attack] = Spending(
            share_seconds=self.seconds * part,
            seconds=seconds + (before.seconds if before else 0.0),
            wanted=wanted + (before.wanted if before else 0),
            attacked=attacked + (before.attacked if before else 0),
        )
