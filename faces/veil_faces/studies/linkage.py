"""Study of linkage by attackers that learn: two stores of the same people, by ours and by published schemes.

Attackers are those of the general model of ISO/IEC 30136, who know the algorithm and have faces of their own: with secret keys
(its standard model), or with all keys (full disclosure). One sees single pairs of templates, another both whole stores.
Training people and attacked people are apart.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float64, Int64

from veil.audit.statistics import clopper_pearson
from veil.errors import InputError
from veil.features import unit_length
from veil.progress import Progress, ignore_progress
from veil_faces.collection import IDENTITY, Faces
from veil_faces.comparisons import first_and_last
from veil_faces.studies.face_study import require_others
from veil_faces.studies.linked_people import LinkedPeople, linked_people
from veil_faces.studies.linked_systems import (
    Coded,
    LiftedSystem,
    LinkedSystem,
    Noise,
    Rows,
    Unprotected,
    compared_numbers,
)
from veil_faces.studies.pair_network import TemplatePairNetwork, train_pairs
from veil_faces.studies.published_schemes import PUBLISHED
from veil_faces.studies.template_estimates import ingredients, mixed
from veil_faces.studies.verification import equal_error
from veil_faces.studies.whole_stores import RecoveredTurn, alikeness_scores, recovered_turn, turned_back

# Rate of false matches at which matches are counted.
FALSE_MATCHES = 1e-3
# Draws of keys in a training, pairs of two people for each of one, and the share of training people who are held out.
KEY_DRAWS, OTHERS, HELD_OUT = 4, 5, 0.25
# People whose templates the attacker knows in both stores.
KNOWN = 30
SIZES = (25, 30, 40, 50, 75, 100, 150, 200, 300)
# An estimate is made from a part of the rotation of at least this many directions.
DIRECTIONS = 20


@dataclass(frozen=True, kw_only=True)
class SystemQuality:
    """Verification by one system, where strangers have the key of the person whom they claim to be.

    `matched` is the share of people who match at a rate of false matches of 1e-3, with its 95 % interval.
    """

    system: str
    equal_error: float
    matched: float
    low: float
    high: float

    def as_json(self) -> dict[str, object]:
        """The stable record of docs/reference/json.md."""
        return {
            "system": self.system,
            "equal_error": self.equal_error,
            "matched": self.matched,
            "low": self.low,
            "high": self.high,
        }


@dataclass(frozen=True, kw_only=True)
class LinkageRow:
    """Linkage of a system's stores by one attacker; `keys` says whether a key is one `person`'s or of a whole `store`."""

    system: str
    keys: str
    attacker: str
    linked: LinkedPeople

    def as_json(self) -> dict[str, object]:
        """The stable record of docs/reference/json.md."""
        return {"system": self.system, "keys": self.keys, "attacker": self.attacker, **self.linked.as_json()}


@dataclass(frozen=True, kw_only=True)
class StoreSizeRow:
    """Two stores of `templates` people each, whose pool of decoys is known: decoys met and placed, and linkage.

    `met`, `placed` and `rank` are of the store of which less is known. `variance` is the share of the pool's variance in the
    directions that are known. `linked` is None where too few are.
    """

    templates: int
    met: int
    placed: int
    rank: int
    variance: float
    linked: LinkedPeople | None

    def as_json(self) -> dict[str, object]:
        """The stable record of docs/reference/json.md."""
        return {
            "templates": self.templates,
            "met": self.met,
            "placed": self.placed,
            "rank": self.rank,
            "variance": self.variance,
            "linked": None if self.linked is None else self.linked.as_json(),
        }


@dataclass(frozen=True, kw_only=True, eq=False)
class LinkageMaterial:
    """Faces of a study of linkage.

    - `faces`: of all people, with their identities.
    - `trained`, `attacked`: numbers of people with several pictures, for training and to be linked.
    - `pool`: decoys of templates. `own`: descriptors of other people that the attacker has.
    - `seed`: of all draws.
    """

    faces: Faces
    trained: Int64[np.ndarray, "_"]
    attacked: Int64[np.ndarray, "_"]
    pool: Faces
    own: Float64[np.ndarray, "_ _"]
    seed: int

    @property
    def systems(self) -> list[LinkedSystem]:
        """Ours, the published schemes, and the two by which the attackers are checked: no protection, and noise."""
        return [
            LiftedSystem(pool=self.pool, own=self.own),
            *(Coded(scheme=scheme, own=self.own) for scheme in PUBLISHED),
            Unprotected(),
            Noise(),
        ]

    def two_pictures(self, people: Int64[np.ndarray, "people"]) -> tuple[Float64[np.ndarray, "people dim"], ...]:
        """First and last pictures of people, float64."""
        numbers, _ = self.faces.classes(IDENTITY)
        return tuple(self.faces.vectors[ends[people]].astype(np.float64) for ends in first_and_last(numbers))

    def drawn_pictures(self, random: np.random.Generator) -> tuple[Float64[np.ndarray, "people dim"], ...]:
        """Two different pictures of each training person, float64."""
        numbers, _ = self.faces.classes(IDENTITY)
        pairs = np.array([random.choice(np.flatnonzero(numbers == person), 2, replace=False) for person in self.trained])
        return tuple(self.faces.vectors[pairs[:, side]].astype(np.float64) for side in (0, 1))


def linkage_material(faces: Faces, decoys: Faces, *, seed: int) -> LinkageMaterial:
    """The people of a study: half of those with two pictures train, half are linked.

    One half of the decoys is the pool; the other half, and people with one picture, are the attacker's own. Raises InputError
    for fewer than 60 people with two pictures, and as `require_others` does.
    """
    require_others(faces, decoys)
    people, _ = faces.classes(IDENTITY)
    first, last = first_and_last(people)
    random = np.random.default_rng(seed)
    several = random.permutation(np.flatnonzero(first != last))
    if len(several) < 60:
        raise InputError(f"{len(several)} people have two pictures, and 60 are needed; give more pictures")
    pool, crowd = (decoys.take(np.sort(part)) for part in np.array_split(random.permutation(len(decoys)), 2))
    own = np.concatenate([crowd.vectors, faces.vectors[first[first == last]]]).astype(np.float64)
    half = len(several) // 2
    return LinkageMaterial(faces=faces, trained=several[:half], attacked=several[half:], pool=pool, own=own[:1000], seed=seed)


def quality_of(system: LinkedSystem, material: LinkageMaterial) -> SystemQuality:
    """Verification of the attacked people: last pictures are probes of templates of first ones, each under a person's key."""
    first, last = material.two_pictures(material.attacked)
    count = len(first)
    keys = _keys("person", 0, count)
    templates = system.templates(first, keys, f"verified {material.seed}")
    apart = np.stack([system.distances(last, int(key), row) for key, row in zip(keys, templates, strict=True)], axis=1)
    same = np.eye(count, dtype=bool)
    limit = np.sort(apart[~same])[int(FALSE_MATCHES * (~same).sum())]
    matches = int((apart[same] < limit).sum())
    low, high = clopper_pearson(matches, count, confidence=0.95)
    return SystemQuality(
        system=system.name,
        equal_error=equal_error(apart.reshape(-1), same.reshape(-1)),
        matched=matches / count,
        low=low,
        high=high,
    )


