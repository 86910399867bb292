"""Verified pairs of images that show two things that look the same: what surrounds the matches is missing in the other image.

Two facades of one plan match as truly as two views of one facade, and three of their images agree on all rotations. What gives
them away is what does not match (Zach, Irschara and Bischof, CVPR 2008): features around the facade that other images do match,
that the pair's geometry places within the other image, and none of which has a match there although most do on the facade
(docs/theory/scale.md, "Repeated structure").
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float64, Int64

from veil.mapping.agreement import Pair, consistent_groups
from veil.mapping.images import MapImage
from veil.mapping.verified import VerifiedPair

# Cells along each side of an image in which matched and missing features are counted.
CELLS = 6
# Share of the width and height along the border in which nothing is expected: parallax moves it out of the picture.
MARGIN = 0.08
# A feature is known if so many other images match it.
KNOWN = 2
# A pair is doubted if chance leaves so many features without a match less often than this (log10), and if those are more than
# this share of all that are expected, in both directions.
DOUBT_LOG10, DOUBT_SHARE = -6.0, 0.2
# A match of a doubted pair counts so many times against its images' being one group, as one of another pair counts for it.
DOUBT_WEIGHT = 4.0


@dataclass(frozen=True, kw_only=True)
class Missing:
    """Known features of one image that a pair places in the other one: how many, and how many lie where nothing matches.

    `log10_chance` is log10 of the probability that so many lack a match by accident.
    """

    expected: int
    missing: int
    log10_chance: float

    @property
    def doubts(self) -> bool:
        """Whether so many are missing that the other image shows something else around the matches."""
        return self.log10_chance <= DOUBT_LOG10 and self.missing > DOUBT_SHARE * self.expected


def doubted_pairs(images: Mapping[str, MapImage], pairs: Mapping[Pair, VerifiedPair]) -> frozenset[Pair]:
    """Verified pairs whose images show different things that look the same.

    They are the pairs that show it themselves (`missing_around`, in both directions), and those between two groups of images
    that such pairs hold apart. An image keeps all of its pairs if all of them would be doubted.
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
    doubted = seen | between_groups({pair: len(found.inliers) for pair, found in pairs.items()}, seen)
    alone = set(images) - {name for pair in pairs if pair not in doubted for name in pair}
    return frozenset(pair for pair in doubted if not alone & {*pair})


def between_groups(counts: Mapping[Pair, int], doubted: frozenset[Pair]) -> frozenset[Pair]:
    """Pairs between groups of images that doubted pairs hold apart, by the numbers of their matches.

    The images of doubted pairs are gathered by correlation clustering, in which a doubted pair speaks against its images' being
    together. Their neighbors belong to the group that they have most matches with.
    """
    disputed = {name for pair in doubted for name in pair}
    weights = {
        pair: -DOUBT_WEIGHT * count if pair in doubted else float(count)
        for pair, count in counts.items()
        if {*pair} <= disputed
    }
    group_of = {name: k for k, group in enumerate(consistent_groups(disputed, weights)) for name in group}
    apart = {frozenset((group_of[a], group_of[b])) for a, b in doubted if group_of[a] != group_of[b]}
    held: dict[str, Counter[int]] = {}
    for pair, count in counts.items():
        for name, other in (pair, pair[::-1]):
            if name not in group_of and other in group_of and pair not in doubted:
                held.setdefault(name, Counter())[group_of[other]] += count
    group_of |= {name: max(sorted(sums), key=lambda k: sums[k]) for name, sums in sorted(held.items())}
    return frozenset(
        (a, b) for a, b in counts if a in group_of and b in group_of and frozenset((group_of[a], group_of[b])) in apart
    )


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
