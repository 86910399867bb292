"""Lines: through their keypoints, in uniform directions wherever in the image, the same each time."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

from veil import chance
from veil.errors import InputError, RangeError
from veil.forms import Lines
from veil.geometry.camera import Camera
from veil.guarantee import NoProof
from veil.privatize.lines import LineOptions, lift_to_lines, normalized_keypoints
from worlds import features, generator

STUDY = chance.seeded("lines")
DOWN = np.array([0.05, 0.99, 0.12]) / np.linalg.norm([0.05, 0.99, 0.12])
RADIAL = Camera(model="SIMPLE_RADIAL", width_px=640, height_px=480, params=(500.0, 320.0, 240.0, -0.1))


def angles(lines: Lines) -> np.ndarray:
    return np.arctan2(lines.coefficients[:, 1], lines.coefficients[:, 0]) % np.pi


def test_every_line_passes_through_its_keypoint() -> None:
    """Defining equation, in the undistorted normalized plane (a distorted camera); both kinds of lines."""
    image = replace(features(generator("through"), 200), camera=RADIAL)
    lines = lift_to_lines(image, gravity=DOWN, chance=STUDY)
    xy = normalized_keypoints(image)
    distance = (lines.coefficients[:, :2] * xy).sum(axis=1) + lines.coefficients[:, 2]
    assert np.abs(distance).max() * RADIAL.focal_px < 1e-3
    assert isinstance(lines.guarantee, NoProof) and "four or more images" in lines.guarantee.reason


def test_aligned_lines_meet_at_the_vanishing_point_of_gravity() -> None:
    """l . g = 0 for aligned lines, and for no other; their share is the asked one (binomial, both sides)."""
    image = features(generator("aligned"), 2000)
    lines = lift_to_lines(image, gravity=DOWN, chance=STUDY)
    at_vanishing = np.abs(lines.coefficients @ DOWN)
    assert at_vanishing[lines.aligned].max() < 1e-5
    assert (at_vanishing[~lines.aligned] > 1e-4).mean() > 0.99
    assert stats.binomtest(int(lines.aligned.sum()), 2000, 0.5).pvalue > 1e-4
    few = lift_to_lines(image, gravity=DOWN, chance=STUDY, options=LineOptions(aligned_share=0.2))
    assert stats.binomtest(int(few.aligned.sum()), 2000, 0.2).pvalue > 1e-4
    none = lift_to_lines(image, gravity=None, chance=STUDY)
    assert not none.aligned.any() and none.gravity is None


@pytest.mark.parametrize("x", [1.0, 320.0, 639.0])
@pytest.mark.parametrize("y", [1.0, 240.0, 479.0])
def test_directions_are_uniform_at_every_position(x: float, y: float) -> None:
    """S10: chi-square over 18 bins at nine positions. Broken twin: a line through a second random pixel is not uniform."""
    many = 1800
    # One keypoint in many images: the draws hang on the image.
    found = np.concatenate([angles(lift_to_lines(_one(index, x, y), gravity=None, chance=STUDY)) for index in range(many)])
    assert 1e-4 < stats.chisquare(np.histogram(found, 18, (0, np.pi))[0]).pvalue < 1 - 1e-6
    if (x, y) != (320.0, 240.0):
        other = generator(f"twin {x} {y}").uniform([0, 0], [640, 480], (many, 2)) - [x, y]
        naive = np.arctan2(-other[:, 0], other[:, 1]) % np.pi
        assert stats.chisquare(np.histogram(naive, 18, (0, np.pi))[0]).pvalue < 1e-6


def _one(index: int, x: float, y: float):
    single = features(generator("one"), 1)
    return replace(single, keypoints=np.array([[x, y]], dtype=np.float32), image_digest=index.to_bytes(32, "big"))


def test_lines_repeat_and_twins_share_theirs() -> None:
    """D15, S11: the same image gives the same lines; broken twin: fresh lines through a keypoint meet in it."""
    image = features(generator("twins"), 40)
    keypoints = image.keypoints.copy()
    keypoints[1] = keypoints[0]
    image = replace(image, keypoints=keypoints)
    secret = chance.Secret.generate()
    first, second = (lift_to_lines(image, gravity=DOWN, chance=chance.memoized(secret)) for _ in range(2))
    np.testing.assert_array_equal(first.coefficients, second.coefficients)
    np.testing.assert_array_equal(first.coefficients[0], first.coefficients[1])
    one, two = (lift_to_lines(image, gravity=None, chance=chance.fresh()) for _ in range(2))
    meeting = np.cross(one.coefficients.astype(np.float64), two.coefficients.astype(np.float64))
    meeting = meeting[:, :2] / meeting[:, 2:]
    assert np.median(np.linalg.norm(meeting - normalized_keypoints(image), axis=1)) < 1e-5


def test_what_cannot_be_lifted() -> None:
    image = features(generator("refuse"), 3)
    with pytest.raises(InputError, match="negate"):
        lift_to_lines(image, gravity=-DOWN, chance=STUDY)
    with pytest.raises(RangeError, match="aligned_share"):
        LineOptions(aligned_share=1.0)
    with pytest.raises(InputError, match="no keypoints"):
        empty = replace(image, keypoints=image.keypoints[:0], descriptors=image.descriptors[:0])
        lift_to_lines(empty, gravity=None, chance=STUDY)
    good = lift_to_lines(image, gravity=DOWN, chance=STUDY)
    for change, words in (
        ({"coefficients": good.coefficients * 2}, "unit length"),
        ({"gravity": None, "aligned": np.ones(3, dtype=bool)}, "not given"),
        ({"gravity": DOWN * 2}, "unit vector"),
    ):
        with pytest.raises(InputError, match=words):
            replace(good, **change)
