"""Statistics of one point in several real photographs: differences of descriptors, repeatability, noise of keypoints.

Tracks come from photographs with reference cameras. Matches (mutual nearest neighbors, ratio 0.8, within 2 px of the epipolar
line) are joined and triangulated. A point is then sought in all photographs by place and scale alone, whatever its descriptor
there: a keypoint within 2.5 px of the projection whose scale is within a factor of 1.6 of what the distances tell.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float64, Int64, UInt8
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components
from scipy.spatial import cKDTree

from veil.features import Features
from veil.geometry.camera import as_colmap
from veil.geometry.rigid import Rigid

GATE_PX, SCALE_FACTOR, RATIO, LARGEST_DEG, LEAST_FACTOR = 2.5, 1.6, 0.8, 60.0, 1.25
_MARGIN_PX, _SHIFT_PX, _NEIGHBORS = 20.0, np.array([23.0, 17.0]), 8
_PAIRS_PER_TRACK, _MOST_POINTS, _RIVALS = 6, 3000, 1000


@dataclass(frozen=True, kw_only=True, eq=False)
class TrackPairs:
    """Two views of one point each: what changed between them, and whether the second has a keypoint there.

    - `angle_deg`, `octaves`: between the two rays, and log2 of (distance / focal length) of the second over the first.
    - `is_repeated`: whether the second view has the keypoint; `by_chance`: whether it has one at a place 29 px beside.
    - `differences`, int16: descriptor of the second minus the first, of those found; `distance`: from the first to the
      right one; `other`: to the nearest descriptor elsewhere among the 1,000 largest features of the second image. Both are in
      512ths, of those found.
    - `residuals_px`, `sigmas_px`: keypoint minus projection of observations of tracks of four images or more, corrected for
      the degrees of freedom of the point, and their scales. `scale_noise`: log2 of found over foretold scale.
    - `no_track`: for each image, the share of its features that no point has.
    """

    angle_deg: Float64[np.ndarray, "_"]
    octaves: Float64[np.ndarray, "_"]
    is_repeated: Bool[np.ndarray, "_"]
    by_chance: Bool[np.ndarray, "_"]
    differences: np.ndarray
    other: Float64[np.ndarray, "_"]
    residuals_px: Float64[np.ndarray, "_ 2"]
    sigmas_px: Float64[np.ndarray, "_"]
    scale_noise: Float64[np.ndarray, "_"]
    no_track: Float64[np.ndarray, "_"]

    @property
    def distance(self) -> Float64[np.ndarray, "_"]:
        """Lengths of the differences, in 512ths."""
        return np.linalg.norm(self.differences.astype(np.float64), axis=1)


@dataclass(frozen=True, kw_only=True, eq=False)
class PosedImage:
    """Features of a photograph and its reference pose."""

    features: Features
    cam_from_world: Rigid


def joined(parts: Sequence[TrackPairs]) -> TrackPairs:
    """The pairs of several scenes as one."""
    names = TrackPairs.__dataclass_fields__
    return TrackPairs(**{name: np.concatenate([getattr(part, name) for part in parts]) for name in names})


def track_pairs(images: Sequence[PosedImage], *, seed: int = 0) -> TrackPairs:
    """Pairs of views of the points of one scene, of images with scales."""
    views = [_View(image) for image in images]
    random = np.random.default_rng(seed)
    points = _points(views)
    return _sampled(views, points[random.permutation(len(points))[:_MOST_POINTS]], random)


class _View:
    """A photograph's keypoints as rays, with what is asked of them often."""

    def __init__(self, image: PosedImage) -> None:
        features = image.features
        assert features.scales is not None, "tracks need the scales of SIFT"
        self.camera = as_colmap(features.camera)
        self.pose = image.cam_from_world
        self.keypoints = features.keypoints.astype(np.float64)
        self.normalized = np.asarray(self.camera.cam_from_img(self.keypoints), dtype=np.float64)
        self.sigmas = features.scales.astype(np.float64)
        self.descriptors: UInt8[np.ndarray, "_ 128"] = features.descriptors
        self.largest = np.argsort(np.argsort(-self.sigmas)) < _RIVALS
        self.focal = features.camera.focal_px
        self.size = np.array([features.camera.width_px, features.camera.height_px])
        self.tree = cKDTree(self.keypoints)
        self.projection = np.hstack([self.pose.rotation, self.pose.translation[:, None]])

    def project(self, points: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Pixels and depths of world points; NaN behind the camera and outside of the picture."""
        local = self.pose.apply(points)
        ahead = local[:, 2] > 1e-6
        pixels = np.full((len(points), 2), np.nan)
        if ahead.any():
            pixels[ahead] = np.asarray(self.camera.img_from_cam(local[ahead]), dtype=np.float64)
        outside = ~((pixels > _MARGIN_PX) & (pixels < self.size - _MARGIN_PX)).all(axis=1)
        # A wide angle folds back in by the polynomial of distortion.
        outside |= np.abs(local[:, :2]).max(axis=1) > 2 * np.maximum(local[:, 2], 1e-6)
        pixels[outside] = np.nan
        return pixels, np.linalg.norm(local, axis=1)


def _matches(one: _View, two: _View) -> Int64[np.ndarray, "_ 2"]:
    products = one.descriptors.astype(np.float32) @ two.descriptors.astype(np.float32).T
    squares = (one.descriptors.astype(np.float32) ** 2).sum(1)[:, None] + (two.descriptors.astype(np.float32) ** 2).sum(1)
    distances = squares - 2 * products
    nearest = np.argpartition(distances, 1, axis=1)[:, :2]
    values = np.take_along_axis(distances, nearest, axis=1)
    best = nearest[np.arange(len(nearest)), values.argmin(axis=1)]
    good = (values.min(axis=1) < RATIO**2 * values.max(axis=1)) & (distances.argmin(axis=0)[best] == np.arange(len(best)))
    left = np.flatnonzero(good)
    right = best[left]
    motion = two.pose @ one.pose.inverse()
    x, y, z = motion.translation
    essential = np.array([[0, -z, y], [z, 0, -x], [-y, x, 0]]) @ motion.rotation
    a, b = (np.hstack([view.normalized[rows], np.ones((len(rows), 1))]) for view, rows in ((one, left), (two, right)))
    lines = a @ essential.T
    off = np.abs((b * lines).sum(1)) / np.maximum(np.hypot(lines[:, 0], lines[:, 1]), 1e-12) * two.focal
    near = off < 2.0
    return np.stack([left[near], right[near]], axis=1)


def _points(views: list[_View]) -> Float64[np.ndarray, "_ 3"]:
    """Points of the joined matches of neighboring images, each seen by at least three with errors below the gate."""
    starts = np.cumsum([0, *(len(view.keypoints) for view in views)])
    centers = np.array([view.pose.center for view in views])
    near = cKDTree(centers).query(centers, k=min(_NEIGHBORS + 1, len(views)))[1]
    pairs = {(min(i, j), max(i, j)) for i, row in enumerate(near) for j in row if i != j}
    edges = [_matches(views[i], views[j]) + np.array([starts[i], starts[j]]) for i, j in sorted(pairs)]
    links = np.concatenate(edges) if edges else np.empty((0, 2), dtype=int)
    graph = coo_array((np.ones(len(links)), (links[:, 0], links[:, 1])), shape=(starts[-1], starts[-1]))
    label = connected_components(graph, directed=False)[1]
    image_of = np.repeat(np.arange(len(views)), np.diff(starts))
    order = np.argsort(label, kind="stable")
    points = []
    for rows in np.split(order, np.flatnonzero(np.diff(label[order])) + 1):
        if len(rows) < 3 or len(set(image_of[rows])) < len(rows):
            continue
        local = [(views[i], int(row - starts[i])) for row, i in zip(rows, image_of[rows], strict=True)]
        point = _triangulated(local)
        errors = [np.linalg.norm(view.project(point[None])[0][0] - view.keypoints[row]) for view, row in local]
        if max(errors) < GATE_PX:  # NaN behind a camera or at the border is not below
            points.append(point)
    return np.array(points).reshape(-1, 3)


def _triangulated(observations: Sequence[tuple[_View, int]]) -> Float64[np.ndarray, "3"]:
    """The point by the linear method (DLT) on normalized coordinates."""
    rows = []
    for view, row in observations:
        x, y = view.normalized[row]
        rows += [x * view.projection[2] - view.projection[0], y * view.projection[2] - view.projection[1]]
    solution = np.linalg.svd(np.array(rows))[2][-1]
    return solution[:3] / solution[3]


def _sampled(views: list[_View], points: np.ndarray, random: np.random.Generator) -> TrackPairs:
    """Observations of every point in every image, and pairs of them."""
    n, m = len(points), len(views)
    row_of, beside = np.full((n, m), -1), np.zeros((n, m), dtype=bool)
    in_view, distance, residual = np.zeros((n, m), dtype=bool), np.zeros((n, m)), np.full((n, m, 2), np.nan)
    sized = np.zeros((n, m))
    for k, view in enumerate(views):
        pixels, distance[:, k] = view.project(points)
        in_view[:, k] = ~np.isnan(pixels).any(axis=1)
        sized[:, k] = distance[:, k] / view.focal
    # The size of a point, in pixels at unit distance over focal length: the median over keypoints near its projections.
    sizes = np.full((n, m), np.nan)
    for k, view in enumerate(views):
        seen = np.flatnonzero(in_view[:, k])
        gap, near = view.tree.query(view.project(points[seen])[0]) if len(seen) else (np.empty(0), np.empty(0, int))
        sizes[seen[gap < GATE_PX], k] = np.log2(view.sigmas[near[gap < GATE_PX]] * sized[seen[gap < GATE_PX], k])
    kept = ~np.isnan(sizes).all(axis=1)
    size = np.full(n, np.nan)
    size[kept] = np.nanmedian(sizes[kept], axis=1)
    for k, view in enumerate(views):
        seen = np.flatnonzero(in_view[:, k] & kept)
        pixels = view.project(points[seen])[0]
        row_of[seen, k] = _nearest(view, pixels, size[seen] - np.log2(sized[seen, k]))
        beside[seen, k] = _nearest(view, pixels + _SHIFT_PX, size[seen] - np.log2(sized[seen, k])) >= 0
        # A point that is too small to be a feature of the image is not missed there.
        least = np.log2(LEAST_FACTOR * np.percentile(view.sigmas, 1))
        in_view[seen, k] = size[seen] - np.log2(sized[seen, k]) > least
    for point in np.flatnonzero((row_of >= 0).sum(axis=1) >= 4):
        seen_by = [(views[k], int(row_of[point, k])) for k in np.flatnonzero(row_of[point] >= 0)]
        points[point] = _triangulated(seen_by)
    for k, view in enumerate(views):
        seen = np.flatnonzero(row_of[:, k] >= 0)
        residual[seen, k] = view.keypoints[row_of[seen, k]] - view.project(points[seen])[0]
    rays = np.stack([points - view.pose.center for view in views], axis=1)
    rays /= np.linalg.norm(rays, axis=2, keepdims=True)
    columns: dict[str, list] = {
        name: [] for name in ("angle_deg", "octaves", "is_repeated", "by_chance", "differences", "other")
    }
    for point in np.flatnonzero((row_of >= 0).sum(axis=1) >= 2):
        own = [(i, k) for i in np.flatnonzero(row_of[point] >= 0) for k in np.flatnonzero(in_view[point]) if i != k]
        for at in random.permutation(len(own))[:_PAIRS_PER_TRACK]:
            i, k = own[at]
            angle = np.degrees(np.arccos(np.clip(rays[point, i] @ rays[point, k], -1, 1)))
            if angle > LARGEST_DEG:
                continue
            columns["angle_deg"].append(angle)
            columns["octaves"].append(np.log2(sized[point, k] / sized[point, i]))
            columns["is_repeated"].append(row_of[point, k] >= 0)
            columns["by_chance"].append(beside[point, k])
            if row_of[point, k] >= 0:
                right, other = _told_apart(views[i].descriptors[row_of[point, i]], views[k], int(row_of[point, k]))
                columns["differences"].append(right)
                columns["other"].append(other)
    many = (row_of >= 0).sum(axis=1)
    dof = np.sqrt(2 * many / np.maximum(2 * many - 3, 1))
    used = (row_of >= 0) & (many >= 4)[:, None] & (np.linalg.norm(residual, axis=2) < GATE_PX)
    owners = np.nonzero(used)
    sigmas = np.array([views[k].sigmas[row_of[p, k]] for p, k in zip(*owners, strict=True)])
    expected = size[owners[0]] - np.log2(sized[owners])
    return TrackPairs(
        **{name: np.array(values) for name, values in columns.items()},
        residuals_px=residual[used] * dof[owners[0]][:, None],
        sigmas_px=sigmas,
        scale_noise=np.log2(sigmas) - expected,
        no_track=np.array([1 - len(set(row_of[row_of[:, k] >= 0, k])) / len(view.sigmas) for k, view in enumerate(views)]),
    )


def _nearest(view: _View, pixels: np.ndarray, log_sigma: np.ndarray) -> Int64[np.ndarray, "_"]:
    """Rows of the nearest keypoints within the gate and of the right scale; -1 where there is none."""
    gaps, rows = view.tree.query(pixels, k=4, distance_upper_bound=GATE_PX)
    fits = np.abs(np.log2(np.append(view.sigmas, 1e9))[rows] - log_sigma[:, None]) < np.log2(SCALE_FACTOR)
    gaps = np.where(fits & (rows < len(view.sigmas)), gaps, np.inf)
    best = gaps.argmin(axis=1)
    picked = rows[np.arange(len(rows)), best]
    is_near = np.isfinite(gaps[np.arange(len(rows)), best])
    return np.where(is_near, picked, -1)


def _told_apart(descriptor: np.ndarray, view: _View, row: int) -> tuple[np.ndarray, float]:
    """The difference to the most similar keypoint at one place (SIFT may give several directions), and the distance to the
    nearest descriptor elsewhere."""
    differences = view.descriptors.astype(np.int16) - descriptor.astype(np.int16)
    lengths = np.sqrt(np.einsum("ij,ij->i", differences.astype(np.float32), differences.astype(np.float32)))
    rivals = view.largest & ~(np.linalg.norm(view.keypoints - view.keypoints[row], axis=1) < GATE_PX)
    here = np.linalg.norm(view.keypoints - view.keypoints[row], axis=1) < GATE_PX
    same = np.abs(np.log2(view.sigmas / view.sigmas[row])) < np.log2(SCALE_FACTOR)
    best = np.flatnonzero(here & same)[lengths[here & same].argmin()]
    return differences[best], float(lengths[rivals].min())
