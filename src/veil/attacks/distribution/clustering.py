"""Clustering attack: entries of a public database near a subspace gather around its descriptor and its decoys.

[P23] 4.2, Eq. 2 as corrected in distribution_attacks.md#the-clustering-attack; docs/theory/distribution_attacks.md. Of the
clusters, the descriptor's is the one that stays away from other subspaces which meet this one: they were lifted with one of its
decoys.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Float64, Int64

from veil.attacks.claims import Estimates
from veil.attacks.distribution.database import GATHERED, moved_to_unit_length
from veil.attacks.distribution.nearest import coordinates, nearby, points_at, residuals
from veil.attacks.intersection.shared_decoys import MeetingOptions, meetings, pooled
from veil.errors import RangeError
from veil.forms import Points, Subspaces
from veil.progress import Progress

# Most meeting subspaces that the scores of a feature look at; those of one decoy say the same, so that more of them add little.
MET = 256


@dataclass(frozen=True, kw_only=True)
class ClusteringOptions:
    """Sizes of the clustering attack, which [P23] leaves open; tuned on photographs of the ImageNet sample.

    `decoys` is the number of decoys that each subspace is believed to hold; None stands for m // 2 (hybrid lifting;
    distribution_attacks.md#the-clustering-attack), adversarial lifting has m. `neighbors` is |V|, the number of entries nearest
    to a subspace D. k-means on D with `restarts` random starts of at most `iterations` steps finds decoys + 1 clusters of them.
    `tol` is the largest distance at which two subspaces count as meeting; None takes that of `MeetingOptions.for_space`.
    Entries nearer to D than `floor` weigh no more than at that distance (distribution_attacks.md#the-database-attack).
    `unit_length` moves the centers to length 1 as in the database attack.
    """

    decoys: int | None = None
    neighbors: int = 150
    restarts: int = 4
    iterations: int = 20
    tol: float | None = None
    floor: float = 1e-3
    unit_length: bool = True

    def __post_init__(self) -> None:
        for name, value in (("neighbors", self.neighbors), ("restarts", self.restarts), ("iterations", self.iterations)):
            if value < 1:
                raise RangeError(f"{name} must be at least 1, got {value!r}")
        if self.decoys is not None and not self.decoys >= 1:
            raise RangeError(f"decoys must be at least 1, got {self.decoys!r}; without decoys use the nearest neighbor")
        for name, distance in (("tol", self.tol), ("floor", self.floor)):
            if distance is not None and not 0 < distance < math.inf:
                raise RangeError(f"{name} must be positive and finite, got {distance!r}")

    def clusters(self, m: int) -> int:
        """Number of clusters k of [P23] step 3: one for each decoy and one for the descriptor."""
        return (max(1, m // 2) if self.decoys is None else self.decoys) + 1


def cluster_centers(
    form: Subspaces,
    database: Points,
    *,
    seed: int,
    options: ClusteringOptions | None = None,
    progress: Progress | None = None,
) -> Float64[np.ndarray, "features clusters dim"]:
    """Points of each subspace where public entries gather ([P23] steps 1 to 3, Eq. 2): roughly the descriptor and the decoys.

    `seed` draws the random starts of k-means. Raises RangeError for a database smaller than the number of clusters.
    """
    options = options or ClusteringOptions()
    clusters = options.clusters(form.m)
    count = min(options.neighbors, len(database))
    if count < clusters:
        raise RangeError(f"{clusters} clusters need as many neighbors and database entries, got {count}")
    nearest = nearby(form, database, count=count, progress=progress)
    random = np.random.default_rng(seed)
    centers = np.empty((len(form), clusters, form.space.dim))
    step = max(1, GATHERED // (count * max(form.space.dim, clusters * form.m)))
    for begin in range(0, len(form), step):
        part = slice(begin, begin + step)
        subset = form.take(np.arange(len(form))[part])
        inside = coordinates(subset, database.vectors[nearest.rows[part]])
        weight = 1 / np.maximum(nearest.distance[part], options.floor)
        labels = _labels(inside, clusters, options, random)
        means = _means(inside, weight, labels, clusters)
        if options.unit_length:
            flat = subset.take(np.repeat(np.arange(len(subset)), clusters))
            means = moved_to_unit_length(flat, means.reshape(-1, form.m)).reshape(means.shape)
        centers[part] = points_at(subset, means)
    return centers


def clustering_attack(
    form: Subspaces,
    database: Points,
    others: Sequence[Subspaces] = (),
    *,
    seed: int,
    within: bool = True,
    options: ClusteringOptions | None = None,
    progress: Progress | None = None,
) -> Estimates:
    """Estimates of the descriptors: the cluster center of each subspace that is farthest from all subspaces that meet it.

    The centers are the points where entries of the public `database` gather ([P23] 4.2; docs/theory/distribution_attacks.md,
    Eq. 12-13). `others` are subspaces that may have drawn the same words; `within` adds the features of `form` itself. Features
    that meet no other subspace are undecided. The confidence is the relative lead of the chosen center over the next one;
    nothing is certified. `seed` draws the random starts of k-means. Raises RangeError for a database smaller than the number
    of clusters.
    """
    options = options or ClusteringOptions()
    tol = MeetingOptions.for_space(form.space).tol if options.tol is None else options.tol
    pairs = meetings(form, others, within=within, tol=tol)
    pool = pooled(form, others, within=within)
    met = pairs.members_by_feature(len(form))
    points, confidence = np.full(form.origin.shape, np.nan), np.zeros(len(form))
    rows = np.flatnonzero([len(members) > 0 for members in met])
    if rows.size:
        centers = cluster_centers(form.take(rows), database, seed=seed, options=options, progress=progress)
        for center, row in zip(centers, rows, strict=True):
            score = _scores(center, pool, met[row][:MET])
            first, second = np.argsort(-score, kind="stable")[:2]
            points[row], confidence[row] = center[first], 1 - score[second] / max(score[first], 1e-300)
    return Estimates(points=points, confidence=confidence, certified=np.zeros(len(form), dtype=bool))


def _scores(
    centers: Float64[np.ndarray, "clusters dim"], pool: Subspaces, met: Int64[np.ndarray, "_"]
) -> Float64[np.ndarray, "clusters"]:
    """Scores s_i = min_j dist(d_i, Q'_j) of one feature's centers d_i, over the rows `met` of the pool ([P23] step 4)."""
    return residuals(pool.take(met), np.broadcast_to(centers, (len(met), *centers.shape))).min(axis=0)


def _labels(
    inside: Float64[np.ndarray, "features points m"], clusters: int, options: ClusteringOptions, random: np.random.Generator
) -> Int64[np.ndarray, "features points"]:
    """Cluster of each point by k-means, for each feature separately; the best of several random starts."""
    best, spread = np.zeros(inside.shape[:2], dtype=np.int64), np.full(len(inside), np.inf)
    even = np.ones(inside.shape[:2])
    for _ in range(options.restarts):
        centers = _spread_start(inside, clusters, random)
        for _ in range(options.iterations):
            labels = _squared(inside, centers).argmin(axis=2)
            means = _means(inside, even, labels, clusters)
            moved = not np.array_equal(means, centers)
            centers = means
            if not moved:
                break
        squared = _squared(inside, centers)
        labels, total = squared.argmin(axis=2), squared.min(axis=2).sum(axis=1)
        better = total < spread
        best[better], spread[better] = labels[better], total[better]
    return best


def _spread_start(
    inside: Float64[np.ndarray, "features points m"], clusters: int, random: np.random.Generator
) -> Float64[np.ndarray, "features clusters m"]:
    """First centers of k-means++: each next center is a point drawn in proportion to its squared distance from earlier ones."""
    rows = np.arange(len(inside))
    centers = inside[rows, random.integers(inside.shape[1], size=len(inside))][:, None]
    while centers.shape[1] < clusters:
        squared = _squared(inside, centers).min(axis=2) + 1e-12  # so that points that are all equal can be drawn
        bounds = np.cumsum(squared, axis=1)
        drawn = (bounds < random.random(len(inside))[:, None] * bounds[:, -1:]).sum(axis=1)
        centers = np.concatenate([centers, inside[rows, np.minimum(drawn, inside.shape[1] - 1)][:, None]], axis=1)
    return centers


def _squared(
    inside: Float64[np.ndarray, "features points m"], centers: Float64[np.ndarray, "features clusters m"]
) -> Float64[np.ndarray, "features points clusters"]:
    return np.stack([np.square(inside - centers[:, k, None]).sum(axis=2) for k in range(centers.shape[1])], axis=2)


def _means(
    inside: Float[np.ndarray, "features points m"],
    weight: Float[np.ndarray, "features points"],
    labels: Int64[np.ndarray, "features points"],
    clusters: int,
) -> Float64[np.ndarray, "features clusters m"]:
    """Weighted means of the clusters of each feature ([P23] Eq. 2, distribution_attacks.md#the-clustering-attack).

    The entry nearest to D stands in for a cluster that lost all points.
    """
    share = (labels[:, :, None] == np.arange(clusters)) * weight[:, :, None]
    total = share.sum(axis=1)
    means = (np.swapaxes(share, 1, 2) @ inside) / np.maximum(total, 1e-300)[:, :, None]
    return np.where(total[:, :, None] > 0, means, inside[:, :1])
