"""Queries that no camera saw get no pose: crowded features, photographs of photographs, two poses at once, hostile cameras."""

from __future__ import annotations

import math
import time
from dataclasses import replace

import numpy as np
import pytest

from veil.forms import Lines, Points
from veil.geometry.camera import GUESS, Camera
from veil.geometry.free_calibration import FreeCamera
from veil.geometry.rigid import Rigid
from veil.places.poses.answer import Localization, NoPose
from veil.places.poses.by_distance import localize, localize_matches
from veil.places.poses.evidence import PRINT_LEAST, PRINT_MOST, _gathered
from veil.places.poses.matches import matched_features
from veil.places.poses.options import LocalizeOptions
from veil.scene import MappedImage, Scene, views_of
from worlds import World, generator, project, unit, world
from worlds.word_worlds import lines_of

WORLD = world("forged", points=400)


def reshaped(place: World, scale: list[float], shift: list[float]) -> World:
    """World with the same cameras, and points that are scaled and shifted."""
    points = place.points * scale + shift
    keypoints, visible = {}, {}
    for name, pose in place.poses.items():
        xy = project(pose, points, place.camera)
        inside = ((xy > 0) & (xy < [640, 480])).all(axis=1)
        visible[name] = np.flatnonzero(inside)
        keypoints[name] = (xy[inside] + 0.3 * generator(f"{scale} {name}").normal(size=(inside.sum(), 2))).astype(np.float32)
    return replace(place, points=points, keypoints=keypoints, visible=visible)


def map_of(place: World, *, without: str = "02") -> Scene:
    images = {
        name: MappedImage(
            name=name,
            camera=place.camera,
            cam_from_world=pose,
            keypoints=place.keypoints[name],
            point_rows=place.visible[name],
            form=place.form(name),
        )
        for name, pose in place.poses.items()
        if name != without
    }
    return Scene(images=images, points=place.points, mean_reprojection_error_px=0.3)


SCENE = map_of(WORLD)
FLAT = reshaped(WORLD, [1, 1, 0.01], [0, 0, 5.94])  # a facade: the points' relief is a hundredth
WIDE = reshaped(world("wide", points=1200), [2, 2, 1], [0, 0, 0])  # no image shows all of it
FACADE = map_of(FLAT)


def at(place: World, keypoints: np.ndarray, *, as_lines: bool) -> np.ndarray | Lines:
    """Keypoints or lines of image 02 if its features were at the positions `keypoints`."""
    moved = replace(place, keypoints={**place.keypoints, "02": keypoints.astype(np.float32)})
    return lines_of(moved, "02") if as_lines else moved.keypoints["02"]


def crowd(kind: str, count: int) -> np.ndarray:
    random = generator(f"crowd {kind}")
    if kind == "point":
        return np.tile([[200.0, 150.0]], (count, 1))
    if kind == "line":
        return np.array([100.0, 80.0]) + random.random((count, 1)) * [400, 300]
    return np.array([200.0, 150.0]) + float(kind) * random.random((count, 2))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "as_lines"),
    [("20", False), ("60", False), ("120", False), ("point", False), ("line", False), ("20", True)],
)
def test_right_features_in_a_crowd_get_no_pose(kind: str, as_lines: bool) -> None:
    """Positions that are independent of the descriptors: whatever agrees with a pose is chance, and the NFA must say so."""
    count = len(WORLD.keypoints["02"])
    observations = at(WORLD, crowd(kind, count), as_lines=as_lines)
    answer = localize(WORLD.camera, observations, WORLD.form("02"), SCENE)
    assert isinstance(answer, NoPose), (answer.inliers, answer.log10_nfa)
    assert answer.log10_nfa > -6


@pytest.mark.parametrize("share", [0.3, 0.45, 0.65])
@pytest.mark.parametrize("as_lines", [False, True], ids=["points", "lines"])
def test_a_photograph_of_the_place_on_a_plain_wall_gets_no_pose(share: float, as_lines: bool) -> None:
    """A poster of a facade is refused: only missing surroundings and the size of its points tell it from a distant facade."""
    poster = np.array([90.0, 60.0]) + share * FLAT.keypoints["02"]
    answer = localize(FLAT.camera, at(FLAT, poster, as_lines=as_lines), FLAT.form("02"), FACADE)
    assert isinstance(answer, NoPose) and "photograph of a photograph" in answer.reason


