"""Matched views: subspaces of two photographs of a place that match nearly meet, close to the descriptors of both.

Whoever has two uploads of a place matches them as the service does: mutual nearest neighbors, and of these the ones that the
epipolar geometry of the positions explains. The point of a subspace that is nearest to its partner's subspace estimates its
descriptor (Eq. 6 of release.md). No database, no training and no secret is needed, and uploads of other people serve as well.
Of several partners the one is taken on whose estimate most views agree, and of these the nearest. With raw photographs of the
place the partner is a descriptor (Eq. 5).

A feature without a verified partner, or behind a line, takes the nearest subspace of any view that it does not meet in a shared
decoy. Of those that have a partner this one is right so often that it is the better guess than none.

Theory: release.md#matched-views.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float64, Int64

from veil import distances
from veil.attacks.attack import Attempt
from veil.attacks.claims import CannotRun, Estimates, no_release, undecided
from veil.attacks.intersection.several_releases import repeats
from veil.attacks.matches.inliers import inlier_points, inlier_subspaces
from veil.attacks.target import ReleasedImage, Target
from veil.errors import RangeError, Remedy
from veil.forms import Points, Subspaces
from veil.geometry.robust.two_view import TwoView, log10_chance
from veil.matching.neighbors import NEIGHBORS, Matches, MatchOptions, as_set, decoy_distance, match

VIEWS = "releases of other photographs of the same place"
PHOTOGRAPHS = "raw photographs of the same place"
NO_PHOTOGRAPHS = "no photographs of the place were given"
NOTE = "{} of {} views match; {} of {} features do: whoever matches a feature learns it, by design"
UNVERIFIED = "{} of {} features have no match that positions verify, and take the nearest subspace of {} views"
# Least number of features that would meet several others if decoys were met, for their absence to say anything.
FEWEST_EXPECTED = 9.0
# Estimates of two views agree within this distance, relative to the length of a descriptor.
AGREEING = 0.1
# Least number of matches of a fundamental matrix beyond its sample of seven.
FEWEST = 15


@dataclass(frozen=True, kw_only=True)
class MatchedViewOptions:
    """Options of the attack by matched views.

    - `max_error_px`: largest distance to an epipolar line.
    - `max_log10_nfa`: largest expected number (log10) of geometries as good among wrong matches.
    - `samples`: of the fundamental matrix.

    Raises RangeError for values outside their range.
    """

    max_error_px: float = 2.0
    max_log10_nfa: float = -6.0
    samples: int = 1000

    def __post_init__(self) -> None:
        if self.samples < 1 or not self.max_error_px > 0:
            raise RangeError(f"samples and max_error_px must be positive, got {self.samples!r} and {self.max_error_px!r}")


@dataclass(frozen=True, kw_only=True, eq=False)
class OtherView:
    """Another view of the place: its descriptors or subspaces, and its positions in pixels where they are known."""

    form: Subspaces | Points
    keypoints: Float64[np.ndarray, "_ 2"] | None


def matched_views(target: Target, options: MatchedViewOptions | None = None) -> Attempt:
    """Estimates of the descriptors from releases of other photographs of the place. Raises CannotRun if there is none.

    Other releases of the same photograph are left to the attack `repeat`. Behind lines nothing tells these from other views
    that drew the same decoys, and both attacks are run.
    """
    views = [
        OtherView(form=form, keypoints=_pixels(other))
        for place, (other, form) in enumerate(target.comparable_releases)
        if place not in repeats(target) or not repeats(target)[place].is_sure
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


@dataclass(frozen=True, kw_only=True, eq=False)
class _Partners:
    """Partners of the attacked features in one view: those that geometry verifies, and the nearest one of each feature.

    `nearest` is the row of the view for each feature, and `away` its distance, infinite where there is none.
    """

    verified: Matches
    nearest: Int64[np.ndarray, "features"]
    away: Float64[np.ndarray, "features"]


def _attempt(name: str, target: Target, views: Sequence[OtherView], options: MatchedViewOptions) -> Attempt:
    """Estimates from as many of `views` as there is time for: from verified partners, and for the others from the nearest."""
    matcher = _Matcher(target, options)
    with target.timer() as clock:
        done = target.time.run_some(name, views, matcher.partners, target.effort.seed)
        given = [_given(target.form, view, partners) for view, partners in done]
        best = _agreed(given) if given else undecided(len(target.form), target.form.space.dim)
        is_verified = np.any([one.verified for one in given], axis=0) if given else np.zeros(len(target.form), dtype=bool)
    used = sum(bool(one.verified.any()) for one in given)
    matched, asked = int(is_verified[target.rows].sum()), len(target.rows)
    notes = [] if target.image.keypoints is None else [NOTE.format(used, len(done), matched, asked)]
    if matched < asked:
        notes.append(UNVERIFIED.format(asked - matched, asked, len(done)))
    if len(done) < len(views):
        notes.append(f"{len(views) - len(done)} further views were not matched for want of time")
    return Attempt(
        label=name,
        rows=target.rows,
        claim=best.take(target.rows),
        seconds=clock.seconds,
        notes=tuple(notes),
        details={"matched": matched / max(asked, 1), "views": float(used)},
    )


@dataclass(frozen=True, kw_only=True, eq=False)
class _FromView:
    """Estimates of all features by one view, the distances of their partners (infinite: none), and which are verified."""

    estimates: Estimates
    away: Float64[np.ndarray, "features"]
    verified: Bool[np.ndarray, "features"]


def _given(form: Subspaces, view: OtherView, partners: _Partners) -> _FromView:
    """Estimates by the partners in one view: the verified one of a feature, or else its nearest."""
    away, columns = partners.away.copy(), partners.nearest.copy()
    verified = np.zeros(len(form), dtype=bool)
    order = np.argsort(-partners.verified.distances, kind="stable")  # of several the nearest is written last
    rows, matches = partners.verified.indices[order].T
    away[rows], columns[rows], verified[rows] = partners.verified.distances[order], matches, True
    best, known = undecided(len(form), form.space.dim), np.flatnonzero(np.isfinite(away))
    attacked = form.take(known)
    if isinstance(view.form, Points):
        estimates = inlier_points(attacked, view.form.vectors[columns[known]].astype(np.float64))
    else:
        estimates, _ = inlier_subspaces(attacked, view.form.take(columns[known]))
    best.points[known], best.confidence[known] = estimates.points, estimates.confidence
    return _FromView(estimates=best, away=away, verified=verified)


def _agreed(given: Sequence[_FromView]) -> Estimates:
    """Of each feature the estimate of a view: a verified one first, then one on which most views agree, then the nearest.

    A descriptor is the same in all views, and decoys are drawn alone.
    """
    points = np.stack([one.estimates.points for one in given])
    agree = np.zeros(points.shape[:2], dtype=np.int64)
    for place, own in enumerate(points):
        with np.errstate(invalid="ignore"):
            agree[place] = (np.linalg.norm(points - own, axis=2) <= AGREEING).sum(axis=0)
    ranks = np.stack([[one.away for one in given], -agree, [~one.verified for one in given]])
    first, rows = np.lexsort(ranks, axis=0)[0], np.arange(points.shape[1])
    confidence = np.stack([one.estimates.confidence for one in given])
    return Estimates(points=points[first, rows], confidence=confidence[first, rows], certified=np.zeros(len(rows), dtype=bool))


class _Matcher:
    """Partners of the attacked release in one view at a time."""

    def __init__(self, target: Target, options: MatchedViewOptions) -> None:
        self.target, self.options = target, options
        self._keypoints = _pixels(target.image)

    def partners(self, view: OtherView) -> _Partners:
        """Verified and nearest partners of all features of the release in a view."""
        form, threads = self.target.form, self.target.effort.threads
        count = min(NEIGHBORS, max(1, len(view.form)))
        near = distances.nearest(as_set(form), as_set(view.form), count, threads=threads)
        meets = near.distance <= decoy_distance(form, view.form)
        away = near.distance if is_near_repeat(meets.sum(axis=1), form.m) else np.where(meets, np.inf, near.distance)
        first, rows = away.argmin(axis=1), np.arange(len(form))
        return _Partners(verified=self._verified(view), nearest=near.index[rows, first], away=away[rows, first])

    def _verified(self, view: OtherView) -> Matches:
        """Matches of the release with a view that one epipolar geometry explains; none where lines hide positions.

        Nothing is kept of a view that chance explains, nor of one whose matches rather are decoys from the same run.
        """
        matches = match(self.target.form, view.form, MatchOptions(threads=self.target.effort.threads))
        none = matches.take(np.zeros(len(matches), dtype=bool))
        if self._keypoints is None or view.keypoints is None or len(matches) < FEWEST:
            return none
        left, right = self._keypoints[matches.indices[:, 0]], view.keypoints[matches.indices[:, 1]]
        agrees = epipolar_inliers(left, right, options=self.options, seed=self.target.effort.seed)
        meets = matches.distances <= self.target.meeting_distance
        return none if (meets & ~agrees).sum() > agrees.sum() else matches.take(agrees)


def is_near_repeat(meetings: Int64[np.ndarray, "features"], m: int) -> bool:
    """Whether subspaces meet those of another release in their descriptors, as in two frames of a video, and not in decoys.

    `meetings` counts for each feature the subspaces that it meets. A feature has one descriptor and `m` decoys, each of which
    is drawn alone: the share of features that meet none says how many would meet several.

    Theory: release.md, Eq. 14.
    """
    if not len(meetings):
        return False
    none, several = float((meetings == 0).mean()), int((meetings > 1).sum())
    missed = none ** (1 / m)
    expected = len(meetings) * (1 - none - m * (1 - missed) * missed ** (m - 1))
    return expected >= FEWEST_EXPECTED and several < expected / 2


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


def _pixels(image: ReleasedImage) -> Float64[np.ndarray, "_ 2"] | None:
    return None if image.keypoints is None else image.keypoints.astype(np.float64)
