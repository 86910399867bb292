"""Sweep in fixed point: errors of rounding to 16 bits stay within the slack, on structured data as on random."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import numpy as np
import pytest

from veil import distances
from veil.distances import FeatureSet
from veil.distances.cpu import candidates, pack, sweep
from veil.distances.cpu import compile as compiler
from veil.distances.cpu.codegen.outputs import UNTRUSTED
from veil.distances.cpu.codegen.shape import ONE, Shape
from veil.distances.cpu.prepared import Indices
from veil.distances.pairs import exact
from worlds import affine_set, generator, sift_like, unit

LANES = [lanes for lanes in (8, 16) if lanes <= compiler.host_lanes() and compiler.has_vnni(lanes)]
DIMS = [(0, 0), (0, 4), (1, 1), (2, 2), (4, 4), (2, 8), (8, 8)]
# Every vector width for the shapes that differ in their tiles and solves, this host's for the largest, which compile longest.
CASES = [(m, n, lanes) for m, n in DIMS for lanes in LANES] + [(m, n, LANES[-1]) for m, n in [(16, 16), (17, 32)] if LANES]
pytestmark = pytest.mark.skipif(not LANES, reason="this processor does not multiply 16-bit numbers in pairs (VNNI)")


def a_set(name: str, count: int, m: int, dim: int = 128, kind: type = np.float32) -> FeatureSet:
    random = generator(f"{name} {count} {m} {dim}")
    inside = unit(sift_like(random, count, dim))
    origin, basis = (inside, None) if m == 0 else affine_set(random, inside, m)
    return origin.astype(kind), None if basis is None else basis.astype(kind)


def compared(left: FeatureSet, right: FeatureSet, lanes: int) -> candidates.Compared:
    return candidates.compared(left, right, 0.5 * (left[0].mean(axis=0) + right[0].mean(axis=0)).astype(np.float64), lanes)


def engine(both: candidates.Compared) -> candidates.Compiled:
    return candidates.Compiled(both.first, both.second, replace(both.shape, fixed=True), 1)


def rows_of(kind: str, dim: int) -> np.ndarray:
    """Rows of length 1 at most: random ones, and some that rounding could change by the same amount in every coordinate."""
    random = generator(f"{kind} {dim}")
    if kind == "one axis":
        return np.concatenate([np.eye(dim), -np.eye(dim)])
    if kind == "signs":  # every coordinate is rounded by the same amount
        return random.choice([-1.0, 1.0], size=(50, dim)) / np.sqrt(dim)
    rows = unit(random.normal(size=(50, dim)))
    return rows * (1e-4 if kind == "tiny" else 1.0)


@pytest.mark.parametrize("dim", [1, 2, 15, 16, 17, 127, 128, 512])
@pytest.mark.parametrize("stored", [np.float32, np.float64])
@pytest.mark.parametrize("kind", ["random", "signs", "one axis", "tiny"])
def test_rows_are_rounded_and_entries_are_as_wrong_as_they_say(dim: int, stored: type, kind: str) -> None:
    """Oracle: NumPy's rounding; exact products of whole numbers against float64. The bound holds and is not loose."""
    rows: np.ndarray = rows_of(kind, dim).astype(stored)
    for lanes in LANES:
        padded: np.ndarray = np.full((len(rows), dim + 8), np.nan, dtype=stored)
        padded[:, :dim] = rows
        quantized, error = pack.quantized_pairs(padded, dim, 1.0, Shape(left=1, right=1, lanes=lanes, fixed=True))
        halves = quantized.view(np.int16)
        assert halves.shape == (len(rows), dim + dim % 2) and (halves[:, dim:] == 0).all()
        exact_halves = rows.astype(np.float64) * ONE
        assert np.abs(halves[:, :dim] - exact_halves).max() < 0.51
        lost = np.linalg.norm(halves[:, :dim] / ONE - rows.astype(np.float64), axis=1)
        assert 0.9 * error - 1e-6 <= lost.max() <= error + 1e-7
        whole = halves.astype(np.float64)
        products = whole @ whole.T  # exact: sums of whole numbers, far below 2^53
        assert np.abs(products).max() < 2**31
        entries = products / ONE**2 - rows.astype(np.float64) @ rows.astype(np.float64).T
        assert np.abs(entries).max() <= 2 * error + 1e-7


@cache
def squared(m: int, n: int) -> np.ndarray:
    """Squared float64 distances of the sets of 30 and 45 features, which no width changes."""
    rows, columns = np.indices((30, 45)).reshape(2, -1)
    return exact(a_set("left", 30, m), a_set("right", 45, n), rows, columns).reshape(30, 45) ** 2


