"""Which cameras could have seen a point of a map as one of its images does (veil.geometry.views)."""

import math

import numpy as np
import pytest

from veil.geometry.camera import Camera
from veil.geometry.rigid import Rigid
from veil.geometry.views import MOST_TURN_DEG, MOST_ZOOM, MapViews, diagonal_px, map_views

PHONE = Camera(model="PINHOLE", width_px=800, height_px=600, params=(700.0, 700.0, 400.0, 300.0))
POSTER = Camera(model="PINHOLE", width_px=4000, height_px=3000, params=(3500.0, 3500.0, 2000.0, 1500.0))


def facing(center: np.ndarray) -> Rigid:
    """A camera at `center`, which way it looks does not matter here."""
    return Rigid(rotation=np.eye(3), translation=-np.asarray(center, dtype=float))


def by_definition(
    images: list[tuple[Camera, Rigid, np.ndarray]], points: np.ndarray, camera: Camera, center: np.ndarray
) -> list[bool]:
    """For each point, whether some image sees it from within the angle and at a size within the factor (plain loops)."""
    possible = []
    for row, point in enumerate(points):
        alike = False
        for other, pose, seen in images:
            if row not in seen:
                continue
            here, there = center - point, pose.center - point
            cosine = here @ there / max(np.linalg.norm(here), 1e-12) / max(np.linalg.norm(there), 1e-12)
            size, its_size = (
                one.focal_px / max(float(np.linalg.norm(way)), 1e-12) for one, way in ((camera, here), (other, there))
            )
            ratios = size / its_size, (size / diagonal_px(camera)) / (its_size / diagonal_px(other))
            near = any(abs(math.log(ratio)) <= math.log(MOST_ZOOM) for ratio in ratios)
            alike = alike or (cosine >= math.cos(math.radians(MOST_TURN_DEG)) and near)
        possible.append(alike)
    return possible


def a_map(seed: int) -> tuple[list[tuple[Camera, Rigid, np.ndarray]], np.ndarray]:
    """Images of two cameras all around some points, each of which sees a part of them; the last point is seen by none."""
    generator = np.random.default_rng(seed)
    points = generator.normal(size=(40, 3))
    images = []
    for index in range(12):
        center = generator.normal(size=3) * generator.choice([2.0, 10.0, 60.0])
        seen = np.flatnonzero(generator.random(len(points) - 1) < 0.2)
        images.append((PHONE if index % 3 else POSTER, facing(center), seen))
    return images, points


@pytest.mark.parametrize("seed", range(5))
def test_possible_is_what_the_definition_says(seed: int) -> None:
    images, points = a_map(seed)
    views = map_views(images, points)
    generator = np.random.default_rng(100 + seed)
    answers = []
    for scale in (0.5, 3.0, 10.0, 60.0, 500.0):
        center = generator.normal(size=3) * scale
        rows = generator.permutation(len(points))
        for camera in (PHONE, POSTER):
            possible = views.possible(camera, facing(center), points, rows)
            assert possible.tolist() == np.array(by_definition(images, points, camera, center))[rows].tolist()
            answers += possible.tolist()
    assert any(answers) and not all(answers)


def test_a_pose_that_is_no_number_sees_nothing() -> None:
    images, points = a_map(0)
    views, rows = map_views(images, points), np.arange(len(points))
    lost = Rigid(rotation=np.eye(3), translation=np.full(3, np.nan))
    assert not views.possible(PHONE, lost, points, rows).any()
    far = Rigid(rotation=np.eye(3), translation=np.array([1e300, 0, 0]))
    assert not views.possible(PHONE, far, points, rows).any()


def test_a_camera_in_a_point_and_no_rows_are_answered() -> None:
    images, points = a_map(1)
    views = map_views(images, points)
    assert not views.possible(PHONE, facing(points[3]), points, np.array([3])).any()
    assert views.possible(PHONE, facing(points[3]), points, np.empty(0, dtype=np.int64)).shape == (0,)


def test_a_small_copy_of_a_photograph_is_as_large_in_its_picture() -> None:
    """The size in pixels is off by a factor of five, the one in diagonals of the picture is not."""
    point = np.zeros((1, 3))
    views = map_views([(POSTER, facing(np.array([0.0, 0.0, 5.0])), np.array([0]))], point)
    assert views.possible(PHONE, facing(np.array([0.0, 0.0, 5.0])), point, np.array([0])).all()
    assert not views.possible(PHONE, facing(np.array([0.0, 0.0, 25.0])), point, np.array([0])).any()
    assert isinstance(views, MapViews)
