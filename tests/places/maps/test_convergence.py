"""Adjustments of maps go on until they converge."""

from __future__ import annotations

from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from veil.colmap import pycolmap
from veil.geometry.rigid import rotation_angle_deg
from veil.places.maps import StageLimits
from veil.places.maps.colmap import Colmap
from veil.places.maps.options import ADJUSTMENT, LAST_PX, MIN_ANGLE_DEG
from worlds import generator

FOCAL_PX, GUESS_PX = 1500.0, 384.0  # planted, and 1.2 times the longer side of the pictures
IMAGES, POINTS, STEP_DEG, NOISE_PX = 3, 200, 8.0, 0.15


def test_an_adjustment_finds_a_long_focal_length(tmp_path: Path) -> None:
    """Planted: three pictures about an object by a lens of four times the focal length that is guessed.

    Broken twin: 50 iterations end on the way, where the cameras turn by degrees too much.
    """
    truth = _about_an_object()
    _with_focal(truth, GUESS_PX).write(_folder(tmp_path / "guessed"))
    held = {"constant_cameras": [1], "options": dict(ADJUSTMENT)}
    free = {"constant_cameras": [], "options": dict(ADJUSTMENT)}
    ended = {**free, "options": {**ADJUSTMENT, "ceres.solver_options.max_num_iterations": 50}}
    with Colmap(StageLimits()) as colmap:
        _adjusted(colmap, tmp_path, "guessed", "held", held)
        model = _adjusted(colmap, tmp_path, "held", "free", free)
        assert model.cameras[1].params[0] == pytest.approx(FOCAL_PX, rel=0.05)
        assert _most_turned_deg(model, truth) < 1.0
        model = _adjusted(colmap, tmp_path, "held", "ended", ended)
        assert _most_turned_deg(model, truth) > 5.0


def _about_an_object() -> pycolmap.Reconstruction:
    """A model of three pictures of 320 x 240 pixels from a circle about a cloud of points, with noise in the keypoints."""
    random = generator("long focal length")
    cloud = random.uniform(-1, 1, (POINTS, 3)) * [0.8, 0.6, 0.5]
    model = _with_focal(pycolmap.Reconstruction(), FOCAL_PX)
    for row in range(IMAGES):
        angle = np.radians(STEP_DEG * (row - 1))
        turn = np.array([[np.cos(angle), 0, -np.sin(angle)], [0, 1, 0], [np.sin(angle), 0, np.cos(angle)]])
        step = np.array([0, 0.05 * np.sin(3 * row), 8.0])
        seen = cloud @ turn.T + step
        xy = FOCAL_PX * seen[:, :2] / seen[:, 2:] + [160, 120] + NOISE_PX * random.normal(size=(POINTS, 2))
        image = pycolmap.Image(name=f"{row}", camera_id=1, image_id=row + 1)
        image.points2D = pycolmap.Point2DList([pycolmap.Point2D(position) for position in xy])
        model.add_image_with_trivial_frame(image, pycolmap.Rigid3d(np.column_stack([turn, step])))
    for row, point in enumerate(cloud):
        track = pycolmap.Track()
        for image_id in range(1, IMAGES + 1):
            track.add_element(image_id, row)
        model.add_point3D(point, track, np.zeros(3, dtype=np.uint8))
    return model


def _with_focal(model: pycolmap.Reconstruction, focal_px: float) -> pycolmap.Reconstruction:
    """A copy of the model whose only camera has this focal length."""
    model = pycolmap.Reconstruction(model)
    if not model.exists_camera(1):
        camera = pycolmap.Camera(model="SIMPLE_RADIAL", width=320, height=240, params=[1, 160, 120, 0], camera_id=1)
        model.add_camera_with_trivial_rig(camera)
    model.cameras[1].params = [focal_px, 160.0, 120.0, 0.0]
    return model


def _adjusted(colmap: Colmap, folder: Path, before: str, after: str, request: dict[str, Any]) -> pycolmap.Reconstruction:
    """The model in one folder after an adjustment, which writes it into another."""
    output = _folder(folder / after)
    paths = {"model": str(folder / before), "output": str(output)}
    colmap.run({"do": "adjust", "limits_px": LAST_PX, "min_angle_deg": MIN_ANGLE_DEG, **paths, **request})
    return pycolmap.Reconstruction(output)


def _most_turned_deg(model: pycolmap.Reconstruction, truth: pycolmap.Reconstruction) -> float:
    """Largest angle in degrees between the turns from picture to picture in two models."""
    own, other = (
        {key: one.images[key].cam_from_world().rotation.matrix() for key in range(1, IMAGES + 1)} for one in (model, truth)
    )
    return max(rotation_angle_deg((own[a] @ own[b].T) @ (other[a] @ other[b].T).T) for a, b in combinations(own, 2))


def _folder(path: Path) -> Path:
    path.mkdir()
    return path
