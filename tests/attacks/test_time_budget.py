"""Time shared out among attacks, with a planted clock: which attacks are cut, and where unspent time goes."""

from __future__ import annotations

import math

import numpy as np
import pytest

from veil.attacks.registry import TIME_SHARES
from veil.attacks.time_budget import TimeBudget
from veil.errors import RangeError


class World:
    """Attacks that take a number of seconds for each feature, by name, and a clock that they advance."""

    def __init__(self, **paces: float) -> None:
        self.now, self.paces, self.done = 0.0, paces, {name: 0 for name in paces}

    def run(self, budget: TimeBudget, attack: str, features: int, seed: int = 1) -> np.ndarray:
        """Rows that were attacked, ascending."""

        def work(rows: np.ndarray) -> int:
            self.now += self.paces[attack] * len(rows)
            self.done[attack] += len(rows)
            return len(rows)

        batches = budget.run(attack, np.arange(features), work, seed=seed)
        assert all(len(rows) == result for rows, result in batches)
        return np.sort(np.concatenate([rows for rows, _ in batches])) if batches else np.zeros(0, dtype=np.int64)


def budget(world: World, seconds: float, turns: int) -> TimeBudget:
    return TimeBudget(seconds, turns=turns, shares=TIME_SHARES, clock=lambda: world.now)


def test_without_a_limit_everything_is_done_in_one_piece() -> None:
    """Golden: infinite time cuts nothing, and the rows come sorted and whole."""
    world, time = World(lattice=1e6), TimeBudget(math.inf, turns=1, shares=TIME_SHARES)
    time.begin_turn()
    (piece,) = time.run("lattice", np.arange(7) * 3, lambda rows: rows, seed=0)
    assert piece[0].tolist() == piece[1].tolist() == [0, 3, 6, 9, 12, 15, 18]
    assert world.run(time, "lattice", 50).tolist() == list(range(50)) and not time.spent["lattice"].cut_short


@pytest.mark.parametrize("turns", [1, 15])
def test_the_whole_time_is_kept(turns: int) -> None:
    """Planted: attacks that would take 100 times the time end within it, but for the first features of each attack.

    Most of the time is used: of one release only the shares of the attacks that were not run are left.
    """
    world = World(lattice=5.0, vertex=2.0, nearest=0.001)
    time = budget(world, 300.0, turns)
    for _ in range(turns):
        time.begin_turn()
        for attack in world.paces:
            world.run(time, attack, 3000 // turns)
    part = sum(TIME_SHARES[attack] for attack in world.paces) / sum(TIME_SHARES.values())
    assert 0.9 * part * 300 < world.now <= 300 + 8 * 5 + 8 * 2
    assert time.used_seconds == pytest.approx(world.now)
    assert time.spent["lattice"].cut_short and time.spent["vertex"].cut_short and not time.spent["nearest"].cut_short
    assert {name: item.attacked for name, item in time.spent.items()} == world.done


def test_what_one_leaves_passes_on() -> None:
    """Planted: with a lattice attack that takes nothing, the vertex attack after it gets the lattice's share as well."""
    slow, quick = World(lattice=1.0, vertex=1.0), World(lattice=1e-6, vertex=1.0)
    for world in (slow, quick):
        time = budget(world, 1000.0, 1)
        time.begin_turn()
        for attack in ("lattice", "vertex"):
            world.run(time, attack, 10_000)
    share = 1000 * TIME_SHARES["lattice"] / sum(TIME_SHARES.values())
    assert quick.done["lattice"] == 10_000
    assert slow.done["lattice"] == pytest.approx(share, abs=20)
    after = sum(TIME_SHARES.values()) - TIME_SHARES["lattice"]
    passed_on = share * TIME_SHARES["vertex"] / after
    assert quick.done["vertex"] > slow.done["vertex"] + 0.8 * passed_on


def test_a_cut_attack_has_a_random_part_of_the_features() -> None:
    """Statistics: over 300 releases cut to a tenth or so, early and late rows are attacked alike (four deviations); the broken
    twin, which takes the first rows, attacks early ones only."""
    early = total = 0
    for seed in range(300):
        world = World(lattice=1.0)
        time = budget(world, 40.0, 1)
        time.begin_turn()
        rows = world.run(time, "lattice", 200, seed)
        assert len(np.unique(rows)) == len(rows) < 60
        early, total = early + int((rows < 100).sum()), total + len(rows)
    assert abs(early / total - 0.5) < 4 * 0.5 / math.sqrt(total)


def test_what_compiling_takes_is_not_taken_from_the_attack() -> None:
    """Planted: the first feature of a fresh installation takes 20 s, the others a tenth of a second each.

    All 40 are attacked, although the attack's share is 13 s; the time that is reported includes the first feature.
    """
    world, pace = World(), 0.1
    time = budget(world, 60.0, 1)
    time.begin_turn()
    compiled: list[int] = []

    def work(rows: np.ndarray) -> int:
        world.now += 20.0 if not compiled else pace * len(rows)
        compiled.append(len(rows))
        return len(rows)

    batches = time.run("lattice", np.arange(40), work, seed=1)
    assert sum(count for _, count in batches) == 40 and compiled[0] == 1 and not time.spent["lattice"].cut_short
    assert time.spent["lattice"].seconds == pytest.approx(world.now) == pytest.approx(20 + 39 * pace)


def test_every_attack_has_a_first_feature_and_then_none() -> None:
    """Planted: if even one feature takes too long, two are attacked on the first release, and none on later ones.

    The second feature measures the pace.
    """
    world = World(lattice=50.0)
    time = budget(world, 10.0, 3)
    counts = []
    for _ in range(3):
        time.begin_turn()
        counts.append(len(world.run(time, "lattice", 20)))
    assert counts == [2, 0, 0]


def test_nonsense_is_refused() -> None:
    for seconds, turns in ((0.0, 1), (-1.0, 1), (math.nan, 1), (1.0, 0)):
        with pytest.raises(RangeError, match="budget"):
            TimeBudget(seconds, turns=turns, shares=TIME_SHARES)
