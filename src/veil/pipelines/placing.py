"""The place of a map on Earth, from positions of its cameras.

It is apart from `veil.geometry.georeference`, which knows arrays and no map.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from veil.errors import InputError
from veil.geometry.georeference import Georeference, georeference
from veil.pipelines.maps import Map


def align_map(where: Map, positions: Mapping[str, np.ndarray], *, seed: int = 0) -> Georeference:
    """The similarity from a map's coordinates to east, north and up in meters, from positions of its cameras on WGS 84.

    Positions that disagree with the others are left out. Cameras along a line need a map with gravity.

    - `where`: the map.
    - `positions`: by image name, float64 (3,): latitude and longitude in degrees, and height above the ellipsoid in meters, as
      `read_positions` gives them. Names that the map does not have are passed over.
    - `seed`: of the search.

    `agreeing` of the result is in the order of `placed_names`. Raises InputError for positions of no image of the map, too few
    positions, or positions that do not agree.
    """
    names = placed_names(where, positions)
    if not names:
        known = ", ".join(sorted(where.scene.images)[:3])
        raise InputError(f"the positions name none of the map's images, which are {known}; check them")
    return georeference(
        np.array([where.scene.images[name].cam_from_world.center for name in names]),
        np.array([positions[name] for name in names]),
        down=where.scene.measured_down,
        seed=seed,
    )


def placed_names(where: Map, positions: Mapping[str, np.ndarray]) -> list[str]:
    """Names of the images of the map `where` that `positions` has an entry of, sorted."""
    return sorted(set(positions) & set(where.scene.images))