@pytest.mark.slow
@pytest.mark.parametrize("as_lines", [False, True], ids=["points", "lines"])
def test_true_queries_of_the_same_shapes_are_right(as_lines: bool) -> None:
    """Planted poses: the facade itself; a camera that stands further away; a place with depth in a part of the picture.

    A part of the facade, with nothing around it, is refused: a print of it would look the same.
    """
    truth = FLAT.poses["02"]
    few = np.flatnonzero((np.abs(FLAT.keypoints["02"] - [320, 240]) < [80, 70]).all(axis=1))
    deep = np.flatnonzero((np.abs(WORLD.keypoints["02"] - [320, 240]) < [80, 70]).all(axis=1))
    back = Rigid(rotation=truth.rotation, translation=truth.translation + np.array([0, 0, 2.6]))
    xy = project(back, FLAT.points[FLAT.visible["02"]], FLAT.camera)
    around = generator("around").uniform([0, 0], [640, 480], (400, 2))
    nowhere = unit(np.abs(generator("nowhere").normal(size=(400, 128)))).astype(np.float32)
    form = FLAT.form("02")
    wide = Points(vectors=np.vstack([form.vectors, nowhere]), space=form.space)
    cases = [
        (FLAT, FLAT.keypoints["02"], form, FACADE, truth),
        (FLAT, np.vstack([xy, around]), wide, FACADE, back),
        (WORLD, WORLD.keypoints["02"][deep], WORLD.form("02").take(deep), SCENE, WORLD.poses["02"]),
    ]
    for place, keypoints, sent, scene, pose in cases:
        answer = localize(place.camera, at(place, keypoints, as_lines=as_lines), sent, scene)
        assert isinstance(answer, Localization), answer
        assert np.linalg.norm(answer.cam_from_world.center - pose.center) < 0.15
    part = at(FLAT, FLAT.keypoints["02"][few], as_lines=as_lines)
    assert isinstance(localize(FLAT.camera, part, form.take(few), FACADE), NoPose)


def matches(place: World, keypoints: np.ndarray, camera: Camera | None = None, *, views: bool = True) -> Localization | NoPose:
    """Result for the right matches of image 02 if its features were at the positions `keypoints`."""
    rows = np.arange(len(keypoints))
    scene = map_of(place)
    return localize_matches(
        camera or place.camera,
        keypoints.astype(np.float32),
        rows,
        place.visible["02"][rows],
        scene.points,
        views=views_of(scene) if views else None,
    )


def test_points_seen_from_behind_are_not_seen() -> None:
    """Exact projections into a camera behind the cloud are refused; without the map's views they are accepted."""
    turn = np.diag([-1.0, 1.0, -1.0])
    truth = WORLD.poses["02"]
    center = np.array([0, 0, 12.0])
    behind = Rigid(rotation=turn @ truth.rotation, translation=-(turn @ truth.rotation) @ center)
    xy = project(behind, WORLD.points[WORLD.visible["02"]], WORLD.camera)
    answer = matches(WORLD, xy)
    assert isinstance(answer, NoPose) and "no image of the map saw them" in answer.reason
    assert isinstance(matches(WORLD, xy, views=False), Localization)


def test_a_camera_fifty_times_further_is_no_camera() -> None:
    truth = WORLD.poses["02"]
    far = Rigid(rotation=truth.rotation, translation=truth.translation + np.array([0, 0, 300.0]))
    zoomed = replace(WORLD.camera, params=(500.0, 500.0, 320.0, 240.0))
    xy = project(far, WORLD.points[WORLD.visible["02"]], zoomed)
    assert isinstance(matches(WORLD, xy), NoPose)


