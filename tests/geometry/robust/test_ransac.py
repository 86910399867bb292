"""The robust loop, its shared parts, and the resection of a camera from lines by it."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pytest

from veil.errors import InputError, RangeError
from veil.geometry.rigid import rotation_angle_deg
from veil.geometry.robust.ransac import RansacOptions, locally_optimized, ransac, samples_needed
from veil.geometry.robust.resection_lines import LineResection, resect_from_lines
from veil.geometry.solvers.p6lp import pose_from_six_lines
from worlds import generator, world


@dataclass(frozen=True)
class Slope:
    """y = a x + b through planted points with outliers: small enough to check the loop by hand."""

    xy: np.ndarray

    def sample(self, random: np.random.Generator) -> np.ndarray:
        return random.choice(len(self.xy), 2, replace=False)

    def models(self, rows: np.ndarray) -> list[np.ndarray]:
        (x0, y0), (x1, y1) = self.xy[rows]
        return [] if x0 == x1 else [np.array([(y1 - y0) / (x1 - x0), y0 - x0 * (y1 - y0) / (x1 - x0)])]

    def residuals(self, model: np.ndarray) -> np.ndarray:
        return np.abs(self.xy[:, 0] * model[0] + model[1] - self.xy[:, 1])

    def refine(self, model: np.ndarray, inliers: np.ndarray) -> np.ndarray | None:
        return np.polyfit(self.xy[inliers, 0], self.xy[inliers, 1], 1) if inliers.sum() > 2 else None


def slope(name: str, outliers: float) -> Slope:
    random = generator(name)
    x = random.uniform(-5, 5, 200)
    y = 2 * x - 1 + 0.01 * random.normal(size=200)
    wrong = random.random(200) < outliers
    y[wrong] = random.uniform(-20, 20, wrong.sum())
    return Slope(np.stack([x, y], axis=1))


@pytest.mark.parametrize("outliers", [0.0, 0.5, 0.8])
def test_the_loop_finds_a_planted_line(outliers: float) -> None:
    fit = ransac(slope(f"slope {outliers}", outliers), 2, RansacOptions(max_error=0.05))
    assert fit is not None
    np.testing.assert_allclose(fit.model, [2, -1], atol=0.02)
    assert fit.inliers.mean() > 0.9 * (1 - outliers)


def test_runs_repeat_and_seeds_differ() -> None:
    problem = slope("repeat", 0.7)
    options = RansacOptions(max_error=0.05, min_iterations=5, max_iterations=5)
    scores = [ransac(problem, 2, replace(options, seed=seed)) for seed in (1, 1, 2, 3, 4)]
    assert all(s is not None for s in scores)
    values = [s.score for s in scores if s is not None]
    assert values[0] == values[1]
    assert len(set(values)) > 1


def test_clean_data_stop_early_and_hopeless_ones_at_the_limit() -> None:
    clean = ransac(slope("clean", 0.0), 2, RansacOptions(max_error=0.2, min_iterations=1))
    assert clean is not None and clean.iterations < 10
    never = Slope(np.zeros((5, 2)))
    assert ransac(never, 2, RansacOptions(max_error=0.1, max_iterations=150)) is None


@pytest.mark.parametrize("clean", [1e-9, 1e-3, 0.3, 0.999])
def test_the_samples_needed_hold_a_clean_one_with_the_confidence(clean: float) -> None:
    """Defining inequality: (1 - clean)^k <= 1 - confidence holds for k samples, and not for k - 1."""
    needed = samples_needed(clean, 0.9999)
    assert needed * np.log1p(-clean) <= np.log(1e-4) * (1 - 1e-9)
    assert (needed - 1) * np.log1p(-clean) >= np.log(1e-4) * (1 + 1e-9)
    assert samples_needed(1.0, 0.9999) == 1 and samples_needed(0.0, 0.9999) == 2**62


def test_local_optimization_ends_where_nothing_improves() -> None:
    """By hand: integers refined toward 0 by one, their cost the absolute value; then steps that lead nowhere, or up."""
    assert locally_optimized(5, refined=lambda x: x - 1, cost=abs, rounds=3) == 2
    assert locally_optimized(2, refined=lambda x: x - 1, cost=abs, rounds=9) == 0
    assert locally_optimized(5, refined=lambda x: None, cost=abs, rounds=3) == 5
    assert locally_optimized(5, refined=lambda x: x, cost=abs, rounds=3) == 5
    assert locally_optimized(5, refined=lambda x: x + 1, cost=abs, rounds=3) == 5


@pytest.mark.parametrize("bad", [{"max_error": 0.0}, {"max_error": np.nan}, {"max_error": 1.0, "confidence": 1.0}])
def test_loop_options_out_of_range(bad: dict) -> None:
    with pytest.raises(RangeError):
        RansacOptions(**bad)


def lines_of(
    name: str, *, aligned_share: float, wrong_share: float = 0.0, noise_px: float = 0.0
) -> tuple[LineResection, object]:
    """(problem, true pose) of one view of a world: lines of its points, a share vertical, a share through wrong places."""
    random = generator(f"view {name}")
    place = world("robust", points=300, noise_px=noise_px)
    pose = place.poses["02"]
    xy = place.keypoints["02"].astype(np.float64)
    fx, fy, cx, cy = place.camera.params
    flat = (xy - [cx, cy]) / [fx, fy]
    wrong = random.random(len(flat)) < wrong_share
    flat[wrong] = flat[wrong][random.permutation(int(wrong.sum()))]
    theta = random.uniform(0, np.pi, len(flat))
    aligned = random.random(len(flat)) < aligned_share
    down = pose.rotation @ [0, 1.0, 0]
    rays = np.hstack([flat, np.ones((len(flat), 1))])
    vertical = np.cross(rays, down)
    normals = np.where(aligned[:, None], vertical[:, :2], np.stack([np.cos(theta), np.sin(theta)], axis=1))
    normals /= np.linalg.norm(normals, axis=1, keepdims=True)
    lines = np.hstack([normals, -(normals * flat).sum(axis=1, keepdims=True)])
    problem = LineResection(
        lines=lines, points=place.points[place.visible["02"]], aligned=aligned, focal_px=fx, half_extent=np.array([0.8, 0.6])
    )
    return problem, pose


def test_six_lines_give_the_planted_pose() -> None:
    problem, truth = lines_of("six", aligned_share=0.0)
    for start in range(0, 60, 6):
        rows = np.arange(start, start + 6)
        poses = pose_from_six_lines(problem.lines[rows], problem.points[rows])
        gaps = [np.linalg.norm(p.center - truth.center) for p in poses]  # type: ignore[attr-defined]
        assert min(gaps) < 1e-2  # keypoints are float32
    with pytest.raises(InputError, match="takes 6"):
        pose_from_six_lines(problem.lines[:5], problem.points[:5])


@pytest.mark.slow
@pytest.mark.parametrize("aligned", [0.0, 0.5])
@pytest.mark.parametrize("wrong", [0.0, 0.5])
def test_a_camera_from_lines(aligned: float, wrong: float) -> None:
    """Planted truth under noise, gravity-aligned shares and half the matches wrong."""
    problem, truth = lines_of(f"camera {aligned} {wrong}", aligned_share=aligned, wrong_share=wrong, noise_px=0.3)
    fit = resect_from_lines(problem, RansacOptions(max_error=4.0, max_iterations=3000))
    assert fit is not None
    assert np.linalg.norm(fit.model.center - truth.center) < 0.03  # type: ignore[attr-defined]
    assert rotation_angle_deg(fit.model.rotation @ truth.rotation.T) < 0.3  # type: ignore[attr-defined]


def test_lines_that_only_follow_gravity_are_refused() -> None:
    problem, _ = lines_of("gravity only", aligned_share=1.0)
    assert resect_from_lines(problem, RansacOptions(max_error=4.0)) is None


@pytest.mark.slow
def test_ranked_lines_need_few_samples() -> None:
    """Planted pose with 15 of 16 matches wrong, the right ones in front: uniform samples (the broken twin) find nothing."""
    place, truth = lines_of("ranked", aligned_share=0.25)
    random = generator("ranked wrong")
    count = len(place.lines)
    wrong = random.integers(0, count, 15 * count)
    problem = replace(
        place,
        lines=np.vstack([place.lines, place.lines[wrong]]),
        points=np.vstack([place.points, place.points[random.permutation(wrong)]]),
        aligned=np.concatenate([place.aligned, place.aligned[wrong]]),
    )
    options = RansacOptions(max_error=4.0, max_iterations=400)
    uniform = resect_from_lines(problem, options)
    ranked = resect_from_lines(replace(problem, best_first=True), options)
    assert ranked is not None and uniform is not None
    assert np.linalg.norm(ranked.model.center - truth.center) < 1e-2  # type: ignore[attr-defined]
    assert np.linalg.norm(uniform.model.center - truth.center) > 0.1  # type: ignore[attr-defined]
    assert ranked.iterations == options.min_iterations


@pytest.mark.parametrize("best_first", [False, True])
def test_the_clean_share_is_that_of_the_samples(best_first: bool) -> None:
    """Simulation: of 4,000 samples a share as in Eq. 24 holds right lines only; rows differ, two are not along gravity."""
    place, _ = lines_of("clean", aligned_share=0.3)
    problem = replace(place, best_first=best_first)
    right = generator("clean mask").random(len(place.lines)) < np.linspace(1.0, 0.6, len(place.lines))
    random = generator("clean samples")
    samples = np.array([problem.sample(random) for _ in range(4000)])
    assert all(len(set(rows)) == 6 for rows in samples.tolist())
    assert ((~place.aligned[samples]).sum(axis=1) >= 2).all()
    share, expected = right[samples].all(axis=1).mean(), problem.clean_share(right)
    assert abs(share - expected) < 0.05
    assert best_first == (expected > 1.5 * right.mean() ** 6)


@pytest.mark.slow
def test_a_pose_is_polished_at_the_residuals_own_scale() -> None:
    """Planted pose, a third of the keypoints off by some pixels: the polished pose is nearer than a wide loss leaves it."""
    gaps = []
    for index in range(12):
        place, truth = lines_of(f"polish {index}", aligned_share=0.0, noise_px=0.2)
        random = generator(f"moved {index}")
        moved = random.random(len(place.lines)) < 1 / 3
        offset = np.where(moved, random.normal(size=len(moved)) * 2.0 / place.focal_px, 0.0)
        problem = replace(place, lines=place.lines + np.stack([0 * offset, 0 * offset, offset], axis=1))
        fit = resect_from_lines(problem, RansacOptions(max_error=4.0))
        assert fit is not None
        wide = problem.refine(fit.model, fit.inliers)
        assert wide is not None
        gaps.append([np.linalg.norm(pose.center - truth.center) for pose in (fit.model, wide)])  # type: ignore[attr-defined]
    polished, wide_loss = np.median(gaps, axis=0)
    assert polished < 0.8 * wide_loss
