"""Similarity of two pieces of a map from the images that both hold, tested against chance.

One shared image gives a similarity: the rotation from its orientation, the scale from the depths of features that observe a
point in both pieces, and the translation from its center. Two shared images give the scale from their distance where they share
no points. So cameras along a line leave nothing open. The hypothesis that most images agree with is refined by them, and
counts as far as chance would not have given as many (docs/theory/scale.md, "Clusters and their joining").
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float64

from veil.geometry.robust.significance import Sampling, pose_log10_nfa
from veil.geometry.similarity import Similarity
from veil.mapping.pieces import Piece, common_rows, shared_names, stacked

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
    found = [
        Similarity(scale=float(s), rotation=turns[k], translation=both.centers_b[k] - s * turns[k] @ both.centers_a[k])
        for k, s in enumerate(both.scales)
        if np.isfinite(s)
    ]
    if 2 * len(found) >= len(both):
        return found
    for i in range(len(both)):
        for j in range(i):
            way_a, way_b = both.centers_a[i] - both.centers_a[j], both.centers_b[i] - both.centers_b[j]
            if (length := float(np.linalg.norm(way_a))) > 0 and np.linalg.norm(way_b) > 0:
                scale = float(np.linalg.norm(way_b)) / length
                found.append(_from_two(both, np.array([i, j]), turns, scale))
    return found


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
