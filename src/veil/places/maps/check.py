"""The check of a finished map of positions: its pairs, rotations, steps and neck, readings of gravity, and its uncertainty.

The uncertainty is the covariance of bundle adjustment, free of gauge. The normal equations of all cameras and points are
reduced to the cameras (Schur complement). A map has seven freedoms of its own (position, rotation, scale): their null space is
left out, and what a similarity of the camera centers can take up is then projected away, so that the result is what aligning a
map with a reference leaves (Triggs et al. 2000, Sec. 9). A map that hangs together by a few points, or whose parts share no
parallax, shows it here although its residuals are small.
"""

from __future__ import annotations

from collections.abc import Mapping, Set
from dataclasses import dataclass, field

import numpy as np
from jaxtyping import Float64, Int64

from veil.geometry.gravity_consensus import GravityConsensus, agree_on_down
from veil.geometry.rigid import Rigid, rotation_angle_deg
from veil.one_line import one_line
from veil.places.maps.agreement import contradicting
from veil.places.maps.images import Pair
from veil.places.maps.verification import VerifiedPair
from veil.scene import EXPLAINED, GRAVITY_DEG, MapCheck, Scene

# Stoer and Wagner's minimum cut takes cubic time.
MAX_CUT_IMAGES = 300
# Of more points than this a random sample is used, and its information is scaled up.
MAX_POINTS = 3000
# For more cameras than this there is no result: the eigenvalues would take minutes.
MAX_CAMERAS = 200
FREEDOMS = 7
LEAST_NOISE_PX = 0.5
# Why an image is in no map, where nothing more is known.
TOO_FEW = "too few matches that chance does not explain"


def gravity_agreement(scene: Scene, gravity: Mapping[str, Float64[np.ndarray, "3"]]) -> tuple[float | None, float | None]:
    """Median angle in degrees between readings of gravity and their middle in the map, and the share within 15 degrees.

    `gravity` holds vectors down in the camera frames, by image. Both are None for fewer than three readings.
    """
    down = np.array([scene.images[n].cam_from_world.rotation.T @ gravity[n] for n in sorted(gravity) if n in scene.images])
    if len(down) < 3:
        return None, None
    down /= np.linalg.norm(down, axis=1, keepdims=True)
    angles = np.degrees(np.arccos(np.clip(down @ down.T, -1, 1)))
    middle = angles[np.argmin(np.median(angles, axis=1))]  # angles to the reading that is nearest to the others
    return float(np.median(middle)), float((middle <= GRAVITY_DEG).mean())


def rotation_disagreement(scene: Scene, pairs: Mapping[Pair, VerifiedPair]) -> float | None:
    """Median angle in degrees between the rotation b_from_a of a pair by itself and in the map; None if no pair has one."""
    angles = [
        rotation_angle_deg(
            pair.rotation.T @ scene.images[b].cam_from_world.rotation @ scene.images[a].cam_from_world.rotation.T
        )
        for (a, b), pair in pairs.items()
        if pair.rotation is not None and a in scene.images and b in scene.images
    ]
    return float(np.median(angles)) if angles else None


def step_ratio(scene: Scene) -> float | None:
    """Longest distance from a camera to its nearest one, divided by the median of these distances.

    Infinite for cameras on one center, None for fewer than three cameras.
    """
    centers = np.array([image.cam_from_world.center for image in scene.images.values()])
    if len(centers) < 3:
        return None
    distance = np.linalg.norm(centers[:, None] - centers[None], axis=2)
    np.fill_diagonal(distance, np.inf)
    steps = distance.min(axis=1)
    middle = float(np.median(steps))
    return float(steps.max()) / middle if middle > 0 else float("inf")


@dataclass(frozen=True, kw_only=True)
class Cut:
    """Cut of a map in two parts, and how many points are seen by images of both."""

    sides: tuple[frozenset[str], frozenset[str]]
    points: int


