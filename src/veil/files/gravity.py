"""Gravity readings as a table: image,x,y,z[,sigma_deg], down in the camera frame x right, y down, z forward (gravity.md#frame).

A table of a phone's sensors may hold more: where the first line names `image`, `gravity_x`, `gravity_y` and `gravity_z`, these
columns are read wherever they stand. Vectors of any length are directions.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Mapping
from pathlib import Path

import numpy as np

from veil.errors import FileFormatError, InputError, Remedy
from veil.files.atomic import read_bytes, write_text
from veil.geometry.gravity import Gravity

_COLUMNS = "image,x,y,z[,sigma_deg]"
_NAMED = ("image", "gravity_x", "gravity_y", "gravity_z")


def read_gravity(path: Path) -> dict[str, np.ndarray]:
    """Gravity by image name, from a table of lines image,x,y,z[,sigma_deg], with or without a header.

    `path` is the table's file (.csv). Each value is a float64 (3,) unit vector that points down in the camera frame (x right,
    y down, z forward; gravity.md#frame). Raises FileFormatError, with the line at fault, for another table, an empty one, or a
    vector without a direction.
    """
    return {name: reading.direction for name, reading in read_gravity_readings(path).items()}


def read_gravity_readings(path: Path) -> dict[str, Gravity]:
    """Gravity by image name as in `read_gravity`, with the standard deviation (degrees) where a line gives one."""
    try:
        rows = list(csv.reader(read_bytes(path).decode("utf-8-sig").splitlines()))
    except (UnicodeDecodeError, csv.Error) as error:
        raise FileFormatError(f"{path} is not a text table ({error})") from None
    header = [cell.strip().lower() for cell in rows[0]] if rows else []
    named = [header.index(column) for column in _NAMED] if set(_NAMED) <= set(header) else None
    if not named and any(cell.startswith("acc") for cell in header):
        raise FileFormatError(
            f"{path} holds accelerometer readings, which depend on how the phone was held",
            remedy=(Remedy("make", "table of gravity", path.name), Remedy("give", "columns", ",".join(_NAMED))),
        )
    # Words in place of the first numbers are a header, whatever they are.
    titled = bool(header[1:4]) and not any(character.isdigit() for cell in header[1:4] for character in cell)
    expected = ",".join(_NAMED) if named else _COLUMNS
    found = {}
    for number, row in enumerate(rows, start=1):
        if not row or (number == 1 and (named or titled)):
            continue
        try:
            name, x, y, z, *rest = [row[column] for column in named] if named else row
            (sigma,) = rest or [""]
            found[name.strip()] = Gravity(
                direction=np.array([float(x), float(y), float(z)]), sigma_deg=float(sigma) if sigma.strip() else None
            )
        except InputError as error:
            raise FileFormatError(f"{path}, line {number}: {error}") from None
        except (ValueError, IndexError):
            raise FileFormatError(f"{path}, line {number}: expected {expected}, got {','.join(row)!r}") from None
    if not found:
        raise FileFormatError(f"{path} holds no readings; expected lines {expected}")
    return found


def require_names(names: Iterable[str]) -> None:
    """Raise InputError for names that the table cannot hold: it is read line by line, and without the spaces around a name.

    Callers check before long work, not after.
    """
    for name in names:
        if name != name.strip() or name.splitlines() != [name]:
            raise InputError(f"the name {name!r} begins or ends with a space or spans lines; rename the photograph")


def holds_gravity(path: Path) -> bool:
    """Whether a table's first line announces gravity in camera frames; accelerometer readings alone are not gravity."""
    lines = read_bytes(path)[:10_000].decode("utf-8-sig", errors="replace").splitlines()
    header = [cell.strip().lower() for cell in lines[0].split(",")] if lines else []
    return set(_NAMED) <= set(header) or (header[:4] == ["image", "x", "y", "z"])


def write_gravity(path: Path, readings: Mapping[str, Gravity]) -> None:
    """Write the table that `read_gravity` reads, sorted by name, with nine digits; an unknown standard deviation stays empty.

    It is of photographs, so the file is for its owner alone. Raises InputError for names that the table cannot hold.
    """
    require_names(readings)
    buffer = io.StringIO()
    table = csv.writer(buffer, lineterminator="\n")
    table.writerow(["image", "x", "y", "z", "sigma_deg"])
    for name, reading in sorted(readings.items()):
        sigma = "" if reading.sigma_deg is None else f"{reading.sigma_deg:.3f}"
        table.writerow([name, *(f"{value:.9f}" for value in reading.direction), sigma])
    write_text(path, buffer.getvalue(), private=True)
