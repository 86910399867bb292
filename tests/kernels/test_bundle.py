"""Bundle adjustment from lines: derivatives, a second solver, planted truth, and both linear algebras."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from scipy.optimize import least_squares

from line_problems import disturbed, first_two, moved, planted, robust_cost
from veil.errors import InputError, RangeError
from veil.kernels import bundle, reduced
from veil.kernels.bundle import AdjustOptions, LineProblem, adjust, residuals
from worlds import generator


def test_residuals_are_pixel_distances_to_lines() -> None:
    """Defining equation 12 on exact data is 0; a point moved by one pixel across its line has residual 1."""
    problem = planted("exact")
    np.testing.assert_allclose(residuals(problem), 0, atol=1e-4)  # keypoints are float32
    behind = replace(problem, points=problem.points - [0, 0, 100.0])
    assert np.isinf(residuals(behind)).all()
    with pytest.raises(InputError, match="behind"):
        adjust(behind, constant=first_two(problem))


def test_gradients_agree_with_finite_differences() -> None:
    """Second method: central differences of the robust cost in every camera and point direction."""
    problem = disturbed(planted("gradient", points=12), "gradient")
    work = bundle._Work(problem, constant=np.zeros(5, dtype=bool), held=np.zeros(12, dtype=bool), loss=2.0, threads=map)
    state = bundle._State(rotations=problem.rotations, translations=problem.translations, points=problem.points)
    work.linearize(state)
    parts = np.zeros((5, 6)), np.zeros((12, 3))
    for part, of, columns in zip(parts, (problem.camera_of, problem.point_of), (slice(0, 6), slice(6, 9)), strict=True):
        np.add.at(part, of, work.rows[:, columns] * work.rows[:, 9:])
    zeros, step = (np.zeros((5, 6)), np.zeros((12, 3))), 1e-6
    for place, gradient in enumerate(parts):
        numeric = np.empty_like(gradient)
        for index in np.ndindex(gradient.shape):
            values = []
            for sign in (1, -1):
                steps = [part.copy() for part in zeros]
                steps[place][index] = sign * step
                values.append(robust_cost(moved(problem, *steps), 2.0))
            numeric[index] = (values[0] - values[1]) / (2 * step)
        np.testing.assert_allclose(gradient, numeric, rtol=1e-5, atol=1e-3)


@pytest.mark.parametrize("loss", [np.inf, 1.0])
def test_adjustment_agrees_with_scipy(loss: float) -> None:
    """Second method: scipy's trust region on the same residuals and loss, same minimum."""
    problem = disturbed(planted("scipy", points=40, noise_px=0.5), "scipy", 0.003)
    found = adjust(problem, constant=first_two(problem), options=AdjustOptions(loss_px=loss, tol=1e-14, max_iterations=200))

    def unpack(vector: np.ndarray) -> LineProblem:
        return moved(problem, np.concatenate([np.zeros((2, 6)), vector[:18].reshape(3, 6)]), vector[18:].reshape(-1, 3))

    kwargs = {} if np.isinf(loss) else {"loss": "cauchy", "f_scale": loss}
    expected = least_squares(
        lambda vector: residuals(unpack(vector)),
        np.zeros(18 + problem.points.size),
        x_scale="jac",
        xtol=1e-14,
        ftol=1e-14,
        gtol=1e-14,
        **kwargs,
    )
    assert found.final_cost == pytest.approx(expected.cost, rel=1e-6)
    assert found.final_cost < found.initial_cost / 5
    solution = unpack(expected.x)
    np.testing.assert_allclose(found.problem.translations, solution.translations, atol=1e-4)


@pytest.mark.parametrize("both", [False, True])
def test_planted_truth_is_recovered(both: bool) -> None:
    truth = planted("truth", points=150, both=both)
    found = adjust(disturbed(truth, "truth", 0.02), constant=first_two(truth), options=AdjustOptions(max_iterations=100))
    np.testing.assert_allclose(found.problem.translations, truth.translations, atol=1e-4)
    np.testing.assert_allclose(found.problem.rotations, truth.rotations, atol=1e-4)


def test_outliers_do_not_move_the_robust_optimum() -> None:
    """A tenth of the lines are wrong; least squares, the broken twin, is dragged away."""
    truth = planted("outliers", points=200)
    random = generator("outliers pick")
    lines = truth.lines.copy()
    wrong = random.random(len(lines)) < 0.1
    lines[wrong] = lines[random.permutation(np.flatnonzero(wrong))]
    start = disturbed(replace(truth, lines=lines), "outliers", 0.002)
    errors = []
    for loss in (0.5, np.inf):
        found = adjust(start, constant=first_two(truth), options=AdjustOptions(loss_px=loss, max_iterations=100))
        errors.append(np.abs(found.problem.translations - truth.translations).max())
    assert errors[0] < 2e-3
    assert errors[1] > 5 * errors[0]


def test_sparse_and_dense_systems_give_the_same_step(monkeypatch: pytest.MonkeyPatch) -> None:
    problem = disturbed(planted("sparse", images=8, noise_px=0.3), "sparse")
    dense = adjust(problem, constant=first_two(problem))
    monkeypatch.setattr(reduced, "DENSE_CAMERAS", 0)
    sparse = adjust(problem, constant=first_two(problem))
    assert sparse.final_cost == pytest.approx(dense.final_cost, rel=1e-9)
    np.testing.assert_allclose(sparse.problem.points, dense.problem.points, atol=1e-6)


def test_one_constant_camera_leaves_scale_to_the_damping() -> None:
    """Free gauge: the cost still reaches the minimum, and the scale stays near where it started."""
    truth = planted("scale", points=120, noise_px=0.3)
    constant = np.zeros(len(truth.rotations), dtype=bool)
    constant[0] = True
    free_scale = adjust(disturbed(truth, "scale"), constant=constant)
    fixed = adjust(disturbed(truth, "scale"), constant=first_two(truth))
    assert free_scale.final_cost <= fixed.final_cost * (1 + 1e-6)
    spread = [np.linalg.norm(p.problem.points - p.problem.points.mean(axis=0), axis=1).mean() for p in (free_scale, fixed)]
    assert spread[0] == pytest.approx(spread[1], rel=0.1)


def test_cameras_alone() -> None:
    truth = planted("poses", points=80)
    start = replace(disturbed(truth, "poses"), points=truth.points)
    found = adjust(start, constant=first_two(truth), options=AdjustOptions(adjust_points=False))
    np.testing.assert_array_equal(found.problem.points, truth.points)
    np.testing.assert_allclose(found.problem.translations, truth.translations, atol=1e-4)


def test_what_cannot_be_adjusted_is_refused() -> None:
    good = planted("refuse")
    with pytest.raises(InputError, match="sorted"):
        replace(good, point_of=good.point_of[::-1].copy())
    with pytest.raises(InputError, match="not there"):
        replace(good, camera_of=good.camera_of + 10)
    with pytest.raises(RangeError, match="loss_px"):
        AdjustOptions(loss_px=0.0)
