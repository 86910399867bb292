"""Reference scenes: both layouts, and every damaged or missing part named rather than guessed."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from veil.errors import FileFormatError, InputError, VeilError
from veil.files.photographs.colmap_text import read_cameras, read_images
from veil.geometry.rigid import Rigid
from veil_lab.files.scenes import read_scene
from worlds import generator

NAMES = ("0001.png", "0002.png", "sub/0003.png")
K = np.array([[900.0, 0, 60], [0, 905.0, 40], [0, 0, 1]])


def photographs(folder: Path, names: tuple[str, ...] = NAMES) -> None:
    for name in names:
        path = folder / "images" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (12, 8)).save(path)


def planted() -> dict[str, Rigid]:
    """A pose for each name, with proper rotations."""
    random, poses = generator("scene poses"), {}
    for name in NAMES:
        rotation = np.linalg.qr(random.normal(size=(3, 3)))[0]
        poses[name] = Rigid(rotation=rotation * np.linalg.det(rotation), translation=random.normal(size=3))
    return poses


def numbers(rows: np.ndarray) -> str:
    return "\n".join(" ".join(repr(float(v)) for v in row) for row in np.atleast_2d(rows)) + "\n"


def strecha(folder: Path, poses: dict[str, Rigid]) -> None:
    """Strecha's files: K, three zeros, M = R^T (camera to world), the center, width and height."""
    photographs(folder)
    (folder / "K.txt").write_text(numbers(K))
    for name, pose in poses.items():
        path = folder / "gt_dense_cameras" / f"{name}.camera"
        path.parent.mkdir(parents=True, exist_ok=True)
        parts = (K, np.zeros(3), pose.rotation.T, pose.center, np.array([120.0, 80.0]))
        path.write_text("".join(numbers(part) for part in parts))


def quaternion(rotation: np.ndarray) -> np.ndarray:
    """(w, x, y, z) as the eigenvector of Bar-Itzhack's matrix: another way than the reader's."""
    r = rotation
    off = np.array([r[2, 1] - r[1, 2], r[0, 2] - r[2, 0], r[1, 0] - r[0, 1]])
    matrix = np.block([[np.array([[np.trace(r)]]), off[None]], [off[:, None], r + r.T - np.trace(r) * np.eye(3)]])
    return np.linalg.eigh(matrix)[1][:, -1]


def colmap(model: Path, poses: dict[str, Rigid], *, points: str = "10.5 20.5 -1 30.0 40.0 7") -> None:
    """A text model with one camera; `points` is the second line of each image."""
    model.mkdir(parents=True, exist_ok=True)
    (model / "cameras.txt").write_text("# cameras\n3 SIMPLE_RADIAL 120 80 100.0 60 40 -0.01\n")
    lines = ["# images", "# two lines each"]
    for index, (name, pose) in enumerate(poses.items(), start=1):
        values = [*quaternion(pose.rotation), *pose.translation]
        lines += [f"{index} {' '.join(repr(float(v)) for v in values)} 3 {name}", points]
    (model / "images.txt").write_text("\n".join(lines) + "\n")


def assert_same(poses: dict[str, Rigid], expected: dict[str, Rigid]) -> None:
    assert set(poses) == set(expected)
    for name, pose in expected.items():
        np.testing.assert_allclose(poses[name].rotation, pose.rotation, atol=1e-9)
        np.testing.assert_allclose(poses[name].translation, pose.translation, atol=1e-9)


def test_strecha_layout(tmp_path: Path) -> None:
    """Planted poses come back; gravity of its world is +z; K.txt gives the camera."""
    strecha(tmp_path / "castle", planted())
    scene = read_scene(tmp_path / "castle")
    assert scene.name == "castle"
    assert_same(dict(scene.cam_from_world), planted())
    assert set(scene.pictures) == set(NAMES) and scene.gravity == {}
    assert scene.down is not None and scene.down.tolist() == [0, 0, 1]
    camera = scene.cameras["0001.png"]
    assert (camera.model, camera.params) == ("PINHOLE", (900.0, 905.0, 60.0, 40.0))
    assert (camera.width_px, camera.height_px) == (120, 80)


