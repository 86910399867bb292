"""Places on Earth: geodetic coordinates of WGS 84, and local frames whose axes point east, north and up.

Latitudes and longitudes are in degrees, heights in meters above the ellipsoid (EPSG:4979).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from jaxtyping import Float64

from veil.errors import RangeError
from veil.one_line import one_line

# NGA.STND.0036, World Geodetic System 1984, Table 3.1: semi-major axis in meters and flattening.
SEMI_MAJOR_M, FLATTENING = 6378137.0, 1 / 298.257223563
_ECCENTRICITY2 = FLATTENING * (2 - FLATTENING)
# Steps of the latitude's iteration; each multiplies the error by less than a hundredth.
_STEPS = 12


def ecef_of_geodetic(places: Float64[np.ndarray, "*batch 3"]) -> Float64[np.ndarray, "*batch 3"]:
    """Earth-centered coordinates, in meters, of latitude, longitude and height (Hofmann-Wellenhof et al. 2001, Eq. 10.1)."""
    latitude, longitude = np.radians(places[..., 0]), np.radians(places[..., 1])
    normal = SEMI_MAJOR_M / np.sqrt(1 - _ECCENTRICITY2 * np.sin(latitude) ** 2)
    out = (normal + places[..., 2]) * np.cos(latitude)
    return np.stack(
        [
            out * np.cos(longitude),
            out * np.sin(longitude),
            ((1 - _ECCENTRICITY2) * normal + places[..., 2]) * np.sin(latitude),
        ],
        axis=-1,
    )


def geodetic_of_ecef(points: Float64[np.ndarray, "*batch 3"]) -> Float64[np.ndarray, "*batch 3"]:
    """Latitude, longitude and height of earth-centered points, in meters; within 10,000 km of the ellipsoid's surface.

    The latitude is that at which the surface's normal runs through the point: a fixed point (ibid., Eq. 10.4 to 10.7).
    """
    x, y, z = np.moveaxis(points, -1, 0)
    across = np.hypot(x, y)
    latitude = np.arctan2(z, across * (1 - _ECCENTRICITY2))
    for _ in range(_STEPS):
        normal = SEMI_MAJOR_M / np.sqrt(1 - _ECCENTRICITY2 * np.sin(latitude) ** 2)
        latitude = np.arctan2(z + _ECCENTRICITY2 * normal * np.sin(latitude), across)
    normal = SEMI_MAJOR_M / np.sqrt(1 - _ECCENTRICITY2 * np.sin(latitude) ** 2)
    # Each form of the height loses digits where its divisor is small: at the poles and at the equator.
    height = across * np.cos(latitude) + z * np.sin(latitude) - SEMI_MAJOR_M**2 / normal
    return np.stack([np.degrees(latitude), np.degrees(np.arctan2(y, x)), height], axis=-1)


@dataclass(frozen=True, kw_only=True)
class EarthFrame:
    """A frame whose origin is a place and whose axes point east, north and up there (a local tangent plane, in meters).

    - `latitude_deg`, `longitude_deg`, `height_m`: the place on WGS 84, in degrees and in meters above the ellipsoid.

    Raises RangeError for a place that is none.
    """

    latitude_deg: float
    longitude_deg: float
    height_m: float

    __repr__ = one_line

    def __post_init__(self) -> None:
        require_places(np.array([[self.latitude_deg, self.longitude_deg, self.height_m]]))

    @cached_property
    def ecef_from_enu(self) -> Float64[np.ndarray, "3 3"]:
        """Rotation whose columns are east, north and up in earth-centered axes."""
        latitude, longitude = np.radians(self.latitude_deg), np.radians(self.longitude_deg)
        (s, c), (sl, cl) = (np.sin(latitude), np.cos(latitude)), (np.sin(longitude), np.cos(longitude))
        return np.array([[-sl, -s * cl, c * cl], [cl, -s * sl, c * sl], [0.0, c, s]])

    @cached_property
    def _origin(self) -> Float64[np.ndarray, "3"]:
        return ecef_of_geodetic(np.array([self.latitude_deg, self.longitude_deg, self.height_m]))

    def local(self, places: Float64[np.ndarray, "*batch 3"]) -> Float64[np.ndarray, "*batch 3"]:
        """East, north and up, in meters, of latitudes, longitudes and heights."""
        return (ecef_of_geodetic(places) - self._origin) @ self.ecef_from_enu

    def geodetic(self, points: Float64[np.ndarray, "*batch 3"]) -> Float64[np.ndarray, "*batch 3"]:
        """Latitude, longitude and height of points of the frame."""
        return geodetic_of_ecef(points @ self.ecef_from_enu.T + self._origin)


def require_places(places: Float64[np.ndarray, "n 3"]) -> None:
    """Raise RangeError for a latitude, longitude or height that no place of this Earth has."""
    latitude, longitude, height = places.T
    inside = (np.abs(latitude) <= 90) & (np.abs(longitude) <= 360) & (np.abs(height) <= 1e6)  # also refuses NaN
    if not inside.all():
        wrong = places[np.flatnonzero(~inside)[0]].tolist()
        raise RangeError(
            f"latitude must be -90 to 90, longitude -360 to 360 (degrees), height within 1,000 km (m), got {wrong}"
        )
