"""Tables of cameras of radiance-field tools: what is read is read rightly, and what is not understood is refused by name."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from veil.errors import FileFormatError
from veil.files.photographs.transforms import TableFrame, read_frames
from veil.geometry.camera import as_colmap

PLAIN: dict[str, Any] = {
    **{"fl_x": 700.0, "fl_y": 700.0, "cx": 270.0, "cy": 480.0, "w": 540, "h": 960},
    "frames": [{"file_path": "images/1.jpg", "transform_matrix": np.eye(4).tolist()}],
}
FISHEYE = {"k1": 0.03, "k2": 0.005, "k3": 0.0006, "k4": 0.0001}


def table(folder: Path, *, frame: dict[str, Any] | None = None, drop: tuple[str, ...] = (), **change: Any) -> Path:
    """The plain table with changes, written."""
    content: dict[str, Any] = {**copy.deepcopy(PLAIN), **change}
    for each in content["frames"][:1]:
        each |= frame or {}
    for key in drop:
        del content[key]
    path = folder / "transforms.json"
    path.write_text(json.dumps(content))
    return path


def only(folder: Path, **change: Any) -> tuple[str, TableFrame]:
    ((name, frame),) = read_frames(table(folder, **change)).items()
    return name, frame


@pytest.mark.parametrize(
    ("change", "model", "distortion"),
    [
        ({}, "OPENCV", (0, 0, 0, 0)),
        ({"k1": 0.1, "k2": 0.02, "p1": 0.001, "p2": 0.002}, "OPENCV", (0.1, 0.02, 0.001, 0.002)),
        ({"camera_model": "OPENCV_FISHEYE", **FISHEYE}, "OPENCV_FISHEYE", tuple(FISHEYE.values())),
        ({"is_fisheye": True, **FISHEYE}, "OPENCV_FISHEYE", tuple(FISHEYE.values())),
        ({"is_fisheye": False, "k4": 0.0}, "OPENCV", (0, 0, 0, 0)),
        ({"k1": 0.1, "k2": 0.02, "k3": 0.003}, "FULL_OPENCV", (0.1, 0.02, 0, 0, 0.003, 0, 0, 0)),
        (
            {"camera_model": "FULL_OPENCV", "k1": 0.1, "k3": 0.003, "k4": 0.02, "k6": 0.001},
            "FULL_OPENCV",
            (0.1, 0, 0, 0, 0.003, 0.02, 0, 0.001),
        ),
    ],
)
def test_cameras_are_those_of_colmap(tmp_path: Path, change: dict[str, Any], model: str, distortion: tuple[float, ...]) -> None:
    """Oracle: the order of parameters in COLMAP's sensor/models.h."""
    _, frame = only(tmp_path, **change)
    assert (frame.camera.model, frame.camera.params) == (model, (700.0, 700.0, 270.0, 480.0, *distortion))


