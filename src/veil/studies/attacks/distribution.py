"""Attacks on affine subspaces at descriptor level: lift features of photographs, attack them, measure distances to the truth.

The order of [P23] Table 1, nearest > clustering > database > raw, is looked at on descriptors. The words that decoys come from,
the public database, the auxiliary photographs and those under test must be made from disjoint sets of photographs: that is the
caller's part.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from jaxtyping import Float64, Int64

from veil.attacks.claims import Lists
from veil.attacks.distribution.clustering import ClusterOptions
from veil.attacks.distribution.database import AwayOptions
from veil.attacks.intersection.shared_decoys import MeetingOptions
from veil.attacks.registry import named
from veil.attacks.target import Effort, Knowledge, ReleasedImage, Target, Tuning
from veil.codebooks.codebook import Codebook
from veil.errors import InputError, RangeError
from veil.features import Features, unit_length
from veil.forms import Points, Subspaces
from veil.mechanisms.profile import Strategy, paper
from veil.mechanisms.subspaces import UniformRule, lift
from veil.progress import Progress
from veil.randomness import seeded

# [P23] Eq. 1 to the letter, with a moderate list and one entry: scores in the whole space, no use of the known length.
PLAIN_DATABASE = AwayOptions(neighbors=400, kept=1, within=False, unit_length=False)
# A claimed decoy this near to a word is that word; words are farther apart.
SAME = 1e-2


@dataclass(frozen=True, kw_only=True)
class Row:
    """How near one attack came to the descriptors of `features` subspaces of dimension `m`.

    `mean_distance` is over decided features (NaN if none are); shares are of all features, so that an undecided one counts as a
    miss. `identified`: the estimate's nearest neighbor among all descriptors of the photographs is the right one.
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
    """How many decoys an attack found, and whether they are right.

    `exact` is the share of features whose decoys were all found, and no others. `wrong` counts claimed decoys that are none,
    `largest_error` is the largest distance of a claimed decoy that is one from the word (NaN if nothing was claimed).
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
class Study:
    """What is attacked and by whom.

    `per_image` features at most are drawn from each photograph and lifted, `count` of those of the photographs under test are
    attacked; the server has seen the rest, and what was lifted from auxiliary photographs. `oracle` are lengths of the lists
    that an oracle picks from. The options are those of the attacks, as tuned on other photographs.
    """

    dimensions: tuple[int, ...] = (2, 4, 8, 16)
    strategy: Strategy = "sub-hybrid"
    count: int = 400
    per_image: int = 200
    oracle: tuple[int, ...] = (10, 1000)
    clusters: ClusterOptions = field(default_factory=ClusterOptions)
    away: AwayOptions = field(default_factory=AwayOptions)
    seed: int = 0

    def __post_init__(self) -> None:
        for name, value in (("count", self.count), ("per_image", self.per_image), *(("oracle", size) for size in self.oracle)):
            if not value >= 1:
                raise RangeError(f"{name} must be at least 1, got {value!r}")
        if not self.dimensions or not min(self.dimensions) >= 2:
            raise RangeError(f"dimensions must name values of m from 2 up, got {self.dimensions!r}")
        if self.strategy == "random":
            raise RangeError("random lifting has no decoys for these attacks to find; choose another strategy")


@dataclass(frozen=True, kw_only=True, eq=False)
class _Scene:
    """What one m gives: the subspaces under attack, all others that the server saw, and the truth."""

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
    study: Study | None = None,
    progress: Progress | None = None,
) -> tuple[list[Row], list[DecoyRow]]:
    """Every distribution attack at every m: rows of estimates, best last, and rows of decoys.

    `images` and `auxiliary` photographs are lifted with the `paper` profile and decoys from `words`.
    Raises InputError if the photographs have fewer features than are to be attacked.
    """
    study = study or Study()
    random = np.random.default_rng(study.seed)
    tested, aids = ([image.drawn(study.per_image, random) for image in group] for group in (images, auxiliary))
    total = sum(map(len, tested))
    if total < study.count:
        raise InputError(f"{study.count} features are to be attacked, the photographs have {total}; give more of them")
    chosen = np.sort(random.permutation(total)[: study.count])
    everyone = np.concatenate([unit_length(image.descriptors.astype(np.float64)) for image in images])
    rows, found = [], []
    for index, m in enumerate(study.dimensions):
        scene = _scene([*tested, *aids], chosen, words, study, m)
        for name, points, decoys in _attacks(scene, words, public, study):
            rows.append(_row(name, m, points, scene.descriptors, everyone))
            if decoys is not None:
                found.append(_decoy_row(name, m, decoys, scene.decoys, words))
        if progress is not None:
            progress(index + 1, len(study.dimensions))
    return rows, found


class _Recorded(UniformRule):
    """The uniform rule, which keeps what it chose for those who score attacks on decoys."""

    def __init__(self) -> None:
        self.chosen: list[np.ndarray] = []

    def __call__(self, rows: np.ndarray, draws: np.ndarray, available: np.ndarray) -> np.ndarray:
        self.chosen.append(super().__call__(rows, draws, available))
        return self.chosen[-1]


def _scene(images: Sequence[Features], chosen: np.ndarray, words: Codebook, study: Study, m: int) -> _Scene:
    forms, recorded = [], _Recorded()
    randomness = seeded(f"descriptor attacks {study.seed}")
    for image in images:
        profile = paper(m, study.strategy)
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
    return _Scene(
        target=whole.take(chosen),
        others=whole.take(rest),
        descriptors=unit_length(descriptors),
        decoys=np.concatenate(recorded.chosen)[chosen],
    )


def _attacks(scene: _Scene, words: Codebook, public: Points, study: Study) -> Iterator[tuple[str, np.ndarray, Lists | None]]:
    """Name, points (NaN where undecided) and claimed decoys of each attack."""
    count = scene.decoys.shape[1]
    usual = Target(
        image=ReleasedImage(form=scene.target),
        rows=np.arange(len(scene.target)),
        knowledge=Knowledge(
            codebook=None, decoys=words, database=public, others={"seen before": ReleasedImage(form=scene.others)}
        ),
        effort=Effort(seed=study.seed, auxiliary=len(scene.others)),
        tuning=Tuning(
            clusters=replace(study.clusters, decoys=count),
            away=study.away,
            meeting=MeetingOptions.for_space(scene.target.space),
            least_shared=count,
        ),
    )
    plain = replace(usual, tuning=replace(usual.tuning, away=PLAIN_DATABASE))
    yield _run("nearest", usual)
    yield _run("nearest, projected", usual)
    for size in study.oracle:
        for projected in (False, True):
            yield f"oracle of {size}" + (", projected" if projected else ""), _picked(usual, scene, size, projected), None
    yield _run("clustering", usual)
    yield _run("intersection", usual)
    yield "database, plain", _run("database", plain)[1], None
    yield _run("database", usual)
    yield "raw", scene.descriptors, None


def _run(name: str, target: Target) -> tuple[str, np.ndarray, Lists | None]:
    (attack,) = named(name)
    attempt = attack.run(target)
    assert attempt.estimates is not None
    return name, attempt.estimates.points, attempt.decoys


def _picked(target: Target, scene: _Scene, size: int, projected: bool) -> Float64[np.ndarray, "features dim"]:
    """What an oracle that knows the truth picks from the nearest entries ([D21] 4.2)."""
    (oracle,) = named("oracle")
    effort, tuning = replace(target.effort, oracle=size), replace(target.tuning, projected_oracle=projected)
    picked = np.empty(scene.descriptors.shape)
    for begin in range(0, len(picked), 64):  # the lists of all features together would be large
        rows = np.arange(begin, min(begin + 64, len(picked)))
        lists = oracle.run(replace(target, rows=rows, effort=effort, tuning=tuning)).claim
        assert isinstance(lists, Lists)
        for row, candidates in zip(rows, lists.candidates, strict=True):
            picked[row] = candidates[np.linalg.norm(candidates - scene.descriptors[row], axis=1).argmin()]
    return picked


def _row(
    name: str,
    m: int,
    points: Float64[np.ndarray, "features dim"],
    truth: Float64[np.ndarray, "features dim"],
    everyone: Float64[np.ndarray, "all dim"],
) -> Row:
    decided = np.isfinite(points).all(axis=1)
    error = np.full(len(points), np.inf)
    error[decided] = np.linalg.norm(points[decided] - truth[decided], axis=1)
    return Row(
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
    import faiss

    if not len(points):
        return np.zeros(0)
    found = faiss.knn(points.astype(np.float32), everyone.astype(np.float32), min(4, len(everyone)))[1]
    return np.linalg.norm(everyone[found] - points[:, None], axis=2).min(axis=1)


def _decoy_row(name: str, m: int, claimed: Lists, true_rows: Int64[np.ndarray, "features decoys"], words: Codebook) -> DecoyRow:
    """Claimed points against the words that were drawn; one farther than `SAME` from all of them is wrong."""
    exact, wrong, errors = 0, 0, []
    for points, rows in zip(claimed.candidates, true_rows, strict=True):
        distance = np.linalg.norm(points[:, None] - words.vectors[rows][None].astype(np.float64), axis=2)
        right = distance.min(axis=1) <= SAME
        wrong += int((~right).sum())
        errors.extend(distance.min(axis=1)[right].tolist())
        exact += int(right.all() and (distance.min(axis=0, initial=np.inf) <= SAME).all())
    return DecoyRow(
        attack=name,
        m=m,
        features=len(true_rows),
        exact=exact / len(true_rows),
        claimed=sum(map(len, claimed.candidates)),
        wrong=wrong,
        largest_error=max(errors, default=math.nan),
    )
