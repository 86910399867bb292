"""Flat objects in pictures, against rays that are cast one by one."""

from __future__ import annotations

import numpy as np
import pytest

from veil.extraction.flat_objects import EMPTY, corners_of, flat_views, painted, projected
from veil.geometry.camera import Camera
from veil.geometry.rigid import Rigid

CAMERA = Camera("PINHOLE", 120, 90, (100.0, 100.0, 60.0, 45.0))


def smooth(width: int, height: int) -> np.ndarray:
    y, x = np.mgrid[:height, :width]
    return (128 + 60 * np.sin(x / 9) + 50 * np.cos(y / 7)).astype(np.uint8)


def test_an_object_is_drawn_where_rays_meet_it() -> None:
    """Oracle: the ray of each pixel meets the object's plane, and the texture is read there. Broken twin: rays a pixel off."""
    gray, canvas = smooth(80, 60), np.full((90, 120), 7, dtype=np.uint8)
    angle = np.radians(30)
    rotation = np.array([[np.cos(angle), 0, np.sin(angle)], [0, 1, 0], [-np.sin(angle), 0, np.cos(angle)]])
    pose = Rigid(rotation=rotation, translation=np.array([0.1, -0.05, 1.2]))
    drawn, covered = painted(canvas, CAMERA, gray, pose)

    def cast(offset: float) -> np.ndarray:
        truth = np.full(canvas.shape, -1.0)
        center, high = pose.center, 60 / 80 / 2
        for y in range(90):
            for x in range(120):
                ray = rotation.T @ np.array([(x + offset - 60) / 100, (y + offset - 45) / 100, 1.0])
                at = center - ray * center[2] / ray[2]
                if abs(at[0]) < 0.5 and abs(at[1]) < high:
                    u, v = (at[0] + 0.5) * 80 - 0.5, (at[1] + high) * 80 - 0.5
                    truth[y, x] = gray[min(max(round(v), 0), 59), min(max(round(u), 0), 79)]
        return truth

    truth, twin = cast(0.5), cast(1.5)
    assert np.mean(covered != (truth >= 0)) < 0.01 and (drawn[~covered] == 7).all()
    both = covered & (truth >= 0) & (twin >= 0)
    error, shifted = (np.abs(drawn[both] - other[both]).mean() for other in (truth, twin))
    assert error < 4 and shifted > 1.5 * error


def test_views_show_the_object_alone_and_as_their_poses_say() -> None:
    """Oracle: the projected corners lie beyond the picture from the front, and the pixels at the middle are the object's."""
    gray = smooth(320, 240)
    views = flat_views(gray, width_px=160)
    assert len(views) == 5
    for picture, pose in views:
        assert picture.gray.shape == (120, 160)
        assert np.allclose(pose.apply(np.zeros((1, 3)))[0, :2], 0)
        (middle,) = projected(picture.camera, pose, np.zeros((1, 3)))
        assert np.allclose(middle, [80, 60])
        assert (picture.gray != EMPTY).mean() > 0.6
    front, pose = views[0]
    corners = projected(front.camera, pose, corners_of(gray))
    assert (corners[0] < 0).all() and (corners[2] > [160, 120]).all()
    at = 0.5 / (1.1 * 160) * 320 - 0.5  # of the pixel's center, in pixels of the object from its middle
    assert int(front.gray[60, 80]) == pytest.approx(128 + 60 * np.sin((160 + at) / 9) + 50 * np.cos((120 + at) / 7), abs=4)
