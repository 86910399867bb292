"""Points under rigid motions: the defining equation, inverse motions and compositions."""

from __future__ import annotations

import numpy as np
from scipy.spatial.transform import Rotation

from veil.geometry.rigid import Rigid
from worlds import generator


def motion(random: np.random.Generator) -> Rigid:
    return Rigid(rotation=Rotation.random(random_state=random).as_matrix(), translation=random.normal(size=3))


def test_points_follow_the_defining_equation() -> None:
    """Defining equation x_b = R x_a + t, point by point; no points stay no points."""
    random = generator("rigid points")
    b_from_a, points = motion(random), random.normal(size=(7, 3))
    expected = [b_from_a.rotation @ x + b_from_a.translation for x in points]
    np.testing.assert_allclose(b_from_a.apply(points), expected, atol=1e-12)
    assert b_from_a.apply(points[:0]).shape == (0, 3)


def test_inverses_and_compositions_move_points_as_their_parts_do() -> None:
    """Inverse pair; and c_from_b @ b_from_a moves points as one after the other. The center goes to the origin."""
    random = generator("rigid pairs")
    b_from_a, c_from_b, points = motion(random), motion(random), random.normal(size=(5, 3))
    np.testing.assert_allclose(b_from_a.inverse().apply(b_from_a.apply(points)), points, atol=1e-12)
    np.testing.assert_allclose((c_from_b @ b_from_a).apply(points), c_from_b.apply(b_from_a.apply(points)), atol=1e-12)
    np.testing.assert_allclose(b_from_a.apply(b_from_a.center[None]), 0, atol=1e-12)
