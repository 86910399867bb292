"""A map's place on Earth as JSON values, in the files of `veil map align`, on servers, and with private tiles."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from jaxtyping import Float64

from veil.errors import FileFormatError, Remedy
from veil.geometry.earth import EarthFrame
from veil.geometry.georeference import Georeference
from veil.geometry.similarity import Similarity

_ORIGIN = {"latitude_deg": "lat", "longitude_deg": "lon", "height_m": "h"}


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
        rotation, translation = _numbers(moved["rotation"]), _numbers(moved["translation"])
        scale, median, largest = (
            float(_numbers(x)) for x in (moved["scale"], value["median_error_m"], value["largest_error_m"])
        )
        if value["place"] != 1 or rotation.shape != (3, 3) or translation.shape != (3,):
            raise ValueError("it is of another version, or its similarity of another shape")
        if not (np.abs(rotation) < 2).all() or not (np.abs(rotation @ rotation.T - np.eye(3)) < 1e-6).all():
            raise ValueError("its rotation is none")
        if np.linalg.det(rotation) < 0:
            raise ValueError("its rotation is a reflection")
        if not (np.isfinite(translation).all() and 0 < scale < math.inf and math.isfinite(median) and math.isfinite(largest)):
            raise ValueError("a number is not finite, or the scale not positive")
        count, agreeing = value["positions"], value["agreeing"]
        if not type(count) is type(agreeing) is int or type(value["uses_gravity"]) is not bool:
            raise ValueError("positions and agreeing are whole numbers, and uses_gravity true or false")
        if not 0 < agreeing <= count < 1 << 24:
            raise ValueError("its number of positions is impossible")
        return Georeference(
            frame=EarthFrame(**{name: float(_numbers(origin[key])) for name, key in _ORIGIN.items()}),
            enu_from_map=Similarity(scale=scale, rotation=rotation, translation=translation),
            median_error_m=median,
            largest_error_m=largest,
            agreeing=np.arange(count) < agreeing,
            uses_gravity=value["uses_gravity"],
        )
    except (KeyError, TypeError, ValueError, OverflowError) as error:
        raise FileFormatError(f"this is no place of a map ({error})", remedy=Remedy("make", "place of a map")) from None


def _numbers(value: Any) -> Float64[np.ndarray, "..."]:
    """Numbers as they stand in JSON. Raises ValueError for texts and truth values, which NumPy would take for some."""
    found = np.array(value)
    if found.dtype.kind not in "if":
        raise ValueError("a number is none")
    return found.astype(np.float64)
