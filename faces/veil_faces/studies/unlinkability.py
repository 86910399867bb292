"""Study of linkability and reversibility of face templates (ISO/IEC 24745), with and without the key of their purpose.

Linkability is the global measure of Gomez-Barrero et al. 2018, by the distance of two templates. A template counts as reversed
if a point that the attacker takes from it passes for its person before a verifier of raw descriptors (docs/theory/faces.md).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float64, Int64

from veil import distances
from veil.audit.statistics import clopper_pearson
from veil.distances.pairs import exact
from veil.errors import InputError
from veil.features import unit_length
from veil.progress import Progress
from veil.randomness import Secure
from veil_faces.collection import Faces
from veil_faces.studies.face_study import FaceStudy
from veil_faces.studies.verification import best_threshold, equal_error, lifted_faces
from veil_faces.template import rotation

SHUFFLES, CONFIDENCE = 200, 0.95  # of the linkability that chance gives
# With fewer pairs of one person or of two, densities of scores say nothing.
PAIRS_MIN = 25
KEYS = Secure(b"purpose one".ljust(32)), Secure(b"purpose two".ljust(32))
Templates = tuple[np.ndarray, np.ndarray]  # origins and bases


@dataclass(frozen=True, kw_only=True)
class ProtectionRow:
    """Linkability and reversibility of templates of one lifting and m, with or without keys.

    `linkability` is that of a person's templates for two purposes from two photographs, `same_photograph` from one photograph;
    both lie between 0 and 1, and 95 % of shuffled pairs stay below `by_chance`. `by_length` is the linkability by the distances
    of both templates from zero, which are all that a rotation leaves. `linked_error` is the equal error rate of an attacker who
    links by the distance. `reversed` is the share of templates whose better estimate (`estimate`) passes for the person, with
    the 95 % interval from `low` to `high`.
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
class ProtectionStudy:
    """Rows of the study, and the shares of descriptors that a verifier of raw descriptors accepts at its `threshold`.

    `accepted_raw` is the share of pairs of one person, `accepted_strangers` of pairs of two people, and `accepted_mean` how
    often the mean of the crowd passes for a person, which needs no template.
    """

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
    """Linkability D_sys: the mean over mated scores s of p(mated | s) - p(other | s) where that is positive.

    Both kinds are taken to be equally likely: Gomez-Barrero et al. 2018 with omega = 1 (docs/theory/faces.md, Eq. 6). Densities
    are histograms between quantiles of either kind, n^0.4 of each for n scores of the rarer kind. Raises InputError for fewer
    than `PAIRS_MIN` scores of a kind.
    """
    fewest = min(len(mated), len(others))
    if fewest < PAIRS_MIN:
        raise InputError(f"linkability needs {PAIRS_MIN} pairs of one person and of two, got {fewest}")
    shares = np.linspace(0, 1, round(fewest**0.4) + 1)
    edges = np.unique([np.quantile(scores, shares) for scores in (mated, others)])
    p, q = (np.bincount(np.searchsorted(edges, scores), minlength=len(edges) + 1) / len(scores) for scores in (mated, others))
    return min(1.0, float((p * np.maximum(p - q, 0) / np.maximum(p + q, 1e-300)).sum()))


def linked_by_chance(mated: Float64[np.ndarray, "mated"], others: Float64[np.ndarray, "others"], seed: int) -> float:
    """Linkability that 95 % of random assignments of the scores to both kinds stay below.

    It is not 0, as histograms of few scores differ by chance, too.
    """
    random, pooled = np.random.default_rng(seed), np.concatenate([mated, others])
    shuffled = []
    for _ in range(SHUFFLES):
        random.shuffle(pooled)
        shuffled.append(linkability(pooled[: len(mated)], pooled[len(mated) :]))
    return float(np.quantile(shuffled, CONFIDENCE))


def estimates(templates: Templates, crowd: Faces) -> dict[str, Float64[np.ndarray, "templates dim"]]:
    """Unit vectors that an attacker takes from templates for their descriptors, by the name of the estimate.

    One is the template's point nearest to the mean of `crowd`, faces of other people; the other is its point nearest to the
    nearest one of these faces, which pulls it to where faces are.
    """
    origin, basis = (part.astype(np.float64) for part in templates)
    nearest = distances.nearest(templates, (crowd.vectors, None), 1).index[:, 0]

    def foot(points: np.ndarray) -> np.ndarray:
        """Projections of points on their templates, scaled to unit length."""
        return unit_length(origin + np.einsum("tm,tmn->tn", np.einsum("tmn,tn->tm", basis, points - origin), basis))

    middle = np.broadcast_to(crowd.middle, origin.shape)
    return {"nearest the mean": foot(middle), "nearest a face": foot(crowd.vectors[nearest].astype(np.float64))}