def thinnest_cut(scene: Scene) -> Cut | None:
    """Cut of least weight of the map's images in two parts; None for one image or more than `MAX_CUT_IMAGES`.

    Its weight is the sum over pairs of images of their common points (Stoer and Wagner, J. ACM 1997); its `points` are counted
    once, in however many images each is seen.
    """
    names = sorted(scene.images)
    if not 2 <= len(names) <= MAX_CUT_IMAGES:
        return None
    sees = np.zeros((len(names), len(scene.points)), dtype=bool)
    for row, name in enumerate(names):
        sees[row, scene.images[name].point_rows] = True
    common = sees.astype(np.float32) @ sees.T.astype(np.float32)
    side = minimum_cut(common.astype(np.float64))
    sides = tuple(frozenset(name for name, inside in zip(names, mask, strict=True) if inside) for mask in (side, ~side))
    return Cut(sides=(sides[0], sides[1]), points=int((sees[side].any(axis=0) & sees[~side].any(axis=0)).sum()))


def minimum_cut(weights: np.ndarray) -> np.ndarray:
    """Mask of the nodes on one side of the cut of least weight (Stoer and Wagner 1997).

    `weights` is the symmetric matrix of edge weights; its diagonal is ignored.
    """
    weights = weights.copy()
    np.fill_diagonal(weights, 0.0)
    members = [[node] for node in range(len(weights))]
    alive = list(range(len(weights)))
    best, side = np.inf, np.zeros(len(weights), dtype=bool)
    while len(alive) > 1:
        index = np.array(alive)
        reach = np.zeros(len(index))
        waiting = np.ones(len(index), dtype=bool)
        before = last = 0
        for _ in range(len(index)):
            before, last = last, int(np.argmax(np.where(waiting, reach, -np.inf)))
            cut = reach[last]
            waiting[last] = False
            reach = reach + weights[index[last], index]
        if cut < best:
            best = cut
            side = np.zeros(len(weights), dtype=bool)
            side[members[alive[last]]] = True
        s, t = alive[before], alive[last]
        weights[s] += weights[t]
        weights[:, s] += weights[:, t]
        weights[s, s] = 0.0
        members[s] += members[t]
        alive.remove(t)
    return side


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
    chosen = sampled(len(scene.points))
    seen = linearized(scene, chosen, extent)
    columns = 6 * seen.camera[:, None] + np.arange(6)
    normal = reduced(columns, seen.by_camera, seen.point, seen.by_point, len(chosen)) * (len(scene.points) / len(chosen))
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


def sampled(count: int) -> Int64[np.ndarray, "chosen"]:
    """Rows of all of `count` points, or of a random sample of `MAX_POINTS` of them."""
    if count <= MAX_POINTS:
        return np.arange(count)
    return np.sort(np.random.default_rng(0).choice(count, MAX_POINTS, replace=False))


@dataclass(frozen=True, kw_only=True, eq=False)
class Observed:
    """Linearized observations of a map's points: the derivatives of a pixel, and which camera saw which of the points chosen.

    `camera` are rows of the sorted names of the images, `point` of the points chosen; `seen` are points in the camera frame.
    `by_camera` is by rotation and by center over `extent`, `by_point` by the point over the extent.
    """

    camera: Int64[np.ndarray, "n"]
    point: Int64[np.ndarray, "n"]
    seen: Float64[np.ndarray, "n 3"]
    by_camera: Float64[np.ndarray, "n 2 6"]
    by_point: Float64[np.ndarray, "n 2 3"]


def linearized(scene: Scene, chosen: Int64[np.ndarray, "chosen"], extent: float) -> Observed:
    """The observations of the `chosen` points of a map, linearized; `extent` is the unit of length."""
    row_of = np.full(len(scene.points), -1)
    row_of[chosen] = np.arange(len(chosen))
    parts: list[tuple[np.ndarray, ...]] = []
    for index, name in enumerate(sorted(scene.images)):
        image = scene.images[name]
        rows = row_of[image.point_rows]
        rows = rows[rows >= 0]
        rotation, points = image.cam_from_world.rotation, scene.points[chosen[rows]]
        projection = _projection(image.cam_from_world, points, image.camera.focal_px)
        # cam = R (X - c): turning the camera by w moves X by w x (R (X - c)), moving its center by -R.
        cross = _cross((points - image.cam_from_world.center) @ rotation.T)
        by_camera = np.concatenate([-projection @ cross, -projection @ rotation * extent], axis=2)
        own = np.full(len(rows), index)
        parts.append((own, rows, image.cam_from_world.apply(points), by_camera, projection @ rotation * extent))
    camera, point, seen, by_camera, by_point = (np.concatenate(part) for part in zip(*parts, strict=True))
    return Observed(camera=camera, point=point, seen=seen, by_camera=by_camera, by_point=by_point)


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
    points: int,
) -> Float64[np.ndarray, "_ _"]:
    """Schur complement of the points in the normal equations, dense over the other unknowns.

    The residuals of an observation depend on the unknowns `columns`, by the derivatives `by_unknown`. The complement is
    U - (A^T Q) (A^T Q)^T for the Jacobians A of the unknowns and an orthonormal basis Q of the points' columns.
    U - W V^-1 W^T is not used: V is singular for points without parallax, and the rounding of its inverse would pass for
    information.
    """
    from scipy.sparse import csr_array

    size, width = int(columns.max()) + 1, columns.shape[1]
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


