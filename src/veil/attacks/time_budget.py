"""Budget of processor time for an audit's attacks: each attack has a share, and unspent time passes on to those after it.

An attack without time for all features runs on fewer of them, drawn at random. What it recovers is then counted among these,
with the wider confidence intervals of fewer features (docs/theory/audit.md#time).
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
from jaxtyping import Int64

from veil.errors import RangeError
from veil.one_line import one_line

Item = TypeVar("Item")
Result = TypeVar("Result")

# Sizes of an attack's first two pieces. The first feature is neither timed nor charged to the attack's share: it may compile
# code for longer than that. The second piece measures the pace. It is a single feature where the first one took longer than the
# allowance, since then the attack itself may be slow.
FIRST, NEXT = 1, 7
# A piece has at most this many times the features that the pace was measured on.
GROWTH = 4
# Default budget of an audit in processor seconds: with the pictures, fifteen photographs end within three minutes on two cores.
AUDIT_SECONDS = 150


@dataclass(frozen=True, kw_only=True)
class AttackTime:
    """Processor time of one attack over all releases: its share of an audit's (`share_seconds`), and the `seconds` it took.

    Of the `wanted` features it attacked as many as there was time for (`attacked`).
    """

    share_seconds: float
    seconds: float
    wanted: int
    attacked: int

    __repr__ = one_line

    @property
    def cut_short(self) -> bool:
        """Whether features were left out for want of time."""
        return self.attacked < self.wanted


@dataclass(frozen=True, kw_only=True)
class AuditTime:
    """Processor time of the attacks of an audit: the `seconds` that they had together, and the `used_seconds` that they took.

    `spent` has the part of each attack by its name. The seconds are infinite where no limit was set.
    """

    seconds: float
    used_seconds: float
    spent: Mapping[str, AttackTime]

    __repr__ = one_line


class TimeBudget:
    """Budget of `seconds` of processor time for the attacks on `turns` releases; infinite seconds cut nothing.

    `begin_turn` is called before each release. `shares` maps an attack's name to its weight in the time of one release: attacks
    that search have more than those that look up. Attacks without a weight compare all features with each other and are not
    cut; the time that they take (`charge`) is taken from the others. `clock` returns processor seconds.

    Theory: docs/theory/audit.md, Eq. 5.
    """

    def __init__(
        self, seconds: float, *, turns: int, shares: Mapping[str, float], clock: Callable[[], float] = time.process_time
    ) -> None:
        if not seconds > 0 or turns < 1:
            raise RangeError(f"a budget needs a positive time and at least one turn, got {seconds!r} and {turns!r}")
        self.seconds, self.turns, self.clock, self.shares = seconds, turns, clock, shares
        self._left, self._turns_left = seconds, turns
        self._shares_left = self._charged = 0.0
        self._of_a_turn = sum(shares.values())
        self._spent: dict[str, AttackTime] = {}
        self._timed: dict[str, tuple[float, int]] = {}  # seconds and features that an attack's pace was measured on

    @property
    def spent(self) -> Mapping[str, AttackTime]:
        """Time and features of each attack so far, by its name."""
        return self._spent

    @property
    def used_seconds(self) -> float:
        """Processor seconds of all attacks together."""
        return self._charged + sum(item.seconds for item in self._spent.values())

    def as_record(self) -> AuditTime:
        """The time that was given, and taken so far."""
        return AuditTime(seconds=self.seconds, used_seconds=self.used_seconds, spent=dict(self._spent))

    def begin_turn(self, attacks: Iterable[str] | None = None) -> None:
        """Start the next release, which gives those of `attacks` (default: all) something to look at; only they have shares.

        The releases to come are taken to be like this one. Time of attacks that were not run on the last one stays available.
        """
        names = self.shares if attacks is None else dict.fromkeys(attacks)
        self._shares_left = self._of_a_turn = sum(self.shares.get(name, 0.0) for name in names)
        self._turns_left = max(self._turns_left - 1, 0)

    def allowance(self, attack: str) -> float:
        """Processor seconds that the attack may take on this release (docs/theory/audit.md, Eq. 5)."""
        if math.isinf(self.seconds):
            return math.inf
        share = self.shares[attack]
        return self._left * share / (max(self._shares_left, share) + self._turns_left * self._of_a_turn)

    def run(
        self, attack: str, rows: Int64[np.ndarray, "wanted"], work: Callable[[Int64[np.ndarray, "piece"]], Result], seed: int
    ) -> list[tuple[Int64[np.ndarray, "piece"], Result]]:
        """Rows and results of `work` on pieces of `rows`, until all rows are done or the attack's allowance is spent.

        There is one piece if the pace is known and the time is enough. Which rows are done first is drawn by `seed`.
        """
        allowed, begun = self.allowance(attack), self.clock()
        order = np.random.default_rng([seed, *attack.encode()]).permutation(rows)
        done, results, first_seconds = 0, [], 0.0
        while done < len(rows):
            left = allowed - (self.clock() - begun - first_seconds)
            size = self._piece_size(attack, left, len(rows) - done, NEXT if first_seconds <= allowed else 1)
            if not size:
                break
            piece = np.sort(order[done : done + size])
            start = self.clock()
            results.append((piece, work(piece)))
            first_seconds += 0.0 if attack in self._timed else self.clock() - start
            self._add_to_pace(attack, self.clock() - start, size)
            done += size
        self._account(attack, self.clock() - begun, len(rows), done)
        self._shares_left -= self.shares.get(attack, 0.0)
        return results

    def run_some(
        self, attack: str, items: Sequence[Item], work: Callable[[Item], Result], seed: int
    ) -> list[tuple[Item, Result]]:
        """Items with the results of `work` on them, one at a time, until all are done or the attack's allowance is spent.

        Which items are done first is drawn by `seed`; one is always done.
        """
        allowed, begun = self.allowance(attack), self.clock()
        done: list[tuple[Item, Result]] = []
        for place in np.random.default_rng([seed, *attack.encode()]).permutation(len(items)):
            if done and self.clock() - begun > allowed:
                break
            done.append((items[place], work(items[place])))
        self._account(attack, self.clock() - begun, 0, 0)
        self._shares_left -= self.shares.get(attack, 0.0)
        return done

    def add(self, other: TimeBudget) -> None:
        """Count what was spent of another budget, which was a part of this one."""
        self._left = max(0.0, self._left - other.used_seconds)
        self._charged += other._charged
        for attack, spent in other.spent.items():
            before = self._spent.get(attack)
            self._spent[attack] = AttackTime(
                share_seconds=self._share_of(attack),
                seconds=spent.seconds + (before.seconds if before else 0.0),
                wanted=spent.wanted + (before.wanted if before else 0),
                attacked=spent.attacked + (before.attacked if before else 0),
            )

    def charge(self, seconds: float) -> None:
        """Subtract the processor seconds of an attack that is not cut from the time that is left."""
        self._left = max(0.0, self._left - seconds)
        self._charged += seconds

    def _piece_size(self, attack: str, left: float, remaining: int, trial: int) -> int:
        """Number of features of the next piece: as many as fit into `left` seconds at the pace, or `trial` to measure it."""
        if math.isinf(self.seconds):
            return remaining
        if attack not in self._timed:  # every attack runs on a first feature, or its pace would never be known
            return min(FIRST, remaining)
        seconds, features = self._timed[attack]
        if not features:
            return min(trial, remaining) if left > 0 else 0
        pace = seconds / features
        return max(0, min(remaining, GROWTH * features, math.floor(left / pace) if pace > 0 else remaining))

    def _add_to_pace(self, attack: str, seconds: float, features: int) -> None:
        before = self._timed.get(attack)
        self._timed[attack] = (0.0, 0) if before is None else (before[0] + seconds, before[1] + features)

    def _account(self, attack: str, seconds: float, wanted: int, attacked: int) -> None:
        self._left = max(0.0, self._left - seconds)
        before = self._spent.get(attack)
        self._spent[attack] = AttackTime(
            share_seconds=self._share_of(attack),
            seconds=seconds + (before.seconds if before else 0.0),
            wanted=wanted + (before.wanted if before else 0),
            attacked=attacked + (before.attacked if before else 0),
        )

    def _share_of(self, attack: str) -> float:
        """Seconds of the whole budget that an attack's weight gives it."""
        return self.seconds * (1.0 if math.isinf(self.seconds) else self.shares[attack] / sum(self.shares.values()))