def test_photographs_without_a_camera_are_left_out(tmp_path: Path) -> None:
    strecha(tmp_path, planted())
    (tmp_path / "gt_dense_cameras" / "0002.png.camera").unlink()
    scene = read_scene(tmp_path)
    assert set(scene.pictures) == set(scene.cameras) == set(scene.cam_from_world) == {"0001.png", "sub/0003.png"}


def rewritten(values: Callable[[np.ndarray], np.ndarray]) -> Callable[[Path], None]:
    """A damage: the numbers of the first .camera file changed."""

    def damage(folder: Path) -> None:
        path = folder / "gt_dense_cameras" / "0001.png.camera"
        path.write_text(numbers(values(np.array([float(v) for v in path.read_text().split()]))))

    return damage


def replaced(index: int, value: float) -> Callable[[Path], None]:
    return rewritten(lambda values: np.concatenate([values[:index], [value], values[index + 1 :]]))


def mirrored(values: np.ndarray) -> np.ndarray:
    return np.concatenate([values[:12], -values[12:21], values[21:]])


def written(name: str, text: str | bytes) -> Callable[[Path], None]:
    def damage(folder: Path) -> None:
        (folder / name).write_bytes(text if isinstance(text, bytes) else text.encode())

    return damage


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (lambda folder: (folder / "K.txt").unlink(), "cannot read .*K.txt"),
        (written("K.txt", "1 0 0 0 1 0 0 0"), "must hold 9 finite numbers, got 8"),
        (written("K.txt", "f 0 0 0 1 0 0 0 1"), "must hold numbers"),
        (written("K.txt", b"\xff\xfe\x00"), "is not text"),
        (written("K.txt", numbers(K * [[-1], [1], [1]])), "K.txt and .*0001.png.camera give no camera"),
        (rewritten(lambda values: values[:-1]), "must hold 26 finite numbers, got 25"),
        (rewritten(lambda values: np.append(values, 1.0)), "must hold 26 finite numbers, got 27"),
        (replaced(13, np.nan), "must hold 26 finite numbers"),
        (replaced(22, np.inf), "must hold 26 finite numbers"),
        (replaced(12, 5.0), "not a rotation"),
        (rewritten(mirrored), "not a rotation"),
        (replaced(24, 0.0), "give no camera: image size"),
        (replaced(24, 1e9), "give no camera: image size"),
    ],
)
def test_damaged_strecha_files_are_named(tmp_path: Path, damage: Callable[[Path], None], words: str) -> None:
    strecha(tmp_path, planted())
    damage(tmp_path)
    with pytest.raises(FileFormatError, match=words):
        read_scene(tmp_path)


def test_no_camera_of_these_photographs(tmp_path: Path) -> None:
    strecha(tmp_path / "a", {"9999.png": planted()["0001.png"]})
    with pytest.raises(FileFormatError, match="holds no camera of a photograph"):
        read_scene(tmp_path / "a")
    photographs(tmp_path / "b")
    colmap(tmp_path / "b", {"9999.png": planted()["0001.png"]})
    with pytest.raises(FileFormatError, match="holds no camera of a photograph"):
        read_scene(tmp_path / "b")


@pytest.mark.parametrize("place", ["", "sparse", "sparse/0", "reference"])
@pytest.mark.parametrize("points", ["", "10.5 20.5 -1 30.0 40.0 7"])
def test_colmap_text_models(tmp_path: Path, place: str, points: str) -> None:
    """Planted poses through another quaternion; lines of 2D points may be empty or not, also the last one."""
    photographs(tmp_path)
    colmap(tmp_path / place, planted(), points=points)
    scene = read_scene(tmp_path)
    assert_same(dict(scene.cam_from_world), planted())
    assert scene.down is None
    assert {camera.params for camera in scene.cameras.values()} == {(100.0, 60.0, 40.0, -0.01)}
    assert {camera.model for camera in scene.cameras.values()} == {"SIMPLE_RADIAL"}
    path = tmp_path / place / "images.txt"
    path.write_text("\n" + path.read_text().rstrip() + "\n\n\n")
    assert_same(dict(read_scene(tmp_path).cam_from_world), planted())


