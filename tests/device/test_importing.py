"""Public maps of models of other tools, against planted models and against a map that is made anew."""

from __future__ import annotations

import json
import re
import shutil
import sqlite3
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import h5py
import numpy as np
import pycolmap
import pytest
from PIL import Image

import veil
from veil.device.importing import ImportedMap, import_map
from veil.errors import FileFormatError, InputError
from veil.files.colmap_databases import read_colmap_database
from veil.files.features import write_features
from veil.files.photographs.examples import lund_door
from veil.geometry.camera import resized
from veil.geometry.similarity import align_poses, pose_error
from veil.places.maps import NoMap
from worlds.projects import files_of, planted_project

pytestmark = pytest.mark.filterwarnings("ignore::veil.errors.VeilWarning")


@pytest.mark.parametrize("source", ["database beside", "features"])
def test_a_models_points_get_their_stored_descriptors(tmp_path: Path, source: str) -> None:
    """Planted truth: points, poses, who observes what, and each feature's own descriptor; other keypoints are left out."""
    scene, raw = planted_project(tmp_path)
    before = files_of(tmp_path)
    made = import_map(
        tmp_path / "sparse" / "0",
        features=tmp_path / "features.h5" if source == "features" else None,
        space=veil.Space(descriptor="sift", normalization="L2", dim=128),
    )
    assert isinstance(made, ImportedMap) and (made.origin, made.keeps_points, made.left_out) == ("stored", True, {})
    got = made.map.scene
    np.testing.assert_allclose(got.points, scene.points, atol=1e-9)
    for name, image in scene.images.items():
        np.testing.assert_array_equal(np.sort(got.images[name].point_rows), np.sort(image.point_rows))
        row_of = {tuple(xy): row for row, xy in enumerate(raw[name].keypoints.tolist())}
        rows = [row_of[tuple(xy)] for xy in got.images[name].keypoints.tolist()]
        vectors = raw[name].descriptors[rows].astype(np.float64)
        vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
        np.testing.assert_allclose(got.images[name].form.vectors, vectors, atol=1e-6)  # type: ignore[union-attr]
        of_point = dict(zip(image.point_rows.tolist(), image.keypoints.tolist(), strict=True))
        for point, xy in zip(got.images[name].point_rows.tolist(), got.images[name].keypoints.tolist(), strict=True):
            assert xy == of_point[point]
    assert got.mean_reprojection_error_px < 0.3, "0.1 px of noise was planted"
    assert files_of(tmp_path) == before


@pytest.mark.slow
def test_features_of_another_extraction_are_triangulated(tmp_path: Path) -> None:
    """Planted truth: the poses. The features are others than the model's, so that its points cannot have their descriptors."""
    scene, raw = planted_project(tmp_path)
    others = {name: item.take(np.arange(len(item))[::-1][1:]) for name, item in raw.items()}
    write_features(tmp_path / "others.h5", sorted(others.items()))
    made = import_map(tmp_path / "sparse" / "0", features=tmp_path / "others.h5")
    assert isinstance(made, ImportedMap) and (made.origin, made.keeps_points) == ("stored", False)
    assert made.check is not None and not made.check.doubts
    for name, image in made.map.scene.images.items():
        np.testing.assert_allclose(image.cam_from_world.center, scene.images[name].cam_from_world.center, atol=1e-9)


def test_what_lacks_is_named(tmp_path: Path) -> None:
    _, raw = planted_project(tmp_path)
    model = tmp_path / "sparse" / "0"
    name, other, *_ = sorted(raw)
    few = {key: item for key, item in raw.items() if key != name}
    few[other] = replace(few[other], camera=replace(few[other].camera, width_px=700))
    write_features(tmp_path / "few.h5", sorted(few.items()))
    made = import_map(model, features=tmp_path / "few.h5")
    assert isinstance(made, ImportedMap) and made.left_out == {
        name: f"{tmp_path / 'few.h5'} has no descriptors of it",
        other: "its features are of 700x480 px, in the model 640x480 px",
    }
    (tmp_path / "database.db").unlink()
    with pytest.raises(InputError, match="neither features nor photographs"):
        import_map(model)
    (tmp_path / "photos").mkdir()
    with pytest.raises(InputError, match=r"photos holds no photograph of .*contribution 00.jpg"):
        import_map(model, photographs=tmp_path / "photos")


