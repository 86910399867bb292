"""Maps from lines as scenes: what is stored, adding images, several models, and resuming a run that was stopped."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from veil.errors import FileFormatError, InputError
from veil.files.maps.checkpoints import Checkpoints, remove_unfinished, run_key
from veil.files.maps.format import read_map, write_map
from veil.geometry.similarity import align_poses, pose_error
from veil.matching import Matches
from veil.places.maps.lines import LineMap, LineMapOptions, map_from_lines
from veil.places.maps.lines.incremental import extend_map, further_maps
from veil.places.maps.lines.quad import SeedOptions
from veil.places.maps.lines.reconstruction import Reconstruction
from veil.places.maps.lines.stored_maps import LineImage, reconstruction_of, scene_of
from veil.places.maps.lines.stored_maps import images_of as images_of_scene
from veil.places.maps.lines.tracks import restricted
from veil.places.poses.answer import Localization
from veil.places.poses.by_distance import localize
from veil.scene import Scene
from worlds import World, world
from worlds.line_worlds import graph_of, images_of, matches_of, views_of

OPTIONS = LineMapOptions(seed=SeedOptions(samples=100), quads=2)


@pytest.fixture(scope="module")
def mapped() -> tuple[World, dict[str, LineImage], dict[tuple[str, str], Matches], LineMap]:
    place = world("line scene", images=7, points=700)
    images, matches = images_of(place, "line scene"), matches_of(place)
    line_map = map_from_lines(views_of(images), graph_of({k: len(i.form) for k, i in images.items()}, matches), options=OPTIONS)
    assert isinstance(line_map, LineMap)
    return place, images, matches, line_map


def errors(scene: Scene, place: World) -> np.ndarray:
    names = sorted(scene.images)
    alignment = align_poses([scene.images[n].cam_from_world for n in names], [place.poses[n] for n in names])
    return np.array([pose_error(scene.images[n].cam_from_world, place.poses[n], alignment) for n in names])


@pytest.mark.slow
def test_a_map_holds_lines_and_projections_but_no_sent_position(mapped, tmp_path: Path) -> None:
    """Oracle: no stored 2D point equals a hidden keypoint, each lies near its line; the map opens in COLMAP and comes back."""
    import pycolmap

    place, images, _, line_map = mapped
    scene = scene_of(line_map, images)
    write_map(tmp_path / "map", scene)
    again = read_map(tmp_path / "map")
    assert (set(again.images) == set(place.poses) and not again.is_public) or again.is_public
    for name, image in again.images.items():
        assert image.lines is not None
        np.testing.assert_array_equal(image.lines.coefficients, scene.images[name].lines.coefficients)  # type: ignore[union-attr]
        hidden = {tuple(xy) for xy in place.keypoints[name].tolist()}
        assert not hidden & {tuple(xy) for xy in image.keypoints.tolist()}
    assert again.mean_reprojection_error_px < 1.0
    assert len(pycolmap.Reconstruction(tmp_path / "map" / "sparse").points3D) == len(scene.points)


@pytest.mark.slow
def test_damaged_lines_are_refused(mapped, tmp_path: Path) -> None:
    import h5py

    _, images, _, line_map = mapped
    write_map(tmp_path / "map", scene_of(line_map, images))
    with h5py.File(tmp_path / "map" / "descriptors.h5", "r+") as file:
        file["00/lines/coefficients"][0] = np.nan
    with pytest.raises(FileFormatError, match="finite"):
        read_map(tmp_path / "map")


@pytest.mark.slow
@pytest.mark.usefixtures("unchecked")
def test_queries_with_lines_localize_against_a_map_of_lines(mapped) -> None:
    """Leave one out: the map of six views localizes the seventh from its lines, within a hundredth of the depth."""
    place, images, matches, _ = mapped
    held = "03"
    some = {k: v for k, v in images.items() if k != held}
    pairs = {pair: m for pair, m in matches.items() if held not in pair}
    line_map = map_from_lines(views_of(some), graph_of({k: len(i.form) for k, i in some.items()}, pairs), options=OPTIONS)
    assert isinstance(line_map, LineMap)
    scene = scene_of(line_map, some)
    pose = localize(images[held].camera, images[held].lines, images[held].form, scene)
    assert isinstance(pose, Localization)
    names = sorted(scene.images)
    alignment = align_poses([scene.images[n].cam_from_world for n in names], [place.poses[n] for n in names])
    position, rotation = pose_error(pose.cam_from_world, place.poses[held], alignment)
    assert position < 0.06 and rotation < 0.3


@pytest.mark.slow
@pytest.mark.usefixtures("unchecked")
def test_images_are_added_without_building_again(mapped) -> None:
    """Five views mapped, two added to the scene as it was stored; all are right and old points keep their images."""
    place, images, matches, _ = mapped
    first = {k: images[k] for k in ("00", "01", "02", "03", "04")}
    pairs = {pair: m for pair, m in matches.items() if set(pair) <= set(first)}
    line_map = map_from_lines(views_of(first), graph_of({k: len(i.form) for k, i in first.items()}, pairs), options=OPTIONS)
    assert isinstance(line_map, LineMap)
    base = scene_of(line_map, first)
    stored = images_of_scene(base)
    together = {**stored, "05": images["05"], "06": images["06"]}
    crossing = {}
    for (a, b), item in matches.items():
        if {a, b} <= set(first):
            continue
        rows = item.indices
        for side, name in enumerate((a, b)):  # old images keep only the features that observe a point
            if name in base.images:
                kept = _kept_rows(line_map, name)
                position = {int(f): i for i, f in enumerate(kept)}
                rows = np.array([r for r in rows if int(r[side]) in position], dtype=np.int64).reshape(-1, 2)
                rows[:, side] = [position[int(f)] for f in rows[:, side]]
        crossing[a, b] = Matches(indices=rows, distances=np.zeros(len(rows)), ratios=np.full(len(rows), 0.5))
    graph = graph_of({k: len(i.form) for k, i in together.items()}, crossing)
    tracks, reconstruction = reconstruction_of(base, graph)
    longer = extend_map(views_of(together), graph, tracks=tracks, reconstruction=reconstruction, options=OPTIONS)
    scene = scene_of(longer, together)
    assert set(scene.images) == set(images)
    assert errors(scene, place)[:, 0].max() < 0.05
    assert longer.quad is None


def _kept_rows(line_map: LineMap, name: str) -> np.ndarray:
    image = line_map.tracks.names.index(name)
    return line_map.tracks.feature[line_map.observed & (line_map.tracks.image == image)]


def test_a_map_of_positions_takes_no_lines() -> None:
    from veil.scene import MappedImage

    place = world("positions", images=2, points=20)
    image = MappedImage(
        name="00",
        camera=place.camera,
        cam_from_world=place.poses["00"],
        keypoints=place.keypoints["00"],
        point_rows=place.visible["00"],
        form=place.form("00"),
    )
    scene = Scene(images={"00": image}, points=place.points, mean_reprojection_error_px=0.1)
    with pytest.raises(InputError, match="came with positions, the new messages hide theirs in lines"):
        images_of_scene(scene)


@pytest.mark.slow
@pytest.mark.usefixtures("unchecked")
def test_what_falls_apart_becomes_two_maps() -> None:
    """Two planted worlds without a common match: the second map holds exactly the other images."""
    one, two = world("part one", images=5, points=500), world("part two", images=5, points=500)
    images = {f"a{k}": i for k, i in images_of(one, "one").items()} | {f"b{k}": i for k, i in images_of(two, "two").items()}
    matches = {(f"a{a}", f"a{b}"): m for (a, b), m in matches_of(one).items()}
    matches |= {(f"b{a}", f"b{b}"): m for (a, b), m in matches_of(two).items()}
    graph = graph_of({k: len(i.form) for k, i in images.items()}, matches)
    views = views_of(images)
    line_map = map_from_lines(views, graph, options=OPTIONS)
    assert isinstance(line_map, LineMap)
    others = list(further_maps(views, graph, line_map, options=OPTIONS))
    assert len(others) == 1
    assert len(line_map.cam_from_world) == 5 and len(others[0].cam_from_world) == 5
    assert not set(line_map.cam_from_world) & set(others[0].cam_from_world)


def test_restricting_matches_renumbers_them() -> None:
    """By hand: the matches between the images that are kept, in their new numbering."""
    graph = graph_of(
        {"a": 2, "b": 3, "c": 2},
        {
            ("a", "c"): Matches(indices=np.array([[1, 0]]), distances=np.zeros(1), ratios=np.zeros(1)),
            ("a", "b"): Matches(indices=np.array([[0, 2]]), distances=np.zeros(1), ratios=np.ones(1)),
        },
    )
    some = restricted(graph, ["a", "c"])
    assert some.names == ("a", "c") and some.starts.tolist() == [0, 2, 4]
    assert some.first.tolist() == [1] and some.second.tolist() == [2] and some.strong.tolist() == [True]


@pytest.mark.slow
@pytest.mark.usefixtures("unchecked")
def test_a_killed_run_goes_on_from_its_last_model(mapped, tmp_path: Path) -> None:
    """A run stopped in the middle and resumed from disk maps all images right; other inputs are refused, nothing is lost."""
    place, images, matches, whole = mapped
    graph = graph_of({k: len(i.form) for k, i in images.items()}, matches)
    views, key = views_of(images), run_key([b"messages"])
    checkpoints = Checkpoints(tmp_path / "map.unfinished", key)

    class Killed(Exception):
        pass

    def save(reconstruction: Reconstruction) -> None:
        checkpoints.save_model(reconstruction)
        if reconstruction.registered.sum() == 6:
            raise Killed

    with pytest.raises(Killed):
        map_from_lines(views, graph, options=OPTIONS, checkpoint=save)
    again = Checkpoints(tmp_path / "map.unfinished", key)
    reconstruction = again.model()
    assert reconstruction is not None and reconstruction.registered.sum() == 6
    resumed = map_from_lines(views, graph, options=OPTIONS, resume=reconstruction)
    assert isinstance(resumed, LineMap)
    assert set(resumed.cam_from_world) == set(whole.cam_from_world)
    assert errors(scene_of(resumed, images), place)[:, 0].max() < 0.05
    with pytest.raises(InputError, match="other messages"):
        Checkpoints(tmp_path / "map.unfinished", run_key([b"others"]))
    remove_unfinished(tmp_path / "map")
    assert not (tmp_path / "map.unfinished").exists()


def test_damaged_checkpoints_are_done_again(tmp_path: Path) -> None:
    checkpoints = Checkpoints(tmp_path / "x.unfinished", "key")
    (tmp_path / "x.unfinished" / "model.npz").write_bytes(b"no model")
    assert checkpoints.model() is None
