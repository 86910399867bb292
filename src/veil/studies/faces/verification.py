"""Face verification and a gallery, raw and lifted: the protocol of Dusmanu et al. 2021, Sec. 4.3 and Fig. 4.

One threshold of the distance tells pairs of one person from pairs of two; it is fitted anew for each lifting, m and distance
(faces.md#one-among-many) on all folds but one, and tried on that one. Both sides of a pair draw their decoys from disjoint
halves of other people's faces.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from jaxtyping import Bool, Float64, Int64

from veil import distances
from veil.distances import FeatureSet
from veil.distances.pairs import exact
from veil.errors import InputError, RangeError, SpaceError
from veil.faces.balance import BalancedRule, guessed
from veil.faces.collection import IDENTITY, FacePairs, Faces, centered_alike
from veil.forms import Subspaces
from veil.mechanisms.profile import Profile, Strategy
from veil.mechanisms.subspaces import DecoyRule, lift, uniform_rule
from veil.progress import Progress
from veil.randomness import seeded
from veil.statistics import clopper_pearson

DIMENSIONS = (2, 4, 8, 16)
BALANCED = "hybrid+"
LIFTINGS: tuple[Strategy, ...] = ("random", "hybrid", "adversarial")
FALSE_REJECTS = (0.01, 0.05)
FaceDistance = Literal["point", "p2s", "s2s"]


@dataclass(frozen=True, kw_only=True, eq=False)
class VerificationRow:
    """How well one distance verifies: accuracy over folds with its standard deviation and 95 % interval, equal error rate,
    false accepts at fixed false rejects, mean threshold; how often a gallery of raw descriptors names a template's person."""

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
    """The threshold of most right decisions (same if the distance is not above it); between two distances, the middle."""
    order = np.argsort(distance, kind="stable")
    ranked, ours = distance[order], same[order]
    # Right decisions if the first k pairs are accepted.
    right = np.concatenate([[0], np.cumsum(ours)]) + np.concatenate([[0], np.cumsum(~ours)])[-1]
    right = right - np.concatenate([[0], np.cumsum(~ours)])
    right[1:-1][ranked[1:] == ranked[:-1]] = -1  # no threshold parts equal distances
    k = int(np.argmax(right))
    below = ranked[k - 1] if k else ranked[0] - 1
    above = ranked[k] if k < len(ranked) else ranked[-1] + 1
    return float((below + above) / 2)


def error_rates(
    distance: Float64[np.ndarray, "pairs"], same: Bool[np.ndarray, "pairs"]
) -> tuple[Float64[np.ndarray, "steps"], Float64[np.ndarray, "steps"]]:
    """False accepts and false rejects at every threshold, from one that accepts nobody to one that accepts all."""
    order = np.argsort(distance, kind="stable")
    ours, ranked = same[order], distance[order]
    ends = np.append(ranked[1:] != ranked[:-1], True)  # the last pair of each distance
    accepts = np.concatenate([[0.0], np.cumsum(~ours)[ends] / max(1, int((~same).sum()))])
    rejects = np.concatenate([[1.0], 1 - np.cumsum(ours)[ends] / max(1, int(same.sum()))])
    return accepts, rejects


def equal_error(distance: Float64[np.ndarray, "pairs"], same: Bool[np.ndarray, "pairs"]) -> float:
    """Where false accepts and false rejects cross, on the line between the two steps around it."""
    accepts, rejects = error_rates(distance, same)
    k = int(np.argmax(accepts >= rejects))
    if k == 0:
        return float(accepts[0])
    gap = rejects - accepts
    share = gap[k - 1] / (gap[k - 1] - gap[k])
    return float(accepts[k - 1] + share * (accepts[k] - accepts[k - 1]))


def folds_of(pairs: FacePairs, folds: int, seed: int) -> Int64[np.ndarray, "pairs"]:
    """The list's own folds if it has so many, else random ones with as many pairs of one person in each."""
    if folds < 2:
        raise RangeError(f"there must be at least two folds, got {folds!r}")
    own = np.unique(pairs.fold)
    if len(own) == folds:
        return np.searchsorted(own, pairs.fold)
    random, found = np.random.default_rng(seed), np.empty(len(pairs), dtype=np.int64)
    for kind in (True, False):
        rows = np.flatnonzero(pairs.same == kind)
        if len(rows) < folds:
            raise InputError(f"{len(rows)} pairs of {'one person' if kind else 'two people'} are too few for {folds} folds")
        found[random.permutation(rows)] = np.arange(len(rows)) % folds
    return found


