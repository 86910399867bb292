"""A private query against a map: a pose that chance cannot explain, or a reason why there is none."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
from jaxtyping import Bool, Float32, Float64, Int64

from veil.codebook import Codebook
from veil.errors import RangeError
from veil.forms import Form, Lines, Points
from veil.geometry.camera import Camera, as_colmap
from veil.geometry.ransac import RansacOptions
from veil.geometry.resection_lines import LineResection, resect_from_lines
from veil.geometry.rigid import Rigid, rigid_from_colmap
from veil.match import MatchOptions, match_pairs
from veil.scene import Scene


@dataclass(frozen=True, kw_only=True)
class Sampling:
    """What chance needs to know of a minimal solver: matches in a sample, and poses that one sample may give."""

    size: int
    poses: int


P3P = Sampling(size=3, poses=4)
P6L = Sampling(size=6, poses=8)


@dataclass(frozen=True, kw_only=True)
class LocalizeOptions:
    """`max_error_px` is the inlier threshold of points, `line_error_px` that of lines (a distance to a line underestimates
    that to the hidden keypoint, traps S7); a pose needs `min_inliers` keypoints on different points *and* fewer
    than 10^`max_log10_nfa` expected chance poses as good as it (docs/theory/localization.md)."""

    max_error_px: float = 8.0
    line_error_px: float = 4.0
    min_inliers: int = 15
    max_log10_nfa: float = -6.0
    matching: MatchOptions = field(default_factory=MatchOptions)
    workers: int = 2
    seed: int = 0

    def __post_init__(self) -> None:
        for name in ("max_error_px", "line_error_px"):
            if not 0 < getattr(self, name) < math.inf:
                raise RangeError(f"{name} must be positive and finite, got {getattr(self, name)!r}")
        if self.min_inliers < 6:
            raise RangeError(f"min_inliers below 6 accepts chance, got {self.min_inliers!r}")
        if not self.max_log10_nfa <= 0:
            raise RangeError(f"max_log10_nfa must be at most 0, got {self.max_log10_nfa!r}")


@dataclass(frozen=True, kw_only=True, eq=False)
class Localization:
    """A pose with its evidence. `covariance` is of (rotation, translation) in the camera frame, from the inliers; None where
    the pose came from lines.

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
    """No pose is better than chance; `reason` says what was found and what may help, `log10_nfa` weighs the best pose."""

    reason: str
    correspondences: int
    inliers: int = 0
    log10_nfa: float = math.inf


