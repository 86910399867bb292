"""Small linear programs against HiGHS, and against vertices known by construction."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from scipy.optimize import linprog

from veil.attacks.structural.simplex import INFEASIBLE, OPTIMAL, STOPPED, Minima, minimize
from veil.errors import InputError, RangeError
from worlds import generator


def planted(name: str, count: int, m: int, n: int, zeros: int) -> tuple[np.ndarray, np.ndarray]:
    """Orthonormal bases, and non-negative points with `zeros` zeros for flats to go through."""
    rng = generator(name)
    basis = np.swapaxes(np.linalg.qr(rng.normal(size=(count, n, m)))[0], 1, 2)
    points = np.abs(rng.normal(size=(count, n))) / np.sqrt(n)
    for row in points:
        row[rng.permutation(n)[:zeros]] = 0
    return basis, points


def programs(name: str, count: int, m: int, n: int, zeros: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Origins nearest to zero, bases and random objectives."""
    basis, points = planted(name, count, m, n, zeros)
    origin = points - np.einsum("fm,fmn->fn", np.einsum("fmn,fn->fm", basis, points), basis)
    return origin, basis, generator(f"{name} objective").normal(size=(count, m))


def by_highs(origin: np.ndarray, basis: np.ndarray, objective: np.ndarray, box: float) -> tuple[int, float]:
    bounds = [(-box, None) if g >= 0 else (None, box) for g in objective]
    result = linprog(objective, A_ub=-basis.T, b_ub=origin, bounds=bounds, method="highs")
    return result.status, float("nan") if result.fun is None else float(result.fun)


def value(minima: Minima, objective: np.ndarray) -> np.ndarray:
    return (minima.coefficients * objective).sum(axis=1)


@pytest.mark.parametrize(("m", "n", "zeros"), [(1, 5, 0), (2, 20, 0), (4, 128, 3), (8, 60, 30), (16, 128, 40), (68, 128, 80)])
def test_the_minimum_is_that_of_another_solver(m: int, n: int, zeros: int) -> None:
    """Second method: HiGHS. With many zeros the minimum is often a degenerate vertex, on more than m constraints."""
    origin, basis, objective = programs(f"simplex {m} {n}", 12, m, n, zeros)
    minima = minimize(origin, basis, objective, box=2.0)
    assert (minima.status == OPTIMAL).all()
    expected = [by_highs(*program, 2.0) for program in zip(origin, basis, objective, strict=True)]
    assert [status for status, _ in expected] == [0] * 12
    np.testing.assert_allclose(value(minima, objective), [least for _, least in expected], atol=1e-8)
    np.testing.assert_allclose(minima.slacks, origin + np.einsum("fm,fmn->fn", minima.coefficients, basis), atol=1e-12)
    assert minima.slacks.min() > -1e-9


def test_minima_are_vertices() -> None:
    """Defining property: m constraints of rank m are active, some of them sides of the box exactly where `boxed` says so."""
    origin, basis, objective = programs("vertices", 60, 4, 12, 0)
    minima = minimize(origin, basis, objective, box=0.4)
    assert 0 < minima.boxed.sum() < 60
    side = np.abs(minima.coefficients + np.where(objective >= 0, 0.4, -0.4)) < 1e-9
    assert (side.any(axis=1) == minima.boxed).all()
    for k in range(60):
        normals = np.concatenate([basis[k].T[np.abs(minima.slacks[k]) < 1e-9], np.eye(4)[side[k]]])
        assert np.linalg.matrix_rank(normals) == 4


def test_every_vertex_of_a_small_polytope_is_checked() -> None:
    """Enumeration: the least value over all feasible intersections of m constraints, box included."""
    origin, basis, objective = programs("enumerated", 10, 3, 9, 2)
    minima = minimize(origin, basis, objective, box=1.0)
    for k in range(10):
        sign = np.where(objective[k] >= 0, 1.0, -1.0)
        normals, offsets = np.concatenate([basis[k].T, np.diag(sign)]), np.concatenate([origin[k], np.ones(3)])
        values = []
        for chosen in map(list, itertools.combinations(range(12), 3)):
            if abs(np.linalg.det(normals[chosen])) > 1e-9:
                c = np.linalg.solve(normals[chosen], -offsets[chosen])
                if (normals @ c + offsets).min() > -1e-9:
                    values.append(float(objective[k] @ c))
        assert value(minima, objective)[k] == pytest.approx(min(values), abs=1e-9)


def test_a_degenerate_vertex_is_found_from_its_normal_cone() -> None:
    """Planted truth: objectives that are positive combinations of the normals of all 30 constraints through one point."""
    origin, basis, _ = programs("cone", 20, 5, 40, 30)
    truth = planted("cone", 20, 5, 40, 30)[1]
    zeros = truth == 0
    objective = np.einsum("fmn,fn->fm", basis, zeros * generator("cone weights").random((20, 40)))
    minima = minimize(origin, basis, objective, box=2.0)
    np.testing.assert_allclose(minima.slacks, truth, atol=1e-9)


def test_programs_without_a_feasible_point_are_told() -> None:
    """Second method: HiGHS; signed points have hardly ever a non-negative point in a flat of 4 dimensions."""
    rng = generator("infeasible")
    basis = np.swapaxes(np.linalg.qr(rng.normal(size=(30, 16, 4)))[0], 1, 2)
    origin, objective = 0.3 * rng.normal(size=(30, 16)) + 0.25, rng.normal(size=(30, 4))
    minima = minimize(origin, basis, objective, box=3.0)
    expected = np.array([by_highs(*program, 3.0)[0] for program in zip(origin, basis, objective, strict=True)])
    assert {0, 2} == set(expected.tolist())
    np.testing.assert_array_equal(minima.status == INFEASIBLE, expected == 2)
    np.testing.assert_array_equal(minima.status == OPTIMAL, expected == 0)


def test_unbounded_programs_end_on_the_box() -> None:
    """By hand: one constraint x >= 0, and an objective that runs away along the second direction."""
    minima = minimize(np.array([[0.5]]), np.array([[[1.0], [0.0]]]), np.array([[1.0, -2.0]]), box=7.0)
    np.testing.assert_allclose(minima.coefficients, [[-0.5, 7.0]])
    assert minima.boxed.tolist() == [True] and minima.status.tolist() == [OPTIMAL]


def test_a_stopped_search_says_so() -> None:
    origin, basis, objective = programs("stopped", 8, 16, 128, 30)
    assert (minimize(origin, basis, objective, box=2.0, max_pivots=2).status == STOPPED).all()


def test_bad_programs_are_refused() -> None:
    origin, basis, objective = programs("bad", 2, 3, 9, 0)
    with pytest.raises(InputError, match="need origins"):
        minimize(origin[:, :8], basis, objective, box=1.0)
    with pytest.raises(InputError, match="need origins"):
        minimize(origin, basis, objective[:, :2], box=1.0)
    with pytest.raises(InputError, match="NaN"):
        minimize(origin * np.nan, basis, objective, box=1.0)
    for box in (0.0, -1.0, float("nan"), float("inf")):
        with pytest.raises(RangeError, match="box"):
            minimize(origin, basis, objective, box=box)
    with pytest.raises(RangeError, match="max_pivots"):
        minimize(origin, basis, objective, box=1.0, max_pivots=0)
