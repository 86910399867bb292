"""Bundle adjustment from lines: derivatives, a second solver, planted truth, and both linear algebras."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from scipy.optimize import least_squares

from veil.errors import InputError, RangeError
from veil.geometry.bundle import adjustment
from veil.geometry.bundle.adjustment import AdjustOptions, LineProblem, adjust, residuals
from worlds import generator
from worlds.line_problems import disturbed, first_two, moved, planted, robust_cost


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
    work = adjustment._Buffers(problem, constant=np.zeros(5, dtype=bool), held=np.zeros(12, dtype=bool), loss=2.0, threads=1)
    state = adjustment._state(problem)
    work.linearize(state)
    parts = np.zeros((5, 6)), np.zeros((12, 3))
    for part, of, columns in zip(parts, (problem.camera_of, problem.point_of), (slice(0, 6), slice(6, 9)), strict=True):
        np.add.at(part, of, work.jacobian.rows[:, columns] * work.jacobian.rows[:, 9:])
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


@pytest.mark.slow
@pytest.mark.parametrize("loss", [np.inf, 1.0])
def test_adjustment_agrees_with_scipy(loss: float) -> None:
    """Second method: scipy's trust region on the same residuals and loss, same minimum."""
    problem = disturbed(planted("scipy", points=40, noise_px=0.5), "scipy", 0.003)
    adjusted = adjust(problem, constant=first_two(problem), options=AdjustOptions(loss_px=loss, tol=1e-14, max_iterations=200))

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
    assert adjusted.final_cost == pytest.approx(expected.cost, rel=1e-6)
    assert adjusted.final_cost < adjusted.initial_cost / 5
    solution = unpack(expected.x)
    np.testing.assert_allclose(adjusted.problem.translations, solution.translations, atol=1e-4)


@pytest.mark.parametrize("both", [False, True])
def test_planted_truth_is_recovered(both: bool) -> None:
    truth = planted("truth", points=150, both=both)
    adjusted = adjust(disturbed(truth, "truth", 0.02), constant=first_two(truth), options=AdjustOptions(max_iterations=100))
    np.testing.assert_allclose(adjusted.problem.translations, truth.translations, atol=1e-4)
    np.testing.assert_allclose(adjusted.problem.rotations, truth.rotations, atol=1e-4)


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
        adjusted = adjust(start, constant=first_two(truth), options=AdjustOptions(loss_px=loss, max_iterations=100))
        errors.append(np.abs(adjusted.problem.translations - truth.translations).max())
    assert errors[0] < 2e-3
    assert errors[1] > 5 * errors[0]


def test_sparse_and_dense_systems_give_the_same_step(monkeypatch: pytest.MonkeyPatch) -> None:
    problem = disturbed(planted("sparse", images=8, noise_px=0.3), "sparse")
    dense = adjust(problem, constant=first_two(problem))
    monkeypatch.setattr(adjustment, "DENSE_CAMERAS", 0)
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
    adjusted = adjust(start, constant=first_two(truth), options=AdjustOptions(adjust_points=False))
    np.testing.assert_array_equal(adjusted.problem.points, truth.points)
    np.testing.assert_allclose(adjusted.problem.translations, truth.translations, atol=1e-4)


def test_constant_points_stay() -> None:
    """Defining property: constant points do not move; and with all of them constant the result is that of cameras alone."""
    truth = planted("held", points=80, noise_px=0.3)
    start = replace(disturbed(truth, "held"), points=truth.points)
    some = np.arange(len(truth.points)) % 3 == 0
    adjusted = adjust(start, constant=first_two(truth), constant_points=some)
    np.testing.assert_array_equal(adjusted.problem.points[some], truth.points[some])
    assert (adjusted.problem.points[~some] != truth.points[~some]).any(axis=1).all()
    everything = adjust(start, constant=first_two(truth), constant_points=np.ones(len(some), dtype=bool))
    cameras = adjust(start, constant=first_two(truth), options=AdjustOptions(adjust_points=False))
    assert cameras.final_cost == everything.final_cost
    assert adjusted.final_cost < everything.final_cost


def test_points_whose_step_ends_behind_a_camera_block_nothing() -> None:
    """Second start: points far too distant (the linear step takes them behind) reach the minimum reached from nearby.

    Rejecting such a step, or leaving the point where it is, ends in another minimum.
    """
    truth = planted("behind", images=6, points=200, noise_px=0.3)
    near = disturbed(truth, "behind", 0.005)
    points = near.points.copy()
    points[:3] *= 1000 / points[:3, 2:]
    options = AdjustOptions(loss_px=np.inf)
    expected = adjust(near, constant=first_two(truth), options=options)
    adjusted = adjust(replace(near, points=points), constant=first_two(truth), options=options)
    assert adjusted.final_cost == pytest.approx(expected.final_cost, rel=1e-6)
    np.testing.assert_allclose(adjusted.problem.points, expected.problem.points, atol=1e-3)
    assert adjusted.iterations <= 20


@pytest.mark.parametrize("loss", [np.inf, 2.0])
def test_a_well_posed_problem_ends_in_few_steps(loss: float) -> None:
    """Quadratic convergence near the minimum; at an exact minimum no step is tried in vain."""
    truth = planted("few", images=8, points=150, noise_px=0.3, min_views=4)
    adjusted = adjust(disturbed(truth, "few", 0.002), constant=first_two(truth), options=AdjustOptions(loss_px=loss, tol=1e-6))
    assert adjusted.iterations <= 6
    again = adjust(adjusted.problem, constant=first_two(truth), options=AdjustOptions(loss_px=loss, tol=1e-6))
    assert again.iterations <= 1


def test_the_number_of_threads_changes_no_digit(monkeypatch: pytest.MonkeyPatch) -> None:
    """Oracle: equality. The work is cut into the same chunks whatever the threads."""
    monkeypatch.setattr(adjustment, "CHUNK_OBSERVATIONS", 300)
    truth = planted("threads", images=8, points=150, noise_px=0.3)
    one, three = (
        adjust(disturbed(truth, "threads"), constant=first_two(truth), options=AdjustOptions(threads=count)) for count in (1, 3)
    )
    np.testing.assert_array_equal(one.problem.points, three.problem.points)
    assert one.final_cost == three.final_cost
    monkeypatch.setattr(adjustment, "CHUNK_OBSERVATIONS", 10**9)
    whole = adjust(disturbed(truth, "threads"), constant=first_two(truth))
    assert whole.final_cost == pytest.approx(one.final_cost, rel=1e-9)


def test_what_cannot_be_adjusted_is_refused() -> None:
    good = planted("refuse")
    with pytest.raises(InputError, match="sorted"):
        replace(good, point_of=good.point_of[::-1].copy())
    with pytest.raises(InputError, match="not there"):
        replace(good, camera_of=good.camera_of + 10)
    with pytest.raises(RangeError, match="loss_px"):
        AdjustOptions(loss_px=0.0)
    with pytest.raises(RangeError, match="threads"):
        AdjustOptions(threads=0)
