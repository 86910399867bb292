"""Audits of published tiles, on a planted street: places, descriptors and cameras against the planted ones."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from veil.audit.on_tiles import TileView, descriptor_errors, led_back, pictures, seen_from, view_of_photograph, view_of_tile
from veil.features import Features
from veil.geometry.camera import as_colmap
from veil.geometry.rigid import Rigid
from veil.inversion.maps import SIDE, Frame, Inverts, Kind, SparseMap
from veil.mechanisms.public import publish
from veil.places.poses.answer import Localization, NoPose
from veil.space import Space
from veil.tiles.cutting import CutMap, CutOptions, cut
from veil.tiles.device import localize_in_tiles
from veil.tiles.fetching import proved_tile
from veil.tiles.tile_format import Tile
from veil.tiles.union import united
from worlds import camera, project
from worlds.tile_streets import pose_at, street, visible

X = 4.4


class Shows:
    """An inverter that keeps the maps that it is given and paints them gray."""

    def __init__(self) -> None:
        self.kind: Kind = "raw"
        self.seen: list[SparseMap] = []

    def invert(self, maps: Sequence[SparseMap]) -> np.ndarray:
        self.seen.extend(maps)
        return np.full((len(maps), SIDE, SIDE, 3), 128, dtype=np.uint8)


PLACE = street("tile audit", cameras=10)
MADE = cut(PLACE.scene, CutOptions(tile_bytes=60_000, axes=120))
QUERY, POSE = PLACE.query(X)


def tiles_of(made: CutMap) -> list[Tile]:
    return [proved_tile(made.manifest, index, made.records[index].tobytes()) for index in range(len(made.manifest))]


TILES = tiles_of(MADE)


def view() -> TileView:
    view = view_of_photograph("a.jpg", QUERY, MADE.manifest, TILES)
    assert isinstance(view, TileView)
    return view


@pytest.mark.slow
def test_a_camera_sees_the_planted_points_with_their_descriptors() -> None:
    """Planted truth: each keypoint lies where a point of the map projects, and has that point's descriptor.

    Broken twin: the axes in which the descriptors are kept, taken for descriptors.
    """
    seen = view()
    true = project(POSE, PLACE.scene.points, camera())
    distance = np.linalg.norm(true[None] - seen.keypoints[:, None], axis=2)
    near = distance.argmin(axis=1)
    assert np.quantile(distance.min(axis=1), 0.9) < 1.0
    error = np.linalg.norm(seen.descriptors - PLACE.descriptors[near], axis=1)
    assert np.median(error) < 0.15 and len(seen) > 0.8 * len(visible(POSE, PLACE.scene.points))
    points = united(TILES, MADE.manifest.coding)
    rows, _ = seen_from(points, QUERY.camera, seen.cam_from_world)
    wrong = np.pad(points.descriptors[rows], ((0, 0), (0, 8)))
    assert np.median(np.linalg.norm(wrong - PLACE.descriptors[near], axis=1)) > 0.5


def test_nothing_is_seen_from_behind() -> None:
    """The same place with the camera turned around, and one behind the facade that looks at its back."""
    points = united(TILES, MADE.manifest.coding)
    half_turn = np.diag([-1.0, 1.0, -1.0])
    away = Rigid(rotation=half_turn @ POSE.rotation, translation=half_turn @ POSE.translation)
    behind = Rigid(rotation=half_turn, translation=-half_turn @ np.array([X, 0.0, 10.0]))
    assert len(seen_from(points, camera(), POSE)[0]) > 100
    assert (behind.apply(points.points)[:, 2] > 0).all()
    assert [len(seen_from(points, camera(), pose)[0]) for pose in (away, behind)] == [0, 0]


def test_one_aspect_of_a_point_is_seen_the_one_from_the_nearest_direction() -> None:
    """Enumeration over the aspects of each point."""
    points = united(TILES, MADE.manifest.coding)
    rows, _ = seen_from(points, camera(), POSE)
    assert len(np.unique(points.point_rows[rows])) == len(rows)
    for row in rows[:50]:
        point = points.point_rows[row]
        sight = POSE.center - points.points[point]
        own = np.flatnonzero(points.point_rows == point)
        assert points.views.direction[row] @ sight == max(points.views.direction[own] @ sight)


def test_errors_of_descriptors_by_their_definition() -> None:
    answer = localize_in_tiles(QUERY, MADE.manifest, TILES)
    assert isinstance(answer, Localization)
    points, coding = united(TILES, MADE.manifest.coding), MADE.manifest.coding
    told = descriptor_errors(QUERY, answer, points, coding)
    own = publish(QUERY).vectors.astype(np.float64)
    expected = [
        min(
            np.linalg.norm(own[feature] - led_back(points.descriptors[[aspect]], coding)[0])
            for aspect in np.flatnonzero(points.point_rows == point)
        )
        for feature, point in zip(answer.keypoint_rows, answer.point_rows, strict=True)
    ]
    assert told.median == pytest.approx(np.median(expected)) and told.matched == answer.inliers
    assert told.within == (sum(e < 0.1 for e in expected), sum(e < 0.4 for e in expected))
    assert 0.01 < told.compression < 0.2 and told.features == len(QUERY)


def test_fewer_axes_lose_more() -> None:
    coarse = cut(PLACE.scene, CutOptions(tile_bytes=60_000, axes=32))
    few = view_of_photograph("a.jpg", QUERY, coarse.manifest, tiles_of(coarse))
    fine = view()
    assert isinstance(few, TileView) and few.errors is not None and fine.errors is not None
    assert few.errors.compression > 2 * fine.errors.compression


def test_a_photograph_of_elsewhere_has_no_pose() -> None:
    other, _ = street("tile audit elsewhere", cameras=3).query(1.0)
    assert isinstance(view_of_photograph("b.jpg", other, MADE.manifest, TILES), NoPose)


@pytest.mark.parametrize("index", range(len(TILES)))
def test_a_tile_alone_tells_a_camera_from_which_it_is_seen(index: int) -> None:
    """Second method: with the same intrinsics, the place of a true camera from which most of the tile's points are seen."""
    view = view_of_tile(TILES[index], MADE.manifest)
    points = united([TILES[index]], MADE.manifest.coding)
    center = view.cam_from_world.center
    assert (MADE.manifest.low[index] - 1e-9 <= center).all() and (center <= MADE.manifest.high[index] + 1e-9).all()
    best = max(len(seen_from(points, view.camera, pose_at(float(x)))[0]) for x in range(10))
    assert len(view) > 0.7 * best and view.errors is None
    forward, down = view.cam_from_world.rotation[2], view.cam_from_world.rotation[1]
    assert forward[2] > 0.9 and down[1] > 0.9 and np.linalg.det(view.cam_from_world.rotation) == pytest.approx(1)


