"""Cutting a planted street: what is in the tiles, what was left out, and what the report says of both."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from veil.errors import InputError, RangeError
from veil.forms import Points
from veil.tiles.cutting import CutMap, CutOptions, aspects, cut
from veil.tiles.fetching import proved_tile
from veil.tiles.manifest import MOST_JSON_BYTES, encode_manifest
from veil.tiles.tile_format import Tile
from veil.tiles.union import united
from worlds import unit
from worlds.map_scenes import planted_map
from worlds.tile_streets import street

OPTIONS = CutOptions(tile_bytes=30_000, axes=64, words=32)


def tiles_of(made: CutMap) -> list[Tile]:
    return [proved_tile(made.manifest, index, record.tobytes()) for index, record in enumerate(made.records)]


def test_tiles_have_one_size_and_hold_what_their_cameras_see() -> None:
    """Oracle: the planted points, the nearest of which must be seen by a camera of the tile's cell, within the stated error."""
    place = street("cut", cameras=12)
    made = cut(place.scene, OPTIONS)
    assert len(made.manifest) > 3 and made.records.shape == (len(made.manifest), made.manifest.record_bytes)
    centers = np.array([image.cam_from_world.center for image in place.scene.images.values()])
    seen = [set(image.point_rows.tolist()) for image in place.scene.images.values()]
    for index, tile in enumerate(tiles_of(made)):
        points = (tile.places.astype(np.int64) + tile.origin) * made.manifest.coding.step
        gaps = np.linalg.norm(points[:, None] - place.scene.points[None], axis=2)
        rows = gaps.argmin(axis=1)
        assert gaps.min(axis=1).max() <= made.manifest.coding.max_position_error * (1 + 1e-9)
        low, high = made.manifest.low[index], made.manifest.high[index]
        inside = np.flatnonzero(((centers >= low) & (centers <= high)).all(axis=1))
        away = np.linalg.norm(np.maximum(np.maximum(low - centers, centers - high), 0), axis=1)
        allowed = np.argsort(away, kind="stable")[: len(inside) + int(np.ceil(OPTIONS.overlap * len(inside)))]
        assert set(rows.tolist()) <= set().union(*(seen[camera] for camera in allowed))
        # The planted descriptor of a point is nearest to its own, whatever the rounding.
        levels = tile.descriptors[np.cumsum(tile.counts) - tile.counts]
        vectors, truth = made.manifest.coding.vectors(levels), made.manifest.coding.pca.apply(place.descriptors)
        assert (((truth**2).sum(axis=1) - 2 * vectors @ truth.T).argmin(axis=1) == rows).mean() > 0.98


def test_nothing_is_left_out_in_silence() -> None:
    """Oracle: points counted once more from the cells' cameras: each is placed, crowded out or too far."""
    place = street("full", cameras=6, density=80)
    roomy, full = cut(place.scene, replace(OPTIONS, tile_bytes=1 << 20)), cut(place.scene, replace(OPTIONS, tile_bytes=6000))
    assert roomy.report.crowded_out == roomy.report.too_far == roomy.report.crowded_tiles == 0
    assert roomy.report.kept_points == roomy.report.map_points == roomy.report.placed == len(place.scene.points)
    assert len(roomy.manifest) == 1 and roomy.manifest.asked == 1
    told = full.report
    assert told.crowded_tiles == len(full.manifest) and told.filled > 0.97
    assert told.placed == sum(len(tile) for tile in tiles_of(full))
    fewer = cut(place.scene, replace(OPTIONS, tile_bytes=1 << 20, points=50))
    assert {len(tile) for tile in tiles_of(fewer)} == {50}
    seen = [image.point_rows for image in place.scene.images.values()]
    centers = np.array([image.cam_from_world.center for image in place.scene.images.values()])
    due = 0
    for low, high in zip(full.manifest.low, full.manifest.high, strict=True):
        own = np.flatnonzero(((centers >= low) & (centers <= high)).all(axis=1))
        away = np.linalg.norm(np.maximum(np.maximum(low - centers, centers - high), 0), axis=1)
        cameras = np.argsort(away, kind="stable")[: len(own) + int(np.ceil(OPTIONS.overlap * len(own)))]
        due += len(np.unique(np.concatenate([seen[camera] for camera in cameras])))
    assert told.placed + told.crowded_out + told.too_far == due


def test_points_that_are_too_far_for_their_cell_are_told() -> None:
    place = street("far", cameras=4)
    points = place.scene.points.copy()
    points[:3] *= 1e4
    told = cut(replace(place.scene, points=points), replace(OPTIONS, tile_bytes=1 << 20)).report
    assert told.too_far == 3 and told.kept_points == told.map_points - 3


def test_a_full_tile_keeps_points_of_each_camera() -> None:
    """Broken twin: the points that most cameras see, without turns, are those of the two cameras side by side."""
    place = street("turns", cameras=14, density=60)
    images = {name: place.scene.images[name] for name in ("00.jpg", "01.jpg", "13.jpg")}
    made = cut(replace(place.scene, images=images), replace(OPTIONS, points=90, tile_bytes=1 << 20))
    (tile,) = tiles_of(made)
    rows = nearest_rows(tile, made, place.scene.points)
    times = np.bincount(np.concatenate([image.point_rows for image in images.values()]), minlength=len(place.scene.points))
    without_turns = np.lexsort((np.arange(len(times)), -times))[:90]
    shares, twin = (
        [int(np.isin(image.point_rows, chosen).sum()) for image in images.values()] for chosen in (rows, without_turns)
    )
    assert min(shares) >= 30 and min(twin) == 0
    assert times[rows].mean() > times[times > 0].mean()


