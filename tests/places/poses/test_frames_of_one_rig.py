"""Sequences of frames: planted poses, one evidence that repeats do not raise, and everything that must be refused."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from scipy.spatial.transform import Rotation

from veil.errors import InputError, RangeError
from veil.geometry.free_calibration import FreeCamera
from veil.geometry.rigid import Rigid, rotation_angle_deg
from veil.places.held_map import Map
from veil.places.pairs.images import LoadedImage
from veil.places.poses.answer import NoPose
from veil.places.poses.evidence import weigh
from veil.places.poses.matches import Estimate
from veil.places.poses.options import PositionOptions, UprightOptions, WordOptions
from veil.places.poses.sequences.answer import SequenceLocalization
from veil.places.poses.sequences.frames import Frames, MatchedFrames
from veil.places.sequences import localize_loaded_sequence
from veil.scene import views_of
from worlds import World, generator, world
from worlds.word_worlds import dictionary_of, scene_of, with_down, words_of

PLACE = world("sequences", images=9, points=600)
HELD = ("02", "03", "04")
DICTIONARY = dictionary_of(PLACE, others=3000)
DOWN = np.array([0, 1.0, 0])


def map_of(place: World) -> Map:
    scene = with_down(scene_of(place), DOWN)
    return Map(scene=replace(scene, images={name: image for name, image in scene.images.items() if name not in HELD}))


WHERE = map_of(PLACE)
BRIEF = WordOptions(max_iterations=4000, upright=UprightOptions(samples=60_000, kept=40, refined=8, compared=3), threads=1)
# The rig is where no camera stands, turned and in a unit of its own.
RIG_FROM_WORLD = Rigid(rotation=Rotation.from_rotvec([0.3, -1.0, 0.2]).as_matrix(), translation=np.array([0.4, -1.0, 2.0]))
SCALE = 2.5


def motions(place: World = PLACE, scale: float = SCALE) -> list[Rigid]:
    """cam_from_rig of the held-out frames, in a unit of `scale` units of the map."""
    own = [place.poses[name] @ RIG_FROM_WORLD.inverse() for name in HELD]
    return [Rigid(rotation=one.rotation, translation=one.translation / scale) for one in own]


def some(name: str, share: float) -> np.ndarray:
    """Rows of a part of a frame's features, the same each time."""
    count = len(PLACE.visible[name])
    return np.sort(generator(f"some {name}").permutation(count)[: round(share * count)])


def frames_in_words(epsilon: float, share: float = 0.4) -> list[LoadedImage]:
    images = []
    for name in HELD:
        rows = some(name, share)
        form = words_of(PLACE.form(name), DICTIONARY, epsilon=epsilon, name=name).take(rows)
        gravity = PLACE.poses[name].rotation @ DOWN
        images.append(LoadedImage(camera=PLACE.camera, positions=PLACE.keypoints[name][rows], form=form, gravity=gravity))
    return images


def raw_frames(share: float = 0.3) -> list[LoadedImage]:
    images = []
    for name in HELD:
        rows = some(name, share)
        images.append(LoadedImage(camera=PLACE.camera, positions=PLACE.keypoints[name][rows], form=PLACE.form(name).take(rows)))
    return images


def check(answer: SequenceLocalization | NoPose) -> SequenceLocalization:
    """Planted truth: the rig and every frame, each point once over all frames, and covariances that the errors fit."""
    assert isinstance(answer, SequenceLocalization), answer
    assert np.linalg.norm(answer.rig_from_world.center - RIG_FROM_WORLD.center) < 0.02
    for name, frame in zip(HELD, answer.frames, strict=True):
        truth = PLACE.poses[name]
        assert np.linalg.norm(frame.cam_from_world.center - truth.center) < 0.01
        assert rotation_angle_deg(frame.cam_from_world.rotation @ truth.rotation.T) < 0.1
        assert frame.center_deviation is not None and 1e-5 < frame.center_deviation < 0.05
    points = np.concatenate([frame.point_rows for frame in answer.frames])
    assert len(np.unique(points)) == len(points) == answer.inliers
    return answer