def test_quaternions_need_not_be_of_unit_length(tmp_path: Path) -> None:
    """Golden: (0, 0, 0, 3) turns by 180 degrees about z, and names keep their spaces."""
    path = tmp_path / "images.txt"
    path.write_text("1 0 0 0 3 1 2 3 1 a photo.jpg\n\n")
    camera, pose = read_images(path)["a photo.jpg"]
    assert camera == 1
    np.testing.assert_allclose(pose.rotation, np.diag([-1.0, -1, 1]), atol=1e-12)
    assert pose.translation.tolist() == [1, 2, 3]


GOOD = "1 1 0 0 0 1 2 3 1 a.jpg"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "holds no image"),
        ("# nothing\n\n", "holds no image"),
        ("1 1 0 0 0 1 2 3 1\n\n", "line 1: not an image"),
        ("1 1 0 0 0 1 2 3\n\n", "line 1: not an image"),
        ("1 1 0 0\n\n", "line 1: not an image"),
        ("1 1 0 0 zero 1 2 3 1 a.jpg\n\n", "line 1: not an image"),
        ("1 1 0 0 0 1 2 3 one a.jpg\n\n", "line 1: not an image"),
        (f"# a comment\n{GOOD}\n\n2 0 0 0 0 1 2 3 1 b.jpg\n\n", "line 4: .*quaternion without a direction"),
        ("1 nan 0 0 0 1 2 3 1 a.jpg\n\n", "line 1: .*quaternion without a direction"),
        ("1 inf 0 0 0 1 2 3 1 a.jpg\n\n", "line 1: .*quaternion without a direction"),
        ("1 1.7e308 1.7e308 1e308 0 1 2 3 1 a.jpg\n\n", "line 1: .*quaternion without a direction"),
        ("1 1 0 0 0 1 nan 3 1 a.jpg\n\n", "line 1: the pose is not finite"),
        ("1 1 0 0 0 1 2 inf 1 a.jpg\n\n", "line 1: the pose is not finite"),
        (f"{GOOD}\n2 1 0 0 0 1 2 3 1 b.jpg\n{GOOD}\n", "line 2: each image takes two lines"),
        (f"{GOOD}\n10.5 20.5\n", "line 2: each image takes two lines"),
        (f"{GOOD}\n2 1 0 0 0 4 5 6 1 my photo 2.jpg\n", "line 2: each image takes two lines"),  # twelve words
    ],
)
def test_damaged_images_are_named_by_their_line(tmp_path: Path, text: str, words: str) -> None:
    """The twin that skips every second line whatever it holds loses half of a file without 2D points."""
    (tmp_path / "images.txt").write_text(text)
    with pytest.raises(FileFormatError, match=words):
        read_images(tmp_path / "images.txt")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (b"", "holds no camera"),
        (b"\n# none\n", "holds no camera"),
        (b"1 PINHOLE 120 80 1 1 60\n", "line 1: not a camera .*takes 4 parameters, got 3"),
        (b"1 PINHOLE 120 80 1 1 60 40 0\n", "takes 4 parameters, got 5"),
        (b"1 FISH 120 80 1\n", "not supported"),
        (b"1 PINHOLE 120\n", "line 1: not a camera"),
        (b"one PINHOLE 120 80 1 1 60 40\n", "line 1: not a camera"),
        (b"1 PINHOLE 120.5 80 1 1 60 40\n", "line 1: not a camera"),
        (b"1 PINHOLE 120 80 nan 1 60 40\n", "line 1: not a camera .*finite"),
        (b"1 PINHOLE 0 80 1 1 60 40\n", "line 1: not a camera .*image size"),
        (b"\xff\xfe1", "is not text"),
    ],
)
def test_damaged_cameras_are_named_by_their_line(tmp_path: Path, text: bytes, words: str) -> None:
    (tmp_path / "cameras.txt").write_bytes(text)
    with pytest.raises(FileFormatError, match=words):
        read_cameras(tmp_path / "cameras.txt")


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16"])
def test_byte_order_marks_and_rare_letters(tmp_path: Path, encoding: str) -> None:
    """Planted truth: the same camera and image from each encoding; a letter that ends a line elsewhere ends none here."""
    (tmp_path / "cameras.txt").write_bytes("1 PINHOLE 120 80 100 100 60 40\n".encode(encoding))
    (tmp_path / "images.txt").write_bytes("1 1 0 0 0 1 2 3 1 a\u2028b.jpg\n\n2 1 0 0 0 4 5 6 1 c.jpg\n\n".encode(encoding))
    assert read_cameras(tmp_path / "cameras.txt")[1].focal_px == 100
    assert list(read_images(tmp_path / "images.txt")) == ["a\u2028b.jpg", "c.jpg"]


