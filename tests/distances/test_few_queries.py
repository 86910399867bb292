"""One pass of a few points over many subspaces against sorted float64 distances, which single precision cannot always order."""

from __future__ import annotations

import numpy as np
import pytest

from veil import distances
from veil.distances import SubspaceSet, few_queries, reference
from veil.distances.pairs import exact
from veil.errors import InputError, RangeError
from worlds import affine_set, generator, unit

BACKENDS: list[distances.Backend] = ["numpy", "cpu"]


@pytest.fixture(autouse=True)
def _small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Chunks whose size does not divide the databases of these tests."""
    monkeypatch.setattr(few_queries, "CHUNK", 37)
    monkeypatch.setattr(few_queries, "CACHED_NUMBERS", 1000)


def gallery(name: str, count: int, m: int, dim: int, kind: type = np.float32) -> SubspaceSet:
    random = generator(f"few {name} {count} {m} {dim}")
    origin, basis = affine_set(random, unit(random.normal(size=(count, dim))), m)
    return origin.astype(kind), basis.astype(kind)


def probes(name: str, count: int, dim: int, kind: type = np.float32) -> np.ndarray:
    return unit(generator(f"few probes {name}").normal(size=(count, dim))).astype(kind)


def all_distances(points: np.ndarray, database: SubspaceSet) -> np.ndarray:
    rows, columns = np.indices((len(points), len(database[0]))).reshape(2, -1)
    return exact((points, None), database, rows, columns).reshape(len(points), -1)


def is_sorting(points: np.ndarray, database: SubspaceSet, count: int, backend: distances.Backend, threads: int = 1) -> None:
    """Assert that the neighbors are those of a stable sort of all float64 distances in residual form."""
    assert few_queries.serves((points, None), database, count, compiled=backend == "cpu")
    neighbors = distances.nearest((points, None), database, count, backend=backend, threads=threads)
    truth = all_distances(points, database)
    order = np.argsort(truth, axis=1, kind="stable")[:, :count]
    np.testing.assert_array_equal(neighbors.index, order)
    np.testing.assert_allclose(neighbors.distance, np.take_along_axis(truth, order, axis=1), rtol=0, atol=1e-12)


@pytest.mark.slow
@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("kind", [np.float32, np.float64])
@pytest.mark.parametrize(("m", "dim", "points"), [(1, 3, 1), (4, 128, 2), (7, 33, 16), (16, 65, 3), (4, 512, 1)])
def test_it_is_sorting(m: int, dim: int, points: int, kind: type, backend: distances.Backend) -> None:
    database = gallery("sorting", 211, m, dim, kind)
    for count, threads in ((1, 1), (5, 3)):
        is_sorting(probes("sorting", points, dim, kind), database, count, backend, threads)


@pytest.mark.parametrize("backend", BACKENDS)
def test_it_agrees_with_least_squares(backend: distances.Backend) -> None:
    """Oracle: a second method, least squares in float64."""
    points, database = probes("reference", 3, 40), gallery("reference", 100, 5, 40)
    neighbors = distances.nearest((points, None), database, 100, backend="cpu")
    truth = reference.point_to_subspace(points, database)
    np.testing.assert_allclose(neighbors.distance, np.sort(truth, axis=1), atol=1e-7)
    few_found = distances.nearest((points, None), database, 4, backend=backend)
    np.testing.assert_array_equal(few_found.index, np.argsort(truth, axis=1)[:, :4])


@pytest.mark.parametrize("backend", BACKENDS)
def test_origins_need_not_be_minimal_or_near(backend: distances.Backend) -> None:
    """Oracle: sorting, with origins moved along their subspaces, and everything moved far from zero."""
    origin, basis = gallery("moved", 90, 4, 64)
    moved = origin + np.einsum("fm,fmn->fn", generator("along").normal(size=(90, 4)), basis).astype(np.float32) + np.float32(7)
    is_sorting(probes("moved", 2, 64) + np.float32(7), (moved, basis), 3, backend)


@pytest.mark.parametrize("backend", BACKENDS)
def test_differences_below_rounding_are_decided_in_float64(backend: distances.Backend) -> None:
    """Oracle: sorting. Copies of the nearest subspace, each with one coordinate one float away, among others.

    The broken twin is the order of the pass itself, which does not tell them apart.
    """
    points, (origin, basis) = probes("close", 1, 128), gallery("close", 200, 4, 128)
    best = int(np.argmin(all_distances(points, (origin, basis))))
    for k in range(60):
        origin[3 * k], basis[3 * k] = origin[best], basis[best]
        origin[3 * k, k] = np.nextafter(origin[best, k], np.float32(9))
    truth = all_distances(points, (origin, basis))[0]
    near = np.sort(truth)[:40]
    assert np.diff(near).max() < 1e-7 and np.diff(near).min() >= 0 and len(np.unique(near)) > 20
    bounding_pass = few_queries.pass_compiled if backend == "cpu" else few_queries.pass_plain
    squares, along, _ = bounding_pass(points, origin, basis)
    assert (np.argsort(squares - along, axis=0, kind="stable")[:20, 0] != np.argsort(truth, kind="stable")[:20]).any()
    is_sorting(points, (origin, basis), 20, backend)


@pytest.mark.parametrize("backend", BACKENDS)
def test_repeated_subspaces_and_zeros_keep_the_smaller_index(backend: distances.Backend) -> None:
    """Oracle: construction. The whole database three times; points that lie in three of its subspaces."""
    origin, basis = gallery("ties", 50, 3, 48)
    points = (origin + 0.4 * basis[:, 0])[[7, 30]]
    neighbors = distances.nearest((points, None), (np.tile(origin, (3, 1)), np.tile(basis, (3, 1, 1))), 3, backend=backend)
    np.testing.assert_array_equal(neighbors.index, [[7, 57, 107], [30, 80, 130]])
    assert neighbors.distance.max() < 1e-6


@pytest.mark.parametrize("backend", BACKENDS)
def test_bases_with_the_defect_that_is_allowed(backend: distances.Backend) -> None:
    """Oracle: sorting. Gram matrices are off by up to 1e-6, which changes the order of copies."""
    points, (origin, basis) = probes("defect", 2, 64, np.float64), gallery("defect", 120, 4, 64, np.float64)
    origin[60:], basis[60:] = origin[:60], basis[:60]
    mixed = np.eye(4) + 0.49e-6 * generator("mixed").uniform(-1, 1, size=(120, 4, 4))
    basis = np.einsum("fab,fbn->fan", mixed, basis)
    assert 1e-8 < np.abs(np.einsum("fan,fbn->fab", basis, basis) - np.eye(4)).max() < 1e-6
    is_sorting(points, (origin, basis), 6, backend)


@pytest.mark.parametrize("kind", [np.float32, np.float64])
def test_the_compiled_pass_takes_any_basis(kind: type) -> None:
    """Oracle: sorting. Bases that are scaled, sheared, of deficient rank or zero, among right ones."""
    points, (origin, basis) = probes("any", 2, 32), gallery("any", 100, 3, 32)
    basis[::5] *= np.float32(0.5)
    basis[1::5, 1] += np.float32(0.3) * basis[1::5, 0]
    basis[2::25, 2] = 0
    basis[7::25] = 0
    is_sorting(points, (origin.astype(kind), basis.astype(kind)), 7, "cpu")


@pytest.mark.slow
@pytest.mark.parametrize("kind", [np.float32, np.float64])
@pytest.mark.parametrize(("backend", "shear"), [("numpy", 0.0), ("cpu", 0.0), ("cpu", 0.02)])
def test_bounds_hold_and_are_narrow(shear: float, backend: distances.Backend, kind: type) -> None:
    """Oracle: the squares of float64 distances lie between the bounds, which for orthonormal bases are close to each other."""
    for m, dim in ((2, 8), (5, 128), (31, 600)):
        points, (origin, basis) = probes(f"bounds {dim}", 3, dim, kind), gallery("bounds", 60, m, dim, kind)
        basis[:, 1] += (shear * basis[:, 0]).astype(kind)
        truth = all_distances(points, (origin, basis)) ** 2
        bounding_pass = few_queries.pass_compiled if backend == "cpu" else few_queries.pass_plain
        lower, upper = few_queries._bounds(bounding_pass(points, origin, basis), (m, dim), kind)
        assert (lower <= truth).all() and (truth <= upper).all()
        if not shear:
            assert (upper - lower).max() < 1e-2


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_what_is_not_finite_is_refused(bad: float, backend: distances.Backend) -> None:
    """NaN and infinity are refused wherever they stand, even where they meet a zero of the point."""
    points = np.zeros((1, 16), dtype=np.float32)
    for part, place in ((0, (3, 2)), (1, (90, 1, 15)), (1, (5, 0, 0))):
        database = gallery("bad", 100, 2, 16)
        database[part][place] = bad
        with pytest.raises(InputError, match="right set holds NaN"):
            distances.nearest((points, None), database, 1, backend=backend)
    points[0, 4] = bad
    with pytest.raises(InputError, match="left set holds NaN"):
        distances.nearest((points, None), gallery("bad", 100, 2, 16), 1, backend=backend)
    with pytest.raises(InputError, match="left set holds NaN"):
        distances.nearest((points, None), gallery("bad", 0, 2, 16), 1, backend=backend)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("scale", [1e-30, 1e-15, 1e15])
def test_scales_at_the_ends_of_single_precision(scale: float, backend: distances.Backend) -> None:
    """Oracle: sorting. Squares that underflow are left to float64."""
    origin, basis = gallery("scale", 80, 2, 24)
    is_sorting(probes("scale", 1, 24) * np.float32(scale), (origin * np.float32(scale), basis), 2, backend)


@pytest.mark.parametrize("backend", BACKENDS)
def test_small_and_bad_requests(backend: distances.Backend) -> None:
    points, database = probes("small", 1, 20), gallery("small", 1, 2, 20)
    neighbors = distances.nearest((points, None), database, 1, backend=backend)
    np.testing.assert_allclose(neighbors.distance, all_distances(points, database))
    assert distances.nearest((points[:0], None), database, 1, backend=backend).index.shape == (0, 1)
    empty = database[0][:0], database[1][:0]
    assert (distances.nearest((points, None), empty, 1, backend=backend).index == -1).all()
    with pytest.raises(RangeError, match="between 1 and the 1"):
        distances.nearest((points, None), database, 2, backend=backend)
    done: list[tuple[int, int]] = []
    large = gallery("large", 100, 2, 20)
    distances.nearest((points, None), large, 100, backend=backend, progress=lambda *step: done.append(step))
    assert done == [(37, 100), (74, 100), (100, 100)]


@pytest.mark.parametrize("backend", BACKENDS)
def test_views_and_half_precision(backend: distances.Backend) -> None:
    """Oracle: sorting. Arrays that are not in one piece, and numbers that are stored in 16 bits."""
    origin, basis = gallery("views", 150, 4, 32)
    is_sorting(probes("views", 2, 64)[:, ::2], (origin[::2], basis[::2]), 3, backend)
    if backend == "cpu":
        half = origin.astype(np.float16), basis.astype(np.float16)
        is_sorting(probes("views", 2, 32).astype(np.float16), half, 3, backend)
