"""Attacks on near repeats of one photograph by an attacker who has aligned their pictures.

Two uploads of nearly one picture tell how it turned and moved between them, by their positions or by what matches. The study
gives the attacker this alignment, so that what is measured is more than an attacker has who estimates it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

import numpy as np
from jaxtyping import Float32, Float64, Int64

from veil.attacks.attack import Attack, Attempt
from veil.attacks.claims import CannotRun, Estimates, NamedWords, no_release
from veil.attacks.intersection.repeat import repeat_positions
from veil.attacks.matches.inliers import inlier_subspaces
from veil.attacks.matches.matched_views import nearest_partners
from veil.attacks.target import ReleasedImage, Target
from veil.attacks.words.posterior import descriptors
from veil.attacks.words.votes import LINKED_PX, Linked, vote
from veil.audit.finding import RECOVERED_WITHIN, RECOVERED_WITHIN_PX
from veil.features import Features
from veil.forms import Lines, Subsets, Subspaces
from veil.geometry.camera import Camera, as_colmap
from veil.matching.neighbors import match
from veil.mechanisms.public import publish

ALIGNED = "near repeats of the photograph, and how their pictures lie on each other"
# Share of the mutual nearest neighbors of two near repeats that lie at one place, and number without which nothing is said.
SAME_PICTURE, LEAST_MATCHES = 0.5, 30
# Probability that two near repeats of a feature have the same nearest word, as the attacker assumes.
SAME_WORD = 0.8

Alignment = Float64[np.ndarray, "2 3"]


def alignment_of(photograph: Features, other: Features) -> Alignment | None:
    """The affine map from the pixels of `other` to those of `photograph`, if the two are near repeats; else None.

    They are if one map leads at least `SAME_PICTURE` of their mutual nearest neighbors to within `LINKED_PX` of each other.
    """
    import cv2

    own, its = match(publish(photograph), publish(other)).indices.T
    if len(own) < LEAST_MATCHES:
        return None
    affine, inliers = cv2.estimateAffine2D(other.keypoints[its], photograph.keypoints[own], ransacReprojThreshold=LINKED_PX)
    return affine if affine is not None and inliers.mean() >= SAME_PICTURE else None


def aligned_attacks(alignments: Sequence[Alignment]) -> tuple[Attack, ...]:
    """Attacks on a release beside near repeats of it; `alignments` map their pixels to its own, in the order of the others."""
    return (
        Attack(
            name="aligned views",
            surface="subspaces",
            family="views",
            assumes=ALIGNED,
            units="descriptor",
            modules=("matches.matched_views", "matches.inliers"),
            _run=partial(_views, alignments=alignments),
        ),
        Attack(
            name="aligned words",
            surface="words",
            family="views",
            assumes=ALIGNED,
            units="word",
            modules=("words.votes", "words.posterior"),
            _run=partial(_votes, alignments=alignments),
        ),
        Attack(
            name="aligned lines",
            surface="lines",
            family="repeat",
            assumes=ALIGNED,
            units="px",
            modules=("intersection.repeat", "matches.matched_views"),
            _run=partial(_positions, alignments=alignments),
        ),
    )


def _others(target: Target, alignments: Sequence[Alignment]) -> list[tuple[ReleasedImage, Alignment]]:
    others = list(target.knowledge.others.values())
    if not others:
        raise no_release(0, "of nearly the same picture")
    return list(zip(others, alignments, strict=True))


def _views(target: Target, alignments: Sequence[Alignment]) -> Attempt:
    """Descriptors from the subspaces at the same place of the other pictures, or from those on which several uploads agree.

    A feature whose place holds none, or is hidden in a line, has its nearest subspace of each upload for a partner.
    """
    form, keypoints = target.form, target.image.keypoints
    points, away = [], []
    with target.timer() as clock:
        for other, alignment in _others(target, alignments):
            assert isinstance(other.form, Subspaces)
            (partners, *_), at_place = nearest_partners(form, other.form), np.zeros(len(form), dtype=bool)
            if keypoints is not None and other.keypoints is not None:
                rows = _same_places(keypoints, other.keypoints, alignment)
                at_place = rows >= 0
                partners = np.where(at_place, rows, partners)
            own, its = inlier_subspaces(form, other.form.take(partners))
            points.append(own.points)
            away.append(np.linalg.norm(own.points - its.points, axis=1) - 2.0 * at_place)
        chosen = _agreed(np.stack(points), np.stack(away), RECOVERED_WITHIN)
    claim = Estimates(points=chosen, confidence=np.ones(len(form)), certified=np.zeros(len(form), dtype=bool))
    return Attempt(label="aligned views", rows=target.rows, claim=claim.take(target.rows), seconds=clock.seconds)


def _agreed(
    points: Float64[np.ndarray, "others features dim"], away: Float64[np.ndarray, "others features"], limit: float
) -> Float64[np.ndarray, "features dim"]:
    """One of the points that other uploads give for each feature, NaN where none gives any.

    Points with an `away` below -1 go first, then those that are within `limit` of another upload's, then those of least `away`.
    """
    rank = np.where(np.isfinite(points).all(axis=2), away, np.inf)
    for place, own in enumerate(points if len(points) > 1 else ()):
        gaps = np.linalg.norm(np.delete(points, place, axis=0) - own, axis=2)
        nearest = np.where(np.isfinite(gaps), gaps, np.inf).min(axis=0) / limit
        rank[place] = np.where(nearest <= 1, np.minimum(nearest - 1, rank[place]), rank[place])
    return points[rank.argmin(axis=0), np.arange(points.shape[1])]


def _votes(target: Target, alignments: Sequence[Alignment]) -> Attempt:
    """Words of features at one place of the picture, added up."""
    form, dictionary = target.words
    if target.image.keypoints is None:
        raise CannotRun("lines hide which features lie at one place")
    linked = []
    with target.timer() as clock:
        for other, alignment in _others(target, alignments):
            assert isinstance(other.form, Subsets) and other.keypoints is not None
            rows = _same_places(target.image.keypoints, other.keypoints, alignment)
            linked.append(Linked(form=other.form, rows=rows))
        beliefs = vote(form, linked, same_word=SAME_WORD)
    claim = NamedWords(ids=beliefs.best.astype(np.int64), estimates=descriptors(beliefs, dictionary))
    return Attempt(label="aligned words", rows=np.arange(len(beliefs)), claim=claim, seconds=clock.seconds)


def _same_places(
    own: Float32[np.ndarray, "features 2"], others: Float32[np.ndarray, "others 2"], alignment: Alignment
) -> Int64[np.ndarray, "features"]:
    """Row of `others` that lies at each of `own`, within `LINKED_PX`, if each is nearest to the other; else -1."""
    from scipy.spatial import cKDTree

    moved = others @ alignment[:, :2].T + alignment[:, 2]
    gap, row = cKDTree(moved).query(own, distance_upper_bound=LINKED_PX)
    _, back = cKDTree(own).query(moved)
    near = np.flatnonzero(np.isfinite(gap))
    rows = np.full(len(own), -1)
    rows[near] = np.where(back[row[near]] == near, row[near], -1)
    return rows


def _positions(target: Target, alignments: Sequence[Alignment]) -> Attempt:
    """Where the line of each feature meets those of its nearest subspaces, or where several uploads agree that it lies."""
    lines, camera = target.lines
    points, away = [], []
    with target.timer() as clock:
        for other, alignment in _others(target, alignments):
            if not isinstance(other.form, Subspaces) or other.lines is None or other.camera is None:
                raise CannotRun("words do not tell which lines belong together")
            partners, *_ = nearest_partners(target.form, other.form)
            own, its = inlier_subspaces(target.form, other.form.take(partners))
            moved = _moved(other.lines.take(partners), other.camera, camera, alignment)
            points.append(repeat_positions([lines, moved], camera=camera).points)
            away.append(np.linalg.norm(own.points - its.points, axis=1))
        chosen = _agreed(np.stack(points), np.stack(away), RECOVERED_WITHIN_PX)
    seen = np.isfinite(chosen).all(axis=1)
    claim = Estimates(points=chosen, confidence=seen * 1.0, certified=np.zeros(len(lines), dtype=bool))
    return Attempt(label="aligned lines", rows=np.arange(len(lines)), claim=claim, seconds=clock.seconds)


def _moved(lines: Lines, camera: Camera, into: Camera, alignment: Alignment) -> Lines:
    """Lines of a picture in the normalized plane of another one, whose pixels `alignment` leads to."""
    own, its = as_colmap(into).calibration_matrix(), as_colmap(camera).calibration_matrix()
    plane = np.linalg.inv(own) @ np.vstack([alignment, [0, 0, 1]]) @ its
    moved = lines.coefficients.astype(np.float64) @ np.linalg.inv(plane)
    moved /= np.linalg.norm(moved[:, :2], axis=1, keepdims=True)
    return replace(lines, coefficients=moved.astype(np.float32), aligned=np.zeros(len(lines), dtype=bool), gravity=None)