@pytest.mark.slow
def test_frames_in_words_give_the_planted_pose_where_each_alone_has_too_little() -> None:
    images = frames_in_words(3.0)
    answer = check(localize_loaded_sequence(images, motions(), WHERE, scale=SCALE, dictionary=DICTIONARY, word_options=BRIEF))
    rows = [some(name, 0.4)[frame.keypoint_rows] for name, frame in zip(HELD, answer.frames, strict=True)]
    right = [PLACE.visible[name][own] == frame.point_rows for name, own, frame in zip(HELD, rows, answer.frames, strict=True)]
    assert np.concatenate(right).mean() > 0.8
    # Controls: another scale, and motions of other frames.
    for wrong in (motions(scale=SCALE * 1.3), motions()[::-1]):
        refused = localize_loaded_sequence(images, wrong, WHERE, scale=SCALE, dictionary=DICTIONARY, word_options=BRIEF)
        assert isinstance(refused, NoPose) or refused.log10_nfa > answer.log10_nfa + 20


@pytest.mark.slow
def test_raw_frames_give_the_planted_pose() -> None:
    answer = check(localize_loaded_sequence(raw_frames(), motions(), WHERE, scale=SCALE))
    assert answer.scale == SCALE and answer.log10_nfa < -50
    # Frames that only turn about one place are one camera with a wide view.
    turned = [Rigid(rotation=one.rotation, translation=np.zeros(3)) for one in motions()]
    assert isinstance(localize_loaded_sequence(raw_frames(), turned, WHERE, scale=SCALE), NoPose)


@pytest.mark.slow
def test_positions_alone_of_frames_near_known_images() -> None:
    nothing = [
        replace(image, form=words_of(PLACE.form(name), DICTIONARY, epsilon=0.0, m=1).take(np.arange(image.features)))
        for name, image in zip(HELD, frames_in_words(3.0, share=0.9), strict=True)
    ]
    options = PositionOptions(upright=replace(BRIEF.upright, samples=400_000, reach=0.25))
    near = ["01", "05"]
    answer = localize_loaded_sequence(nothing, motions(), WHERE, scale=SCALE, near=near, position_options=options)
    check(answer)
    with pytest.raises(InputError, match="images that they are near"):
        localize_loaded_sequence(nothing, motions(), WHERE, scale=SCALE, position_options=options)


@pytest.mark.slow
def test_mirrored_and_foreign_frames_have_no_pose() -> None:
    images = frames_in_words(4.0)
    mirrored = []
    for image in images:
        assert isinstance(image.positions, np.ndarray) and image.gravity is not None
        turned = (np.array([PLACE.camera.width_px, 0]) - image.positions * [1, -1]).astype(np.float32)
        mirrored.append(replace(image, positions=turned, gravity=image.gravity * np.array([-1.0, 1.0, 1.0])))
    assert isinstance(
        localize_loaded_sequence(mirrored, motions(), WHERE, scale=SCALE, dictionary=DICTIONARY, word_options=BRIEF), NoPose
    )
    other = world("another place", images=9, points=600)
    foreign = [
        replace(image, positions=other.keypoints[name][: image.features])
        for name, image in zip(HELD, images, strict=True)
        if len(other.keypoints[name]) >= image.features
    ]
    assert len(foreign) == len(HELD)
    assert isinstance(
        localize_loaded_sequence(foreign, motions(), WHERE, scale=SCALE, dictionary=DICTIONARY, word_options=BRIEF), NoPose
    )


def matched_twice(copies: int) -> MatchedFrames:
    """The pairs of one wrong frame, `copies` times: a tracking that stands still sees the same accidents in each frame."""
    random = generator("repeats")
    count = 200
    keypoints = random.uniform([0, 0], [640, 480], (count, 2)).astype(np.float32)
    points = random.permutation(len(PLACE.points))[:count]
    frame_of = np.repeat(np.arange(copies), count)
    still = Rigid(rotation=np.eye(3), translation=np.zeros(3))
    return MatchedFrames(
        camera=PLACE.camera,
        observations=np.tile(keypoints, (copies, 1)),
        keypoint_rows=np.arange(copies * count).reshape(copies, count).T.ravel(),
        point_rows=np.repeat(points, copies),
        points=PLACE.points,
        max_error_px=8.0,
        seed=0,
        frames=Frames(cameras=(PLACE.camera,) * copies, cams_from_rig=(still,) * copies, frame_of=frame_of),
    )


