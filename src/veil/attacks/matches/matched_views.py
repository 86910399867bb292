"""Matched views: subspaces of two photographs of a place that match nearly meet, close to the descriptors of both.

Whoever has two uploads of a place matches them as the service does: mutual nearest neighbors, and of these the ones that the
epipolar geometry of the positions explains. The point of a subspace that is nearest to its partner's subspace estimates its
descriptor (Eq. 6 of release.md). No database, no training and no secret is needed, and uploads of other people serve as well.
Of several partners the nearest is taken, and of near repeats the one on whose estimate most of them agree. With raw photographs
of the place the partner is a descriptor (Eq. 5).

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
# Number of partners of a feature, the verified and nearest of all views, whose estimates are compared.
MOST_VIEWS = 12
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
class Partners:
    """Partner of each attacked feature in one view: the one that geometry verifies, or else the nearest.

    `nearest` is its row in the view, and `away` its distance, infinite where there is none. `is_repeat`: a near repeat.
    """

    nearest: Int64[np.ndarray, "features"]
    away: Float64[np.ndarray, "features"]
    is_repeat: bool
    is_verified: Bool[np.ndarray, "features"]

    def take(self, rows: Int64[np.ndarray, "_"]) -> Partners:
        """The partners of the features `rows`."""
        return Partners(
            nearest=self.nearest[rows], away=self.away[rows], is_repeat=self.is_repeat, is_verified=self.is_verified[rows]
        )


def _attempt(name: str, target: Target, views: Sequence[OtherView], options: MatchedViewOptions) -> Attempt:
    """Estimates from as many of `views` as there is time for: from verified partners, and for the others from the nearest."""
    matcher = _Matcher(target, options)
    with target.timer() as clock:
        done = target.time.run_some(name, views, matcher.partners, target.effort.seed)
        target.cache[name] = done
        best, is_verified = _best(target.form, done)
    used = sum(bool(partners.is_verified.any()) for _, partners in done)
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


def _best(form: Subspaces, done: Sequence[tuple[OtherView, Partners]]) -> tuple[Estimates, Bool[np.ndarray, "features"]]:
    """Of each feature the estimate of one view, and whether positions verify its partner there.

    A verified partner goes first, then one whose estimate most near repeats among the `MOST_VIEWS` nearest partners share, then
    the nearest: a descriptor is the same in all repeats, and decoys are drawn alone. Of other views agreement says nothing, as
    those that drew from one run agree in decoys.
    """
    if not done:
        return undecided(len(form), form.space.dim), np.zeros(len(form), dtype=bool)
    away = np.stack([partners.away for _, partners in done])
    verified = np.stack([partners.is_verified for _, partners in done])
    first = np.lexsort([away, ~verified], axis=0)[:MOST_VIEWS]
    away, verified = np.take_along_axis(away, first, axis=0), np.take_along_axis(verified, first, axis=0)
    repeats = np.array([partners.is_repeat for _, partners in done])[first]
    points, confidence = np.full((*first.shape, form.space.dim), np.nan), np.zeros(first.shape)
    for number, (view, partners) in enumerate(done):
        places, rows = np.nonzero((first == number) & np.isfinite(away))
        if len(rows):
            estimates = partner_estimates(form.take(rows), view.form, partners.nearest[rows])
            points[places, rows], confidence[places, rows] = estimates.points, estimates.confidence
    shared = [repeats & (np.linalg.norm(points - own, axis=2) <= AGREEING) for own in points]
    agree = np.stack([of.sum(axis=0) for of in shared]) * repeats
    chosen, rows = np.lexsort([away, -agree, ~verified], axis=0)[0], np.arange(len(form))
    certified = np.zeros(len(form), dtype=bool)
    best = Estimates(points=points[chosen, rows], confidence=confidence[chosen, rows], certified=certified)
    return best, np.asarray(verified[0])


def partner_estimates(attacked: Subspaces, other: Subspaces | Points, partners: Int64[np.ndarray, "features"]) -> Estimates:
    """Estimates of the attacked features by their partners, rows of another view (docs/theory/release.md, Eq. 5 and 6)."""
    if isinstance(other, Points):
        return inlier_points(attacked, other.vectors[partners].astype(np.float64))
    return inlier_subspaces(attacked, other.take(partners))[0]


def nearest_partners(
    form: Subspaces, other: Subspaces | Points, *, threads: int = 1
) -> tuple[Int64[np.ndarray, "features"], Float64[np.ndarray, "features"], bool]:
    """Row of another view that is nearest to each feature and no shared decoy, its distance, and whether it is a near repeat.

    The distance is infinite where there is none. In a near repeat descriptors meet as decoys do, and no meeting is left out.
    """
    near = distances.nearest(as_set(form), as_set(other), min(NEIGHBORS, max(1, len(other))), threads=threads)
    meets = near.distance <= decoy_distance(form, other)
    is_repeat = is_near_repeat(meets.sum(axis=1), form.m)
    away = near.distance if is_repeat else np.where(meets, np.inf, near.distance)
    first, rows = away.argmin(axis=1), np.arange(len(form))
    return near.index[rows, first], away[rows, first], is_repeat


class _Matcher:
    """Partners of the attacked release in one view at a time."""

    def __init__(self, target: Target, options: MatchedViewOptions) -> None:
        self.target, self.options = target, options
        self._keypoints = _pixels(target.image)

    def partners(self, view: OtherView) -> Partners:
        """Verified and nearest partners of all features of the release in a view."""
        nearest, away, is_repeat = nearest_partners(self.target.form, view.form, threads=self.target.effort.threads)
        verified = self._verified(view)
        rows, columns = verified.indices.T  # mutual nearest neighbors: each row stands here once
        nearest[rows], away[rows] = columns, verified.distances
        return Partners(nearest=nearest, away=away, is_repeat=is_repeat, is_verified=np.isin(np.arange(len(away)), rows))

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
