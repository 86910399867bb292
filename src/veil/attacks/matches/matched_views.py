"""Matched views: subspaces of two photographs of a place that match nearly meet, close to the descriptors of both.

Whoever has two uploads of a place matches them as the service does: mutual nearest neighbors, and of these the ones that the
epipolar geometry of the positions explains. The point of a subspace that is nearest to its partner's subspace estimates its
descriptor (Eq. 6 of release.md). No database, no training and no secret is needed, and uploads of other people serve as well.
Of several partners the nearest one is taken, so that more uploads only add partners. With raw photographs of the place the
partner is a descriptor (Eq. 5).

Theory: release.md#matched-views.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float64

from veil.attacks.attack import Attempt
from veil.attacks.claims import CannotRun, Estimates, no_release, undecided
from veil.attacks.intersection.several_releases import repeats
from veil.attacks.matches.inliers import inlier_points, inlier_subspaces
from veil.attacks.target import ReleasedImage, Target
from veil.errors import RangeError, Remedy
from veil.forms import Points, Subspaces
from veil.geometry.robust.two_view import TwoView, log10_chance
from veil.matching.neighbors import Matches, MatchOptions, match
from veil.matching.ratio import WRONG_SHARE, chance_ratio

VIEWS = "releases of other photographs of the same place"
PHOTOGRAPHS = "raw photographs of the same place"
NO_PHOTOGRAPHS = "no photographs of the place were given"
NOTE = "{} of {} views match; {} of {} features do: whoever matches a feature learns it, by design"
# Share of wrong matches that passes the ratio test where no positions verify matches.
DISTINCT_SHARE = 0.03
# Least number of matches of a fundamental matrix beyond its sample of seven.
FEWEST = 15


@dataclass(frozen=True, kw_only=True)
class MatchedViewOptions:
    """Options of the attack by matched views.

    - `max_error_px`: largest distance to an epipolar line.
    - `max_log10_nfa`: largest expected number (log10) of geometries as good among wrong matches.
    - `samples`: of the fundamental matrix.
    - `most_meeting`, `most_wrong`: where lines hide positions and only the ratio test tells right matches, largest share of a
      view's matches that may meet, and that may be expected to be wrong. Two releases that drew decoys from one run meet in
      these.

    Raises RangeError for values outside their range.
    """

    max_error_px: float = 2.0
    max_log10_nfa: float = -6.0
    samples: int = 1000
    most_meeting: float = 0.25
    most_wrong: float = 0.25

    def __post_init__(self) -> None:
        if self.samples < 1 or not self.max_error_px > 0:
            raise RangeError(f"samples and max_error_px must be positive, got {self.samples!r} and {self.max_error_px!r}")
        for name in ("most_meeting", "most_wrong"):
            if not 0 < getattr(self, name) <= 1:
                raise RangeError(f"{name} must lie in (0, 1], got {getattr(self, name)!r}")


@dataclass(frozen=True, kw_only=True, eq=False)
class OtherView:
    """Another view of the place: its descriptors or subspaces, and its positions in pixels where they are known."""

    form: Subspaces | Points
    keypoints: Float64[np.ndarray, "_ 2"] | None


def matched_views(target: Target, options: MatchedViewOptions | None = None) -> Attempt:
    """Estimates of the descriptors from releases of other photographs of the place. Raises CannotRun if there is none.

    Other releases of the same photograph are left to the attack `repeat`.
    """
    views = [
        OtherView(form=form, keypoints=_pixels(other))
        for place, (other, form) in enumerate(target.comparable_releases)
        if place not in repeats(target)
    ]
    if not views:
        raise no_release(len(target.knowledge.others), "of another photograph, in this space and dimension")
    return _attempt("matched views", target, views, options or MatchedViewOptions())


def matched_photographs(target: Target, options: MatchedViewOptions | None = None) -> Attempt:
    """Estimates of the descriptors from raw photographs of the place. Raises CannotRun if there is none."""
    public, space = target.knowledge.codebook, target.form.space
    if not target.knowledge.place:
        raise CannotRun(NO_PHOTOGRAPHS, remedy=Remedy("give", "Attacker.place"))
    views = [
        OtherView(
            form=photograph.points if public is None else public.compression.into_space(photograph.points, space),
            keypoints=photograph.keypoints.astype(np.float64),
        )
        for photograph in target.knowledge.place.values()
    ]
    return _attempt("matched photographs", target, views, options or MatchedViewOptions())


def _attempt(name: str, target: Target, views: Sequence[OtherView], options: MatchedViewOptions) -> Attempt:
    """Estimates from as many of `views` as there is time for."""
    matcher = _Matcher(target, options, [view.form for view in views])
    with target.timer() as clock:
        done = target.time.run_some(name, views, matcher.verified, target.effort.seed)
        best, used = undecided(len(target.form), target.form.space.dim), 0
        nearest = np.full(len(target.form), np.inf)
        for view, matches in done:
            used += len(matches) > 0
            _keep_nearer(best, nearest, target.form, view.form, matches)
    estimates = best.take(target.rows)
    matched = int(estimates.decided.sum())
    notes = [NOTE.format(used, len(done), matched, len(target.rows))]
    if len(done) < len(views):
        notes.append(f"{len(views) - len(done)} further views were not matched for want of time")
    return Attempt(
        label=name,
        rows=target.rows,
        claim=estimates,
        seconds=clock.seconds,
        notes=tuple(notes),
        details={"matched": matched / max(len(target.rows), 1), "views": float(used)},
    )


class _Matcher:
    """Verified matches of the attacked release with one view at a time."""

    def __init__(self, target: Target, options: MatchedViewOptions, forms: Sequence[Subspaces | Points]) -> None:
        self.target, self.options, self._forms = target, options, forms
        self._keypoints = _pixels(target.image)
        self._max_ratio: float | None = None

    def verified(self, view: OtherView) -> Matches:
        """Matches of the release with a view that are right as far as geometry, or else distinctness, can tell.

        Nothing is kept of a view that chance explains, nor of one whose matches rather are decoys from the same run.
        """
        matches = match(self.target.form, view.form, MatchOptions(threads=self.target.effort.threads))
        none = matches.take(np.zeros(len(matches), dtype=bool))
        if len(matches) < FEWEST:
            return none
        meets = matches.distances <= self.target.meeting_distance
        if self._keypoints is None or view.keypoints is None:
            distinct = matches.ratios <= self._ratio()
            wrong = DISTINCT_SHARE * len(self.target.form) / max(distinct.sum(), 1)
            believed = meets.mean() <= self.options.most_meeting and wrong <= self.options.most_wrong
            return matches.take(distinct) if believed else none
        left, right = self._keypoints[matches.indices[:, 0]], view.keypoints[matches.indices[:, 1]]
        agrees = epipolar_inliers(left, right, options=self.options, seed=self.target.effort.seed)
        return none if (meets & ~agrees).sum() > agrees.sum() else matches.take(agrees)

    def _ratio(self) -> float:
        """Ratio of nearest to second nearest distance that a share `DISTINCT_SHARE` of wrong matches passes.

        It follows from the ratio of second to third nearest distance that `WRONG_SHARE` pass (docs/theory/release.md, Eq. 14).
        """
        if self._max_ratio is None:
            forms = {"": self.target.form, **{str(place): form for place, form in enumerate(self._forms)}}
            pairs = [("", name) for name in forms if name]
            later = chance_ratio(forms, pairs, wrong_share=WRONG_SHARE, seed=self.target.effort.seed)
            self._max_ratio = later ** (2 * math.log(DISTINCT_SHARE) / math.log(WRONG_SHARE))
        return self._max_ratio


def epipolar_inliers(
    left: Float64[np.ndarray, "matches 2"],
    right: Float64[np.ndarray, "matches 2"],
    *,
    options: MatchedViewOptions,
    seed: int = 0,
) -> Bool[np.ndarray, "matches"]:
    """Mask of the matches that one fundamental matrix explains; all False if chance would explain as many.

    `left` and `right` are positions in pixels. Theory: mapping.md#verification-by-evidence.
    """
    from veil.colmap import pycolmap

    nothing = np.zeros(len(left), dtype=bool)
    if len(left) < FEWEST:
        return nothing
    ransac = pycolmap.RANSACOptions()
    ransac.max_error, ransac.random_seed = options.max_error_px, seed
    ransac.max_num_trials = options.samples
    ransac.min_num_trials = min(ransac.min_num_trials, options.samples)
    estimate = pycolmap.estimate_fundamental_matrix(left, right, ransac)
    if estimate is None:
        return nothing
    geometry = TwoView(fundamental=np.asarray(estimate["F"]), homography=None, calibrated=False)
    agrees = np.asarray(estimate["inlier_mask"], dtype=bool)
    return agrees if log10_chance(left, right, geometry) <= options.max_log10_nfa else nothing


def _keep_nearer(
    best: Estimates,
    nearest: Float64[np.ndarray, "features"],
    form: Subspaces,
    other: Subspaces | Points,
    matches: Matches,
) -> None:
    """Replace the estimates `best`, in place, where a match is nearer than the `nearest` one so far."""
    closer = matches.take(matches.distances < nearest[matches.indices[:, 0]])
    if len(closer) == 0:
        return
    rows, partners = closer.indices.T
    attacked = form.take(rows)
    if isinstance(other, Points):
        estimates = inlier_points(attacked, other.vectors[partners].astype(np.float64))
    else:
        estimates, _ = inlier_subspaces(attacked, other.take(partners))
    nearest[rows] = closer.distances
    best.points[rows], best.confidence[rows] = estimates.points, estimates.confidence


def _pixels(image: ReleasedImage) -> Float64[np.ndarray, "_ 2"] | None:
    return None if image.keypoints is None else image.keypoints.astype(np.float64)
