"""Matched candidates: points of a subspace that the learned density or another view suggests, weighed by both.

A descriptor that another photograph of the place shows lies near a subspace of that photograph, and decoys do not. The
distance of a candidate to the nearest subspace of a view gives a likelihood ratio. It counts beside the density, and beside the
neighbors where positions are known. No geometry needs to verify a view, which may show few of the features.

A mode lies beside its descriptor, and so does the point that is nearest to the view. So the distance counts from this point
where it lies near the mode, and modes that the search missed are reached from it.

The chosen candidate and the point of the subspace that is nearest to the view are two estimates of one descriptor. Where they
are near each other their mean is taken.

Theory: release.md#matched-candidates.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float64, Int64

from veil import distances
from veil.attacks.claims import Estimates
from veil.attacks.distribution.context import context_beliefs, context_estimates
from veil.attacks.distribution.density_network import DensityNetwork
from veil.attacks.distribution.learned_model import LearnedModel
from veil.attacks.distribution.modes import Modes, ascended
from veil.attacks.matches.matched_views import OtherView, Partners, partner_estimates
from veil.attacks.matches.view_weights import ViewWeights
from veil.forms import Points, Subspaces
from veil.matching.neighbors import NEIGHBORS, as_set, decoy_distance

# Views, the nearest of each feature, from whose point the density ascends to a candidate, if none lies within `APART` of it.
# A view is also as near to a candidate as its point within `APART` is.
SUGGESTING, APART = 4, 0.25
# Largest distance to a subspace of a view that improves an estimate.
IMPROVING = 0.3
# Subspaces of a view that are looked through for each candidate, past those that share a decoy with the feature.
LOOKED_AT = 4


@dataclass(frozen=True, kw_only=True, eq=False)
class ViewOfFeatures:
    """Another view as some features see it: their partners in it, and the points of their subspaces next to these.

    A feature without a partner has NaN for a suggestion.
    """

    view: OtherView
    partners: Partners
    suggestions: Float64[np.ndarray, "features dim"]

    @staticmethod
    def of(form: Subspaces, view: OtherView, partners: Partners) -> ViewOfFeatures:
        """The view as the features of `form` see it, which have these `partners`."""
        suggestions = np.full(form.origin.shape, np.nan)
        rows = np.flatnonzero(np.isfinite(partners.away))
        if len(rows):
            suggestions[rows] = partner_estimates(form.take(rows), view.form, partners.nearest[rows]).points
        return ViewOfFeatures(view=view, partners=partners, suggestions=suggestions)


@dataclass(frozen=True, kw_only=True, eq=False)
class CandidateDistances:
    """Distance of each candidate to one view, and the row of the subspace there that has it; infinite where there is none."""

    distance: Float64[np.ndarray, "features candidates"]
    row: Int64[np.ndarray, "features candidates"]


def with_suggestions(modes: Modes, form: Subspaces, views: Sequence[ViewOfFeatures], density: DensityNetwork) -> Modes:
    """The modes of each subspace of `form`, and those near the suggestions of its nearest partners that no mode is near.

    The density ascends from a suggestion as it does in the search for modes. What is beside a descriptor is else far less
    likely than any mode.
    """
    first = np.argsort(np.stack([view.partners.away for view in views]), axis=0, kind="stable")[:SUGGESTING]
    suggestions = np.stack([view.suggestions for view in views])
    for places in first:
        points, ratios = ascended(form, suggestions[places, np.arange(len(form))], density)
        gaps = np.linalg.norm(modes.points - points[:, None], axis=2)
        is_new = np.isfinite(points).all(axis=1) & ~(gaps < APART).any(axis=1)
        modes = Modes(
            points=np.concatenate([modes.points, np.where(is_new[:, None], points, np.nan)[:, None]], axis=1),
            log_ratios=np.concatenate([modes.log_ratios, np.where(is_new, ratios, -np.inf)[:, None]], axis=1),
        )
    return modes


def view_distances(candidates: Modes, form: Subspaces, seen: ViewOfFeatures, *, threads: int = 1) -> CandidateDistances:
    """Distances of the candidates of each subspace of `form` to one view, as Eq. 15 of release.md reads them."""
    view, partners = seen.view, seen.partners
    distance, row = _nearest(candidates, form, seen, threads)
    verified = np.flatnonzero(partners.is_verified)
    if len(verified):
        nearest, known = partners.nearest[verified], np.isfinite(candidates.log_ratios[verified])
        to_partner = _distance(candidates.points[verified], view.form.take(nearest))
        distance[verified], row[verified] = np.where(known, to_partner, np.inf), nearest[:, None]
    is_nearer = np.linalg.norm(candidates.points - seen.suggestions[:, None], axis=2) < APART
    is_nearer &= partners.away[:, None] < distance
    return CandidateDistances(
        distance=np.where(is_nearer, partners.away[:, None], distance),
        row=np.where(is_nearer, partners.nearest[:, None], row),
    )


def view_evidence(
    candidates: Modes, asked: Sequence[tuple[ViewOfFeatures, CandidateDistances]], weights: ViewWeights
) -> Float64[np.ndarray, "features candidates"]:
    """Log ratio of each candidate by all views together (release.md, Eq. 15); 0 where there is no candidate."""
    logs = np.zeros(candidates.log_ratios.shape)
    for seen, near in asked:
        is_verified = seen.partners.is_verified[:, None]
        logs += np.where(is_verified, weights.verified.log_ratios(near.distance), weights.nearest.log_ratios(near.distance))
    return np.where(np.isfinite(candidates.log_ratios), logs, 0.0)


def candidate_estimates(
    candidates: Modes,
    form: Subspaces,
    asked: Sequence[tuple[ViewOfFeatures, CandidateDistances]],
    learned: LearnedModel,
    keypoints: Float64[np.ndarray, "features 2"] | None,
    *,
    spacing: float | None = None,
) -> Estimates:
    """The likeliest candidate of each subspace of `form`, given the density, views, and neighbors where positions are known.

    `keypoints` are positions in pixels, `spacing` the mean one of all keypoints of the release. Near views improve estimates.
    """
    evidence = view_evidence(candidates, asked, learned.views)
    if keypoints is None:
        beliefs = candidates.beliefs(learned.views.sharpness, evidence)
        estimates = candidates.estimates(beliefs)
    else:
        beliefs = context_beliefs(candidates, learned.context, keypoints, spacing=spacing, evidence=evidence)
        estimates = context_estimates(form, candidates, beliefs, learned.context)
    return improved(estimates, beliefs.argmax(axis=1), form, asked)


def improved(
    estimates: Estimates,
    chosen: Int64[np.ndarray, "features"],
    form: Subspaces,
    asked: Sequence[tuple[ViewOfFeatures, CandidateDistances]],
) -> Estimates:
    """Estimates moved half the way to the view that is nearest to the `chosen` candidate of each feature, if one is near."""
    rows = np.arange(len(form))
    away = np.stack([near.distance[rows, chosen] for _, near in asked])
    nearest, points = away.argmin(axis=0), estimates.points.copy()
    for number, (seen, near) in enumerate(asked):
        own = np.flatnonzero((nearest == number) & (away[number] < IMPROVING))
        if len(own):
            other = partner_estimates(form.take(own), seen.view.form, near.row[own, chosen[own]]).points
            agrees = np.linalg.norm(other - points[own], axis=1) < APART
            points[own[agrees]] = (points[own[agrees]] + other[agrees]) / 2
    return Estimates(points=points, confidence=estimates.confidence, certified=estimates.certified)


def _nearest(
    candidates: Modes, form: Subspaces, seen: ViewOfFeatures, threads: int
) -> tuple[Float64[np.ndarray, "features candidates"], Int64[np.ndarray, "features candidates"]]:
    """Distance and row of the subspace of a view that is nearest to each candidate and shares no decoy with its feature.

    The distance is infinite where there is none.
    """
    view, known = seen.view.form, np.isfinite(candidates.log_ratios)
    count, width = known.shape
    near = distances.nearest(as_set(form), as_set(view), min(NEIGHBORS, len(view)), threads=threads)
    decoys = np.where(near.distance <= (-1 if seen.partners.is_repeat else decoy_distance(form, view)), near.index, -1)
    points = np.where(known[..., None], candidates.points, 0.0).astype(np.float32).reshape(count * width, -1)
    beside = distances.nearest((points, None), as_set(view), min(LOOKED_AT, len(view)), threads=threads)
    index, distance = (item.reshape(count, width, -1) for item in (beside.index, beside.distance))
    is_decoy = (index[..., None] == decoys[:, None, None, :]).any(axis=3)
    distance = np.where(is_decoy | ~known[..., None], np.inf, distance)
    first = distance.argmin(axis=2)[..., None]
    return np.take_along_axis(distance, first, axis=2)[..., 0], np.take_along_axis(index, first, axis=2)[..., 0]


def _distance(
    points: Float64[np.ndarray, "features candidates dim"], form: Subspaces | Points
) -> Float64[np.ndarray, "features candidates"]:
    """Distance of the candidates of each feature to the subspace or descriptor in its row."""
    if isinstance(form, Points):
        return np.linalg.norm(points - form.vectors[:, None], axis=2)
    apart = points - form.origin[:, None]
    inside = np.einsum("fmn,fcn->fcm", form.basis.astype(np.float64), apart)
    return np.sqrt(np.maximum(np.square(apart).sum(axis=2) - np.square(inside).sum(axis=2), 0.0))