def linkage_rows(system: LinkedSystem, material: LinkageMaterial) -> Iterator[LinkageRow]:
    """Rows of one system: pairs under secret keys, whole stores, keys disclosed, and one key in both stores."""
    reused = _trained(system, material, _pair_features, keys="store", reused=True)
    secret = _trained(system, material, _pair_features, keys="person", reused=False)
    told = _trained(system, material, _told_features, keys="store", reused=False)
    for keys, attacker, network, features in (
        ("person", "pairs", secret, _pair_features),
        ("store", "pairs", secret, _pair_features),
        ("store", "disclosed", told, _told_features),
        ("store", "reused", reused, _pair_features),
    ):
        stores = _stores(system, material, keys, attacker == "reused")
        yield _row(system, keys, attacker, _all_pairs(system, network, features, *stores), material)
    for keys, known in (("person", KNOWN), ("store", 0), ("store", KNOWN)):
        scores = _by_alikeness(system, material, keys, known)
        yield _row(system, keys, f"stores, {known} known" if known else "stores", scores, material)
    if isinstance(system, LiftedSystem):
        for keys in ("person", "store"):
            stores = _stores(system, material, keys, False)
            turns = [_turn(system, templates) for templates, _ in stores]
            yield _row(system, keys, "stores, pool known", _by_turns(system, stores, turns), material)


