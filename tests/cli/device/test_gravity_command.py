"""`veil gravity`: tables that `veil privatize` reads, answers a photograph, exit codes and records."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest

from veil.cli import main
from veil.files.photographs.examples import lund_door
from veil.files.photographs.gravity import read_gravity, read_gravity_readings
from veil.files.photographs.pictures import read_rgb
from worlds.documents import section
from worlds.edges import apple_note, door_photographs, phone_photograph
from worlds.schemas import validate

PHONE = apple_note(-0.1, -0.98, -0.2)
DOWN = np.array([-0.1, 0.98, 0.2]) / np.linalg.norm([0.1, 0.98, 0.2])
CAMERA = "SIMPLE_RADIAL,1288.6,343,512,-0.0336"


def run(*arguments: object) -> int:
    return main([str(argument) for argument in arguments])


@pytest.fixture
def mixed(tmp_path: Path) -> Path:
    """A phone's photograph, two of the portal, one that is blank, and a file that is no photograph; a folder deep."""
    folder = tmp_path / "photos"
    door_photographs(folder / "door", 2, 7)
    phone_photograph(folder / "phone.jpg", PHONE)
    phone_photograph(folder / "blank.jpg", None)
    (folder / "broken.jpg").write_text("no picture")
    return folder


@pytest.mark.slow
def test_auto_takes_the_sensor_then_edges_and_names_the_rest(
    mixed: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    table, record = tmp_path / "g.csv", tmp_path / "g.json"
    assert run("gravity", mixed, "-o", table, "--json", record) == 3
    readings = read_gravity_readings(table)
    assert set(readings) == {"phone.jpg", "door/DSC_0002.jpg", "door/DSC_0007.jpg"}
    np.testing.assert_allclose(readings["phone.jpg"].direction, DOWN, atol=1e-6)
    assert all(reading.sigma_deg is not None for reading in readings.values())
    rows = {row["name"]: row for row in json.loads(record.read_text())["images"]}
    validate("gravity", {"images": list(rows.values())})
    assert {name: row["source"] for name, row in rows.items() if row["status"] == "found"} == {
        "phone.jpg": "exif",
        "door/DSC_0002.jpg": "vanishing-point",
        "door/DSC_0007.jpg": "vanishing-point",
    }
    assert {name for name, row in rows.items() if row["status"] == "no gravity"} == {"blank.jpg", "broken.jpg"}
    text = section("json.md", "veil gravity")
    for key in {key for row in rows.values() for key in row}:
        assert f"`{key}`" in text, key
    printed = capsys.readouterr().out
    assert "gravity of 3 of 5 images" in printed
    for name in rows:
        assert name in printed
    assert "cannot be decoded" in printed and "segments" in printed


@pytest.mark.slow
def test_names_are_those_of_extract(mixed: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Second method: the whole path. `veil privatize` finds gravity for each image that `veil extract` named."""
    (mixed / "broken.jpg").unlink()
    (mixed / "blank.jpg").unlink()
    (mixed / "phone.jpg").unlink()
    shutil.copytree(mixed / "door", mixed / "more" / "door")
    assert run("extract", mixed, "-o", tmp_path / "f.h5", "--max-features", 60) == 0
    assert run("gravity", mixed, "-o", tmp_path / "g.csv", "--camera", CAMERA) == 0
    capsys.readouterr()
    given = ("--lines", "--gravity", tmp_path / "g.csv", "--allow-second-release")
    assert run("privatize", tmp_path / "f.h5", "-o", tmp_path / "up", "--for", "map", *given) == 0
    assert "has no gravity for" not in capsys.readouterr().out
    assert set(read_gravity(tmp_path / "g.csv")) == {
        f"{folder}door/DSC_000{number}.jpg" for folder in ("", "more/") for number in (2, 7)
    }


@pytest.mark.slow
def test_a_sensor_that_lies_gives_way_to_edges_and_is_told(tmp_path: Path) -> None:
    """A note that was left in a picture whose pixels were turned, on a photograph with vertical edges."""
    from PIL import ExifTags, Image

    with lund_door() as example:
        pixels = read_rgb(example.folder / "DSC_0002.jpg")
    picture = Image.fromarray(pixels)
    picture.getexif().get_ifd(ExifTags.IFD.Exif)[ExifTags.Base.MakerNote] = PHONE
    picture.save(tmp_path / "turned.jpg", exif=picture.getexif(), quality=92)
    told = tmp_path / "g.json"
    assert run("gravity", tmp_path / "turned.jpg", "-o", tmp_path / "g.csv", "--json", told) == 0
    (row,) = json.loads(told.read_text())["images"]
    assert row["source"] == "vanishing-point" and "turned or cropped" in row["note"]
    assert run("gravity", tmp_path / "turned.jpg", "-o", tmp_path / "h.csv", "--from", "exif") == 3


def test_nothing_is_written_where_nothing_was_found(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    table = tmp_path / "g.csv"
    table.write_text("a,0,1,0\n")
    assert run("gravity", phone_photograph(tmp_path / "p.jpg", None), "-o", table, "--from", "exif") == 3
    assert table.read_text() == "a,0,1,0\n"
    said = capsys.readouterr().out
    assert "was not written" in said and "use --from vanishing-point" in said


@pytest.mark.slow
def test_one_source_alone(mixed: Path, tmp_path: Path) -> None:
    assert run("gravity", mixed / "phone.jpg", "-o", tmp_path / "e.csv", "--from", "exif") == 0
    assert run("gravity", mixed / "phone.jpg", "-o", tmp_path / "v.csv", "--from", "vanishing-point") == 3
    assert run("gravity", mixed / "door", "-o", tmp_path / "v.csv", "--from", "vanishing-point") == 0


def test_a_database(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    import pycolmap

    database = pycolmap.Database.open(tmp_path / "d.db")
    camera_id = database.write_camera(pycolmap.Camera.create_from_model_name(1, "PINHOLE", 500.0, 640, 480))
    for name, vector in (("a.jpg", [0.0, 0.98, 0.2]), ("b.jpg", [0.0, 1.0, 0.0])):
        database.write_image(pycolmap.Image(name=name, camera_id=camera_id))
        prior = pycolmap.PosePrior()
        image = database.read_image_with_name(name)
        assert image is not None
        prior.corr_data_id, prior.gravity = image.data_id, np.array(vector)
        database.write_pose_prior(prior)
    database.close()
    assert run("gravity", tmp_path / "d.db", "-o", tmp_path / "g.csv", "--from", "colmap") == 3
    assert list(read_gravity(tmp_path / "g.csv")) == ["a.jpg"]
    assert "EXIF orientation" in capsys.readouterr().out
    assert run("gravity", tmp_path / "d.db", "-o", tmp_path / "g.csv", "--from", "colmap", "--camera", CAMERA) == 1
    (tmp_path / "g.csv").unlink()
    assert run("gravity", tmp_path / "d.db", "-o", tmp_path / "g.csv") == 3 and list(read_gravity(tmp_path / "g.csv")) == [
        "a.jpg"
    ]
    assert run("gravity", tmp_path / "d.db", "-o", tmp_path / "g.csv", "--camera", CAMERA) == 1
    capsys.readouterr()
    for given, source in (("d.db", "exif"), ("f.h5", "auto")):
        assert run("gravity", tmp_path / given, "-o", tmp_path / "g.csv", "--from", source) == 1
        assert f"holds no photographs, which --from {source} reads" in capsys.readouterr().err


@pytest.mark.slow
def test_a_figure_of_one_photograph(mixed: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    one = mixed / "door" / "DSC_0007.jpg"
    assert run("gravity", one, "-o", tmp_path / "g.csv", "--camera", CAMERA, "--figure", tmp_path / "f.png") == 0
    pixels = read_rgb(tmp_path / "f.png").reshape(-1, 3).astype(int)
    for color in ([0x00, 0x9E, 0x73], [0xD5, 0x5E, 0x00]):  # segments that agree, and down
        assert (np.abs(pixels - color).sum(axis=1) < 30).sum() > 100
    assert run("gravity", mixed / "door", "-o", tmp_path / "g.csv", "--figure", tmp_path / "h.png") == 1
    assert run("gravity", mixed / "blank.jpg", "-o", tmp_path / "g.csv", "--figure", tmp_path / "h.png") == 1
    assert not (tmp_path / "h.png").exists()
    assert "one photograph, got 2" in capsys.readouterr().err


@pytest.mark.parametrize("camera", ["SIMPLE_RADIAL,1,2", "NONE,1", "PINHOLE,a,b,c,d"])
def test_a_wrong_camera_is_the_users_fault_and_not_the_photographs(mixed: Path, tmp_path: Path, camera: str) -> None:
    assert run("gravity", mixed / "door", "-o", tmp_path / "g.csv", "--camera", camera) == 1
    assert not (tmp_path / "g.csv").exists()


@pytest.mark.slow
def test_a_camera_matrix_beside_the_photographs_is_read(tmp_path: Path) -> None:
    """Second method: the same answers as with the camera on the command line, more exact than with a guessed focal length."""
    folder = tmp_path / "door"
    door_photographs(folder, 2, 7)
    pinhole = ("--camera", "PINHOLE,1288.6,1288.6,343,512")
    for name, given in (("guessed", ()), ("told", pinhole), ("read", ())):
        if name == "read":
            (folder / "K.txt").write_text("1288.6 0 343\n0 1288.6 512\n0 0 1\n")
        assert run("gravity", folder, "-o", tmp_path / f"{name}.csv", "--from", "vanishing-point", *given) == 0
    guessed, told, read = (read_gravity_readings(tmp_path / f"{name}.csv") for name in ("guessed", "told", "read"))
    for image, reading in read.items():
        assert (reading.direction == told[image].direction).all() and reading.sigma_deg == told[image].sigma_deg
        assert (reading.sigma_deg or 90) < (guessed[image].sigma_deg or 0)


def test_an_unusual_tilt_is_doubted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The portal turned by 25 degrees: the answer turns with it, and says that one should look."""
    from PIL import Image

    with lund_door() as example:
        picture = Image.open(example.folder / "DSC_0007.jpg").rotate(25, resample=Image.Resampling.BICUBIC)
    picture.crop((150, 250, 536, 774)).save(tmp_path / "turned.jpg", quality=92)
    given = ("--camera", "SIMPLE_PINHOLE,1288.6,193,262", "--from", "vanishing-point")
    assert run("gravity", tmp_path / "turned.jpg", "-o", tmp_path / "g.csv", *given) == 0
    assert "rolled by 25 degrees" in " ".join(capsys.readouterr().out.split())
    x, y, _ = read_gravity(tmp_path / "g.csv")["turned.jpg"]
    assert np.rad2deg(np.arctan2(x, y)) == pytest.approx(25, abs=2)  # a counterclockwise turn takes down to the right


@pytest.fixture(scope="module")
def door_down() -> np.ndarray:
    """Down in DSC_0010 by its edges."""
    from veil.extraction.segments import vertical_of
    from veil.files.photographs.pictures import read_picture
    from veil.geometry.vanishing_point import Vertical

    with lund_door() as example:
        vertical = vertical_of(read_picture(example.folder / "DSC_0010.jpg", camera=example.camera))
    assert isinstance(vertical, Vertical)
    return vertical.gravity.direction


def door_of_a_phone(path: Path, down: np.ndarray) -> Path:
    """DSC_0010 as an iPhone stores it, held upright (orientation 6), with a reading that says `down`."""
    from PIL import ExifTags, Image

    with lund_door() as example:
        picture = Image.fromarray(np.ascontiguousarray(np.rot90(read_rgb(example.folder / "DSC_0010.jpg"))))
    exif = picture.getexif()
    exif[ExifTags.Base.Orientation] = 6
    exif.get_ifd(ExifTags.IFD.Exif)[ExifTags.Base.MakerNote] = apple_note(down[0], -down[1], -down[2])
    picture.save(path, exif=exif, quality=95)
    return path


def pitched(down: np.ndarray, degrees: float) -> np.ndarray:
    cosine, sine = np.cos(np.deg2rad(degrees)), np.sin(np.deg2rad(degrees))
    return np.array([down[0], cosine * down[1] - sine * down[2], sine * down[1] + cosine * down[2]])


@pytest.mark.slow
@pytest.mark.parametrize("degrees", [34.8, -34.8])
def test_a_faulty_reading_is_found_and_left_out(door_down: np.ndarray, tmp_path: Path, degrees: float) -> None:
    """The defect: a reading 34.8 degrees off was taken without a word, while the photograph's edges had it right."""
    photograph = door_of_a_phone(tmp_path / "phone.jpg", pitched(door_down, degrees))
    assert run("gravity", photograph, "-o", tmp_path / "g.csv", "--camera", CAMERA, "--json", tmp_path / "g.json") == 0
    (row,) = json.loads((tmp_path / "g.json").read_text())["images"]
    validate("gravity", {"images": [row]})
    assert row["source"] == "vanishing-point" and row["check"]["verdict"] == "sensor wrong"
    assert row["check"]["apart_deg"] == pytest.approx(34.8, abs=1) and "the sensor is wrong" in row["note"]
    assert np.degrees(np.arccos(np.clip(np.dot(row["down"], door_down), -1, 1))) < 0.5


@pytest.mark.slow
def test_an_honest_reading_agrees(door_down: np.ndarray, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A reading that strays by two degrees agrees; the edges of a camera that was given are the more exact answer."""
    photograph = door_of_a_phone(tmp_path / "phone.jpg", pitched(door_down, 2.0))
    assert run("gravity", photograph, "-o", tmp_path / "g.csv", "--camera", CAMERA, "--json", tmp_path / "g.json") == 0
    (row,) = json.loads((tmp_path / "g.json").read_text())["images"]
    validate("gravity", {"images": [row]})
    assert row["check"]["verdict"] == "agree" and row["sigma_deg"] < 1.5
    assert row["check"]["apart_deg"] == pytest.approx(2, abs=0.7)
    assert "degrees apart, and agree" in capsys.readouterr().out


@pytest.mark.slow
def test_tables_of_phones_are_read(veil_data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """OpenSfM's Berlin photographs: axes from edges with a guessed camera, within 3 degrees of the edges with the measured one.
    Rocks and a tree have no edges: refused, and read with the axes that iOS has, as the table's own gravity columns say."""
    berlin, rocks = veil_data / "smartphone_berlin", veil_data / "smartphone_monstree"
    table = tmp_path / "g.csv"
    assert run("gravity", berlin / "images", "-o", table, "--readings", berlin / "metadata.csv") == 0
    assert "by vertical edges of 3 of 3: down is (" in capsys.readouterr().out
    camera = "SIMPLE_RADIAL,1419,816,612,0"
    assert run("gravity", berlin / "images", "-o", tmp_path / "e.csv", "--from", "vanishing-point", "--camera", camera) == 0
    edges = read_gravity(tmp_path / "e.csv")
    for name, direction in read_gravity(table).items():
        assert np.degrees(np.arccos(direction @ edges[name])) < 3
    rows = [line.split(",") for line in (rocks / "sensors.csv").read_text().splitlines()]
    kept = [[row[0], *row[4:7]] for row in rows if row[0] in ("image", "IMG_1025.jpg", "IMG_1047.jpg")]
    (tmp_path / "acc.csv").write_text("\n".join(",".join(row) for row in kept))
    pictures = [rocks / "images" / row[0] for row in kept[1:]]
    assert run("gravity", *pictures, "-o", tmp_path / "no.csv", "--readings", tmp_path / "acc.csv") == 3
    assert "--axes" in capsys.readouterr().out
    told = ("--readings", tmp_path / "acc.csv", "--axes", "ios")
    assert run("gravity", *pictures, "-o", tmp_path / "ios.csv", *told) == 0
    expected = {row[0]: np.array(row[7:10], dtype=np.float64) for row in rows[1:]}
    for name, direction in read_gravity(tmp_path / "ios.csv").items():
        np.testing.assert_allclose(direction, expected[name] / np.linalg.norm(expected[name]), atol=1e-6)


def test_readings_of_other_photographs_are_refused(mixed: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "acc.csv").write_text("file,acc_x,acc_y,acc_z\nother.jpg,0,-1,0\n")
    assert run("gravity", mixed / "phone.jpg", "-o", tmp_path / "g.csv", "--readings", tmp_path / "acc.csv") == 1
    assert "names none of the photographs" in capsys.readouterr().err
    assert run("gravity", mixed / "phone.jpg", "-o", tmp_path / "g.csv", "--axes", "ios") == 1
