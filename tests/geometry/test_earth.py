"""Places on Earth against pyproj, and local frames against their defining equations."""

from __future__ import annotations

import numpy as np
import pyproj
import pytest

from veil.errors import RangeError
from veil.geometry.earth import EarthFrame, ecef_of_geodetic, geodetic_of_ecef
from worlds import generator


def places(count: int = 400) -> np.ndarray:
    """Places all over the Earth, poles, equator and the date line among them."""
    draw = generator("places")
    coordinates = np.stack(
        [draw.uniform(-90, 90, count), draw.uniform(-180, 180, count), draw.uniform(-500, 9000, count)], axis=1
    )
    special = [[90, 0, 10], [-90, 0, 10], [0, 0, 0], [0, 180, 100], [89.9999999, 45, 0], [1e-9, -179.9999999, 0]]
    return np.concatenate([coordinates, special])


def test_coordinates_are_those_of_pyproj() -> None:
    """Second method: PROJ's transformation from EPSG:4979 to EPSG:4978 and back, to a micrometer."""
    there = pyproj.Transformer.from_crs("EPSG:4979", "EPSG:4978", always_xy=True)
    coordinates = places()
    expected = np.stack(there.transform(coordinates[:, 1], coordinates[:, 0], coordinates[:, 2]), axis=1)
    np.testing.assert_allclose(ecef_of_geodetic(coordinates), expected, atol=1e-6)
    x, y, z = expected.T
    longitude, latitude, height = there.transform(x, y, z, direction="INVERSE")
    back = geodetic_of_ecef(expected)
    np.testing.assert_allclose(back[:, 0], latitude, atol=1e-11)
    np.testing.assert_allclose(back[:, 2], height, atol=1e-6)
    away = np.abs((back[:, 1] - longitude + 180) % 360 - 180)
    assert away[np.abs(coordinates[:, 0]) < 89.999].max() < 1e-11


def test_coordinates_go_there_and_back() -> None:
    """Inverse pair, from 100 km below to 10,000 km above the surface."""
    coordinates = places()
    coordinates[:, 2] = generator("heights").uniform(-1e5, 1e7, len(coordinates))
    back = geodetic_of_ecef(ecef_of_geodetic(coordinates))
    np.testing.assert_allclose(back[:, [0, 2]], coordinates[:, [0, 2]], atol=1e-6)


def test_local_axes_point_east_north_and_up() -> None:
    """Defining equations: small steps of longitude, latitude and height; the frame is right-handed and goes there and back."""
    for latitude, longitude, height in places(20)[:20]:
        frame = EarthFrame(latitude_deg=latitude, longitude_deg=longitude, height_m=height)
        np.testing.assert_allclose(frame.ecef_from_enu.T @ frame.ecef_from_enu, np.eye(3), atol=1e-14)
        assert np.linalg.det(frame.ecef_from_enu) == pytest.approx(1)
        for axis, step in ((0, [0, 1e-6, 0]), (1, [1e-6, 0, 0]), (2, [0, 0, 1])):
            moved = frame.local(np.array([latitude, longitude, height]) + step)
            assert moved[axis] > 0.999 * np.linalg.norm(moved) > 0
        points = generator("enu").normal(size=(5, 3)) * 1000
        np.testing.assert_allclose(frame.local(frame.geodetic(points)), points, atol=1e-6)


@pytest.mark.parametrize("wrong", [(91.0, 0.0, 0.0), (0.0, 361.0, 0.0), (0.0, 0.0, 1e7), (np.nan, 0.0, 0.0)])
def test_places_that_are_none_are_refused(wrong: tuple[float, float, float]) -> None:
    with pytest.raises(RangeError, match="latitude must be"):
        EarthFrame(latitude_deg=wrong[0], longitude_deg=wrong[1], height_m=wrong[2])
