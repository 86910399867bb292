"""Distances of every backend against least squares, printed equations, the dual form, and distances.md#invariants."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest

from veil import distances
from veil.distances import FeatureSet, reference
from veil.errors import InputError, RangeError, VeilError
from worlds import affine_set, generator, sift_like, through, unit

BACKENDS = ["reference", "numpy", "cpu"]
DIMS = [(1, 1), (2, 2), (4, 4), (8, 8), (16, 16), (2, 8), (8, 3), (1, 16), (18, 20)]


def descriptors(name: str, count: int, dim: int = 128) -> np.ndarray:
    return unit(sift_like(generator(name), count, dim))


def single(side: tuple[np.ndarray, np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """Set in single precision, as a release carries it."""
    return side[0].astype(np.float32), side[1].astype(np.float32)


@cache
def unrelated(m: int, n: int) -> tuple[FeatureSet, FeatureSet, np.ndarray]:
    """Two sets of subspaces that share nothing, and their distances by least squares."""
    random = generator(f"unrelated {m} {n}")
    left = single(affine_set(random, descriptors("a", 20), m))
    right = single(affine_set(random, descriptors("b", 35), n))
    return left, right, reference.subspace_to_subspace(left, right)


@cache
def neighborhood(m: int, n: int) -> tuple[FeatureSet, FeatureSet, np.ndarray]:
    """Up to 60 features, up to 150 others, and their distances by the float64 reference."""
    random = generator(f"nearest {m} {n}")
    count = 40 if m > 16 else 300
    d, e = descriptors("d", count), descriptors("e", count // 2)
    left = (d, None) if m == 0 else affine_set(random, d, m)
    right = (e, None) if n == 0 else affine_set(random, e, n)
    small = left[0][:60], None if left[1] is None else left[1][:60]
    return small, right, distances.pairwise(small, right, backend="reference")


@pytest.mark.slow
@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize(("m", "n"), DIMS)
def test_distances_agree_with_least_squares_on_unrelated_pairs(m: int, n: int, backend: distances.Backend) -> None:
    """Oracle: float64 lstsq of the same float32 numbers, to 1e-6."""
    left, right, expected = unrelated(m, n)
    assert expected.min() > 0.05
    np.testing.assert_allclose(distances.pairwise(left, right, backend=backend), expected, atol=1e-6, rtol=0)


@pytest.mark.slow
@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("m", [1, 2, 4, 16, 63, 64, 90, 127])
def test_point_distances_agree_with_least_squares(m: int, backend: distances.Backend) -> None:
    """Oracle: float64 lstsq; from m = dim / 2 the complement serves (distances.md#the-dual-form)."""
    points = descriptors("points", 30).astype(np.float32)
    lifted = single(affine_set(generator(f"p2s {m}"), descriptors("inside", 20 if 2 * m < 128 else 5), m))
    if backend == "cpu" and 2 * m >= 128:
        with pytest.raises(VeilError, match="complement"):
            distances.pairwise((points, None), lifted, backend=backend)
        return
    expected = reference.point_to_subspace(points, lifted)
    np.testing.assert_allclose(distances.pairwise((points, None), lifted, backend=backend), expected, atol=1e-6, rtol=0)
    np.testing.assert_allclose(distances.pairwise(lifted, (points, None), backend=backend), expected.T, atol=1e-6, rtol=0)


@pytest.mark.parametrize("m", [1, 3, 8, 15])
def test_primal_is_dual(m: int) -> None:
    """Second method: Dusmanu et al. 2021, Eq. 13 and 17-18, in 16 dimensions."""
    random = generator(f"dual {m}")
    left, right = affine_set(random, descriptors("a", 6, 16), m), affine_set(random, descriptors("b", 5, 16), 16 - m)
    np.testing.assert_allclose(
        reference.subspace_to_subspace_dual(left, right), reference.subspace_to_subspace(left, right), atol=1e-9
    )
    points = descriptors("p", 7, 16)
    np.testing.assert_allclose(
        reference.point_to_subspace_dual(points, left), reference.point_to_subspace(points, left), atol=1e-12
    )


@pytest.mark.parametrize("m", [2, 4, 8])
def test_printed_equations(m: int) -> None:
    """Second method: Dusmanu et al. 2021, Eq. 3, 7 and 8 as printed, which hold for generic pairs."""
    random = generator(f"printed {m}")
    left, right = affine_set(random, descriptors("a", 8), m), affine_set(random, descriptors("b", 9), m)
    np.testing.assert_allclose(
        reference.subspace_to_subspace_printed(left, right), reference.subspace_to_subspace(left, right), atol=1e-10
    )


@pytest.mark.slow
@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize(("m", "n"), [(2, 2), (4, 2), (8, 8)])
def test_invariants(m: int, n: int, backend: distances.Backend) -> None:
    """Oracle: distances.md#invariants.

    0 <= subspace to subspace <= point to subspace <= point distance; symmetry; other origins and bases of the same subspaces;
    m = 0 is the point distance.
    """
    random = generator(f"invariants {m} {n}")
    d, e = descriptors("d", 25), descriptors("e", 30)
    left, right = affine_set(random, d, m), affine_set(random, e, n)
    subspace, point = (distances.pairwise(side, right, backend=backend) for side in (left, (d, None)))
    plain = distances.pairwise((d, None), (e, None), backend=backend)
    assert (subspace >= 0).all()
    assert (subspace <= point + 1e-6).all()
    assert (point <= plain + 1e-6).all()
    np.testing.assert_allclose(distances.pairwise(right, left, backend=backend), subspace.T, atol=1e-6)
    np.testing.assert_allclose(plain, reference.point_to_point(d, e), atol=1e-6)
    turn = np.linalg.qr(random.normal(size=(25, m, m)))[0]
    moved = left[0] + np.einsum("fm,fmn->fn", random.normal(size=(25, m)), left[1])
    np.testing.assert_allclose(distances.pairwise((moved, turn @ left[1]), right, backend=backend), subspace, atol=2e-6)


@pytest.mark.slow
@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("m", [2, 4, 8, 16])
def test_a_feature_against_itself_is_zero(m: int, backend: distances.Backend) -> None:
    """Oracle: zero. N is singular here (distances.md#what-n-is-and-when-it-is-singular); the printed equations give NaN."""
    side = single(affine_set(generator(f"self {m}"), descriptors("d", 12), m))
    own = np.diagonal(distances.pairwise(side, side, backend=backend))
    assert own.max() < 1e-6
    assert distances.nearest_two(side, side, backend=backend).left_distance[:, 0].max() < 1e-6


@pytest.mark.slow
@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("m", [2, 4, 8])
@pytest.mark.parametrize("shared", [1, 2])
def test_zero_reads_as_zero_where_decoys_are_shared(m: int, shared: int, backend: distances.Backend) -> None:
    """Oracle: construction. Two lifts through one or two common points meet. Attacks need less than 1e-3; float64 has it."""
    random = generator(f"shared {m} {shared}")
    for _ in range(10):
        decoys = list(descriptors(f"decoys {random.integers(1 << 30)}", shared))
        d, e = descriptors(f"ends {random.integers(1 << 30)}", 2)
        left = single(through([d, *decoys], random.normal(size=(m - shared, 128))))
        right = single(through([e, *decoys], random.normal(size=(m - shared, 128))))
        assert distances.pairwise(left, right, backend=backend)[0, 0] < 1e-5
        assert distances.nearest_two(left, right, backend=backend).left_distance[0, 0] < 1e-5


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_parallel_direction_does_not_break_the_distance(backend: distances.Backend) -> None:
    """Oracle: least squares with the direction counted once.

    One direction is shared exactly, and the distance is not zero (distances.md#what-n-is-and-when-it-is-singular).
    """
    random = generator("parallel")
    direction = random.normal(size=128)
    d, e = descriptors("parallel ends", 2)
    left, right = through([d], np.array([direction, random.normal(size=128)])), through([e], np.array([direction]))
    expected = reference.subspace_to_subspace(left, right)[0, 0]
    assert expected > 0.3
    assert distances.pairwise(left, right, backend=backend)[0, 0] == pytest.approx(expected, abs=1e-5)


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_member_of_the_subspace_is_at_distance_zero(backend: distances.Backend) -> None:
    """Oracle: construction. Every decoy is at distance 0 from a lift through it.

    Attacks need less than 1e-3 (distribution_attacks.md#the-database-attack, distances.md#rounding).
    """
    decoys = descriptors("members", 5)
    lifted = single(through(list(decoys), np.empty((0, 128))))
    assert distances.pairwise((decoys.astype(np.float32), None), lifted, backend=backend).max() < 1e-5


@pytest.mark.slow
@pytest.mark.parametrize("backend", BACKENDS[1:])
@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize(("m", "n"), [(0, 0), (0, 4), (2, 2), (8, 4), (18, 17)])
def test_nearest_two_is_the_two_smallest_of_the_full_matrix(m: int, n: int, threads: int, backend: distances.Backend) -> None:
    """Oracle: the float64 reference matrix, sorted in both directions; values and indices."""
    small, right, expected = neighborhood(m, n)
    neighbors = distances.nearest_two(small, right, backend=backend, threads=threads)
    order = np.argsort(expected, axis=1)[:, :2]
    np.testing.assert_array_equal(neighbors.right_of_left, order)
    np.testing.assert_allclose(neighbors.left_distance, np.take_along_axis(expected, order, axis=1), atol=1e-9)
    order = np.argsort(expected.T, axis=1)[:, :2]
    np.testing.assert_array_equal(neighbors.left_of_right, order)


@pytest.mark.slow
@pytest.mark.parametrize("backend", BACKENDS[1:])
def test_tiles_cover_uneven_sizes(backend: distances.Backend) -> None:
    """More features than one tile, a size that no tile divides; oracle: the reference on a sample of rows."""
    random = generator("tiles")
    left = affine_set(random, descriptors("d", 701), 2)
    right = affine_set(random, descriptors("e", 533), 2)
    neighbors = distances.nearest_two(left, right, backend=backend, threads=2)
    rows = random.integers(0, 701, 5)
    expected = reference.subspace_to_subspace((left[0][rows], left[1][rows]), right)
    np.testing.assert_array_equal(neighbors.right_of_left[rows, 0], expected.argmin(axis=1))


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_single_rival_is_no_rival(backend: distances.Backend) -> None:
    side = affine_set(generator("one"), descriptors("one", 1), 2)
    neighbors = distances.nearest_two(side, affine_set(generator("two"), descriptors("two", 3), 2), backend=backend)
    assert neighbors.left_of_right[:, 1].tolist() == [-1, -1, -1]
    assert np.isinf(neighbors.right_distance[:, 1]).all()


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize(("count", "rivals"), [(0, 0), (0, 3), (3, 0), (1, 1)])
def test_an_empty_set_has_no_neighbors(count: int, rivals: int, backend: distances.Backend) -> None:
    """Oracle: without rivals there is no neighbor, which (-1, inf) says."""
    left, right = (affine_set(generator("e"), descriptors("empty", 4), 2) for _ in range(2))
    left, right = (left[0][:count], left[1][:count]), (right[0][:rivals], right[1][:rivals])
    assert distances.pairwise(left, right, backend=backend).shape == (count, rivals)
    neighbors = distances.nearest_two(left, right, backend=backend)
    assert (neighbors.right_of_left[:, 1] == -1).all()
    assert np.isinf(neighbors.right_distance[:, 1]).all()
    assert (neighbors.right_of_left[:, 0] == (0 if rivals else -1)).all()
    assert (neighbors.left_of_right[:, 0] == (0 if count else -1)).all()


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_what_is_no_number_is_refused(value: float, backend: distances.Backend) -> None:
    side = affine_set(generator("nan"), descriptors("nan", 4), 2)
    broken = side[1].copy()
    broken[2, 1, 5] = value
    for bad in ((side[0], broken), (broken[:, 1], side[1]), (broken[:, 1], None)):
        with pytest.raises(InputError, match="NaN"):
            distances.nearest_two(bad, side, backend=backend)
        with pytest.raises(InputError, match="NaN"):
            distances.pairwise(side, bad, backend=backend)


def test_an_unknown_backend_is_refused_not_replaced() -> None:
    side = affine_set(generator("backend"), descriptors("backend", 2), 2)
    with pytest.raises(RangeError, match="backend"):
        distances.resolve("cuda")
    with pytest.raises(InputError, match="lengths differ"):
        distances.nearest_two(side, (np.ones((2, 64)), None))
