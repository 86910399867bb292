"""Faces before a network: landmarks, and the square that they are turned into."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

from veil.errors import InputError
from veil.geometry.similarity import Similarity
from veil_faces.extraction.face_onnx import PLACES, TEMPLATE, aligned_face, five_points
from worlds import generator

COLORS = np.array([[255, 0, 0], [0, 0, 255], [0, 255, 0], [255, 255, 0], [0, 255, 255]], dtype=np.float64)


def planted(angle_deg: float, scale: float, center: tuple[float, float]) -> np.ndarray:
    """Where the template's points lie in a photograph that shows the face turned, scaled, and there."""
    c, s = np.cos(np.radians(angle_deg)), np.sin(np.radians(angle_deg))
    photo = Similarity(scale=scale, rotation=np.array([[c, -s], [s, c]]), translation=np.zeros(2))
    return photo.apply(TEMPLATE - TEMPLATE.mean(axis=0)) + np.array(center)


def dots(points: np.ndarray, sigma: float) -> np.ndarray:
    """A photograph of 420 x 380 px with a colored dot at each point."""
    x, y = np.meshgrid(np.arange(420), np.arange(380))
    weights = [np.exp(-((x - u) ** 2 + (y - v) ** 2) / (2 * sigma**2)) for u, v in points]
    return np.clip(sum(w[..., None] * color for w, color in zip(weights, COLORS, strict=True)), 0, 255).astype(np.uint8)


@pytest.mark.parametrize(("angle", "scale", "center"), [(0, 1.0, (200, 190)), (37, 2.5, (210, 180)), (-160, 1.7, (180, 200))])
@pytest.mark.parametrize("size", [112, 224])
def test_dots_at_the_landmarks_come_to_lie_on_the_template(
    angle: float, scale: float, center: tuple[float, float], size: int
) -> None:
    """Oracle: planted truth. Each dot has its own color, so that a mirrored or mixed up square would be seen."""
    points = planted(angle, scale, center)
    square = aligned_face(dots(points, 2 * scale), points, size).astype(np.float64)
    assert square.shape == (size, size, 3)
    x, y = np.meshgrid(np.arange(size), np.arange(size))
    for place, color in zip(TEMPLATE * size / 112, COLORS, strict=True):
        near = np.hypot(x - place[0], y - place[1]) < 7 * size / 112
        light = (square @ color)[near] / (color @ color)
        dot = np.array([(light * x[near]).sum(), (light * y[near]).sum()]) / light.sum()
        assert dot == pytest.approx(place, abs=0.3)
        assert light.max() == pytest.approx(1, abs=0.08)
        others = square[near] @ (255 - color) / (255 * 255)
        assert others.max() < 0.05


def test_the_five_points_are_eyes_nose_and_mouth_of_the_68() -> None:
    """Oracle: the numbering of the predictor's training set (Sagonas et al. 2013), by which an eye has six points."""
    random = generator("landmarks")
    all_points = random.integers(0, 500, (68, 2))
    landmarks = SimpleNamespace(part=lambda k: SimpleNamespace(x=int(all_points[k, 0]), y=int(all_points[k, 1])))
    five = five_points(landmarks)
    assert five[0] == pytest.approx(all_points[36:42].mean(axis=0))
    assert five[1] == pytest.approx(all_points[42:48].mean(axis=0))
    assert five[2:].tolist() == all_points[[30, 48, 54]].tolist()
    assert [len(place) for place in PLACES] == [6, 6, 1, 1, 1]


def test_landmarks_on_one_spot_are_refused() -> None:
    with pytest.raises(InputError, match="coincide"):
        aligned_face(np.zeros((50, 50, 3), dtype=np.uint8), np.full((5, 2), 20.0), 112)
