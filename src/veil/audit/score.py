"""Estimates against the truth: the only place where both are known."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from jaxtyping import Bool, Float64, Int64

from veil.attacks.claims import Estimates, Lists
from veil.audit.finding import CONFIDENCE, EXACT, WITHIN, WITHIN_PX, Score, Share
from veil.statistics import clopper_pearson


def share(count: int, total: int) -> Share:
    """A share with its Clopper-Pearson interval."""
    low, high = clopper_pearson(count, total, confidence=CONFIDENCE) if total else (0.0, 1.0)
    return Share(count=count, total=total, low=low, high=high)


def score_descriptors(
    estimates: Estimates,
    truth: Float64[np.ndarray, "features dim"],
    all_originals: Float64[np.ndarray, "originals dim"],
    *,
    certain_within: float = WITHIN[0],
) -> Score:
    """Distances to the truth; `all_originals` are the descriptors among which the right one has to be identified.

    A certificate is false if the estimate is not within `certain_within` of the truth: dither moves what was released.
    """
    error = np.linalg.norm(estimates.points - truth, axis=1)
    decided = estimates.decided
    return _score(
        "descriptor",
        error,
        decided,
        WITHIN,
        exact=share(int((error < EXACT).sum()), len(error)),
        identified=share(int(_identified(estimates, truth, all_originals).sum()), len(error)),
        false_certificates=int((estimates.certified & ~(error < certain_within)).sum()),
    )


def score_positions(estimates: Estimates, truth: Float64[np.ndarray, "features 2"]) -> Score:
    """Pixels between estimated positions and keypoints."""
    error = np.linalg.norm(estimates.points - truth, axis=1)
    wrong = int((estimates.certified & ~(error < WITHIN_PX[1])).sum())
    return _score("px", error, estimates.decided, WITHIN_PX, exact=None, identified=None, false_certificates=wrong)


def score_words(
    estimates: Estimates,
    named: Int64[np.ndarray, "features"],
    true_words: Int64[np.ndarray, "features"],
    truth: Float64[np.ndarray, "features dim"],
) -> Score:
    """The word that the attack named against the true one (-1: none), and how far its descriptor is from the original."""
    right = named == true_words
    error = np.linalg.norm(estimates.points - truth, axis=1)
    return _score(
        "word",
        error,
        estimates.decided,
        WITHIN,
        exact=share(int((error < EXACT).sum()), len(error)),
        identified=share(int(right.sum()), len(right)),
        false_certificates=int((estimates.certified & ~right).sum()),
    )


def oracle_pick(lists: Lists, truth: Float64[np.ndarray, "features dim"]) -> Estimates:
    """Of each list the candidate nearest to the truth: an upper bound for anyone who knows how to choose."""
    points = np.full(truth.shape, np.nan)
    for row, candidates in enumerate(lists.candidates):
        if len(candidates):
            points[row] = candidates[np.linalg.norm(candidates - truth[row], axis=1).argmin()]
    decided = np.isfinite(points).all(axis=1)
    return Estimates(points=points, confidence=decided.astype(np.float64), certified=np.zeros(len(points), dtype=bool))


def _identified(estimates: Estimates, truth: np.ndarray, all_originals: np.ndarray) -> Bool[np.ndarray, "features"]:
    """Whether no other original is nearer to the estimate than the right one."""
    import faiss

    found = np.zeros(len(truth), dtype=bool)
    rows = np.flatnonzero(estimates.decided)
    if len(rows):
        _, nearest = faiss.knn(
            np.ascontiguousarray(estimates.points[rows], dtype=np.float32),
            np.ascontiguousarray(all_originals, dtype=np.float32),
            1,
        )
        theirs = np.linalg.norm(all_originals[nearest[:, 0]] - estimates.points[rows], axis=1)
        ours = np.linalg.norm(truth[rows] - estimates.points[rows], axis=1)
        found[rows] = ours <= theirs + 1e-6  # equal descriptors of one image are one answer
    return found


def _score(
    unit: str,
    error: Float64[np.ndarray, "features"],
    decided: Bool[np.ndarray, "features"],
    limits: Sequence[float],
    *,
    exact: Share | None,
    identified: Share | None,
    false_certificates: int,
) -> Score:
    known = error[decided]
    return Score(
        unit=unit,  # type: ignore[arg-type]
        exact=exact,
        within={limit: share(int((known < limit).sum()), len(error)) for limit in limits},
        mean_distance=float(known.mean()) if len(known) else None,
        median_distance=float(np.median(known)) if len(known) else None,
        identified=identified,
        false_certificates=false_certificates,
        errors=error,
    )
