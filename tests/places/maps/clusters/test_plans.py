"""Plans of maps: against counting, and against what is measured here."""

from __future__ import annotations

import math
from typing import Any

import pytest

from veil.errors import RangeError
from veil.places.maps.clusters.plans import MapSize, UnitCosts, planned_map
from veil.places.unit_costs import IMAGES, measured_costs, usual_size

COSTS = UnitCosts(features=500, match_s=0.01, list_s=0.1, vote_s=1e-7, map_s=0.5)


def test_a_plan_is_counted_by_hand() -> None:
    """Defining equations: Eq. 5-8 of docs/theory/scale.md for numbers that are easy to follow."""
    size = MapSize(
        images=1000, features=1000, paired=20, words=10_000, listed=10, crowding=2.0, dim=50, m=3, message_bytes=500.0
    )
    plan = planned_map(size, COSTS, machines=2, cores=4)
    assert plan.pairs == 20_000
    assert plan.matching_s == pytest.approx(20_000 * 0.01 * 4)
    assert plan.retrieval_s == pytest.approx(1000 * 0.1 * 2 + 2.0 * (1000 * 1000 * 10) ** 2 / (2 * 10_000) * 1e-7)
    assert plan.mapping_s == pytest.approx(1000 * 0.5 * 2)
    assert plan.days == pytest.approx(((plan.retrieval_s + plan.mapping_s) / 4 + plan.matching_s / 8) / 86_400)
    assert plan.core_hours == pytest.approx((plan.retrieval_s + plan.mapping_s + plan.matching_s) / 3600)
    pair_bytes = 20_000 * 250 * 24
    assert plan.disk_bytes == 1000 * 500_000 + pair_bytes
    assert plan.memory_bytes == 2 * 1000 * (1000 * 4 * 50 * 4) + pair_bytes + 24 * 1000 * 1000
    assert plan.worker_bytes == 64 * 1000 * 4 * 50 * 4
    assert plan.network_bytes == math.ceil(20_000 / 1024) * 64 * 500_000


def test_all_pairs_need_no_retrieval_and_small_maps_no_more_pairs_than_there_are() -> None:
    """Enumeration of the pairs of few images."""
    plan = planned_map(MapSize(images=30, paired=None), COSTS)
    assert plan.pairs == 435 and plan.retrieval_s == 0
    assert planned_map(MapSize(images=30, paired=40), COSTS).pairs == 435


def test_tracks_compare_less_than_features() -> None:
    """By hand: a quarter of the features under six words each, and a twentieth as many tracks, each ten times as dear.

    Looking up images without tracks adds six tenths to all of it.
    """
    features, tracks = (
        planned_map(MapSize(images=1000, paired=20, tracks=tracks), COSTS).retrieval_s for tracks in (False, True)
    )
    listing = 1000 * COSTS.list_s * 1000 / COSTS.features
    compared = (tracks / 1.6 - 0.45 * listing) / (features - listing)
    assert compared == pytest.approx((6 / 10) ** 2 * (0.25**2 + 10 * 0.05**2))


def test_numbers_out_of_range_are_refused() -> None:
    wrongs: list[dict[str, Any]] = [
        {"images": 1},
        {"images": 5, "features": 0},
        {"images": 5, "paired": 0},
        {"images": 5, "words": 0},
    ]
    for wrong in wrongs:
        with pytest.raises(RangeError):
            MapSize(**wrong)
    with pytest.raises(RangeError, match="machines"):
        planned_map(MapSize(images=5), COSTS, machines=0)
    with pytest.raises(RangeError, match="seconds"):
        measured_costs(0.0)


@pytest.mark.slow
def test_costs_are_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    """Bounds on both sides that hold on any machine; a twin that measures nothing has costs of 0."""
    costs = measured_costs(0.02)
    assert 1e-5 < costs.match_s < 5 and 1e-4 < costs.list_s < 30 and 1e-10 < costs.vote_s < 1e-4
    assert usual_size(10, 100, None).listed > 0 and IMAGES > 1
