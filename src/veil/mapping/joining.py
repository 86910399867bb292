"""Joining of pieces of a map: a graph of similarities, from which contradicting ones are rejected, and one world for the rest.

Pieces are the nodes and overlaps the edges. Going around a loop must lead back to the start; an edge that does not is
rejected, the weakest first. What the edges agree on is averaged, and what they do not connect stays apart, with the reason
(docs/theory/scale.md, "Clusters and their joining").
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations

import numpy as np
from jaxtyping import Float64
from scipy.sparse import coo_array, csr_array
from scipy.sparse.csgraph import connected_components
from scipy.sparse.linalg import spsolve
from scipy.spatial.transform import Rotation

from veil.geometry.rigid import rotation_angle_deg
from veil.geometry.similarity import Similarity
from veil.mapping.overlap import NoOverlap, Overlap, overlap
from veil.mapping.pieces import Piece

# A loop of n edges may be off by sqrt(n) times: degrees, a factor of scale, and a share of the extent of the larger piece.
LOOP_DEG, LOOP_FACTOR, LOOP_SHIFT = 4.0, 1.15, 0.1
ROUNDS = 10
# Spanning forests by chance that the search for the best placement also begins with.
STARTS = 50
Edge = tuple[int, int]


@dataclass(frozen=True, kw_only=True, eq=False)
class Joint:
    """Pieces of one world: `world_from_piece` by the numbers of the pieces."""

    world_from_piece: Mapping[int, Similarity]


@dataclass(frozen=True, kw_only=True, eq=False)
class Joined:
    """Outcome of joining: groups of pieces, the largest first, and why the others do not join.

    `edges` are the overlaps that were used, by pairs of pieces (b_from_a of (a, b)), `rejected` those that loops contradict,
    and `reasons` a sentence for every pair of pieces that share images and are not joined directly.
    """

    joints: list[Joint]
    edges: Mapping[Edge, Overlap]
    rejected: frozenset[Edge]
    reasons: Mapping[Edge, str] = field(default_factory=dict)


def join(pieces: Sequence[Piece], *, labels: Sequence[int] | None = None) -> Joined:
    """One world for the pieces that overlaps connect, or several; `labels` are the numbers that reasons give the pieces."""
    labels = labels or range(1, len(pieces) + 1)
    asked = [(i, j) for i, j in combinations(range(len(pieces)), 2) if _share(pieces[i], pieces[j])]
    found: dict[Edge, Overlap] = {}
    reasons: dict[Edge, str] = {}
    for i, j in asked:
        answer = overlap(pieces[i], pieces[j], tests=len(asked))
        if isinstance(answer, NoOverlap):
            reasons[i, j] = f"clusters {labels[i]} and {labels[j]} do not join: {answer.reason}"
        else:
            found[i, j] = answer
    extents = [_extent(piece) for piece in pieces]
    kept, rejected = consistent_edges(found, extents)
    for i, j in sorted(rejected):
        reasons[i, j] = f"clusters {labels[i]} and {labels[j]} do not join: the way around over other clusters contradicts it"
    edges = {edge: found[edge] for edge in sorted(kept)}
    return Joined(joints=_joints(len(pieces), edges), edges=edges, rejected=rejected, reasons=reasons)


def _share(a: Piece, b: Piece) -> bool:
    return not a.cam_from_world.keys().isdisjoint(b.cam_from_world.keys())


def _extent(piece: Piece) -> float:
    centers = np.array([pose.center for pose in piece.cam_from_world.values()])
    return float(np.linalg.norm(np.ptp(centers, axis=0)))


def consistent_edges(found: Mapping[Edge, Overlap], extents: Sequence[float]) -> tuple[frozenset[Edge], frozenset[Edge]]:
    """Edges that agree with one placement of all pieces, and those that contradict it.

    The placement is that spanning forest, of the one with the strongest edges and of `STARTS` by chance, for which most shared
    images stand behind the edges that agree with it.
    """
    order = sorted(found, key=lambda edge: (-found[edge].agreeing, edge))
    random = np.random.default_rng(0)
    starts = [order, *([order[k] for k in random.permutation(len(order))] for _ in range(STARTS))]
    kept, value = frozenset[Edge](), -1
    for start in starts if len(order) >= len(extents) else starts[:1]:  # without a loop there is one placement
        for other_kept, other_value in _improved(_forest(start, len(extents)), order, found, extents):
            if other_value > value:
                kept, value = other_kept, other_value
    return kept, frozenset(found) - kept


def _improved(
    tree: frozenset[Edge], order: Sequence[Edge], found: Mapping[Edge, Overlap], extents: Sequence[float]
) -> Iterator[tuple[frozenset[Edge], int]]:
    """What forests explain, from `tree` on, each made of the agreeing edges of the one before, the strongest first."""
    last = -1
    for _ in range(ROUNDS):
        kept, value = _explained(tree, found, extents)
        yield kept, value
        if value <= last:
            return
        last = value
        tree = _forest([*(e for e in order if e in kept), *(e for e in order if e not in kept)], len(extents))


def _forest(order: Sequence[Edge], count: int) -> frozenset[Edge]:
    """Spanning forest of the first edges in order that close no loop."""
    root = np.arange(count)
    chosen = []
    for i, j in order:
        if root[i] != root[j]:
            root[root == root[j]] = root[i]
            chosen.append((i, j))
    return frozenset(chosen)


def _explained(tree: frozenset[Edge], found: Mapping[Edge, Overlap], extents: Sequence[float]) -> tuple[frozenset[Edge], int]:
    """Edges that agree with the placement by a spanning forest, and the sum of their agreeing images."""
    placed = _placed(tree, found, len(extents))
    kept = frozenset(edge for edge in found if edge in tree or _closes(edge, found[edge], placed, extents, tree))
    return kept, sum(found[edge].agreeing for edge in kept)


def _closes(edge: Edge, own: Overlap, placed: Sequence[Similarity], extents: Sequence[float], tree: frozenset[Edge]) -> bool:
    """Whether the way over the tree leads to where the edge does, within limits that grow with the length of the loop."""
    i, j = edge
    around = own.b_from_a.inverse() @ placed[j].inverse() @ placed[i]
    slack = math.sqrt(_steps(tree, i, j) + 1)
    shift = float(np.linalg.norm(around.translation))  # in the unit of piece i
    extent = max(extents[i], extents[j] / own.b_from_a.scale)
    return (
        rotation_angle_deg(around.rotation) <= LOOP_DEG * slack
        and abs(math.log(around.scale)) <= math.log(LOOP_FACTOR) * slack
        and shift <= LOOP_SHIFT * slack * extent
    )


def _steps(tree: frozenset[Edge], start: int, end: int) -> int:
    """Number of edges of the way from one piece to another over the tree."""
    reached, front, steps = {start}, {start}, 0
    while end not in front and front:
        front = {b for edge in tree for a, b in (edge, edge[::-1]) if a in front} - reached
        reached |= front
        steps += 1
    return steps


def _placed(edges: frozenset[Edge], found: Mapping[Edge, Overlap], count: int) -> list[Similarity]:
    """World from piece by the edges of a forest; the first piece of each of its trees is the world."""
    identity = Similarity(scale=1.0, rotation=np.eye(3), translation=np.zeros(3))
    placed: list[Similarity | None] = [None] * count
    for start in range(count):
        if placed[start] is not None:
            continue
        placed[start], front = identity, [start]
        while front:
            at = front.pop()
            here = placed[at]
            assert here is not None
            for i, j in sorted(edges):
                if i == at and placed[j] is None:
                    placed[j] = here @ found[i, j].b_from_a.inverse()
                    front.append(j)
                elif j == at and placed[i] is None:
                    placed[i] = here @ found[i, j].b_from_a
                    front.append(i)
    return [place if place is not None else identity for place in placed]


def _joints(count: int, edges: Mapping[Edge, Overlap]) -> list[Joint]:
    rows = np.array(list(edges), dtype=np.int64).reshape(-1, 2)
    _, label = connected_components(coo_array((np.ones(len(rows)), rows.T), shape=(count, count)), directed=False)
    order = sorted(edges, key=lambda edge: (-edges[edge].agreeing, edge))
    placed = averaged(_placed(_forest(order, count), edges, count), edges)
    groups = [np.flatnonzero(label == k) for k in range(label.max() + 1)] if count else []
    groups.sort(key=lambda group: (-len(group), int(group[0])))
    return [Joint(world_from_piece={int(k): placed[k] for k in group}) for group in groups]


def averaged(placed: Sequence[Similarity], edges: Mapping[Edge, Overlap]) -> list[Similarity]:
    """World from piece by all edges: least squares of rotations (linearized), of logarithms of scales, and of translations.

    Weights are the numbers of agreeing images. What no edge determines stays as in `placed`.
    """
    if not edges:
        return list(placed)
    count, pairs = len(placed), np.array(list(edges), dtype=np.int64)
    weights = np.array([edges[tuple(edge)].agreeing for edge in pairs.tolist()], dtype=np.float64)
    own = [edges[i, j].b_from_a for i, j in pairs.tolist()]
    turns = np.array([place.rotation for place in placed])
    for _ in range(ROUNDS):
        # world_from_j @ j_from_i = world_from_i, up to a small turn in the world.
        off = np.array([turns[i] @ (turns[j] @ s.rotation).T for (i, j), s in zip(pairs.tolist(), own, strict=True)])
        step = _balanced(Rotation.from_matrix(off).as_rotvec(), pairs, weights, count)
        turns = Rotation.from_rotvec(step).as_matrix() @ turns
        if np.abs(step).max() < 1e-10:
            break
    scales = np.log([place.scale for place in placed])
    gap = np.array([scales[i] - scales[j] - math.log(s.scale) for (i, j), s in zip(pairs.tolist(), own, strict=True)])
    scales = np.exp(scales + _balanced(gap[:, None], pairs, weights, count)[:, 0])
    shifts = np.array([place.translation for place in placed])
    ways = np.array([scales[j] * turns[j] @ s.translation for (_, j), s in zip(pairs.tolist(), own, strict=True)])
    shifts = shifts + _balanced(shifts[pairs[:, 0]] - shifts[pairs[:, 1]] - ways, pairs, weights, count)
    return [Similarity(scale=float(s), rotation=r, translation=t) for s, r, t in zip(scales, turns, shifts, strict=True)]


def _balanced(
    gaps: Float64[np.ndarray, "edges dim"], pairs: np.ndarray, weights: np.ndarray, count: int
) -> Float64[np.ndarray, "nodes dim"]:
    """Steps x of least squares with x_j - x_i = gap for each edge (i, j), the least ones where nothing else decides."""
    rows = np.repeat(np.arange(len(pairs)), 2)
    signs = np.tile([-1.0, 1.0], len(pairs))
    difference = csr_array(coo_array((signs, (rows, pairs.ravel())), shape=(len(pairs), count)))
    weighted = difference.multiply(weights[:, None]).tocsr()
    normal = (difference.T @ weighted).tocsc() + coo_array((np.full(count, 1e-9), (np.arange(count),) * 2)).tocsc()
    return np.asarray(spsolve(normal, weighted.T @ gaps), dtype=np.float64).reshape(count, -1)