@dataclass(frozen=True, kw_only=True, eq=False)
class ReadingsCheck:
    """Direction down in a map by the readings of gravity, and the readings that are wrong.

    `down` (unit vector in the world) and its standard deviation `sigma_deg` are None if the readings agree on none; `reason`
    then says why. `agreeing` of `readings` agree; `wrong_deg` gives the error in degrees of each wrong one, by image.
    """

    down: Float64[np.ndarray, "3"] | None = None
    sigma_deg: float | None = None
    readings: int = 0
    agreeing: int = 0
    wrong_deg: Mapping[str, float] = field(default_factory=dict)
    reason: str = ""

    __repr__ = one_line


def checked_readings(cam_from_world: Mapping[str, Rigid], down_in_cam: Mapping[str, Float64[np.ndarray, "3"]]) -> ReadingsCheck:
    """Check of all readings of registered images against the rotations of the map (docs/theory/gravity.md, Eq. 11-13).

    `down_in_cam` holds unit vectors down in the camera frames, by image.
    """
    names = sorted(set(cam_from_world) & set(down_in_cam))
    downs = np.array([down_in_cam[name] for name in names], dtype=np.float64).reshape(-1, 3)
    rotations = np.array([cam_from_world[name].rotation for name in names], dtype=np.float64).reshape(-1, 3, 3)
    consensus = agree_on_down(downs, rotations)
    if not isinstance(consensus, GravityConsensus):
        return ReadingsCheck(readings=consensus.readings, agreeing=consensus.agreeing, reason=consensus.reason)
    wrong = {names[row]: float(consensus.residual_deg[row]) for row in consensus.wrong}
    return ReadingsCheck(
        down=consensus.down,
        sigma_deg=consensus.sigma_deg,
        readings=len(names),
        agreeing=len(consensus.agreeing),
        wrong_deg=wrong,
    )


def checked(
    scene: Scene,
    shares: Mapping[Pair, float],
    images: Set[str],
    pairs: Mapping[Pair, VerifiedPair],
    gravity: Mapping[str, Float64[np.ndarray, "3"]],
    left_out: Mapping[str, str],
    *,
    missing: str = TOO_FEW,
) -> MapCheck:
    """Check of a map of `images` by the `shares` of its pairs that it explains, and by readings of gravity.

    `left_out` says why images are not in the map, where a reason is known, and `missing` is the reason of the others.
    """
    counts = {pair: len(pairs[pair].inliers) for pair in shares}
    gravity_deg, agreeing = gravity_agreement(scene, gravity)
    reasons = {**left_out, **dict.fromkeys(sorted(images - set(scene.images) - set(left_out)), missing)}
    return MapCheck(
        pairs=len(shares),
        explained_pairs=sum(share >= EXPLAINED for share in shares.values()),
        contradicting_pairs=len(contradicting(shares, pairs)),
        explained_matches=sum(counts[p] * s for p, s in shares.items()) / max(1, sum(counts.values())),
        neck=None if (cut := thinnest_cut(scene)) is None else cut.points,
        uncertainty=position_uncertainty(scene),
        step_ratio=step_ratio(scene),
        rotation_deg=rotation_disagreement(scene, pairs),
        gravity_deg=gravity_deg,
        gravity_agreeing=agreeing,
        left_out=reasons,
    )
