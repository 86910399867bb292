"""Plans of private fetching: costs by their formulas, and the exit that is best for every number of localizations."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest

from veil.errors import RangeError
from veil.tiles.plans import ServerCosts, TileNumbers, best_range, plan_exits

COSTS = ServerCosts(xor_s=2e-10, product_s=1e-10, hint_s=1e-7, exact_s=3e-10, packing_s=0.01, transform_s=1e-8, collapse_s=0.4)
CITY = TileNumbers(tiles=1000, record_bytes=262_464, manifest_bytes=700_000, asked=4)


def test_costs_follow_from_their_formulas() -> None:
    """Oracle: the numbers of docs/theory/tiles.md#what-it-costs, counted by hand for 1,000 tiles."""
    plans = {plan.exit: plan for plan in plan_exits(CITY, COSTS, localizations=700, mbit_s=20.0)}
    region, two, one = plans["region"], plans["two servers"], plans["one server"]
    assert (region.once_bytes, region.up_bytes, region.down_bytes) == (700_000 + 262_464_000, 0, 0)
    assert (two.once_bytes, two.up_bytes, two.down_bytes) == (700_000, 2 * 4 * 125, 2 * 4 * 262_464)
    assert two.server_s == pytest.approx(8 * 262_464_000 * 2e-10)
    assert two.total_bytes == 700_000 + 700 * (1000 + 8 * 262_464) and two.link_s == pytest.approx(8 * two.total_bytes / 20e6)
    assert one.prepare_s == pytest.approx(26.2464) and one.once_bytes > 700_000 and one.down_bytes >= 4 * 4 * 262_464
    packed = plans["hintless"]  # 262,464 bytes in 9 parts of 29,163, each packed in 15 polynomials
    assert packed.once_bytes == 700_000
    assert (packed.up_bytes, packed.down_bytes) == (4 * 9 * (4 * 9000 + 40 * 2048), 4 * 9 * 4 * 15 * 2048)
    assert packed.server_s == pytest.approx(4 * 9 * (262_464_000 * 3e-10 + 15 * 0.01))
    assert packed.prepare_s == pytest.approx(262_464_000 * 1e-8 + 15 * 0.4)
    assert region.prepare_s == two.prepare_s == region.server_s == 0.0


@pytest.mark.parametrize("numbers", [CITY, TileNumbers(tiles=4, record_bytes=70_000, manifest_bytes=70_000, asked=4)])
def test_the_best_is_the_best_for_every_number(numbers: TileNumbers) -> None:
    """Oracle: enumeration of numbers of localizations."""
    plans = plan_exits(numbers, COSTS, localizations=50, mbit_s=20.0)
    assert plans[0].total_bytes == min(plan.total_bytes for plan in plans)
    for count in [*range(1, 200), 10**6]:
        totals = {plan.exit: plan.once_bytes + count * (plan.up_bytes + plan.down_bytes) for plan in plans}
        for plan in plans:
            said = plan.best_from is not None and plan.best_from <= count <= (plan.best_to or math.inf)
            assert said == (totals[plan.exit] == min(totals.values()))


@pytest.mark.parametrize(
    ("own", "others", "due"),
    [
        ((10, 1), [(0, 2)], (10, None)),
        ((0, 2), [(10, 1)], (1, 10)),
        ((5, 1), [(4, 1)], (None, None)),
        ((5, 1), [(5, 1)], (1, None)),
        ((10, 2), [(0, 3), (12, 1)], (None, None)),
    ],
)
def test_ranges_of_straight_lines(own: tuple, others: list, due: tuple) -> None:
    def line(pair: tuple[int, int]) -> Callable[[int], int]:
        return lambda count: pair[0] + pair[1] * count

    assert best_range(line(own), [line(other) for other in others]) == due


def test_an_exit_that_cannot_be_is_left_out() -> None:
    many = TileNumbers(tiles=3_000_000, record_bytes=100, manifest_bytes=1, asked=1)
    assert {plan.exit for plan in plan_exits(many, COSTS, localizations=1, mbit_s=1.0)} == {"region", "two servers"}
    for localizations, mbit in ((0, 1.0), (1, 0.0), (1, math.nan), (1, math.inf)):
        with pytest.raises(RangeError):
            plan_exits(CITY, COSTS, localizations=localizations, mbit_s=mbit)
