"""How linkable and how reversible face templates are, as ISO/IEC 24745 asks, with and without the key of their purpose.

Linkability is the global measure of Gomez-Barrero et al. 2018, by the distance of two templates. A template counts as reversed
if a point that the attacker takes from it passes for its person before a verifier of raw descriptors (docs/theory/faces.md).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float64, Int64

from veil import distances
from veil.distances import SubspaceSet
from veil.distances.pairs import exact
from veil.errors import InputError
from veil.faces.collection import FacePairs, Faces, centered_alike
from veil.faces.template import rotation
from veil.features import unit_length
from veil.mechanisms.profile import Strategy
from veil.progress import Progress
from veil.randomness import Secure
from veil.statistics import clopper_pearson
from veil.studies.faces.verification import DIMENSIONS, LIFTINGS, best_threshold, equal_error, lifted_faces, require_others

SHUFFLES, CONFIDENCE = 200, 0.95
# Pairs of either kind below which densities of scores say nothing.
PAIRS_MIN = 25
KEYS = Secure(b"purpose one".ljust(32)), Secure(b"purpose two".ljust(32))


@dataclass(frozen=True, kw_only=True)
class ProtectionRow:
    """Templates of one lifting, m and key.

    `linkability` of a person's templates for two purposes, from two photographs, and `same_photograph` from one, lie between 0
    and 1; 95 % of shuffled pairs stay below `by_chance`. `by_length` links by how far from zero both templates are, which is
    all that turning leaves of one. `linked_error` is the equal error of who links by the distance.
    `reversed` is the share of templates whose better estimate (`estimate`) passes for the person, with its 95 % interval.
    """

    lifting: str
    m: int
    keyed: bool
    linkability: float
    by_chance: float
    same_photograph: float
    by_length: float
    linked_error: float
    estimate: str
    reversed: float
    low: float
    high: float

    def as_json(self) -> dict[str, object]:
        """The stable record of docs/reference/json.md."""
        return {
            "lifting": self.lifting,
            "m": self.m,
            "keyed": self.keyed,
            "linkability": self.linkability,
            "by_chance": self.by_chance,
            "same_photograph": self.same_photograph,
            "by_length": self.by_length,
            "linked_error": self.linked_error,
            "estimate": self.estimate,
            "reversed": self.reversed,
            "low": self.low,
            "high": self.high,
        }


@dataclass(frozen=True, kw_only=True)
class Protection:
    """All rows, and what passes the raw verifier at its threshold: the person's other photograph, a stranger's, and the mean of
    the crowd, which needs no template."""

    rows: list[ProtectionRow]
    threshold: float
    accepted_raw: float
    accepted_strangers: float
    accepted_mean: float

    def as_json(self) -> dict[str, object]:
        """The stable record of docs/reference/json.md."""
        return {
            "rows": [row.as_json() for row in self.rows],
            "threshold": self.threshold,
            "accepted_raw": self.accepted_raw,
            "accepted_strangers": self.accepted_strangers,
            "accepted_mean": self.accepted_mean,
        }


def linkability(mated: Float64[np.ndarray, "mated"], others: Float64[np.ndarray, "others"]) -> float:
    """D_sys: the mean over mated scores of p(mated | s) - p(other | s) where that is positive, both kinds being as likely.

    Gomez-Barrero et al. 2018 with omega = 1 (docs/theory/faces.md, Eq. 6); densities are histograms between quantiles of either
    kind, n^0.4 each.
    Raises InputError for too few scores.
    """
    fewest = min(len(mated), len(others))
    if fewest < PAIRS_MIN:
        raise InputError(f"linkability needs {PAIRS_MIN} pairs of one person and of two, got {fewest}")
    shares = np.linspace(0, 1, round(fewest**0.4) + 1)
    edges = np.unique([np.quantile(scores, shares) for scores in (mated, others)])
    p, q = (np.bincount(np.searchsorted(edges, scores), minlength=len(edges) + 1) / len(scores) for scores in (mated, others))
    return min(1.0, float((p * np.maximum(p - q, 0) / np.maximum(p + q, 1e-300)).sum()))


def linked_by_chance(mated: Float64[np.ndarray, "mated"], others: Float64[np.ndarray, "others"], seed: int) -> float:
    """What the measure stays below for 95 % of shuffles of who is who: histograms of few scores differ by chance, too."""
    random, pooled = np.random.default_rng(seed), np.concatenate([mated, others])
    found = []
    for _ in range(SHUFFLES):
        random.shuffle(pooled)
        found.append(linkability(pooled[: len(mated)], pooled[len(mated) :]))
    return float(np.quantile(found, CONFIDENCE))


def estimates(templates: SubspaceSet, crowd: Faces) -> dict[str, Float64[np.ndarray, "templates dim"]]:
    """Unit vectors that an attacker takes from templates: the point nearest to the mean of other people, and the point
    nearest to the nearest of them, which pulls it to where faces are."""
    origin, basis = (part.astype(np.float64) for part in templates)
    nearest = distances.nearest(templates, (crowd.vectors, None), 1).index[:, 0]

    def foot(points: np.ndarray) -> np.ndarray:
        return unit_length(origin + np.einsum("tm,tmn->tn", np.einsum("tmn,tn->tm", basis, points - origin), basis))

    middle = np.broadcast_to(crowd.middle, origin.shape)
    return {"nearest the mean": foot(middle), "nearest a face": foot(crowd.vectors[nearest].astype(np.float64))}


def protection_study(
    faces: Faces,
    pairs: FacePairs,
    decoys: Faces,
    *,
    seed: int,
    liftings: Sequence[Strategy] = LIFTINGS,
    dimensions: Sequence[int] = DIMENSIONS,
    centered: bool = False,
    progress: Progress | None = None,
) -> Protection:
    """Two purposes' templates of the left and of the right face of each pair, lifted among one half of the decoys; the other
    half is the attacker's crowd. Without keys the attacker sees them in the descriptors' own space.

    Raises as `verification_study` does, and InputError for too few pairs.
    """
    require_others(faces, decoys)
    if centered:
        faces, decoys = centered_alike(faces, decoys)
    order = np.random.default_rng(seed).permutation(len(decoys))
    pool, crowd = (decoys.take(np.sort(part)) for part in np.array_split(order, 2))
    raw = np.linalg.norm(faces.vectors[pairs.left].astype(np.float64) - faces.vectors[pairs.right], axis=1)
    threshold = best_threshold(raw, pairs.same)
    mean = unit_length(crowd.middle[None])
    turns = [rotation(key, faces.space.dim) for key in KEYS]
    rows, cells = [], [(lifting, m) for lifting in liftings for m in dimensions]
    for done, (lifting, m) in enumerate(cells):
        forms = [lifted_faces(faces, lifting, m, pool, f"purpose {side} {seed}") for side in (0, 1)]
        plain = [(form.origin, form.basis) for form in forms]
        turned = [_turned(part, turn) for part, turn in zip(plain, turns, strict=True)]
        for keyed, (left, right) in ((False, plain), (True, turned)):
            rows.append(_row(lifting, m, keyed, left, right, faces, pairs, crowd, threshold, seed))
        if progress is not None:
            progress(done + 1, len(cells))
    return Protection(
        rows=rows,
        threshold=threshold,
        accepted_raw=float((raw[pairs.same] <= threshold).mean()),
        accepted_strangers=float((raw[~pairs.same] <= threshold).mean()),
        accepted_mean=float((np.linalg.norm(faces.vectors[pairs.right[pairs.same]] - mean, axis=1) <= threshold).mean()),
    )


def _row(
    lifting: str,
    m: int,
    keyed: bool,
    left: SubspaceSet,
    right: SubspaceSet,
    faces: Faces,
    pairs: FacePairs,
    crowd: Faces,
    threshold: float,
    seed: int,
) -> ProtectionRow:
    scores = exact(left, right, pairs.left, pairs.right)
    mated, others = scores[pairs.same], scores[~pairs.same]
    once, lengths = np.unique(pairs.left), [np.linalg.norm(side[0].astype(np.float64), axis=1) for side in (left, right)]
    apart = np.abs(lengths[0][pairs.left] - lengths[1][pairs.right])
    passed = _passed(left, pairs.left[pairs.same], pairs.right[pairs.same], faces, crowd, threshold)
    best = max(passed, key=lambda name: passed[name])
    low, high = clopper_pearson(passed[best], len(mated), confidence=0.95)
    return ProtectionRow(
        lifting=lifting,
        m=m,
        keyed=keyed,
        linkability=linkability(mated, others),
        by_chance=linked_by_chance(mated, others, seed),
        same_photograph=linkability(exact(left, right, once, once), others),
        by_length=linkability(apart[pairs.same], apart[~pairs.same]),
        linked_error=min(equal_error(scores, pairs.same), equal_error(-scores, pairs.same)),
        estimate=best,
        reversed=passed[best] / len(mated),
        low=low,
        high=high,
    )


def _passed(
    templates: SubspaceSet,
    enrolled: Int64[np.ndarray, "mated"],
    other: Int64[np.ndarray, "mated"],
    faces: Faces,
    crowd: Faces,
    threshold: float,
) -> dict[str, int]:
    """How many estimates pass for the person whose other photograph the verifier knows."""
    known = faces.vectors[other].astype(np.float64)
    own = templates[0][enrolled], templates[1][enrolled]
    found = estimates(own, crowd)
    return {name: int((np.linalg.norm(points - known, axis=1) <= threshold).sum()) for name, points in found.items()}


def _turned(side: SubspaceSet, turn: Float64[np.ndarray, "dim dim"]) -> SubspaceSet:
    """What lifting turned faces among turned decoys gives."""
    origin, basis = ((part.astype(np.float64) @ turn.T).astype(np.float32) for part in side)
    return origin, basis