def protection_study(study: FaceStudy, *, progress: Progress | None = None) -> ProtectionStudy:
    """Linkability and reversibility of templates for two purposes: of left faces of pairs for one, of right ones for the other.

    One half of the decoys is the pool of lifting, the other half is the attacker's crowd. Without keys the attacker sees
    templates in the descriptors' own space. `progress` is called with the number of pairs of a lifting and an m that are done,
    and the number of all. Raises InputError for too few pairs.
    """
    study = study.with_lifted_descriptors()
    faces, pairs = study.faces, study.pairs
    order = np.random.default_rng(study.seed).permutation(len(study.decoys))
    pool, crowd = (study.decoys.take(np.sort(part)) for part in np.array_split(order, 2))
    raw = np.linalg.norm(faces.vectors[pairs.left].astype(np.float64) - faces.vectors[pairs.right], axis=1)
    threshold = best_threshold(raw, pairs.same)
    mean = unit_length(crowd.middle[None])
    turns = [rotation(key, faces.space.dim) for key in KEYS]
    rows, cells = [], [(lifting, m) for lifting in study.liftings for m in study.dimensions]
    for done, (lifting, m) in enumerate(cells):
        forms = [lifted_faces(faces, lifting, m, pool, f"purpose {side} {study.seed}") for side in (0, 1)]
        plain = [(form.origin, form.basis) for form in forms]
        turned = [_turned(part, turn) for part, turn in zip(plain, turns, strict=True)]
        for keyed, (left, right) in ((False, plain), (True, turned)):
            rows.append(_row(lifting, m, keyed, left, right, study, crowd, threshold))
        if progress is not None:
            progress(done + 1, len(cells))
    return ProtectionStudy(
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
    left: Templates,
    right: Templates,
    study: FaceStudy,
    crowd: Faces,
    threshold: float,
) -> ProtectionRow:
    """The row of templates `left` and `right` of all faces for two purposes; `threshold` is the verifier's."""
    pairs = study.pairs
    scores = exact(left, right, pairs.left, pairs.right)
    mated, others = scores[pairs.same], scores[~pairs.same]
    once, lengths = np.unique(pairs.left), [np.linalg.norm(side[0].astype(np.float64), axis=1) for side in (left, right)]
    apart = np.abs(lengths[0][pairs.left] - lengths[1][pairs.right])
    passed = _passed(left, pairs.left[pairs.same], pairs.right[pairs.same], study.faces, crowd, threshold)
    best = max(passed, key=lambda name: passed[name])
    low, high = clopper_pearson(passed[best], len(mated), confidence=0.95)
    return ProtectionRow(
        lifting=lifting,
        m=m,
        keyed=keyed,
        linkability=linkability(mated, others),
        by_chance=linked_by_chance(mated, others, study.seed),
        same_photograph=linkability(exact(left, right, once, once), others),
        by_length=linkability(apart[pairs.same], apart[~pairs.same]),
        linked_error=min(equal_error(scores, pairs.same), equal_error(-scores, pairs.same)),
        estimate=best,
        reversed=passed[best] / len(mated),
        low=low,
        high=high,
    )


def _passed(
    templates: Templates,
    enrolled: Int64[np.ndarray, "mated"],
    other: Int64[np.ndarray, "mated"],
    faces: Faces,
    crowd: Faces,
    threshold: float,
) -> dict[str, int]:
    """Number of estimates, by their name, that pass for the person whose other photograph the verifier knows.

    `enrolled` are rows of the attacked templates, `other` rows of the faces that the verifier knows.
    """
    known = faces.vectors[other].astype(np.float64)
    points_of = estimates((templates[0][enrolled], templates[1][enrolled]), crowd)
    return {name: int((np.linalg.norm(points - known, axis=1) <= threshold).sum()) for name, points in points_of.items()}


def _turned(templates: Templates, turn: Float64[np.ndarray, "dim dim"]) -> Templates:
    """Templates rotated by `turn`: those that lifting rotated faces among rotated decoys would give."""
    origin, basis = ((part.astype(np.float64) @ turn.T).astype(np.float32) for part in templates)
    return origin, basis