def test_two_photographs_side_by_side_are_no_place() -> None:
    """Half of the features as one camera sees them and half as another get no pose; nine in ten of one camera get its pose."""
    points = WORLD.points[WORLD.visible["02"]]
    first, second = (project(WORLD.poses[name], points, WORLD.camera) for name in ("01", "04"))
    count = len(points)
    halves = np.where((np.arange(count) % 2 == 0)[:, None], first, second)
    answer = matches(WORLD, halves)
    assert isinstance(answer, NoPose) and "two poses explain" in answer.reason
    most = np.where((np.arange(count) % 10 != 0)[:, None], first, second)
    pose = matches(WORLD, most)
    assert isinstance(pose, Localization)
    assert np.linalg.norm(pose.cam_from_world.center - WORLD.poses["01"].center) < 0.05


@pytest.mark.parametrize(("factor", "accepted"), [(0.65, False), (0.97, True), (1.0, True), (1.5, False)])
def test_a_wrong_focal_length_is_told_from_a_known_one(factor: float, accepted: bool) -> None:
    """Keypoints by the true camera, declared with another focal length: a pose beside the right one would explain most."""
    focal = factor * 500.0
    declared = replace(WORLD.camera, params=(focal, focal, 320.0, 240.0))
    keypoints = WORLD.keypoints["02"]
    wide = LocalizeOptions(max_error_px=20.0)
    rows = np.arange(len(keypoints))
    scene = map_of(WORLD)
    answer = localize_matches(declared, keypoints, rows, WORLD.visible["02"], scene.points, views=views_of(scene), options=wide)
    assert isinstance(answer, Localization) == accepted


def in_another_picture(xy: np.ndarray, kind: str) -> np.ndarray:
    """Keypoints of a photograph that hangs in a corner of the picture, or that a screen seen at an angle shows."""
    if kind == "poster":
        return 0.78 * xy + [10.0, 110.0]
    x, y = (xy - [320, 240]).T
    depth = 1 + 0.0006 * x + 0.0003 * y
    return np.array([300.0, 250.0]) + np.stack([0.85 * x, 0.95 * y], axis=1) / depth[:, None]


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["poster", "screen"])
@pytest.mark.parametrize("as_lines", [False, True], ids=["points", "lines"])
def test_a_photograph_of_the_place_among_other_things_gets_no_pose(kind: str, as_lines: bool) -> None:
    """A photograph of the place, nearly as large as the picture and before a busy wall, is refused by its calibration.

    No camera of the declared calibration sees a place with depth like that. The query itself among the same features is right.
    """
    keypoints, form = WORLD.keypoints["02"], WORLD.form("02")
    around = generator("busy wall").uniform([0, 0], [640, 480], (300, 2))
    nowhere = unit(np.abs(generator("nothing known").normal(size=(300, 128)))).astype(np.float32)
    sent = Points(vectors=np.vstack([form.vectors, nowhere]), space=form.space)
    shown = np.vstack([in_another_picture(keypoints.astype(np.float64), kind), around])
    answer = localize(WORLD.camera, at(WORLD, shown, as_lines=as_lines), sent, SCENE)
    assert isinstance(answer, NoPose)
    answer = localize(WORLD.camera, at(WORLD, np.vstack([keypoints, around]), as_lines=as_lines), sent, SCENE)
    assert isinstance(answer, Localization)
    assert np.linalg.norm(answer.cam_from_world.center - WORLD.poses["02"].center) < 0.15