def test_a_model_that_contradicts_itself_is_refused(tmp_path: Path) -> None:
    """Broken twin: the images have each other's poses, so that the points lie elsewhere."""
    planted_project(tmp_path)
    model = pycolmap.Reconstruction(tmp_path / "sparse" / "0")
    model.write_text(tmp_path / "sparse" / "0")
    text = tmp_path / "sparse" / "0" / "images.txt"
    lines = text.read_text().splitlines()
    heads = [index for index, line in enumerate(lines) if line.endswith(".jpg")]
    poses = [lines[index].split()[1:8] for index in heads]
    for index, pose in zip(heads, [*poses[2:], *poses[:2]], strict=True):
        words = lines[index].split()
        lines[index] = " ".join([words[0], *pose, *words[8:]])
    text.write_text("\n".join(lines) + "\n")
    for path in text.parent.glob("*.bin"):
        path.unlink()
    with pytest.raises(FileFormatError, match=r"contradicts itself: its 2D points lie \d+.* px from the projections"):
        import_map(text.parent)


def test_images_of_every_name_are_imported(tmp_path: Path) -> None:
    """HDF5 takes a name for a path: the map that is written holds images of names that it would take for others."""
    planted_project(tmp_path)
    hard = {
        "contribution 00.jpg": "/a.jpg",
        "contribution 01.jpg": "b//c.jpg",
        "contribution 02.jpg": "contribution 03.jpg/vectors",
    }
    with closing(sqlite3.connect(tmp_path / "database.db")) as connection, connection:
        for old, new in hard.items():
            connection.execute("UPDATE images SET name = ? WHERE name = ?", (new, old))
    model = pycolmap.Reconstruction(tmp_path / "sparse" / "0")
    for image in model.images.values():
        image.name = hard.get(image.name, image.name)
    model.write(tmp_path / "sparse" / "0")
    made = import_map(tmp_path / "sparse" / "0", space=veil.Space(descriptor="sift", normalization="L2", dim=128))
    assert isinstance(made, ImportedMap) and made.left_out == {}
    made.map.write(tmp_path / "map")
    names = {*hard.values(), *(f"contribution {n:02d}.jpg" for n in (3, 4, 5))}
    assert set(veil.Map.read(tmp_path / "map").scene.images) == names


def test_photographs_outside_of_their_folder_are_not_read(tmp_path: Path) -> None:
    """Names that lead out of the folder, with photographs where they lead."""
    planted_project(tmp_path)
    (tmp_path / "database.db").unlink()
    (tmp_path / "photos").mkdir()
    model = pycolmap.Reconstruction(tmp_path / "sparse" / "0")
    for image, name in zip(model.images.values(), ["../a.jpg", f"{tmp_path}/a.jpg"], strict=False):
        image.name = name
    model.write(tmp_path / "sparse" / "0")
    (tmp_path / "a.jpg").touch()
    with pytest.raises(InputError, match="photos holds no photograph of"):
        import_map(tmp_path / "sparse" / "0", photographs=tmp_path / "photos")


@pytest.mark.parametrize("source", ["database.db", "features.h5"])
def test_one_damaged_image_is_left_out_and_named(tmp_path: Path, source: str) -> None:
    """Planted damage: bytes of descriptors that are missing; the map has all other images."""
    planted_project(tmp_path)
    name = "contribution 02.jpg"
    if source == "database.db":
        with closing(sqlite3.connect(tmp_path / source)) as connection, connection:
            where = "(SELECT image_id FROM images WHERE name = ?)"
            connection.execute(f"UPDATE descriptors SET data = X'00' WHERE image_id = {where}", (name,))
    else:
        with h5py.File(tmp_path / source, "a") as file:
            del file[name]["descriptors_u8"]
            del file[name]["descriptors"]
            file[name]["descriptors"] = np.ones((3, 2), dtype=np.float32)
    space = veil.Space(descriptor="sift", normalization="L2", dim=128)
    options = {"features": tmp_path / source, "space": space if source == "database.db" else None}
    made = import_map(tmp_path / "sparse" / "0", **options)  # type: ignore[arg-type]
    assert isinstance(made, ImportedMap) and list(made.left_out) == [name]
    assert re.search(r"its descriptors are to be|expected descriptors", made.left_out[name])
    assert len(made.map.scene.images) == 5


