"""Scores of estimates against the truth: only these functions see both."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from jaxtyping import Bool, Float64, Int64

from veil.attacks.claims import Estimates, Lists
from veil.audit.finding import (
    CONFIDENCE,
    EXACT,
    RECOVERED_WITHIN,
    RECOVERED_WITHIN_PX,
    WITHIN,
    WITHIN_PX,
    ErrorUnit,
    Score,
    Share,
)
from veil.audit.statistics import clopper_pearson


def share(count: int, total: int) -> Share:
    """Share of `count` in `total` features with its Clopper-Pearson interval; that of no features is [0, 1]."""
    low, high = clopper_pearson(count, total, confidence=CONFIDENCE) if total else (0.0, 1.0)
    return Share(count=count, total=total, low=low, high=high)


def score_descriptors(
    estimates: Estimates,
    truth: Float64[np.ndarray, "features dim"],
    all_originals: Float64[np.ndarray, "originals dim"],
    *,
    certain_within: float = WITHIN[0],
) -> Score:
    """Score of estimated descriptors by their distances to the truth (audit.md#what-is-counted).

    `all_originals` are the descriptors among which the right one has to be identified. A certificate is false if the estimate
    is not within `certain_within` of the truth: dither moves what was released, so it needs a larger distance.
    """
    error = np.linalg.norm(estimates.points - truth, axis=1)
    decided = estimates.decided
    return _score(
        "descriptor",
        error,
        decided,
        WITHIN,
        recovered=_share_below(RECOVERED_WITHIN, error),
        exact=share(int((error < EXACT).sum()), len(error)),
        identified=share(int(_identified(estimates, truth, all_originals).sum()), len(error)),
        false_certificates=int((estimates.certified & ~(error < certain_within)).sum()),
    )


def score_positions(estimates: Estimates, truth: Float64[np.ndarray, "features 2"]) -> Score:
    """Score of estimated positions by their distances in pixels to the keypoints; certificates beyond 5 px are false."""
    error = np.linalg.norm(estimates.points - truth, axis=1)
    return _score(
        "px",
        error,
        estimates.decided,
        WITHIN_PX,
        recovered=_share_below(RECOVERED_WITHIN_PX, error),
        exact=None,
        identified=None,
        false_certificates=int((estimates.certified & ~(error < WITHIN_PX[1])).sum()),
    )


def score_words(
    estimates: Estimates,
    named: Int64[np.ndarray, "features"],
    true_words: Int64[np.ndarray, "features"],
    truth: Float64[np.ndarray, "features dim"],
) -> Score:
    """Score of named words (-1: none) against the true ones, and of their descriptors by the distances to the originals."""
    right = named == true_words
    identified = share(int(right.sum()), len(right))
    error = np.linalg.norm(estimates.points - truth, axis=1)
    return _score(
        "word",
        error,
        estimates.decided,
        WITHIN,
        recovered=identified,
        exact=share(int((error < EXACT).sum()), len(error)),
        identified=identified,
        false_certificates=int((estimates.certified & ~right).sum()),
    )


def oracle_pick(lists: Lists, truth: Float64[np.ndarray, "features dim"]) -> Estimates:
    """Estimates of an oracle: the candidate of each list that is nearest to the truth, an upper bound for any choice."""
    points = np.full(truth.shape, np.nan)
    for row, candidates in enumerate(lists.candidates):
        if len(candidates):
            points[row] = candidates[np.linalg.norm(candidates - truth[row], axis=1).argmin()]
    decided = np.isfinite(points).all(axis=1)
    return Estimates(points=points, confidence=decided.astype(np.float64), certified=np.zeros(len(points), dtype=bool))


def _identified(estimates: Estimates, truth: np.ndarray, all_originals: np.ndarray) -> Bool[np.ndarray, "features"]:
    """Mask of the features whose estimate has no other original nearer than the right one."""
    from veil.codebooks.neighbors import nearest_neighbors

    identified = np.zeros(len(truth), dtype=bool)
    rows = np.flatnonzero(estimates.decided)
    if len(rows):
        _, nearest = nearest_neighbors(
            estimates.points[rows].astype(np.float32), all_originals.astype(np.float32), 1, by="distance"
        )
        nearest_distance = np.linalg.norm(all_originals[nearest[:, 0]] - estimates.points[rows], axis=1)
        right_distance = np.linalg.norm(truth[rows] - estimates.points[rows], axis=1)
        identified[rows] = right_distance <= nearest_distance + 1e-6  # equal descriptors of one image are one answer
    return identified


def _share_below(limit: float, error: Float64[np.ndarray, "features"]) -> Share:
    """Share of all features whose distance to the truth is below `limit`; undecided features (NaN) are not."""
    return share(int((error < limit).sum()), len(error))


def _score(
    unit: ErrorUnit,
    error: Float64[np.ndarray, "features"],
    decided: Bool[np.ndarray, "features"],
    limits: Sequence[float],
    *,
    recovered: Share,
    exact: Share | None,
    identified: Share | None,
    false_certificates: int,
) -> Score:
    """Score with the statistics of distances that all kinds of estimates share; means and medians are of decided features."""
    known = error[decided]
    return Score(
        unit=unit,
        recovered=recovered,
        exact=exact,
        within={limit: _share_below(limit, error) for limit in limits},
        mean_distance=float(known.mean()) if len(known) else None,
        median_distance=float(np.median(known)) if len(known) else None,
        identified=identified,
        false_certificates=false_certificates,
        errors=error,
    )