@pytest.mark.slow
@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize(("m", "n", "lanes"), CASES)
def test_squared_distances_are_within_the_slack(m: int, n: int, lanes: int) -> None:
    """Oracle: the residual form in float64. Pairs of little reach are within Eq. 13, and the bound is not loose."""
    both = compared(a_set("left", 30, m), a_set("right", 45, n), lanes)
    a, b, work = both.first, both.second, engine(both)
    reach = work.reaches[0] * candidates.squared_scale(a, b)
    expected, listed = squared(m, n), work.dense(reach)
    error = np.abs(listed - (expected.T if both.swapped else expected))[listed != UNTRUSTED]
    bound = candidates.error_bound(a, b, reach, work)
    assert len(error) > 1200 and 0.01 * bound < error.max() < 0.5 * bound


@pytest.mark.slow
@pytest.mark.parametrize("angle", [0.0, 1e-4, 1e-2, 0.05, 0.1, 0.2, 0.4])
def test_near_parallel_directions_stay_within_the_slack_or_are_listed(angle: float) -> None:
    """Oracle: the residual form. Each right subspace has one direction at a small angle from a left one's."""
    random = generator(f"fixed {angle}")
    left, right = a_set("left", 30, 4, kind=np.float64), a_set("right", 30, 4, kind=np.float64)
    assert left[1] is not None and right[1] is not None
    turned = right[1].copy()
    turned[:, 0] = np.cos(angle) * left[1][:, 0] + np.sin(angle) * turned[:, 0]
    turned = np.swapaxes(np.linalg.qr(np.swapaxes(turned, 1, 2))[0], 1, 2)
    order = random.permutation(30)
    both = compared(left, (right[0][order], turned[order]), LANES[-1])
    a, b, work = both.first, both.second, engine(both)
    reach = work.reaches[0] * candidates.squared_scale(a, b)
    listed = work.dense(reach)
    rows, columns = np.indices(listed.shape).reshape(2, -1)
    error = np.abs(listed - exact(*both.sets, rows, columns).reshape(listed.shape) ** 2)[listed != UNTRUSTED]
    assert error.max() < candidates.error_bound(a, b, reach, work)
    swept = work.best_two(reach)
    if angle < 0.05:
        assert {(int(i), int(j)) for i, j in swept.doubtful} >= {(int(order[j]), j) for j in range(30)}


def test_binary_descriptors_are_matched_exactly() -> None:
    """Oracle: differing signs, counted. Rounding changes every coordinate by the same amount, and many distances tie."""
    random = generator("binary")
    signs = [random.choice([-1.0, 1.0], size=(count, 64)).astype(np.float32) for count in (1200, 1000)]
    differing = (64 - signs[0] @ signs[1].T) / 2
    left, right = ((side / 8, None) for side in signs)
    assert candidates.sweep_shape(candidates.compared(left, right, np.zeros(64))).fixed
    neighbors = distances.nearest_two(left, right, backend="cpu")
    for index, value, matrix in (
        (neighbors.right_of_left, neighbors.left_distance, differing),
        (neighbors.left_of_right, neighbors.right_distance, differing.T),
    ):
        expected = np.sort(matrix, axis=1)[:, :2]
        np.testing.assert_array_equal(np.take_along_axis(matrix, index, axis=1), expected)
        np.testing.assert_allclose(value, np.sqrt(expected) / 4, atol=1e-7)