def localize(
    camera: Camera,
    seen: Float32[np.ndarray, "features 2"] | Lines,
    form: Form,
    scene: Scene,
    *,
    codebook: Codebook | None = None,
    options: LocalizeOptions | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> Localization | NoPose:
    """Match a query with every image of `scene`, estimate the pose by LO-RANSAC and refinement, and weigh it.

    `seen` are the query's keypoints (pixels), or the lines that hide them. A public scene and a private query use the
    point-to-subspace distance, a private scene subspace-to-subspace. `codebook` is the one the query was privatized with; a
    hardened query against a public map needs it.
    Raises SpaceError if query and scene cannot be compared.
    """
    options = options or LocalizeOptions()
    keypoint_rows, point_rows = correspondences(form, scene, codebook, options, progress)
    return localize_matches(camera, seen, keypoint_rows, point_rows, scene.points, options=options)


def localize_matches(
    camera: Camera,
    seen: Float32[np.ndarray, "features 2"] | Lines,
    keypoint_rows: Int64[np.ndarray, "pairs"],
    point_rows: Int64[np.ndarray, "pairs"],
    points: Float64[np.ndarray, "points 3"],
    *,
    options: LocalizeOptions | None = None,
) -> Localization | NoPose:
    """The second half of `localize`: from pairs of a feature and a point, the most trusted first, to a weighed pose."""
    options = options or LocalizeOptions()
    count = len(keypoint_rows)
    if count < options.min_inliers:
        return NoPose(reason=f"only {count} features match the map; is it of this place?", correspondences=count)
    estimate = _estimate(camera, seen, keypoint_rows, points[point_rows], options)
    if estimate is None:
        return NoPose(reason=f"no pose explains the {count} matches; is the map of this place?", correspondences=count)
    inlier = _one_to_one(estimate.mask, keypoint_rows, point_rows)
    found = int(inlier.sum())
    log10_nfa = chance_poses(found, len(np.unique(keypoint_rows)), estimate.agreement, estimate.sampling)
    if found < options.min_inliers or log10_nfa > options.max_log10_nfa:
        return NoPose(
            reason=f"the best pose has {found} of {count} matches as inliers, which chance also gives "
            f"(log10 of expected chance poses {log10_nfa:.1f}); is the map of this place?",
            correspondences=count,
            inliers=found,
            log10_nfa=log10_nfa,
        )
    return Localization(
        cam_from_world=estimate.pose,
        covariance=estimate.covariance,
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
    """Distinct (query feature, map point) pairs that match in at least one map image, the most distinctive first.

    A match is as distinctive as its distance is small beside that to the second neighbor (Lowe 2004), in the image where
    that is smallest. Right matches gather at the front; which matches there are does not depend on it.
    """
    forms: dict[str, Form] = {"": form}
    for name, image in scene.images.items():
        forms[name] = _comparable(image.form, form, codebook)
    pairs = [("", name) for name in scene.images]
    found = match_pairs(forms, pairs, options=options.matching, workers=options.workers, progress=progress)
    rows = [matches.indices[:, 0] for matches in found.values()]
    points = [scene.images[name].point_rows[matches.indices[:, 1]] for (_, name), matches in found.items()]
    # One number a pair sorts faster than two columns.
    keys = np.concatenate(rows) * len(scene.points) + np.concatenate(points)
    ratios = np.concatenate([matches.ratios for matches in found.values()])
    keys = keys[np.argsort(ratios, kind="stable")]
    _, first = np.unique(keys, return_index=True)
    keypoint_rows, point_rows = np.divmod(keys[np.sort(first)], len(scene.points))
    return keypoint_rows.astype(np.int64), point_rows.astype(np.int64)


def _comparable(map_form: Form, query: Form, codebook: Codebook | None) -> Form:
    if isinstance(map_form, Points) and map_form.space != query.space and codebook is not None:
        return codebook.into_space(map_form, query.space)
    return map_form


@dataclass(frozen=True, kw_only=True, eq=False)
class _Estimate:
    """A pose with its inliers, and what weighs it: the chance that a wrong match agrees, and the solver's sampling."""

    pose: Rigid
    mask: Bool[np.ndarray, "pairs"]
    covariance: Float64[np.ndarray, "6 6"] | None
    agreement: float
    sampling: Sampling


def _estimate(
    camera: Camera, seen: np.ndarray | Lines, rows: np.ndarray, xyz: np.ndarray, options: LocalizeOptions
) -> _Estimate | None:
    if isinstance(seen, Lines):
        return _from_lines(camera, seen.take(rows), xyz, options)
    return _from_points(camera, seen[rows].astype(np.float64), xyz, options)


def _from_points(camera: Camera, xy: np.ndarray, xyz: np.ndarray, options: LocalizeOptions) -> _Estimate | None:
    import pycolmap

    estimation = pycolmap.AbsolutePoseEstimationOptions()
    estimation.ransac.max_error = options.max_error_px
    estimation.estimate_focal_length = not camera.focal_is_known
    estimation.ransac.random_seed = options.seed
    refinement = pycolmap.AbsolutePoseRefinementOptions()
    refinement.refine_focal_length = not camera.focal_is_known
    found = pycolmap.estimate_and_refine_absolute_pose(
        xy, xyz, as_colmap(camera), estimation, refinement, return_covariance=True
    )
    if found is None:
        return None
    covariance = found.get("covariance")
    return _Estimate(
        pose=rigid_from_colmap(found["cam_from_world"]),
        mask=np.asarray(found["inlier_mask"], dtype=bool),
        covariance=None if covariance is None else np.asarray(covariance, dtype=np.float64),
        agreement=point_agreement(camera, options.max_error_px),
        sampling=P3P,
    )


def _from_lines(camera: Camera, lines: Lines, xyz: np.ndarray, options: LocalizeOptions) -> _Estimate | None:
    corners = np.array([[0.0, 0.0], [camera.width_px, camera.height_px]])
    problem = LineResection(
        lines=lines.coefficients.astype(np.float64),
        points=xyz,
        aligned=lines.aligned,
        focal_px=camera.focal_px,
        half_extent=1.1 * np.abs(np.asarray(as_colmap(camera).cam_from_img(corners))).max(axis=0),
        best_first=True,
    )
    found = resect_from_lines(problem, RansacOptions(max_error=options.line_error_px, seed=options.seed))
    if found is None:
        return None
    return _Estimate(
        pose=found.model,
        mask=found.inliers,
        covariance=None,
        agreement=line_agreement(camera, options.line_error_px),
        sampling=P6L,
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


def point_agreement(camera: Camera, max_error_px: float) -> float:
    """Probability that a keypoint at a random place lies within `max_error_px` of a given one: pi t^2 / (w h)."""
    return min(1.0, math.pi * max_error_px**2 / (camera.width_px * camera.height_px))


def line_agreement(camera: Camera, max_error_px: float) -> float:
    """Probability that a random line passes within `max_error_px` of a given point, at most 2 t diagonal / (w h)."""
    diagonal = math.hypot(camera.width_px, camera.height_px)
    return min(1.0, 2 * max_error_px * diagonal / (camera.width_px * camera.height_px))


def chance_poses(inliers: int, matches: int, agreement: float, sampling: Sampling = P3P) -> float:
    """log10 of the expected number of poses as good as this if all matches were uniform noise (NFA).

    Moisan and Stival 2004, Eq. 6: each of the C(n, s) samples gives up to `sampling.poses` poses, and of the other n - s
    matches a wrong one agrees with probability `agreement` (docs/theory/localization.md, Eq. 2).
    """
    if inliers <= sampling.size:
        return math.inf
    others, agreeing = matches - sampling.size, inliers - sampling.size
    samples = math.log(sampling.poses * others) + _log_binomial(matches, sampling.size)
    return float((samples + _log_binomial(others, agreeing) + agreeing * math.log(agreement)) / math.log(10))


def _log_binomial(n: int, k: int) -> float:
    from scipy.special import gammaln

    return float(gammaln(n + 1) - gammaln(k + 1) - gammaln(n - k + 1))
