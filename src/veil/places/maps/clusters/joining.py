"""Joining of pieces of a map: the similarity of two pieces, the graph of similarities, and one world for what agrees.

One shared image gives a similarity: the rotation from its orientation, the scale from the depths of features that observe a
point in both pieces, and the translation from its center. Two shared images give the scale from their distance where they share
no points. So cameras along a line leave nothing open. The hypothesis that most images agree with is refined by them, and
counts as far as chance would not have given as many.

Pieces are the nodes of the graph and overlaps its edges. Going around a loop must lead back to the start; an edge that does not
is rejected, the weakest first. What the edges agree on is averaged, and what they do not connect stays apart, with the reason
(docs/theory/scale.md, "Clusters and their joining").
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations

import numpy as np
from jaxtyping import Bool, Float64
from scipy.sparse import coo_array, csr_array
from scipy.sparse.csgraph import connected_components
from scipy.sparse.linalg import spsolve
from scipy.spatial.transform import Rotation

from veil.geometry.rigid import rotation_angle_deg
from veil.geometry.robust.significance import Sampling, pose_log10_nfa
from veil.geometry.similarity import Similarity
from veil.places.maps.clusters.pieces import Piece, common_rows, shared_names, stacked

# A loop of n edges may be off by sqrt(n) times: degrees, a factor of scale, and a share of the extent of the larger piece.
LOOP_DEG, LOOP_FACTOR, LOOP_SHIFT = 4.0, 1.15, 0.1
ROUNDS = 10
# Spanning forests by chance that the search for the best placement also begins with.
STARTS = 50
Edge = tuple[int, int]
# A shared image agrees if its orientation does to within these degrees, its center to within this share of the median depth of
# its points, and the ratio of its depths to within this factor.
MAX_DEG, MAX_SHIFT, MAX_FACTOR = 3.0, 0.1, 1.15
# Least number of features with a point in both pieces that a scale is taken from.
LEAST_DEPTHS = 5
# Expected number of wrong overlaps among all that are tested, at most.
WRONG_OVERLAPS = 0.01
# A similarity follows from one shared image.
ONE_IMAGE = Sampling(size=1, poses=1)
# Share of the shared images that must agree at least: the others contradict.
LEAST_AGREEING = 0.5


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
    overlaps: dict[Edge, Overlap] = {}
    reasons: dict[Edge, str] = {}
    for i, j in asked:
        answer = overlap(pieces[i], pieces[j], tests=len(asked))
        if isinstance(answer, NoOverlap):
            reasons[i, j] = f"clusters {labels[i]} and {labels[j]} do not join: {answer.reason}"
        else:
            overlaps[i, j] = answer
    extents = [_extent(piece) for piece in pieces]
    kept, rejected = consistent_edges(overlaps, extents)
    for i, j in sorted(rejected):
        reasons[i, j] = f"clusters {labels[i]} and {labels[j]} do not join: the way around over other clusters contradicts it"
    edges = {edge: overlaps[edge] for edge in sorted(kept)}
    return Joined(joints=_joints(len(pieces), edges), edges=edges, rejected=rejected, reasons=reasons)


def _share(a: Piece, b: Piece) -> bool:
    return not a.cam_from_world.keys().isdisjoint(b.cam_from_world.keys())


def _extent(piece: Piece) -> float:
    centers = np.array([pose.center for pose in piece.cam_from_world.values()])
    return float(np.linalg.norm(np.ptp(centers, axis=0)))


def consistent_edges(overlaps: Mapping[Edge, Overlap], extents: Sequence[float]) -> tuple[frozenset[Edge], frozenset[Edge]]:
    """Edges that agree with one placement of all pieces, and those that contradict it.

    The placement is that spanning forest, of the one with the strongest edges and of `STARTS` by chance, for which most shared
    images stand behind the edges that agree with it.
    """
    order = sorted(overlaps, key=lambda edge: (-overlaps[edge].agreeing, edge))
    random = np.random.default_rng(0)
    starts = [order, *([order[k] for k in random.permutation(len(order))] for _ in range(STARTS))]
    kept, value = frozenset[Edge](), -1
    for start in starts if len(order) >= len(extents) else starts[:1]:  # without a loop there is one placement
        for other_kept, other_value in _improved(_forest(start, len(extents)), order, overlaps, extents):
            if other_value > value:
                kept, value = other_kept, other_value
    return kept, frozenset(overlaps) - kept


def _improved(
    tree: frozenset[Edge], order: Sequence[Edge], overlaps: Mapping[Edge, Overlap], extents: Sequence[float]
) -> Iterator[tuple[frozenset[Edge], int]]:
    """Successive spanning forests and their scores, from `tree` on, each of the agreeing edges of the one before."""
    last = -1
    for _ in range(ROUNDS):
        kept, value = _explained(tree, overlaps, extents)
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


def _explained(
    tree: frozenset[Edge], overlaps: Mapping[Edge, Overlap], extents: Sequence[float]
) -> tuple[frozenset[Edge], int]:
    """Edges that agree with the placement by a spanning forest, and the sum of their agreeing images."""
    placed = _placed(tree, overlaps, len(extents))
    kept = frozenset(edge for edge in overlaps if edge in tree or _closes(edge, overlaps[edge], placed, extents, tree))
    return kept, sum(overlaps[edge].agreeing for edge in kept)


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


def _placed(edges: frozenset[Edge], overlaps: Mapping[Edge, Overlap], count: int) -> list[Similarity]:
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
                    placed[j] = here @ overlaps[i, j].b_from_a.inverse()
                    front.append(j)
                elif j == at and placed[i] is None:
                    placed[i] = here @ overlaps[i, j].b_from_a
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


@dataclass(frozen=True, kw_only=True, eq=False)
class Overlap:
    """Similarity b_from_a of two pieces, and the evidence for it.

    `agreeing` of the `shared` images agree with it; `log10_chance` is log10 of the expected number of similarities as good
    between pieces whose shared images have nothing to do with each other.
    """

    b_from_a: Similarity
    shared: int
    agreeing: int
    log10_chance: float


@dataclass(frozen=True, kw_only=True)
class NoOverlap:
    """The answer where shared images give no similarity of two pieces, and the `reason` as part of a sentence."""

    shared: int
    reason: str


@dataclass(frozen=True, kw_only=True, eq=False)
class _Shared:
    """Images of both pieces: rotations, centers, ratio of depths b / a (NaN where unknown), and median depths in b."""

    rotations_a: Float64[np.ndarray, "n 3 3"]
    centers_a: Float64[np.ndarray, "n 3"]
    rotations_b: Float64[np.ndarray, "n 3 3"]
    centers_b: Float64[np.ndarray, "n 3"]
    scales: Float64[np.ndarray, "n"]
    depths: Float64[np.ndarray, "n"]

    def __len__(self) -> int:
        return len(self.scales)


def overlap(a: Piece, b: Piece, *, tests: int = 1) -> Overlap | NoOverlap:
    """Similarity b_from_a of two pieces that share images; `tests` is the number of pairs of pieces that are tried in all."""
    names = shared_names(a, b)
    if len(names) < 2:
        return NoOverlap(shared=len(names), reason=f"they share {len(names)} images, and two is the least")
    both = _shared(a, b, names)
    best, support = None, np.zeros(len(names), dtype=bool)
    for guess in _hypotheses(both):
        agree = _agreeing(both, guess)
        if agree.sum() > support.sum():
            best, support = guess, agree
    if best is None:
        return NoOverlap(shared=len(names), reason=f"no two of the {len(names)} images that they share agree on a similarity")
    for _ in range(2):
        refined = _refined(both, support, best)
        agree = _agreeing(both, refined)
        if agree.sum() < support.sum():
            break
        best, support = refined, agree
    agreeing = int(support.sum())
    chance = pose_log10_nfa(agreeing, len(names), _by_chance(both, best), ONE_IMAGE) + math.log10(max(1, tests))
    if agreeing < LEAST_AGREEING * len(names):
        return NoOverlap(shared=len(names), reason=f"of the {len(names)} images that they share only {agreeing} agree")
    if not chance <= math.log10(WRONG_OVERLAPS):
        reason = f"the agreement of {agreeing} of the {len(names)} images that they share may be chance"
        return NoOverlap(shared=len(names), reason=reason)
    return Overlap(b_from_a=best, shared=len(names), agreeing=agreeing, log10_chance=chance)


def _shared(a: Piece, b: Piece, names: list[str]) -> _Shared:
    scales, depths = np.full(len(names), np.nan), np.full(len(names), np.nan)
    for k, name in enumerate(names):
        rows_a, rows_b = common_rows(a, b, name)
        depth_a, depth_b = a.depths(name), b.depths(name)
        ahead = depth_b[depth_b > 0]
        if len(ahead):
            depths[k] = np.median(ahead)
        before = (depth_a[rows_a] > 0) & (depth_b[rows_b] > 0)
        if before.sum() >= LEAST_DEPTHS:
            scales[k] = np.median(depth_b[rows_b][before] / depth_a[rows_a][before])
    depths = np.where(np.isnan(depths), np.nanmedian(depths) if np.isfinite(depths).any() else 0.0, depths)
    (turn_a, at_a), (turn_b, at_b) = stacked(a, names), stacked(b, names)
    return _Shared(rotations_a=turn_a, centers_a=at_a, rotations_b=turn_b, centers_b=at_b, scales=scales, depths=depths)


def _hypotheses(both: _Shared) -> list[Similarity]:
    """Similarities of single images with a known scale, and of pairs of images where most have none."""
    turns = np.swapaxes(both.rotations_b, 1, 2) @ both.rotations_a
    similarities = [
        Similarity(scale=float(s), rotation=turns[k], translation=both.centers_b[k] - s * turns[k] @ both.centers_a[k])
        for k, s in enumerate(both.scales)
        if np.isfinite(s)
    ]
    if 2 * len(similarities) >= len(both):
        return similarities
    for i in range(len(both)):
        for j in range(i):
            way_a, way_b = both.centers_a[i] - both.centers_a[j], both.centers_b[i] - both.centers_b[j]
            if (length := float(np.linalg.norm(way_a))) > 0 and np.linalg.norm(way_b) > 0:
                scale = float(np.linalg.norm(way_b)) / length
                similarities.append(_from_two(both, np.array([i, j]), turns, scale))
    return similarities


def _from_two(both: _Shared, rows: np.ndarray, turns: np.ndarray, scale: float) -> Similarity:
    rotation = _mean_rotation(turns[rows])
    shift = (both.centers_b[rows] - scale * both.centers_a[rows] @ rotation.T).mean(axis=0)
    return Similarity(scale=scale, rotation=rotation, translation=shift)


def _mean_rotation(turns: Float64[np.ndarray, "n 3 3"]) -> Float64[np.ndarray, "3 3"]:
    """Chordal mean of rotations (Hartley et al., IJCV 2013, Sec. 5.3)."""
    left, _, right = np.linalg.svd(turns.sum(axis=0))
    return left @ np.diag([1.0, 1.0, np.linalg.det(left @ right)]) @ right


def _refined(both: _Shared, support: np.ndarray, start: Similarity) -> Similarity:
    """Similarity of the images that agree: mean rotation, and scale by depths and by distances, each by how well it is known.

    The ratio of depths is known to about a percent in each image; the distances are known the better, the further the centers
    lie apart beside their depths.
    """
    rows = np.flatnonzero(support)
    turns = np.swapaxes(both.rotations_b[rows], 1, 2) @ both.rotations_a[rows]
    rotation = _mean_rotation(turns)
    at_a, at_b = both.centers_a[rows] @ rotation.T, both.centers_b[rows]
    from_a, from_b = at_a - at_a.mean(axis=0), at_b - at_b.mean(axis=0)
    known = both.scales[rows][np.isfinite(both.scales[rows])]
    depth = max(float(np.median(both.depths[rows])), 1e-300)
    logs, weights = [], []
    if len(known):
        logs.append(float(np.median(np.log(known))))
        weights.append(float(len(known)))
    if len(rows) > 1 and (from_a**2).sum() > 0 and (from_a * from_b).sum() > 0:
        logs.append(math.log(float((from_a * from_b).sum() / (from_a**2).sum())))
        weights.append(float((from_b**2).sum()) / depth**2)
    scale = math.exp(float(np.average(logs, weights=weights))) if sum(weights) > 0 else start.scale
    return Similarity(scale=scale, rotation=rotation, translation=(at_b - scale * at_a).mean(axis=0))


def _agreeing(both: _Shared, guess: Similarity) -> Bool[np.ndarray, "n"]:
    """Mask of the shared images whose orientation, center and depths agree with a similarity."""
    same = np.arange(len(both))
    factor = np.where(np.isfinite(both.scales), np.abs(np.log(both.scales / guess.scale)), 0.0)
    return _near(both, guess, same, same) & (factor <= math.log(MAX_FACTOR))


def _near(both: _Shared, guess: Similarity, of_a: np.ndarray, of_b: np.ndarray) -> Bool[np.ndarray, "pairs"]:
    """Mask of pairs (image of a, image of b) whose pose is the same after the similarity, within the limits."""
    turned = both.rotations_a[of_a] @ guess.rotation.T
    cosine = (np.einsum("nij,nij->n", turned, both.rotations_b[of_b]) - 1) / 2
    away = np.linalg.norm(guess.apply(both.centers_a[of_a]) - both.centers_b[of_b], axis=1)
    return (cosine >= math.cos(math.radians(MAX_DEG))) & (away <= MAX_SHIFT * both.depths[of_b])


def _by_chance(both: _Shared, guess: Similarity) -> float:
    """Share of wrong pairs, an image of a and another one of b, that agree all the same: images crowd at some places."""
    of_a, of_b = np.nonzero(~np.eye(len(both), dtype=bool))
    return (int(_near(both, guess, of_a, of_b).sum()) + 1) / (len(of_a) + 1)
