"""Nearest few features of a large database on every backend against sorting: chunks, ties, zeros and poisoned memory."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest

from veil import distances
from veil.distances import FeatureSet
from veil.distances.cpu import candidates, pack, prepared, prune, stream
from veil.distances.cpu import compile as compiler
from veil.distances.numpy import tiles
from veil.distances.pairs import exact
from veil.errors import InputError, RangeError
from worlds import affine_set, generator, sift_like, unit

BACKENDS = ["reference", "numpy", "cpu"]


def a_set(name: str, count: int, m: int) -> FeatureSet:
    random = generator(f"many {name} {count} {m}")
    inside = unit(sift_like(random, count) * 0.1 + random.normal(size=(count, 128)) * np.exp(-np.arange(128) / 12))
    origin, basis = (inside, None) if m == 0 else affine_set(random, inside, m)
    return origin.astype(np.float32), None if basis is None else basis.astype(np.float32)


@cache
def searched(m: int, n: int) -> tuple[FeatureSet, FeatureSet, np.ndarray]:
    """Queries of m dimensions, a database of n, and all their float64 distances."""
    queries, database = a_set("queries", 17, m), a_set("database", 211, n)
    return queries, database, truth(queries, database)


def truth(queries: FeatureSet, database: FeatureSet) -> np.ndarray:
    rows, columns = np.indices((len(queries[0]), len(database[0]))).reshape(2, -1)
    return exact(queries, database, rows, columns).reshape(len(queries[0]), len(database[0]))


@pytest.fixture(params=["floats", "fixed point"])
def small_chunks(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Chunks that no size divides, bounds forced, memory that starts as NaN; in single precision and in fixed point."""
    fixed = request.param == "fixed point"
    if fixed and not compiler.has_vnni(compiler.host_lanes()):
        pytest.skip("this processor does not multiply 16-bit numbers in pairs (VNNI)")
    if fixed and request.getfixturevalue("backend") != "cpu":
        pytest.skip("only the compiled kernel has it")
    monkeypatch.setattr(candidates, "FIXED_MIN", 0 if fixed else np.inf)
    monkeypatch.setattr(prune, "FIXED_ENTRIES_MIN", 1)
    monkeypatch.setattr(stream, "CHUNK_MIN", 37)
    monkeypatch.setattr(stream, "CHUNK_PAIRS", 1)
    monkeypatch.setattr(stream, "EVALUATED", 11)
    monkeypatch.setattr(tiles, "QUERIES", 7)
    monkeypatch.setattr(tiles, "ENTRIES", 90)
    monkeypatch.setattr(prune, "ENTRIES_MIN", 1)
    monkeypatch.setattr(prune, "WORTH", np.inf)
    plain = prepared.aligned

    def poisoned(count: int, kind: type = np.float32) -> np.ndarray:
        memory = plain(count, kind)
        memory.view(np.uint8)[:] = 0xFF
        return memory

    for module in (pack, prune, prepared):
        monkeypatch.setattr(module, "aligned", poisoned)


@pytest.mark.slow
@pytest.mark.usefixtures("small_chunks")
@pytest.mark.parametrize(("backend", "threads"), [("reference", 1), ("numpy", 1), ("cpu", 1), ("cpu", 3)])
@pytest.mark.parametrize(
    ("m", "n", "count"), [(4, 0, 2), (2, 0, 20), (4, 0, 60), (0, 3, 2), (0, 3, 20), (2, 2, 3), (0, 0, 1), (9, 9, 2)]
)
def test_it_is_sorting(m: int, n: int, count: int, threads: int, backend: distances.Backend) -> None:
    """Oracle: all float64 distances, sorted; queries of m dimensions, database of n."""
    queries, database, expected = searched(m, n)
    done: list[tuple[int, int]] = []
    neighbors = distances.nearest(
        queries, database, count, backend=backend, threads=threads, progress=lambda *step: done.append(step)
    )
    order = np.argsort(expected, axis=1, kind="stable")[:, :count]
    np.testing.assert_array_equal(neighbors.index, order)
    np.testing.assert_allclose(neighbors.distance, np.take_along_axis(expected, order, axis=1), atol=1e-9)
    assert done[-1] == (211, 211) and done == sorted(done)