def nearest_rows(tile: Tile, made: CutMap, points: np.ndarray) -> np.ndarray:
    places = (tile.places.astype(np.int64) + tile.origin) * made.manifest.coding.step
    return np.linalg.norm(places[:, None] - points[None], axis=2).argmin(axis=1)


def test_neighbors_share_points_exactly() -> None:
    """The union of all tiles has each kept point once, though tiles overlap."""
    made = cut(street("shared", cameras=10).scene, OPTIONS)
    tiles = tiles_of(made)
    assert made.report.placed > made.report.kept_points
    assert len(united(tiles, made.manifest.coding).points) == made.report.kept_points
    assert len(united([*tiles, *tiles[::-1]], made.manifest.coding).points) == made.report.kept_points


def test_views_that_differ_give_two_descriptors() -> None:
    """Oracle: planted descriptors; half of the images see the first points with another descriptor."""
    place = street("aspects", cameras=6)
    other = {
        name: replace(
            image,
            form=replace(
                form,
                vectors=np.where((image.point_rows < 40)[:, None], -form.vectors[:, ::-1], form.vectors),
            ),
        )
        if int(name[:2]) % 2 and isinstance(form := image.form, Points)
        else image
        for name, image in place.scene.images.items()
    }
    kept_aspects = aspects(replace(place.scene, images=other), 2)
    counts = np.diff(kept_aspects.starts)
    by_name = {name: set(image.point_rows.tolist()) for name, image in place.scene.images.items()}
    both = [point for point in range(40) if {int(name[:2]) % 2 for name, rows in by_name.items() if point in rows} == {0, 1}]
    assert len(both) > 20 and (counts[both] == 2).all() and (counts[40:] == 1).all()
    for point in both:
        kinds = {
            bool(kept_aspects.descriptors[row] @ place.descriptors[point] > 0.9)
            for row in range(kept_aspects.starts[point], kept_aspects.starts[point + 1])
        }
        assert kinds == {True, False}
    one = aspects(replace(place.scene, images=other), 1)
    assert (np.diff(one.starts) == 1).all()
    np.testing.assert_allclose(np.linalg.norm(one.direction, axis=1), 1)
    np.testing.assert_allclose(unit(one.descriptors), one.descriptors, atol=1e-6)


def test_what_cannot_be_cut_is_refused() -> None:
    with pytest.raises(InputError, match="raw descriptors"):
        cut(planted_map("private", "subspaces")[0])
    for change in (
        {"bits": 5},
        {"axes": 3, "bits": 4},
        {"aspects": 3},
        {"tile_bytes": 60},
        {"tile_bytes": 1 << 40},
        {"overlap": float("nan")},
        {"angle": 0.0},
        {"asked": 0},
        {"points": 0},
    ):
        with pytest.raises(RangeError):
            replace(OPTIONS, **change)


def downloaded(made: CutMap) -> int:
    """Bytes of the manifest and of all tiles."""
    text, binary, _ = encode_manifest(made.manifest)
    return len(text) + len(binary) + made.records.size


def test_a_download_is_as_large_as_was_allowed_and_nearly_as_large() -> None:
    """Oracle: the bytes themselves. The next point of each camera would make one tile more."""
    place, small = street("budget", cameras=24, density=200), replace(OPTIONS, tile_bytes=100_000)
    whole = cut(place.scene, small)
    for share in (0.5, 0.8):
        allowed = round(share * downloaded(whole))
        made = cut(place.scene, replace(small, download=allowed))
        assert allowed - 2 * whole.manifest.record_bytes - MOST_JSON_BYTES < downloaded(made) <= allowed
        assert made.report.kept_points < whole.report.kept_points and made.report.map_points == whole.report.map_points
    roomy = cut(place.scene, replace(small, download=2 * downloaded(whole)))
    assert roomy.manifest.version == whole.manifest.version


def test_a_download_keeps_the_points_that_most_cameras_see() -> None:
    """Slow reference: each camera in turn takes that one of its points that most cameras see."""
    place = street("worth", cameras=12, density=200)
    made = cut(place.scene, replace(OPTIONS, tile_bytes=1 << 18, download=(1 << 18) + 40_000))
    images = [np.unique(image.point_rows) for image in place.scene.images.values()]
    times = np.bincount(np.concatenate(images), minlength=len(place.scene.points))
    wanted: set[int] = set()
    shown = 0
    while len(wanted) < made.report.kept_points:
        for rows in images:
            wanted.update(sorted(rows.tolist(), key=lambda row: (-times[row], row))[shown : shown + 1])
        shown += 1
    assert made.report.kept_points == len(wanted)
    places = np.concatenate([tile.places.astype(np.int64) + tile.origin for tile in tiles_of(made)]) * made.manifest.coding.step
    kept = np.linalg.norm(places[:, None] - place.scene.points[None], axis=2).argmin(axis=1)
    assert set(kept.tolist()) == wanted


def test_a_download_that_finds_no_photograph_is_refused() -> None:
    """Bad input: too few bytes for a tile, and for enough points. The error names bytes that are enough."""
    place = street("small budget", cameras=12, density=200)
    with pytest.raises(RangeError, match="do not fit into 20000 bytes"):
        replace(OPTIONS, download=20_000)
    small = replace(OPTIONS, tile_bytes=8000)
    with pytest.raises(InputError, match=r"in 60000 bytes a camera of this map would show \d+ points, and 100 are") as refused:
        cut(place.scene, replace(small, download=60_000))
    enough = int(str(refused.value).split("; ")[1].split()[0])
    assert cut(place.scene, replace(small, download=enough)).report.kept_points >= 100
