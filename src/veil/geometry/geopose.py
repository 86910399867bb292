"""Poses as OGC GeoPose 1.0 writes them (21-056r11): position on WGS 84, orientation against east, north and up.

The inner frame is that of the camera's body: x forward, y left, z up, so that yaw 0 looks east, 90 north, and positive pitch
down (a rotation about y), as Basic-YPR turns first about z, then y, then x.
"""

from __future__ import annotations

import numpy as np
from jaxtyping import Float64

from veil.geometry.georeference import Georeference
from veil.geometry.rigid import Rigid

# Columns are the body's axes forward, left and up in the camera's frame (x right, y down, z forward).
CAM_FROM_BODY = np.array([[0.0, -1.0, 0.0], [0.0, 0.0, -1.0], [1.0, 0.0, 0.0]])


def enu_from_body(place: Georeference, cam_from_map: Rigid) -> Float64[np.ndarray, "3 3"]:
    """Rotation from the body's axes to east, north and up at the camera."""
    _, enu_from_cam = place.local_frame(cam_from_map)
    return enu_from_cam @ CAM_FROM_BODY


def basic_quaternion(place: Georeference, cam_from_map: Rigid) -> dict[str, dict[str, float]]:
    """The pose as a Basic-Quaternion: latitude, longitude, height, and the unit quaternion (x, y, z, w) of `enu_from_body`."""
    x, y, z, w = quaternion_of(enu_from_body(place, cam_from_map))
    return {"position": _position(place, cam_from_map), "quaternion": {"x": x, "y": y, "z": z, "w": w}}


def basic_ypr(place: Georeference, cam_from_map: Rigid) -> dict[str, dict[str, float]]:
    """The pose as a Basic-YPR: yaw, pitch and roll in degrees; where the camera looks straight up or down, roll is 0."""
    rotation = enu_from_body(place, cam_from_map)
    pitch = np.arcsin(np.clip(-rotation[2, 0], -1, 1))
    if np.hypot(rotation[0, 0], rotation[1, 0]) > 1e-9:
        yaw, roll = np.arctan2(rotation[1, 0], rotation[0, 0]), np.arctan2(rotation[2, 1], rotation[2, 2])
    else:
        yaw, roll = np.arctan2(-rotation[0, 1], rotation[1, 1]), 0.0
    angles = {"yaw": float(np.degrees(yaw)), "pitch": float(np.degrees(pitch)), "roll": float(np.degrees(roll))}
    return {"position": _position(place, cam_from_map), "angles": angles}


def _position(place: Georeference, cam_from_map: Rigid) -> dict[str, float]:
    latitude, longitude, height = place.place(cam_from_map).tolist()
    return {"lat": latitude, "lon": longitude, "h": height}


def quaternion_of(rotation: Float64[np.ndarray, "3 3"]) -> tuple[float, float, float, float]:
    """Unit quaternion (x, y, z, w) of a rotation: the eigenvector of Bar-Itzhack (2000), Eq. 3 to 5.

    Of the two that are the same rotation, the one whose first part of w, x, y, z that is not 0 (but for rounding) is positive.
    """
    (a, b, c), (d, e, f), (g, h, i) = rotation
    matrix = np.array(
        [
            [a - e - i, d + b, g + c, h - f],
            [d + b, e - a - i, h + f, c - g],
            [g + c, h + f, i - a - e, d - b],
            [h - f, c - g, d - b, a + e + i],
        ]
    )
    found = np.linalg.eigh(matrix)[1][:, -1]
    leading = next(part for part in found[[3, 0, 1, 2]] if abs(part) > 1e-9)
    x, y, z, w = (found * np.copysign(1.0, leading)).tolist()
    return x, y, z, w
