"""A private query against a map: a pose that chance cannot explain, or a reason why there is none."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
from jaxtyping import Float32, Float64, Int64

from veil.codebooks.codebook import Codebook
from veil.forms import Form, Lines, Points
from veil.geometry.camera import Camera
from veil.geometry.rigid import Rigid
from veil.geometry.robust.acceptance import Acceptance
from veil.geometry.robust.significance import P3P as P3P
from veil.geometry.robust.significance import P6L as P6L
from veil.geometry.robust.significance import Sampling as Sampling
from veil.geometry.robust.significance import line_agreement as line_agreement
from veil.geometry.robust.significance import point_agreement as point_agreement
from veil.geometry.robust.significance import pose_log10_nfa as pose_log10_nfa
from veil.geometry.views import MapViews
from veil.localization.matched_features import Estimate, Matched, matched_features
from veil.localization.pose_evidence import NESTED, Evidence, pictured, rival, too_few, turn_deviation_deg, weigh
from veil.matching import MatchOptions, match_pairs
from veil.scene import Scene


@dataclass(frozen=True, kw_only=True)
class LocalizeOptions(Acceptance):
    """What a pose must show, how features are matched, and by how many `workers`; `seed` is RANSAC's."""

    matching: MatchOptions = field(default_factory=MatchOptions)
    workers: int = 2
    seed: int = 0


@dataclass(frozen=True, kw_only=True, eq=False)
class Localization:
    """A pose with its evidence. `covariance` is of (rotation in radians, translation in units of the map) in the camera frame,
    for a noise of one pixel along each axis of the inliers; None where the pose came from lines. `turn_deviation_deg` is the
    standard deviation of the rotation about its least certain axis, with the noise that the inliers show.

    `keypoint_rows` and `point_rows` list the inlier correspondences; whoever runs this sees them, and can estimate
    the descriptors of exactly these features (release.md#matched-features-are-known-to-whoever-matches-them).
    """

    cam_from_world: Rigid
    covariance: Float64[np.ndarray, "6 6"] | None
    turn_deviation_deg: float
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
    return localize_matches(camera, seen, keypoint_rows, point_rows, scene.points, views=scene.views, options=options)


def localize_matches(
    camera: Camera,
    seen: Float32[np.ndarray, "features 2"] | Lines,
    keypoint_rows: Int64[np.ndarray, "pairs"],
    point_rows: Int64[np.ndarray, "pairs"],
    points: Float64[np.ndarray, "points 3"],
    *,
    views: MapViews | None = None,
    options: LocalizeOptions | None = None,
) -> Localization | NoPose:
    """The second half of `localize`: from pairs of a feature and a point, the most trusted first, to a weighed pose.

    Without `views` nothing is known of how the map's images saw its points, and no pose is refused for its place.
    """
    options = options or LocalizeOptions()
    count = len(keypoint_rows)
    if count < options.min_inliers:
        return NoPose(reason=f"only {count} features match the map; is it of this place?", correspondences=count)
    limit = options.line_error_px if isinstance(seen, Lines) else options.max_error_px
    matched = matched_features(camera, seen, keypoint_rows, point_rows, points, max_error_px=limit, seed=options.seed)
    found = _weighed_pose(matched, views, options)
    if found is None:
        return NoPose(reason=f"no pose explains the {count} matches; is the map of this place?", correspondences=count)
    estimate, evidence = found
    anyhow = evidence if _beyond_chance(evidence, options) else weigh(matched, estimate, None)

    def refused(reason: str) -> NoPose:
        return NoPose(reason=reason, correspondences=count, inliers=len(anyhow.rows), log10_nfa=anyhow.log10_nfa)

    if not _beyond_chance(anyhow, options):
        return refused(
            f"the best pose has {len(anyhow.rows)} of {count} matches as inliers, which chance also gives "
            f"(log10 of expected chance poses {anyhow.log10_nfa:.1f}); is the map of this place?"
        )
    if anyhow is not evidence or pictured(matched, estimate, evidence, views):
        return refused(IMPOSSIBLE)
    other = rival(matched, estimate, evidence, views, min_inliers=options.min_inliers, max_log10_nfa=options.max_log10_nfa)
    if other is not None:
        return refused(AMBIGUOUS.format(len(evidence.rows), len(other.rows), count))
    deviation_deg = turn_deviation_deg(matched, estimate, evidence.rows)
    if too_few(matched, evidence, options.max_log10_nfa) or deviation_deg > options.max_turn_deg:
        return refused(VAGUE.format(len(evidence.rows), count))
    return Localization(
        cam_from_world=estimate.pose,
        covariance=estimate.covariance,
        turn_deviation_deg=deviation_deg,
        keypoint_rows=keypoint_rows[evidence.rows],
        point_rows=point_rows[evidence.rows],
        correspondences=count,
        log10_nfa=evidence.log10_nfa,
    )


IMPOSSIBLE = (
    "the best pose sees its points from sides, or at sizes, at which no image of the map saw them; is the query a "
    "photograph of a photograph, or its focal length wrong?"
)

AMBIGUOUS = (
    "two poses explain {} and {} of {} matches, and nothing tells which is right; does the query show one thing several "
    "times, or several photographs?"
)

VAGUE = (
    "the best pose is better than chance, but its {} inliers of {} matches leave it uncertain by degrees; show more of the "
    "place, extract more features, or map more images of it"
)


def _weighed_pose(matched: Matched, views: MapViews | None, options: LocalizeOptions) -> tuple[Estimate, Evidence] | None:
    """The best pose and its evidence; where chance explains it, the first one beyond chance among the most trusted pairs."""
    estimate = matched.estimate()
    found = None if estimate is None else (estimate, weigh(matched, estimate, views))
    if found is not None and _beyond_chance(found[1], options):
        return found
    for part in NESTED[:-1]:
        estimate = matched.among_trusted(part)
        if estimate is not None and _beyond_chance(evidence := weigh(matched, estimate, views), options):
            return estimate, evidence
    return found


def _beyond_chance(evidence: Evidence, options: LocalizeOptions) -> bool:
    return len(evidence.rows) >= options.min_inliers and evidence.log10_nfa <= options.max_log10_nfa


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
