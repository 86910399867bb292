"""Where a line lies inside the image: planted keypoints, dense sampling, and lines that miss it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from veil.attacks.positions.segments import focal_px, pixels, segments
from veil.geometry.camera import Camera
from worlds import generator
from worlds.line_clouds import CAMERA, RADIAL, line_cloud, uniform_keypoints


@pytest.mark.parametrize("camera", [CAMERA, RADIAL], ids=["pinhole", "radial"])
def test_the_keypoint_lies_on_its_segment_and_the_ends_on_the_border(camera: Camera) -> None:
    """Planted truth for the first, the defining equation for the second (to a tenth of a pixel where the border is curved)."""
    random = generator("segments")
    keypoints = uniform_keypoints(random, 300, camera)
    where = segments(line_cloud(keypoints, random, camera=camera), camera)
    xy = (
        where.foot
        + ((np.asarray(_normalized(keypoints, camera)) - where.foot) * where.direction).sum(1, keepdims=True) * where.direction
    )
    np.testing.assert_allclose(pixels(xy, camera), keypoints, atol=1e-3)
    s = ((xy - where.foot) * where.direction).sum(axis=1)
    assert (s >= where.low - 1e-3).all() and (s <= where.high + 1e-3).all()
    for end in (where.low, where.high):
        shown = pixels(where.at(end), camera)
        gap = np.minimum(np.abs(shown), np.abs(shown - (camera.width_px, camera.height_px))).min(axis=1)
        assert gap.max() < 0.2


def test_a_line_that_misses_the_image_has_no_segment() -> None:
    random = generator("missing")
    lines = line_cloud(uniform_keypoints(random, 5), random)
    far = lines.coefficients.copy()
    far[2] = (1, 0, -9)
    where = segments(replace(lines, coefficients=far), CAMERA)
    np.testing.assert_array_equal(np.isnan(where.low), np.arange(5) == 2)
    assert np.isnan(pixels(where.at(where.low), CAMERA)[2]).all()


def test_the_focal_length_is_the_mean_of_both() -> None:
    camera = Camera(model="PINHOLE", width_px=64, height_px=48, params=(400.0, 500.0, 32.0, 24.0))
    assert focal_px(camera) == 450 and focal_px(RADIAL) == 500


def _normalized(keypoints: np.ndarray, camera: Camera) -> np.ndarray:
    from veil.geometry.camera import as_colmap

    return np.asarray(as_colmap(camera).cam_from_img(keypoints))
