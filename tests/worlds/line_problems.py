"""Line adjustment problems with planted truth, for tests and benchmarks."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from scipy.spatial.transform import Rotation

from veil.geometry.bundle.adjustment import LineProblem, residuals
from veil.geometry.rigid import Rigid
from worlds import camera, generator, project, world


def planted(
    name: str, *, images: int = 5, points: int = 60, noise_px: float = 0.0, both: bool = False, min_views: int = 1
) -> LineProblem:
    """A problem of lines through a world's projections, in random directions (with `both`, two orthogonal ones a point)."""
    place = world(name, images=images, points=points, noise_px=noise_px)
    names = sorted(place.poses)
    return _problem(
        generator(f"lines {name}"),
        poses=[place.poses[key] for key in names],
        points=place.points,
        keypoints=[place.keypoints[key].astype(np.float64) for key in names],
        visible=[place.visible[key] for key in names],
        turns=(0.0, np.pi / 2)[: 2 if both else 1],
        min_views=min_views,
    )


def ring(name: str, *, cameras: int, points: int, noise_px: float = 0.3) -> LineProblem:
    """A problem of cameras on a circle, closed by 150, that look outward at a shell of points; about six see each point."""
    random = generator(f"ring {name}")
    intrinsics = camera()
    size, radius, turns = [intrinsics.width_px, intrinsics.height_px], 26.0, 2 * np.pi / 150 * np.arange(cameras)
    angle = random.uniform(0, 2 * np.pi / 150 * (cameras - 1), points)
    distance = radius + random.uniform(4, 8, points)
    cloud = np.stack([distance * np.sin(angle), random.uniform(-1.5, 1.5, points), distance * np.cos(angle)], axis=1)
    poses, keypoints, visible = [], [], []
    for turn in turns:
        rotation = Rotation.from_rotvec([0, -turn, 0]).as_matrix()
        poses.append(Rigid(rotation=rotation, translation=np.array([0, 0.2 * np.sin(7 * turn), -radius])))
        ahead = np.flatnonzero((cloud @ rotation.T)[:, 2] > radius + 1)
        xy = project(poses[-1], cloud[ahead], intrinsics)
        inside = ((xy > 0) & (xy < size)).all(axis=1)
        visible.append(ahead[inside])
        keypoints.append(xy[inside] + noise_px * random.normal(size=(inside.sum(), 2)))
    return _problem(random, poses=poses, points=cloud, keypoints=keypoints, visible=visible, min_views=4)


def _problem(
    random: np.random.Generator,
    *,
    poses: list[Rigid],
    points: np.ndarray,
    keypoints: list[np.ndarray],
    visible: list[np.ndarray],
    turns: tuple[float, ...] = (0.0,),
    min_views: int = 1,
) -> LineProblem:
    """The problem of lines in random directions through keypoints, one at each angle of `turns` to a random one."""
    fx, fy, cx, cy = camera().params
    k = np.array([[fx, 0, cx], [0, fy, cy], [0, 0, 1]])
    lines, cameras, rows = [], [], []
    for index, (xy, seen) in enumerate(zip(keypoints, visible, strict=True)):
        theta = random.uniform(0, np.pi, len(xy))
        for turn in turns:
            normal = np.stack([np.cos(theta + turn), np.sin(theta + turn)], axis=1)
            lines.append(np.concatenate([normal, -(normal * xy).sum(axis=1, keepdims=True)], axis=1) @ k)
            cameras.append(np.full(len(xy), index))
            rows.append(seen)
    track = np.concatenate(rows)
    views = np.bincount(np.concatenate(visible), minlength=len(points))
    order = np.argsort(track, kind="stable")
    order = order[views[track[order]] >= min_views]
    used, compact = np.unique(track[order], return_inverse=True)
    return LineProblem(
        rotations=np.array([p.rotation for p in poses]),
        translations=np.array([p.translation for p in poses]),
        points=points[used],
        lines=np.concatenate(lines)[order],
        camera_of=np.concatenate(cameras)[order].astype(np.int64),
        point_of=compact.astype(np.int64),
    )


def moved(problem: LineProblem, cameras: np.ndarray, points: np.ndarray) -> LineProblem:
    """The problem after a step R <- exp(omega) R, t <- t + dt, X <- X + dX, with rotations by scipy."""
    return replace(
        problem,
        rotations=Rotation.from_rotvec(cameras[:, :3]).as_matrix() @ problem.rotations,
        translations=problem.translations + cameras[:, 3:],
        points=problem.points + points,
    )


def robust_cost(problem: LineProblem, loss_px: float) -> float:
    """Robust cost in plain NumPy (docs/theory/lines.md, Eq. 13); an infinite loss is least squares."""
    squares = residuals(problem) ** 2
    return float(0.5 * (squares if np.isinf(loss_px) else loss_px**2 * np.log1p(squares / loss_px**2)).sum())


def disturbed(problem: LineProblem, name: str, size: float = 0.01) -> LineProblem:
    """The problem with all points and all cameras but the first two moved by normal noise (radians and units of length)."""
    random = generator(f"disturb {name}")
    cameras = size * random.normal(size=(2, len(problem.rotations), 3))
    cameras[:, :2] = 0
    return moved(problem, np.hstack([*cameras]), size * random.normal(size=problem.points.shape))


def first_two(problem: LineProblem) -> np.ndarray:
    """Mask of the first two cameras, which, held constant, fix the gauge with its scale, so that solvers can be compared."""
    constant = np.zeros(len(problem.rotations), dtype=bool)
    constant[:2] = True
    return constant
