"""Bundle adjustment from lines against Ceres: same residuals, same minimum, no more steps."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from veil.geometry.bundle.adjustment import AdjustOptions, LineProblem, adjust
from worlds import generator
from worlds.line_problems import disturbed, first_two, planted, robust_cost

pytest.importorskip("pyceres", reason="pyceres, Ceres for Python, is not installed")

from worlds.ceres_lines import adjust_by_ceres


def with_outliers(problem: LineProblem, name: str) -> LineProblem:
    """A tenth of the lines belong to other points."""
    random = generator(f"outliers {name}")
    lines, wrong = problem.lines.copy(), np.flatnonzero(random.random(len(problem.lines)) < 0.1)
    lines[wrong] = lines[random.permutation(wrong)]
    return replace(problem, lines=lines)


@pytest.mark.parametrize("outliers", [False, True])
@pytest.mark.parametrize("both", [False, True])
def test_adjustment_agrees_with_ceres(both: bool, outliers: bool) -> None:
    """Second method. Ceres' own cost holds a trace of the position along the line, hence the wider bound on it."""
    name = f"ceres {both} {outliers}"
    truth = planted(name, images=6, points=120, noise_px=0.5, both=both, min_views=4)
    start = disturbed(with_outliers(truth, name) if outliers else truth, name, 0.005)
    veil = adjust(start, constant=first_two(truth), options=AdjustOptions(loss_px=1.0, tol=1e-10, max_iterations=100))
    ceres = adjust_by_ceres(start, constant=first_two(truth), loss_px=1.0, tol=1e-10, max_iterations=100)
    assert veil.initial_cost == pytest.approx(ceres.initial_cost, rel=1e-6)
    assert veil.initial_cost == pytest.approx(robust_cost(start, 1.0), rel=1e-12)
    assert veil.final_cost == pytest.approx(robust_cost(ceres.problem, 1.0), rel=1e-7)
    assert veil.final_cost == pytest.approx(ceres.final_cost, rel=1e-3)
    np.testing.assert_allclose(veil.problem.translations, ceres.problem.translations, atol=1e-4)
    np.testing.assert_allclose(veil.problem.rotations, ceres.problem.rotations, atol=1e-5)
    assert veil.iterations <= ceres.iterations + 2