def store_size_rows(
    material: LinkageMaterial, sizes: Sequence[int] = SIZES, *, progress: Progress = ignore_progress
) -> list[StoreSizeRow]:
    """Rows of pairs of stores of our templates with one key each, whose pool is known, by their number of people."""
    people = np.concatenate([material.attacked, material.trained])
    system, rows = LiftedSystem(pool=material.pool, own=material.own), []
    wanted = [size for size in sizes if size <= len(people)]
    for done, size in enumerate(wanted):
        pictures = material.two_pictures(people[:size])
        stores = _made(system, pictures, "store", False, f"size {size} {material.seed}")
        turns = [_turn(system, templates) for templates, _ in stores]
        least = min(turns, key=lambda turn: (turn.rank, turn.placed))
        centered = system.pool.vectors - system.pool.middle
        linked = None
        if least.rank >= DIRECTIONS:
            linked = linked_people(_by_turns(system, stores, turns), seed=material.seed)
        rows.append(
            StoreSizeRow(
                templates=size,
                met=least.met,
                placed=least.placed,
                rank=least.rank,
                variance=float(np.sum((centered @ least.turn.T) ** 2) / np.sum(centered**2)),
                linked=linked,
            )
        )
        progress(done + 1, len(wanted))
    return rows


Features = Callable[[LinkedSystem, tuple[Rows, np.ndarray], tuple[Rows, np.ndarray]], np.ndarray]
Store = tuple[Rows, Int64[np.ndarray, "templates"]]


def _row(system: LinkedSystem, keys: str, attacker: str, scores: np.ndarray, material: LinkageMaterial) -> LinkageRow:
    """The row of a square of scores."""
    linked = linked_people(scores, seed=material.seed)
    return LinkageRow(system=system.name, keys=keys, attacker=attacker, linked=linked)


def _keys(kind: str, side: int, count: int, draw: int = 0) -> Int64[np.ndarray, "templates"]:
    """Keys of a store: one for all, or one for each person; no two stores and no two draws share one."""
    start = (2 * draw + side + 1) * 1_000_000
    return np.full(count, start) if kind == "store" else start + np.arange(count)


def _made(
    system: LinkedSystem, pictures: Sequence[np.ndarray], keys: str, reused: bool, case: str, draw: int = 0
) -> list[Store]:
    """Two stores with their keys, which are the same in both if `reused`."""
    stores = []
    for side, vectors in enumerate(pictures):
        given = _keys(keys, 0 if reused else side, len(vectors), draw)
        stores.append((system.templates(vectors, given, f"{case} {side}"), given))
    return stores


def _stores(system: LinkedSystem, material: LinkageMaterial, keys: str, reused: bool) -> list[Store]:
    """The two stores that are attacked."""
    return _made(system, material.two_pictures(material.attacked), keys, reused, f"attacked {material.seed}")


def _pair_features(system: LinkedSystem, left: Store, right: Store) -> np.ndarray:
    """Features of pairs of templates under unknown keys."""
    return system.pair_features(left[0], right[0])


def _told_features(system: LinkedSystem, left: Store, right: Store) -> np.ndarray:
    """Features of pairs of estimates from known keys, seen from the mean face."""
    return compared_numbers(_seen(system, left), _seen(system, right))


