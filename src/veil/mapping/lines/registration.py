"""Registration of one image: the reconstruction is adjusted with it, at its pose or at the mirror image of that."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from jaxtyping import Bool

from veil.errors import require_positive
from veil.geometry.bundle.adjustment import AdjustOptions
from veil.geometry.rigid import Rigid
from veil.geometry.robust.resection_lines import mirrored, relief
from veil.mapping.lines.problem import MappingProblem
from veil.mapping.lines.quad import SeedOptions
from veil.mapping.lines.reconstruction import Reconstruction, adjusted, line_distances, mapped_tracks, triangulated

# Adjustments between two images need not converge: the next image moves everything again.
INTERMEDIATE = AdjustOptions(loss_px=1.0, max_iterations=15, tol=1e-5)
FINAL = AdjustOptions(max_iterations=30, tol=1e-7)
ROUNDS = 3
# Points this close to a plane, as a share of their depth, leave a pose and its mirror image nearly alike.
FLAT_RELIEF = 0.005


@dataclass(frozen=True, kw_only=True)
class LineMapOptions:
    """Thresholds of mapping from lines, in pixels and degrees. Raises RangeError for errors or angles that are not positive.

    An image enters (docs/theory/mapping.md, An image more) with `min_registration_inliers` lines that agree within
    `resection_error_px`, at most `max_aligned_share` of them along gravity. Of the points that it shares with one neighbor, or
    of all its points, `min_neighbor_share` or more must agree, and log10 of the expected number of such poses by chance must
    not exceed `max_log10_nfa`. It is refused if another pose explains other lines, `max_rival_share` as many, or has
    `max_twin_share` of its score. It stays with `min_firm_inliers` on points that four others observe: those have a check of
    their own.

    A point needs `min_lines` lines that agree within `point_error_px`, and two rays `min_angle_deg` apart.

    Seeds of `quads` image quads are compared, and mapping starts from up to `attempts` of them where none is sure; if none
    takes in another image, from those of quads of other images. A map whose seed chance explains is refused, unless it took in
    `min_weak_share` of the images and at least `min_weak_images`. All cameras are adjusted when the number of images is
    `global_ratio` times what it was when they last were, else the newest camera and its `local_images` nearest.
    """

    seed: SeedOptions = field(default_factory=SeedOptions)
    quads: int = 10
    attempts: int = 3
    resection_error_px: float = 6.0
    point_error_px: float = 4.0
    min_angle_deg: float = 1.5
    min_lines: int = 4
    min_registration_inliers: int = 15
    min_firm_inliers: int = 20
    min_neighbor_share: float = 0.25
    max_rival_share: float = 0.6
    max_twin_share: float = 0.85
    max_aligned_share: float = 0.9
    max_log10_nfa: float = -6.0
    min_weak_share: float = 0.8
    min_weak_images: int = 8
    global_ratio: float = 1.1
    local_images: int = 6

    def __post_init__(self) -> None:
        require_positive(self, "resection_error_px", "point_error_px", "min_angle_deg")


def triangulate(
    problem: MappingProblem, reconstruction: Reconstruction, limit_px: float, options: LineMapOptions
) -> Reconstruction:
    """Reconstruction with every track triangulated anew, by the rules of `options` but for `limit_px` (`triangulated`)."""
    return triangulated(
        problem, reconstruction, limit_px=limit_px, min_lines=options.min_lines, min_angle_deg=options.min_angle_deg
    )


def settle(
    problem: MappingProblem, reconstruction: Reconstruction, free: Bool[np.ndarray, "images"], options: LineMapOptions
) -> Reconstruction:
    """Reconstruction after turns of triangulation of all tracks and adjustment of the cameras `free` (mask of images).

    Each of the two shows the other what was wrong.
    """
    for _ in range(ROUNDS):
        reconstruction = triangulate(problem, reconstruction, options.point_error_px, options)
        reconstruction = adjusted(problem, reconstruction, free, INTERMEDIATE)
    return triangulate(problem, reconstruction, options.point_error_px, options)


def with_image(
    problem: MappingProblem,
    reconstruction: Reconstruction,
    image: int,
    pose: Rigid,
    *,
    everything: bool,
    options: LineMapOptions,
) -> Reconstruction:
    """Reconstruction with `image` registered at `pose`, settled.

    Over nearly flat points the mirror image of the pose is tried too, and the one that fits is taken. `everything` adjusts all
    cameras, else only the image and its nearest neighbors.
    """

    def settled(candidate: Rigid) -> Reconstruction:
        larger = reconstruction.with_pose(image, candidate)
        return settle(
            problem, larger, larger.registered if everything else _neighbors(problem, larger, image, options), options
        )

    rows = np.flatnonzero((problem.tracks.image == image) & mapped_tracks(problem, reconstruction)[problem.tracks.track])
    points = reconstruction.points[problem.tracks.track[rows]]
    larger = reconstruction.with_pose(image, pose)
    near = (
        line_distances(problem, larger, problem.tracks.image[rows], problem.tracks.feature[rows], points)
        < options.point_error_px
    )
    other = mirrored(pose, points[near]) if near.any() and relief(pose, points[near]) < FLAT_RELIEF else None
    if other is None:
        return settled(pose)
    return min((settled(pose), settled(other)), key=lambda trial: _cost(problem, trial, image, options))


def _cost(problem: MappingProblem, reconstruction: Reconstruction, image: int, options: LineMapOptions) -> float:
    """Robust cost of all lines of the tracks that `image` observes."""
    tracks = problem.tracks
    mine = np.zeros(len(tracks), dtype=bool)
    mine[tracks.track[tracks.image == image]] = True
    rows = np.flatnonzero(mine[tracks.track] & reconstruction.registered[tracks.image])
    distance = line_distances(
        problem, reconstruction, tracks.image[rows], tracks.feature[rows], reconstruction.points[tracks.track[rows]]
    )
    return float(np.log1p((np.minimum(distance, options.point_error_px) / noise_px(problem, reconstruction)) ** 2).sum())


def _neighbors(
    problem: MappingProblem, reconstruction: Reconstruction, image: int, options: LineMapOptions
) -> Bool[np.ndarray, "images"]:
    """Mask of the image and the registered images that share most tracks with it."""
    mine = np.zeros(len(problem.tracks), dtype=bool)
    mine[problem.tracks.track[problem.tracks.image == image]] = True
    shared = (
        np.bincount(problem.tracks.image[mine[problem.tracks.track]], minlength=len(problem.views)) * reconstruction.registered
    )
    chosen = np.zeros(len(problem.views), dtype=bool)
    chosen[np.argsort(-shared, kind="stable")[: options.local_images + 1]] = True
    return chosen & reconstruction.registered


def noise_px(problem: MappingProblem, reconstruction: Reconstruction) -> float:
    """Scale in pixels of the robust loss for these lines: twice their median residual, between 0.2 and 2 pixels."""
    rows = np.flatnonzero(reconstruction.observed)
    tracks = problem.tracks
    distance = line_distances(
        problem, reconstruction, tracks.image[rows], tracks.feature[rows], reconstruction.points[tracks.track[rows]]
    )
    return float(np.clip(2 * np.median(distance), 0.2, 2.0)) if len(rows) else 2.0
