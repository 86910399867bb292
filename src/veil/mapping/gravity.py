"""Each image's reading of gravity against the finished map: which of them are wrong."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from jaxtyping import Float64

from veil.geometry.gravity_consensus import GravityConsensus, agree_on_down
from veil.geometry.rigid import Rigid


@dataclass(frozen=True, kw_only=True, eq=False)
class ReadingsCheck:
    """Down in the map with its standard deviation, `None` if the readings agree on none (`reason` says so), how many agree, and
    the images whose readings are wrong, with the degrees by which they are."""

    down: Float64[np.ndarray, "3"] | None = None
    sigma_deg: float | None = None
    readings: int = 0
    agreeing: int = 0
    wrong_deg: Mapping[str, float] = field(default_factory=dict)
    reason: str = ""


def checked_readings(cam_from_world: Mapping[str, Rigid], down_in_cam: Mapping[str, Float64[np.ndarray, "3"]]) -> ReadingsCheck:
    """All readings of registered images against the rotations of the map (docs/theory/gravity.md, Eq. 11-13)."""
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
