"""A map's place on Earth as JSON values, in the files of `veil map align`, on servers, and with private tiles."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from veil.errors import FileFormatError
from veil.geometry.earth import EarthFrame
from veil.geometry.georeference import Georeference
from veil.geometry.similarity import Similarity


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
        if not (np.abs(rotation) < 2).all() or not (np.abs(rotation @ rotation.T - np.eye(3)) < 1e-6).all():
            raise ValueError("its rotation is none")
        if np.linalg.det(rotation) < 0:
            raise ValueError("its rotation is a reflection")
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