def _seen(system: LinkedSystem, store: Store) -> np.ndarray:
    """Estimates of a store's descriptors, less their mean, of unit length."""
    estimates = system.estimates(*store)
    return unit_length(estimates - estimates.mean(axis=0))


def _trained(
    system: LinkedSystem, material: LinkageMaterial, features: Features, *, keys: str, reused: bool
) -> TemplatePairNetwork:
    """The network, trained on pairs of the training people under keys of the attacker's."""
    random = np.random.default_rng(material.seed)
    count = len(material.trained)
    held = np.arange(count) < HELD_OUT * count
    inputs, same, held_out = [], [], []
    for draw in range(1, KEY_DRAWS + 1):
        pictures = material.drawn_pictures(random)
        left, right = _made(system, pictures, keys, reused, f"training {draw} {material.seed}", draw)
        if features is _told_features:
            left, right = ((_seen(system, store), store[1]) for store in (left, right))
        for shift in range(OTHERS + 1):
            # Partners come from the same part of the people, so that nobody is in both parts.
            partner = np.concatenate([np.roll(np.flatnonzero(held), shift), np.roll(np.flatnonzero(~held), shift)])
            moved = right[0][partner], right[1][partner]
            inputs.append(compared_numbers(left[0], moved[0]) if features is _told_features else features(system, left, moved))
            same.append(np.full(count, shift == 0))
            held_out.append(held)
    return train_pairs(np.concatenate(inputs), np.concatenate(same), np.concatenate(held_out), seed=material.seed)


def _all_pairs(
    system: LinkedSystem, network: TemplatePairNetwork, features: Features, left: Store, right: Store
) -> Float64[np.ndarray, "people people"]:
    """Scores of every template of the left store with every one of the right store."""
    count = len(left[0])
    if features is _told_features:
        left, right = ((_seen(system, store), store[1]) for store in (left, right))
    rows = []
    for k in range(count):
        one = np.repeat(left[0][k][None], count, axis=0), np.repeat(left[1][k], count)
        pairs = compared_numbers(one[0], right[0]) if features is _told_features else features(system, one, right)
        rows.append(network.scores(pairs))
    return np.stack(rows)


def _by_alikeness(
    system: LinkedSystem, material: LinkageMaterial, keys: str, known: int
) -> Float64[np.ndarray, "people people"]:
    """Scores of attacked people by whom they resemble; the attacker knows `known` training people in both stores."""
    people = np.concatenate([material.trained[:known], material.attacked])
    stores = _made(system, material.two_pictures(people), keys, False, f"alike {material.seed}")
    order = np.concatenate([np.arange(known), known + np.random.default_rng(material.seed).permutation(len(people) - known)])
    left, right = system.alikeness(stores[0][0]), system.alikeness(stores[1][0][order])
    return alikeness_scores(left, right, known)[:, np.argsort(order[known:])]


def _turn(system: LiftedSystem, templates: Rows) -> RecoveredTurn:
    """The part of a store's rotation that its templates give away."""
    return recovered_turn(system.subspaces(templates), system.pool.vectors, decoys=system.decoys)


def _by_turns(
    system: LiftedSystem, stores: Sequence[Store], turns: Sequence[RecoveredTurn]
) -> Float64[np.ndarray, "people people"]:
    """Scores of people by estimates from templates that are turned back as far as the rotations are known; else all are 0."""
    if min(turn.rank for turn in turns) < DIRECTIONS:
        return np.zeros((len(stores[0][0]), len(stores[1][0])))
    seen = []
    for (templates, _), turn in zip(stores, turns, strict=True):
        origin, basis = turned_back(system.subspaces(templates), turn.turn)
        kept = turn.turn.T @ turn.turn
        estimates = mixed(ingredients(origin, basis, system.pool.vectors @ kept, system.decoys, system.crowd), system.mixture)
        seen.append(unit_length(estimates - estimates.mean(axis=0)))
    return seen[0] @ seen[1].T
