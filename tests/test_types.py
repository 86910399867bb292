"""The small types: what they refuse, and that messages say name, value and remedy."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from veil.errors import InputError, RangeError, VeilError
from veil.forms import canonical
from veil.geometry.camera import (
    FROM_EXIF,
    GIVEN,
    GUESS,
    MODELS,
    Camera,
    FocalPrior,
    as_colmap,
    described_focals,
    guessed,
    rescaled,
)
from veil.geometry.rigid import Rigid, rotation_angle_deg
from veil.ldp.guarantee import LocalDP, NoProof
from veil.space import Space
from worlds import features, generator


@pytest.mark.parametrize("epsilon", [math.nan, -1.0, math.inf])
def test_an_epsilon_that_promises_nothing_is_refused(epsilon: float) -> None:
    with pytest.raises(RangeError, match="epsilon must be finite"):
        LocalDP(epsilon=epsilon, unit="feature")
    with pytest.raises(RangeError, match="reason"):
        NoProof(reason=" ")


@pytest.mark.parametrize(
    "change",
    [
        {"descriptor": ""},
        {"descriptor": "a" * 33},
        {"descriptor": "ä"},
        {"dim": 1},
        {"dim": 5000},
        {"codebook": "xyz"},
        {"dither_steps": math.nan},
        {"dither_steps": -1.0},
    ],
)
def test_spaces_that_cannot_be(change: dict) -> None:
    good = Space(descriptor="sift", normalization="L2", dim=128)
    with pytest.raises(RangeError):
        replace(good, **change)


def test_features_refuse_what_would_poison_distances() -> None:
    good = features(generator("good"), 5)
    bad_place = good.keypoints.copy()
    bad_place[2, 0] = np.nan
    zero = good.descriptors.copy()
    zero[1] = 0
    wrong = np.ones((5, 128), dtype=np.float32)
    for change, words in (
        ({"keypoints": bad_place}, "NaN"),
        ({"keypoints": good.keypoints[:4]}, "need keypoints"),
        ({"descriptors": zero}, "all zero"),
        ({"descriptors": wrong}, "unit length"),
        ({"descriptors": wrong * np.float32(np.nan)}, "unit length"),
        ({"image_digest": b"short"}, "32 bytes"),
    ):
        with pytest.raises(InputError, match=words):
            replace(good, **change)


def test_cameras() -> None:
    with pytest.raises(RangeError, match="not supported"):
        Camera(model="FISH", width_px=10, height_px=10, params=(1.0,))
    with pytest.raises(RangeError, match="takes 4 parameters"):
        Camera(model="PINHOLE", width_px=10, height_px=10, params=(1.0,))
    with pytest.raises(RangeError, match="positive focal"):
        Camera(model="SIMPLE_PINHOLE", width_px=10, height_px=10, params=(math.nan, 5.0, 5.0))
    with pytest.raises(RangeError, match="image size"):
        guessed(0, 10)
    with pytest.raises(InputError, match="MODEL,p1"):
        Camera.parse("PINHOLE,a,b", 10, 10)
    assert Camera.parse("simple_pinhole,100,5,5", 10, 10).focal_px == 100
    assert guessed(400, 300).focal_px == pytest.approx(480)
    assert not guessed(400, 300).focal_is_known


def test_a_focal_length_has_a_source_and_a_deviation() -> None:
    """Oracle: the statement; the more is said of a focal length, the smaller its deviation."""
    assert GUESS.deviation > math.log(2) > FROM_EXIF.deviation > GIVEN.deviation > 0
    assert guessed(400, 300).focal == GUESS and guessed(400, 300, focal_px=350.0).focal == FROM_EXIF
    assert Camera.parse("simple_pinhole,100,5,5", 10, 10).focal == GIVEN
    for deviation in (0.0, -1.0, math.nan, math.inf):
        with pytest.raises(RangeError, match="positive and finite"):
            FocalPrior(origin="EXIF", deviation=deviation)


def test_the_sources_of_focal_lengths_are_counted() -> None:
    """Oracle: counts by hand; guesses come first."""
    exif, guess = guessed(400, 300, focal_px=350.0), guessed(400, 300)
    assert described_focals([guess] * 16 + [exif]) == "focal lengths: 16 of 17 are guesses, 1 from EXIF"
    assert described_focals([exif, guess, exif]) == "focal lengths: 1 of 3 is a guess, 2 from EXIF"
    assert described_focals([replace(exif, focal=GIVEN)]) == "focal lengths: 1 of 1 is given"


def test_a_camera_states_the_deviation_of_its_focal_length() -> None:
    """By hand: percents behind `+-`; 1 % without them. Oracle of the rest: the same camera without them."""
    text = "SIMPLE_RADIAL,1288.6,343,512,-0.0336"
    plain = Camera.parse(text, 686, 1024)
    assert plain.focal == GIVEN
    for written, deviation in (("+-2%", 0.02), (" +- 0.5 %", 0.005), ("+-30%", 0.3), ("+-1e1%", 0.1)):
        focal = FocalPrior(origin="given", deviation=deviation)
        assert Camera.parse(text + written, 686, 1024) == replace(plain, focal=focal)
    for wrong in ("+-2", "+-", "+-%", "+-2%+-3%", "+-2%,7", "~2%", ",+-2%"):
        with pytest.raises(InputError, match=r"not of the form MODEL,p1,p2.*\+-3%"):
            Camera.parse(text + wrong, 686, 1024)
    for wrong in ("+-0%", "+--2%", "+-inf%", "+-nan%"):
        with pytest.raises(RangeError, match="deviation of a focal length"):
            Camera.parse(text + wrong, 686, 1024)


@pytest.mark.parametrize("factor", [0.1, 0.37, 0.5, 1.0, 1.7, 4.0])
def test_a_camera_is_rescaled_to_the_same_shape_alone(factor: float) -> None:
    """Defining equation: projections scale with the sides, which may be rounded either way. Turned and cut pictures: none."""
    camera = Camera(model="OPENCV", width_px=1031, height_px=687, params=(900.0, 910.0, 500.0, 350.0, 0.1, -0.02, 1e-3, 2e-3))
    for sizes in (math.floor, math.ceil, round):
        width, height = sizes(1031 * factor), sizes(687 * factor)
        other = rescaled(camera, width, height)
        assert other is not None and (other.width_px, other.height_px) == (width, height)
        ray = np.array([[0.2, -0.1, 1.0]])
        here, there = (np.asarray(as_colmap(each).img_from_cam(ray))[0] for each in (camera, other))
        np.testing.assert_allclose(there, here * [width / 1031, height / 687], rtol=1e-9)
        assert rescaled(camera, height, width) is None and rescaled(camera, width, round(height * 0.9)) is None


def test_camera_models_are_colmaps() -> None:
    """Oracle: pycolmap's own parameter counts."""
    import pycolmap

    for model, count in MODELS.items():
        made = pycolmap.Camera.create_from_model_name(1, model, 100.0, 64, 48)
        assert len(made.params) == count
        assert made.params[0] == 100.0


