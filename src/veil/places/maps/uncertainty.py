"""How far noise alone moves the camera centers and focal lengths of a map of positions, and how well it knows them.

It is the covariance of bundle adjustment, free of gauge. The normal equations of all cameras and points are reduced to the
cameras (Schur complement), with focal lengths that are free as far as they were not known before. A map has seven freedoms of
its own (position, rotation, scale): their null space is left out, and what a similarity of the camera centers can take up is
then projected away, so that the result is what aligning a map with a reference leaves (Triggs et al. 2000, Sec. 9). A map that
hangs together by a few points, or whose parts share no parallax, shows it here although its residuals are small. So does a
camera whose distance and focal length no photograph tells apart.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float64, Int64

from veil.geometry.camera import GUESS, Camera
from veil.geometry.rigid import Rigid
from veil.geometry.views import projected
from veil.scene import Scene

# Of more points than this some of each image are used, and a random sample of the others stands for them.
MAX_POINTS, OF_EACH_IMAGE = 3000, 30
# For more cameras than this there are no deviations of centers: the eigenvalues would take minutes.
MAX_CAMERAS = 200
# The normal equations of more images than this are too large to be solved in seconds: no focal length is measured then.
MAX_IMAGES = 500
FREEDOMS = 7
LEAST_NOISE_PX = 0.5
# Standard deviation of a lens's first coefficient of distortion where its focal length is a guess; in proportion otherwise.
ANY_DISTORTION = 0.3
# Formal deviations are this much too small: matches are not independent, and lenses differ from their models.
FORMAL = 3.0
# A map measures a focal length no better than to this share, for the same cause.
FLOOR = 0.01
# Unknowns of a camera: its focal length and first distortion, and what a richer lens has besides (`by_lens`).
OWN, LENS = 2, 5
# A map knows its camera centers no better than to this share of their extent, for the same cause.
LEAST_UNCERTAINTY = 0.001
# Share of the mean of the diagonal that is added to it, as poses keep the seven freedoms of a similarity.
DAMPING = 1e-10


def position_uncertainty(scene: Scene, known: Mapping[str, float] | None = None) -> float | None:
    """How well a map knows its camera centers, as a share of their extent: the deviation in the middle of its cameras.

    It is that of noise alone (`center_deviations`), made larger as experience has it (mapping.md#the-check). None for more
    cameras than `MAX_CAMERAS`.
    """
    deviations = center_deviations(scene, known)
    return math.hypot(FORMAL * float(np.median(list(deviations.values()))), LEAST_UNCERTAINTY) if deviations else None


def center_deviations(scene: Scene, known: Mapping[str, float] | None = None) -> dict[str, float]:
    """Standard deviation of each camera's center, as a share of the extent of the centers, by image.

    `known` is the relative standard deviation of each image's focal length before the map; without it focal lengths and
    distortion are exact. The noise is what the residuals of the map say, at least half a pixel. Infinite where something is
    free that a map must fix, or all centers coincide; empty for more cameras than `MAX_CAMERAS`.
    """
    names = sorted(scene.images)
    if len(names) > MAX_CAMERAS:
        return {}
    centers = np.array([scene.images[name].cam_from_world.center for name in names])
    extent = float(np.linalg.norm(np.ptp(centers, axis=0)))
    if not extent > 0:
        return dict.fromkeys(names, math.inf)
    noise = _noise_px(scene)
    normal = _normal_of_poses(scene, extent) if known is None else _without_focal(scene, names, known, noise)
    values, vectors = np.linalg.eigh(normal)
    if len(values) <= FREEDOMS or not values[FREEDOMS] > 1e-10 * values[-1]:
        return dict.fromkeys(names, math.inf)
    spread = (vectors[:, FREEDOMS:] / np.sqrt(values[FREEDOMS:])).reshape(len(names), 6, -1)[:, 3:].reshape(3 * len(names), -1)
    movements = _similarity_movements((centers - centers.mean(axis=0)) / extent)
    spread = spread - movements @ (np.linalg.pinv(movements) @ spread)
    deviations = noise * np.sqrt((spread**2).sum(axis=1).reshape(len(names), 3).sum(axis=1))
    return dict(zip(names, deviations.tolist(), strict=True))


@dataclass(frozen=True, kw_only=True)
class KnownLens:
    """How well a map knows the lens of a camera.

    `formal_focal` and `formal_distortion` are standard deviations by noise alone, of the logarithm of the focal length and of
    a first coefficient of radial distortion. `lacking` is the error, in these deviations, that a lens model without richer
    terms lets in (`lack_of_fit`).
    """

    formal_focal: float
    formal_distortion: float
    lacking: float

    @property
    def focal(self) -> float:
        """Relative standard deviation of the focal length (mapping.md, Eq. F1); nothing deviates by more than a guess."""
        return min(math.hypot(math.hypot(FORMAL, self.lacking) * self.formal_focal, FLOOR), GUESS.deviation)

    @property
    def distortion(self) -> float:
        """Standard deviation of the first coefficient of radial distortion."""
        return math.hypot(FORMAL, self.lacking) * self.formal_distortion


def known_lenses(scene: Scene) -> dict[Camera, KnownLens]:
    """How well a map knows the lens of each of its cameras; images of equal cameras share one.

    Poses, points, focal lengths and first coefficients of distortion are free in the normal equations. The noise is the mean
    residual of the map, at least half a pixel. What a richer lens would take off the residuals may have gone into the focal
    length. Empty for more than `MAX_IMAGES` images.
    """
    if len(scene.images) > MAX_IMAGES:
        return {}
    cameras, seen, noise = _cameras(scene), _linearized(scene), _noise_px(scene)
    poses = 6 * len(scene.images)
    others = poses + OWN * len(cameras)
    normal = _normal(scene, seen, richer=True)
    left = without_first(normal[:others, :others], poses)
    # What no photograph determines is as uncertain as a guess.
    left += np.diag(_prior([GUESS.deviation] * len(cameras), noise))
    formal = (noise * np.sqrt(np.diag(np.linalg.inv(left)))).reshape(-1, OWN)
    squares = np.bincount(seen.lens, weights=(seen.residual**2).sum(axis=1), minlength=len(cameras))
    counts = [sum(len(image.keypoints) for image in scene.images.values() if image.camera == camera) for camera in cameras]
    lacking = lack_of_fit(
        without_first(normal, others),
        squares,
        2 * np.bincount(seen.lens, minlength=len(cameras)),
        2 * np.array(counts),
        others - FREEDOMS + 3 * (int(seen.point.max()) + 1),
    )
    return {
        camera: KnownLens(formal_focal=float(focal), formal_distortion=float(distortion), lacking=float(error))
        for camera, (focal, distortion), error in zip(cameras, formal, lacking, strict=True)
    }


def open_focals(scene: Scene, known: Mapping[str, float]) -> frozenset[str]:
    """Names of images whose focal length is anybody's guess: noise alone moves it as far as a guess is off, or farther.

    Such an image stands at no distance from the others that the map could tell. Images that all have one camera stand off
    together, and none is named. `known` is as for `center_deviations`.
    """
    lenses = known_lenses(scene)
    if len(lenses) < 2:
        return frozenset()
    is_open = {camera for camera, lens in lenses.items() if FORMAL * lens.formal_focal >= GUESS.deviation}
    return frozenset(name for name in known if known[name] >= GUESS.deviation and scene.images[name].camera in is_open)


def lack_of_fit(
    left: Float64[np.ndarray, "_ _"],
    squares: Float64[np.ndarray, "cameras"],
    sampled: Int64[np.ndarray, "cameras"],
    counts: Int64[np.ndarray, "cameras"],
    unknowns: int,
) -> Float64[np.ndarray, "cameras"]:
    """Errors of focal lengths, in their formal deviations, that lens models without richer terms let in, by camera.

    The terms of a richer lens take more of the squared residuals away than chance does. One of them takes F times as much as
    noise on average, where F is the statistic of lack of fit, and so may the focal length have done (Draper and Smith 1998,
    Sec. 2.1).

    `left` are normal equations of the terms of richer lenses and, in the last column, of the residuals, all else eliminated.
    `squares` are the summed squares of the residuals of each camera, of which `sampled` of all `counts` are in these equations,
    and `unknowns` what they determine.
    """
    lacking, free = np.zeros(len(squares)), 1 - unknowns / int(sampled.sum())
    if free <= 0:
        return lacking
    squares = squares * left[-1, -1] / max(float(squares.sum()), 1e-300)  # without what the other unknowns explain
    for k in np.flatnonzero(squares > 0):
        own = slice(LENS * k, LENS * (k + 1))
        step, _, terms, _ = np.linalg.lstsq(left[own, own], left[own, -1], rcond=1e-9)
        share = max(0.0, float(left[own, -1] @ step) / squares[k] - terms / (free * sampled[k]))
        lacking[k] = math.sqrt(free * counts[k] * share / max(1, terms))
    return lacking


def _cameras(scene: Scene) -> list[Camera]:
    """The cameras of a map, in the order in which its images, sorted by name, have them."""
    return list(dict.fromkeys(scene.images[name].camera for name in sorted(scene.images)))


def without_first(normal: Float64[np.ndarray, "_ _"], count: int) -> Float64[np.ndarray, "_ _"]:
    """Normal equations without their first `count` unknowns, which keep the seven freedoms of a similarity."""
    held, across = normal[:count, :count], normal[:count, count:]
    damped = held + DAMPING * np.trace(held) / count * np.eye(count)
    return normal[count:, count:] - across.T @ np.linalg.solve(damped, across)


def _noise_px(scene: Scene) -> float:
    return max(LEAST_NOISE_PX, scene.mean_reprojection_error_px)


def _prior(deviations: list[float], noise: float) -> Float64[np.ndarray, "_"]:
    """Information on focal length and distortion of each camera, in units of the noise, by deviations of the focal lengths."""
    relative = np.array(deviations)[:, None] * [1.0, ANY_DISTORTION / GUESS.deviation]
    return ((noise / relative) ** 2).ravel()


def _normal_of_poses(scene: Scene, extent: float) -> Float64[np.ndarray, "_ _"]:
    """Normal equations without the points of poses alone, six unknowns each."""
    seen = linearized(scene, extent)
    columns = 6 * seen.camera[:, None] + np.arange(6)
    return reduced(columns, seen.by_camera, seen.point, seen.by_point, size=6 * len(scene.images))


def _without_focal(scene: Scene, names: list[str], known: Mapping[str, float], noise: float) -> Float64[np.ndarray, "_ _"]:
    """Normal equations of the poses without the points and without focal lengths, which are `known` so well before the map."""
    cameras = _cameras(scene)
    normal, poses = _normal(scene, _linearized(scene)), 6 * len(names)
    least = [min(known[name] for name in names if scene.images[name].camera == camera) for camera in cameras]
    across, free = normal[:poses, poses:], normal[poses:, poses:] + np.diag(_prior(least, noise))
    left = normal[:poses, :poses] - across @ np.linalg.solve(free, across.T)
    return (left + left.T) / 2


def _linearized(scene: Scene) -> Observed:
    centers = np.array([image.cam_from_world.center for image in scene.images.values()])
    return linearized(scene, max(float(np.linalg.norm(np.ptp(centers, axis=0))), 1e-12))


def _normal(scene: Scene, seen: Observed, *, richer: bool = False) -> Float64[np.ndarray, "_ _"]:
    """Normal equations without the points: six unknowns a pose, then focal length and distortion of each of the cameras.

    A `richer` lens has its terms after these, and the last column holds the part of the residuals in each unknown.
    """
    cameras = _cameras(scene)
    focal = np.array([camera.focal_px for camera in cameras])[seen.lens]
    plane = seen.seen[:, :2] / np.where(np.abs(seen.seen[:, 2:]) > 1e-9, seen.seen[:, 2:], 1e-9)
    by_focal = (seen.root * focal)[:, None] * plane  # by the logarithm of the focal length
    terms = (seen.root * focal)[:, None, None] * by_lens(plane)
    is_bent = np.array([camera.focal_count + 2 < len(camera.params) for camera in cameras])[seen.lens]
    by_distortion = np.where(is_bent[:, None, None], terms[:, :, :1], 0.0)
    terms[is_bent, :, 0] = 0.0
    poses = 6 * len(scene.images)
    columns = [6 * seen.camera[:, None] + np.arange(6), poses + OWN * seen.lens[:, None] + np.arange(OWN)]
    by_unknown = [seen.by_camera, by_focal[:, :, None], by_distortion]
    size = poses + OWN * len(cameras)
    if richer:
        last = size + LENS * len(cameras)
        columns += [size + LENS * seen.lens[:, None] + np.arange(LENS), np.full((len(seen.lens), 1), last)]
        by_unknown += [terms, seen.residual[:, :, None]]
        size = last + 1
    return reduced(np.concatenate(columns, axis=1), np.concatenate(by_unknown, axis=2), seen.point, seen.by_point, size=size)


def by_lens(plane: Float64[np.ndarray, "n 2"]) -> Float64[np.ndarray, "n 2 5"]:
    """Derivatives of the normalized plane by the terms of a lens.

    They are two coefficients of radial distortion, two of tangential distortion, and one for pixels that are not square.
    """
    x, y = plane.T
    square = x**2 + y**2
    across = [x * square, x * square**2, 2 * x * y, square + 2 * x**2, x]
    down = [y * square, y * square**2, square + 2 * y**2, 2 * x * y, -y]
    return np.stack([np.stack(across, axis=1), np.stack(down, axis=1)], axis=1)


def _similarity_movements(centers: np.ndarray) -> Float64[np.ndarray, "_ 7"]:
    """Movement of the camera centers (relative to their mean) by each of the seven freedoms of a similarity, as columns."""
    shift = np.tile(np.eye(3), (len(centers), 1, 1))
    return np.concatenate([shift, _cross(centers), centers[:, :, None]], axis=2).reshape(3 * len(centers), FREEDOMS)


def sampled(scene: Scene) -> tuple[Int64[np.ndarray, "chosen"], Float64[np.ndarray, "chosen"]]:
    """Rows of all points of a map, or of some of each image and a random sample of the others; and how many each stands for.

    The points of an image that has few are all there: it would be lost from a random sample.
    """
    count = len(scene.points)
    if count <= MAX_POINTS:
        return np.arange(count), np.ones(count)
    sure = np.unique(np.concatenate([image.point_rows[:OF_EACH_IMAGE] for image in scene.images.values()]))
    others = np.setdiff1d(np.arange(count), sure)
    drawn = np.random.default_rng(0).choice(others, min(MAX_POINTS, len(others)), replace=False)
    rows, stands = np.concatenate([sure, drawn]), np.full(len(sure) + len(drawn), len(others) / max(1, len(drawn)))
    stands[: len(sure)] = 1.0
    return rows, stands


@dataclass(frozen=True, kw_only=True, eq=False)
class Observed:
    """Linearized observations of a map's points: the derivatives of a pixel, and which camera saw which of the points chosen.

    `camera` are rows of the sorted names of the images, `lens` of their different cameras, `point` of the points chosen; `seen`
    are points in the camera frame. `by_camera` is by rotation and by center over the extent, `by_point` by the point over the
    extent; `residual` is what a keypoint is beyond its projection. These three are times `root`, of how many observations each
    stands for.
    """

    camera: Int64[np.ndarray, "n"]
    lens: Int64[np.ndarray, "n"]
    point: Int64[np.ndarray, "n"]
    seen: Float64[np.ndarray, "n 3"]
    by_camera: Float64[np.ndarray, "n 2 6"]
    by_point: Float64[np.ndarray, "n 2 3"]
    residual: Float64[np.ndarray, "n 2"]
    root: Float64[np.ndarray, "n"]


def linearized(scene: Scene, extent: float) -> Observed:
    """The observations of the points of a map (`sampled`), linearized; `extent` is the unit of length."""
    chosen, stands = sampled(scene)
    row_of = np.full(len(scene.points), -1)
    row_of[chosen] = np.arange(len(chosen))
    cameras = _cameras(scene)
    parts: list[tuple[np.ndarray, ...]] = []
    for index, name in enumerate(sorted(scene.images)):
        image = scene.images[name]
        rows = row_of[image.point_rows]
        keypoints, rows = image.keypoints[rows >= 0], rows[rows >= 0]
        rotation, points = image.cam_from_world.rotation, scene.points[chosen[rows]]
        projection = _projection(image.cam_from_world, points, image.camera.focal_px)
        # cam = R (X - c): turning the camera by w moves X by w x (R (X - c)), moving its center by -R.
        cross = _cross((points - image.cam_from_world.center) @ rotation.T)
        by_camera = np.concatenate([-projection @ cross, -projection @ rotation * extent], axis=2)
        seen = image.cam_from_world.apply(points)
        residual = np.nan_to_num(keypoints - projected(image.camera, seen))
        own, lens = np.full(len(rows), index), np.full(len(rows), cameras.index(image.camera))
        parts.append((own, lens, rows, seen, by_camera, projection @ rotation * extent, residual))
    camera, lens, point, seen, by_camera, by_point, residual = (np.concatenate(part) for part in zip(*parts, strict=True))
    root = np.sqrt(stands[point])
    return Observed(
        camera=camera,
        lens=lens,
        point=point,
        seen=seen,
        by_camera=root[:, None, None] * by_camera,
        by_point=root[:, None, None] * by_point,
        residual=root[:, None] * residual,
        root=root,
    )


def _projection(pose: Rigid, points: np.ndarray, focal: float) -> Float64[np.ndarray, "n 2 3"]:
    """Derivative d pixel / d point, for points in the camera frame."""
    x, y, z = pose.apply(points).T
    z = np.where(np.abs(z) > 1e-9, z, 1e-9)
    zero = np.zeros_like(z)
    return focal * np.stack([np.stack([1 / z, zero, -x / z**2], axis=1), np.stack([zero, 1 / z, -y / z**2], axis=1)], axis=1)


def _cross(v: np.ndarray) -> Float64[np.ndarray, "n 3 3"]:
    x, y, z = v.T
    zero = np.zeros_like(x)
    return np.stack([np.stack(row, axis=1) for row in ((zero, -z, y), (z, zero, -x), (-y, x, zero))], axis=1)


def reduced(
    columns: Int64[np.ndarray, "n width"],
    by_unknown: Float64[np.ndarray, "n residuals width"],
    point: Int64[np.ndarray, "n"],
    by_point: Float64[np.ndarray, "n residuals 3"],
    *,
    size: int,
) -> Float64[np.ndarray, "_ _"]:
    """Schur complement of the points in the normal equations, dense over the other unknowns.

    The residuals of an observation depend on the unknowns `columns` (of `size`) by the derivatives `by_unknown`. The complement
    is U - (A^T Q) (A^T Q)^T for the Jacobians A of the unknowns and an orthonormal basis Q of the points' columns.
    U - W V^-1 W^T is not used: V is singular for points without parallax, and the rounding of its inverse would pass for
    information.
    """
    from scipy.sparse import csr_array

    width, points = columns.shape[1], int(point.max()) + 1
    u = np.einsum("nki,nkj->nij", by_unknown, by_unknown)
    down, right = np.repeat(columns, width, axis=1).ravel(), np.tile(columns, (1, width)).ravel()
    whole = csr_array((u.ravel(), (down, right)), shape=(size, size))
    w = np.einsum("nki,nkj->nij", by_unknown, _orthonormal(by_point, point, points))
    rows = np.repeat(columns, 3, axis=1).ravel()
    across = np.tile(3 * point[:, None] + np.arange(3), (1, width)).ravel()
    wide = csr_array((w.ravel(), (rows, across)), shape=(size, 3 * points))
    normal = (whole - wide @ wide.T).toarray()
    return (normal + normal.T) / 2


def _orthonormal(by_point: np.ndarray, point: np.ndarray, points: int) -> Float64[np.ndarray, "n residuals 3"]:
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