@pytest.mark.slow
@pytest.mark.parametrize("share", [0.8, 0.85])
def test_lines_of_a_print_end_where_the_map_goes_on(share: float) -> None:
    """A print of a flat facade, before a busy wall: a camera that stands back fits its lines, but would see more of the facade.

    Such a camera is right, and so is the photograph itself.
    """
    place = reshaped(world("wide", points=500), [2, 2, 0.01], [0, 0, 5.94])
    keypoints, truth, form = place.keypoints["02"], place.poses["02"], place.form("02")
    around = generator("busy wall").uniform([0, 0], [640, 480], (300, 2))
    nowhere = unit(np.abs(generator("nothing known").normal(size=(300, 128)))).astype(np.float32)

    def answer(xy: np.ndarray, shown: Points) -> Localization | NoPose:
        sent = Points(vectors=np.vstack([shown.vectors, nowhere]), space=form.space)
        return localize(place.camera, at(place, np.vstack([xy, around]), as_lines=True), sent, map_of(place))

    back = Rigid(rotation=truth.rotation, translation=truth.translation + np.array([0, 0, 6 / share - 6]))
    xy = project(back, place.points, place.camera)
    inside = ((xy > 0) & (xy < [640, 480])).all(axis=1)
    for pose, seen, sent in (
        (truth, keypoints, form),
        (back, xy[inside], replace(place, visible={"02": np.flatnonzero(inside)}).form("02")),
    ):
        right = answer(seen, sent)
        assert isinstance(right, Localization), right
        assert np.linalg.norm(right.cam_from_world.center - pose.center) < 0.15
    told = answer(share * (keypoints - [320, 240]) + [320, 240], form)
    assert isinstance(told, NoPose) and "photograph of a photograph" in told.reason


def test_a_poster_with_an_unknown_focal_length_is_told_by_its_principal_point() -> None:
    unknown = replace(WORLD.camera, model="SIMPLE_PINHOLE", params=(500.0, 320.0, 240.0), focal=GUESS)
    keypoints = WORLD.keypoints["02"]
    assert isinstance(matches(WORLD, keypoints, unknown), Localization)
    corner = (0.82 * keypoints + [110.0, 80.0]).astype(np.float32)
    assert isinstance(matches(WORLD, corner, unknown), NoPose)


@pytest.mark.parametrize("as_lines", [False, True], ids=["points", "lines"])
def test_a_guessed_focal_length_is_no_print(as_lines: bool) -> None:
    """Features of a window of a place with depth, by a camera whose focal length is a guess: a print would have any other."""
    unknown = replace(WORLD.camera, model="SIMPLE_PINHOLE", params=(768.0, 320.0, 240.0), focal=GUESS)
    lens = replace(WORLD.camera, params=(768.0, 768.0, 320.0, 240.0))
    window = np.flatnonzero((np.abs(WORLD.keypoints["02"] - [320, 240]) < [160, 130]).all(axis=1))
    seen = lines_of(replace(WORLD, camera=lens), "02").take(window) if as_lines else WORLD.keypoints["02"][window]
    answer = localize(unknown, seen, WORLD.form("02").take(window), SCENE)
    assert isinstance(answer, Localization), answer


def test_right_matches_are_found_among_the_most_trusted() -> None:
    """Planted: 30 right matches among the first 100 of 1,100. A sample of all matches is clean twice in 100,000 times."""
    random = generator("buried")
    count = len(WORLD.keypoints["02"])
    right = random.choice(count, 30, replace=False)
    keypoints = np.vstack([WORLD.keypoints["02"][right], random.uniform([0, 0], [640, 480], (1070, 2)).astype(np.float32)])
    point_rows = np.concatenate([WORLD.visible["02"][right], random.integers(0, len(WORLD.points), 1070)])
    order = np.concatenate([random.permutation(100), np.arange(100, 1100)])
    answer = localize_matches(
        WORLD.camera, keypoints[order], np.arange(1100), point_rows[order], SCENE.points, views=views_of(SCENE)
    )
    assert isinstance(answer, Localization) and answer.inliers >= 28
    assert np.linalg.norm(answer.cam_from_world.center - WORLD.poses["02"].center) < 0.1


def test_a_weaker_photograph_beside_the_first_is_found_among_the_most_trusted() -> None:
    """A collage of two photographs among 900 wrong matches: 30 matches as one camera sees them, 24 as another."""
    random = generator("weak collage")
    points = WORLD.points[WORLD.visible["02"]]
    first, second = (project(WORLD.poses[name], points, WORLD.camera) for name in ("01", "04"))
    rows = random.choice(len(points), 54, replace=False)
    shown = np.vstack([first[rows[:30]], second[rows[30:]], random.uniform([0, 0], [640, 480], (900, 2))]).astype(np.float32)
    point_rows = np.concatenate([WORLD.visible["02"][rows], random.integers(0, len(WORLD.points), 900)])
    order = np.concatenate([random.permutation(150), np.arange(150, 954)])
    answer = localize_matches(
        WORLD.camera, shown[order], np.arange(954), point_rows[order], SCENE.points, views=views_of(SCENE)
    )
    assert isinstance(answer, NoPose) and "two poses explain" in answer.reason


