"""Exact pruning against exhaustive float64 search: bounds never exceed distances, and neighbors are right whatever the axes."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest

from veil import distances
from veil.distances import FeatureSet
from veil.distances.cpu import candidates, pack, prepared, prune, sweep
from veil.distances.cpu import compile as compiler
from veil.distances.cpu import prune as axes_module
from veil.distances.cpu.codegen import listed
from veil.distances.pairs import exact
from worlds import affine_set, generator, sift_like, through, unit

LANES = [lanes for lanes in (4, 8, 16) if lanes <= compiler.host_lanes()]
CASES = [(m, n, lanes) for m, n in [(0, 3), (2, 2), (4, 4)] for lanes in LANES] + [
    (m, n, LANES[-1]) for m, n in [(0, 0), (6, 9)]
]
WAYS = [(*case, "principal", 1, False) for case in CASES] + [
    (*case, *way, False) for case in CASES[-3:] for way in (("random", 1), ("principal", 3))
]
# Bounds in fixed point, where the processor has it.
WAYS += [(*case[:5], True) for case in WAYS if compiler.has_vnni(case[2])]


def a_set(name: str, count: int, m: int) -> FeatureSet:
    """Descriptors that vary along few axes, as SIFT's nearly do, lifted through random directions."""
    random = generator(f"{name} {count} {m}")
    shape = np.exp(-np.arange(128) / 12)
    inside = unit(sift_like(random, count) * 0.1 + random.normal(size=(count, 128)) * shape)
    origin, basis = (inside, None) if m == 0 else affine_set(random, inside, m)
    return origin.astype(np.float32), None if basis is None else basis.astype(np.float32)


def compared(left: FeatureSet, right: FeatureSet, lanes: int | None = None) -> candidates.Compared:
    return candidates.compared(left, right, 0.5 * (left[0].mean(axis=0) + right[0].mean(axis=0)).astype(np.float64), lanes)


def truth(both: candidates.Compared) -> np.ndarray:
    """Float64 distances of all pairs in residual form, the side of smaller dimension as rows."""
    left, right = both.sets[:: -1 if both.swapped else 1]
    rows, columns = np.indices((len(left[0]), len(right[0]))).reshape(2, -1)
    return exact(left, right, rows, columns).reshape(len(left[0]), len(right[0]))


@cache
def distances_of(left: int, right: int, m: int, n: int) -> np.ndarray:
    """Float64 distances of the sets of these sizes, which no width, axis, thread or rounding changes."""
    return truth(compared(a_set("left", left, m), a_set("right", right, n)))


def axes_of(both: candidates.Compared, kind: str, count: int) -> np.ndarray:
    if kind == "principal":
        return axes_module.principal_axes(both.first, both.second, most=count)
    return np.linalg.qr(generator(f"axes {count}").normal(size=(128, count)))[0].T


def pruned(both: candidates.Compared, axes: np.ndarray, threads: int = 1, fixed: bool = False) -> candidates.Pairs | None:
    return prune.candidates(
        both.first, both.second, axes, replace(both.shape, fixed=fixed), 2 * candidates.ENTRY_ERROR, threads
    )


def check(pairs: candidates.Pairs, expected: np.ndarray) -> None:
    """Assert that the two nearest of every row and column, by sorting, are among the pairs."""
    listed_pairs = set(zip(*(part.tolist() for part in pairs), strict=True))
    assert len(listed_pairs) == len(pairs[0])
    for i, order in enumerate(np.argsort(expected, axis=1, kind="stable")[:, :2].tolist()):
        assert all((i, j) in listed_pairs for j in order)
    for j, order in enumerate(np.argsort(expected.T, axis=1, kind="stable")[:, :2].tolist()):
        assert all((i, j) in listed_pairs for i in order)


