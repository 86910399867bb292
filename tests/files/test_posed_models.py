"""Models of COLMAP: what pycolmap writes is read as it is, in binary and text, and damage is an error and no hang."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pycolmap
import pytest

from veil.errors import FileFormatError, InputError
from veil.files.photographs.posed_models import PosedModel, read_model
from veil.geometry.camera import CALIBRATED
from veil.places.maps.scenes import model_of
from veil.scene import Scene
from worlds import generator
from worlds.edges import flipped, outcome, truncated
from worlds.map_scenes import planted_map


def written(folder: Path, kind: str = "bin") -> tuple[Path, Scene]:
    """A planted map as a model that pycolmap wrote, in binary or text."""
    folder.mkdir()
    scene, _ = planted_map("posed models", points=50)
    model = model_of(scene)
    (model.write if kind == "bin" else model.write_text)(folder)
    return folder, scene


@pytest.mark.parametrize("kind", ["bin", "txt"])
def test_a_model_is_read_as_it_was_planted(tmp_path: Path, kind: str) -> None:
    """Planted truth, as pycolmap writes it: poses, cameras, points, and who observes what."""
    path, scene = written(tmp_path / "model", kind)
    model = read_model(path)
    cameras = {name: replace(image.camera, focal=CALIBRATED) for name, image in scene.images.items()}
    assert set(model.images) == set(scene.images) and model.cameras == cameras
    np.testing.assert_allclose(model.points, scene.points, atol=1e-9)
    for name, image in scene.images.items():
        read = model.images[name]
        np.testing.assert_allclose(read.cam_from_world.rotation, image.cam_from_world.rotation, atol=1e-9)
        np.testing.assert_allclose(read.cam_from_world.translation, image.cam_from_world.translation, atol=1e-9)
        np.testing.assert_allclose(read.keypoints, image.keypoints, atol=1e-3)
        np.testing.assert_array_equal(read.point_rows, image.point_rows)


def moved(x: float, z: float) -> Any:
    """A rigid motion along x and z alone."""
    return pycolmap.Rigid3d(np.column_stack([np.eye(3), [x, 0.0, z]]))


def rig_model() -> Any:
    """A model with one rig of two cameras, the second 0.5 to the right, in two frames."""
    model = pycolmap.Reconstruction()
    rig = pycolmap.Rig(rig_id=1)
    for camera_id in (1, 2):
        camera = pycolmap.Camera(camera_id=camera_id, model="PINHOLE", width=640, height=480, params=[500, 500, 320, 240])
        model.add_camera(camera)
        if camera_id == 1:
            rig.add_ref_sensor(camera.sensor_id)
        else:
            rig.add_sensor(camera.sensor_id, moved(-0.5, 0))
    model.add_rig(rig)
    for number in (1, 2):
        frame = pycolmap.Frame(frame_id=number, rig_id=1)
        images = [pycolmap.Image(name=f"{number}/{c}.jpg", camera_id=c, image_id=10 * number + c) for c in (1, 2)]
        for image in images:
            frame.add_data_id(image.data_id)
        frame.rig_from_world = moved(0, number)
        model.add_frame(frame)
        for image in images:
            image.frame_id = number
            model.add_image(image)
    return model


@pytest.mark.parametrize("kind", ["bin", "txt"])
def test_poses_of_a_rig_are_those_of_its_cameras(tmp_path: Path, kind: str) -> None:
    """Planted truth: the second camera's center is 0.5 to the right of the first's."""
    model = rig_model()
    (model.write if kind == "bin" else model.write_text)(tmp_path)
    assert any(tmp_path.glob("rigs.*"))
    poses = read_model(tmp_path).poses
    for number in (1, 2):
        np.testing.assert_allclose(poses[f"{number}/1.jpg"].center, [0, 0, -number])
        np.testing.assert_allclose(poses[f"{number}/2.jpg"].center, [0.5, 0, -number])


@pytest.mark.parametrize("kind", ["bin", "txt"])
def test_damaged_models_raise_only_veils_errors(tmp_path: Path, kind: str) -> None:
    """Every file of the model, cut off or with wrong bytes. COLMAP's own reader hangs on points that were cut off."""
    path, _ = written(tmp_path / "model", kind)
    random = generator("damaged models")
    errors = 0
    for name in (f"cameras.{kind}", f"images.{kind}", f"points3D.{kind}"):
        data = (path / name).read_bytes()
        for bad in (*truncated(data, 12), *flipped(random, data, 25, most=40)):
            (path / name).write_bytes(bad)
            errors += outcome(lambda: read_model(path)) is not None
        (path / name).write_bytes(data)
    assert errors > (60 if kind == "bin" else 20)
    assert isinstance(read_model(path), PosedModel)


def test_ids_that_no_model_has_are_refused(tmp_path: Path) -> None:
    """Binary ids have 64 bits, and text has any number; an id that is cut to fit would name another point."""
    path, _ = written(tmp_path / "bin")
    data = bytearray((path / "points3D.bin").read_bytes())
    data[8:16] = (2**64 - 2).to_bytes(8, "little")
    (path / "points3D.bin").write_bytes(data)
    with pytest.raises(FileFormatError, match=r"a point of id 18446744073709551614"):
        read_model(path)
    path, _ = written(tmp_path / "txt", "txt")
    text = (path / "images.txt").read_text().splitlines()
    row = next(number for number, line in enumerate(text) if not line.startswith("#")) + 1
    for last in ("1.5", "1e300"):
        values = text[row].split()
        (path / "images.txt").write_text("\n".join([*text[:row], " ".join([*values[:2], last, *values[3:]]), *text[row + 1 :]]))
        with pytest.raises(FileFormatError, match=r"an id is no whole number"):
            read_model(path)


def test_an_id_that_two_images_have_is_refused(tmp_path: Path) -> None:
    """Both kinds of file; the second image of the binary one gets the id of the first, and keeps its name."""
    for kind in ("bin", "txt"):
        path, scene = written(tmp_path / kind, kind)
        file = path / f"images.{kind}"
        data, name = bytearray(file.read_bytes()), sorted(scene.images)[1].encode()
        if kind == "bin":
            first, second = 8, data.index(name) - 64  # an image is its id, seven numbers and its camera's id, then the name
            data[second : second + 4] = data[first : first + 4]
        else:
            number = next(line for line in bytes(data).splitlines() if line.endswith(sorted(scene.images)[0].encode())).split()[
                0
            ]
            line = next(line for line in bytes(data).splitlines() if line.endswith(name))
            data = bytearray(bytes(data).replace(line, number + b" " + line.split(maxsplit=1)[1]))
        file.write_bytes(data)
        with pytest.raises(FileFormatError, match="is there twice, first in"):
            read_model(path)


def test_what_is_no_model_is_named(tmp_path: Path) -> None:
    path, _ = written(tmp_path / "model")
    with pytest.raises(FileFormatError, match=rf"is not a model, but {path} is one"):
        read_model(tmp_path)
    with pytest.raises(FileFormatError, match=r"is no model: veil reads folders"):
        read_model(tmp_path / "none")
    camera = pycolmap.Camera(camera_id=1, model="FOV", width=64, height=48, params=[50, 50, 32, 24, 0.1])
    model = pycolmap.Reconstruction()
    model.add_camera_with_trivial_rig(camera)
    model.write(tmp_path / "model")
    with pytest.raises(InputError, match=r"cameras.bin, camera 1: camera model 'FOV' is not supported"):
        read_model(path)
