"""A place on Earth, as `veil map align` writes it, for maps of tests: the map's own frame, ten times as large, in Lund."""

from __future__ import annotations

from typing import Any

import numpy as np

PLACE: dict[str, Any] = {
    "place": 1,
    "origin": {"lat": 55.7, "lon": 13.2, "h": 80.0},
    "enu_from_map": {"scale": 10.0, "rotation": np.eye(3).tolist(), "translation": [0.0, 0.0, 0.0]},
    "positions": 9,
    "agreeing": 8,
    "median_error_m": 1.5,
    "largest_error_m": 4.0,
    "uses_gravity": False,
}