def test_an_imported_map_has_gravity(tmp_path: Path) -> None:
    """Planted truth: down in the world of the model; one reading is wrong, and named. Without any, nothing changes."""
    scene, _ = planted_project(tmp_path)
    down = np.array([0.2, 0.9, -0.3]) / np.linalg.norm([0.2, 0.9, -0.3])
    gravity = {name: image.cam_from_world.rotation @ down for name, image in scene.images.items()}
    wrong = sorted(gravity)[1]
    gravity[wrong] = np.array([1.0, 0.0, 0.0])
    model, space = tmp_path / "sparse" / "0", veil.Space(descriptor="sift", normalization="L2", dim=128)
    made = import_map(model, space=space, gravity=gravity)
    assert isinstance(made, ImportedMap) and made.readings is not None and list(made.readings.wrong_deg) == [wrong]
    np.testing.assert_allclose(made.map.scene.measured_down, down, atol=1e-9)  # type: ignore[arg-type]
    made.map.write(tmp_path / "map")
    np.testing.assert_allclose(veil.Map.read(tmp_path / "map").scene.measured_down, down)  # type: ignore[arg-type]
    plain = import_map(model, space=space)
    assert isinstance(plain, ImportedMap) and plain.readings is None and plain.map.scene.down is None
    with pytest.raises(InputError, match=r"none of the images of .*, which are contribution 00.jpg"):
        import_map(model, space=space, gravity={"other.jpg": down})


@pytest.mark.slow
@pytest.mark.parametrize("factor", [0.5, 2.0])
def test_features_at_another_size_are_triangulated(tmp_path: Path, factor: float) -> None:
    """Planted truth: poses and points, which do not depend on the number of pixels; one image of another shape is left out."""
    scene, raw = planted_project(tmp_path)
    scaled = {}
    for name, item in raw.items():
        size = round(item.camera.width_px * factor), round(item.camera.height_px * factor)
        scaled[name] = replace(item, keypoints=item.keypoints * np.float32(factor), camera=resized(item.camera, *size))
    odd = sorted(raw)[0]
    scaled[odd] = replace(scaled[odd], camera=replace(scaled[odd].camera, width_px=round(700 * factor)))
    write_features(tmp_path / "scaled.h5", sorted(scaled.items()))
    for made in (
        import_map(tmp_path / "sparse" / "0", features=tmp_path / "scaled.h5"),
        veil.map_images(scaled, known_poses=veil.read_model(tmp_path / "sparse" / "0")),
    ):
        assert not isinstance(made, NoMap) and list(made.left_out) == [odd]
        assert "another ratio of the sides" in made.left_out[odd]
        for name, image in made.map.scene.images.items():
            np.testing.assert_allclose(image.cam_from_world.center, scene.images[name].cam_from_world.center, atol=1e-9)
            assert image.camera.params == scaled[name].camera.params
        points = made.map.scene.points
        nearest = np.linalg.norm(points[:, None] - scene.points[None], axis=2).min(axis=1)
        assert np.median(nearest) < 0.01 * scene.extent


@pytest.mark.slow
@pytest.mark.parametrize("own", [2, None], ids=["two images", "all but two"])
def test_what_most_images_have_decides_on_points(tmp_path: Path, own: int | None) -> None:
    """Planted truth: poses. Features of half the size are not the model's, and most images keep their place in the map.

    Broken twin: two images whose features are the model's would make a map of these two.
    """
    scene, raw = planted_project(tmp_path)
    names = sorted(raw)
    kept = names[: -2 if own is None else own]
    mixed = dict(raw)
    for name in set(names) - set(kept):
        half = resized(raw[name].camera, 320, 240)
        mixed[name] = replace(raw[name], keypoints=raw[name].keypoints * np.float32(0.5), camera=half)
    write_features(tmp_path / "mixed.h5", sorted(mixed.items()))
    made = import_map(tmp_path / "sparse" / "0", features=tmp_path / "mixed.h5")
    assert isinstance(made, ImportedMap) and made.keeps_points == (own is None)
    assert sorted(made.map.scene.images) == (kept if own is None else names)
    assert set(made.left_out.values()) <= {"its features are of 320x240 px, in the model 640x480 px"}
    for name, image in made.map.scene.images.items():
        np.testing.assert_allclose(image.cam_from_world.center, scene.images[name].cam_from_world.center, atol=1e-9)