def test_entries_that_are_there_twice_are_named_with_both_lines(tmp_path: Path) -> None:
    """The last one would win without a word, with another focal length or pose."""
    cameras, images = tmp_path / "cameras.txt", tmp_path / "images.txt"
    cameras.write_text("1 PINHOLE 120 80 100 100 60 40\n2 PINHOLE 120 80 100 100 60 40\n1 PINHOLE 120 80 90 90 60 40\n")
    with pytest.raises(FileFormatError, match="line 3: 1 is there twice, first in line 1"):
        read_cameras(cameras)
    images.write_text(f"{GOOD}\n\n2 {GOOD[2:]}\n\n")
    with pytest.raises(FileFormatError, match=r"line 3: 'a\.jpg' is there twice, first in line 1"):
        read_images(images)
    images.write_text(f"{GOOD}\n\n{GOOD.replace('a.jpg', 'b.jpg')}\n\n")
    with pytest.raises(FileFormatError, match="line 3: 1 is there twice, first in line 1"):
        read_images(images)


def test_missing_parts(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="needs a folder `images/`"):
        read_scene(tmp_path / "nowhere")
    (tmp_path / "images").mkdir()
    with pytest.raises(InputError, match="no photographs"):
        read_scene(tmp_path)
    photographs(tmp_path)
    bare = read_scene(tmp_path)
    assert set(bare.pictures) == set(NAMES) and not bare.cameras and not bare.cam_from_world and bare.down is None
    colmap(tmp_path, planted())
    (tmp_path / "cameras.txt").write_text("4 PINHOLE 120 80 100 100 60 40\n")
    with pytest.raises(FileFormatError, match=r"image 0001.png names camera 3, which cameras.txt does not have"):
        read_scene(tmp_path)
    (tmp_path / "cameras.txt").unlink()
    with pytest.raises(FileFormatError, match=r"cannot read .*cameras.txt"):
        read_scene(tmp_path)


def test_gravity_tables(tmp_path: Path) -> None:
    """gravity.csv must read; another table serves if it can; readings of other images are left out."""
    photographs(tmp_path)
    (tmp_path / "a_notes.csv").write_text("image,weather\n0001.png,rain\n")
    (tmp_path / "b_other.csv").write_text("elsewhere.png,0,1,0\n")
    assert read_scene(tmp_path).gravity == {}
    (tmp_path / "c_sensors.csv").write_text(
        "image,width,gravity_x,gravity_y,gravity_z\n0002.png,12,0,2,0\nelsewhere.png,12,0,1,0\n"
    )
    readings = read_scene(tmp_path).gravity
    assert set(readings) == {"0002.png"} and readings["0002.png"].tolist() == [0, 1, 0]
    (tmp_path / "gravity.csv").write_text("image,x,y,z\nsub/0003.png,3,4,0\n")
    readings = read_scene(tmp_path).gravity
    assert set(readings) == {"sub/0003.png"} and readings["sub/0003.png"].tolist() == pytest.approx([0.6, 0.8, 0])
    (tmp_path / "gravity.csv").write_text("image,x,y,z\n0001.png,3,4\n")
    with pytest.raises(FileFormatError, match=r"gravity.csv, line 2"):
        read_scene(tmp_path)


def matrices(poses: dict[str, Rigid]) -> str:
    """The table `cameras.json`, with a camera matrix of each photograph."""
    matrix = [[11.0, 0, 6], [0, 12, 4], [0, 0, 1]]
    return json.dumps(
        {
            name: {
                "K": matrix,
                "cam_from_world_rotation": pose.rotation.tolist(),
                "cam_from_world_translation": pose.translation.tolist(),
            }
            for name, pose in poses.items()
        }
    )


def middlebury(poses: dict[str, Rigid]) -> str:
    """Lines of name, K, rotation and translation below their number."""
    lines = [
        f"{name} 11 0 6 0 12 4 0 0 1 {' '.join(repr(float(v)) for v in [*pose.rotation.ravel(), *pose.translation])}"
        for name, pose in poses.items()
    ]
    return f"{len(poses)}\n" + "\n".join(lines) + "\n"


