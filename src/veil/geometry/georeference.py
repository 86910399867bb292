"""A map's place on Earth: the similarity from its frame to east, north and up, its JSON record, and poses as GeoPose.

Positions of phones are off by meters, and a few by tens of meters, so that the similarity is that of the cameras that agree
(least median of squares, Rousseeuw 1984), and the error that it leaves is told.

The record is that of files of `veil map align`, of servers and of private tiles. A GeoPose (OGC GeoPose 1.0, 21-056r11) is a
position on WGS 84 and an orientation against east, north and up. Its inner frame is that of the camera's body: x forward, y
left, z up, so that yaw 0 looks east, 90 north, and positive pitch down (a rotation about y), as Basic-YPR turns first about z,
then y, then x.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Bool, Float64

from veil.errors import FileFormatError, InputError, Remedy
from veil.geometry.earth import EarthFrame, ecef_of_geodetic, geodetic_of_ecef, require_places
from veil.geometry.rigid import Rigid
from veil.geometry.similarity import Similarity, align_points
from veil.one_line import one_line

SAMPLES = 2000
# Cameras on a line, nearly: their spread across it is less than this share of that along it.
ON_A_LINE = 0.02
# A normal distribution's deviation as a multiple of the median of its absolute values, and how many of them agree.
_DEVIATION, _AGREE = 1.4826, 2.5


@dataclass(frozen=True, kw_only=True, eq=False)
class Georeference:
    """The place of a map on Earth.

    - `frame`: east, north and up at the middle of the positions.
    - `enu_from_map`: similarity from the map's coordinates to that frame, in meters.
    - `median_error_m`, `largest_error_m`: distances of the cameras that agree from their given positions.
    - `agreeing`, bool (n,): which of the positions they are.
    - `uses_gravity`: whether the map's gravity told what the positions alone do not.
    """

    frame: EarthFrame
    enu_from_map: Similarity
    median_error_m: float
    largest_error_m: float
    agreeing: Bool[np.ndarray, "n"]
    uses_gravity: bool

    __repr__ = one_line

    def place(self, cam_from_map: Rigid) -> Float64[np.ndarray, "3"]:
        """Latitude, longitude and height of a camera."""
        return self.frame.geodetic(self.enu_from_map.apply(cam_from_map.center))

    def local_frame(self, cam_from_map: Rigid) -> tuple[EarthFrame, Float64[np.ndarray, "3 3"]]:
        """East, north and up at a camera itself, and the rotation from its axes (x right, y down, z forward) to them."""
        latitude, longitude, height = self.place(cam_from_map).tolist()
        here = EarthFrame(latitude_deg=latitude, longitude_deg=longitude, height_m=height)
        enu_from_cam = self.enu_from_map.rotation @ cam_from_map.rotation.T
        return here, here.ecef_from_enu.T @ self.frame.ecef_from_enu @ enu_from_cam


def georeference(
    centers: Float64[np.ndarray, "n 3"],
    places: Float64[np.ndarray, "n 3"],
    *,
    down: Float64[np.ndarray, "3"] | None = None,
    seed: int = 0,
) -> Georeference:
    """The place of a map on Earth from positions of its cameras.

    - `centers`, float64 (n, 3): of cameras, in the map's coordinates.
    - `places`, float64 (n, 3): latitude, longitude (degrees) and height (meters above the ellipsoid) of the same cameras.
    - `down`, float64 (3,): unit vector of gravity in the map's coordinates, which cameras along a line need.
    - `seed`: of the samples.

    Raises InputError for fewer than three positions (two with gravity), for cameras on a line without gravity, and if less than
    half of the positions agree with any similarity; RangeError for places that are none.
    """
    require_places(places)
    least = 3 if down is None else 2
    if len(centers) != len(places) or len(centers) < least:
        raise InputError(
            f"the positions of {len(places)} cameras of the map are given; {least} at least are needed"
            + ("" if down is not None else " (2 where the map has gravity)"),
            remedy=() if down is not None else Remedy("give", "map_images.gravity"),
        )
    frame = middle_frame(places)
    local = frame.local(places)
    if down is None:
        _require_spread(centers)
    errors = _least_median(centers, local, down, least, seed)
    scale = _DEVIATION * float(np.median(errors)) * (1 + 5 / max(1, len(errors) - least))
    agreeing = errors <= max(_AGREE * scale, 1e-6)
    if agreeing.sum() < max(least, (len(errors) + 1) // 2):
        raise InputError("the positions contradict each other: less than half of them agree with any place of the map")
    if down is None:
        _require_spread(centers[agreeing])
    fitted = _similarity(centers[agreeing], local[agreeing], down)
    left = np.linalg.norm(fitted.apply(centers[agreeing]) - local[agreeing], axis=1)
    return Georeference(
        frame=frame,
        enu_from_map=fitted,
        median_error_m=float(np.median(left)),
        largest_error_m=float(left.max()),
        agreeing=agreeing,
        uses_gravity=down is not None,
    )


def middle_frame(places: Float64[np.ndarray, "n 3"]) -> EarthFrame:
    """The frame at the medians of latitude, longitude and height, where longitudes are counted around the middle of the places.

    Longitudes lie on a circle: 179 and -179 degrees are two degrees apart, and so are 359 and 1. The frame's is -180 to 180.
    """
    around_deg = geodetic_of_ecef(np.median(ecef_of_geodetic(places), axis=0))[1]
    longitudes = places[:, 1] + 360 * np.round((around_deg - places[:, 1]) / 360)  # whole turns change no digit of most
    longitude_deg = float(np.median(longitudes))
    if abs(longitude_deg) > 180:
        longitude_deg -= math.copysign(360, longitude_deg)
    latitude_deg, height_m = np.median(places[:, [0, 2]], axis=0).tolist()
    return EarthFrame(latitude_deg=latitude_deg, longitude_deg=longitude_deg, height_m=height_m)


def _require_spread(centers: Float64[np.ndarray, "n 3"]) -> None:
    """Raise InputError for cameras on a line: how the map is turned about it is not known."""
    spread = np.linalg.svd(centers - centers.mean(axis=0), compute_uv=False)
    if not spread[1] > ON_A_LINE * spread[0]:
        raise InputError(
            "the cameras lie on a line, so that their positions do not tell how the map is turned about it",
            remedy=(Remedy("give", "georeference.places"), Remedy("give", "map_images.gravity")),
        )


def _least_median(
    centers: Float64[np.ndarray, "n 3"],
    local: Float64[np.ndarray, "n 3"],
    down: Float64[np.ndarray, "3"] | None,
    count: int,
    seed: int,
) -> Float64[np.ndarray, "n"]:
    """Errors of all positions under that similarity of a few of them which has the least median error."""
    generator = np.random.default_rng(seed)
    best: tuple[float, np.ndarray] | None = None
    for turn in range(SAMPLES):
        rows = generator.choice(len(centers), count, replace=False) if turn else np.arange(len(centers))
        try:
            similarity = _similarity(centers[rows], local[rows], down)
        except InputError:
            continue
        errors = np.linalg.norm(similarity.apply(centers) - local, axis=1)
        median = float(np.median(errors))
        if best is None or median < best[0]:
            best = median, errors
    if best is None:
        raise InputError("the positions coincide, or those of the cameras do; nothing tells the map's scale")
    return best[1]


def _similarity(
    centers: Float64[np.ndarray, "n 3"], local: Float64[np.ndarray, "n 3"], down: Float64[np.ndarray, "3"] | None
) -> Similarity:
    """Least-squares similarity, upright where gravity is known. Raises InputError if the points of a frame coincide."""
    if down is None:
        return align_points(centers, local)
    upright = _turned_to_down(down)
    a, b = centers @ upright.T, local
    a_mean, b_mean = a.mean(axis=0), b.mean(axis=0)
    a, b = a - a_mean, b - b_mean
    turn = np.angle(((b[:, 0] + 1j * b[:, 1]) * (a[:, 0] - 1j * a[:, 1])).sum())
    yaw = np.array([[np.cos(turn), -np.sin(turn), 0.0], [np.sin(turn), np.cos(turn), 0.0], [0.0, 0.0, 1.0]])
    total = float((a**2).sum())
    scale = float(((a @ yaw.T) * b).sum()) / total if total > 0 else 0.0
    if not scale > 0:
        raise InputError("the positions coincide; no scale follows from them")
    rotation = yaw @ upright
    return Similarity(scale=scale, rotation=rotation, translation=b_mean - scale * yaw @ a_mean)


def _turned_to_down(down: Float64[np.ndarray, "3"]) -> Float64[np.ndarray, "3 3"]:
    """A rotation that takes a unit vector to (0, 0, -1)."""
    up = -down / np.linalg.norm(down)
    side = np.cross(up, [1.0, 0.0, 0.0] if abs(up[0]) < 0.9 else [0.0, 1.0, 0.0])
    side /= np.linalg.norm(side)
    return np.stack([side, np.cross(up, side), up])


_ORIGIN = {"latitude_deg": "lat", "longitude_deg": "lon", "height_m": "h"}


def place_facts(place: Georeference) -> dict[str, Any]:
    """A map's place as JSON values; `place_of` reads them."""
    return {
        "place": 1,
        "origin": {"lat": place.frame.latitude_deg, "lon": place.frame.longitude_deg, "h": place.frame.height_m},
        "enu_from_map": {
            "scale": place.enu_from_map.scale,
            "rotation": place.enu_from_map.rotation.tolist(),
            "translation": place.enu_from_map.translation.tolist(),
        },
        "positions": len(place.agreeing),
        "agreeing": int(place.agreeing.sum()),
        "median_error_m": place.median_error_m,
        "largest_error_m": place.largest_error_m,
        "uses_gravity": place.uses_gravity,
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
    numbers = np.array(value)
    if numbers.dtype.kind not in "if":
        raise ValueError("a number is none")
    return numbers.astype(np.float64)


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
    quaternion = np.linalg.eigh(matrix)[1][:, -1]
    leading = next(part for part in quaternion[[3, 0, 1, 2]] if abs(part) > 1e-9)
    x, y, z, w = (quaternion * np.copysign(1.0, leading)).tolist()
    return x, y, z, w
