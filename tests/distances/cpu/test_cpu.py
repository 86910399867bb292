"""Compiled kernel against float64: all dimensions, vector widths and sizes, ties, shared points and directions."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import numpy as np
import pytest

from veil import distances
from veil.distances import FeatureSet, reference
from veil.distances.cpu import candidates, pack, sweep
from veil.distances.cpu import compile as compiler
from veil.distances.cpu.codegen.outputs import UNTRUSTED
from veil.distances.cpu.codegen.shape import Shape, even
from veil.distances.cpu.pack import pack_right
from veil.distances.cpu.prepared import aligned
from veil.distances.pairs import best, exact
from veil.errors import RangeError, VeilError, VeilWarning
from worlds import affine_set, generator, sift_like, through, unit

LANES = [lanes for lanes in (4, 8, 16) if lanes <= compiler.host_lanes()]
# Every vector width for the shapes that differ in their tiles and solves, this host's for the others.
DIMS = [(1, 1), (2, 2), (4, 4), (8, 8), (0, 4), (2, 8)]
MORE_DIMS = [(3, 3), (7, 7), (16, 16), (32, 32), (0, 0), (0, 1), (8, 0), (0, 40), (8, 3), (1, 17)]
CASES = [(m, n, lanes) for m, n in DIMS for lanes in LANES] + [(m, n, LANES[-1]) for m, n in MORE_DIMS]


@pytest.fixture(params=["floats", "fixed point"])
def numbers(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Sets of any size are swept in single precision, or in fixed point."""
    fixed = request.param == "fixed point"
    if fixed and not compiler.has_vnni(LANES[-1]):
        pytest.skip("this processor does not multiply 16-bit numbers in pairs (VNNI)")
    monkeypatch.setattr(candidates, "FIXED_MIN", 0 if fixed else np.inf)


