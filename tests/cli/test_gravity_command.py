"""`veil gravity`: tables that `veil privatize` reads, answers a photograph, exit codes and records."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest

from edges import apple_note, door_photographs, phone_photograph
from veil.cli import main
from veil.files.examples import lund_door
from veil.files.gravity import read_gravity, read_gravity_readings
from veil.files.pictures import read_rgb

REFERENCE = Path(__file__).parents[2] / "docs" / "reference" / "json.md"
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
    assert {name: row["source"] for name, row in rows.items() if row["status"] == "found"} == {
        "phone.jpg": "exif",
        "door/DSC_0002.jpg": "vanishing-point",
        "door/DSC_0007.jpg": "vanishing-point",
    }
    assert {name for name, row in rows.items() if row["status"] == "no gravity"} == {"blank.jpg", "broken.jpg"}
    section = REFERENCE.read_text().partition("\n## veil gravity\n")[2].partition("\n## ")[0]
    for key in {key for row in rows.values() for key in row}:
        assert f"`{key}`" in section, key
    printed = capsys.readouterr().out
    assert "gravity of 3 of 5 images" in printed
    for name in rows:
        assert name in printed
    assert "cannot be decoded" in printed and "segments" in printed


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
    assert run("privatize", tmp_path / "f.h5", "-o", tmp_path / "up", *given) == 0
    assert "has no gravity for" not in capsys.readouterr().out
    assert set(read_gravity(tmp_path / "g.csv")) == {
        f"{folder}door/DSC_000{number}.jpg" for folder in ("", "more/") for number in (2, 7)
    }


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


def test_an_unusual_tilt_is_doubted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The portal turned by 25 degrees: the answer turns with it, and says that one should look."""
    from PIL import Image

    with lund_door() as example:
        picture = Image.open(example.folder / "DSC_0007.jpg").rotate(25, resample=Image.Resampling.BICUBIC)
    picture.crop((150, 250, 536, 774)).save(tmp_path / "turned.jpg", quality=92)
    given = ("--camera", "SIMPLE_PINHOLE,1288.6,193,262", "--from", "vanishing-point")
    assert run("gravity", tmp_path / "turned.jpg", "-o", tmp_path / "g.csv", *given) == 0
    assert "--figure" in capsys.readouterr().out
    x, y, _ = read_gravity(tmp_path / "g.csv")["turned.jpg"]
    assert np.rad2deg(np.arctan2(x, y)) == pytest.approx(25, abs=2)  # a counterclockwise turn takes down to the right
