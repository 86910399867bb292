"""Matches of two images in subspaces by several signs at once, where the ratio of distances leaves too few.

Candidates are the four nearest subspaces of each feature, in both directions. Two subspaces of one descriptor come close where
a descriptor can be; two others come close anywhere. The signs of a candidate are its distance, its rivals, and how much the
midpoint of the closest points looks like a descriptor. A logistic model gives the log odds that a candidate is right. Theory:
distances.md#log-odds-of-a-match.

Weights were fitted to planes with known homographies (lab/benchmarks/rescoring.py), for subspaces of the bundled codebook.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

import numpy as np
from jaxtyping import Float64, Int64

from veil import distances
from veil.forms import Form, Subspaces
from veil.matching.neighbors import NEIGHBORS, Matches, as_set, decoy_distance, equal_subspaces

# Nearest subspaces of a feature that are candidates; the next one tells how crowded its surroundings are.
CANDIDATES = 4
# Images of fewer features have no surroundings to compare with.
FEWEST_FEATURES = 2 * CANDIDATES
# Limit of logarithms of ratios of distances, of two subspaces that meet or have no rival.
WIDEST = 3.0
# Distances that agree to this share are one: they were computed from either side.
SAME = 1e-6
# Candidates whose closest points are computed together.
BLOCK = 8192
SIGNS = ("log distance", "margins", "surroundings", "ranks", "length", "length off", "likeness", "log features")


@dataclass(frozen=True, kw_only=True, eq=False)
class Scoring:
    """The logistic model of one space of descriptors.

    - `mean`, `variance`, float64 (dim,): of descriptors in this space.
    - `length`: their mean length.
    - `weights`, float64 (8,): of `SIGNS`; `bias` is added to their sum.
    """

    mean: Float64[np.ndarray, "dim"]
    variance: Float64[np.ndarray, "dim"]
    length: float
    weights: Float64[np.ndarray, "signs"]
    bias: float


@dataclass(frozen=True, kw_only=True, eq=False)
class CandidatePairs:
    """Pairs of features that may be matches: rows of the left and of the right feature, distances and signs.

    `ratios` are of the distance and that of the nearest other candidate of either feature, the larger one.
    """

    left: Int64[np.ndarray, "pairs"]
    right: Int64[np.ndarray, "pairs"]
    distance: Float64[np.ndarray, "pairs"]
    ratios: Float64[np.ndarray, "pairs"]
    signs: Float64[np.ndarray, "pairs signs"]


def scoring_for(left: Form, right: Form) -> Scoring | None:
    """The model for two forms; None unless both are hardened subspaces of one space that has a model."""
    if not (isinstance(left, Subspaces) and isinstance(right, Subspaces)) or left.space != right.space:
        return None
    return _models().get(left.space.codebook) if left.profile == right.profile == "hardened" else None


@cache
def _models() -> Mapping[str, Scoring]:
    """The models by the hash of the codebook that their space was compressed with."""
    stored = json.loads((files("veil") / "data" / "rescoring.json").read_text())
    return {
        codebook: Scoring(
            mean=np.array(item["mean"]),
            variance=np.array(item["variance"]),
            length=item["length"],
            weights=np.array(item["weights"]),
            bias=item["bias"],
        )
        for codebook, item in stored.items()
    }


def matches_by_odds(left: Subspaces, right: Subspaces, scoring: Scoring, *, least_log_odds: float) -> Matches:
    """Candidates that are the likeliest of both of their features, and have at least these log odds to be right.

    Equal subspaces are one draw that left twice, and match whatever else comes near.
    """
    pairs, equal = candidates(left, right, scoring), equal_subspaces(left, right)
    odds = pairs.signs @ scoring.weights + scoring.bias
    odds[np.isin(pairs.left, equal[:, 0]) | np.isin(pairs.right, equal[:, 1])] = -np.inf
    kept = (odds >= least_log_odds) & _is_best(pairs.left, odds, len(left)) & _is_best(pairs.right, odds, len(right))
    nothing = np.zeros(len(equal))
    return Matches(
        indices=np.concatenate([equal, np.stack([pairs.left, pairs.right], axis=1)[kept]]),
        distances=np.concatenate([nothing, pairs.distance[kept]]),
        ratios=np.concatenate([nothing, pairs.ratios[kept]]),
    )


def candidates(left: Subspaces, right: Subspaces, scoring: Scoring) -> CandidatePairs:
    """The candidates of two images with their signs; of `scoring` the descriptors' moments are used. None for few features."""
    if min(len(left), len(right)) < FEWEST_FEATURES:
        nothing = np.empty(0, dtype=np.int64)
        return CandidatePairs(
            left=nothing, right=nothing, distance=np.empty(0), ratios=np.empty(0), signs=np.empty((0, len(SIGNS)))
        )
    sides = _nearest_beyond(left, right), _nearest_beyond(right, left)
    rows, columns, distance = _listed(*sides)
    margins, surroundings, ranks = zip(
        *(_against(near, side, distance) for (_, near), side in zip(sides, (rows, columns), strict=True)), strict=True
    )
    middle = _midpoints(left, right, rows, columns)
    length = np.linalg.norm(middle, axis=1)
    signs = [
        _log(distance),
        sum(margins),
        sum(surroundings),
        sum(ranks),
        length,
        np.abs(length - scoring.length),
        np.sqrt(((middle - scoring.mean) ** 2 / scoring.variance).mean(axis=1)),
        np.full(len(rows), np.log(len(left) * len(right)) / 2),
    ]
    return CandidatePairs(
        left=rows,
        right=columns,
        distance=distance,
        ratios=np.exp(np.maximum(*margins)),
        signs=np.stack(signs, axis=1).astype(np.float64),
    )


