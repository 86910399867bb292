"""Tables of gravity readings: unit vectors by name, or the line at fault."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from veil.errors import FileFormatError
from veil.files.gravity import read_gravity


@pytest.mark.parametrize("header", ["", "image,x,y,z\n"])
def test_readings_become_unit_vectors(tmp_path: Path, header: str) -> None:
    """Golden: (0, 9.81, 0) is down; (3, 4, 0) has length 5."""
    path = tmp_path / "g.csv"
    path.write_text(f'{header}a.jpg,0,9.81,0\n\n"db/b, c.jpg", 3, 4, 0\n', encoding="utf-8")
    found = read_gravity(path)
    assert set(found) == {"a.jpg", "db/b, c.jpg"}
    np.testing.assert_allclose(found["a.jpg"], [0, 1, 0])
    np.testing.assert_allclose(found["db/b, c.jpg"], [0.6, 0.8, 0])


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"", "holds no readings"),
        (b"image,x,y,z\n", "holds no readings"),
        (b"a,0,1,0\nb,0,1\n", "line 2: expected image,x,y,z"),
        (b"a,0,1,down\n", "line 1: expected image,x,y,z"),
        (b"a,0,0,0\n", "line 1"),
        (b"a,0,nan,0\n", "line 1"),
        (b"a,0,-9.81,0\n", "negate the readings"),
        (b"\xff\xfe\x00a", "not a text table"),
        (b'a,"' + b"1" * 200_000 + b'",0,0\n', "not a text table"),
    ],
)
def test_what_is_no_reading_is_named_by_its_line(tmp_path: Path, data: bytes, words: str) -> None:
    path = tmp_path / "g.csv"
    path.write_bytes(data)
    with pytest.raises(FileFormatError, match=words):
        read_gravity(path)


def test_a_missing_table(tmp_path: Path) -> None:
    with pytest.raises(FileFormatError, match="cannot read"):
        read_gravity(tmp_path / "none.csv")