def test_pictures_are_drawn_from_what_is_seen() -> None:
    """The network gets the tiles' descriptors at the pixels of their points, and as many raw features; both are compared."""
    network, seen = Shows(), view()
    photograph = np.full((480, 640, 3), 128, dtype=np.uint8)
    drawn = pictures(seen, MADE.manifest, network, features=QUERY, photograph=photograph)
    assert isinstance(network, Inverts) and [item.source for item in drawn] == ["tiles", "raw features"]
    assert all(item.quality is not None and item.quality.ssim == pytest.approx(1) for item in drawn)
    tiles, raw = network.seen
    cells = np.floor(Frame(width=640, height=480).moved(seen.keypoints)).astype(np.int64)
    where = {int(y) * SIDE + int(x): row for row, (x, y) in enumerate(cells.tolist()) if 0 <= x < SIDE and 0 <= y < SIDE}
    assert set(tiles.cells.tolist()) == set(where)
    alone = [cell for cell, row in where.items() if (cells == cells[row]).all(axis=1).sum() == 1]
    rows = [int(np.flatnonzero(tiles.cells == cell)[0]) for cell in alone]
    assert np.allclose(tiles.values[rows, 0], seen.descriptors[[where[cell] for cell in alone]], atol=1e-6)
    assert 0 < len(raw) <= min(len(QUERY), len(seen))
    assert pictures(seen, MADE.manifest, network)[0].quality is None


def test_other_descriptors_are_not_drawn() -> None:
    space = Space(descriptor="hardtfeat", normalization="L2", dim=128)
    coding = replace(MADE.manifest.coding, raw_space=space)
    assert pictures(view(), replace(MADE.manifest, coding=coding), Shows()) == []


def test_the_camera_of_the_query_is_a_pinhole_without_surprises() -> None:
    """`project`, on which the other tests rely, agrees with COLMAP's camera."""
    points = PLACE.scene.points[:20]
    assert np.allclose(np.asarray(as_colmap(camera()).img_from_cam(POSE.apply(points))), project(POSE, points, camera()))
    assert isinstance(QUERY, Features)
