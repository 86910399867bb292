"""Verified pairs of images that show two things that look the same: what surrounds the matches is missing in the other image.

Two facades of one plan match as truly as two views of one facade, and three of their images agree on all rotations. What gives
them away is what does not match (Zach, Irschara and Bischof, CVPR 2008): features around the facade that other images do match,
that the pair's geometry places within the other image, and none of which has a match there although most do on the facade
(docs/theory/scale.md, "Repeated structure").
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float64, Int64

from veil.places.maps.images import MapImage, Pair
from veil.places.maps.verification import VerifiedPair

# Cells along each side of an image in which matched and missing features are counted.
CELLS = 6
# Share of the width and height along the border in which nothing is expected: parallax moves it out of the picture.
MARGIN = 0.08
# Number of matching images that confirms a feature.
KNOWN = 2
# A pair is doubted if chance leaves as many features without a match less often than this (log10), and if those are more than
# this share of all that are expected, in both directions.
DOUBT_LOG10, DOUBT_SHARE = -6.0, 0.2
# A feature is ambiguous too if this share of its matches, and two at least, lead to ambiguous features; number of rounds.
LEADS, HOPS = 0.2, 3
# Least number and share of a pair's matches that are not between ambiguous features.
LEAST_OWN, OWN_SHARE = 8, 0.1
# Of groups that an image could belong to, the second has at most this share of such matches with it that the first has.
RIVAL_SHARE = 0.5


@dataclass(frozen=True, kw_only=True)
class Missing:
    """Known features of one image that a pair places in the other one: how many, and how many lie where nothing matches.

    `log10_chance` is log10 of the probability that as many lack a match by accident.
    """

    expected: int
    missing: int
    log10_chance: float

    @property
    def doubts(self) -> bool:
        """Whether enough are missing that the other image shows something else around the matches."""
        return self.log10_chance <= DOUBT_LOG10 and self.missing > DOUBT_SHARE * self.expected


def doubted_pairs(images: Mapping[str, MapImage], pairs: Mapping[Pair, VerifiedPair]) -> frozenset[Pair]:
    """Verified pairs whose images show different things that look the same.

    They are the pairs that show it themselves (`missing_around`, in both directions), and those whose images have no neighbor
    in common, if neighbors are joined by matches of features that are not ambiguous (`ambiguous_features`). An image without
    any neighbor keeps the pairs with one group of neighbors (`chosen_side`), and none if nothing tells several groups apart.
    Any other image keeps all of its pairs if all of them would be doubted.
    """
    used = {name: np.zeros(len(image.keypoints), dtype=np.int64) for name, image in images.items()}
    for (a, b), pair in pairs.items():
        used[a][np.unique(pair.inliers[:, 0])] += 1
        used[b][np.unique(pair.inliers[:, 1])] += 1
    seen = frozenset(
        (a, b)
        for (a, b), pair in pairs.items()
        if all(
            missing_around(images[x], images[y], rows, used[x]).doubts
            for x, y, rows in ((a, b, pair.inliers), (b, a, pair.inliers[:, ::-1]))
        )
    )
    marked = ambiguous_features({name: len(image.keypoints) for name, image in images.items()}, pairs, seen)
    near: dict[str, set[str]] = {name: {name} for name in images}
    own_with: dict[str, dict[str, int]] = {name: {} for name in images}
    for (a, b), pair in pairs.items():
        own = int((~(marked[a][pair.inliers[:, 0]] | marked[b][pair.inliers[:, 1]])).sum())
        own_with[a][b] = own_with[b][a] = own
        if (a, b) not in seen and own >= max(LEAST_OWN, OWN_SHARE * len(pair.inliers)):
            near[a].add(b)
            near[b].add(a)
    sides = {name: chosen_side(own_with[name], near) for name, others in near.items() if len(others) == 1}
    undecided = {name for name, side in sides.items() if side is None}
    near |= {name: {name} | (side or set()) for name, side in sides.items()}
    doubted = seen | {(a, b) for a, b in pairs if near[a].isdisjoint(near[b]) and min(len(near[a]), len(near[b])) > 1}
    doubted |= {pair for pair in pairs if undecided & {*pair}}
    alone = set(images) - {name for pair in pairs if pair not in doubted for name in pair} - undecided
    return frozenset(pair for pair in doubted if undecided & {*pair} or not alone & {*pair})


def chosen_side(own: Mapping[str, int], near: Mapping[str, set[str]]) -> set[str] | None:
    """Partners of an image that belong to the place it shows, or None if they fall into groups that nothing tells apart.

    `own` are the matches with each partner that are not between ambiguous features, `near` the neighbors of every image. Groups
    are partners that are neighbors or have one in common. Partners without neighbors say nothing of the place.
    """
    waiting = {name for name in own if len(near[name]) > 1}
    groups: list[set[str]] = []
    while waiting:
        group, edge = set(), {min(waiting)}
        while edge:
            group |= edge
            reach = set().union(*(near[name] for name in edge))
            edge = {name for name in waiting - group if not reach.isdisjoint(near[name])}
        waiting -= group
        groups.append(group)
    if len(groups) < 2:
        return groups[0] if groups else set()
    *_, second, most = sorted(sum(own[name] for name in group) for group in groups)
    if most < LEAST_OWN or second > RIVAL_SHARE * most:
        return None
    return next(group for group in groups if sum(own[name] for name in group) == most)


def ambiguous_features(
    features: Mapping[str, int], pairs: Mapping[Pair, VerifiedPair], doubted: frozenset[Pair]
) -> dict[str, Bool[np.ndarray, "_"]]:
    """Mask, by image, of the features that doubted pairs match, and of those that many matches lead from to such features.

    `features` are the numbers of features of the images.
    """
    marked = {name: np.zeros(count, dtype=bool) for name, count in features.items()}
    for a, b in doubted:
        marked[a][pairs[a, b].inliers[:, 0]] = True
        marked[b][pairs[a, b].inliers[:, 1]] = True
    for _ in range(HOPS if doubted else 0):
        leads = {name: np.zeros((2, count)) for name, count in features.items()}
        for (a, b), pair in pairs.items():
            for x, y, rows in ((a, b, pair.inliers), (b, a, pair.inliers[:, ::-1])):
                np.add.at(leads[x][0], rows[:, 0], 1.0)
                np.add.at(leads[x][1], rows[:, 0], marked[y][rows[:, 1]].astype(np.float64))
        marked = {name: marked[name] | ((counts[1] >= 2) & (counts[1] >= LEADS * counts[0])) for name, counts in leads.items()}
    return marked


def missing_around(
    left: MapImage, right: MapImage, rows: Int64[np.ndarray, "matches 2"], used: Int64[np.ndarray, "features"]
) -> Missing:
    """Known features of `left` that the matches `rows` place in `right`, and those in cells where no feature matches.

    The matches' affine map of least squares places them. `used` is the number of images that each feature of `left` matches.
    """
    at, to = left.keypoints.astype(np.float64), right.keypoints.astype(np.float64)
    matched = np.zeros(len(at), dtype=bool)
    matched[rows[:, 0]] = True
    placed = _affine(at[rows[:, 0]], to[rows[:, 1]], at)
    size = np.array([right.camera.width_px, right.camera.height_px], dtype=np.float64)
    inside = ((placed > MARGIN * size) & (placed < (1 - MARGIN) * size)).all(axis=1)
    known = inside & (matched | (used >= KNOWN))
    cell = (placed[known] / size * CELLS).astype(np.int64) @ [CELLS, 1]
    total = np.bincount(cell, minlength=CELLS * CELLS)
    hits = np.bincount(cell, weights=matched[known], minlength=CELLS * CELLS)
    some = hits > 0
    share = float(hits[some].sum()) / max(1, int(total[some].sum()))
    missing = int(total[~some].sum())
    # The cells' own features raise the share where it is counted, so one more miss is counted with them.
    rate = min(share, 1 - 1 / (int(total[some].sum()) + 1))
    return Missing(expected=int(total.sum()), missing=missing, log10_chance=missing * math.log10(1 - rate))


def _affine(
    source: Float64[np.ndarray, "matches 2"], target: Float64[np.ndarray, "matches 2"], points: Float64[np.ndarray, "n 2"]
) -> Float64[np.ndarray, "n 2"]:
    """Points after the affine map of least squares from `source` to `target`."""
    middle = source.mean(axis=0)
    system = np.hstack([source - middle, np.ones((len(source), 1))])
    solution = np.linalg.lstsq(system, target, rcond=None)[0]
    return np.asarray(np.hstack([points - middle, np.ones((len(points), 1))]) @ solution)
