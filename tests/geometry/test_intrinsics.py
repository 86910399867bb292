"""Checks of intrinsics: real lenses pass, hostile numbers do not, and what passes can be undistorted."""

from __future__ import annotations

import numpy as np
import pytest

from veil.errors import InputError, RangeError
from veil.files.photographs.examples import lund_door
from veil.geometry.camera import (
    MODELS,
    Camera,
    as_colmap,
    checked_camera,
    guessed,
    implausible,
    require_crossing,
    require_inside,
    undistorted,
)
from worlds import generator, lens
from worlds.hostile_cameras import HOSTILE, made

# Calibrations as their data sets or makers publish them.
REAL = {
    "EuRoC MAV, cam0": made(
        "OPENCV", 752, 480, 458.654, 457.296, 367.215, 248.375, -0.28340811, 0.07395907, 0.00019359, 1.76187114e-05
    ),
    "KITTI 2011-09-26, camera 0": made(
        "OPENCV", 1392, 512, 984.2439, 980.8141, 690.0, 233.1966, -0.3728755, 0.2037299, 0.002219027, 0.001383707
    ),
    "TUM VI, cam0": made(
        "OPENCV_FISHEYE",
        512,
        512,
        190.978477,
        190.973307,
        254.931706,
        256.897442,
        0.00348239,
        0.00071503,
        -0.00205324,
        0.00020294,
    ),
    "a rational model with large terms that cancel": made(
        "FULL_OPENCV", 2048, 1536, 974.8, 974.6, 1019.8, 787.2, 0.573, -2.6, 0.0003, -0.00015, 1.485, 0.452, -2.43, 1.419
    ),
    "action camera, 120 degrees": made("OPENCV", 1920, 1080, 870.0, 870.0, 960.0, 540.0, -0.26, 0.08, 0.0, 0.0),
    "equidistant lens of 180 degrees": made("SIMPLE_RADIAL_FISHEYE", 1920, 1080, 611.0, 960.0, 540.0, 0.0),
    "circular fisheye of 220 degrees, black corners": made("SIMPLE_RADIAL_FISHEYE", 1536, 1024, 266.0, 768.0, 512.0, 0.0),
    "phone, 0.5x lens (13 mm)": guessed(4032, 3024, focal_px=4032 * 13 / 36),
    "phone, main lens (26 mm)": guessed(4032, 3024, focal_px=4032 * 26 / 36),
    "phone, 10x lens (230 mm)": guessed(4032, 3024, focal_px=4032 * 230 / 36),
    "phone, 200 megapixels": guessed(16320, 12240, focal_px=16320 * 24 / 36),
    "rectilinear 10 mm on full frame": guessed(6000, 4000, focal_px=6000 * 10 / 36),
    "telephoto 300 mm on full frame": guessed(6000, 4000, focal_px=6000 * 300 / 36),
    "anamorphic video": made("PINHOLE", 1920, 1080, 1400.0, 2500.0, 960.0, 540.0),
    "the left third of a photograph": made("PINHOLE", 1000, 2000, 2800.0, 2800.0, 1500.0, 1000.0),
    "strong barrel distortion, k -0.5": made("SIMPLE_RADIAL", 686, 1024, 1288.6, 343.0, 512.0, -0.5),
    "pincushion, k +0.3": made("SIMPLE_RADIAL", 1024, 686, 1200.0, 512.0, 343.0, 0.3),
}


@pytest.mark.parametrize("name", REAL)
def test_real_lenses_are_believed(name: str) -> None:
    """Published calibrations, and lenses as they are sold."""
    assert implausible(REAL[name]) is None
    assert checked_camera(REAL[name]) is REAL[name]


