"""Kernels for graphics processors: generated code on a small stand-in for Triton, and the whole backend in its interpreter.

On a machine with a device the backend runs on it. Without torch and Triton (extra veil[gpu]) the stand-in alone serves.
"""

from __future__ import annotations

import math
import warnings
from importlib.util import find_spec

import numpy as np
import pytest

from veil import distances
from veil.distances import FeatureSet
from veil.distances.cpu import candidates, prepared
from veil.distances.gpu import device
from veil.distances.gpu.source import COLUMNS, ROWS, source
from veil.distances.pairs import exact
from veil.errors import VeilError, VeilWarning
from worlds import affine_set, generator, sift_like, small_triton, unit

DIMS = [(0, 0), (0, 3), (1, 1), (2, 2), (2, 5), (4, 4), (7, 11)]
needs_triton = pytest.mark.skipif(
    find_spec("torch") is None or find_spec("triton") is None, reason="torch and triton are not installed (veil[gpu])"
)


def a_set(name: str, count: int, m: int) -> FeatureSet:
    random = generator(f"{name} {count} {m}")
    inside = unit(sift_like(random, count))
    origin, basis = (inside, None) if m == 0 else affine_set(random, inside, m)
    return origin.astype(np.float32), None if basis is None else basis.astype(np.float32)


def truth(left: FeatureSet, right: FeatureSet) -> np.ndarray:
    rows, columns = np.indices((len(left[0]), len(right[0]))).reshape(2, -1)
    return exact(left, right, rows, columns).reshape(len(left[0]), len(right[0]))


def compared(left: FeatureSet, right: FeatureSet) -> candidates.Compared:
    return candidates.compared(left, right, 0.5 * (left[0].mean(axis=0) + right[0].mean(axis=0)).astype(np.float64))


