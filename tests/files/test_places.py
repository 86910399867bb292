"""Tables of positions and places of maps: read again as written, and every slip is named with its line."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from veil.errors import FileFormatError
from veil.files.maps.places import place_facts, place_of, read_place, read_positions
from veil.geometry.georeference import georeference
from worlds import generator


def georeferenced():
    draw = generator("places file")
    return georeference(draw.normal(size=(6, 3)), np.array([55.0, 13, 80]) + draw.normal(size=(6, 3)) * [1e-4, 1e-4, 3])


def test_tables_are_read_by_their_columns(tmp_path: Path) -> None:
    path = tmp_path / "p.csv"
    path.write_text("Height, image ,latitude,accuracy,longitude\n86,a.jpg,55.5,3,13.25\n\n-1.5,b.jpg,-1,,0\n")
    table = read_positions(path)
    assert {name: row.tolist() for name, row in table.items()} == {"a.jpg": [55.5, 13.25, 86], "b.jpg": [-1, 0, -1.5]}


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "no column"),
        ("image,latitude,longitude\n", "height"),
        ("image,latitude,longitude,height\n", "holds no position"),
        ("image,latitude,longitude,height\na,1,2\n", "line 2"),
        ("image,latitude,longitude,height\na,1,2,x\n", "line 2"),
        ("image,latitude,longitude,height\na,1,2,nan\n", "finite"),
        ("image,latitude,longitude,height\na,1,2,3\na,1,2,3\n", "line 3: 'a' is there twice, first in line 2"),
    ],
)
def test_slips_are_named(tmp_path: Path, text: str, told: str) -> None:
    (tmp_path / "p.csv").write_text(text)
    with pytest.raises(FileFormatError, match=told):
        read_positions(tmp_path / "p.csv")
    (tmp_path / "p.csv").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(FileFormatError):
        read_positions(tmp_path / "p.csv")


def test_a_place_is_read_as_it_was_written(tmp_path: Path) -> None:
    """Inverse pair through JSON; wrong values are refused one by one."""
    facts = place_facts(georeferenced())
    (tmp_path / "place.json").write_text(json.dumps(facts))
    assert place_facts(read_place(tmp_path / "place.json")) == facts
    moved = facts["enu_from_map"]
    wrong: list[Any] = [
        None,
        [],
        {},
        {**facts, "place": 2},
        {**facts, "agreeing": 0},
        {**facts, "positions": 10**12},
        {**facts, "median_error_m": float("nan")},
        {**facts, "origin": {**facts["origin"], "lat": 91}},
        {**facts, "enu_from_map": {**moved, "scale": 0}},
        {**facts, "enu_from_map": {**moved, "rotation": [[1, 0, 0], [0, 1, 0], [0, 0, -1]]}},
        {**facts, "enu_from_map": {**moved, "rotation": [[1, 0], [0, 1]]}},
        {**facts, "enu_from_map": {**moved, "translation": [0, 0, 1e999]}},
    ]
    for value in wrong:
        with pytest.raises(FileFormatError, match="no place"):
            place_of(value)
    (tmp_path / "place.json").write_text("{")
    with pytest.raises(FileFormatError, match="no JSON"):
        read_place(tmp_path / "place.json")
