"""Localization on the device in a planted street: the right tiles, the true pose, and no pose where there is none."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cache

import numpy as np
import pytest

from veil.device.tiles import TileAnswer, localize_with_tiles
from veil.errors import InputError, RangeError, SpaceError
from veil.geometry.earth import EarthFrame
from veil.geometry.georeference import Georeference
from veil.geometry.rigid import rotation_angle_deg
from veil.geometry.similarity import Similarity
from veil.places.poses.answer import Localization, NoPose
from veil.tiles.cutting import CutMap, CutOptions, cut
from veil.tiles.device import localize_in_tiles, place_in_map, wanted_tiles
from veil.tiles.exits import Region
from veil.tiles.fetching import Fetcher, TileFetcher, proved_tile
from worlds import features, generator
from worlds.tile_streets import street

TURN = np.array([[0.0, -1.0, 0.0], [1.0, 0.0, 0.0], [0.0, 0.0, 1.0]])
PLACE = Georeference(
    frame=EarthFrame(latitude_deg=48.0, longitude_deg=11.0, height_m=500.0),
    enu_from_map=Similarity(scale=4.0, rotation=TURN, translation=np.array([10.0, -20.0, 5.0])),
    median_error_m=0.5,
    largest_error_m=1.0,
    agreeing=np.ones(4, dtype=bool),
    uses_gravity=False,
)


@cache
def made() -> CutMap:
    return cut(street("device", cameras=24).scene, CutOptions(tile_bytes=20_000, words=128, asked=2), place=PLACE)


def answered(x: float, turn: float = 0.0, **where: object) -> tuple[TileAnswer, float, float]:
    """The answer to a query of the street, with its errors in units of the map and in degrees."""
    query, pose = street("device", cameras=24).query(x, turn)
    fetcher = TileFetcher(Fetcher(made().manifest, Region(read=lambda: made().records)))
    answer = localize_with_tiles(query, fetcher, **where)  # type: ignore[arg-type]
    if isinstance(answer.pose, NoPose):
        return answer, np.inf, np.inf
    camera = answer.pose.cam_from_world
    return answer, float(np.linalg.norm(camera.center - pose.center)), rotation_angle_deg(camera.rotation @ pose.rotation.T)


@pytest.mark.slow
@pytest.mark.parametrize(("x", "turn"), [(0.4, 0.0), (7.3, 0.2), (15.5, -0.2), (22.6, 0.1)])
def test_photographs_are_localized_from_what_they_look_like(x: float, turn: float) -> None:
    """Oracle: the planted pose. Two of many tiles are fetched, which the sketches choose."""
    assert len(made().manifest) >= 6
    answer, position, rotation = answered(x, turn)
    assert isinstance(answer.pose, Localization)
    assert position < 0.02 and rotation < 0.2 and answer.asked == 2
    centers = (made().manifest.low[list(answer.wanted), 0] + made().manifest.high[list(answer.wanted), 0]) / 2
    assert np.abs(centers - x).min() < 4


@pytest.mark.slow
def test_a_last_pose_or_a_gps_fix_choose_the_tiles_around_it() -> None:
    """Oracle: the cells' boxes, and the similarity that was planted."""
    x = 9.2
    latitude, longitude, _ = PLACE.frame.geodetic(PLACE.enu_from_map.apply(np.array([x, 0.0, 0.0]))).tolist()
    near = place_in_map(made().manifest, latitude, longitude, None)
    np.testing.assert_allclose(near[:2], [x, 0.0], atol=1e-4)
    for where in ({"near": np.array([x, 0.0, 0.0])}, {"fix": (latitude, longitude)}):
        answer, position, _ = answered(x, **where)
        assert position < 0.02
        low, high = made().manifest.low[answer.wanted[0]], made().manifest.high[answer.wanted[0]]
        gaps = np.maximum(np.maximum(made().manifest.low - near, near - made().manifest.high), 0)
        gap = np.linalg.norm(np.maximum(np.maximum(low - near, near - high), 0))
        assert gap == pytest.approx(np.linalg.norm(gaps, axis=1).min(), rel=1e-12)
    far, position, _ = answered(x, near=np.array([23.0, 0.0, 0.0]))
    assert isinstance(far.pose, NoPose)
    _, position, _ = answered(x, near=np.array([23.0, 0.0, 0.0]), within=30.0)
    assert position < 0.02


@pytest.mark.slow
def test_a_photograph_of_another_place_gets_no_pose() -> None:
    """Broken twin: an answer that always names the nearest tile's middle would give one."""
    for number in range(5):
        other, _ = street(f"elsewhere {number}", cameras=3).query(1.0)
        fetcher = TileFetcher(Fetcher(made().manifest, Region(read=lambda: made().records)))
        answer = localize_with_tiles(other, fetcher)
        assert isinstance(answer.pose, NoPose) and answer.asked == 2


def test_without_a_usable_tile_or_feature_there_is_no_pose() -> None:
    query, _ = street("device", cameras=24).query(5.0)
    none = localize_in_tiles(query, made().manifest, [])
    assert isinstance(none, NoPose) and "no tile" in none.reason
    tile = proved_tile(made().manifest, 0, made().records[0].tobytes())
    assert isinstance(localize_in_tiles(query.take(np.arange(0)), made().manifest, [tile]), NoPose)
    assert isinstance(localize_in_tiles(query.take(np.arange(3)), made().manifest, [tile]), NoPose)


def test_what_says_nothing_or_nonsense_is_refused_before_a_fetch() -> None:
    manifest = made().manifest
    query, _ = street("device", cameras=24).query(5.0)
    with pytest.raises(InputError, match="nothing says"):
        wanted_tiles(manifest)
    with pytest.raises(InputError, match="finite"):
        wanted_tiles(manifest, near=np.array([0.0, np.nan, 0.0]))
    with pytest.raises(RangeError, match="within"):
        wanted_tiles(manifest, query, within=float("nan"))
    with pytest.raises(RangeError):
        wanted_tiles(manifest, query, tiles=0)
    with pytest.raises(RangeError, match="latitude"):
        place_in_map(manifest, 95.0, 0.0)
    with pytest.raises(InputError, match="where on Earth"):
        place_in_map(replace(manifest, place=None), 48.0, 11.0)
    other = replace(features(generator("other"), 9), space=replace(query.space, normalization="L1_ROOT"))
    sent: list[int] = []

    class Counting:
        guarantee = Region(read=lambda: made().records).guarantee

        def fetch(self, indices: Sequence[int]) -> list[bytes]:
            sent.append(1)
            return []

    with pytest.raises(SpaceError):
        localize_with_tiles(other, TileFetcher(Fetcher(manifest, Counting())))
    assert sent == []
    assert wanted_tiles(manifest, query, tiles=1) == wanted_tiles(manifest, query)[:1]
