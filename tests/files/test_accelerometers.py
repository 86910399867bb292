"""Accelerometer tables as phones and applications write them, and what is none."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from veil.device.gravity import joined
from veil.errors import FileFormatError, InputError
from veil.files.photographs.gravity import read_accelerometer

RECORD = '{"filename": "left/1.jpg", "MAPAccelerometerVector": {"x": 1, "y": 2, "z": 3}}'


@pytest.mark.parametrize(
    "text",
    [
        "image,acc_x,acc_y,acc_z\na.jpg,0.1,-0.9,0.2\n",
        "\ufefffile,width,Accelerometer.X,accelerometer.y,accelerometer.z\na.jpg,640,0.1,-0.9,0.2\n\n",
        "accel_z,accel_y,accel_x,filename\n0.2,-0.9,0.1,a.jpg\n",
        "name,AccelX (g),AccelY (g),AccelZ (g)\n a.jpg ,0.1,-0.9,0.2\n",
        '[{"filename": "./a.jpg", "MAPAccelerometerVector": {"x": "0.1", "y": -0.9, "z": 0.2}}, {"filename": "b.jpg"}]',
        '{"a.jpg": {"MAPAccelerometerVector": {"x": 0.1, "y": -0.9, "z": 0.2}}}',
    ],
)
def test_ways_to_write_one_reading(tmp_path: Path, text: str) -> None:
    """Golden: the same vector from each."""
    path = tmp_path / "table"
    path.write_text(text, encoding="utf-8")
    (name, vector), *rest = read_accelerometer(path).items()
    assert name == "a.jpg" and not rest
    np.testing.assert_array_equal(vector, [0.1, -0.9, 0.2])


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "expected a column"),
        ("image,gyro_x,gyro_y,gyro_z\na,1,2,3\n", "expected a column"),
        ("image,acc_x,acc_y,acc_z\n", "no readings"),
        ("image,acc_x,acc_y,acc_z\na,1,2\n", "line 2"),
        ("image,acc_x,acc_y,acc_z\na,1,2,nan\n", "line 2"),
        ('[{"filename": "a", "MAPAccelerometerVector": {"x": 1}}]', "record 1"),
        ('[{"filename"', "damaged JSON"),
    ],
)
def test_what_is_no_table_is_refused(tmp_path: Path, text: str, said: str) -> None:
    path = tmp_path / "table"
    path.write_text(text)
    with pytest.raises(FileFormatError, match=said):
        read_accelerometer(path)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("image,acc_x,acc_y,acc_z\na,1,2,3\nb,1,2,3\na,1,2,4\n", "line 4: 'a' is there twice, first in line 2"),
        ("image,acc_x,acc_y,acc_z,accel_z\na,1,2,3,4\n", "the column 'z' twice"),
        (f"[{RECORD}, {RECORD}]", "record 2: 'left/1.jpg' is there twice, first in record 1"),
        ('{"a": {"MAPAccelerometerVector": {"x": 1, "y": 2, "z": 3}}, "a": {"MAPAccelerometerVector": {}}}', "record 2"),
    ],
)
def test_entries_that_are_there_twice_are_named_with_both_places(tmp_path: Path, text: str, words: str) -> None:
    """Which of the two holds cannot be told; the last one would win without a word."""
    path = tmp_path / "table"
    path.write_text(text)
    with pytest.raises(FileFormatError, match=words):
        read_accelerometer(path)


def test_folders_tell_photographs_of_one_name_apart(tmp_path: Path) -> None:
    """Planted truth: the readings of two cameras' first pictures, as Mapillary's tools describe them."""
    path = tmp_path / "table"
    path.write_text(f"[{RECORD}, {RECORD.replace('left', 'right').replace('3', '4')}]")
    assert {name: vector.tolist() for name, vector in read_accelerometer(path).items()} == {
        "left/1.jpg": [1, 2, 3],
        "right/1.jpg": [1, 2, 4],
    }


def test_photographs_are_joined_with_entries_by_their_paths() -> None:
    """Enumeration: equal paths first, then an end of either; what may be two is refused, and never taken for one."""
    table = Path("t.json")
    assert joined(table, ["left/1.jpg", "right/1.jpg"], ["/d/left/1.jpg", "/d/right/1.jpg"]) == {
        "left/1.jpg": "/d/left/1.jpg",
        "right/1.jpg": "/d/right/1.jpg",
    }
    assert joined(table, ["in/1.jpg", "2.jpg", "3.jpg"], ["1.jpg", "in/2.jpg", "4.jpg"]) == {
        "in/1.jpg": "1.jpg",
        "2.jpg": "in/2.jpg",
    }
    assert joined(table, ["1.jpg", "in/1.jpg"], ["1.jpg"]) == {"1.jpg": "1.jpg"}
    with pytest.raises(InputError, match=r"has 1\.jpg, which may be left/1\.jpg or right/1\.jpg"):
        joined(table, ["left/1.jpg", "right/1.jpg"], ["1.jpg"])
    with pytest.raises(InputError, match=r"has left/1\.jpg and right/1\.jpg, and either"):
        joined(table, ["1.jpg"], ["left/1.jpg", "right/1.jpg"])
