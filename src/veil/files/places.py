"""Positions of cameras on Earth as a table, and the place of a map as JSON."""

from __future__ import annotations

import csv
import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from veil.errors import FileFormatError
from veil.files.atomic import read_bytes
from veil.geometry.earth import EarthFrame
from veil.geometry.georeference import Georeference
from veil.geometry.similarity import Similarity

COLUMNS = ("image", "latitude", "longitude", "height")


def read_positions(path: Path) -> dict[str, np.ndarray]:
    """Latitude, longitude (degrees) and height (meters above the ellipsoid), float64 (3,), by image name.

    `path` is a table of text with a first line that names the columns image, latitude, longitude and height, in any order and
    among others. Raises FileFormatError, with the line at fault, for another table, an image that is there twice, or what is
    no number.
    """
    try:
        rows = list(csv.reader(read_bytes(path).decode("utf-8-sig").splitlines()))
    except (UnicodeDecodeError, csv.Error) as error:
        raise FileFormatError(f"{path} is not a text table ({error})") from None
    header = [cell.strip().lower() for cell in rows[0]] if rows else []
    if missing := [name for name in COLUMNS if name not in header]:
        raise FileFormatError(f"{path} has no column {', '.join(missing)}; its first line must name {','.join(COLUMNS)}")
    places = [header.index(name) for name in COLUMNS]
    found: dict[str, np.ndarray] = {}
    for number, row in enumerate(rows[1:], start=2):
        if not any(cell.strip() for cell in row):
            continue
        try:
            name, *numbers = (row[place].strip() for place in places)
            values = np.array([float(text) for text in numbers])
        except (IndexError, ValueError) as error:
            raise FileFormatError(f"{path}, line {number}: {error}; it must hold {','.join(COLUMNS)}") from None
        if not np.isfinite(values).all():
            raise FileFormatError(f"{path}, line {number}: a position must hold finite numbers, got {row}")
        if name in found:
            raise FileFormatError(f"{path}, line {number}: {name} is there twice")
        found[name] = values
    if not found:
        raise FileFormatError(f"{path} holds no position")
    return found


def place_facts(found: Georeference) -> dict[str, Any]:
    """A map's place as JSON values; `place_of` reads them."""
    return {
        "place": 1,
        "origin": {"lat": found.frame.latitude_deg, "lon": found.frame.longitude_deg, "h": found.frame.height_m},
        "enu_from_map": {
            "scale": found.enu_from_map.scale,
            "rotation": found.enu_from_map.rotation.tolist(),
            "translation": found.enu_from_map.translation.tolist(),
        },
        "positions": len(found.agreeing),
        "agreeing": int(found.agreeing.sum()),
        "median_error_m": found.median_error_m,
        "largest_error_m": found.largest_error_m,
        "uses_gravity": found.uses_gravity,
    }


def place_of(value: Any) -> Georeference:
    """The place that JSON values hold. Raises FileFormatError for anything else."""
    try:
        origin, moved = value["origin"], value["enu_from_map"]
        rotation = np.array(moved["rotation"], dtype=np.float64)
        translation = np.array(moved["translation"], dtype=np.float64)
        scale, median, largest = float(moved["scale"]), float(value["median_error_m"]), float(value["largest_error_m"])
        if value["place"] != 1 or rotation.shape != (3, 3) or translation.shape != (3,):
            raise ValueError("it is of another version, or its similarity of another shape")
        if not (np.abs(rotation @ rotation.T - np.eye(3)) < 1e-6).all() or np.linalg.det(rotation) < 0:
            raise ValueError("its rotation is none")
        if not (np.isfinite(translation).all() and 0 < scale < math.inf and math.isfinite(median) and math.isfinite(largest)):
            raise ValueError("a number is not finite, or the scale not positive")
        count, agreeing = int(value["positions"]), int(value["agreeing"])
        if not 0 < agreeing <= count < 1 << 24:
            raise ValueError("its number of positions is impossible")
        return Georeference(
            frame=EarthFrame(
                latitude_deg=float(origin["lat"]), longitude_deg=float(origin["lon"]), height_m=float(origin["h"])
            ),
            enu_from_map=Similarity(scale=scale, rotation=rotation, translation=translation),
            median_error_m=median,
            largest_error_m=largest,
            agreeing=np.arange(count) < agreeing,
            uses_gravity=bool(value["uses_gravity"]),
        )
    except (KeyError, TypeError, ValueError, OverflowError) as error:
        raise FileFormatError(f"this is no place of a map ({error}); make one with `veil map align`") from None


def read_place(path: Path) -> Georeference:
    """The place in a file that `veil map align` wrote. Raises FileFormatError for another file."""
    try:
        value: Mapping[str, Any] = json.loads(read_bytes(path))
    except ValueError as error:
        raise FileFormatError(f"{path} is no JSON ({error}); make it with `veil map align`") from None
    return place_of(value)