def test_accidents_that_repeat_from_frame_to_frame_are_counted_once() -> None:
    """Law: evidence of the best pose of four equal frames is no better than that of one. The twin counts each pair alone."""
    one, four = matched_twice(1), matched_twice(4)
    best = min(
        (weigh(one, Estimate(pose=pose, camera=PLACE.camera), None) for pose in PLACE.poses.values()),
        key=lambda evidence: evidence.log10_nfa,
    )
    for pose in PLACE.poses.values():
        estimate = Estimate(pose=pose, camera=PLACE.camera)
        single, repeated = weigh(one, estimate, None), weigh(four, estimate, None)
        assert len(repeated.rows) == len(single.rows)
        assert repeated.log10_nfa >= single.log10_nfa - 1e-9
    assert best.log10_nfa > 0


def test_evidence_of_frames_grows_with_what_each_adds() -> None:
    """Right pairs of three frames, other points in each: log NFA is about the sum of what each frame has."""
    frame_of, keypoints, rows, used = [], [], [], []
    for frame, name in enumerate(HELD):
        visible = PLACE.visible[name]
        own = np.flatnonzero(visible % 3 == frame)[:40]
        frame_of += [frame] * len(own)
        keypoints.append(PLACE.keypoints[name][own])
        rows += visible[own].tolist()
        used.append(len(own))
    poses = tuple(PLACE.poses[name] @ RIG_FROM_WORLD.inverse() for name in HELD)
    frames = Frames(cameras=(PLACE.camera,) * 3, cams_from_rig=poses, frame_of=np.array(frame_of))
    matched = MatchedFrames(
        camera=PLACE.camera,
        observations=np.concatenate(keypoints),
        keypoint_rows=np.arange(len(rows)),
        point_rows=np.array(rows),
        points=PLACE.points,
        max_error_px=8.0,
        seed=0,
        frames=frames,
    )
    estimate = Estimate(pose=RIG_FROM_WORLD, camera=PLACE.camera)
    together = weigh(matched, estimate, views_of(WHERE.scene))
    assert len(together.rows) > 0.9 * sum(used)
    single, _ = matched.in_frame(1)
    alone = weigh(single, frames.estimate_in(1, estimate), views_of(WHERE.scene))
    assert together.log10_nfa < 2 * alone.log10_nfa < -40
    # Slow reference of the residuals: each keypoint by the camera of its own frame.
    gaps = matched.normalized(PLACE.camera).residuals(FreeCamera(pose=RIG_FROM_WORLD)) * PLACE.camera.focal_px
    for frame in range(3):
        single, pairs = matched.in_frame(frame)
        alone_gaps = single.normalized(PLACE.camera).residuals(FreeCamera(pose=poses[frame] @ RIG_FROM_WORLD))
        np.testing.assert_allclose(gaps[pairs], alone_gaps * PLACE.camera.focal_px, atol=1e-8)


def test_frames_that_have_no_common_pose_are_refused_by_name() -> None:
    images, own = frames_in_words(4.0), motions()
    with pytest.raises(RangeError, match="scale must be positive"):
        localize_loaded_sequence(images, own, WHERE, scale=0.0)
    with pytest.raises(InputError, match="3 frames need as many motions"):
        localize_loaded_sequence(images, own[:2], WHERE)
    with pytest.raises(InputError, match="is the scale wrong"):
        localize_loaded_sequence(images, own, WHERE, scale=1e6)
    with pytest.raises(InputError, match="gravity, and that of frame 2"):
        bare = [images[0], replace(images[1], gravity=None), images[2]]
        localize_loaded_sequence(bare, own, WHERE, scale=SCALE, dictionary=DICTIONARY)
    with pytest.raises(InputError, match="one form"):
        localize_loaded_sequence([*images[:2], raw_frames()[2]], own, WHERE, scale=SCALE)