def test_a_file_without_sizes_takes_them_from_the_model(tmp_path: Path) -> None:
    """Second method: the same features with sizes."""
    planted_project(tmp_path)
    model, space = tmp_path / "sparse" / "0", veil.Space(descriptor="sift", normalization="L2", dim=128)
    with h5py.File(tmp_path / "features.h5") as file, h5py.File(tmp_path / "bare.h5", "w") as bare:
        for name in file:
            for part in ("keypoints", "descriptors"):
                bare[f"{name}/{part}"] = file[name][part][()]
    maps = [import_map(model, features=tmp_path / f"{name}.h5", space=space) for name in ("features", "bare")]
    first, second = (made.map.scene for made in maps if isinstance(made, ImportedMap))
    assert set(first.images) == set(second.images)
    np.testing.assert_array_equal(first.points, second.points)


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A COLMAP project with COLMAP's defaults (RootSIFT) of nine bundled photographs: `images`, `database.db`, `sparse/0`."""
    folder = tmp_path_factory.mktemp("project")
    with lund_door() as example:
        (folder / "images").mkdir()
        for path in sorted(example.folder.glob("*.jpg")):
            shutil.copy(path, folder / "images")
        names = [path.name for path in sorted(example.folder.glob("*.jpg")) if path.name not in example.held_out]
        reader = pycolmap.ImageReaderOptions(camera_model="SIMPLE_RADIAL", camera_params="1288.6,343,512,-0.0336")
    options = pycolmap.FeatureExtractionOptions(use_gpu=False, num_threads=2)
    options.sift.max_num_features = 1500
    pycolmap.extract_features(
        folder / "database.db",
        folder / "images",
        names,
        pycolmap.CameraMode.SINGLE,
        reader_options=reader,
        extraction_options=options,
    )
    pycolmap.match_exhaustive(folder / "database.db")
    (folder / "sparse").mkdir()
    assert pycolmap.incremental_mapping(folder / "database.db", folder / "images", folder / "sparse")
    return folder


def held_out_errors(where: veil.Map, folder: Path, home: Path) -> list[float]:
    """Errors of the held-out photographs' camera centers in a map, by distances of subspaces, as shares of the extent.

    The reference is the bundled model, aligned by the map's images; queries have the camera of the project's model.
    """
    device = veil.Device(home)
    errors = []
    with lund_door() as example:
        names = sorted(where.scene.images)
        alignment = align_poses([where.scene.images[n].cam_from_world for n in names], [example.poses[n] for n in names])
        extent = float(np.linalg.norm(np.ptp([example.poses[n].center for n in names], axis=0)))
        for name in example.held_out:
            camera = veil.read_model(folder / "sparse" / "0").cameras[names[0]]
            picture = veil.read_picture(folder / "images" / name, camera=camera)
            raw = veil.extract(picture, options=veil.SiftOptions(max_features=1500, first_octave=None))
            answer = veil.localize(device.release(raw, purpose="map").upload, where)
            assert not isinstance(answer, veil.NoPose), name
            errors.append(pose_error(answer.cam_from_world, example.poses[name], alignment)[0] / extent)
    return errors


@pytest.mark.slow
def test_an_imported_map_localizes_as_one_that_is_made_anew(project: Path, tmp_path: Path) -> None:
    """Oracle: a map of the same features that veil makes itself; private queries of photographs that neither has."""
    before = files_of(project)
    made = import_map(project / "sparse" / "0")
    assert isinstance(made, ImportedMap) and made.origin == "stored" and made.map.scene.space.normalization == "L2"
    features = dict(read_colmap_database(project / "database.db"))
    anew = veil.map_images(features)
    assert not isinstance(anew, NoMap)
    errors, reference = (held_out_errors(where, project, tmp_path / "home") for where in (made.map, anew.map))
    assert max(errors) < 0.005 and np.median(errors) < 2 * np.median(reference) + 0.0005
    posed = veil.map_images(features, known_poses=veil.read_model(project / "sparse" / "0"))
    assert not isinstance(posed, NoMap)
    for name, image in posed.map.scene.images.items():
        np.testing.assert_allclose(image.cam_from_world.center, made.map.scene.images[name].cam_from_world.center)
    assert files_of(project) == before