@pytest.mark.parametrize(("table", "text"), [("cameras.json", matrices), ("walk_par.txt", middlebury)])
def test_tables_of_matrices_give_the_planted_cameras(
    tmp_path: Path, table: str, text: Callable[[dict[str, Rigid]], str]
) -> None:
    """Oracle: the poses that were written, camera from world. A photograph that the table lacks is left out."""
    photographs(tmp_path)
    some = {name: pose for name, pose in planted().items() if name != "0002.png"}
    elsewhere = {"elsewhere.png": planted()["0002.png"]}
    (tmp_path / table).write_text(text(some | elsewhere))
    scene = read_scene(tmp_path)
    assert_same(dict(scene.cam_from_world), some)
    assert set(scene.pictures) == set(some) and scene.down is None
    assert all((camera.params, camera.width_px) == ((11.0, 12.0, 6.0, 4.0), 12) for camera in scene.cameras.values())


@pytest.mark.parametrize(
    ("table", "text", "words"),
    [
        ("cameras.json", "[1]", "must hold K, cam_from_world_rotation"),
        ("cameras.json", "{", "cameras.json is no JSON"),
        ("cameras.json", '{"0001.png": {}, "0001.png": {}}', "the key '0001.png' stands twice"),
        ("walk_par.txt", "1\n0001.png 1\n0001.png 2\n", "line 3: '0001.png' is there twice, first in line 2"),
        ("cameras.json", '{"0001.png": {"K": [1]}}', "must hold K"),
        ("cameras.json", matrices(planted()).replace("11.0", "NaN"), "0001.png needs 21 finite numbers"),
        ("cameras.json", matrices(planted()).replace("11.0", "-1"), "cameras.json gives no camera of 0001.png"),
        ("cameras.json", matrices({"other.png": planted()["0001.png"]}), "holds no camera of a photograph"),
        ("walk_par.txt", "1\n0001.png 1 2 three\n", "must hold a name and 21 numbers"),
        ("walk_par.txt", "1\n0001.png 1 2 3\n", "0001.png needs 21 finite numbers"),
        ("walk_par.txt", f"1\n0001.png 11 0 6 0 12 4 0 0 1 {'2 ' * 12}\n", "matrix of 0001.png is not a rotation"),
    ],
)
def test_damaged_tables_of_matrices_are_named(tmp_path: Path, table: str, text: str, words: str) -> None:
    photographs(tmp_path)
    (tmp_path / table).write_text(text)
    with pytest.raises(FileFormatError, match=words):
        read_scene(tmp_path)


def test_a_binary_model_gives_what_its_text_gives(tmp_path: Path) -> None:
    """Second method: COLMAP itself writes the text model in binary."""
    from veil.colmap import pycolmap

    text, binary = tmp_path / "text", tmp_path / "binary"
    for folder in (text, binary):
        photographs(folder)
    colmap(text / "sparse", planted(), points="")
    (text / "sparse" / "points3D.txt").write_text("")
    (binary / "sparse").mkdir()
    pycolmap.Reconstruction(text / "sparse").write_binary(binary / "sparse")
    assert not (binary / "sparse" / "images.txt").exists()
    expected, scene = read_scene(text), read_scene(binary)
    assert_same(dict(scene.cam_from_world), dict(expected.cam_from_world))
    assert {name: camera.params for name, camera in scene.cameras.items()} == {
        name: camera.params for name, camera in expected.cameras.items()
    }


@pytest.mark.slow
@pytest.mark.parametrize("name", ["images.txt", "cameras.txt", "K.txt", "gt_dense_cameras/0001.png.camera", "gravity.csv"])
def test_truncated_files_raise_nothing_else(tmp_path: Path, name: str) -> None:
    """Every length of each file: a scene, or an error of veil's own; poses that do come back are planted ones."""
    layout = tmp_path / ("colmap" if name in {"images.txt", "cameras.txt"} else "strecha")
    (colmap if layout.name == "colmap" else strecha)(layout, planted())
    photographs(layout)
    (layout / "gravity.csv").write_text("image,x,y,z,sigma_deg\n0001.png,0.1,0.9,0.2,1.5\n0002.png,0,1,0,\n")
    whole = (layout / name).read_bytes()
    read, refused = 0, 0
    for length in range(len(whole)):
        (layout / name).write_bytes(whole[:length])
        try:
            scene = read_scene(layout)
        except VeilError:
            refused += 1
        else:
            read += 1
            assert set(scene.cam_from_world) <= set(NAMES)
            for pose in scene.cam_from_world.values():
                np.testing.assert_allclose(pose.rotation @ pose.rotation.T, np.eye(3), atol=1e-3)
    assert refused > 10 and read > 0