def test_transforms_cancel_like_fractions() -> None:
    random = generator("rigid")
    turn = np.linalg.qr(random.normal(size=(3, 3)))[0]
    turn *= np.sign(np.linalg.det(turn))
    b_from_a = Rigid(rotation=turn, translation=random.normal(size=3))
    a_from_a = b_from_a.inverse() @ b_from_a
    np.testing.assert_allclose(a_from_a.rotation, np.eye(3), atol=1e-12)
    np.testing.assert_allclose(a_from_a.translation, 0, atol=1e-12)
    np.testing.assert_allclose(b_from_a.rotation @ b_from_a.center + b_from_a.translation, 0, atol=1e-12)


@pytest.mark.parametrize("angle", [0.0, 1e-6, 0.01, 1.0, 90.0, 179.0])
def test_rotation_angle(angle: float) -> None:
    c, s = math.cos(math.radians(angle)), math.sin(math.radians(angle))
    assert rotation_angle_deg(np.array([[c, -s, 0], [s, c, 0], [0, 0, 1.0]])) == pytest.approx(angle, rel=1e-6, abs=1e-12)


def test_canonical_refuses_what_is_no_subspace() -> None:
    random = generator("canonical")
    origin, basis = random.normal(size=(2, 8)), random.normal(size=(2, 3, 8))
    nearest, orthonormal = canonical(origin, basis)
    # Defining equations: same affine set, orthonormal, origin perpendicular.
    again, _ = canonical(nearest + np.einsum("fm,fmn->fn", random.normal(size=(2, 3)), orthonormal), orthonormal)
    np.testing.assert_allclose(again, nearest, atol=1e-12)
    dependent = basis.copy()
    dependent[1, 2] = dependent[1, 0] - dependent[1, 1]
    with pytest.raises(InputError, match="linearly dependent"):
        canonical(origin, dependent)
    with pytest.raises(InputError, match="NaN"):
        canonical(origin * np.nan, basis)


def test_every_error_is_a_veil_error() -> None:
    import veil.errors

    classes = [item for item in vars(veil.errors).values() if isinstance(item, type) and issubclass(item, Exception)]
    assert len(classes) > 5 and all(issubclass(item, VeilError) for item in classes)