def _nearest_beyond(queries: Subspaces, database: Subspaces) -> tuple[np.ndarray, np.ndarray]:
    """Rows and distances of the nearest subspaces that share no decoy, `CANDIDATES` and one more of each; infinite if fewer."""
    meets = decoy_distance(queries, database)
    nearest = distances.nearest(as_set(queries), as_set(database), min(NEIGHBORS, len(database)))
    beyond = np.where(nearest.distance > meets, nearest.distance, np.inf)
    order = np.argsort(beyond, axis=1, kind="stable")[:, : CANDIDATES + 1]
    return np.take_along_axis(nearest.index, order, axis=1), np.take_along_axis(beyond, order, axis=1)


def _listed(
    from_left: tuple[np.ndarray, np.ndarray], from_right: tuple[np.ndarray, np.ndarray]
) -> tuple[Int64[np.ndarray, "pairs"], Int64[np.ndarray, "pairs"], Float64[np.ndarray, "pairs"]]:
    """Rows, columns and distances of the candidates of both directions, each once."""
    parts = []
    for (index, near), turned in ((from_left, False), (from_right, True)):
        own, place = np.nonzero(np.isfinite(near[:, :CANDIDATES]))
        pair = (index[own, place], own) if turned else (own, index[own, place])
        parts.append((*pair, near[own, place]))
    rows, columns, distance = (np.concatenate(each) for each in zip(*parts, strict=True))
    _, first = np.unique(np.stack([rows, columns]), axis=1, return_index=True)
    return rows[first].astype(np.int64), columns[first].astype(np.int64), distance[first]


def _against(near: np.ndarray, side: np.ndarray, distance: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Logarithms of ratios to the rival and to the last neighbor of a feature on one side, and the rank, of each candidate."""
    own = near[side]
    rank = (own[:, :CANDIDATES] < distance[:, None] * (1 - SAME)).sum(axis=1)
    rival = np.where(rank == 0, own[:, 1], own[:, 0])
    known = np.isfinite(own).sum(axis=1)
    last = own[np.arange(len(own)), np.maximum(known, 1) - 1]
    return _ratio(distance, rival), _ratio(distance, last), rank.astype(np.float64)


def _ratio(distance: np.ndarray, other: np.ndarray) -> Float64[np.ndarray, "pairs"]:
    return np.clip(_log(distance) - _log(other), -WIDEST, WIDEST)


def _log(distance: np.ndarray) -> Float64[np.ndarray, "pairs"]:
    return np.log(np.clip(distance, 1e-12, 1e12))


def _midpoints(left: Subspaces, right: Subspaces, rows: np.ndarray, columns: np.ndarray) -> Float64[np.ndarray, "pairs dim"]:
    """Midpoint of the closest points of two subspaces, for listed pairs; of parallel ones, the closest to their origins."""
    parts = [np.empty((0, left.space.dim))]
    for start in range(0, len(rows), BLOCK):
        i, j = rows[start : start + BLOCK], columns[start : start + BLOCK]
        own, other = left.basis[i].astype(np.float64), right.basis[j].astype(np.float64)
        between = right.origin[j].astype(np.float64) - left.origin[i]
        both = np.concatenate([own, -other], axis=1)
        gram = both @ both.transpose(0, 2, 1) + SAME * np.eye(both.shape[1])
        steps = np.linalg.solve(gram, both @ between[..., None])[..., 0]
        ends = [
            origin + (part[:, None] @ basis)[:, 0]
            for origin, part, basis in (
                (left.origin[i], steps[:, : own.shape[1]], own),
                (right.origin[j], steps[:, own.shape[1] :], other),
            )
        ]
        parts.append((ends[0] + ends[1]) / 2)
    return np.concatenate(parts)


def _is_best(side: np.ndarray, odds: np.ndarray, count: int) -> np.ndarray:
    """Mask of the candidates with the largest odds of their feature on one side."""
    best = np.full(count, -np.inf)
    np.maximum.at(best, side, odds)
    return odds == best[side]