@pytest.mark.slow
@pytest.mark.parametrize(("m", "factor"), [(2, 0.0), (2, 1e-3), (2, 1e4), (8, 1e4)])
def test_a_set_in_other_units(m: int, factor: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """Oracle: the residual form. Origins of any length, as of descriptors that are not normalized, and all of them zero."""
    monkeypatch.setattr(candidates, "FIXED_MIN", 0)
    first, second = a_set("left", 90, m), a_set("right", 70, m)
    left, right = (factor * first[0], first[1]), (factor * second[0], second[1])
    assert candidates.sweep_shape(candidates.compared(left, right, np.zeros(128))).fixed
    neighbors = distances.nearest_two(left, right, backend="cpu")
    rows, columns = np.indices((20, 70)).reshape(2, -1)
    two = np.sort(exact(left, right, rows, columns).reshape(20, 70), axis=1)[:, :2]
    np.testing.assert_allclose(neighbors.left_distance[:20], two, atol=1e-9 * max(factor, 1))


@pytest.mark.slow
def test_a_list_that_overflows_is_left_early(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nearly all pairs share a direction: fixed point gives up after a chunk, floats or the residual form answer."""
    random = generator("fixed overflow")
    common = unit(random.normal(size=(1, 128)))

    def along_it(name: str) -> FeatureSet:
        origin, basis = a_set(name, 180, 2, kind=np.float64)
        assert basis is not None
        basis[:, 0] = common + 0.02 * random.normal(size=(180, 128)) / np.sqrt(128)
        return origin, np.swapaxes(np.linalg.qr(np.swapaxes(basis, 1, 2))[0], 1, 2)

    left, right = along_it("left"), along_it("right")
    both = compared(left, right, LANES[-1])
    calls: list[int] = []
    plain = compiler.kernels

    def counted(shape: Shape, output: str) -> dict[str, compiler.Kernel]:
        functions = dict(plain(shape, output))
        if shape.fixed and "best_two" in functions:
            inner = functions["best_two"]

            def best_two(*arguments: float) -> None:
                calls.append(1)
                inner(*arguments)

            functions["best_two"] = best_two
        return functions

    monkeypatch.setattr("veil.distances.cpu.sweep.kernels", counted)
    monkeypatch.setattr(sweep, "list_capacity", lambda rows, columns: 1000)
    monkeypatch.setattr(candidates, "FIXED_MIN", 0)
    assert candidates.swept_candidates(both.first, both.second, engine(both)) is None
    assert len(calls) <= 2 * len(candidates.FIXED_REACHES) < sweep.CHUNKS
    neighbors = distances.nearest_two(left, right, backend="cpu")
    rows, columns = np.indices((10, 180)).reshape(2, -1)
    expected = np.sort(exact(left, right, rows, columns).reshape(10, 180), axis=1)[:, :2]
    np.testing.assert_allclose(neighbors.left_distance[:10], expected, atol=1e-9)


@pytest.mark.slow
@pytest.mark.parametrize("m", [0, 2, 4])
def test_more_near_duplicates_than_sixteen_bits_tell_apart(m: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Oracle: exhaustive float64 search. Crowds of nearly equal features, as of a repeated texture."""
    random = generator(f"crowds {m}")
    left, seeds = a_set("left", 24, m, kind=np.float64), a_set("seeds", 4, m, kind=np.float64)
    crowd = np.repeat(np.arange(4), 90)
    origin = seeds[0][crowd] + 1e-4 * random.normal(size=(360, 128))
    right: FeatureSet = origin, None if seeds[1] is None else seeds[1][crowd]
    monkeypatch.setattr(candidates, "FIXED_MIN", 0)
    monkeypatch.setattr(candidates, "MANY", np.inf)
    scanned_in_fixed_point = list[bool]()
    plain = candidates.Compiled.dense

    def watched(self: candidates.Compiled, reach: float, *, rows: Indices = None, columns: Indices = None) -> np.ndarray:
        scanned_in_fixed_point.append(self.shape.fixed)
        return plain(self, reach, rows=rows, columns=columns)

    monkeypatch.setattr(candidates.Compiled, "dense", watched)
    neighbors = distances.nearest_two(left, right, backend="cpu")
    rows, columns = np.indices((24, 360)).reshape(2, -1)
    expected = exact(left, right, rows, columns).reshape(24, 360)
    np.testing.assert_array_equal(neighbors.right_of_left, np.argsort(expected, axis=1)[:, :2])
    np.testing.assert_array_equal(neighbors.left_of_right, np.argsort(expected.T, axis=1)[:, :2])
    assert set(scanned_in_fixed_point) == {True, False}, "fixed point looks first and leaves crowds to single precision"


@pytest.mark.slow
def test_one_feature_far_out_costs_no_neighbor() -> None:
    """Oracle: exhaustive float64. The longest origin sets the units, so all others are rounded coarsely."""
    left, right = a_set("left", 1100, 0), a_set("right", 1000, 0)
    left[0][7] *= 50
    assert candidates.sweep_shape(candidates.compared(left, right, np.zeros(128))).fixed
    neighbors = distances.nearest_two(left, right, backend="cpu")
    expected = np.linalg.norm(left[0][:50, None].astype(np.float64) - right[0][None].astype(np.float64), axis=2)
    np.testing.assert_array_equal(neighbors.right_of_left[:50], np.argsort(expected, axis=1)[:, :2])
