"""Lines pass through their keypoints, have uniform directions everywhere in the image, and repeat with the image."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from veil import randomness
from veil.errors import InputError, RangeError
from veil.features import Features
from veil.forms import Lines
from veil.geometry.camera import GUESS, Camera
from veil.ldp.guarantee import NoProof
from veil.mechanisms.lines import (
    ConvergentOptions,
    LineOptions,
    LineRule,
    ParallelOptions,
    RuleName,
    lift_to_lines,
    line_key,
    normalized_keypoints,
    rule_of,
)
from veil.space import Space
from worlds import features, generator
from worlds.power import require_even, require_share

STUDY = randomness.seeded("lines")
DOWN = np.array([0.05, 0.99, 0.12]) / np.linalg.norm([0.05, 0.99, 0.12])
RADIAL = Camera(model="SIMPLE_RADIAL", width_px=640, height_px=480, params=(500.0, 320.0, 240.0, -0.1))


def angles(lines: Lines) -> np.ndarray:
    return np.arctan2(lines.coefficients[:, 1], lines.coefficients[:, 0]) % np.pi


def test_every_line_passes_through_its_keypoint() -> None:
    """Defining equation of both kinds of lines, in the undistorted normalized plane of a distorted camera."""
    image = replace(features(generator("through"), 200), camera=RADIAL)
    lines = lift_to_lines(image, gravity=DOWN, randomness=STUDY)
    xy = normalized_keypoints(image)
    distance = (lines.coefficients[:, :2] * xy).sum(axis=1) + lines.coefficients[:, 2]
    assert np.abs(distance).max() * RADIAL.focal_px < 1e-3
    assert isinstance(lines.guarantee, NoProof) and "four or more images" in lines.guarantee.reason


@pytest.mark.slow
def test_aligned_lines_meet_at_the_vanishing_point_of_gravity() -> None:
    """l . g = 0 for aligned lines, and for no other; their share is the asked one, where 0.02 more or less would be seen."""
    image = features(generator("aligned"), 50_000)
    lines = lift_to_lines(image, gravity=DOWN, randomness=STUDY)
    at_vanishing = np.abs(lines.coefficients @ DOWN)
    assert at_vanishing[lines.aligned].max() < 1e-5
    assert (at_vanishing[~lines.aligned] > 1e-4).mean() > 0.99
    require_share(int(lines.aligned.sum()), 50_000, 0.5, sees=0.02)
    few = lift_to_lines(image, gravity=DOWN, randomness=STUDY, options=LineOptions(aligned_share=0.2))
    require_share(int(few.aligned.sum()), 50_000, 0.2, sees=0.02)
    none = lift_to_lines(image, gravity=None, randomness=STUDY)
    assert not none.aligned.any() and none.gravity is None


@pytest.mark.parametrize("x", [1.0, 320.0, 639.0])
@pytest.mark.parametrize("y", [1.0, 240.0, 479.0])
def test_directions_are_uniform_at_every_position(x: float, y: float) -> None:
    """Chi-square of 18 bins at nine positions, where 9 % more or less would be seen.

    Broken twin: a line through a second random pixel, whose density is 0.79 to 1.37 of the even one.
    """
    many = 15_000
    random = generator(f"place {x} {y}")
    image = replace(features(random, many), camera=RADIAL)
    # All within half a pixel: the draws hang on the last digits of the position.
    keypoints = (np.array([x, y]) + random.uniform(-0.5, 0.5, (many, 2))).astype(np.float32)
    directions = angles(lift_to_lines(replace(image, keypoints=keypoints), gravity=None, randomness=STUDY))
    require_even(np.histogram(directions, 18, (0, np.pi))[0], sees=0.09)
    if (x, y) != (320.0, 240.0):
        other = random.uniform([0, 0], [640, 480], (many, 2)) - [x, y]
        naive = np.arctan2(-other[:, 0], other[:, 1]) % np.pi
        with pytest.raises(AssertionError, match="p = "):
            require_even(np.histogram(naive, 18, (0, np.pi))[0], sees=0.09)


def test_lines_repeat_and_twins_share_theirs() -> None:
    """The same image gives the same lines; broken twin: fresh lines through a keypoint meet in it."""
    image = features(generator("twins"), 40)
    keypoints = image.keypoints.copy()
    keypoints[1] = keypoints[0]
    image = replace(image, keypoints=keypoints)
    secret = randomness.Secret.generate()
    first, second = (lift_to_lines(image, gravity=DOWN, randomness=randomness.memoized(secret)) for _ in range(2))
    np.testing.assert_array_equal(first.coefficients, second.coefficients)
    np.testing.assert_array_equal(first.coefficients[0], first.coefficients[1])
    one, two = (lift_to_lines(image, gravity=None, randomness=randomness.fresh()) for _ in range(2))
    meeting = np.cross(one.coefficients.astype(np.float64), two.coefficients.astype(np.float64))
    meeting = meeting[:, :2] / meeting[:, 2:]
    assert np.median(np.linalg.norm(meeting - normalized_keypoints(image), axis=1)) < 1e-5


def test_the_key_of_lines_is_a_protocol() -> None:
    """Golden text of the ledger: a renamed class or another library must not change what it says of the same lines.

    `draws` is the SHA-256 of the sorted rows of position and two words, each BLAKE2b to SHAKE-256 of its context.
    """
    image = Features(
        keypoints=np.array([[1.5, 2.25], [300.0, 0.1], [1.5, 2.25]], dtype=np.float32),
        descriptors=np.ones((3, 128), dtype=np.uint8),
        space=Space(descriptor="sift", normalization="L2", dim=128),
        camera=replace(RADIAL, focal=GUESS),
        image_digest=bytes(range(32)),
    )
    key = line_key(image, gravity=np.array([0.0, 2.0, 0.0]), randomness=randomness.Secure(b"golden".ljust(32, b".")))
    assert key == (
        "lines rule=1 aligned=0.5 gravity=0.0,1.0,0.0 camera=SIMPLE_RADIAL,500.0,320.0,240.0,-0.1 size=640x480 focal=guessed "
        "keypoints=1480d471665cf860 draws=ec42ae974e8085d7"
    )


@pytest.mark.parametrize("rule", [ConvergentOptions(), ParallelOptions()])
def test_lines_of_two_halves_hang_on_nothing_drawn(rule: LineRule) -> None:
    """Two secrets give the same lines, so repeats are no second line; each runs through its keypoint."""
    image = replace(features(generator("halves"), 300), camera=RADIAL)
    one, two = (lift_to_lines(image, gravity=DOWN, randomness=randomness.fresh(), options=rule) for _ in range(2))
    np.testing.assert_array_equal(one.coefficients, two.coefficients)
    xy = normalized_keypoints(image)
    distance = (one.coefficients[:, :2] * xy).sum(axis=1) + one.coefficients[:, 2]
    assert np.abs(distance).max() * RADIAL.focal_px < 1e-3
    left = xy[:, 0] < 0
    if isinstance(rule, ParallelOptions):
        np.testing.assert_array_equal(one.aligned, left)
        assert (one.coefficients[~left, :2] == [0, -1]).all()
        blind = lift_to_lines(image, gravity=None, randomness=STUDY, options=rule)
        assert not blind.aligned.any() and (blind.coefficients[left, :2] == [1, 0]).all()


def test_the_key_of_lines_of_two_halves_is_a_protocol() -> None:
    """Golden text of the ledger, which differs by the rule: two different lines through one keypoint meet in it."""
    image = Features(
        keypoints=np.array([[1.5, 2.25], [300.0, 0.1], [1.5, 2.25]], dtype=np.float32),
        descriptors=np.ones((3, 128), dtype=np.uint8),
        space=Space(descriptor="sift", normalization="L2", dim=128),
        camera=replace(RADIAL, focal=GUESS),
        image_digest=bytes(range(32)),
    )
    rules: tuple[tuple[RuleName, int], ...] = (("convergent", 2), ("parallel", 3))
    for name, number in rules:
        key = line_key(image, gravity=np.array([0.0, 2.0, 0.0]), randomness=randomness.fresh(), options=rule_of(name))
        assert key == (
            f"lines rule={number} gravity=0.0,1.0,0.0 camera=SIMPLE_RADIAL,500.0,320.0,240.0,-0.1 size=640x480 focal=guessed "
            "keypoints=1480d471665cf860"
        )
    assert rule_of("random", aligned_share=0.25) == LineOptions(aligned_share=0.25)


def test_what_cannot_be_lifted() -> None:
    image = features(generator("refuse"), 3)
    with pytest.raises(InputError, match="negate"):
        lift_to_lines(image, gravity=-DOWN, randomness=STUDY)
    with pytest.raises(RangeError, match="aligned_share"):
        LineOptions(aligned_share=1.0)
    with pytest.raises(InputError, match="no keypoints"):
        empty = replace(image, keypoints=image.keypoints[:0], descriptors=image.descriptors[:0])
        lift_to_lines(empty, gravity=None, randomness=STUDY)
    good = lift_to_lines(image, gravity=DOWN, randomness=STUDY)
    for change, words in (
        ({"coefficients": good.coefficients * 2}, "unit length"),
        ({"gravity": None, "aligned": np.ones(3, dtype=bool)}, "not given"),
        ({"gravity": DOWN * 2}, "unit vector"),
    ):
        with pytest.raises(InputError, match=words):
            replace(good, **change)
