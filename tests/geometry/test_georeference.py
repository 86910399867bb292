"""The place of a map: planted similarities come back, wrong positions are named, and what is not known is refused."""

from __future__ import annotations

import numpy as np
import pytest

from veil.errors import InputError, RangeError
from veil.geometry.earth import EarthFrame
from veil.geometry.georeference import georeference
from veil.geometry.rigid import Rigid, rotation_angle_deg
from veil.geometry.similarity import Similarity, align_points
from worlds import generator

LUND = EarthFrame(latitude_deg=55.7057, longitude_deg=13.1931, height_m=86.0)


def planted(name: str, count: int, *, line: bool = False) -> tuple[np.ndarray, np.ndarray, Similarity, np.ndarray]:
    """Camera centers of a map, their places, the similarity enu_from_map, and down in the map."""
    draw = generator(f"georeference {name}")
    rotation = np.linalg.qr(draw.normal(size=(3, 3)))[0]
    rotation *= np.sign(np.linalg.det(rotation))
    truth = Similarity(scale=3.7, rotation=rotation, translation=draw.normal(size=3) * 20)
    local = draw.uniform(-40, 40, (count, 3)) * [1, 1, 0.05]
    if line:
        local = np.linspace(-1, 1, count)[:, None] * np.array([30.0, 20.0, 0.3])
    return truth.inverse().apply(local), LUND.geodetic(local), truth, rotation.T @ np.array([0.0, 0.0, -1.0])


def away(geodetic, truth: Similarity, centers: np.ndarray) -> float:
    """Largest distance of a camera's place from its true one, in meters."""
    return float(np.abs(LUND.local(geodetic.frame.geodetic(geodetic.enu_from_map.apply(centers))) - truth.apply(centers)).max())


@pytest.mark.parametrize("gravity", [False, True])
def test_a_planted_place_comes_back(gravity: bool) -> None:
    centers, places, truth, down = planted("exact", 12)
    georeferenced = georeference(centers, places, down=down if gravity else None)
    # Up at the middle of the cameras is not up twenty meters away: the Earth is round.
    tolerance = 1e-3 if gravity else 1e-6
    assert (
        away(georeferenced, truth, centers) < tolerance
        and georeferenced.agreeing.all()
        and georeferenced.largest_error_m < tolerance
    )
    assert georeferenced.uses_gravity == gravity
    pose = Rigid(rotation=np.eye(3), translation=-centers[3])
    np.testing.assert_allclose(LUND.local(georeferenced.place(pose)), LUND.local(places[3]), atol=tolerance)
    here, enu_from_cam = georeferenced.local_frame(pose)
    assert here.latitude_deg == pytest.approx(places[3, 0], abs=1e-8)
    # Axes of the camera in the planted frame, moved to the camera's own: directions to a point a meter ahead.
    ahead = LUND.geodetic(truth.apply(centers[3] + np.array([0.0, 0.0, 1 / truth.scale])))
    np.testing.assert_allclose(here.local(ahead), enu_from_cam @ [0, 0, 1], atol=1e-5)


def test_wrong_positions_are_named_and_change_nothing() -> None:
    """Planted: phones that are two meters off, and three of twenty that are a hundred.

    Broken twin: least squares over all, which the three move by more than the cameras are off.
    """
    centers, places, truth, _ = planted("phones", 20)
    draw = generator("phones")
    local = LUND.local(places) + draw.normal(size=(20, 3)) * 2
    wrong = np.array([2, 9, 15])
    local[wrong] += np.array([[80.0, -60, 10], [-90, 40, 0], [30, 100, -20]])
    georeferenced = georeference(centers, LUND.geodetic(local))
    assert not georeferenced.agreeing[wrong].any() and georeferenced.agreeing.sum() >= 15
    assert away(georeferenced, truth, centers) < 4 and 0.5 < georeferenced.median_error_m < 5
    assert np.abs(align_points(centers, local).apply(centers) - truth.apply(centers)).max() > 6


@pytest.mark.parametrize("longitude", [180.0, -180.0, 179.9999, 0.0, 360.0])
@pytest.mark.parametrize("latitude", [-16.8, 65.0, 89.9999])
def test_a_map_across_a_turn_of_longitudes_stands_where_it_was_planted(longitude: float, latitude: float) -> None:
    """Planted: as many cameras on one side of a meridian as on the other. Broken twin: medians of their longitudes."""
    _, places, truth, down = planted("meridian", 6)
    there = EarthFrame(latitude_deg=latitude, longitude_deg=longitude, height_m=20.0)
    local = np.concatenate([LUND.local(places), -LUND.local(places)])
    centers, places = truth.inverse().apply(local), there.geodetic(local)
    if longitude in (0.0, 360.0):
        places[:, 1] %= 360
    assert np.ptp(places[:, 1]) > 179
    georeferenced = georeference(centers, places, down=down)
    assert georeferenced.agreeing.all() and georeferenced.largest_error_m < 1e-2
    shown = georeferenced.frame.geodetic(georeferenced.enu_from_map.apply(centers))
    assert np.abs(there.local(shown) - local).max() < 1e-2
    frame = georeferenced.frame
    assert -180 <= frame.longitude_deg <= 180
    assert np.linalg.norm(there.local(np.array([frame.latitude_deg, frame.longitude_deg, frame.height_m]))) < 60


@pytest.mark.slow
def test_cameras_on_a_line_need_gravity() -> None:
    centers, places, truth, down = planted("line", 8, line=True)
    with pytest.raises(InputError, match="on a line"):
        georeference(centers, places)
    georeferenced = georeference(centers, places, down=down)
    assert away(georeferenced, truth, centers) < 0.02
    aside = centers.mean(axis=0) + truth.rotation.T @ np.array([-20.0, 30.0, 0.0]) / truth.scale
    assert (
        np.abs(LUND.local(georeferenced.frame.geodetic(georeferenced.enu_from_map.apply(aside))) - truth.apply(aside)).max()
        < 0.5
    )
    two = georeference(centers[[0, -1]], places[[0, -1]], down=down)
    assert rotation_angle_deg(two.enu_from_map.rotation @ georeferenced.enu_from_map.rotation.T) < 0.1


def test_what_cannot_be_told_is_refused() -> None:
    centers, places, _, down = planted("refused", 6)
    for few in (0, 1, 2):
        with pytest.raises(InputError, match="3 at least"):
            georeference(centers[:few], places[:few])
    with pytest.raises(InputError, match="2 at least"):
        georeference(centers[:1], places[:1], down=down)
    with pytest.raises(InputError):
        georeference(np.repeat(centers[:1], 6, axis=0), places)
    with pytest.raises(InputError, match="coincide"):
        georeference(centers, np.repeat(places[:1], 6, axis=0), down=down)
    with pytest.raises(RangeError):
        georeference(centers, places + 100)
