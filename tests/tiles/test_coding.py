"""Coding of tiles: errors of directions, sizes, places and descriptors stay within the stated bounds."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from veil.codebooks.compression import fit_pca
from veil.errors import RangeError, SpaceError
from veil.forms import Points
from veil.tiles.coding import TileCoding, fitted_scales, octahedral, unfolded
from worlds import generator, sift_like, unit
from worlds.tile_streets import SIFT


def coding(bits: int = 8) -> tuple[TileCoding, np.ndarray]:
    vectors = unit(sift_like(generator("coding"), 400))
    pca = fit_pca(vectors, 64)
    scales = fitted_scales(pca, vectors, bits)
    made = TileCoding(raw_space=SIFT, pca=pca, scales=scales, bits=bits, step=0.01, least_pixels=3.0, least_frames=0.004)
    return made, vectors


def test_directions_are_kept_within_a_degree() -> None:
    """Oracle: the defining equation, cos of the angle, for directions all around and along the edges of the octahedron."""
    random = generator("directions")
    vectors = unit(np.vstack([random.normal(size=(20000, 3)), np.eye(3), -np.eye(3), [[1, 1, 0], [-1, 0, 1], [0, -1, -1]]]))
    back = unfolded(octahedral(vectors))
    assert np.degrees(np.arccos(np.clip((vectors * back).sum(axis=1), -1, 1))).max() < 1.0
    np.testing.assert_allclose(np.linalg.norm(unfolded(np.array([[0, 0], [255, 255], [0, 255]], dtype=np.uint8)), axis=1), 1)


def test_places_and_sizes_are_kept_within_what_is_stated() -> None:
    made, _ = coding()
    random = generator("places")
    points = random.uniform(-50, 50, (5000, 3))
    errors = np.linalg.norm(made.steps(points) * made.step - points, axis=1)
    assert 0.9 * made.max_position_error < errors.max() <= made.max_position_error * (1 + 1e-9)
    pixels, frames = 3 * np.exp(random.uniform(0, 8, 500)), 0.004 * np.exp(random.uniform(0, 8, 500))
    back = made.pixels_and_frames(made.sizes(pixels, frames))
    assert np.abs(np.log2(back / np.column_stack([pixels, frames]))).max() <= 1 / 32 + 1e-9


@pytest.mark.parametrize("bits", [4, 8])
def test_descriptors_are_kept_within_half_a_level(bits: int) -> None:
    """Oracle: the compressed descriptor itself, wherever it lies within the levels."""
    made, vectors = coding(bits)
    exact = made.pca.apply(vectors)
    levels = made.levels(vectors)
    most = (1 << (bits - 1)) - 1
    assert np.abs(levels).max() <= most
    inside = np.abs(exact) <= most * made.scales
    assert inside.mean() > 0.98
    assert (np.abs(made.vectors(levels) - exact) / made.scales)[inside].max() <= 0.5 + 1e-3


def test_other_descriptors_and_numbers_that_cannot_be_are_refused() -> None:
    made, vectors = coding()
    with pytest.raises(SpaceError):
        made.compressed(Points(vectors=vectors.astype(np.float32), space=replace(SIFT, normalization="L1_ROOT")))
    for change in ({"step": float("nan")}, {"step": 0.0}, {"scales": made.scales * np.float32(np.nan)}):
        with pytest.raises(RangeError):
            replace(made, **change)
    broken = replace(made.pca, mean=made.pca.mean * np.float32(np.inf))
    with pytest.raises(RangeError, match="axes"):
        replace(made, pca=broken)
