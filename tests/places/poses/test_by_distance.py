"""Localization recovers planted poses and never makes one up."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from veil.codebooks.codebook import Codebook
from veil.errors import RangeError, SpaceError
from veil.features import Features
from veil.files.codebooks import bundled_codebook
from veil.forms import Form, Lines, Points
from veil.geometry.anchors import pencil_of
from veil.geometry.camera import GUESS
from veil.geometry.rigid import rotation_angle_deg
from veil.geometry.robust.significance import P6L, line_agreement, point_agreement, pose_log10_nfa
from veil.mechanisms.lines import ConvergentOptions, LineOptions, lift_to_lines
from veil.places.poses.answer import Localization, NoPose
from veil.places.poses.by_distance import correspondences, localize, localize_matches
from veil.places.poses.options import LocalizeOptions
from veil.randomness import seeded
from veil.scene import MappedImage, Scene
from veil.space import Space
from worlds import World, camera, generator, sift_like, subspaces, unit, world

SPACE = Space(descriptor="sift", normalization="L2", dim=128)
WORLD = world("localize")


def scene_of(place: World, *, without: str, m: int = 0) -> Scene:
    """Map of all images of the planted scene but one, in subspaces of dimension m if m > 0."""
    images = {}
    for name, pose in place.poses.items():
        if name == without:
            continue
        form: Form = place.form(name)
        if m:
            form = subspaces(generator(f"map {name}"), place.form(name).vectors, m, SPACE)
        images[name] = MappedImage(
            name=name,
            camera=place.camera,
            cam_from_world=pose,
            keypoints=place.keypoints[name],
            point_rows=place.visible[name],
            form=form,
        )
    return Scene(images=images, points=place.points, mean_reprojection_error_px=0.3)


@pytest.mark.slow
@pytest.mark.parametrize(("query_m", "map_m"), [(0, 0), (4, 0), (4, 4), (16, 0)])
def test_a_planted_pose_is_recovered(query_m: int, map_m: int) -> None:
    """Oracle: planted truth; point, p-to-s and s-to-s."""
    form: Form = WORLD.form("02")
    if query_m:
        form = subspaces(generator("query"), WORLD.form("02").vectors, query_m, SPACE)
    answer = localize(WORLD.camera, WORLD.keypoints["02"], form, scene_of(WORLD, without="02", m=map_m))
    assert isinstance(answer, Localization)
    truth = WORLD.poses["02"]
    assert np.linalg.norm(answer.cam_from_world.center - truth.center) < 0.02
    assert rotation_angle_deg(answer.cam_from_world.rotation @ truth.rotation.T) < 0.2
    assert (WORLD.visible["02"][answer.keypoint_rows] == answer.point_rows).mean() > 0.98
    assert answer.log10_nfa < -100
    assert answer.covariance is not None and (np.linalg.eigvalsh(answer.covariance) > 0).all()


@pytest.mark.slow
def test_ranked_images_are_matched_until_there_is_a_pose() -> None:
    """Planted truth, from the images that are named alone; progress counts the matched images."""
    matched: list[int] = []
    names = sorted(set(WORLD.poses) - {"02"})
    form, scene = WORLD.form("02"), scene_of(WORLD, without="02")
    options = LocalizeOptions(retrieved=(1, 2))
    answer = localize(
        WORLD.camera,
        WORLD.keypoints["02"],
        form,
        scene,
        ranked=names,
        options=options,
        progress=lambda done, count: matched.append(count),
    )
    assert isinstance(answer, Localization) and sum(matched) <= 2
    assert np.linalg.norm(answer.cam_from_world.center - WORLD.poses["02"].center) < 0.02
    noise = Points(vectors=unit(sift_like(generator("ranked"), len(form))).astype(np.float32), space=SPACE)
    refused = localize(WORLD.camera, WORLD.keypoints["02"], noise, scene, ranked=names, options=options)
    assert isinstance(refused, NoPose) and f"with the 2 of {len(names)} images" in refused.reason
    nothing = localize(WORLD.camera, WORLD.keypoints["02"], form, scene, ranked=[], options=options)
    assert isinstance(nothing, NoPose) and nothing.correspondences == 0


@pytest.mark.parametrize("retrieved", [(), (0,), (5, 5), (10, 3)])
def test_numbers_of_images_must_grow(retrieved: tuple[int, ...]) -> None:
    with pytest.raises(RangeError, match="grow"):
        LocalizeOptions(retrieved=retrieved)


@pytest.mark.slow
def test_noise_is_refused() -> None:
    """None of ten queries with random descriptors gets a pose."""
    scene = scene_of(WORLD, without="02")
    for index in range(10):
        random = generator(f"noise {index}")
        vectors = unit(sift_like(random, 300)).astype(np.float32)
        keypoints = (random.random((300, 2)) * [640, 480]).astype(np.float32)
        answer = localize(WORLD.camera, keypoints, Points(vectors=vectors, space=SPACE), scene)
        assert isinstance(answer, NoPose)
        assert answer.reason


def test_right_matches_at_wrong_places_are_refused() -> None:
    """Broken twin of a pose check that counts matches only: descriptors match, geometry does not."""
    random = generator("shuffled")
    keypoints = WORLD.keypoints["02"][random.permutation(len(WORLD.keypoints["02"]))]
    assert isinstance(localize(WORLD.camera, keypoints, WORLD.form("02"), scene_of(WORLD, without="02")), NoPose)


def test_the_most_distinctive_matches_come_first() -> None:
    """Planted points: half of the query's descriptors are random; the front half of the pairs is right, and no pair repeats."""
    visible = WORLD.visible["02"]
    vectors = WORLD.form("02").vectors.copy()
    nowhere = generator("nowhere").permutation(len(vectors))[: len(vectors) // 2]
    vectors[nowhere] = unit(sift_like(generator("nowhere too"), len(nowhere)))
    form = Points(vectors=vectors, space=SPACE)
    keypoint_rows, point_rows = correspondences(form, scene_of(WORLD, without="02"), None, LocalizeOptions())
    assert len(set(zip(keypoint_rows.tolist(), point_rows.tolist(), strict=True))) == len(keypoint_rows)
    right = visible[keypoint_rows] == point_rows
    front = int(right.sum())
    assert right[:front].mean() > 0.98 and right.mean() < 0.8


def test_few_matches_give_a_reason() -> None:
    few = np.arange(8)
    answer = localize(WORLD.camera, WORLD.keypoints["02"][few], WORLD.form("02").take(few), scene_of(WORLD, without="02"))
    assert isinstance(answer, NoPose)
    assert "only 8 features match" in answer.reason


def test_the_same_seed_gives_the_same_pose() -> None:
    results = [localize(WORLD.camera, WORLD.keypoints["02"], WORLD.form("02"), scene_of(WORLD, without="02")) for _ in range(2)]
    assert isinstance(results[0], Localization) and isinstance(results[1], Localization)
    np.testing.assert_array_equal(results[0].cam_from_world.rotation, results[1].cam_from_world.rotation)


def test_a_hardened_query_needs_the_codebook() -> None:
    """A public map is brought into the query's space by the public PCA; without it, comparing is refused."""
    book: Codebook = bundled_codebook()
    raw = WORLD.form("02")
    projected = book.compression.into_space(raw, book.compression.hardened_space)
    query = subspaces(generator("hardened"), projected.vectors, 4, book.compression.hardened_space)
    scene = scene_of(WORLD, without="02")
    answer = localize(WORLD.camera, WORLD.keypoints["02"], query, scene, codebook=book)
    assert isinstance(answer, Localization)
    with pytest.raises(SpaceError):
        localize(WORLD.camera, WORLD.keypoints["02"], query, scene)


def test_a_guessed_focal_length_is_estimated() -> None:
    guess = replace(camera(), params=(600.0, 600.0, 320.0, 240.0), focal=GUESS)
    answer = localize(guess, WORLD.keypoints["02"], WORLD.form("02"), scene_of(WORLD, without="02"))
    assert isinstance(answer, Localization)
    assert np.linalg.norm(answer.cam_from_world.center - WORLD.poses["02"].center) < 0.1


def test_pose_log10_nfa_is_the_stated_formula() -> None:
    """Golden value, by hand in integers: n = 10, k = 6, p = pi 8^2 / (640 480): 4 * 7 * C(10,3) * C(7,3) * p^3."""
    p = math.pi * 64 / (640 * 480)
    expected = math.log10(4 * 7 * math.comb(10, 3) * math.comb(7, 3) * p**3)
    assert pose_log10_nfa(6, 10, point_agreement(camera(), 8.0)) == pytest.approx(expected)
    assert pose_log10_nfa(3, 10, p) == math.inf


def lines_through(name: str, share: float | None) -> Lines:
    """Lines of an image of the world, of which `share` are along gravity; None: convergent lines."""
    image = Features(
        keypoints=WORLD.keypoints[name],
        descriptors=WORLD.form(name).vectors,
        space=SPACE,
        camera=WORLD.camera,
        image_digest=bytes(32),
    )
    down = WORLD.poses[name].rotation @ np.array([0, 1.0, 0])
    options = ConvergentOptions() if share is None else LineOptions(aligned_share=share)
    return lift_to_lines(image, gravity=down, randomness=seeded(f"lines {share}"), options=options)


@pytest.mark.parametrize("share", [0.0, 0.5, None])
@pytest.mark.parametrize("query_m", [0, 4])
def test_lines_localize_where_points_do(share: float | None, query_m: int) -> None:
    """Planted pose from lines alone, with raw descriptors and with subspaces.

    Theory: localization.md#from-matches-to-correspondences.
    """
    form: Form = WORLD.form("02")
    if query_m:
        form = subspaces(generator("line query"), WORLD.form("02").vectors, query_m, SPACE)
    answer = localize(WORLD.camera, lines_through("02", share), form, scene_of(WORLD, without="02"))
    assert isinstance(answer, Localization)
    assert np.linalg.norm(answer.cam_from_world.center - WORLD.poses["02"].center) < 0.03
    assert rotation_angle_deg(answer.cam_from_world.rotation @ WORLD.poses["02"].rotation.T) < 0.3


@pytest.mark.slow
@pytest.mark.parametrize("share", [0.5, None])
def test_a_query_that_matches_with_lines_of_one_point_only_is_refused(share: float | None) -> None:
    """Planted: the lines along gravity, or of one anchor, belong to their points, the others to other points of the place.

    All lines right is the control.
    """
    lines = lines_through("02", share)
    one = lines.aligned if share else pencil_of(lines.coefficients.astype(np.float64), WORLD.camera) == 0
    assert 0.3 < one.mean() < 0.7
    rows = np.arange(len(lines))
    rows[~one] = generator("one point").permutation(rows[~one])
    matches = np.arange(len(lines)), WORLD.visible["02"]
    for taken, answer in ((np.arange(len(lines)), Localization), (rows, NoPose)):
        pose = localize_matches(WORLD.camera, lines.take(taken), *matches, WORLD.points)
        assert isinstance(pose, answer), pose
    assert isinstance(pose, NoPose) and "one point" in pose.reason


@pytest.mark.slow
@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize("share", [0.5, None])
def test_noise_is_refused_from_lines_too(share: float | None) -> None:
    """Random descriptors with lines get no pose, though lines agree by chance far more often than points."""
    scene = scene_of(WORLD, without="02")
    lines = lines_through("02", share)
    vectors = unit(sift_like(generator("line noise 0"), len(lines))).astype(np.float32)
    answer = localize(WORLD.camera, lines, Points(vectors=vectors, space=SPACE), scene)
    assert isinstance(answer, NoPose)
    shuffled = lines.take(generator("line shuffle").permutation(len(lines)))
    assert isinstance(localize(WORLD.camera, shuffled, WORLD.form("02"), scene), NoPose)


def test_a_line_agrees_with_a_point_as_often_as_stated() -> None:
    """Simulation: lines through uniform keypoints at uniform angles, against points anywhere; the bound holds.

    The share of 200,000 is known to 3 % of itself.
    """
    random = generator("agreement")
    xy, point = random.uniform([0, 0], [640, 480], (200_000, 2)), random.uniform([0, 0], [640, 480], (200_000, 2))
    theta = random.uniform(0, np.pi, 200_000)
    distance = np.abs(((xy - point) * np.stack([np.cos(theta), np.sin(theta)], axis=1)).sum(axis=1))
    share = float((distance < 4).mean())
    bound = line_agreement(camera(), 4.0)
    assert bound / 3 < share < bound
    assert pose_log10_nfa(40, 200, bound, P6L) < pose_log10_nfa(30, 200, bound, P6L)


def test_pose_log10_nfa_bounds_what_noise_reaches() -> None:
    """Simulation: of 200 sets of uniform matches, none reaches an NFA of 0.01 at a random pose's own 3-point fit."""
    random = generator("simulation")
    p = math.pi * 64 / (640 * 480)
    best = max(3 + random.binomial(997, p, 4 * 3000).max() for _ in range(200))
    assert pose_log10_nfa(int(best), 1000, p) > -2


@pytest.mark.parametrize(
    "bad", [{"max_error_px": 0.0}, {"max_error_px": float("nan")}, {"min_inliers": 5}, {"max_log10_nfa": 1.0}]
)
def test_options_out_of_range(bad: dict) -> None:
    with pytest.raises(RangeError):
        LocalizeOptions(**bad)


@pytest.mark.slow
def test_photographs_of_another_landmark_are_refused(veil_data, door) -> None:
    """Four photographs of sacre_coeur are refused by a map of the door (its bundled reference poses give the points)."""
    from veil.extraction.sift import SiftOptions, extract_sift
    from veil.files.photographs.pictures import find_pictures, read_picture
    from veil.mechanisms.public import publish

    scene = _door_scene(door)
    own = door["DSC_0005.jpg"]
    assert isinstance(localize(own.camera, own.keypoints, publish(own), scene), Localization)
    paths = find_pictures(veil_data / "sacre_coeur")[::3]
    assert len(paths) == 4
    for path in paths:
        stranger = extract_sift(read_picture(path), SiftOptions(max_features=1000))
        answer = localize(stranger.camera, stranger.keypoints, publish(stranger), scene)
        assert isinstance(answer, NoPose), path.name


def _door_scene(door) -> Scene:
    import tempfile
    from pathlib import Path

    from veil.matching import match_pairs
    from veil.matching.pairs import all_pairs
    from veil.mechanisms.public import publish
    from veil.places.maps import MapImage, build_map

    forms = {name: publish(item) for name, item in door.items()}
    images = {n: MapImage(camera=f.camera, keypoints=f.keypoints, form=forms[n]) for n, f in door.items()}
    with tempfile.TemporaryDirectory() as workdir:
        scene = build_map(images, match_pairs(forms, all_pairs(sorted(forms))), workdir=Path(workdir))
    assert isinstance(scene, Scene)
    return scene
