"""Study of distribution attacks: features of photographs are lifted and attacked, and estimates compared with true descriptors.

It looks for the order of [P23] Table 1, nearest > clustering > database > raw, on descriptors. The words that decoys come
from, the public database, the auxiliary photographs and those under test must be made from disjoint sets of photographs: that
is the caller's part.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from jaxtyping import Float64, Int64

from veil.attacks.attack import run_attack
from veil.attacks.claims import Lists
from veil.attacks.distribution.clustering import ClusteringOptions
from veil.attacks.distribution.database import AwayOptions
from veil.attacks.intersection.shared_decoys import MeetingOptions
from veil.attacks.registry import estimated, named
from veil.attacks.target import Effort, Knowledge, ReleasedImage, Target, Tuning
from veil.codebooks.codebook import Codebook
from veil.errors import InputError, RangeError
from veil.features import Features, unit_length
from veil.forms import Points, Subspaces
from veil.mechanisms.profile import Profile, Strategy
from veil.mechanisms.subspaces import UniformRule, lift
from veil.progress import Progress
from veil.randomness import seeded

# [P23] Eq. 1 to the letter, with a moderate list and one entry: scores in the whole space, no use of the known length.
PLAIN_DATABASE = AwayOptions(neighbors=400, kept=1, within=False, unit_length=False)
# A claimed decoy within this distance of a word is that word; words are farther apart.
SAME_WORD = 1e-2


@dataclass(frozen=True, kw_only=True)
class EstimateRow:
    """Distances of one attack's estimates to the true descriptors of `features` subspaces of dimension `m`.

    `mean_distance` is over decided features (NaN if there are none). `within_01`, `within_04`, `within_06` (distances of 0.1,
    0.4, 0.6) and `identified` are shares of all features, so that an undecided one counts as a miss. A feature is identified
    if the estimate's nearest neighbor among all descriptors of the photographs is the right one.
    """

    attack: str
    m: int
    features: int
    undecided: int
    mean_distance: float
    within_01: float
    within_04: float
    within_06: float
    identified: float

    def as_json(self) -> dict[str, object]:
        """The stable record of docs/reference/json.md."""
        return {
            "attack": self.attack,
            "m": self.m,
            "features": self.features,
            "undecided": self.undecided,
            "mean_distance": self.mean_distance,
            "within_01": self.within_01,
            "within_04": self.within_04,
            "within_06": self.within_06,
            "identified": self.identified,
        }


@dataclass(frozen=True, kw_only=True)
class DecoyRow:
    """Number of decoys that one attack claims, and how many of them are right.

    `exact` is the share of features for which the attack claims all decoys and no other points. `wrong` counts claimed decoys
    that are none. `largest_error` is the largest distance of a right one from its word (NaN if there is none).
    """

    attack: str
    m: int
    features: int
    exact: float
    claimed: int
    wrong: int
    largest_error: float

    def as_json(self) -> dict[str, object]:
        """The stable record of docs/reference/json.md."""
        return {
            "attack": self.attack,
            "m": self.m,
            "features": self.features,
            "exact": self.exact,
            "claimed": self.claimed,
            "wrong": self.wrong,
            "largest_error": self.largest_error,
        }


@dataclass(frozen=True, kw_only=True)
class DistributionStudy:
    """Options of the study: how many features are lifted and attacked, and how the attacks are tuned.

    `per_image` features at most are drawn from each photograph and lifted with `strategy` at each m of `dimensions`; `count` of
    those of the photographs under test are attacked. "random" has no decoys, and then no attack that looks for any is run. The
    server has seen the rest, and what was lifted from auxiliary
    photographs. `oracle` are lengths of the lists that an oracle picks from. `clusters` and `away` are options of the
    clustering and the database attack, as tuned on other photographs. Raises RangeError for impossible values.
    """

    dimensions: tuple[int, ...] = (2, 4, 8, 16)
    strategy: Strategy = "sub-hybrid"
    count: int = 400
    per_image: int = 200
    oracle: tuple[int, ...] = (10, 1000)
    clusters: ClusteringOptions = field(default_factory=ClusteringOptions)
    away: AwayOptions = field(default_factory=AwayOptions)
    seed: int = 0

    def __post_init__(self) -> None:
        for name, value in (("count", self.count), ("per_image", self.per_image), *(("oracle", size) for size in self.oracle)):
            if not value >= 1:
                raise RangeError(f"{name} must be at least 1, got {value!r}")
        if not self.dimensions or not min(self.dimensions) >= 2:
            raise RangeError(f"dimensions must name values of m from 2 up, got {self.dimensions!r}")


@dataclass(frozen=True, kw_only=True, eq=False)
class _LiftedFeatures:
    """Subspaces of one dimension: those under attack, all others that the server saw, and the truth of the former.

    `decoys` are rows of the words that each feature's decoys are; random lifting has none.
    """

    target: Subspaces
    others: Subspaces
    descriptors: Float64[np.ndarray, "features dim"]
    decoys: Int64[np.ndarray, "features decoys"]


def descriptor_attacks(
    images: Sequence[Features],
    *,
    words: Codebook,
    public: Points,
    auxiliary: Sequence[Features],
    study: DistributionStudy | None = None,
    progress: Progress | None = None,
) -> tuple[list[EstimateRow], list[DecoyRow]]:
    """Rows of estimates of every distribution attack at every m, and rows of decoys of the attacks that name these.

    `images` (under attack) and `auxiliary` photographs are lifted with the `paper` profile and decoys from `words`; `public` is
    the attacker's database. At each m the rows end with raw descriptors. `progress` is called with the number of dimensions
    done and of all. Raises InputError if the photographs have fewer features than are to be attacked.
    """
    study = study or DistributionStudy()
    random = np.random.default_rng(study.seed)
    tested, seen_before = ([image.drawn(study.per_image, random) for image in group] for group in (images, auxiliary))
    total = sum(map(len, tested))
    if total < study.count:
        raise InputError(f"{study.count} features are to be attacked, the photographs have {total}; give more of them")
    chosen = np.sort(random.permutation(total)[: study.count])
    everyone = np.concatenate([unit_length(image.descriptors.astype(np.float64)) for image in images])
    rows, decoy_rows = [], []
    for index, m in enumerate(study.dimensions):
        lifted = _lifted([*tested, *seen_before], chosen, words, study, m)
        for name, points, decoys in _attacks(lifted, words, public, study):
            rows.append(_row(name, m, points, lifted.descriptors, everyone))
            if decoys is not None:
                decoy_rows.append(_decoy_row(name, m, decoys, lifted.decoys, words))
        if progress is not None:
            progress(index + 1, len(study.dimensions))
    return rows, decoy_rows


class RecordingRule(UniformRule):
    """The uniform rule for decoys, which keeps the rows that it chose: they are the truth of attacks on decoys."""

    def __init__(self) -> None:
        self.chosen: list[np.ndarray] = []

    def __call__(self, rows: np.ndarray, draws: np.ndarray, available: np.ndarray) -> np.ndarray:
        self.chosen.append(super().__call__(rows, draws, available))
        return self.chosen[-1]


def _lifted(
    images: Sequence[Features], chosen: np.ndarray, words: Codebook, study: DistributionStudy, m: int
) -> _LiftedFeatures:
    """The features of all images, lifted to dimension m; those of the rows `chosen` are under attack."""
    forms, recorded = [], RecordingRule()
    randomness = seeded(f"descriptor attacks {study.seed}")
    for image in images:
        profile = Profile.paper(m, study.strategy)
        forms.append(
            lift(image, profile=profile, compression=words.compression, decoys=words, randomness=randomness, rule=recorded).form
        )
    whole = replace(
        forms[0],
        origin=np.concatenate([form.origin for form in forms]),
        basis=np.concatenate([form.basis for form in forms]),
    )
    descriptors = np.concatenate([image.descriptors for image in images])[chosen].astype(np.float64)
    rest = np.delete(np.arange(len(whole)), chosen)
    return _LiftedFeatures(
        target=whole.take(chosen),
        others=whole.take(rest),
        descriptors=unit_length(descriptors),
        decoys=np.concatenate(recorded.chosen or [np.empty((len(whole), 0), dtype=np.int64)])[chosen],
    )


def _attacks(
    lifted: _LiftedFeatures, words: Codebook, public: Points, study: DistributionStudy
) -> Iterator[tuple[str, np.ndarray, Lists | None]]:
    """Name, points (NaN where undecided) and claimed decoys of each attack; those that look for decoys need some."""
    count = lifted.decoys.shape[1]
    usual = Target(
        image=ReleasedImage(form=lifted.target),
        rows=np.arange(len(lifted.target)),
        knowledge=Knowledge(
            codebook=None, decoys=words, database=public, others={"seen before": ReleasedImage(form=lifted.others)}
        ),
        effort=Effort(seed=study.seed, auxiliary=len(lifted.others)),
        tuning=Tuning(
            clusters=replace(study.clusters, decoys=count) if count else study.clusters,
            away=study.away,
            meeting=MeetingOptions.for_space(lifted.target.space),
            least_shared=count,
        ),
    )
    yield _run("nearest", usual)
    yield _run("nearest, projected", usual)
    for size in study.oracle:
        for projected in (False, True):
            yield f"oracle of {size}" + (", projected" if projected else ""), _picked(usual, lifted, size, projected), None
    if count:
        yield _run("clustering", usual)
        yield _run("intersection", usual)
        plain = replace(usual, tuning=replace(usual.tuning, away=PLAIN_DATABASE))
        yield "database, plain", _run("database", plain)[1], None
        yield _run("database", usual)
    yield "raw", lifted.descriptors, None


def _run(name: str, target: Target) -> tuple[str, np.ndarray, Lists | None]:
    """Name, points and claimed decoys of the attack `name` on `target`."""
    estimates, decoys = estimated(name, target)
    return name, estimates.points, decoys


def _picked(target: Target, lifted: _LiftedFeatures, size: int, projected: bool) -> Float64[np.ndarray, "features dim"]:
    """Entries of the database that an oracle picks, who knows the truth, from the `size` nearest ones ([D21] 4.2)."""
    (oracle,) = named("oracle")
    effort, tuning = replace(target.effort, oracle=size), replace(target.tuning, projected_oracle=projected)
    picked = np.empty(lifted.descriptors.shape)
    for begin in range(0, len(picked), 64):  # the lists of all features together would be large
        rows = np.arange(begin, min(begin + 64, len(picked)))
        lists = run_attack(oracle, replace(target, rows=rows, effort=effort, tuning=tuning)).claim
        assert isinstance(lists, Lists)
        for row, candidates in zip(rows, lists.candidates, strict=True):
            picked[row] = candidates[np.linalg.norm(candidates - lifted.descriptors[row], axis=1).argmin()]
    return picked


def oracle_curve(
    form: Subspaces, truth: Float64[np.ndarray, "features dim"], database: Points
) -> Float64[np.ndarray, "2 entries"]:
    """Mean distances to the `truth` of what an oracle picks from the K nearest entries, for each K up to all of `database`.

    Both are of the same entry, that nearest to the truth: first of itself, then of its projection on the subspace, not scaled
    to unit length ([D21], Fig. 6, supplement C). The last values are the limits of the curves. `truth` is on the subspaces,
    whose bases are orthonormal.
    """
    entries, sums = database.vectors.astype(np.float64), np.zeros((2, len(database)))
    for origin, basis, true in zip(form.origin.astype(np.float64), form.basis.astype(np.float64), truth, strict=True):
        offset = entries - origin
        inside = offset @ basis.T
        from_subspace = np.square(offset).sum(axis=1) - np.square(inside).sum(axis=1)
        nearest = np.argsort(from_subspace, kind="stable")
        to_truth = np.linalg.norm(entries - true, axis=1)[nearest]
        sums[0] += np.minimum.accumulate(to_truth)
        picked = nearest[_places_of_minima(to_truth)]
        sums[1] += np.linalg.norm(inside - basis @ (true - origin), axis=1)[picked]
    return sums / len(form)


def _places_of_minima(values: Float64[np.ndarray, "n"]) -> Int64[np.ndarray, "n"]:
    """Place of the smallest of the values up to each of them, the first one of equals."""
    is_new = np.concatenate([[True], values[1:] < np.minimum.accumulate(values)[:-1]])
    return np.maximum.accumulate(np.where(is_new, np.arange(len(values)), 0))


def _row(
    name: str,
    m: int,
    points: Float64[np.ndarray, "features dim"],
    truth: Float64[np.ndarray, "features dim"],
    everyone: Float64[np.ndarray, "all dim"],
) -> EstimateRow:
    """The row of one attack; `everyone` are all descriptors of the photographs under test."""
    decided = np.isfinite(points).all(axis=1)
    error = np.full(len(points), np.inf)
    error[decided] = np.linalg.norm(points[decided] - truth[decided], axis=1)
    return EstimateRow(
        attack=name,
        m=m,
        features=len(points),
        undecided=int((~decided).sum()),
        mean_distance=float(error[decided].mean()) if decided.any() else math.nan,
        within_01=float((error < 0.1).mean()),
        within_04=float((error < 0.4).mean()),
        within_06=float((error < 0.6).mean()),
        identified=float((error[decided] <= _nearest(points[decided], everyone) + 1e-9).sum() / len(points)),
    )


def _nearest(
    points: Float64[np.ndarray, "features dim"], everyone: Float64[np.ndarray, "all dim"]
) -> Float64[np.ndarray, "features"]:
    """Distance of each point to the nearest of all descriptors, in float64."""
    from veil.codebooks.neighbors import nearest_neighbors

    if not len(points):
        return np.zeros(0)
    rows = nearest_neighbors(points.astype(np.float32), everyone.astype(np.float32), min(4, len(everyone)), by="distance")[1]
    return np.linalg.norm(everyone[rows] - points[:, None], axis=2).min(axis=1)


def _decoy_row(name: str, m: int, claimed: Lists, true_rows: Int64[np.ndarray, "features decoys"], words: Codebook) -> DecoyRow:
    """The row of an attack on decoys; a claimed point is wrong if no word that was drawn is within `SAME_WORD`."""
    exact, wrong, errors = 0, 0, []
    for points, rows in zip(claimed.candidates, true_rows, strict=True):
        distance = np.linalg.norm(points[:, None] - words.vectors[rows][None].astype(np.float64), axis=2)
        right = distance.min(axis=1) <= SAME_WORD
        wrong += int((~right).sum())
        errors.extend(distance.min(axis=1)[right].tolist())
        exact += int(right.all() and (distance.min(axis=0, initial=np.inf) <= SAME_WORD).all())
    return DecoyRow(
        attack=name,
        m=m,
        features=len(true_rows),
        exact=exact / len(true_rows),
        claimed=sum(map(len, claimed.candidates)),
        wrong=wrong,
        largest_error=max(errors, default=math.nan),
    )
