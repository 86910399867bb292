"""Text of others, whatever program wrote it: byte-order marks, JSON, and keys that stand twice."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from veil.errors import FileFormatError
from veil.files.maps.places import read_place, read_positions
from veil.files.photographs.calibration import read_numbers
from veil.files.photographs.transforms import read_frames
from veil.files.tables import read_json, read_table, read_text
from veil.geometry.earth import EarthFrame
from veil.geometry.georeference import georeference, place_facts

FRAME = {"file_path": "images/é.jpg", "transform_matrix": np.eye(4).tolist()}
FRAMES = json.dumps({"fl_x": 100, "w": 120, "h": 80, "frames": [FRAME]}, ensure_ascii=False)


def place() -> str:
    """The text of a map's place, of five cameras on a plane of the map."""
    centers, frame = (
        np.random.default_rng(0).normal(size=(5, 3)),
        EarthFrame(latitude_deg=47.0, longitude_deg=12.0, height_m=5.0),
    )
    return json.dumps(place_facts(georeference(centers, np.array([frame.geodetic(10 * center) for center in centers]))))


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16"])
@pytest.mark.parametrize(
    ("text", "read"),
    [
        ('{"a": ["é", 1]}', lambda path: read_json(path)["a"][0]),
        (FRAMES, lambda path: next(iter(read_frames(path)))),
        (place(), lambda path: round(read_place(path).frame.latitude_deg, 2)),
        ("image,latitude,longitude,height\né.jpg,1,2,3\n", lambda path: next(iter(read_positions(path)))),
        ("9 0 6\n0 9 4\n0 0 1\n", lambda path: read_numbers(path, 9).sum()),
        ("file,age\né.jpg,3\n", lambda path: read_table(path, ["file"])[0][1]["file"]),
        (" secret\n", lambda path: read_text(path).strip()),
    ],
)
def test_every_reader_takes_every_byte_order_mark(
    text: str, read: Callable[[Path], object], encoding: str, tmp_path: Path
) -> None:
    """Second method: the same text without a mark. Spreadsheets and PowerShell write marks."""
    (tmp_path / "plain").write_bytes(text.encode())
    (tmp_path / "marked").write_bytes(text.encode(encoding))
    assert read(tmp_path / "marked") == read(tmp_path / "plain")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('{"frames": [], "frames": []}', "the key 'frames' stands twice"),
        ('[{"x": 1, "y": {"x": 1, "x": 1}}]', "the key 'x' stands twice"),
        ("[" * 100_000, "is no JSON"),
        ("{", "is no JSON"),
        ("", "is no JSON"),
        ("caf\xe9", "is not text in UTF-8"),
    ],
)
def test_what_is_no_json_is_refused(text: str, words: str, tmp_path: Path) -> None:
    """Broken twin: `json.loads` alone, with which the last of two equal keys wins."""
    (tmp_path / "a.json").write_bytes(text.encode("latin-1"))
    with pytest.raises(FileFormatError, match=re.escape(words)):
        read_json(tmp_path / "a.json")
