"""Which images of a map a query looks like: the map's points are listed under words, and near points vote for their images.

A point of a map was seen by several images, whose subspaces share its descriptor and hardly a decoy. Words that are near all of
them are near the descriptor, so that a point needs few words, and its views tell a feature that sees it from accidents. This
is what whoever matches a private map learns (release.md#matched-features-are-known-to-whoever-matches-them), and no more.
Points of a public map are found in the same way (docs/theory/scale.md#queries, Eq. 9-12).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
from jaxtyping import Bool, Float16, Float32, Float64, Int32, Int64

from veil import distances
from veil.forms import Flat, Points, canonical
from veil.matching.voting import distances_of_pairs
from veil.matching.word_distances import Usual, chunks, rows_of, smallest
from veil.space import Space, require_same
from veil.threads import shared

# Words that each feature of a query looks under.
LOOKED_UP = 6
# Points that stand for those that a feature does not see, and how many of them, the nearest, tell how near such points come.
UNRELATED, NEAREST = 100, 3
# A feature votes for a point if its mean distance to the point's views is at most this share of that to unrelated points; up
# to the second share it gives a thousandth of a vote, which orders images that have no other.
VOTING_SHARE, HINTING_SHARE, HINT = 0.4, 0.8, 1e-3
# Largest number of images that are named if hints alone speak for them: a query of another place should not take long.
HINTED = 10
# Largest number of points of the map that are looked up when others that look like them are asked for.
MOST_ALIKE = 1000
# Features that stand for unrelated ones, which tell how far words usually are.
SAMPLED = 1000


@dataclass(frozen=True, kw_only=True, eq=False)
class PointIndex:
    """A map's points by words, for queries by distance.

    - `space`: of the descriptors; `hardened`: whether subspaces of two images may share decoys.
    - `image_names`: the map's images.
    - `words`, float32 (K, dim): the public dictionary in that space; `mean`, `deviation`, float32 (K,): what is usual among the
      map's features (`Usual`).
    - `offsets`, int64 (K + 1,), `entries`, int32: word w lists the points `entries[offsets[w] : offsets[w + 1]]`.
    - `starts`, int64 (points + 1,), `views`, float16 (views, m + 1, dim): point p was seen as
      `views[starts[p] : starts[p + 1]]`, origin and basis; of public maps m = 0.
    - `seen_from`, int64 (points + 1,), `images`, int32: point p is in the images `images[seen_from[p] : seen_from[p + 1]]`.
    """

    space: Space
    hardened: bool
    image_names: tuple[str, ...]
    words: Float32[np.ndarray, "words dim"]
    mean: Float32[np.ndarray, "words"]
    deviation: Float32[np.ndarray, "words"]
    offsets: Int64[np.ndarray, "bounds"]
    entries: Int32[np.ndarray, "entries"]
    starts: Int64[np.ndarray, "point_bounds"]
    views: Float16[np.ndarray, "views sides dim"]
    seen_from: Int64[np.ndarray, "point_bounds"]
    images: Int32[np.ndarray, "observations"]
    _usual: dict[int, Usual] = field(default_factory=dict, init=False, repr=False)

    @property
    def points(self) -> int:
        """Number of points."""
        return len(self.starts) - 1

    def serves(self, query: Flat) -> bool:
        """Whether queries of this kind can be looked up: features of the index's space, or public ones that it leads to."""
        return query.space == self.space

    def similar(self, query: Flat, *, threads: int = 1) -> list[str]:
        """Names of the images that a query votes for, the most similar first; where they are few, some by hints come after.

        Raises SpaceError for another space.
        """
        return self.ranked(self.scores(query, threads=threads))

    def ranked(self, scores: Float32[np.ndarray, "images"]) -> list[str]:
        """Names of the images that the scores of a query name, in the order of `similar`."""
        voted = self.votes_of(scores) > 1.0 - HINT
        order = np.lexsort((-scores, ~voted))
        count = max(int(voted.sum()), min(HINTED, int((scores > 0).sum())))
        return [self.image_names[row] for row in order[:count]]

    def votes_of(self, scores: Float32[np.ndarray, "images"]) -> Float64[np.ndarray, "images"]:
        """Votes for each image that the scores of a query stand for; hints are thousandths."""
        return scores * np.sqrt(np.bincount(self.images, minlength=len(scores)) + 1.0)

    def scores(self, query: Flat, *, threads: int = 1) -> Float32[np.ndarray, "images"]:
        """How much each image looks like a query: votes for its points, at most one each, over their number's root (Eq. 12).

        `threads` features are looked up at a time. Raises SpaceError for a query of another space.
        """
        _, points, ratios = self.votes(query, threads=threads)
        return self.scores_by(self.point_weights(points, ratios))

    def point_weights(
        self, points: Int64[np.ndarray, "votes"], ratios: Float32[np.ndarray, "votes"]
    ) -> Float64[np.ndarray, "points"]:
        """Weight of each point by what `votes` found: 1 with a vote, a thousandth with a hint, 0 with neither."""
        weight = np.zeros(self.points)
        weight[points] = HINT
        weight[points[ratios <= VOTING_SHARE]] = 1.0
        return weight

    def scores_by(self, weight: Float64[np.ndarray, "points"]) -> Float32[np.ndarray, "images"]:
        """How much each image looks like a query that gives the points these weights (Eq. 12)."""
        voted = np.flatnonzero(weight)
        places, _ = ranges(self.seen_from, voted)
        counts = np.diff(self.seen_from)[voted]
        votes = np.bincount(self.images[places], np.repeat(weight[voted], counts), minlength=len(self.image_names))
        seen = np.bincount(self.images, minlength=len(self.image_names))
        return (votes / np.sqrt(seen + 1.0)).astype(np.float32)

    def votes(
        self, query: Flat, *, threads: int = 1
    ) -> tuple[Int64[np.ndarray, "votes"], Int64[np.ndarray, "votes"], Float32[np.ndarray, "votes"]]:
        """Rows of features of the query, points near them, and shares of what is usual at which these are (Eq. 11)."""
        require_same(query.space, self.space)
        m = 0 if isinstance(query, Points) else query.m
        decoys = not isinstance(query, Points) and query.profile == "hardened"
        return self._votes(rows_of(query), self._decoys(decoys), self._usual_of(m), threads)

    def alike(
        self, points: Int64[np.ndarray, "shown"]
    ) -> tuple[Int64[np.ndarray, "votes"], Int64[np.ndarray, "votes"], Float32[np.ndarray, "votes"]]:
        """The votes of some points of the map, by the first view of each, for points that look like them.

        As those of `votes`; the first column holds indices into `points`. At most `MOST_ALIKE` of them are looked up.
        """
        held = np.flatnonzero(self.starts[points + 1] > self.starts[points])
        held = held[:: -(-len(held) // MOST_ALIKE) or 1]
        numbers = self.views[self.starts[points[held]]].astype(np.float32)
        m = numbers.shape[1] - 1
        rows, near, ratios = self._votes(numbers, self._decoys(m > 0), self._usual_of(m), 1)
        return held[rows], near, ratios

    def _votes(
        self, numbers: Float32[np.ndarray, "features sides dim"], decoys: float, usual: Usual, threads: int
    ) -> tuple[Int64[np.ndarray, "votes"], Int64[np.ndarray, "votes"], Float32[np.ndarray, "votes"]]:
        """The votes of features that are given by origin and basis."""
        if not len(numbers) or not self.points:
            return np.empty(0, dtype=np.int64), np.empty(0, dtype=np.int64), np.empty(0, dtype=np.float32)
        reach = self._reach(numbers, decoys)

        def looked_up(part: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
            words = smallest(usual.unusual(numbers[part], self.words), LOOKED_UP)
            rows, points, ratios = self._near(numbers[part], words, reach[part], decoys)
            return part[rows], points, ratios

        votes = list(shared(looked_up, chunks(len(numbers)), threads))
        rows, points, ratios = (np.concatenate(column) for column in zip(*votes, strict=True))
        return rows, points, ratios

    def _near(
        self,
        features: Float32[np.ndarray, "features sides dim"],
        words: Int64[np.ndarray, "features looked_up"],
        reach: Float32[np.ndarray, "features"],
        decoys: float,
    ) -> tuple[Int64[np.ndarray, "near"], Int64[np.ndarray, "near"], Float32[np.ndarray, "near"]]:
        """Rows of some features, points near them among those of their words, and mean distances as shares of their reach."""
        places, begins = ranges(self.offsets, words.ravel())
        listed = np.diff([*begins, len(places)]).reshape(words.shape).sum(axis=1)
        keys = np.unique(np.repeat(np.arange(len(features)), listed) * self.points + self.entries[places])
        rows, points = keys // self.points, keys % self.points
        first = self.views[self.starts[points]].astype(np.float32)
        near = distances_of_pairs(features, rows, first) <= reach[rows]
        rows, points = rows[near], points[near]
        places, begins = ranges(self.starts, points)
        counts = self.starts[points + 1] - self.starts[points]
        view_distances = distances_of_pairs(features, np.repeat(rows, counts), self.views[places].astype(np.float32))
        means = mean_beyond(view_distances[None], begins, decoys)[0] if len(points) else np.empty(0, dtype=np.float32)
        ratios = means / np.maximum(reach[rows], np.float32(1e-9))
        near = ratios <= HINTING_SHARE
        return rows[near], points[near], ratios[near]

    def _reach(self, features: Float32[np.ndarray, "features sides dim"], decoys: float) -> Float32[np.ndarray, "features"]:
        """Mean distance of each feature to the nearest of some points that it does not see (Eq. 10)."""
        points = np.unique(np.linspace(0, self.points - 1, min(UNRELATED, self.points)).astype(np.int64))
        points = points[self.starts[points + 1] > self.starts[points]]
        places, begins = ranges(self.starts, points)
        one, other = (
            (numbers[:, 0].copy(), numbers[:, 1:].copy() if numbers.shape[1] > 1 else None)
            for numbers in (features, self.views[places].astype(np.float32))
        )
        means = mean_beyond(distances.pairwise(one, other).astype(np.float32), begins, decoys)
        return np.sort(means, axis=1)[:, :NEAREST].mean(axis=1).astype(np.float32)

    def _decoys(self, hardened: bool) -> float:
        """Distance up to which a feature, hardened or not, and a view may share a decoy."""
        return self.space.decoy_distance if self.hardened and hardened else 0.0

    def _usual_of(self, m: int) -> Usual:
        """Usual similarity of unrelated features in subspaces of dimension m; 0: points.

        Those of the map are of this kind, or points, through which subspaces of the query's dimension are laid.
        """
        if m == self.views.shape[1] - 1:
            return Usual(mean=self.mean, deviation=self.deviation)
        if m not in self._usual:
            self._usual[m] = Usual.of(self._subspaces(m), self.words)
        return self._usual[m]

    def _subspaces(self, m: int) -> Float32[np.ndarray, "features sides dim"]:
        """Subspaces of dimension m through unrelated points."""
        chosen = np.random.default_rng(0).integers(0, len(self.views), (SAMPLED, m + 1))
        points = self.views[chosen.ravel(), 0].astype(np.float64).reshape(SAMPLED, m + 1, -1)
        # Points of one image may be equal; a little of another direction keeps the basis full.
        points += 1e-6 * np.random.default_rng(1).normal(size=points.shape)
        origin, basis = canonical(points[:, 0], np.linalg.qr((points[:, 1:] - points[:, :1]).swapaxes(1, 2))[0].swapaxes(1, 2))
        return np.concatenate([origin[:, None], basis], axis=1).astype(np.float32)


@dataclass(frozen=True, kw_only=True, eq=False)
class RankedImages:
    """Names of the map's images that a query looks like, the most similar first, and the votes of its features for points.

    - `names`: images, as `PointIndex.similar` orders them.
    - `keypoint_rows`, `point_rows`, int64 (votes,), `ratios`, float32 (votes,): features near points, as `PointIndex.votes`
      finds them.
    - `index`: of the map.
    """

    names: list[str]
    keypoint_rows: Int64[np.ndarray, "votes"]
    point_rows: Int64[np.ndarray, "votes"]
    ratios: Float32[np.ndarray, "votes"]
    index: PointIndex

    def elsewhere(self, explained: Bool[np.ndarray, "votes"], shown: Int64[np.ndarray, "shown"], here: Callable) -> list[str]:
        """Names of the images that look like the query for other reasons than a pose that was found, the most similar first.

        They are those for whose points the query votes, and for whose points the points vote that the pose shows. Points that
        the pose explains count for nothing.

        - `explained`: votes of the query that agree with the pose.
        - `shown`: rows of the points that agree with the pose.
        - `here`: mask of pairs of points, given as two arrays of rows, of those that the pose shows at one place.
        """
        own = self.index.point_weights(self.point_rows, self.ratios)
        own[self.point_rows[explained]] = 0.0
        rows, near, ratios = self.index.alike(shown)
        alike = self.index.point_weights(near, ratios)
        alike[near[here(shown[rows], near)]] = 0.0
        return self.index.ranked(self.index.scores_by(own + alike))


def ranked_images(index: PointIndex, query: Flat, *, threads: int = 1) -> RankedImages:
    """Images of the index's map in the order in which a query votes for them (docs/theory/scale.md, Eq. 12).

    `threads` features are looked up at a time. Raises SpaceError for a query of another space.
    """
    keypoint_rows, point_rows, ratios = index.votes(query, threads=threads)
    names = index.ranked(index.scores_by(index.point_weights(point_rows, ratios)))
    return RankedImages(names=names, keypoint_rows=keypoint_rows, point_rows=point_rows, ratios=ratios, index=index)


def ranges(
    starts: Int64[np.ndarray, "bounds"], rows: Int64[np.ndarray, "rows"]
) -> tuple[Int64[np.ndarray, "places"], Int64[np.ndarray, "rows"]]:
    """All places from `starts[row]` to `starts[row + 1]` of each row, one row after the other, and where each row begins."""
    counts = starts[rows + 1] - starts[rows]
    begins = np.cumsum(counts) - counts
    return np.arange(counts.sum()) - np.repeat(begins, counts) + np.repeat(starts[rows], counts), begins


def mean_beyond(
    view_distances: Float32[np.ndarray, "features views"], begins: Int64[np.ndarray, "points"], decoys: float
) -> Float32[np.ndarray, "features points"]:
    """Mean distance to the views of each point that share no decoy with the feature; infinite where no view is left.

    The views of point p are the columns from `begins[p]` on.
    """
    beyond = view_distances > decoys if decoys else np.ones(view_distances.shape, dtype=bool)
    total = np.add.reduceat(np.where(beyond, view_distances, 0.0), begins, axis=1)
    count = np.add.reduceat(beyond.astype(np.int64), begins, axis=1)
    return np.where(count > 0, total / np.maximum(count, 1), np.inf).astype(np.float32)
