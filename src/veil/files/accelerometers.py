"""Accelerometer tables as phones and photo applications write them: one image and vector a line, in any frame and unit.

A CSV whose first line names an image (`image`, `file`, `filename`, `name` or `photo`) and x, y, z of `acc`, `accel`,
`accelerometer` or `acceleration` (`acc_x`, `accelerometer.y`, `AccelZ`), or JSON as Mapillary's tools describe images: records
with `filename` and `MAPAccelerometerVector`. What the axes mean is not in the file: `veil.geometry.device_axes` finds it.
"""

from __future__ import annotations

import csv
import json
import re
from pathlib import Path

import numpy as np

from veil.errors import FileFormatError
from veil.files.atomic import read_bytes

_NAMES = ("image", "file", "filename", "file_name", "name", "photo", "image_name")
_AXIS = re.compile(r"^(?:acc|accel|accelerometer|acceleration)[ _.\-]?([xyz])(?:[ _(\[].*)?$")
_VECTOR = "MAPAccelerometerVector"
_EXPECTED = "a column image (or file) and acc_x, acc_y, acc_z"


def read_accelerometer(path: Path) -> dict[str, np.ndarray]:
    """Vectors, float64 (3,), by image name, in the frame and unit of the file (CSV or JSON).

    Raises FileFormatError with the line or record at fault, or if there are no readings.
    """
    try:
        text = read_bytes(path).decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise FileFormatError(f"{path} is not a text table ({error})") from None
    found = _records(path, text) if text.lstrip()[:1] in ("[", "{") else _table(path, text)
    if not found:
        raise FileFormatError(f"{path} holds no readings; expected {_EXPECTED}")
    return found


def _table(path: Path, text: str) -> dict[str, np.ndarray]:
    """Vectors by image name from a CSV, whose first line names the columns."""
    try:
        rows = list(csv.reader(text.splitlines()))
    except csv.Error as error:
        raise FileFormatError(f"{path} is not a text table ({error})") from None
    header = [cell.strip().lower() for cell in rows[0]] if rows else []
    names = [column for column, cell in enumerate(header) if cell in _NAMES]
    axes = {match[1]: column for column, cell in enumerate(header) if (match := _AXIS.match(cell))}
    if not names or set(axes) != set("xyz"):
        raise FileFormatError(f"{path} has the columns {', '.join(header)[:200]!r}; expected {_EXPECTED}")
    found = {}
    for number, row in enumerate(rows[1:], start=2):
        if not row:
            continue
        try:
            found[row[names[0]].strip()] = _vector([row[axes[axis]] for axis in "xyz"])
        except (ValueError, IndexError):
            raise FileFormatError(f"{path}, line {number}: expected {_EXPECTED}, got {','.join(row)!r}") from None
    return found


def _records(path: Path, text: str) -> dict[str, np.ndarray]:
    """Vectors by image name from JSON as Mapillary's tools write it: a list of records, or records by file name."""
    try:
        data = json.loads(text)
    except ValueError as error:
        raise FileFormatError(f"{path} is damaged JSON ({error})") from None
    named = data.items() if isinstance(data, dict) else ()
    items = data if isinstance(data, list) else [{"filename": name} | item for name, item in named if isinstance(item, dict)]
    found = {}
    for number, item in enumerate(items, start=1):
        if not isinstance(item, dict) or _VECTOR not in item:
            continue
        try:
            found[Path(str(item["filename"])).name] = _vector([item[_VECTOR][axis] for axis in "xyz"])
        except (KeyError, TypeError, ValueError):
            raise FileFormatError(f"{path}, record {number}: expected filename and {_VECTOR} with x, y, z") from None
    return found


def _vector(values: list) -> np.ndarray:
    vector = np.array([float(value) for value in values], dtype=np.float64)
    if not np.isfinite(vector).all():
        raise ValueError("not finite")
    return vector
