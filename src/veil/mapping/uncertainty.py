"""Uncertainty of a map's cameras from the noise of its positions: the covariance of bundle adjustment, free of gauge.

The normal equations of all cameras and points are reduced to the cameras (Schur complement). A map has seven freedoms of its
own (position, rotation, scale): their null space is left out, and what a similarity of the camera centers can take up is then
projected away, so that the result is what aligning a map with a reference leaves (Triggs et al. 2000, Sec. 9). A map that hangs
together by a few points, or whose parts share no parallax, shows it here although its residuals are small.
"""

from __future__ import annotations

import numpy as np
from jaxtyping import Float64, Int64

from veil.geometry.rigid import Rigid
from veil.scene import Scene

# Of more points than this a random sample is used, and its information is scaled up.
MAX_POINTS = 3000
# For more cameras than this there is no result: the eigenvalues would take minutes.
MAX_CAMERAS = 200
FREEDOMS = 7
LEAST_NOISE_PX = 0.5


def position_uncertainty(scene: Scene) -> float | None:
    """Median over cameras of the standard deviation of their centers, as a share of the extent of the centers.

    The noise is what the residuals of the map say, at least half a pixel. Infinite where something is free that a map must fix
    or all centers coincide; None for more cameras than `MAX_CAMERAS`.
    """
    names = sorted(scene.images)
    if len(names) > MAX_CAMERAS:
        return None
    centers = np.array([scene.images[name].cam_from_world.center for name in names])
    extent = float(np.linalg.norm(np.ptp(centers, axis=0)))
    if not extent > 0:
        return float("inf")
    chosen = _sample(len(scene.points))
    observed = _jacobians(scene, names, chosen, centers, extent)
    normal = _reduced(*observed, len(names), len(chosen)) * (len(scene.points) / len(chosen))
    values, vectors = np.linalg.eigh(normal)
    if len(values) <= FREEDOMS or not values[FREEDOMS] > 1e-10 * values[-1]:
        return float("inf")
    spread = (vectors[:, FREEDOMS:] / np.sqrt(values[FREEDOMS:])).reshape(len(names), 6, -1)[:, 3:].reshape(3 * len(names), -1)
    movements = _similarity_movements((centers - centers.mean(axis=0)) / extent)
    spread = spread - movements @ (np.linalg.pinv(movements) @ spread)
    deviation = np.sqrt((spread**2).sum(axis=1).reshape(len(names), 3).sum(axis=1))
    return float(max(LEAST_NOISE_PX, scene.mean_reprojection_error_px) * np.median(deviation))


def _similarity_movements(centers: np.ndarray) -> Float64[np.ndarray, "_ 7"]:
    """Movement of the camera centers (relative to their mean) by each of the seven freedoms of a similarity, as columns."""
    shift = np.tile(np.eye(3), (len(centers), 1, 1))
    return np.concatenate([shift, _cross(centers), centers[:, :, None]], axis=2).reshape(3 * len(centers), FREEDOMS)


def _sample(count: int) -> Int64[np.ndarray, "chosen"]:
    if count <= MAX_POINTS:
        return np.arange(count)
    return np.sort(np.random.default_rng(0).choice(count, MAX_POINTS, replace=False))


def _jacobians(
    scene: Scene, names: list[str], chosen: np.ndarray, centers: np.ndarray, extent: float
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Camera, point, d pixel / d (rotation, center / extent), d pixel / d point of each observation of the chosen points."""
    row_of = np.full(len(scene.points), -1)
    row_of[chosen] = np.arange(len(chosen))
    cameras, points, by_camera, by_point = [], [], [], []
    for index, name in enumerate(names):
        image = scene.images[name]
        rows = row_of[image.point_rows]
        rows = rows[rows >= 0]
        rotation = image.cam_from_world.rotation
        projection = _projection(image.cam_from_world, scene.points[chosen[rows]], image.camera.focal_px)
        by_point.append(projection @ rotation * extent)
        # cam = R (X - c): turning the camera by w moves X by w x (R (X - c)), moving its center by -R.
        cross = _cross((scene.points[chosen[rows]] - centers[index]) @ rotation.T)
        by_camera.append(np.concatenate([-projection @ cross, -projection @ rotation * extent], axis=2))
        cameras.append(np.full(len(rows), index))
        points.append(rows)
    return np.concatenate(cameras), np.concatenate(points), np.concatenate(by_camera), np.concatenate(by_point)


def _projection(pose: Rigid, points: np.ndarray, focal: float) -> Float64[np.ndarray, "n 2 3"]:
    """Derivative d pixel / d point, for points in the camera frame."""
    x, y, z = (points @ pose.rotation.T + pose.translation).T
    z = np.where(np.abs(z) > 1e-9, z, 1e-9)
    zero = np.zeros_like(z)
    return focal * np.stack([np.stack([1 / z, zero, -x / z**2], axis=1), np.stack([zero, 1 / z, -y / z**2], axis=1)], axis=1)


def _cross(v: np.ndarray) -> Float64[np.ndarray, "n 3 3"]:
    x, y, z = v.T
    zero = np.zeros_like(x)
    return np.stack([np.stack(row, axis=1) for row in ((zero, -z, y), (z, zero, -x), (-y, x, zero))], axis=1)


def _reduced(
    camera: np.ndarray, point: np.ndarray, by_camera: np.ndarray, by_point: np.ndarray, cameras: int, points: int
) -> Float64[np.ndarray, "_ _"]:
    """Schur complement of the points in the normal equations, dense over the cameras.

    It is U - (A^T Q) (A^T Q)^T for the Jacobians A of the cameras and an orthonormal basis Q of the points' columns.
    U - W V^-1 W^T is not used: V is singular for points without parallax, and the rounding of its inverse would pass for
    information.
    """
    from scipy.sparse import csr_array

    u = np.zeros((cameras, 6, 6))
    np.add.at(u, camera, np.einsum("nki,nkj->nij", by_camera, by_camera))
    w = np.einsum("nki,nkj->nij", by_camera, _orthonormal(by_point, point, points))
    rows = (6 * camera[:, None, None] + np.arange(6)[:, None] + np.zeros(3, dtype=np.int64)).ravel()
    columns = (3 * point[:, None, None] + np.zeros(6, dtype=np.int64)[:, None] + np.arange(3)).ravel()
    wide = csr_array((w.ravel(), (rows, columns)), shape=(6 * cameras, 3 * points))
    normal = -(wide @ wide.T).toarray()
    for index in range(cameras):
        normal[6 * index : 6 * index + 6, 6 * index : 6 * index + 6] += u[index]
    return (normal + normal.T) / 2


def _orthonormal(by_point: np.ndarray, point: np.ndarray, points: int) -> Float64[np.ndarray, "n 2 3"]:
    """Orthonormal basis of each point's three columns over all its observations, by Gram and Schmidt, twice.

    A column that depends on those before it is zero.
    """
    q = by_point.copy()

    def product(first: int, second: int) -> np.ndarray:
        return np.bincount(point, (q[:, :, first] * q[:, :, second]).sum(axis=1), points)

    for column in range(3):
        before = product(column, column)
        for other in (*range(column), *range(column)):
            q[:, :, column] -= product(column, other)[point, None] * q[:, :, other]
        after = product(column, column)
        kept = after > 1e-24 * before
        q[:, :, column] *= np.where(kept, 1 / np.sqrt(np.where(kept, after, 1.0)), 0.0)[point, None]
    return q
