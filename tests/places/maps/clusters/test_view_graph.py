"""View graphs are cut where few matches hold their parts together, and the clusters overlap as they say."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from scipy.sparse import csr_array
from scipy.sparse.csgraph import connected_components

from veil.errors import RangeError
from veil.places.maps.clusters.view_graph import (
    ClusterOptions,
    cut_value,
    neighbors,
    normalized_cut,
    overlapping_clusters,
    partition,
    view_graph,
)


def random_graph(rng: np.random.Generator, count: int) -> csr_array:
    """Connected graph: a path, and random edges."""
    weights = np.where(rng.random((count, count)) < 0.4, rng.integers(1, 100, (count, count)), 0).astype(np.float64)
    weights[np.arange(count - 1), np.arange(1, count)] += 5.0
    weights = np.triu(weights, 1)
    return csr_array(weights + weights.T)


def connected(weights: csr_array, nodes: np.ndarray) -> bool:
    return connected_components(weights[nodes][:, nodes], directed=False)[0] == 1


def best_cut(weights: csr_array, least: int) -> float:
    """Reference: the least value among all cuts in two connected sides of at least `least` nodes."""
    count, best = weights.shape[0], np.inf
    for bits in itertools.product([False, True], repeat=count - 1):
        side = np.array([True, *bits])
        if min(side.sum(), (~side).sum()) < least:
            continue
        if connected(weights, np.flatnonzero(side)) and connected(weights, np.flatnonzero(~side)):
            best = min(best, cut_value(weights, side))
    return best


def street(count: int, reach: int = 4) -> dict[tuple[str, str], int]:
    """Counts of matches along a street: the nearer two images, the more."""
    return {
        (f"{i:04d}", f"{j:04d}"): 100 * (reach + 1 - (j - i))
        for i in range(count)
        for j in range(i + 1, min(count, i + reach + 1))
    }


@pytest.mark.slow
def test_cuts_are_near_the_best_of_all() -> None:
    """Oracle: enumeration of all cuts of random graphs of nine nodes."""
    ratios = []
    for seed in range(12):
        weights = random_graph(np.random.default_rng(seed), 9)
        side = normalized_cut(weights, 2)
        assert connected(weights, np.flatnonzero(side)) and connected(weights, np.flatnonzero(~side))
        ratios.append(cut_value(weights, side) / best_cut(weights, 2))
    assert np.mean(np.array(ratios) < 1 + 1e-9) >= 0.5
    assert max(ratios) < 1.3


@pytest.mark.parametrize("sizes", [(30, 30), (20, 40), (200, 180)])
def test_a_planted_partition_is_recovered(sizes: tuple[int, int]) -> None:
    """Oracle: two planted groups of many matches that few matches join; the second size takes the sparse eigensolver."""
    rng = np.random.default_rng(3)
    group = np.repeat([0, 1], sizes)
    same = group[:, None] == group[None]
    weights = np.where(same, rng.random(same.shape) < 0.5, rng.random(same.shape) < 0.02) * rng.integers(50, 100, same.shape)
    weights = np.triu(weights, 1).astype(np.float64)
    mixed = rng.permutation(len(group))
    side = normalized_cut(csr_array((weights + weights.T)[mixed][:, mixed]), 5)
    assert len(np.unique(group[mixed][side])) == 1
    assert side.sum() in sizes


def test_every_image_is_in_one_core_and_sizes_hold() -> None:
    """Oracle: the definition of a partition, and the stated sizes."""
    counts = street(230) | {(f"x{a}", f"y{a}"): 50 for a in range(3)}
    names = {name for pair in counts for name in pair} | {"alone"}
    graph = view_graph(names, counts)
    options = ClusterOptions(size=50, overlap=0.2)
    clusters = overlapping_clusters(graph, options)
    cores = [name for cluster in clusters for name in cluster.core]
    assert sorted(cores) == sorted(names)
    assert max(len(cluster.core) for cluster in clusters) <= 50
    assert not any(cluster.core & cluster.grown for cluster in clusters)
    # A street needs five parts of at most fifty, and a path of clusters shares ten images at every joint.
    long = [cluster for cluster in clusters if len(cluster.core) > 2]
    assert 5 <= len(long) <= 8
    assert min(len(cluster.core) for cluster in long) >= 12
    shared = sorted(len(a.names & b.names) for a, b in itertools.combinations(long, 2))
    assert sum(count >= options.shared for count in shared) >= len(long) - 1
    # Components never share a cluster.
    assert all(len({name[0] for name in cluster.names} & {"x", "a", "0"}) <= 1 for cluster in clusters)


def test_neighbors_share_what_was_asked_for() -> None:
    """Oracle: the definition, for every pair of parts that must overlap."""
    rng = np.random.default_rng(1)
    place = rng.random((150, 2))
    far = np.linalg.norm(place[:, None] - place[None], axis=2)
    counts = {
        (f"{i:03d}", f"{j:03d}"): int(200 * (0.2 - far[i, j])) + 1 for i in range(150) for j in range(i) if far[i, j] < 0.2
    }
    graph = view_graph([f"{i:03d}" for i in range(150)], counts)
    options = ClusterOptions(size=40, overlap=0.25)
    parts = partition(graph.weights, options.size)
    clusters = {frozenset(cluster.core): cluster for cluster in overlapping_clusters(graph, options)}
    named = [clusters[frozenset(graph.names[node] for node in part)] for part in parts]
    joints = neighbors(graph.weights, parts)
    assert len(joints) >= len(parts) - 1
    for i, j in joints:
        assert len(named[i].names & named[j].names) >= min(options.shared, len(parts[i]) + len(parts[j]))


def test_clusters_do_not_depend_on_the_order_of_pairs() -> None:
    """Oracle: the same graph given in another order and direction."""
    counts = street(120)
    turned = {(b, a): value for (a, b), value in reversed(counts.items())}
    names = sorted({name for pair in counts for name in pair})
    options = ClusterOptions(size=30)
    assert overlapping_clusters(view_graph(names, counts), options) == overlapping_clusters(
        view_graph(reversed(names), turned), options
    )


@pytest.mark.parametrize("wrong", [{"size": 2}, {"overlap": 0.0}, {"overlap": float("nan")}, {"least_shared": 1}])
def test_options_that_make_no_sense_are_refused(wrong: dict) -> None:
    """Oracle: the ranges that the options state."""
    with pytest.raises(RangeError):
        ClusterOptions(**wrong)
