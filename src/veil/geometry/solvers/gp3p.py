"""The pose of a rig from three points and three rays with centers of their own (gP3P; Nister and Stewenius 2007).

    c_i + s_i u_i = R X_i + t,   i = 1..3

Distances between the points give three quadratic equations in s_1, s_2, s_3 (docs/theory/sequences.md, Eq. 2). With s_1
hidden they are linear in (1, s_2, s_3, s_2 s_3) (Eq. 3). Tests compare the poses with planted truth, with a slow scan over s_1
and with PoseLib's solver.

A file of its own: each solver is one, with its equation.
"""

from __future__ import annotations

import numpy as np
from jaxtyping import Float64

from veil.geometry.rigid import Rigid
from veil.geometry.solvers.hidden import singular_values_of_z

MAX_POSES = 8
# Points whose triangle has a height below this share of its longest side are on one line.
COLLINEAR = 1e-6
# Newton steps that refine the distances, and the largest misfit left, as a share of the squared size of the problem.
STEPS, MISFIT = 6, 1e-9
# Two solutions nearer than this share of the size are one.
SAME = 1e-6


def rig_poses_from_three_rays(
    centers: Float64[np.ndarray, "3 3"], rays: Float64[np.ndarray, "3 3"], points: Float64[np.ndarray, "3 3"]
) -> list[Rigid]:
    """All poses (rig_from_world, up to eight) that bring the points to positive distances along their rays.

    - `centers`: where each ray begins, in the rig, in units of the world; they may be equal, as those of one camera are.
    - `rays`: unit vectors in the rig.
    - `points`: in the world. Points on one line, or numbers that are not finite, give no pose.
    """
    if not (np.isfinite(centers).all() and np.isfinite(rays).all() and np.isfinite(points).all()) or on_one_line(points):
        return []
    size = max(float(np.linalg.norm(np.ptp(points, axis=0))), float(np.linalg.norm(np.ptp(centers, axis=0))))
    system = _Distances(centers / size, rays, points / size)
    distances: list[np.ndarray] = []
    for first, vector in singular_values_of_z(system.matrix_at, MAX_POSES):
        if abs(vector[0]) < 1e-12:
            continue
        refined = system.refined(np.array([first, vector[1] / vector[0], vector[2] / vector[0]]))
        if refined is not None and not any(np.abs(refined - other).max() < SAME for other in distances):
            distances.append(refined)
    return [rig_from_points(centers + size * one[:, None] * rays, points) for one in distances]


def on_one_line(points: Float64[np.ndarray, "points 3"]) -> bool:
    """Whether points lie on one line or at one place, so that a turn about that line is open."""
    spread = np.linalg.svd(points - points.mean(axis=0), compute_uv=False)
    return not spread[1] > COLLINEAR * max(float(spread[0]), 1e-300)


def rig_from_points(seen: Float64[np.ndarray, "points 3"], points: Float64[np.ndarray, "points 3"]) -> Rigid:
    """The motion of least squares that takes `points` to `seen` (Kabsch 1976)."""
    middle, seen_middle = points.mean(axis=0), seen.mean(axis=0)
    u, _, vt = np.linalg.svd((seen - seen_middle).T @ (points - middle))
    rotation = u @ np.diag([1.0, 1.0, np.linalg.det(u @ vt)]) @ vt
    return Rigid(rotation=rotation, translation=seen_middle - rotation @ middle)


class _Distances:
    """The three quadratic equations in the distances along three rays (sequences.md, Eq. 2)."""

    def __init__(self, centers: np.ndarray, rays: np.ndarray, points: np.ndarray) -> None:
        first, second = [0, 0, 1], [1, 2, 2]
        apart = centers[first] - centers[second]
        self.cosines = (rays[first] * rays[second]).sum(axis=1)
        self.of_first = 2 * (apart * rays[first]).sum(axis=1)
        self.of_second = -2 * (apart * rays[second]).sum(axis=1)
        self.rest = (apart**2).sum(axis=1) - ((points[first] - points[second]) ** 2).sum(axis=1)

    def matrix_at(self, z: np.ndarray) -> np.ndarray:
        """The matrices of Eq. 3 at the distances `z` of the first ray, (places, 4, 4)."""
        (k2, k3, k), (f2, f3, f), (g2, g3, g), (r2, r3, r) = self.cosines, self.of_first, self.of_second, self.rest
        b2, c2 = g2 - 2 * k2 * z, z * z + f2 * z + r2  # s_2^2 = -b2 s_2 - c2
        b3, c3 = g3 - 2 * k3 * z, z * z + f3 * z + r3  # s_3^2 = -b3 s_3 - c3
        one, two, three, both = r - c2 - c3, f - b2, g - b3, np.full_like(z, -2 * k)
        rows = [
            [one, two, three, both],
            [-two * c2, one - two * b2, -both * c2, three - both * b2],
            [-three * c3, -both * c3, one - three * b3, two - both * b3],
            [
                both * c2 * c3,
                both * b2 * c3 - three * c3,
                both * b3 * c2 - two * c2,
                one - two * b2 - three * b3 + both * b2 * b3,
            ],
        ]
        return np.moveaxis(np.array(rows), 2, 0)

    def misfit(self, s: np.ndarray) -> np.ndarray:
        """The left sides of Eq. 2, (3,)."""
        first, second = s[[0, 0, 1]], s[[1, 2, 2]]
        squares = first**2 + second**2 - 2 * self.cosines * first * second
        return np.asarray(squares + self.of_first * first + self.of_second * second + self.rest)

    def refined(self, s: np.ndarray) -> np.ndarray | None:
        """Positive distances after Newton's steps, or None where they are no solution."""
        for _ in range(STEPS):
            first, second = s[[0, 0, 1]], s[[1, 2, 2]]
            slopes = np.zeros((3, 3))
            slopes[[0, 1, 2], [0, 0, 1]] = 2 * first - 2 * self.cosines * second + self.of_first
            slopes[[0, 1, 2], [1, 2, 2]] = 2 * second - 2 * self.cosines * first + self.of_second
            s = s - np.linalg.lstsq(slopes, self.misfit(s), rcond=None)[0]
        scale = max(1.0, float(np.abs(s).max())) ** 2
        good = np.isfinite(s).all() and (s > 0).all() and np.abs(self.misfit(s)).max() <= MISFIT * scale
        return s if good else None
