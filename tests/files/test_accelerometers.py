"""Accelerometer tables as phones and applications write them, and what is none."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from veil.errors import FileFormatError
from veil.files.photographs.gravity import read_accelerometer


@pytest.mark.parametrize(
    "text",
    [
        "image,acc_x,acc_y,acc_z\na.jpg,0.1,-0.9,0.2\n",
        "\ufefffile,width,Accelerometer.X,accelerometer.y,accelerometer.z\na.jpg,640,0.1,-0.9,0.2\n\n",
        "accel_z,accel_y,accel_x,filename\n0.2,-0.9,0.1,a.jpg\n",
        "name,AccelX (g),AccelY (g),AccelZ (g)\n a.jpg ,0.1,-0.9,0.2\n",
        '[{"filename": "in/a.jpg", "MAPAccelerometerVector": {"x": "0.1", "y": -0.9, "z": 0.2}}, {"filename": "b.jpg"}]',
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