def verified(
    distance: Float64[np.ndarray, "pairs"], same: Bool[np.ndarray, "pairs"], fold: Int64[np.ndarray, "pairs"]
) -> tuple[Float64[np.ndarray, "folds"], Float64[np.ndarray, "folds"], int]:
    """Accuracy and threshold of each fold, and the right decisions of all."""
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
    faces: Faces,
    pairs: FacePairs,
    decoys: Faces,
    *,
    seed: int,
    liftings: Sequence[Strategy] = LIFTINGS,
    dimensions: Sequence[int] = DIMENSIONS,
    folds: int = 10,
    centered: bool = False,
    balance: str | None = None,
    progress: Progress | None = None,
) -> list[VerificationRow]:
    """Raw descriptors, if `centered` as seen from the decoys' mean as well, then every lifting at every m by both distances.

    `decoys` are other people, in two random halves. With `balance`, a label of theirs, hybrid lifting with as many decoys of
    each class comes last (hybrid+); the faces' own class is their label, or as the nearest decoys vote. Raises SpaceError if
    decoys are of another descriptor, InputError if a decoy is one of the faces, or has no such label.
    """
    require_others(faces, decoys)
    half = len(decoys) // 2
    order = np.random.default_rng(seed).permutation(len(decoys))
    fold = folds_of(pairs, folds, seed)
    raw: FeatureSet = (faces.vectors, None)
    rows = [_row("raw", 0, "point", raw, raw, faces, pairs, fold)]
    if centered:
        faces, decoys = centered_alike(faces, decoys)
        raw = (faces.vectors, None)
        rows.append(_row("raw, centered", 0, "point", raw, raw, faces, pairs, fold))
    pools = [decoys.take(np.sort(part)) for part in (order[:half], order[half:])]
    names = [*liftings, BALANCED] if balance else liftings
    cells = [(lifting, m) for lifting in names for m in dimensions]
    for done, (lifting, m) in enumerate(cells):
        left, right = (
            lifted_faces(faces, lifting, m, pool, f"faces {seed} {side}", balance) for side, pool in enumerate(pools)
        )
        rows.append(_row(lifting, m, "p2s", _set(left), raw, faces, pairs, fold))
        rows.append(_row(lifting, m, "s2s", _set(left), _set(right), faces, pairs, fold))
        if progress is not None:
            progress(done + 1, len(cells))
    return rows


def require_others(faces: Faces, decoys: Faces) -> None:
    """Refuse decoys of another network, or among the faces themselves."""
    if decoys.space != faces.space:
        raise SpaceError(f"the faces are [{faces.space}], the decoys [{decoys.space}]; describe both with one network")
    if set(map(bytes, decoys.vectors)) & set(map(bytes, faces.vectors)):
        raise InputError("a decoy is one of the faces; decoys must be other people")


def lifted_faces(faces: Faces, lifting: str, m: int, pool: Faces, case: str, balance: str | None = None) -> Subspaces:
    """Every face lifted among the pool, by draws of its own case, lifting and m; hybrid+ balances the label `balance`."""
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
    """As many decoys of each class for every face, whose class is its label, or as the nearest of the pool vote."""
    numbers, classes = pool.classes(label)
    if label in faces.labels:
        unknown = sorted(set(faces.labels[label]) - set(classes))
        if unknown:
            raise InputError(f"the decoys have no {label} {unknown[0]!r}; they have {', '.join(classes)}")
        own = np.array([classes.index(value) for value in faces.labels[label]], dtype=np.int64)
    else:
        own = guessed(faces.vectors, pool, label)
    return BalancedRule(own=own, pool=numbers, classes=len(classes))


def _set(form: Subspaces) -> FeatureSet:
    return form.origin, form.basis


def _row(
    lifting: str,
    m: int,
    distance: FaceDistance,
    left: FeatureSet,
    right: FeatureSet,
    faces: Faces,
    pairs: FacePairs,
    fold: Int64[np.ndarray, "pairs"],
) -> VerificationRow:
    found = exact(left, right, pairs.left, pairs.right)
    accuracy, thresholds, right_ones = verified(found, pairs.same, fold)
    low, high = clopper_pearson(right_ones, len(pairs), confidence=0.95)
    accepts, rejects = error_rates(found, pairs.same)
    return VerificationRow(
        lifting=lifting,
        m=m,
        distance=distance,
        accuracy=float(accuracy.mean()),
        deviation=float(accuracy.std(ddof=1)),
        low=low,
        high=high,
        equal_error=equal_error(found, pairs.same),
        false_accepts={f"{limit:g}": float(accepts[rejects <= limit].min()) for limit in FALSE_REJECTS},
        threshold=float(thresholds.mean()),
        identified=identified(faces, left) if distance != "s2s" else None,
        distances=found,
    )


def identified(faces: Faces, templates: FeatureSet) -> float | None:
    """The gallery attack: the share of templates whose nearest raw descriptor, of one picture of each person, is their own.

    Pictures that make the gallery are not attacked. None where nobody has two pictures.
    """
    people, _ = faces.classes(IDENTITY)
    _, gallery = np.unique(people, return_index=True)
    probes = np.setdiff1d(np.arange(len(faces)), gallery)
    if not len(probes):
        return None
    own = templates[0][probes], None if templates[1] is None else templates[1][probes]
    found = distances.nearest(own, (faces.vectors[gallery], None), 1).index[:, 0]
    return float((people[gallery[found]] == people[probes]).mean())
