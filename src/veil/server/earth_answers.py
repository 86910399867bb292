"""Poses of a map with a place on Earth, as the service answers them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from veil.files.places import place_of
from veil.geometry.geopose import basic_quaternion, basic_ypr
from veil.geometry.rigid import Rigid


def on_earth(place: Mapping[str, Any], pose: Mapping[str, Any]) -> dict[str, Any]:
    """A pose as OGC GeoPose writes it, both ways, and how far off the map's place may be.

    `place` is what `veil map align` wrote, `pose` the `cam_from_world` of an answer.
    """
    found = place_of(place)
    cam_from_map = Rigid(rotation=np.array(pose["rotation"]), translation=np.array(pose["translation"]))
    return {
        "geopose": basic_quaternion(found, cam_from_map),
        "geopose_ypr": basic_ypr(found, cam_from_map),
        "place_error_m": {"median": found.median_error_m, "largest": found.largest_error_m},
    }