def test_repeats_at_one_position_count_once() -> None:
    """Each keypoint of fourteen sent eight times, matched with points beside its own: a pose is not made of fourteen places."""
    rows = np.arange(14)
    keypoints = np.repeat(WORLD.keypoints["02"][rows], 8, axis=0)
    near = np.argsort(np.linalg.norm(WORLD.points[None] - WORLD.points[WORLD.visible["02"][rows]][:, None], axis=2), axis=1)[
        :, :1
    ]
    point_rows = np.repeat(near, 8, axis=1).ravel()
    points = np.vstack([WORLD.points, *[WORLD.points + 1e-4 * k for k in range(1, 8)]])
    point_rows = point_rows + np.tile(np.arange(8), 14) * len(WORLD.points)
    answer = localize_matches(WORLD.camera, keypoints, np.arange(len(keypoints)), point_rows, points)
    assert isinstance(answer, NoPose) and answer.inliers <= 14


@pytest.mark.slow
@pytest.mark.parametrize("as_lines", [False, True], ids=["points", "lines"])
def test_hostile_cameras_get_no_pose_in_time(as_lines: bool) -> None:
    """An absurd focal length before a huge picture, with all keypoints near its center."""
    hostile = Camera(model="PINHOLE", width_px=65535, height_px=65535, params=(1e-3, 1e-3, 32767.0, 32767.0))
    xy = 32767.0 + generator("hostile").normal(0, 1e-3, (len(WORLD.keypoints["02"]), 2))
    place = replace(WORLD, camera=hostile)
    started = time.process_time()
    answer = localize(hostile, at(place, xy, as_lines=as_lines), WORLD.form("02"), SCENE)
    assert isinstance(answer, NoPose)
    assert time.process_time() - started < 10
    assert math.isfinite(answer.inliers)


@pytest.mark.parametrize("as_lines", [False, True], ids=["points", "lines"])
def test_a_print_is_fitted_to_what_agrees_with_it(as_lines: bool) -> None:
    """Planted: a print at 0.7 of the picture, 80 pairs. Of the inliers of another pose 20 are the print's and 10 accidents.

    Fitted to these inliers alone the print is off; gathered anew, its own pairs put it right.
    """
    random, visible = generator("print and pose"), WIDE.visible["02"]
    rows = random.permutation(len(visible))[:90]
    shown = np.array([96.0, 72.0]) + 0.7 * WIDE.keypoints["02"][rows]
    shown[80:] += random.uniform(-25, 25, (10, 2))
    observations = at(WIDE, shown, as_lines=as_lines)
    matched = matched_features(WIDE.camera, observations, np.arange(90), visible[rows], WIDE.points, max_error_px=6.0, seed=0)
    observed = matched.normalized(WIDE.camera)
    inliers = np.arange(60, 90)
    start = FreeCamera(pose=WIDE.poses["02"], offsets=np.array([math.log(0.75), 0, 0, 0, 0]))
    alone = observed.take(inliers).fitted(start, PRINT_MOST, PRINT_LEAST)
    gathered = _gathered(matched, observed, start, inliers, PRINT_MOST, PRINT_LEAST)
    assert gathered is not None
    true = FreeCamera(pose=WIDE.poses["02"], offsets=np.array([math.log(0.7), 0, 0, 0, 0]))
    right = observed.residuals(true)[:80]
    off = [float(np.median(np.abs(observed.residuals(camera)[:80] - right))) for camera in (alone, gathered)]
    assert off[1] < 0.3 / 500 and off[1] < off[0] / 3