def test_the_bundled_cameras_are_believed() -> None:
    with lund_door() as example:
        assert implausible(example.camera) is None


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_intrinsics_are_refused_with_the_value(name: str) -> None:
    model, params = HOSTILE[name]
    camera = made(model, 640, 480, *params)
    assert implausible(camera) is not None
    with pytest.raises(RangeError, match=r"640x480 px|differ by more") as caught:
        checked_camera(camera)
    assert any(f"{value:.6g}" in str(caught.value) for value in params)
    assert "; " in str(caught.value)  # the remedy
    with pytest.raises(RangeError):
        Camera.parse(",".join([model, *map(repr, params)]), 640, 480)


def test_a_gigapixel_image_is_refused() -> None:
    with pytest.raises(RangeError, match="65535x65535 px is too large"):
        checked_camera(made("SIMPLE_PINHOLE", 65535, 65535, 80000.0, 32000.0, 32000.0))


@pytest.mark.slow
@pytest.mark.usefixtures("unchecked")
def test_what_is_believed_is_undistorted_as_colmap_does() -> None:
    """Second method: pycolmap takes pixels of a finer grid out and back, for cameras drawn at random and believed.

    Of the folds and poles that random coefficients make, some lie between the samples of the check, so a share may differ.
    """
    random = generator("intrinsics")
    believed = different = 0
    while believed < 75:
        model = str(random.choice([name for name in MODELS if "PINHOLE" not in name]))
        focal = [600.0 * 10 ** random.uniform(-0.7, 0.7)] * (1 if "RADIAL" in model else 2)
        distortion = random.normal(size=MODELS[model] - len(focal) - 2) * 10 ** random.uniform(-3, 0.5)
        camera = made(model, 640, 480, *focal, random.uniform(0, 640), random.uniform(0, 480), *distortion.tolist())
        if implausible(camera) is not None:
            continue
        believed += 1
        pixels = random.uniform(0, 1, (200, 2)) * [640, 480]
        ours, beyond = undistorted(camera, pixels)
        theirs = np.asarray(as_colmap(camera).cam_from_img(pixels))
        good = ~beyond
        rays = np.hstack([theirs, np.ones((200, 1))])[good]
        back = np.asarray(as_colmap(camera).img_from_cam(rays)).reshape(-1, 2)
        same = np.abs(ours[good] - theirs[good]) < 1e-3 * (1 + np.abs(ours[good]))
        different += not (same.all() and (np.abs(back - pixels[good]) < 1).all())
    assert different <= 1


def test_positions_lie_in_the_image() -> None:
    """Enumeration of the margin's two sides in each coordinate; NaN lies nowhere."""
    camera = lens("OPENCV")
    inside = np.array([[-2, 0], [0, -2], [643, 0], [0, 481], [300, 200]], dtype=np.float32)
    require_inside(camera, inside)
    for x, y in ((-2.1, 0), (0, -2.1), (643.1, 0), (0, 481.1), (np.nan, 0), (1e38, 0), (np.inf, 1)):
        with pytest.raises(InputError, match=r"1 keypoints lie outside the image of 641x479 px \(first: row 5"):
            require_inside(camera, np.vstack([inside, np.array([[x, y]], dtype=np.float32)]))


@pytest.mark.parametrize("model", MODELS)
def test_lines_meet_the_image(model: str) -> None:
    """Planted: a line through the point of a pixel meets the image at every angle, one beyond the corners does not."""
    camera = lens(model)
    random = generator(f"crossing {model}")
    pixels = random.uniform(0, 1, (300, 2)) * [641, 479]
    points, _ = undistorted(camera, pixels)
    theta = random.uniform(0, np.pi, 300)
    normals = np.stack([np.cos(theta), np.sin(theta)], axis=1)
    through = np.hstack([normals, -(normals * points).sum(axis=1, keepdims=True)]).astype(np.float32)
    require_crossing(camera, through)
    farthest = float(
        np.linalg.norm(undistorted(camera, np.array([[0.0, 0.0], [641, 479], [0, 479], [641, 0]]))[0], axis=1).max()
    )
    through[7, 2] = 1.05 * farthest
    with pytest.raises(InputError, match="line 7 does not meet the image"):
        require_crossing(camera, through)