@pytest.fixture(autouse=True)
def _compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sets of any size are packed and searched by compiled code."""
    for module in (pack, sweep):
        monkeypatch.setattr(module, "COMPILED_MIN", 0)


def a_set(name: str, count: int, m: int, dim: int = 128, kind: type = np.float32) -> FeatureSet:
    random = generator(f"{name} {count} {m} {dim}")
    inside = unit(sift_like(random, count, dim))
    origin, basis = (inside, None) if m == 0 else affine_set(random, inside, m)
    return origin.astype(kind), None if basis is None else basis.astype(kind)


def head(side: FeatureSet, count: int) -> FeatureSet:
    return side[0][:count], None if side[1] is None else side[1][:count]


def truth(left: FeatureSet, right: FeatureSet) -> np.ndarray:
    """Float64 distances of all pairs in residual form, which counts shared directions once.

    Theory: distances.md#what-n-is-and-when-it-is-singular.
    """
    rows, columns = np.indices((len(left[0]), len(right[0]))).reshape(2, -1)
    return exact(left, right, rows, columns).reshape(len(left[0]), len(right[0]))


@cache
def measured(m: int, n: int, left: int, right: int, dim: int = 128) -> tuple[FeatureSet, FeatureSet, np.ndarray]:
    """Two sets of these sizes and their distances, which no width, thread or kind of number changes."""
    sides = a_set("left", left, m, dim), a_set("right", right, n, dim)
    return *sides, truth(*sides)


def compared(left: FeatureSet, right: FeatureSet, lanes: int | None = None) -> candidates.Compared:
    return candidates.compared(left, right, 0.5 * (left[0].mean(axis=0) + right[0].mean(axis=0)).astype(np.float64), lanes)


def nearest(left: FeatureSet, right: FeatureSet, lanes: int | None = None, threads: int = 1) -> distances.NearestTwo:
    """Result of `nearest_two` for a given vector width."""
    both = compared(left, right, lanes)
    pairs = candidates.candidates(both, threads)
    assert pairs is not None
    value = candidates.distances(both, pairs, threads)
    rows, columns = sweep.two_best(*pairs, value, (len(left[0]), len(right[0])), both.shape)
    return distances.NearestTwo(
        right_of_left=rows[0], left_distance=rows[1], left_of_right=columns[0], right_distance=columns[1]
    )


def check_nearest(neighbors: distances.NearestTwo, expected: np.ndarray, tol: float = 1e-12) -> None:
    """Assert values and indices of an exhaustive float64 search; where values tie to `tol`, any of the tied indices will do."""
    for index, value, matrix in (
        (neighbors.right_of_left, neighbors.left_distance, expected),
        (neighbors.left_of_right, neighbors.right_distance, expected.T),
    ):
        two = min(2, matrix.shape[1])
        order = np.argsort(matrix, axis=1, kind="stable")[:, :two]
        np.testing.assert_allclose(value[:, :two], np.take_along_axis(matrix, order, axis=1), atol=tol, rtol=0)
        np.testing.assert_allclose(
            np.take_along_axis(matrix, index[:, :two], axis=1), np.take_along_axis(matrix, order, axis=1), atol=tol, rtol=0
        )
        assert (index[:, two:] == -1).all()
        assert (np.diff(np.sort(index[:, :two], axis=1), axis=1) > 0).all()


@pytest.mark.slow
@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize(("m", "n", "lanes"), CASES)
def test_every_dimension_and_width(m: int, n: int, lanes: int) -> None:
    """Oracle: least squares in float64 on a sample of the pairs for the dense output, the residual form for the best two."""
    left, right = a_set("left", 13 if m < 16 else 4, m), a_set("right", lanes + 3, n)
    both = compared(left, right, lanes)
    a, b = both.first, both.second
    squared = candidates.Compiled(a, b, both.shape, 1).dense(candidates.DENSE_REACH * candidates.squared_scale(a, b))
    squared = squared.T if both.swapped else squared
    expected = distances.pairwise(head(left, 3), right, backend="reference")
    known = squared[:3] != UNTRUSTED
    assert known.mean() > 0.9 or max(m, n) >= 16
    np.testing.assert_allclose(np.sqrt(squared[:3][known]), expected[known], atol=1.5e-6, rtol=0)
    check_nearest(nearest(left, right, lanes), truth(left, right))


@pytest.mark.slow
@pytest.mark.usefixtures("numbers")
@pytest.mark.parametrize("dim", [2, 3, 16, 64, 127, 128])
@pytest.mark.parametrize(("m", "n"), [(1, 1), (0, 1), (3, 2), (4, 4), (7, 7), (0, 0)])
def test_every_length_of_descriptors(m: int, n: int, dim: int) -> None:
    """Oracle: the residual form; in few dimensions nearly all pairs are near parallel or meet."""
    if max(m, n) >= dim:
        return
    left, right, expected = measured(m, n, 20, 35, dim)
    for backend in ("auto", "numpy"):  # auto: points in few dimensions need the complement
        neighbors = distances.nearest_two(left, right, backend=backend)
        check_nearest(neighbors, expected, 1e-9)
    np.testing.assert_allclose(distances.pairwise(left, right), expected, atol=2e-6, rtol=0)


@pytest.mark.slow
@pytest.mark.usefixtures("numbers")
@pytest.mark.parametrize("m", [0, 2, 8])
def test_sizes_around_the_tiles_and_poisoned_memory(m: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Oracle: the residual form; whatever lies in fresh memory may not come out, padding may win nothing."""
    shape = Shape(left=m + 1, right=m + 1, lanes=LANES[-1])
    left, right, everything = measured(m, m, 70, 70)

    def poisoned(count: int, kind: type = np.float32) -> np.ndarray:
        memory = aligned(count, kind)
        memory.view(np.uint8)[:] = 0xFF  # NaN, or -1
        return memory

    for module in ("pack", "prepared", "prune", "sweep"):
        monkeypatch.setattr(f"veil.distances.cpu.{module}.aligned", poisoned)
    for rows in {1, shape.features - 1, shape.features, shape.features + 1, 70} - {0}:
        for columns in (1, shape.lanes - 1, shape.lanes, shape.lanes + 1):
            small, other = head(left, rows), head(right, columns)
            expected = everything[:rows, :columns]
            np.testing.assert_allclose(candidates.matrix(compared(small, other)), expected, atol=1e-6)
            check_nearest(nearest(small, other), expected)


