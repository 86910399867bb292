"""View graph of verified pairs, cut into clusters of images that overlap (docs/theory/scale.md, "Clusters and their joining").

Images are the nodes, and the number of verified matches of a pair is the weight of its edge. A component of more images than a
cluster may have is cut in two by the normalized cut (Shi and Malik, PAMI 2000), again and again. The order of the second
eigenvector gives the candidates, and moves of single images improve the best of them.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float64, Int64
from scipy.sparse import coo_array, csr_array
from scipy.sparse.csgraph import connected_components
from scipy.sparse.linalg import eigsh

from veil.errors import RangeError

# Largest number of images for which all eigenvectors are computed, and beyond it only those that are needed.
DENSE_IMAGES = 300
# Parts smaller than this share of a cluster's size are not cut off, and are joined to a neighbor where that has room.
LEAST_PART = 0.25
# Rounds of moves of single images after a cut.
MOVES = 10
# Two clusters overlap if their common matches are at least this share of the most that either has with another cluster.
WEAK_NEIGHBOR = 0.1


@dataclass(frozen=True, kw_only=True)
class ClusterOptions:
    """Options of clusters: `size` images at most before they grow, and how many images neighbors share at least.

    Neighboring clusters share `least_shared` images and the share `overlap` of `size`, whichever is more, where both together
    have as many. Raises RangeError for sizes under 3, fewer than 2 shared images, or an overlap outside (0, 1].
    """

    size: int = 100
    overlap: float = 0.2
    least_shared: int = 6

    def __post_init__(self) -> None:
        if not self.size >= 3:
            raise RangeError(f"size must be at least 3 images, got {self.size!r}")
        if not self.least_shared >= 2:
            raise RangeError(f"least_shared must be at least 2 images, got {self.least_shared!r}")
        if not 0 < self.overlap <= 1:
            raise RangeError(f"overlap must be a share in (0, 1], got {self.overlap!r}")

    @property
    def shared(self) -> int:
        """Number of images that neighboring clusters share at least."""
        return max(self.least_shared, math.ceil(self.overlap * self.size))


@dataclass(frozen=True, kw_only=True, eq=False)
class ViewGraph:
    """Graph of images: `names` in order, and the symmetric sparse matrix `weights` of their verified matches."""

    names: tuple[str, ...]
    weights: csr_array


@dataclass(frozen=True, kw_only=True)
class Cluster:
    """Cluster of images: those that are its own (`core`, a partition of all images), and those it shares (`grown`)."""

    core: frozenset[str]
    grown: frozenset[str] = frozenset()

    @property
    def names(self) -> frozenset[str]:
        """All images of the cluster."""
        return self.core | self.grown


def view_graph(names: Iterable[str], counts: Mapping[tuple[str, str], int]) -> ViewGraph:
    """View graph of images, by the numbers of verified matches of pairs; the direction of a pair does not matter."""
    ordered = tuple(sorted(names))
    place = {name: k for k, name in enumerate(ordered)}
    rows = np.array([[place[a], place[b]] for a, b in counts], dtype=np.int64).reshape(-1, 2)
    values = np.fromiter(counts.values(), dtype=np.float64, count=len(counts))
    both = coo_array((np.tile(values, 2), (rows.T.ravel(), rows[:, ::-1].T.ravel())), shape=(len(ordered),) * 2)
    return ViewGraph(names=ordered, weights=csr_array(both))


def overlapping_clusters(graph: ViewGraph, options: ClusterOptions | None = None) -> list[Cluster]:
    """Clusters of the images of a view graph, which share images with their neighbors; largest cores first.

    Every image is in the core of one cluster. Images without a path of verified pairs never share a cluster.
    """
    options = options or ClusterOptions()
    parts = partition(graph.weights, options.size)
    grown = _grown(graph.weights, parts, options.shared)
    clusters = [
        Cluster(core=_named(graph, part.tolist()), grown=_named(graph, more - {*part.tolist()}))
        for part, more in zip(parts, grown, strict=True)
    ]
    return sorted(clusters, key=lambda cluster: (-len(cluster.core), sorted(cluster.core)))


def _named(graph: ViewGraph, nodes: Iterable[int]) -> frozenset[str]:
    return frozenset(graph.names[node] for node in nodes)


def partition(weights: csr_array, size: int) -> list[Int64[np.ndarray, "_"]]:
    """Partition of the nodes into connected parts of at most `size`, by normalized cuts; each part is sorted."""
    done: list[np.ndarray] = []
    waiting = _components(weights, np.arange(weights.shape[0]))
    while waiting:
        part = waiting.pop()
        if len(part) <= size:
            done.append(part)
            continue
        inside = csr_array(weights[part][:, part])
        side = normalized_cut(inside, max(1, math.floor(min(LEAST_PART * size, len(part) / 3))))
        waiting += [part[side], part[~side]]
    return sorted(_merged(weights, done, size), key=lambda part: int(part[0]))


def _components(weights: csr_array, nodes: np.ndarray) -> list[np.ndarray]:
    count, label = connected_components(weights[nodes][:, nodes], directed=False)
    return [nodes[label == k] for k in range(count)]


def normalized_cut(weights: csr_array, least: int = 1) -> Bool[np.ndarray, "nodes"]:
    """Mask of one side of a cut of a connected graph in two connected sides, of about least `cut_value`.

    Each side has at least `least` nodes, or fewer where a side would otherwise fall apart.
    """
    order = np.argsort(_second_vector(weights), kind="stable")
    side = _swept(weights, order, least)
    side = _moved(weights, side, least)
    return _connected(weights, side)


def cut_value(weights: csr_array, side: Bool[np.ndarray, "nodes"]) -> float:
    """Value of a normalized cut: cut / volume of one side + cut / volume of the other (Shi and Malik 2000, Eq. 2)."""
    degree = weights.sum(axis=1)
    cut = float(weights[side][:, ~side].sum())
    volumes = float(degree[side].sum()), float(degree[~side].sum())
    return math.inf if min(volumes) <= 0 else cut / volumes[0] + cut / volumes[1]


def _second_vector(weights: csr_array) -> Float64[np.ndarray, "nodes"]:
    """Second eigenvector of D^-1 W, largest first: the relaxed normalized cut. Its sign is fixed."""
    scale = 1 / np.sqrt(weights.sum(axis=1))
    normal = csr_array(weights.multiply(scale[:, None]).multiply(scale[None, :]))
    if weights.shape[0] <= DENSE_IMAGES:
        vector = np.linalg.eigh(normal.toarray())[1][:, -2]
    else:
        start = np.random.default_rng(0).standard_normal(weights.shape[0])
        values, vectors = eigsh(normal, k=2, which="LA", v0=start, tol=1e-6, maxiter=20_000)
        vector = vectors[:, np.argsort(values)[0]]
    vector = vector * scale
    return vector * (1.0 if vector[np.argmax(np.abs(vector))] > 0 else -1.0)


def _swept(weights: csr_array, order: np.ndarray, least: int) -> Bool[np.ndarray, "nodes"]:
    """Side of least normalized cut among the beginnings of an order."""
    ordered = weights[order][:, order].tocoo()
    count = len(order)
    ends = np.sort(np.stack([ordered.row, ordered.col]), axis=0)
    # An edge from i to j > i is cut by the beginnings of i + 1 to j nodes; each edge is listed twice.
    change = np.zeros(count + 1)
    np.add.at(change, ends[0] + 1, ordered.data / 2)
    np.add.at(change, ends[1] + 1, -ordered.data / 2)
    cut = np.cumsum(change)[1:count]
    volume = np.cumsum(weights.sum(axis=1)[order])
    value = cut / volume[:-1] + cut / (volume[-1] - volume[:-1])
    least = max(1, min(least, count // 2))
    begin = least + int(np.argmin(value[least - 1 : count - least])) if count > 2 * least else count // 2
    side = np.zeros(count, dtype=bool)
    side[order[:begin]] = True
    return side


def _moved(weights: csr_array, side: np.ndarray, least: int) -> Bool[np.ndarray, "nodes"]:
    """Side after moves of single nodes, each of which makes the normalized cut smaller."""
    side, degree = side.copy(), weights.sum(axis=1)
    for _ in range(MOVES):
        changed = False
        to_side, volume = weights @ side.astype(np.float64), float(degree[side].sum())
        total, cut = float(degree.sum()), float(to_side[~side].sum())
        for node in range(len(side)):
            if (side.sum() if side[node] else (~side).sum()) <= least:
                continue
            sign = -1.0 if side[node] else 1.0
            new_cut = cut + sign * (degree[node] - 2 * to_side[node])
            new_volume = volume + sign * degree[node]
            if not 0 < new_volume < total:
                continue
            if new_cut * total / (new_volume * (total - new_volume)) < (1 - 1e-9) * cut * total / (volume * (total - volume)):
                side[node], cut, volume, changed = not side[node], new_cut, new_volume, True
                near = slice(weights.indptr[node], weights.indptr[node + 1])
                to_side[weights.indices[near]] += sign * weights.data[near]
        if not changed:
            break
    return side


def _connected(weights: csr_array, side: np.ndarray) -> Bool[np.ndarray, "nodes"]:
    """Side of a cut after what hangs on the other side alone has changed over, so that both sides are connected."""
    for flip in (False, True):
        inside = ~side if flip else side
        pieces = _components(weights, np.flatnonzero(inside))
        kept = np.zeros(len(side), dtype=bool)
        kept[max(pieces, key=len)] = True
        side = ~kept if flip else kept
    return side


def _merged(weights: csr_array, parts: list[np.ndarray], size: int) -> list[np.ndarray]:
    """Parts after small ones were joined to the neighbor that they have most matches with and that has room for them."""
    while True:
        for k in sorted(range(len(parts)), key=lambda k: (len(parts[k]), int(parts[k][0]))):
            if len(parts[k]) >= LEAST_PART * size:
                continue
            held = {
                j: float(weights[parts[k]][:, parts[j]].sum())
                for j in range(len(parts))
                if j != k and len(parts[j]) + len(parts[k]) <= size
            }
            if held and max(held.values()) > 0:
                best = max(held, key=lambda j: held[j])
                parts[best] = np.sort(np.concatenate([parts[best], parts[k]]))
                del parts[k]
                break
        else:
            return parts


def neighbors(weights: csr_array, parts: list[np.ndarray]) -> list[tuple[int, int]]:
    """Pairs of parts that must overlap: a spanning forest of most matches, and all pairs that are not weak beside others."""
    label = np.empty(weights.shape[0], dtype=np.int64)
    for k, part in enumerate(parts):
        label[part] = k
    edges = weights.tocoo()
    between = coo_array((edges.data, (label[edges.row], label[edges.col])), shape=(len(parts),) * 2).toarray()
    np.fill_diagonal(between, 0.0)
    most, root, pairs = between.max(axis=1), np.arange(len(parts)), []
    order = sorted(zip(*np.nonzero(np.triu(between)), strict=True), key=lambda edge: (-between[edge], edge))
    for i, j in order:
        apart = root[i] != root[j]
        if apart:
            root[root == root[j]] = root[i]
        if apart or between[i, j] >= WEAK_NEIGHBOR * max(most[i], most[j]):
            pairs.append((int(i), int(j)))
    return pairs


def _grown(weights: csr_array, parts: list[np.ndarray], shared: int) -> list[set[int]]:
    """Nodes that each part takes from its neighbors: those that hold most matches to it, half of `shared` from each side."""
    grown: list[set[int]] = [set() for _ in parts]
    for i, j in neighbors(weights, parts):
        sizes = len(parts[i]), len(parts[j])
        from_j = min(sizes[1], max((shared + 1) // 2, shared - sizes[0]))
        from_i = min(sizes[0], shared - from_j)
        for into, source, count in ((i, j, from_j), (j, i, from_i)):
            hold = weights[parts[source]][:, parts[into]].sum(axis=1)
            best = np.lexsort((parts[source], -hold))[:count]
            grown[into] |= {int(node) for node in parts[source][best]}
    return grown
