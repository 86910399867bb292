"""Picture of a public map on the demo page: a bounded sample of its points and cameras."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np

from veil.server.jobs.processes import Tell
from veil.server.jobs.tasks import held_map

MOST_POINTS, MOST_CAMERAS = 4000, 200


def view_of(folder: str, tell: Tell) -> dict[str, Any] | None:
    """An even sample of the points and cameras of a public map, as JSON values; None for a map that is not public, or is gone.

    Positions are rounded to a ten-thousandth of the map's extent. Nothing of any descriptor is in it.
    """
    if not Path(folder).is_dir():
        return None
    scene = held_map(folder).scene
    if not scene.is_public:
        return None
    digits = max(0, 4 - math.floor(math.log10(max(scene.extent, 1e-9))))
    cameras = [scene.images[name].cam_from_world for name in sorted(scene.images)]
    rows, shown = _evenly(len(scene.points), MOST_POINTS), _evenly(len(cameras), MOST_CAMERAS)
    return {
        "points": np.round(scene.points[rows], digits).tolist(),
        "all_points": len(scene.points),
        "cameras": [
            {"rotation": cameras[row].rotation.tolist(), "translation": cameras[row].translation.tolist()} for row in shown
        ],
        "all_cameras": len(cameras),
    }


def _evenly(count: int, most: int) -> np.ndarray:
    """At most `most` of the numbers below `count`, evenly spread."""
    return np.unique(np.linspace(0, count - 1, min(count, most)).astype(np.int64))
