"""Gravity readings from a table: image,x,y,z, down in the camera frame x right, y down, z forward (traps S5)."""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np

from veil.errors import FileFormatError, InputError
from veil.files.atomic import read_bytes
from veil.geometry.gravity import checked_gravity


def read_gravity(path: Path) -> dict[str, np.ndarray]:
    """Unit vectors by image name; a header line `image,x,y,z` is optional. Raises FileFormatError with the line at fault."""
    try:
        rows = list(csv.reader(read_bytes(path).decode("utf-8").splitlines()))
    except (UnicodeDecodeError, csv.Error) as error:
        raise FileFormatError(f"{path} is not a text table ({error})") from None
    found = {}
    for number, row in enumerate(rows, start=1):
        if not row or (number == 1 and row[0].strip().lower() == "image"):
            continue
        try:
            name, *values = row
            x, y, z = (float(value) for value in values)
            found[name.strip()] = checked_gravity(np.array([x, y, z]))
        except InputError as error:
            raise FileFormatError(f"{path}, line {number}: {error}") from None
        except ValueError:
            raise FileFormatError(f"{path}, line {number}: expected image,x,y,z, got {','.join(row)!r}") from None
    if not found:
        raise FileFormatError(f"{path} holds no readings; expected lines image,x,y,z")
    return found
