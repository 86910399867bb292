"""Positions of cameras on Earth as a table, and the place of a map as JSON."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from veil.errors import FileFormatError
from veil.files.atomic import write_text
from veil.files.tables import once, read_json, read_rows, require_single
from veil.geometry.georeference import Georeference
from veil.geometry.georeference import place_facts as place_facts
from veil.geometry.georeference import place_of as place_of

COLUMNS = ("image", "latitude", "longitude", "height")


def read_positions(path: Path | str) -> dict[str, np.ndarray]:
    """Latitude, longitude (degrees) and height (meters above the ellipsoid), float64 (3,), by image name.

    `path` is a table of text with a first line that names the columns image, latitude, longitude and height, in any order and
    among others. Raises FileFormatError, with the line at fault, for another table, an image that is there twice, or what is
    no number.
    """
    path = Path(path)
    positions = once(path, _positions(path))
    if not positions:
        raise FileFormatError(f"{path} holds no position")
    return positions


def _positions(path: Path) -> Iterator[tuple[str, str, np.ndarray]]:
    """The line, image and position of each row."""
    rows = read_rows(path)
    header = [cell.lower() for cell in rows[0][1]] if rows else []
    if missing := [name for name in COLUMNS if name not in header]:
        raise FileFormatError(f"{path} has no column {', '.join(missing)}; its first line must name {','.join(COLUMNS)}")
    require_single(path, header, COLUMNS)
    places = [header.index(name) for name in COLUMNS]
    for number, row in rows[1:]:
        try:
            name, *numbers = (row[place] for place in places)
            values = np.array([float(text) for text in numbers])
        except (IndexError, ValueError) as error:
            raise FileFormatError(f"{path}, line {number}: {error}; it must hold {','.join(COLUMNS)}") from None
        if not np.isfinite(values).all():
            raise FileFormatError(f"{path}, line {number}: a position must hold finite numbers, got {row}")
        yield f"line {number}", name, values


def write_place(path: Path | str, place: Georeference) -> None:
    """Write `place` to the file `path` as JSON, as `veil map align` does. Raises InputError if it cannot be written."""
    write_text(Path(path), json.dumps(place_facts(place), indent=2) + "\n")


def read_place(path: Path | str) -> Georeference:
    """The place in the file `path` that `veil map align` or `write_place` wrote. Raises FileFormatError for another file."""
    return place_of(read_json(Path(path)))
