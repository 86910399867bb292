"""Linkage of two stores of the same people: area under the ROC curve with its interval over people, rank 1, and D_sys.

A file of its own: other studies may weigh scores so.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float64

from veil_faces.studies.pair_network import area
from veil_faces.studies.unlinkability import linkability, linked_by_chance

DRAWS = 1000


@dataclass(frozen=True, kw_only=True)
class LinkedPeople:
    """How well scores link the templates of `people` people in two stores.

    `auc` is the probability that a pair of one person scores above a pair of two; a 95 % bootstrap over people gives `low` and
    `high`. `first` is the share of people whose other template scores highest. `linkability` is D_sys, which for 95 % of
    shuffled pairs stays below `by_chance`.
    """

    people: int
    auc: float
    low: float
    high: float
    first: float
    linkability: float
    by_chance: float

    def as_json(self) -> dict[str, object]:
        """The stable record of docs/reference/json.md."""
        return {
            "people": self.people,
            "auc": self.auc,
            "low": self.low,
            "high": self.high,
            "first": self.first,
            "linkability": self.linkability,
            "by_chance": self.by_chance,
        }


def linked_people(scores: Float64[np.ndarray, "people people"], *, seed: int) -> LinkedPeople:
    """Linkage by a square of scores, larger for one person, whose diagonal holds pairs of one person.

    Equal highest scores of a row share its rank 1. The bootstrap draws people again, with both of their templates; a drawn
    person and its copy are no pair of two.
    Raises InputError for fewer people than linkability needs.
    """
    count = len(scores)
    apart = ~np.eye(count, dtype=bool)
    mated, others = np.diagonal(scores), scores[apart]
    measured = linkability(mated, others)
    highest = scores == scores.max(axis=1, keepdims=True)
    row, column = np.nonzero(apart)
    order = np.argsort(others, kind="stable")
    row, column, ranked = row[order], column[order], others[order]
    left, right = (np.searchsorted(ranked, mated, side=side) for side in ("left", "right"))
    random, drawn = np.random.default_rng(seed), []
    for _ in range(DRAWS):
        weight = np.bincount(random.integers(count, size=count), minlength=count).astype(np.float64)
        below = np.concatenate([[0.0], np.cumsum(weight[row] * weight[column])])
        drawn.append((weight * (below[left] + below[right])).sum() / (2 * below[-1] * weight.sum()))
    low, high = np.quantile(drawn, [0.025, 0.975])
    return LinkedPeople(
        people=count,
        auc=area(mated, others),
        low=float(low),
        high=float(high),
        first=float((np.diagonal(highest) / highest.sum(axis=1)).mean()),
        linkability=measured,
        by_chance=linked_by_chance(mated, others, seed),
    )
