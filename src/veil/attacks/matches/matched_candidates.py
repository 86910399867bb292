"""Matched candidates: points of a subspace that the learned density or another view suggests, weighed by both.

A descriptor that another photograph of the place shows lies near a subspace of that photograph, and decoys do not. The
distance of a candidate to the nearest subspace of a view gives a likelihood ratio. It counts beside the density, and beside the
neighbors where positions are known. No geometry needs to verify a view, which may show few of the features.

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
from veil.attacks.distribution.density_network import DensityNetwork
from veil.attacks.distribution.modes import Modes
from veil.attacks.matches.matched_views import OtherView, Partners, partner_estimates
from veil.forms import Points, Subspaces
from veil.matching.neighbors import NEIGHBORS, as_set, decoy_distance

# Views, the nearest of each feature, whose point becomes a candidate, if no candidate lies within `APART` of it.
SUGGESTING, APART = 4, 0.25
# Share of the features of a photograph that another one of the place shows, and share of verified partners that are right.
SEEN, RIGHT = 0.3, 0.97
# Distances of a candidate to the nearest subspace of a view, and to its verified partner, at which the descriptor and another
# point are as likely; slopes and largest values of the logarithm. They were read off three places (release.md, Eq. 15).
EVEN, SLOPE, LARGEST = 0.3125, 24.0, 7.0
EVEN_VERIFIED, SLOPE_VERIFIED, LARGEST_VERIFIED = 0.385, 52.0, 7.5
# Largest distance to a subspace of a view that improves an estimate.
IMPROVING = 0.3
# Subspaces of a view that are looked through for each candidate, past those that share a decoy with the feature.
LOOKED_AT = 4
# Weight of the log ratio of modes beside views, where no network of context weighs it.
SHARPNESS = 0.5


@dataclass(frozen=True, kw_only=True, eq=False)
class Evidence:
    """Log ratio of each candidate by one view, with the distance and row of the view's nearest subspace."""

    log_ratios: Float64[np.ndarray, "features candidates"]
    distance: Float64[np.ndarray, "features candidates"]
    row: Int64[np.ndarray, "features candidates"]


def with_suggestions(
    modes: Modes, form: Subspaces, views: Sequence[tuple[OtherView, Partners]], density: DensityNetwork
) -> Modes:
    """The modes of each subspace of `form`, and the points next to its nearest partners in `views` that no mode is near."""
    away = np.stack([partners.away for _, partners in views])
    first = np.argsort(away, axis=0, kind="stable")[:SUGGESTING]
    for places in first:
        points = np.full(form.origin.shape, np.nan)
        for number, (view, partners) in enumerate(views):
            rows = np.flatnonzero((places == number) & np.isfinite(partners.away))
            if len(rows):
                points[rows] = partner_estimates(form.take(rows), view.form, partners.nearest[rows]).points
        gaps = np.linalg.norm(modes.points - points[:, None], axis=2)
        is_new = np.isfinite(points).all(axis=1) & ~(gaps < APART).any(axis=1)
        ratios = np.full(len(points), -np.inf)
        if is_new.any():
            ratios[is_new] = density.log_ratio(points[is_new].astype(np.float32))
        modes = Modes(
            points=np.concatenate([modes.points, np.where(is_new[:, None], points, np.nan)[:, None]], axis=1),
            log_ratios=np.concatenate([modes.log_ratios, ratios[:, None]], axis=1),
        )
    return modes


def view_evidence(candidates: Modes, form: Subspaces, view: OtherView, partners: Partners, *, threads: int = 1) -> Evidence:
    """Evidence of one view on the candidates of each subspace of `form` (release.md, Eq. 15)."""
    known = np.isfinite(candidates.log_ratios)
    count, width = known.shape
    near = distances.nearest(as_set(form), as_set(view.form), min(NEIGHBORS, len(view.form)), threads=threads)
    decoys = np.where(near.distance <= (-1 if partners.is_repeat else decoy_distance(form, view.form)), near.index, -1)
    points = np.where(known[..., None], candidates.points, 0.0).astype(np.float32).reshape(count * width, -1)
    beside = distances.nearest((points, None), as_set(view.form), min(LOOKED_AT, len(view.form)), threads=threads)
    index, distance = (item.reshape(count, width, -1) for item in (beside.index, beside.distance))
    is_decoy = (index[..., None] == decoys[:, None, None, :]).any(axis=3)
    distance = np.where(is_decoy | ~known[..., None], np.inf, distance)
    first = distance.argmin(axis=2)[..., None]
    distance, row = np.take_along_axis(distance, first, axis=2)[..., 0], np.take_along_axis(index, first, axis=2)[..., 0]
    log_ratios = _mixed(SEEN, np.minimum(SLOPE * (EVEN - distance), LARGEST))
    verified = np.flatnonzero(partners.is_verified)
    if len(verified):
        nearest = partners.nearest[verified]
        to_partner = _distance(candidates.points[verified], view.form.take(nearest))
        distance[verified], row[verified] = np.where(known[verified], to_partner, np.inf), nearest[:, None]
        logs = np.minimum(SLOPE_VERIFIED * (EVEN_VERIFIED - distance[verified]), LARGEST_VERIFIED)
        log_ratios[verified] = _mixed(RIGHT, logs)
    return Evidence(log_ratios=np.where(known, log_ratios, 0.0), distance=distance, row=row)


def improved(
    estimates: Estimates, chosen: Int64[np.ndarray, "features"], form: Subspaces, seen: Sequence[tuple[OtherView, Evidence]]
) -> Estimates:
    """Estimates moved half the way to the view that is nearest to the `chosen` candidate of each feature, if one is near."""
    rows = np.arange(len(form))
    away = np.stack([evidence.distance[rows, chosen] for _, evidence in seen])
    nearest, points = away.argmin(axis=0), estimates.points.copy()
    for number, (view, evidence) in enumerate(seen):
        own = np.flatnonzero((nearest == number) & (away[number] < IMPROVING))
        if len(own):
            other = partner_estimates(form.take(own), view.form, evidence.row[own, chosen[own]]).points
            agrees = np.linalg.norm(other - points[own], axis=1) < APART
            points[own[agrees]] = (points[own[agrees]] + other[agrees]) / 2
    return Estimates(points=points, confidence=estimates.confidence, certified=estimates.certified)


def _mixed(share: float, logs: np.ndarray) -> np.ndarray:
    """Log ratio of a candidate if a `share` of the features is in the view and the others have any distance."""
    return np.log((1 - share) + share * np.exp(logs))


def _distance(
    points: Float64[np.ndarray, "features candidates dim"], form: Subspaces | Points
) -> Float64[np.ndarray, "features candidates"]:
    """Distance of the candidates of each feature to the subspace or descriptor in its row."""
    if isinstance(form, Points):
        return np.linalg.norm(points - form.vectors[:, None], axis=2)
    apart = points - form.origin[:, None]
    inside = np.einsum("fmn,fcn->fcm", form.basis.astype(np.float64), apart)
    return np.sqrt(np.maximum(np.square(apart).sum(axis=2) - np.square(inside).sum(axis=2), 0.0))