@pytest.mark.slow
@pytest.mark.parametrize(("m", "n", "lanes"), CASES)
def test_listed_pairs_and_bounds(m: int, n: int, lanes: int) -> None:
    """Oracle: float64. Listed pairs to 1e-6; distances in any axes never exceed those in full, in double precision to 1e-9."""
    both = compared(a_set("left", 33, m), a_set("right", 21, n), lanes)
    expected = distances_of(33, 21, m, n)
    rows, columns = np.indices(expected.shape).reshape(2, -1)
    order = generator("order").permutation(len(rows))[: 33 * 21 - 5]
    pairs = np.stack([rows, columns], axis=1)[order].astype(np.int32)
    first, second = (prune.flat(side, lanes) for side in (both.first, both.second))
    squares, reach = prune.squares_of(first, second, pairs, both.shape)
    np.testing.assert_allclose(np.sqrt(squares), expected.reshape(-1)[order], atol=1e-6, rtol=0)
    assert (reach >= 0).all()
    for kind in ("principal", "random"):
        axes = axes_of(both, kind, 40)
        np.testing.assert_allclose(axes @ axes.T, np.eye(40), atol=1e-12)
        few = [axes_module.projected(side, axes) for side in (both.first, both.second)]
        left, right = ((side.origin, side.basis.astype(np.float64) if side.m else None) for side in few)
        bounds = exact(left, right, rows, columns).reshape(expected.shape)
        assert (bounds <= expected + 1e-6).all() and bounds.mean() > 0.05
        for side, part in zip((both.first, both.second), few, strict=True):
            gram = part.basis.astype(np.float64) @ np.swapaxes(part.basis.astype(np.float64), 1, 2)
            np.testing.assert_allclose(gram, np.broadcast_to(np.eye(side.m), gram.shape), atol=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize(("m", "n", "lanes", "kind", "threads", "fixed"), WAYS)
def test_the_nearest_two_are_never_pruned(
    m: int, n: int, lanes: int, kind: str, threads: int, fixed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Oracle: exhaustive float64 search. Small tiles and blocks, sizes that no tile divides, memory that starts as NaN."""
    expected = distances_of(123, 77, m, n)
    poison(monkeypatch)
    monkeypatch.setattr(prune, "LEFT_MAX", 2.0)
    monkeypatch.setattr(prune, "TILE_BYTES", 1 << 15)
    monkeypatch.setattr(prune, "BLOCK_BOUNDS", 1 << 12)
    both = compared(a_set("left", 123, m), a_set("right", 77, n), lanes)
    pairs = pruned(both, axes_of(both, kind, 40), threads, fixed)
    assert pairs is not None
    check(pairs, expected)
    if kind == "principal" and max(m, n) < 5:
        assert len(pairs[0]) < 1500, "most of 9471 pairs must have been pruned, or this shows nothing"


def poison(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fresh memory is full of NaN (for integers: -1), so that whatever is read before it is written shows."""
    plain = prepared.aligned

    def poisoned(count: int, kind: type = np.float32) -> np.ndarray:
        memory = plain(count, kind)
        memory.view(np.uint8)[:] = 0xFF
        return memory

    for module in (pack, prune, sweep, prepared):
        monkeypatch.setattr(module, "aligned", poisoned)


@pytest.mark.slow
@pytest.mark.parametrize(("m", "n"), [(0, 2), (2, 2), (4, 4), (4, 2)])
def test_pruned_and_swept_search_agree_to_the_last_bit(m: int, n: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Oracle: the plain sweep; repeated features make ties, lifts through shared points make zeros."""
    left, right = a_set("left", 300, m), a_set("right", 260, n)
    left = doubled(left)
    plain = distances.nearest_two(left, right, backend="cpu")
    monkeypatch.setattr(axes_module, "ENTRIES_MIN", 1)
    monkeypatch.setattr(axes_module, "FIXED_ENTRIES_MIN", 1)
    monkeypatch.setattr(prune, "LEFT_MAX", 2.0)
    monkeypatch.setattr(axes_module, "WORTH", np.inf)
    monkeypatch.setattr(candidates, "swept_candidates", lambda *_: pytest.fail("must be pruned"))
    neighbors = distances.nearest_two(left, right, backend="cpu")
    for name in ("right_of_left", "left_distance", "left_of_right", "right_distance"):
        np.testing.assert_array_equal(getattr(neighbors, name), getattr(plain, name))


def doubled(side: FeatureSet) -> FeatureSet:
    """The first 20 features once more at the end."""
    return tuple(None if part is None else np.concatenate([part, part[:20]]) for part in side)  # type: ignore[return-value]


@pytest.mark.parametrize(("meet", "garbage"), [(True, 9.0), (False, 0.0)])
def test_amplified_pairs_are_never_judged_in_single_precision(
    meet: bool, garbage: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Oracle: float64. Results of single precision for amplified pairs are replaced by garbage, and bounds of them are 0.

    Each plane shares a direction to 1e-3 with two of the other side, which it nearly meets or does not.
    """
    random = generator("hard pairs")
    points, directions = unit(sift_like(random, 60)), np.repeat(random.normal(size=(15, 128)), 2, axis=0)
    sides: list[FeatureSet] = []
    for k, shift in enumerate((0.0, 1e-3)):
        turned = directions + shift * random.normal(size=directions.shape)
        inside = points[:30] + 1e-3 * random.normal(size=(30, 128)) if meet else points[k::2]
        planes = [through([p], np.array([d, random.normal(size=128)])) for p, d in zip(inside, turned, strict=True)]
        origin, basis = (np.concatenate(part).astype(np.float32) for part in zip(*planes, strict=True))
        sides.append((origin, basis))
    both = compared(sides[0], sides[1])
    expected, axes = truth(both), axes_of(both, "random", 40)
    left, right = (
        prune.operand(side, axes, both.shape, left=k == 0, neighbors=2) for k, side in enumerate((both.first, both.second))
    )
    search = prune.PrunedSearch(left, right, both.shape, error=2 * candidates.ENTRY_ERROR)
    tiles = [range(len(left.packed.squares) // both.shape.features)]
    halves = search._bounded(tiles, search._memory(tiles))[0].reshape(search.panels, -1, both.shape.lanes)
    bounds = (halves.astype(np.uint32) << 16).view(np.float32)
    squares = np.swapaxes(bounds, 1, 2).reshape(-1, bounds.shape[1]).T[: len(expected), : len(expected)]
    assert (np.sqrt(squares) <= expected + 1e-5).all()
    assert (np.diagonal(squares) == 0).all() and (squares > 0).sum() > 500
    inner, seen = prune.squares_of, list[int]()

    def garbled(*given: Any) -> tuple[np.ndarray, np.ndarray]:
        squares, reach = inner(*given)
        wrong = ~(reach <= search.reach)
        seen.append(int(wrong.sum()))
        return np.where(wrong, np.float32(garbage), squares), reach

    monkeypatch.setattr(prune, "squares_of", garbled)
    monkeypatch.setattr(prune, "LEFT_MAX", 2.0)
    pairs = pruned(both, axes)
    assert pairs is not None and sum(seen) >= 30
    check(pairs, expected)


def test_what_is_not_worth_it_is_not_pruned(monkeypatch: pytest.MonkeyPatch) -> None:
    """Isotropic descriptors leave too many pairs, small sets too little time; descriptors on few axes do prune."""
    monkeypatch.setattr(axes_module, "ENTRIES_MIN", 1 << 20)
    random = generator("isotropic")
    left, right = (affine_set(random, unit(random.normal(size=(400, 128))), 2) for _ in range(2))
    both = compared(left, right)
    assert axes_module.axes_worth_it(both.first, both.second, both.shape) is None
    assert pruned(both, axes_of(both, "principal", 24)) is None
    left, right = (affine_set(random, clustered(random), 2) for _ in range(2))
    shaped = compared(left, right)
    axes = axes_module.axes_worth_it(shaped.first, shaped.second, shaped.shape)
    assert axes is not None and axes.shape[0] in axes_module.AXES
    few = compared(a_set("left", 40, 2), a_set("right", 40, 2))
    assert axes_module.axes_worth_it(few.first, few.second, few.shape) is None


def clustered(random: np.random.Generator) -> np.ndarray:
    """Four noisy views of each of a hundred descriptors on few axes, so that the two nearest are near."""
    centers = generator("clusters").normal(size=(100, 128)) * np.exp(-np.arange(128) / 12)
    return unit(np.repeat(centers, 4, axis=0) + 0.01 * random.normal(size=(400, 128)))


def test_the_scratch_holds_what_the_code_writes() -> None:
    """Oracle: the layout, entries of L pairs, then the same entries with pairs side by side."""
    shape = sweep.Shape(left=3, right=3, lanes=16)
    assert listed.scratch_floats(shape) == 16 * 16 + 16 * (9 + 1 + 9 + 3 + 2)