@pytest.mark.slow
def test_descriptors_that_lack_are_extracted_at_the_keypoints(project: Path, tmp_path: Path) -> None:
    """Oracle: COLMAP's descriptors, which were deleted from a copy of the database."""
    copy = tmp_path / "project"
    shutil.copytree(project, copy)
    with closing(sqlite3.connect(copy / "database.db")) as connection, connection:
        connection.execute("DELETE FROM descriptors")
    stored, again = import_map(project / "sparse" / "0"), import_map(copy / "sparse" / "0")
    assert isinstance(stored, ImportedMap) and isinstance(again, ImportedMap)
    assert (again.origin, again.keeps_points) == ("at keypoints", True)
    share = again.map.scene.observation_count / stored.map.scene.observation_count
    assert share > 0.9
    for name, image in again.map.scene.images.items():
        other = stored.map.scene.images[name]
        row_of = {tuple(xy): row for row, xy in enumerate(other.keypoints.tolist())}
        common = [(row, row_of[tuple(xy)]) for row, xy in enumerate(image.keypoints.tolist()) if tuple(xy) in row_of]
        rows, others = np.array(common).T
        distance = np.linalg.norm(image.form.vectors[rows] - other.form.vectors[others], axis=1)  # type: ignore[union-attr]
        assert np.median(distance) < 0.02


@pytest.mark.slow
@pytest.mark.parametrize("factor", [0.5, 1.5])
@pytest.mark.parametrize("source", ["photographs", "keypoints"])
def test_photographs_of_another_size_are_rescaled(project: Path, tmp_path: Path, factor: float, source: str) -> None:
    """Oracle: the model's poses, by queries of full-size photographs that it does not have; nothing is left out."""
    (tmp_path / "images").mkdir()
    for path in (project / "images").glob("*.jpg"):
        with Image.open(path) as image:
            size = round(image.width * factor), round(image.height * factor)
            image.resize(size, Image.Resampling.LANCZOS).save(tmp_path / "images" / path.name, quality=95)
    shutil.copytree(project / "sparse" / "0", tmp_path / "sparse" / "0")
    if source == "keypoints":
        shutil.copy(project / "database.db", tmp_path)
        with closing(sqlite3.connect(tmp_path / "database.db")) as connection, connection:
            connection.execute("DELETE FROM descriptors")
    made = import_map(tmp_path / "sparse" / "0", photographs=tmp_path / "images")
    assert isinstance(made, ImportedMap) and made.left_out == {} and len(made.map.scene.images) == 9
    if made.origin == "extracted":
        assert {image.camera.width_px for image in made.map.scene.images.values()} == {round(686 * factor)}
    assert max(held_out_errors(made.map, project, tmp_path / "home")) < 0.01


@pytest.mark.slow
def test_poses_of_a_table_and_photographs_make_a_map(project: Path, tmp_path: Path) -> None:
    """Oracle: the poses of the table, which is the COLMAP model as nerfstudio writes it."""
    model = veil.read_model(project / "sparse" / "0")
    (tmp_path / "images").symlink_to(project / "images")
    frames = []
    for name, image in model.images.items():
        matrix = np.eye(4)
        matrix[:3, :3] = image.cam_from_world.rotation.T @ np.diag([1, -1, -1])
        matrix[:3, 3] = image.cam_from_world.center
        frames.append({"file_path": f"images/{name}", "transform_matrix": matrix.tolist()})
    focal, cx, cy, k1 = next(iter(model.images.values())).camera.params
    table = {"fl_x": focal, "fl_y": focal, "cx": cx, "cy": cy, "k1": k1, "w": 686, "h": 1024, "frames": frames[:4]}
    (tmp_path / "transforms.json").write_text(json.dumps(table))
    made = import_map(tmp_path / "transforms.json")
    assert isinstance(made, ImportedMap) and (made.origin, made.source, made.keeps_points) == ("extracted", None, False)
    assert len(made.map.scene.images) == 4 and made.left_out == {}
    for name, mapped in made.map.scene.images.items():
        np.testing.assert_allclose(mapped.cam_from_world.center, model.poses[name].center, atol=1e-9)