def padded(side: prepared.Prepared, multiple: int) -> tuple[np.ndarray, np.ndarray]:
    """Components of a set as rows [component, feature], and |d0|^2 with infinite padding."""
    count = -(-len(side) // multiple) * multiple
    values, squares = np.zeros((side.m + 1, count, side.basis.shape[2]), dtype=np.float32), np.full(count, np.inf, np.float32)
    values[:, : len(side)], squares[: len(side)] = np.stack(side.components), side.squares
    return values.reshape(-1, values.shape[2]), squares


@pytest.mark.slow
@pytest.mark.parametrize(("m", "n"), DIMS)
def test_generated_code_solves_every_pair(m: int, n: int) -> None:
    """Oracle: float64 residual form; memory starts as NaN, and nothing is read or written beyond it."""
    both = compared(a_set("left", 9, m), a_set("right", 37, n))
    (left, left_squares), (right, right_squares) = padded(both.first, ROWS), padded(both.second, COLUMNS)
    sizes = len(left_squares), len(right_squares)
    squares, reaches = (np.full(sizes, np.nan, dtype=np.float32) for _ in range(2))
    function = small_triton.compiled(source(both.shape.left, both.shape.right, "dense"), "dense")
    grid = sizes[1] // COLUMNS, sizes[0] // ROWS
    numbers = (*sizes, 0)
    small_triton.launch(
        function, grid, left @ right.T, left_squares, right_squares, squares, reaches, *numbers, ROWS=ROWS, COLUMNS=COLUMNS
    )
    expected = truth(*both.sets)[:9, :37]
    np.testing.assert_allclose(np.sqrt(squares[:9, :37]), expected, atol=2e-6, rtol=0)
    assert np.isinf(squares[9:]).all() and np.isinf(squares[:, 37:]).all()
    assert (reaches >= 0).all() and np.isfinite(reaches[:9, :37]).all()


@pytest.mark.parametrize(("m", "n"), [(0, 2), (2, 2)])
def test_generated_code_keeps_the_best_of_rows_and_columns(m: int, n: int) -> None:
    """Oracle: sorting. Two chunks of rows in three parts each; `hidden` bounds the distances that are not kept."""
    both = compared(a_set("left", 40, m), a_set("right", 70, n))
    (left, left_squares), (right, right_squares) = padded(both.first, ROWS), padded(both.second, COLUMNS)
    rows, columns = len(left_squares), len(right_squares)
    parts, half, panels = 3, 20, columns // COLUMNS
    row_values = np.full((panels, rows, 3), np.nan, dtype=np.float32)
    row_indices = np.full((panels, rows, 2), -7, dtype=np.int32)
    column_values = np.full((2 * parts, columns, 3), np.nan, dtype=np.float32)
    column_indices = np.full((2 * parts, columns, 2), -7, dtype=np.int32)
    doubtful = np.zeros(1, dtype=np.int32)
    function = small_triton.compiled(source(both.shape.left, both.shape.right, "best_two"), "best_two")
    outputs = (row_values, row_indices, column_values, column_indices, doubtful)
    tiles = -(-half // ROWS // parts)
    for chunk in range(2):
        chunk_rows = left.reshape(-1, rows, left.shape[1])[:, chunk * half : (chunk + 1) * half].reshape(-1, left.shape[1])
        numbers = (half, columns, math.inf, tiles, chunk * half, 0, chunk * parts, rows, columns)
        chunk_squares = left_squares[chunk * half : (chunk + 1) * half].copy()
        given = (chunk_rows @ right.T, chunk_squares, right_squares, *outputs, *numbers)
        small_triton.launch(function, (panels, -(-half // ROWS // tiles)), *given, ROWS=ROWS, COLUMNS=COLUMNS)
    expected = truth(*both.sets)
    states = ((row_values, row_indices, expected), (column_values, column_indices, expected.T))
    for values, indices, matrix in states:
        count = len(matrix)
        value = values[:, :count, :2].transpose(1, 0, 2).reshape(count, -1)
        index = indices[:, :count].transpose(1, 0, 2).reshape(count, -1)
        hidden = values[:, :count, 2].min(axis=0)
        assert not np.isnan(value[np.isfinite(value)]).any()
        order = np.argsort(value, axis=1, kind="stable")[:, :2]
        best = np.take_along_axis(index, order, axis=1)
        np.testing.assert_array_equal(best, np.argsort(matrix, axis=1)[:, :2])
        for k in range(count):
            kept = set(index[k][np.isfinite(value[k])].tolist())
            rest = [d**2 for j, d in enumerate(matrix[k]) if j not in kept]
            assert min(rest, default=np.inf) >= hidden[k] - 1e-6
    assert doubtful[0] == 0


def test_generated_code_hands_on_what_reaches_too_far() -> None:
    """Oracle: with no reach allowed every pair is counted and none takes part."""
    both = compared(a_set("left", 4, 2), a_set("right", 32, 2))
    (left, left_squares), (right, right_squares) = padded(both.first, ROWS), padded(both.second, COLUMNS)
    values, indices = np.zeros((1, 32, 3), dtype=np.float32), np.zeros((1, 32, 2), dtype=np.int32)
    row_values, row_indices = np.zeros((1, 4, 3), dtype=np.float32), np.zeros((1, 4, 2), dtype=np.int32)
    doubtful = np.zeros(1, dtype=np.int32)
    function = small_triton.compiled(source(3, 3, "best_two"), "best_two")
    outputs = (row_values, row_indices, values, indices, doubtful)
    numbers = (4, 32, -1.0, 1, 0, 0, 0, 4, 32)
    small_triton.launch(
        function, (1, 1), left @ right.T, left_squares, right_squares, *outputs, *numbers, ROWS=ROWS, COLUMNS=COLUMNS
    )
    assert doubtful[0] == 4 * 32 and np.isinf(values).all() and np.isinf(row_values).all() and (indices == -1).all()


@needs_triton
def test_a_long_compilation_is_told_before_it_begins() -> None:
    """Broken twin: m = 2, of which nothing is said."""
    with pytest.warns(VeilWarning, match="m = 12 and 12 compiles for minutes"):
        device.function.__wrapped__(13, 13, "dense")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        device.function.__wrapped__(3, 3, "dense")


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """The device, or Triton's interpreter, with small chunks whose sizes do not divide the sets."""
    import torch

    if not torch.cuda.is_available():
        monkeypatch.setenv("TRITON_INTERPRET", "1")
    device.obstacle.cache_clear()
    monkeypatch.setattr(device, "CHUNK_FLOATS", 1 << 14)


@needs_triton
@pytest.mark.usefixtures("gpu")
@pytest.mark.parametrize(("m", "n"), DIMS)
def test_the_backend_is_the_others(m: int, n: int) -> None:
    """Oracle: exhaustive float64 search, and the compiled kernel to the last bit."""
    left, right = a_set("left", 43, m), a_set("right", 70, n)
    expected = truth(left, right)
    np.testing.assert_allclose(distances.pairwise(left, right, backend="gpu"), expected, atol=2e-6, rtol=0)
    neighbors, compiled = (distances.nearest_two(left, right, backend=backend) for backend in ("gpu", "cpu"))
    for name in ("right_of_left", "left_distance", "left_of_right", "right_distance"):
        np.testing.assert_array_equal(getattr(neighbors, name), getattr(compiled, name))
    order = np.argsort(expected, axis=1)[:, :2]
    np.testing.assert_array_equal(neighbors.right_of_left, order)
    index = distances.nearest(right, left, 3, backend="gpu").index
    np.testing.assert_array_equal(index, np.argsort(expected.T, axis=1)[:, :3])


@needs_triton
@pytest.mark.usefixtures("gpu")
def test_halves_of_numbers_lose_what_the_bound_says() -> None:
    """Oracle: float64. Products of 11-bit halves are within the error that candidates are chosen by, and reaches are listed."""
    both = compared(a_set("left", 30, 4), a_set("right", 40, 4))
    engine = device.Processor(both.first, both.second)
    for _, _, squares, _ in engine._dense(both.first, both.second):
        assert np.isfinite(squares[:4, :4].cpu().numpy()).all()
    swept = engine.best_two(0.0)
    assert {(int(i), int(j)) for i, j in swept.doubtful} == {(i, j) for i in range(30) for j in range(40)}
    exact_gram = np.concatenate(both.first.components) @ np.concatenate(both.second.components).T
    for row, column, gram, left_part, right_part in engine._chunks(
        device.planes(both.first, ROWS, "hhl"), device.planes(both.second, COLUMNS, "hlh")
    ):
        sizes = len(left_part), len(right_part)
        entries = gram.cpu().numpy().reshape(5, sizes[0], 5, sizes[1])
        part = exact_gram.reshape(5, 30, 5, 40)[:, row : row + sizes[0], :, column : column + sizes[1]]
        np.testing.assert_allclose(entries[:, : part.shape[1], :, : part.shape[3]], part, atol=device.ENTRY_ERROR, rtol=0)


def test_a_machine_without_a_device_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """Oracle: the error. A named backend serves, or says why it cannot; no other one takes its place."""
    monkeypatch.setattr(device, "obstacle", lambda: "torch finds no CUDA device")
    with pytest.raises(VeilError, match="backend 'gpu' cannot serve: torch finds no CUDA device"):
        distances.nearest_two(a_set("left", 3, 2), a_set("right", 3, 2), backend="gpu")
    with pytest.raises(VeilError, match="up to m = 16"):
        distances.resolve("gpu", 17, 17)


def test_tiles_are_whole() -> None:
    """Chunks are multiples of tiles for every pair of dimensions, and no larger than the cache."""
    for left in range(1, 18):
        for right in range(left, 18):
            rows, columns = device.chunk_sizes(left, right)
            assert rows % ROWS == 0 and columns % COLUMNS == 0
            assert rows * left * columns * right <= device.CHUNK_FLOATS
