"""Comparison of the images' readings of gravity with the finished map, which finds wrong readings."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from jaxtyping import Float64

from veil.geometry.gravity_consensus import GravityConsensus, agree_on_down
from veil.geometry.rigid import Rigid
from veil.one_line import one_line


@dataclass(frozen=True, kw_only=True, eq=False)
class ReadingsCheck:
    """Direction down in a map by the readings of gravity, and the readings that are wrong.

    `down` (unit vector in the world) and its standard deviation `sigma_deg` are None if the readings agree on none; `reason`
    then says why. `agreeing` of `readings` agree; `wrong_deg` gives the error in degrees of each wrong one, by image.
    """

    down: Float64[np.ndarray, "3"] | None = None
    sigma_deg: float | None = None
    readings: int = 0
    agreeing: int = 0
    wrong_deg: Mapping[str, float] = field(default_factory=dict)
    reason: str = ""

    __repr__ = one_line


def checked_readings(cam_from_world: Mapping[str, Rigid], down_in_cam: Mapping[str, Float64[np.ndarray, "3"]]) -> ReadingsCheck:
    """Check of all readings of registered images against the rotations of the map (docs/theory/gravity.md, Eq. 11-13).

    `down_in_cam` holds unit vectors down in the camera frames, by image.
    """
    names = sorted(set(cam_from_world) & set(down_in_cam))
    downs = np.array([down_in_cam[name] for name in names], dtype=np.float64).reshape(-1, 3)
    rotations = np.array([cam_from_world[name].rotation for name in names], dtype=np.float64).reshape(-1, 3, 3)
    found = agree_on_down(downs, rotations)
    if not isinstance(found, GravityConsensus):
        return ReadingsCheck(readings=found.readings, agreeing=found.agreeing, reason=found.reason)
    wrong = {names[row]: float(found.residual_deg[row]) for row in found.wrong}
    return ReadingsCheck(
        down=found.down,
        sigma_deg=found.sigma_deg,
        readings=len(names),
        agreeing=len(found.agreeing),
        wrong_deg=wrong,
    )
