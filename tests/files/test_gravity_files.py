"""Tables of gravity readings: unit vectors by name, or the line at fault."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from veil.errors import FileFormatError, InputError
from veil.files.photographs.gravity import holds_gravity, read_gravity, read_gravity_readings, write_gravity
from veil.geometry.gravity import Gravity


@pytest.mark.parametrize("header", ["", "image,x,y,z\n"])
def test_readings_become_unit_vectors(tmp_path: Path, header: str) -> None:
    """Golden: (0, 9.81, 0) is down; (3, 4, 0) has length 5."""
    path = tmp_path / "g.csv"
    path.write_text(f'{header}a.jpg,0,9.81,0\n\n"db/b, c.jpg", 3, 4, 0\n', encoding="utf-8")
    readings = read_gravity(path)
    assert set(readings) == {"a.jpg", "db/b, c.jpg"}
    np.testing.assert_allclose(readings["a.jpg"], [0, 1, 0])
    np.testing.assert_allclose(readings["db/b, c.jpg"], [0.6, 0.8, 0])


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"", "holds no readings"),
        (b"image,x,y,z\n", "holds no readings"),
        (b"a,0,1,0\nb,0,1\n", "line 2: expected image,x,y,z"),
        (b"a,0,1,down\n", "line 1: expected image,x,y,z"),
        (b"a,0,1,0,1.5,2\n", "line 1: expected image,x,y,z\\[,sigma_deg\\]"),
        (b"a,0,1,0,much\n", "line 1: expected image,x,y,z"),
        (b"a,0,1,0,-1\n", "line 1: sigma_deg must be positive"),
        (b"a,0,1,0,nan\n", "line 1: sigma_deg must be positive"),
        (b"a,0,0,0\n", "line 1"),
        (b"a,0,nan,0\n", "line 1"),
        (b"a,0,-9.81,0\n", "negate the readings"),
        (b"\xff\xfe\x00", "is not text"),
        (b'a,"' + b"1" * 200_000 + b'",0,0\n', "not a text table"),
    ],
)
def test_what_is_no_reading_is_named_by_its_line(tmp_path: Path, data: bytes, words: str) -> None:
    path = tmp_path / "g.csv"
    path.write_bytes(data)
    with pytest.raises(FileFormatError, match=words):
        read_gravity(path)


@pytest.mark.parametrize(
    "text",
    [
        "image,x,z,y\na.jpg,1,3,2\n",
        "z,y,x,file\n3,2,1,a.jpg\n",
        "sigma_deg, Image, Z, Y, X\n, a.jpg, 3, 2, 1\n",
        "\n# image,x,y,z\na.jpg,1,2,3\n",
        "image,gravity_z,speed,gravity_y,gravity_x\na.jpg,3,0.5,2,1\n",
        "a.jpg,1,2,3\n",
    ],
)
@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16"])
def test_columns_are_read_by_their_names(tmp_path: Path, text: str, encoding: str) -> None:
    """Planted truth: one vector, written in every order of columns and with every byte-order mark."""
    path = tmp_path / "g.csv"
    path.write_bytes(text.encode(encoding))
    np.testing.assert_allclose(read_gravity(path)["a.jpg"], np.array([1, 2, 3]) / np.sqrt(14))
    assert holds_gravity(path) == (text != "a.jpg,1,2,3\n")


def test_the_deviation_is_read_wherever_it_stands(tmp_path: Path) -> None:
    """Golden: the column stands before the image."""
    (tmp_path / "g.csv").write_text("sigma_deg,image,x,y,z\n1.5,a,0,1,0\n,b,0,1,0\n")
    assert {name: item.sigma_deg for name, item in read_gravity_readings(tmp_path / "g.csv").items()} == {"a": 1.5, "b": None}


@pytest.mark.parametrize(
    ("header", "words"),
    [
        ("image,w,x,y,z", "has the columns 'image, w, x, y, z'"),
        ("image,down,right,ahead", "has the columns"),
        ("id,x,y,z", "has the columns"),
        ("image,x,y,y,z", "has the column 'y' twice"),
        ("image,x,y", "has the columns"),
        ("name,gx,gy,gz", "has the columns"),
        ("image,gravity_x,gravity_y,z", "has the columns"),
    ],
)
def test_unknown_headers_are_refused(tmp_path: Path, header: str, words: str) -> None:
    """A header that is skipped and not read would turn gravity by any angle without a word."""
    (tmp_path / "g.csv").write_text(f"{header}\na.jpg,0,1,0\n")
    with pytest.raises(FileFormatError, match=words):
        read_gravity(tmp_path / "g.csv")


def test_an_image_that_is_there_twice_is_named_with_both_lines(tmp_path: Path) -> None:
    (tmp_path / "g.csv").write_text("image,x,y,z\na.jpg,0,1,0\n\nb.jpg,0,1,0\na.jpg ,1,0,0\n")
    with pytest.raises(FileFormatError, match=r"line 5: 'a\.jpg' is there twice, first in line 2"):
        read_gravity(tmp_path / "g.csv")


def test_a_missing_table(tmp_path: Path) -> None:
    with pytest.raises(FileFormatError, match="cannot read"):
        read_gravity(tmp_path / "none.csv")


def test_the_standard_deviation_may_be_there_or_not(tmp_path: Path) -> None:
    """Golden; those who want directions alone get what they always got."""
    path = tmp_path / "g.csv"
    path.write_text("image,x,y,z,sigma_deg\na,0,1,0,1.5\nb,0,2,0,\nc,0,3,0\n")
    assert {name: reading.sigma_deg for name, reading in read_gravity_readings(path).items()} == {
        "a": 1.5,
        "b": None,
        "c": None,
    }
    for direction in read_gravity(path).values():
        np.testing.assert_array_equal(direction, [0, 1, 0])


def test_what_is_written_is_read(tmp_path: Path) -> None:
    """Inverse pair, names with commas, quotes and folders included; the same readings give the same bytes."""
    readings = {
        'b "x", y.jpg': Gravity(direction=np.array([0.1, 0.9, -0.3]), sigma_deg=1.25),
        "a/é.jpg": Gravity(direction=np.array([0.0, 1.0, 0.0])),
    }
    path = tmp_path / "g.csv"
    write_gravity(path, readings)
    read = read_gravity_readings(path)
    assert set(read) == set(readings)
    for name, reading in readings.items():
        np.testing.assert_allclose(read[name].direction, reading.direction, atol=1e-9)
        assert read[name].sigma_deg == reading.sigma_deg
    before = path.read_bytes()
    write_gravity(path, dict(reversed(readings.items())))
    assert path.read_bytes() == before


@pytest.mark.parametrize("name", [" a.jpg", "a.jpg ", "a\nb.jpg", "a\u2028b.jpg", ""])
def test_names_that_a_table_cannot_hold(tmp_path: Path, name: str) -> None:
    """Nothing is written rather than a line that reads as another name."""
    with pytest.raises(InputError, match="rename"):
        write_gravity(tmp_path / "g.csv", {name: Gravity(direction=np.array([0.0, 1.0, 0.0]))})
    assert not (tmp_path / "g.csv").exists()


def test_a_table_of_sensors_is_read_by_its_columns(tmp_path: Path) -> None:
    """Golden: columns in any order between others, vectors of any length; what is not named is ignored."""
    path = tmp_path / "sensors.csv"
    path.write_text(
        "width,Gravity_Z,acc_x, gravity_y ,image,gravity_x,sigma_deg\n"
        '1134,0,9,2,"db/a, b.jpg",0,x\n'
        "\n"
        "1512,0,9,0.4,c.jpg,0.3,-1\n",
        encoding="utf-8",
    )
    readings = read_gravity_readings(path)
    assert set(readings) == {"db/a, b.jpg", "c.jpg"}
    np.testing.assert_allclose(readings["db/a, b.jpg"].direction, [0, 1, 0])
    np.testing.assert_allclose(readings["c.jpg"].direction, [0.6, 0.8, 0])
    assert all(reading.sigma_deg is None for reading in readings.values())


@pytest.mark.parametrize(
    ("rows", "words"),
    [
        ("", "holds no readings; expected lines image,gravity_x,gravity_y,gravity_z"),
        ("a.jpg,1,0,1\n", "line 2: expected image,gravity_x,gravity_y,gravity_z"),
        ("a.jpg,1,0,1,\n", "line 2: expected image,gravity_x"),
        ("a.jpg,1,0,1,0\nb.jpg,1,0,down,0\n", "line 3: expected image,gravity_x"),
        ("a.jpg,1,0,nan,0\n", "line 2: gravity must be a finite vector"),
        ("a.jpg,1,0,0,0\n", "line 2: gravity must be a finite vector of some length"),
        ("a.jpg,1,0,-1,0\n", "line 2: .*negate the readings"),
    ],
)
def test_damaged_tables_of_sensors(tmp_path: Path, rows: str, words: str) -> None:
    path = tmp_path / "sensors.csv"
    path.write_text(f"image,width,gravity_x,gravity_y,gravity_z\n{rows}")
    with pytest.raises(FileFormatError, match=words):
        read_gravity_readings(path)


def test_the_image_must_have_a_column(tmp_path: Path) -> None:
    (tmp_path / "g.csv").write_text("gravity_x,gravity_y,gravity_z\n0,1,0\n")
    with pytest.raises(FileFormatError, match="has the columns"):
        read_gravity(tmp_path / "g.csv")


@pytest.mark.parametrize("header", ["", "image,x,y,z\n", "image,gravity_x,gravity_y,gravity_z,speed\n"])
def test_a_row_with_more_cells_than_columns_is_refused(tmp_path: Path, header: str) -> None:
    """A comma in a name that is not quoted moves every column behind it."""
    (tmp_path / "g.csv").write_text(f"{header}a, b.jpg,0,1,0,2,3\n")
    with pytest.raises(FileFormatError, match=r"expected image,.*got 'a,b.jpg,0,1,0,2,3'"):
        read_gravity(tmp_path / "g.csv")


def test_the_phone_of_the_evaluation_set(veil_data: Path) -> None:
    """Golden: the first image's accelerometer vector of length 0.994 as its README turns it."""
    readings = read_gravity(veil_data / "smartphone_monstree" / "sensors.csv")
    vector = np.array([-0.085239, 0.957951, 0.252371])
    assert len(readings) == 23
    np.testing.assert_allclose(readings["IMG_1025.jpg"], vector / np.linalg.norm(vector), atol=1e-12)


def test_accelerometer_tables_are_no_gravity(tmp_path: Path) -> None:
    path = tmp_path / "sensors.csv"
    path.write_text("image,acc_x,acc_y,acc_z\na.jpg,0.0,-1.0,0.0\n")
    with pytest.raises(FileFormatError, match="accelerometer"):
        read_gravity(path)


def test_the_mark_that_spreadsheets_put_first_is_no_part_of_a_name(tmp_path: Path) -> None:
    """A byte order mark before the first name, before a header, and before one of a table of sensors."""
    path = tmp_path / "g.csv"
    for text in ("a.jpg,0,1,0\n", "image,x,y,z\na.jpg,0,1,0\n", "image,gravity_x,gravity_y,gravity_z\na.jpg,0,1,0\n"):
        path.write_bytes(b"\xef\xbb\xbf" + text.encode())
        assert list(read_gravity(path)) == ["a.jpg"]
        assert holds_gravity(path) is text.startswith("image")