def test_the_real_sets_read(veil_data: Path) -> None:
    """Counts as their README gives them."""
    castle = read_scene(veil_data / "strecha" / "castle-P19")
    assert len(castle.pictures) == len(castle.cam_from_world) == 19 and castle.down is not None
    door = read_scene(veil_data / "lund_door")
    assert len(door.pictures) == len(door.cam_from_world) == 12 and door.gravity == {}
    phone = read_scene(veil_data / "smartphone_monstree")
    assert len(phone.pictures) == len(phone.gravity) == 23 and not phone.cam_from_world
    berlin = read_scene(veil_data / "smartphone_berlin") if (veil_data / "smartphone_berlin" / "images").is_dir() else None
    assert berlin is None or berlin.gravity == {}


def transforms(folder: Path, poses: dict[str, Rigid]) -> None:
    """The table that instant-ngp would write: camera to world, y up and z backward."""
    frames = []
    for name, pose in poses.items():
        matrix = np.eye(4)
        matrix[:3, :3] = pose.rotation.T @ np.diag([1.0, -1.0, -1.0])
        matrix[:3, 3] = pose.center
        frames.append({"file_path": f"./images/{name}", "transform_matrix": matrix.tolist()})
    content = {"fl_x": 10.0, "fl_y": 11.0, "cx": 6.0, "cy": 4.0, "w": 12.0, "h": 8.0, "k1": 0.01, "frames": frames}
    (folder / "transforms.json").write_text(json.dumps(content))


def test_a_table_of_transforms_gives_the_planted_cameras(tmp_path: Path) -> None:
    photographs(tmp_path)
    poses = planted()
    transforms(tmp_path, poses)
    scene = read_scene(tmp_path)
    for name, pose in poses.items():
        np.testing.assert_allclose(scene.cam_from_world[name].rotation, pose.rotation, atol=1e-9)
        np.testing.assert_allclose(scene.cam_from_world[name].translation, pose.translation, atol=1e-9)
        assert scene.cameras[name].params == (10.0, 11.0, 6.0, 4.0, 0.01, 0.0, 0.0, 0.0)


@pytest.mark.parametrize(
    "damage",
    [
        lambda table: table.pop("frames"),
        lambda table: table.pop("fl_x"),
        lambda table: table["frames"].clear(),
        lambda table: table["frames"][0].update(transform_matrix=[[1, 2], [3, 4]]),
        lambda table: table["frames"][0].update(transform_matrix=(5 * np.eye(4)).tolist()),
        lambda table: table["frames"][0].update(transform_matrix=np.diag([1.0, 1.0, -1.0, 1.0]).tolist()),
        lambda table: table["frames"][0].update(file_path=3),
        lambda table: [frame.update(file_path="other.png") for frame in table["frames"]],
    ],
)
def test_a_damaged_table_of_transforms_is_refused(tmp_path: Path, damage: Callable[[dict], object]) -> None:
    photographs(tmp_path)
    transforms(tmp_path, planted())
    table = json.loads((tmp_path / "transforms.json").read_text())
    damage(table)
    (tmp_path / "transforms.json").write_text(json.dumps(table))
    with pytest.raises(FileFormatError):
        read_scene(tmp_path)


def test_a_matrix_of_photographs_without_poses_gives_their_cameras(tmp_path: Path) -> None:
    """Oracle: the matrix that was written, beside photographs of which no pose is known."""
    photographs(tmp_path)
    (tmp_path / "K.txt").write_text("11 0 6\n0 12 4\n0 0 1\n")
    scene = read_scene(tmp_path)
    assert set(scene.cameras) == set(NAMES) and not scene.cam_from_world
    assert all(camera.params == (11.0, 12.0, 6.0, 4.0) for camera in scene.cameras.values())