def test_once_thresholds_are_known_many_neighbors_take_few_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Oracle: sorting. The first chunks have a part for each of 200 neighbors; in later ones that would be too many calls."""
    monkeypatch.setattr(stream, "CHUNK_MAX", 1024)
    parts, plain = [], prune.PrunedSearch.run

    def run(self: prune.PrunedSearch, threads: int) -> object:
        parts.append(self.parts)
        return plain(self, threads)

    monkeypatch.setattr(prune.PrunedSearch, "run", run)
    queries, database = a_set("queries", 3, 2), a_set("database", 4096, 0)
    neighbors = distances.nearest(queries, database, 200, backend="cpu")
    np.testing.assert_array_equal(neighbors.index, np.argsort(truth(queries, database), axis=1, kind="stable")[:, :200])
    assert parts[0] >= 200 and parts[-1] == 200 // prune.SETTLED_PARTS


@pytest.mark.usefixtures("small_chunks")
@pytest.mark.parametrize("backend", BACKENDS)
def test_repeated_entries_tie_and_keep_the_smaller_index(backend: distances.Backend) -> None:
    """Oracle: construction. The whole database three times over, members of the subspaces in it at distance zero."""
    queries, words = a_set("queries", 6, 2), a_set("database", 50, 0)[0]
    assert queries[1] is not None
    words[:6] = queries[0] + 0.3 * queries[1][:, 0]
    neighbors = distances.nearest(queries, (np.tile(words, (3, 1)), None), 3, backend=backend)
    np.testing.assert_array_equal(neighbors.index, np.arange(6)[:, None] + [0, 50, 100])
    assert neighbors.distance.max() < 1e-6


@pytest.mark.parametrize("backend", BACKENDS)
def test_bad_requests_are_refused(backend: distances.Backend) -> None:
    queries, database = a_set("queries", 3, 2), a_set("database", 5, 0)
    for count in (0, 6):
        with pytest.raises(RangeError, match="between 1 and the 5"):
            distances.nearest(queries, database, count, backend=backend)
    with pytest.raises(InputError, match="NaN"):
        distances.nearest(queries, (np.full((5, 128), np.nan), None), 1, backend=backend)
    neighbors = distances.nearest(
        (queries[0][:0], queries[1][:0] if queries[1] is not None else None), database, 2, backend=backend
    )
    assert neighbors.index.shape == (0, 2)
    assert (distances.nearest(queries, (database[0][:0], None), 1, backend=backend).index == -1).all()
    assert (distances.nearest(queries, database, 5, backend=backend).index >= 0).all()


@pytest.mark.slow
@pytest.mark.parametrize("factor", [1.0, 40.0])
def test_large_searches_use_bounds(factor: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """Oracle: float64. Queries near entries of a database on few axes are pruned, and the answers do not change.

    Nor do they where some chunks of the database have longer origins than others.
    """
    random = generator("large")
    words = unit(random.normal(size=(3000, 128)) * np.exp(-np.arange(128) / 12)).astype(np.float32)
    near = unit(words[:40] + 0.01 * random.normal(size=(40, 128)))
    queries = tuple(part.astype(np.float32) for part in affine_set(random, near, 2))
    words[2000:2300] *= factor
    monkeypatch.setattr(prune, "ENTRIES_MIN", 1 << 16)
    monkeypatch.setattr(prune, "FIXED_ENTRIES_MIN", 1 << 16)
    monkeypatch.setattr(prune, "WORTH", 2.0)
    monkeypatch.setattr(candidates, "FIXED_MIN", 0)
    monkeypatch.setattr(stream, "CHUNK_PAIRS", 40 * 600)
    used: list[object] = []

    def watched(*given: object, **options: object) -> object:
        used.append(prune.axes_worth_it(*given, **options))  # type: ignore[arg-type]
        return used[-1]

    monkeypatch.setattr(stream, "axes_worth_it", watched)
    neighbors = distances.nearest((queries[0], queries[1]), (words, None), 2, backend="cpu", threads=2)
    expected = truth((queries[0], queries[1]), (words, None))
    np.testing.assert_array_equal(neighbors.index, np.argsort(expected, axis=1)[:, :2])
    assert used[0] is not None
