"""The pose of a rig from six planes through known points: lines in several pictures (generalized P6L).

    n_i^T (R X_i + t) + o_i = 0,   i = 1..6

A line of a picture and the center of its camera span such a plane. Three combinations of the equations lose t; in the Cayley
parameters of R they are quadrics, whose eight common points are found with one parameter hidden (Kukelova, Heller and
Fitzgibbon 2016; docs/theory/sequences.md, Eq. 6-9). For one camera all o_i are zero, and the problem is that of `p6lp`.

A file of its own: each solver is one, with its equation.
"""

from __future__ import annotations

import numpy as np
from jaxtyping import Float64

from veil.geometry.rigid import Rigid
from veil.geometry.solvers.hidden import singular_values_of_z

MAX_POSES = 8
# Planes whose normals have a third singular value below this leave a shift open.
OPEN = 1e-9
# Newton steps in the three parameters, and the largest misfit of a plane left, for points of size 1.
STEPS, MISFIT = 8, 1e-8
SAME = 1e-6
# A turn of the world that is undone afterwards: Cayley's parameters have no half turns, and data often has.
_FIXED = np.array([[0.36, 0.48, -0.8], [-0.8, 0.6, 0.0], [0.48, 0.64, 0.6]])
_PAIRS = ((0, 0), (1, 1), (0, 1))  # x^2, y^2, xy, which are eliminated


def rig_poses_from_six_planes(
    normals: Float64[np.ndarray, "6 3"], offsets: Float64[np.ndarray, "6"], points: Float64[np.ndarray, "6 3"]
) -> list[Rigid]:
    """All real poses (rig_from_world, up to eight) that put each point into its plane; signs of depths are not looked at.

    - `normals`, `offsets`: planes n . x + o = 0 of the rig, of unit normals, in units of the world.
    - `points`: in the world. Planes that all hold one direction leave a shift along it open, and give no pose.
    """
    if not (np.isfinite(normals).all() and np.isfinite(offsets).all() and np.isfinite(points).all()):
        return []
    u, spread, _ = np.linalg.svd(normals)
    middle = points.mean(axis=0)
    size = float(np.linalg.norm(points - middle, axis=1).max())
    if not spread[2] > OPEN or not size > 0:
        return []
    world = (points - middle) / size @ _FIXED.T
    without_shift = u[:, 3:].T  # rows w with w^T N = 0
    linear = np.einsum("ei,ij,ik->ejk", without_shift, normals, world)  # sum over j, k of linear[e, j, k] R[j, k]
    constant = without_shift @ offsets / size
    quadrics = _quadrics(linear, constant)
    poses: list[Rigid] = []
    for cayley in _common_points(quadrics):
        rotation = _rotation(cayley) @ _FIXED
        pulls = (normals * (points @ rotation.T)).sum(axis=1) + offsets
        shift = -np.linalg.lstsq(normals, pulls, rcond=None)[0]
        misfit = float(np.abs(pulls + normals @ shift).max())
        if misfit <= MISFIT * max(size, 1e-300) and not any(np.abs(rotation - one.rotation).max() < SAME for one in poses):
            poses.append(Rigid(rotation=rotation, translation=shift))
    return poses


def _rotation(cayley: np.ndarray) -> np.ndarray:
    """The rotation of Cayley's parameters: the unit quaternion along (1, x, y, z)."""
    x, y, z = cayley
    cross = np.array([[0.0, -z, y], [z, 0.0, -x], [-y, x, 0.0]])
    square = float(cayley @ cayley)
    return ((1 - square) * np.eye(3) + 2 * cross + 2 * np.outer(cayley, cayley)) / (1 + square)


def _quadrics(linear: np.ndarray, constant: np.ndarray) -> np.ndarray:
    """Symmetric matrices (3, 4, 4) of the quadrics in (x, y, z, 1) that <linear, R> + constant = 0 gives (Eq. 7)."""
    trace = np.einsum("ejj->e", linear)
    square = linear + linear.transpose(0, 2, 1) + (constant - trace)[:, None, None] * np.eye(3)
    single = np.stack(
        [linear[:, 2, 1] - linear[:, 1, 2], linear[:, 0, 2] - linear[:, 2, 0], linear[:, 1, 0] - linear[:, 0, 1]], axis=1
    )
    quadrics = np.zeros((3, 4, 4))
    quadrics[:, :3, :3] = square
    quadrics[:, :3, 3] = quadrics[:, 3, :3] = single
    quadrics[:, 3, 3] = trace + constant
    return quadrics


def _common_points(quadrics: np.ndarray) -> list[np.ndarray]:
    """Real points (x, y, z) on three quadrics, after Newton's steps."""
    eliminated = np.stack([quadrics[:, i, j] * (1 if i == j else 2) for i, j in _PAIRS], axis=1)
    scale = np.linalg.svd(eliminated, compute_uv=False)
    if not scale[2] > 1e-12 * max(float(scale[0]), 1e-300):
        return []
    inverse = -np.linalg.inv(eliminated)
    # x^2, y^2 and xy as a x + b y + c with polynomials a, b, c in z: the coefficients of 1, z and z^2.
    by_x = inverse @ np.stack([2 * quadrics[:, 0, 3], 2 * quadrics[:, 0, 2]], axis=1)
    by_y = inverse @ np.stack([2 * quadrics[:, 1, 3], 2 * quadrics[:, 1, 2]], axis=1)
    rest = inverse @ np.stack([quadrics[:, 3, 3], 2 * quadrics[:, 2, 3], quadrics[:, 2, 2]], axis=1)

    def matrix_at(z: np.ndarray) -> np.ndarray:
        """The three identities in (x, y, 1) at several z (Eq. 9)."""
        terms = [
            np.stack(
                [by_x[k, 0] + by_x[k, 1] * z, by_y[k, 0] + by_y[k, 1] * z, rest[k, 0] + rest[k, 1] * z + rest[k, 2] * z * z]
            )
            for k in range(3)
        ]
        xx, yy, xy = terms
        zero = np.zeros_like(z)
        times_x = lambda term: term[0] * xx + term[1] * xy + np.stack([term[2], zero, zero])  # noqa: E731
        times_y = lambda term: term[0] * xy + term[1] * yy + np.stack([zero, term[2], zero])  # noqa: E731
        x_xy, y_xy, y_yy = times_x(xy), times_y(xy), times_y(yy)
        first, second = x_xy - times_y(xx), y_xy - times_x(yy)
        third = xy[0] * x_xy + xy[1] * y_xy + xy[2] * xy - (xx[0] * y_xy + xx[1] * y_yy + xx[2] * yy)
        return np.moveaxis(np.stack([first, second, third]), 2, 0)

    solutions = []
    for z, vector in singular_values_of_z(matrix_at, MAX_POSES):
        if abs(vector[2]) > 1e-12:
            solutions.append(_refined(quadrics, np.array([vector[0] / vector[2], vector[1] / vector[2], z])))
    return [one for one in solutions if np.isfinite(one).all()]


def _refined(quadrics: np.ndarray, point: np.ndarray) -> np.ndarray:
    """A common point of three quadrics after Newton's steps."""
    for _ in range(STEPS):
        full = np.append(point, 1.0)
        slopes = quadrics @ full
        point = point - np.linalg.lstsq(2 * slopes[:, :3], slopes @ full, rcond=None)[0]
    return point
