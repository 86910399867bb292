"""Similarities of least squares between corresponding points."""

from __future__ import annotations

import numpy as np
import pytest

from veil.errors import InputError
from veil.geometry.similarity import align_points
from worlds import generator


def turn(dim: int, random: np.random.Generator) -> np.ndarray:
    """A random rotation."""
    basis = np.linalg.qr(random.normal(size=(dim, dim)))[0]
    basis[:, 0] *= np.linalg.det(basis)
    return basis


@pytest.mark.parametrize("dim", [2, 3])
def test_a_planted_similarity_is_found(dim: int) -> None:
    """Oracle: planted truth, also where the points lie in a plane of fewer dimensions."""
    random = generator("planted similarity")
    for case in range(20):
        rotation, scale, move = turn(dim, random), float(random.uniform(0.01, 50)), random.normal(scale=100, size=dim)
        a = random.normal(size=(5, dim))
        if case % 4 == 0:
            a[:, -1] = 0
        alignment = align_points(a, scale * a @ rotation.T + move)
        assert alignment.scale == pytest.approx(scale) and alignment.rotation == pytest.approx(rotation, abs=1e-9)
        assert alignment.translation == pytest.approx(move, abs=1e-8)
        assert alignment.apply(a) == pytest.approx(scale * a @ rotation.T + move)


@pytest.mark.parametrize("mirrored", [False, True])
def test_it_is_the_least_squares_one_and_never_a_reflection(mirrored: bool) -> None:
    """Oracle: a second method. In the plane a similarity is b = c a + t in complex numbers, and least squares are linear.

    Mirrored points are where Umeyama's matrix S decides: without it the determinant would be -1.
    """
    random = generator("noisy similarity")
    for _ in range(20):
        a, b = random.normal(size=(5, 2)), random.normal(size=(5, 2))
        b += 3 * a * ([-1, 1] if mirrored else [1, 1])
        alignment = align_points(a, b)
        assert np.linalg.det(alignment.rotation) == pytest.approx(1)
        x, y = a @ [1, 1j], b @ [1, 1j]
        c = np.vdot(x - x.mean(), y - y.mean()) / np.vdot(x - x.mean(), x - x.mean()).real
        assert alignment.apply(a) @ [1, 1j] == pytest.approx(y.mean() + c * (x - x.mean()))


def test_points_that_coincide_are_refused() -> None:
    spread = generator("coincide").normal(size=(5, 2))
    one = np.ones((5, 2))
    for a, b in ((one, spread), (spread, one), (spread, np.full((5, 2), np.nan))):
        with pytest.raises(InputError, match="coincide"):
            align_points(a, b)
