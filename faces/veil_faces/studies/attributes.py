"""Study of attributes: inference of people's labels by nearest neighbors, from raw and lifted descriptors ([D21] Fig. 5).

The protocol is that of [D21] Sec. 4.3. People are split at random into a pool of decoys, the attacker's labelled ones, and the
victims; nobody is in two parts.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from jaxtyping import Int64

from veil.attacks.distribution.attributes import NEIGHBORS, Labelled, infer
from veil.audit.statistics import clopper_pearson
from veil.errors import InputError, RangeError
from veil.features import Features
from veil.forms import Form
from veil.mechanisms.profile import Profile, Strategy
from veil.mechanisms.public import publish
from veil.mechanisms.subspaces import DecoyRule, lift, uniform_rule
from veil.randomness import seeded
from veil_faces.balance import BalancedRule
from veil_faces.collection import centered as around
from veil_faces.collection import pool_of

DIMENSIONS = (2, 4, 8, 16)
LIFTINGS: tuple[Strategy, ...] = ("random", "hybrid", "adversarial")
# Hybrid lifting with balanced decoys: every class alike, or as [D21] samples them, other classes than one's own only.
BALANCED = {"hybrid+": False, "hybrid+, others only": True}


@dataclass(frozen=True, kw_only=True)
class AttributeRow:
    """Accuracy of inferring one attribute from one form; `m` is 0 for raw descriptors.

    The class of `right` of `victims` people was named rightly; `low` and `high` bound the accuracy with 95 %. `baseline` is the
    accuracy of always naming the attacker's most frequent class.
    """

    attribute: str
    form: str
    m: int
    right: int
    victims: int
    low: float
    high: float
    baseline: float

    @property
    def accuracy(self) -> float:
        """Share of victims whose class was named rightly."""
        return self.right / self.victims

    def as_json(self) -> dict[str, object]:
        """The stable record of docs/reference/json.md."""
        return {
            "attribute": self.attribute,
            "form": self.form,
            "m": self.m,
            "right": self.right,
            "victims": self.victims,
            "low": self.low,
            "high": self.high,
            "chance": self.baseline,
            "accuracy": self.accuracy,
        }


@dataclass(frozen=True, kw_only=True, eq=False)
class PeopleSplit:
    """Rows of the people in the decoy pool, in the attacker's hands, and under attack: disjoint, and together everyone."""

    decoys: Int64[np.ndarray, "_"]
    attacker: Int64[np.ndarray, "_"]
    victims: Int64[np.ndarray, "_"]


def split_people(people: int, *, decoy_share: float, seed: int) -> PeopleSplit:
    """A random split of `people` rows: the share `decoy_share` for the decoys, and the rest in two halves.

    Raises RangeError unless `decoy_share` lies between 0 and 1, InputError for too few people.
    """
    if not 0 < decoy_share < 1:
        raise RangeError(f"decoy_share must lie between 0 and 1, got {decoy_share!r}")
    order = np.random.default_rng(seed).permutation(people)
    decoys = round(people * decoy_share)
    middle = decoys + (people - decoys) // 2
    if min(decoys, middle - decoys) < 2:
        raise InputError(f"{people} descriptors are too few for decoys, an attacker and victims")
    return PeopleSplit(decoys=order[:decoys], attacker=order[decoys:middle], victims=order[middle:])


def attribute_study(
    features: Features,
    attributes: Mapping[str, Sequence[str]],
    *,
    seed: int,
    dimensions: Sequence[int] = DIMENSIONS,
    liftings: Sequence[Strategy] = LIFTINGS,
    neighbors: int = NEIGHBORS,
    decoy_share: float = 0.2,
    balanced: bool = True,
    centered: bool = False,
) -> list[AttributeRow]:
    """Rows of accuracy of the attack for each attribute, from raw descriptors and from each of `liftings` at each m.

    `features` holds one descriptor of each person, `attributes` a label of each person by the attribute's name. `neighbors`
    descriptors vote. Decoys are descriptors of the pool's people, drawn without regard to labels; `balanced` adds hybrid
    lifting with decoys that balance the attribute (hybrid+ of [D21] Sec. 4.3, in two readings) where the pool has m / 2 people
    of every class. `centered` subtracts the pool's mean from descriptors and scales them to unit length again. Raises
    InputError if labels are missing.
    """
    for name, labels in attributes.items():
        if len(labels) != len(features):
            raise InputError(f"attribute {name!r} has {len(labels)} labels for {len(features)} descriptors")
    parts = split_people(len(features), decoy_share=decoy_share, seed=seed)
    if centered:
        middle = features.descriptors[parts.decoys].mean(axis=0, dtype=np.float64)
        features = replace(features, descriptors=around(features.descriptors, middle))
    public = publish(features)
    victims = features.take(parts.victims)
    forms: list[tuple[str, int, Form]] = [("raw", 0, publish(victims))]
    pool = pool_of(public.vectors[parts.decoys], public.space, source="study", license="none")

    def lifted(strategy: Strategy, m: int, rule: DecoyRule) -> Form:
        """The victims' descriptors lifted with decoys of the pool by `rule`."""
        profile = Profile(name="study", strategy=strategy, m=m, decoys="descriptors")
        randomness = seeded(f"attributes {strategy} {m} {seed}")
        return lift(victims, profile=profile, compression=pool.compression, decoys=pool, randomness=randomness, rule=rule).form

    forms += [(strategy, m, lifted(strategy, m, uniform_rule)) for strategy in liftings for m in dimensions]
    rows = []
    for name, labels in attributes.items():
        classes, numbers = np.unique(np.asarray(labels), return_inverse=True)
        known = Labelled(
            vectors=public.vectors[parts.attacker],
            labels=numbers[parts.attacker].astype(np.int64),
            classes=tuple(classes.tolist()),
            space=public.space,
        )
        truth = numbers[parts.victims]
        tried = list(forms)
        pooled = numbers[parts.decoys].astype(np.int64)
        fewest = int(np.bincount(pooled, minlength=len(classes)).min())
        if balanced and len(classes) > 1:
            for label, others_only in BALANCED.items():
                own = truth.astype(np.int64)
                rule = BalancedRule(own=own, pool=pooled, classes=len(classes), others_only=others_only)
                tried += [(label, m, lifted("hybrid", m, rule)) for m in dimensions if m // 2 <= fewest]
        rows += [_row(name, form, label, m, known, truth, neighbors) for label, m, form in tried]
    return rows


def _row(
    name: str, form: Form, label: str, m: int, known: Labelled, truth: Int64[np.ndarray, "victims"], neighbors: int
) -> AttributeRow:
    """The row of one attribute, inferred from one form."""
    right = int((infer(form, known, neighbors=neighbors).labels == truth).sum())
    low, high = clopper_pearson(right, len(truth), confidence=0.95)
    return AttributeRow(
        attribute=name,
        form=label,
        m=m,
        right=right,
        victims=len(truth),
        low=low,
        high=high,
        baseline=float((truth == known.majority).mean()),
    )
