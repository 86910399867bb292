"""A private query against a map: a pose that chance cannot explain, or a reason why there is none."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
from jaxtyping import Bool, Float32, Float64, Int64
from scipy.special import gammaln

from veil.codebook import Codebook
from veil.errors import RangeError
from veil.forms import Form, Points
from veil.geometry.camera import Camera, as_colmap
from veil.geometry.rigid import Rigid, rigid_from_colmap
from veil.match import MatchOptions, match_pairs
from veil.scene import Scene

MINIMAL_SAMPLE = 3  # P3P
POSES_PER_SAMPLE = 4


@dataclass(frozen=True, kw_only=True)
class LocalizeOptions:
    """`max_error_px` is the inlier threshold; a pose needs `min_inliers` keypoints on different points *and* fewer
    than 10^`max_log10_nfa` expected chance poses as good as it (docs/theory/localization.md)."""

    max_error_px: float = 8.0
    min_inliers: int = 15
    max_log10_nfa: float = -6.0
    matching: MatchOptions = field(default_factory=MatchOptions)
    workers: int = 2
    seed: int = 0

    def __post_init__(self) -> None:
        if not 0 < self.max_error_px < math.inf:
            raise RangeError(f"max_error_px must be positive and finite, got {self.max_error_px!r}")
        if self.min_inliers < 6:
            raise RangeError(f"min_inliers below 6 accepts chance, got {self.min_inliers!r}")
        if not self.max_log10_nfa <= 0:
            raise RangeError(f"max_log10_nfa must be at most 0, got {self.max_log10_nfa!r}")


@dataclass(frozen=True, kw_only=True, eq=False)
class Localization:
    """A pose with its evidence. `covariance` is of (rotation, translation) in the camera frame, from the inliers.

    `keypoint_rows` and `point_rows` list the inlier correspondences; whoever runs this sees them, and can estimate
    the descriptors of exactly these features (traps D16).
    """

    cam_from_world: Rigid
    covariance: Float64[np.ndarray, "6 6"] | None
    keypoint_rows: Int64[np.ndarray, "inliers"]
    point_rows: Int64[np.ndarray, "inliers"]
    correspondences: int
    log10_nfa: float

    @property
    def inliers(self) -> int:
        """Keypoints that see different points within the threshold."""
        return len(self.keypoint_rows)


@dataclass(frozen=True, kw_only=True)
class NoPose:
    """No pose is better than chance; `reason` says what was found and what may help."""

    reason: str
    correspondences: int
    inliers: int = 0


def localize(
    camera: Camera,
    keypoints: Float32[np.ndarray, "features 2"],
    form: Form,
    scene: Scene,
    *,
    codebook: Codebook | None = None,
    options: LocalizeOptions | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> Localization | NoPose:
    """Match a query with every image of `scene`, estimate the pose by LO-RANSAC and refinement, and weigh it.

    A public scene and a private query use the point-to-subspace distance, a private scene subspace-to-subspace.
    `codebook` is the one the query was privatized with; a hardened query against a public map needs it.
    Raises SpaceError if query and scene cannot be compared.
    """
    options = options or LocalizeOptions()
    keypoint_rows, point_rows = correspondences(form, scene, codebook, options, progress)
    count = len(keypoint_rows)
    if count < options.min_inliers:
        return NoPose(reason=f"only {count} features match the map; is it of this place?", correspondences=count)
    xy = keypoints[keypoint_rows].astype(np.float64)
    estimate = _estimate(camera, xy, scene.points[point_rows], options)
    if estimate is None:
        return NoPose(reason=f"no pose explains the {count} matches; is the map of this place?", correspondences=count)
    inlier = _one_to_one(estimate["inlier_mask"], keypoint_rows, point_rows)
    found = int(inlier.sum())
    log10_nfa = chance_poses(found, len(np.unique(keypoint_rows)), camera, options.max_error_px)
    if found < options.min_inliers or log10_nfa > options.max_log10_nfa:
        return NoPose(
            reason=f"the best pose has {found} of {count} matches as inliers, which chance also gives "
            f"(log10 of expected chance poses {log10_nfa:.1f}); is the map of this place?",
            correspondences=count,
            inliers=found,
        )
    covariance = estimate.get("covariance")
    return Localization(
        cam_from_world=rigid_from_colmap(estimate["cam_from_world"]),
        covariance=None if covariance is None else np.asarray(covariance, dtype=np.float64),
        keypoint_rows=keypoint_rows[inlier],
        point_rows=point_rows[inlier],
        correspondences=count,
        log10_nfa=log10_nfa,
    )


def correspondences(
    form: Form,
    scene: Scene,
    codebook: Codebook | None,
    options: LocalizeOptions,
    progress: Callable[[int, int], None] | None = None,
) -> tuple[Int64[np.ndarray, "pairs"], Int64[np.ndarray, "pairs"]]:
    """Distinct (query feature, map point) pairs that match in at least one map image, best-supported first."""
    forms: dict[str, Form] = {"": form}
    for name, image in scene.images.items():
        forms[name] = _comparable(image.form, form, codebook)
    pairs = [("", name) for name in scene.images]
    found = match_pairs(forms, pairs, options=options.matching, workers=options.workers, progress=progress)
    rows = [matches.indices[:, 0] for matches in found.values()]
    points = [scene.images[name].point_rows[matches.indices[:, 1]] for (_, name), matches in found.items()]
    stacked = np.stack([np.concatenate(rows), np.concatenate(points)], axis=1)
    unique, votes = np.unique(stacked, axis=0, return_counts=True)
    order = np.argsort(-votes, kind="stable")
    return unique[order, 0].astype(np.int64), unique[order, 1].astype(np.int64)


def _comparable(map_form: Form, query: Form, codebook: Codebook | None) -> Form:
    if isinstance(map_form, Points) and map_form.space != query.space and codebook is not None:
        return codebook.into_space(map_form, query.space)
    return map_form


def _estimate(camera: Camera, xy: np.ndarray, xyz: np.ndarray, options: LocalizeOptions) -> dict | None:
    import pycolmap

    estimation = pycolmap.AbsolutePoseEstimationOptions()
    estimation.ransac.max_error = options.max_error_px
    estimation.estimate_focal_length = not camera.focal_is_known
    estimation.ransac.random_seed = options.seed
    refinement = pycolmap.AbsolutePoseRefinementOptions()
    refinement.refine_focal_length = not camera.focal_is_known
    return pycolmap.estimate_and_refine_absolute_pose(
        xy, xyz, as_colmap(camera), estimation, refinement, return_covariance=True
    )


def _one_to_one(
    mask: Bool[np.ndarray, "pairs"], keypoint_rows: Int64[np.ndarray, "pairs"], point_rows: Int64[np.ndarray, "pairs"]
) -> Bool[np.ndarray, "pairs"]:
    """Inliers of which no two share a keypoint or a point: repeats are no further evidence."""
    mask = np.asarray(mask, dtype=bool).copy()
    for rows in (keypoint_rows, point_rows):
        inlier = np.flatnonzero(mask)
        _, first = np.unique(rows[inlier], return_index=True)
        mask[:] = False
        mask[inlier[first]] = True
    return mask


def chance_poses(inliers: int, matches: int, camera: Camera, max_error_px: float) -> float:
    """log10 of the expected number of poses as good as this if all matches were uniform noise (NFA).

    Moisan and Stival 2004, Eq. 6, with P3P: each of the C(n, 3) samples gives up to 4 poses; of the other n - 3
    matches a wrong one falls within the threshold of its projection with probability pi t^2 / (width height).
    """
    if inliers <= MINIMAL_SAMPLE:
        return math.inf
    p = min(1.0, math.pi * max_error_px**2 / (camera.width_px * camera.height_px))
    others, agreeing = matches - MINIMAL_SAMPLE, inliers - MINIMAL_SAMPLE
    samples = math.log(POSES_PER_SAMPLE * others) + _log_binomial(matches, MINIMAL_SAMPLE)
    return float((samples + _log_binomial(others, agreeing) + agreeing * math.log(p)) / math.log(10))


def _log_binomial(n: int, k: int) -> float:
    return float(gammaln(n + 1) - gammaln(k + 1) - gammaln(n - k + 1))