@pytest.mark.parametrize("by_column", [False, True])
def test_the_two_best_of_listed_pairs_are_those_of_sorting(by_column: bool) -> None:
    """Second method: `pairs.best`, by sorting; few values, so that most tie, and rows and columns without a pair."""
    random = generator("ranked")
    keys = np.sort(random.permutation(40 * 30)[:300])
    rows, columns = (keys % 40, keys // 40) if by_column else (keys // 30, keys % 30)
    distance = random.integers(0, 4, size=300).astype(np.float64)
    nearest = sweep.two_best(rows, columns, distance, (45, 45), Shape(left=1, right=1, lanes=LANES[-1]))
    for (index, value), (owner, other) in zip(nearest, ((rows, columns), (columns, rows)), strict=True):
        expected = best(owner, other, distance, 45, 2)
        assert (index == expected[0]).all() and (value == expected[1]).all()


@pytest.mark.slow
@pytest.mark.usefixtures("numbers")
@pytest.mark.parametrize("lanes", LANES)
def test_candidates_are_those_that_numpy_finds(lanes: int) -> None:
    """Second method: NumPy on the same states; repeated features tie, and their copies hide others."""
    left, right = a_set("left", 45, 2), a_set("right", 61, 2)
    again = np.arange(61) % 23
    both = compared(left, (right[0][again], right[1][again]), lanes)  # type: ignore[index]
    work = candidates.Compiled(both.first, both.second, candidates.sweep_shape(both), 1)
    swept = work.best_two(candidates.squared_scale(both.first, both.second))
    rows, columns = swept.rows, swept.columns
    assert isinstance(rows, sweep.States) and isinstance(columns, sweep.States)
    memory = np.empty(columns.state.size + 1, dtype=np.float32)
    moved = memory[1:].reshape(columns.state.shape)
    moved[:] = columns.state  # at an unaligned address, as where NumPy joins the states of several threads
    for states in (rows, columns, replace(columns, state=moved)):
        for slack in (0.0, 0.01, 0.2, 10.0):
            listed, expected = states.within(slack), states.running.within(slack)
            assert sorted(zip(*listed[:2], strict=True)) == sorted(zip(*expected[:2], strict=True))
            assert (listed[2] == expected[2]).all()
    assert len(listed[0]) > 61 * 2 and listed[2].any()


@pytest.mark.slow
@pytest.mark.parametrize("lanes", LANES)
@pytest.mark.parametrize(("left", "right"), [(0, 0), (0, 3), (2, 2), (4, 8), (0, 16)])
@pytest.mark.parametrize("kind", [np.float32, np.float64])
def test_compiled_packing_is_that_of_numpy(left: int, right: int, lanes: int, kind: type) -> None:
    """Second method, to the last bit: components by NumPy, features that fill no panel with zeros behind them."""
    both = compared(a_set("left", 9, left, 64, kind), a_set("right", 2 * lanes + 3, right, 64, kind), lanes)
    for shape in (both.shape, replace(both.shape, fixed=True)):
        if shape.fixed and not compiler.has_vnni(lanes):
            continue
        unit = 1.5 * both.second.longest if shape.fixed else 1.0
        packed, error = pack.pack(both.second, shape, left=False, unit=unit)
        components, lost = pack.fixed_components(both.second, unit, shape) if shape.fixed else (both.second.components, 0.0)
        expected = pack_right(components, both.second.squares / unit**2, shape)
        np.testing.assert_array_equal(packed.values.view(np.int32), expected.values.view(np.int32))
        assert (packed.squares == expected.squares).all() and packed.group_bytes == expected.group_bytes
        assert error == pytest.approx(lost, rel=1e-5)


def test_nothing_is_written_outside_the_output() -> None:
    """Oracle: a frame of sentinels round the dense output of 5 x 7 pairs."""
    both = compared(a_set("left", 5, 2), a_set("right", 7, 2))
    shape, a, b = both.shape, both.first, both.second
    left, right = sweep.packed(a, b, shape)
    frame = np.full((7, 40), 123.0, dtype=np.float32)
    scratch = aligned(shape.scratch_floats)
    pointers = [
        memory.ctypes.data for memory in (left.values, left.squares, right.values, right.squares, scratch, frame[1:, 1:])
    ]
    counts = left.coordinates, len(left.squares) // shape.features, len(right.squares) // shape.lanes
    compiler.kernels(shape, "dense")["dense"](*pointers, *counts, 5, 7, frame.strides[0], 10.0)
    inside = np.zeros(frame.shape, dtype=bool)
    inside[1:6, 1:8] = True
    assert (frame[~inside] == 123).all()
    assert (frame[inside] < 3).all()


@pytest.mark.slow
@pytest.mark.usefixtures("numbers")
@pytest.mark.parametrize("m", [0, 2, 4, 8])
@pytest.mark.parametrize("lanes", LANES)
def test_ties_keep_the_smaller_index(m: int, lanes: int) -> None:
    """Oracle: construction. Every feature is there three times, so the two nearest are the first two copies."""
    left, single, distance = measured(m, m, 30, 25)
    right: FeatureSet = np.concatenate([single[0]] * 3), None if single[1] is None else np.concatenate([single[1]] * 3)
    neighbors = nearest(left, right, lanes)
    expected = distance.argmin(axis=1)
    np.testing.assert_array_equal(neighbors.right_of_left, np.stack([expected, expected + 25], axis=1))
    turned = nearest(right, left, lanes)
    np.testing.assert_array_equal(turned.left_of_right, np.stack([expected, expected + 25], axis=1))


@pytest.mark.slow
@pytest.mark.usefixtures("numbers")
@pytest.mark.parametrize("m", [0, 2, 4])
def test_near_ties_are_decided_by_float64(m: int) -> None:
    """Oracle: exhaustive float64 search among copies that differ by less than single precision can tell."""
    random = generator(f"near ties {m}")
    left, seed = a_set("left", 40, m, kind=np.float64), a_set("seed", 3, m, kind=np.float64)
    copies = np.repeat(np.arange(3), 12)
    right: FeatureSet = (
        seed[0][copies] + 1e-9 * random.normal(size=(36, 128)),
        None if seed[1] is None else seed[1][copies],
    )
    neighbors, expected = distances.nearest_two(left, right, backend="cpu"), truth(left, right)
    order = np.argsort(expected, axis=1)[:, :2]
    single = np.argsort(expected.astype(np.float32), axis=1, kind="stable")[:, :2]
    assert (order != single).any(), "the case must be one that single precision gets wrong"
    np.testing.assert_array_equal(neighbors.right_of_left, order)
    check_nearest(neighbors, expected)


@cache
def turned_by(angle: float, m: int) -> tuple[FeatureSet, FeatureSet, np.ndarray, np.ndarray]:
    """Two sets, where `right[k]` has a direction at `angle` from one of `left[shift[k]]`; `shift`; and all distances."""
    random = generator(f"angle {m} {angle}")
    left, right = a_set("left", 12, m, kind=np.float64), a_set("right", 12, m, kind=np.float64)
    assert left[1] is not None and right[1] is not None
    turned = right[1].copy()
    turned[:, 0] = np.cos(angle) * left[1][:, 0] + np.sin(angle) * turned[:, 0]
    turned = np.swapaxes(np.linalg.qr(np.swapaxes(turned, 1, 2))[0], 1, 2)
    shift = random.permutation(12)
    right = right[0][shift], turned[shift]
    return left, right, shift, truth(left, right)


@pytest.mark.slow
@pytest.mark.usefixtures("numbers")
@pytest.mark.parametrize("m", [2, 4, 8, 16])
@pytest.mark.parametrize("angle", [0.0, 1e-5, 1e-4, 1e-3, 1e-2, 0.1])
def test_directions_a_small_angle_apart(m: int, angle: float) -> None:
    """Oracle: the residual form, to 1e-9; raw single precision is wrong by 1e-2 at an angle of 1e-3."""
    left, right, shift, expected = turned_by(angle, m)
    near = distances.pairwise(left, right, backend="cpu")
    np.testing.assert_allclose(near, expected, atol=2e-6, rtol=0)
    np.testing.assert_allclose(near[shift, np.arange(12)], expected[shift, np.arange(12)], atol=1e-9 if angle < 2e-2 else 1e-6)
    check_nearest(distances.nearest_two(left, right, backend="cpu"), expected)


@pytest.mark.slow
@pytest.mark.usefixtures("numbers")
@pytest.mark.parametrize("m", [2, 4, 8])
def test_shared_points_read_as_zero(m: int) -> None:
    """Oracle: construction. Lifts through one or two common points meet, and each is the other's nearest."""
    random = generator(f"shared {m}")
    parts = []
    for k in range(12):
        common = list(unit(sift_like(random, 1 + k % 2)))
        ends = unit(sift_like(random, 2))
        parts.append([through([end, *common], random.normal(size=(m - len(common), 128))) for end in ends])
    left, right = ([np.concatenate(x).astype(np.float32) for x in zip(*(p[s] for p in parts), strict=True)] for s in (0, 1))
    neighbors = distances.nearest_two((left[0], left[1]), (right[0], right[1]), backend="cpu")
    np.testing.assert_array_equal(neighbors.right_of_left[:, 0], np.arange(12))
    assert neighbors.left_distance[:, 0].max() < 1e-6
    assert np.diagonal(distances.pairwise((left[0], left[1]), (right[0], right[1]), backend="cpu")).max() < 1e-6


@pytest.mark.slow
@pytest.mark.usefixtures("numbers")
def test_a_direction_that_all_share_is_no_trap(monkeypatch: pytest.MonkeyPatch) -> None:
    """Oracle: the residual form. Every pair is near parallel, which overflows the list of such pairs (capacity 7)."""
    random = generator("all parallel")
    inside, direction = unit(sift_like(random, 80)), random.normal(size=128)
    left = through_all(inside[:40], direction, random)
    right = through_all(inside[40:], direction + 0.01 * random.normal(size=128), random)
    monkeypatch.setattr(sweep, "list_capacity", lambda rows, columns: 7)
    neighbors = distances.nearest_two(left, right, backend="cpu")
    check_nearest(neighbors, truth(left, right))


def through_all(inside: np.ndarray, direction: np.ndarray, random: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Planes through each point along one common and one random direction."""
    both = [through([point], np.array([direction, random.normal(size=128)])) for point in inside]
    return np.concatenate([b[0] for b in both]), np.concatenate([b[1] for b in both])


@pytest.mark.slow
@pytest.mark.usefixtures("numbers")
@pytest.mark.parametrize(("m", "n"), [(0, 2), (2, 2), (8, 8)])
def test_threads_give_equal_results(m: int, n: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Oracle: one thread, to the last bit."""
    monkeypatch.setattr(sweep, "THREAD_WORK", 1)
    left, right = a_set("left", 400, m), a_set("right", 170, n)
    one, four = (distances.nearest_two(left, right, backend="cpu", threads=threads) for threads in (1, 4))
    for name in ("right_of_left", "left_distance", "left_of_right", "right_distance"):
        np.testing.assert_array_equal(getattr(one, name), getattr(four, name))
    np.testing.assert_array_equal(
        distances.pairwise(left, right, backend="cpu"), distances.pairwise(left, right, backend="cpu", threads=3)
    )


@pytest.mark.parametrize("m", [2, 4])
def test_bases_that_are_not_quite_orthonormal(m: int) -> None:
    """Oracle: the residual form, which orthonormalizes; half precision leaves a defect of 1e-4."""
    left, right = a_set("left", 20, m), a_set("right", 22, m)
    assert left[1] is not None
    rough = left[0], left[1].astype(np.float16)
    neighbors, expected = distances.nearest_two(rough, right, backend="cpu"), truth(rough, right)
    np.testing.assert_allclose(neighbors.left_distance[:, 0], expected.min(axis=1), atol=1e-3)
    picked = np.take_along_axis(expected, neighbors.right_of_left, axis=1)
    np.testing.assert_allclose(neighbors.left_distance, picked, atol=1e-12)


def test_a_thread_is_started_for_work_that_is_worth_it() -> None:
    """Small sweeps stay on the caller's thread; large ones take all threads, and no more."""
    few, many = (compared(a_set("left", count, 2), a_set("right", count, 2)) for count in (60, 1100))
    for both, expected in ((few, 1), (many, 4)):
        panels = sweep.packed(both.first, both.second, both.shape)
        assert sweep.useful_threads(*panels, both.shape, 4) == expected


def test_a_list_that_is_full_says_so() -> None:
    """Oracle: every pair shares a direction, so that all are listed and none takes part in the running sweep."""
    random = generator("full list")
    inside, direction = unit(sift_like(random, 20)), random.normal(size=128)
    side = through_all(inside, direction, random)
    both = compared(side, side)
    swept = sweep.best_two(*sweep.packed(both.first, both.second, both.shape), both.shape, 1.0)
    assert len(swept.doubtful) == 400 and not swept.overflowed
    assert {(int(i), int(j)) for i, j in swept.doubtful} == {(i, j) for i in range(20) for j in range(20)}
    assert isinstance(swept.rows, sweep.States) and (swept.rows.running.index == -1).all()
    assert isinstance(swept.columns, sweep.States) and np.isinf(swept.columns.running.value).all()


def test_a_host_without_a_compiler_is_told_and_served_by_numpy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compiler, "obstacle", lambda: "this host refuses executable memory")
    assert distances.resolve("auto") == "numpy"
    with pytest.raises(VeilError, match="refuses executable memory"):
        distances.resolve("cpu")
    with pytest.raises(VeilError, match="up to m = 32"):
        distances.resolve("cpu", 33, 40)
    with pytest.raises(RangeError, match="backend"):
        distances.resolve("tpu")


def test_the_environment_says_what_auto_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    """NumPy serves dimensions that the backend named by VEIL_BACKEND does not; a machine that cannot run it is an error."""
    for name in ("numpy", "reference"):
        monkeypatch.setenv(distances.PREFERRED, name)
        assert distances.resolve("auto", 4, 4) == name
        assert distances.resolve("cpu", 4, 4) == "cpu"
    monkeypatch.setenv(distances.PREFERRED, "cpu")
    assert distances.resolve("auto", 4, 4) == "cpu" and distances.resolve("auto", 0, 100) == "numpy"
    monkeypatch.setattr(compiler, "obstacle", lambda: "this host refuses executable memory")
    with pytest.raises(VeilError, match="refuses executable memory"):
        distances.resolve("auto", 4, 4)
    monkeypatch.setenv(distances.PREFERRED, "abacus")
    with pytest.raises(RangeError, match="VEIL_BACKEND must be one of 'auto', 'reference'"):
        distances.resolve("auto")


@pytest.fixture
def broken_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    """A process whose first kernel LLVM refuses, as llvmlite 0.44 refuses intrinsics on opaque pointers."""
    monkeypatch.setattr(compiler, "_cache", {})
    monkeypatch.setattr(compiler, "_failure", None)
    monkeypatch.setattr(distances.backend, "_warned", set())
    monkeypatch.delenv(distances.PREFERRED, raising=False)
    monkeypatch.setattr(compiler, "_text", lambda shape, output: "declare <8 x float> @nothing(ptr,")


@pytest.mark.usefixtures("broken_compiler")
def test_where_a_kernel_does_not_compile_numpy_serves_and_says_so_once() -> None:
    """Oracles: float64 of all pairs; one warning, which names the compiler, of three calls."""
    left, right = a_set("broken", 9, 2), a_set("broken too", 11, 2)
    with pytest.warns(VeilWarning, match=r"NumPy.*llvmlite .* cannot compile") as warned:
        neighbors = distances.nearest_two(left, right)
        dense = distances.pairwise(left, right)
        distances.nearest((left[0], None), right, 2)
    assert len(warned) == 1
    np.testing.assert_allclose(dense, truth(left, right), atol=1e-6)
    assert (neighbors.right_of_left == np.argsort(truth(left, right), axis=1)[:, :2]).all()
    assert distances.resolve("auto", 2, 2) == "numpy"


@pytest.mark.usefixtures("broken_compiler")
@pytest.mark.parametrize("by", ["argument", "environment"])
def test_a_compiled_kernel_that_was_asked_for_by_name_is_no_numpy(by: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """An error of veil, not NumPy in its place and not llvmlite's traceback; the second time it is known before compiling."""
    monkeypatch.setenv(distances.PREFERRED, "cpu" if by == "environment" else "auto")
    left, right = a_set("broken", 9, 2), a_set("broken too", 11, 2)
    for _ in range(2):
        with pytest.raises(VeilError, match=r"'cpu' cannot serve: llvmlite .* cannot compile"):
            distances.nearest_two(left, right, backend="cpu" if by == "argument" else "auto")


@pytest.mark.parametrize("total", range(1, 40))
@pytest.mark.parametrize("largest", [3, 4, 5, 9])
def test_tiles_cover_all_rows(total: int, largest: int) -> None:
    parts = even(total, largest)
    assert sum(parts) == total and max(parts) <= largest and max(parts) - min(parts) <= 1


def test_the_reference_agrees_with_the_residual_form() -> None:
    """Second method for the residual form, the oracle of this file."""
    random = generator("oracle")
    left, right = (affine_set(random, unit(sift_like(random, count)), 4) for count in (6, 7))
    np.testing.assert_allclose(truth(left, right), reference.subspace_to_subspace(left, right), atol=1e-12)
