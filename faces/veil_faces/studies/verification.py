"""Study of face verification and of a gallery, raw and lifted: the protocol of Dusmanu et al. 2021, Sec. 4.3 and Fig. 4.

One threshold of the distance tells pairs of one person from pairs of two; it is fitted anew for each lifting, m and distance
(faces.md#one-among-many) on all folds but one, and tried on that one. Both sides of a pair draw their decoys from disjoint
halves of other people's faces.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from jaxtyping import Bool, Float64, Int64

from veil import distances
from veil.audit.statistics import clopper_pearson
from veil.distances.pairs import exact
from veil.errors import InputError, RangeError
from veil.forms import Subspaces
from veil.mechanisms.profile import Profile
from veil.mechanisms.subspaces import DecoyRule, lift, uniform_rule
from veil.progress import Progress
from veil.randomness import seeded
from veil_faces.balance import BalancedRule, guessed
from veil_faces.collection import IDENTITY, FacePairs, Faces
from veil_faces.studies.face_study import FaceStudy

BALANCED = "hybrid+"  # hybrid lifting with as many decoys of each class
FALSE_REJECTS = (0.01, 0.05)  # rates at which false accepts are given
FaceDistance = Literal["point", "p2s", "s2s"]
# Origins and bases of templates; None for raw descriptors, which have no basis.
Templates = tuple[np.ndarray, np.ndarray | None]


@dataclass(frozen=True, kw_only=True, eq=False)
class VerificationRow:
    """Accuracy of verification by one distance between templates of one lifting and dimension (`m`; 0: raw descriptors).

    `accuracy` is the mean over folds, `deviation` its standard deviation, `low` and `high` its 95 % interval. `equal_error` is
    the equal error rate, `false_accepts` holds the rate of false accepts by the rate of false rejects, `threshold` is the mean
    over folds. `identified` is the share of templates whose person a gallery of raw descriptors names. `distances` are those of
    all pairs.
    """

    lifting: str
    m: int
    distance: FaceDistance
    accuracy: float
    deviation: float
    low: float
    high: float
    equal_error: float
    false_accepts: dict[str, float]
    threshold: float
    identified: float | None
    distances: Float64[np.ndarray, "_"]

    def as_json(self) -> dict[str, object]:
        """The stable record of docs/reference/json.md."""
        return {
            "lifting": self.lifting,
            "m": self.m,
            "distance": self.distance,
            "accuracy": self.accuracy,
            "deviation": self.deviation,
            "low": self.low,
            "high": self.high,
            "equal_error": self.equal_error,
            "false_accepts": dict(self.false_accepts),
            "threshold": self.threshold,
            "identified": self.identified,
        }


def best_threshold(distance: Float64[np.ndarray, "pairs"], same: Bool[np.ndarray, "pairs"]) -> float:
    """The threshold with most right decisions, where a pair is taken for one person if its distance is not above it.

    It lies in the middle between two distances.
    """
    order = np.argsort(distance, kind="stable")
    ranked, mated = distance[order], same[order]
    # Number of right decisions if the first k pairs are accepted.
    right = np.concatenate([[0], np.cumsum(mated)]) + np.concatenate([[0], np.cumsum(~mated)])[-1]
    right = right - np.concatenate([[0], np.cumsum(~mated)])
    right[1:-1][ranked[1:] == ranked[:-1]] = -1  # no threshold separates equal distances
    k = int(np.argmax(right))
    below = ranked[k - 1] if k else ranked[0] - 1
    above = ranked[k] if k < len(ranked) else ranked[-1] + 1
    return float((below + above) / 2)


def error_rates(
    distance: Float64[np.ndarray, "pairs"], same: Bool[np.ndarray, "pairs"]
) -> tuple[Float64[np.ndarray, "steps"], Float64[np.ndarray, "steps"]]:
    """Rates of false accepts and of false rejects at every threshold, from one that accepts nobody to one that accepts all."""
    order = np.argsort(distance, kind="stable")
    mated, ranked = same[order], distance[order]
    ends = np.append(ranked[1:] != ranked[:-1], True)  # the last pair of each distance
    accepts = np.concatenate([[0.0], np.cumsum(~mated)[ends] / max(1, int((~same).sum()))])
    rejects = np.concatenate([[1.0], 1 - np.cumsum(mated)[ends] / max(1, int(same.sum()))])
    return accepts, rejects


def equal_error(distance: Float64[np.ndarray, "pairs"], same: Bool[np.ndarray, "pairs"]) -> float:
    """Equal error rate: the rate at which false accepts and false rejects cross, interpolated between two steps."""
    accepts, rejects = error_rates(distance, same)
    k = int(np.argmax(accepts >= rejects))
    if k == 0:
        return float(accepts[0])
    gap = rejects - accepts
    share = gap[k - 1] / (gap[k - 1] - gap[k])
    return float(accepts[k - 1] + share * (accepts[k] - accepts[k - 1]))


def folds_of(pairs: FacePairs, folds: int, seed: int) -> Int64[np.ndarray, "pairs"]:
    """Number of each pair's fold: the fold in the list if that has `folds` folds, else a random one.

    Random folds have equally many pairs of one person, and of two people, to one pair. Raises RangeError for fewer than two
    folds, InputError for too few pairs.
    """
    if folds < 2:
        raise RangeError(f"there must be at least two folds, got {folds!r}")
    listed = np.unique(pairs.fold)
    if len(listed) == folds:
        return np.searchsorted(listed, pairs.fold)
    random, fold = np.random.default_rng(seed), np.empty(len(pairs), dtype=np.int64)
    for kind in (True, False):
        rows = np.flatnonzero(pairs.same == kind)
        if len(rows) < folds:
            raise InputError(f"{len(rows)} pairs of {'one person' if kind else 'two people'} are too few for {folds} folds")
        fold[random.permutation(rows)] = np.arange(len(rows)) % folds
    return fold


def verified(
    distance: Float64[np.ndarray, "pairs"], same: Bool[np.ndarray, "pairs"], fold: Int64[np.ndarray, "pairs"]
) -> tuple[Float64[np.ndarray, "folds"], Float64[np.ndarray, "folds"], int]:
    """Accuracy and threshold of each fold, and the number of right decisions in all; thresholds are fitted on other folds."""
    accuracy, thresholds, right = [], [], 0
    for k in np.unique(fold):
        own = fold == k
        threshold = best_threshold(distance[~own], same[~own])
        hits = (distance[own] <= threshold) == same[own]
        accuracy.append(hits.mean())
        thresholds.append(threshold)
        right += int(hits.sum())
    return np.array(accuracy), np.array(thresholds), right


def verification_study(
    study: FaceStudy,
    *,
    folds: int = 10,
    balance: str | None = None,
    progress: Progress | None = None,
) -> list[VerificationRow]:
    """Rows of raw descriptors (if the study is centered, of centered ones as well), then of every lifting at every m.

    Each lifting is verified by both distances. The decoys are split in two random halves, one for either side of a pair. With
    `balance`, a label of the decoys, hybrid lifting with as many decoys of each class comes last (hybrid+); the class of a face
    is its own label, or what the nearest decoys vote. `progress` is called with the number of pairs of a lifting and an m that
    are done, and the number of all. Raises InputError if the decoys have no such label, or there are too few pairs for the
    folds.
    """
    half = len(study.decoys) // 2
    order = np.random.default_rng(study.seed).permutation(len(study.decoys))
    fold = folds_of(study.pairs, folds, study.seed)
    raw: Templates = (study.faces.vectors, None)
    rows = [_row("raw", 0, "point", raw, raw, study, fold)]
    if study.centered:
        study = study.with_lifted_descriptors()
        raw = (study.faces.vectors, None)
        rows.append(_row("raw, centered", 0, "point", raw, raw, study, fold))
    pools = [study.decoys.take(np.sort(part)) for part in (order[:half], order[half:])]
    names = [*study.liftings, BALANCED] if balance else study.liftings
    cells = [(lifting, m) for lifting in names for m in study.dimensions]
    for done, (lifting, m) in enumerate(cells):
        cases = [(f"faces {study.seed} {side}", pool) for side, pool in enumerate(pools)]
        left, right = (lifted_faces(study.faces, lifting, m, pool, case, balance) for case, pool in cases)
        rows.append(_row(lifting, m, "p2s", _templates(left), raw, study, fold))
        rows.append(_row(lifting, m, "s2s", _templates(left), _templates(right), study, fold))
        if progress is not None:
            progress(done + 1, len(cells))
    return rows


def lifted_faces(faces: Faces, lifting: str, m: int, pool: Faces, case: str, balance: str | None = None) -> Subspaces:
    """Subspaces of all faces with decoys from `pool`; `case`, `lifting` and `m` seed the draws.

    `lifting` is a strategy, or "hybrid+", which takes as many decoys of each class of the label `balance`.
    """
    profile = Profile(name="study", strategy="hybrid" if lifting == BALANCED else lifting, m=m, decoys="descriptors")  # type: ignore[arg-type]
    randomness, book = seeded(f"{case} {lifting} {m}"), pool.pool("study")
    rule: DecoyRule = uniform_rule
    if lifting == BALANCED:
        assert balance is not None
        rule = balanced_rule(faces, pool, balance)
    return lift(
        faces.features, profile=profile, compression=book.compression, decoys=book, randomness=randomness, rule=rule
    ).form


def balanced_rule(faces: Faces, pool: Faces, label: str) -> BalancedRule:
    """The rule that draws as many decoys of each class of `label` for every face.

    The class of a face is its own label, or where `faces` have none what the nearest of the pool vote. Raises InputError if a
    face has a label that none of the pool has.
    """
    numbers, classes = pool.classes(label)
    if label in faces.labels:
        unknown = sorted(set(faces.labels[label]) - set(classes))
        if unknown:
            raise InputError(f"the decoys have no {label} {unknown[0]!r}; they have {', '.join(classes)}")
        own = np.array([classes.index(value) for value in faces.labels[label]], dtype=np.int64)
    else:
        own = guessed(faces.vectors, pool, label)
    return BalancedRule(own=own, pool=numbers, classes=len(classes))


def _templates(form: Subspaces) -> Templates:
    """Origins and bases of subspaces."""
    return form.origin, form.basis


def _row(
    lifting: str,
    m: int,
    distance: FaceDistance,
    left: Templates,
    right: Templates,
    study: FaceStudy,
    fold: Int64[np.ndarray, "pairs"],
) -> VerificationRow:
    """The row of one distance, between templates of the left and of the right faces of the pairs."""
    pairs = study.pairs
    scores = exact(left, right, pairs.left, pairs.right)
    accuracy, thresholds, right_decisions = verified(scores, pairs.same, fold)
    low, high = clopper_pearson(right_decisions, len(pairs), confidence=0.95)
    accepts, rejects = error_rates(scores, pairs.same)
    return VerificationRow(
        lifting=lifting,
        m=m,
        distance=distance,
        accuracy=float(accuracy.mean()),
        deviation=float(accuracy.std(ddof=1)),
        low=low,
        high=high,
        equal_error=equal_error(scores, pairs.same),
        false_accepts={f"{limit:g}": float(accepts[rejects <= limit].min()) for limit in FALSE_REJECTS},
        threshold=float(thresholds.mean()),
        identified=identified(study.faces, left) if distance != "s2s" else None,
        distances=scores,
    )


def identified(faces: Faces, templates: Templates) -> float | None:
    """Share of templates that the gallery attack names: their nearest raw descriptor in the gallery is their own person's.

    The gallery holds one picture of each person; pictures in it are not attacked. None where nobody has two pictures.
    """
    people, _ = faces.classes(IDENTITY)
    _, gallery = np.unique(people, return_index=True)
    probes = np.setdiff1d(np.arange(len(faces)), gallery)
    if not len(probes):
        return None
    attacked = templates[0][probes], None if templates[1] is None else templates[1][probes]
    nearest = distances.nearest(attacked, (faces.vectors[gallery], None), 1).index[:, 0]
    return float((people[gallery[nearest]] == people[probes]).mean())