def test_k3_of_opencv_is_its_third_radial_term(tmp_path: Path) -> None:
    """Defining equation: x (1 + k1 r^2 + k2 r^4 + k3 r^6), of OpenCV."""
    _, frame = only(tmp_path, k1=0.1, k2=0.02, k3=0.003)
    ray = np.array([[0.3, -0.2, 1.0]])
    square = 0.3**2 + 0.2**2
    factor = 1 + 0.1 * square + 0.02 * square**2 + 0.003 * square**3
    expected = 700 * factor * ray[:, :2] + [270, 480]
    np.testing.assert_allclose(as_colmap(frame.camera).img_from_cam(ray), expected, atol=1e-9)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"camera_model": "EQUIRECTANGULAR"}, "'EQUIRECTANGULAR'"),
        ({"camera_model": "ORTHOPHOTO"}, "'ORTHOPHOTO'"),
        ({"camera_model": "FULL_OPENCV", "is_fisheye": True}, "a fisheye and of model FULL_OPENCV"),
        ({"k1": 0.1, "k4": 0.1}, "model OPENCV has no k4"),
        ({"k3": 0.1, "k4": 0.1, "k5": 0.1}, "k4, k5 of OPENCV has two meanings"),
        ({"camera_model": "OPENCV_FISHEYE", "p1": 0.1}, "OPENCV_FISHEYE has no p1"),
        ({"is_fisheye": True, "k5": 0.1}, "OPENCV_FISHEYE has no k5"),
        ({"ftheta_p0": 1.0}, "ftheta_p0"),
        ({"rolling_shutter": [0, 0, 1, 0]}, "rolling_shutter"),
        ({"frame": {"transform_matrix_start": np.eye(4).tolist()}}, "transform_matrix_start"),
        ({"frame": {"transform_matrix": np.diag([2, 2, 2, 1.0]).tolist()}}, "no rotation"),
        ({"frame": {"transform_matrix": np.diag([1, 1, -1, 1.0]).tolist()}}, "no rotation"),
        ({"frames": PLAIN["frames"] * 2}, "'1.jpg' stands there twice"),
        ({"frame": {"file_path": "./"}}, "names no photograph"),
        ({"drop": ("fl_x", "fl_y")}, "no focal length"),
        ({"drop": ("w", "h")}, "no image size"),
        ({"w": float("nan")}, "frame 0"),
        ({"frames": []}, "holds no frames"),
        ({"drop": ("frames",)}, "not a table of cameras"),
    ],
)
def test_what_is_not_understood_is_refused_by_name(tmp_path: Path, change: dict[str, Any], words: str) -> None:
    path = table(tmp_path, **change) if "drop" not in change or "frames" not in change["drop"] else tmp_path / "none.json"
    if not path.exists():
        path.write_text(json.dumps({key: value for key, value in PLAIN.items() if key != "frames"}))
    with pytest.raises(FileFormatError, match=words):
        read_frames(path)


@pytest.mark.parametrize(
    ("file_path", "name"),
    [
        ("images/1.jpg", "1.jpg"),
        ("./images/a/1.jpg", "a/1.jpg"),
        ("images\\1.jpg", "1.jpg"),
        ("../images/1.jpg", "1.jpg"),
        ("/home/u/1.jpg", "home/u/1.jpg"),
        ("./train/r_0", "train/r_0"),
    ],
)
def test_names_lead_nowhere_else(tmp_path: Path, file_path: str, name: str) -> None:
    assert only(tmp_path, frame={"file_path": file_path})[0] == name


def test_size_and_focal_length_of_a_table_without_them(tmp_path: Path) -> None:
    """Oracle: the definition of camera_angle_x, the angle that the width covers; the size is that of the photograph."""
    (tmp_path / "train").mkdir()
    Image.new("RGB", (80, 60)).save(tmp_path / "train" / "r_0.png")
    change: dict[str, Any] = {"drop": ("fl_x", "fl_y", "cx", "cy", "w", "h"), "camera_angle_x": 0.7}
    _, frame = only(tmp_path, frame={"file_path": "./train/r_0"}, **change)
    assert (frame.camera.width_px, frame.camera.height_px, frame.photograph.name) == (80, 60, "r_0.png")
    assert np.arctan2(40, frame.camera.focal_px) == pytest.approx(0.35)
    assert frame.camera.params[2:4] == (40, 30)


def test_poses_are_of_opencv(tmp_path: Path) -> None:
    """Planted truth: a camera at (1, 2, 3) that looks along -z of the world, with y up, as OpenGL's identity does."""
    matrix = np.eye(4)
    matrix[:3, 3] = [1, 2, 3]
    _, frame = only(tmp_path, frame={"transform_matrix": matrix.tolist()})
    np.testing.assert_allclose(frame.cam_from_world.center, [1, 2, 3])
    np.testing.assert_allclose(frame.cam_from_world.heading, [0, 0, -1])
    np.testing.assert_allclose(frame.cam_from_world.apply(np.array([[1.0, 3.0, 3.0]])), [[0, -1, 0]])
