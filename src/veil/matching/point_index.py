"""Which images of a map a query looks like: the map's points are listed under words, and near points vote for their images.

A point of a map was seen by several images, whose subspaces share its descriptor and hardly a decoy. Words that are near all of
them are near the descriptor, so that a point needs few words, and its views tell a feature that sees it from accidents. This
is what whoever matches a private map learns (release.md#matched-features-are-known-to-whoever-matches-them), and no more.
Points of a public map are found in the same way (docs/theory/scale.md#queries, Eq. 9-12).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from jaxtyping import Float16, Float32, Float64, Int32, Int64

from veil import distances
from veil.errors import InputError
from veil.forms import Flat, Points, canonical
from veil.matching.neighbors import as_set, decoy_distance
from veil.matching.voting import distances_of_pairs
from veil.matching.word_distances import TOGETHER, Usual, chunks, rows_of, smallest
from veil.progress import Progress
from veil.space import Space, require_same
from veil.threads import shared

# Views that are kept of each point, and least number of them that tell its words from accidents.
VIEWS, LEAST_VIEWS = 5, 3
# Points with fewer views are listed too for images that see fewer listed points than this.
FEW = 50
# Words that each point is listed under, and that each feature of a query looks under.
ENTERED, LOOKED_UP = 1, 6
# Points that stand for those that a feature does not see, and how many of them, the nearest, tell how near such points come.
UNRELATED, NEAREST = 100, 3
# A feature votes for a point if its mean distance to the point's views is at most this share of that to unrelated points; up
# to the second share it gives a thousandth of a vote, which orders images that have no other.
VOTING_SHARE, HINTING_SHARE, HINT = 0.4, 0.8, 1e-3
# At most so many images are named if hints alone speak for them: a query of another place should not take long.
HINTED = 10
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
        weight = np.zeros(self.points)
        weight[points] = HINT
        weight[points[ratios <= VOTING_SHARE]] = 1.0
        voted = np.flatnonzero(weight)
        places, _ = _ranges(self.seen_from, voted)
        counts = np.diff(self.seen_from)[voted]
        votes = np.bincount(self.images[places], np.repeat(weight[voted], counts), minlength=len(self.image_names))
        seen = np.bincount(self.images, minlength=len(self.image_names))
        return (votes / np.sqrt(seen + 1.0)).astype(np.float32)

    def votes(
        self, query: Flat, *, threads: int = 1
    ) -> tuple[Int64[np.ndarray, "votes"], Int64[np.ndarray, "votes"], Float32[np.ndarray, "votes"]]:
        """Rows of features of the query, points near them, and shares of what is usual at which these are (Eq. 11)."""
        require_same(query.space, self.space)
        numbers = rows_of(query)
        if not len(numbers) or not self.points:
            return np.empty(0, dtype=np.int64), np.empty(0, dtype=np.int64), np.empty(0, dtype=np.float32)
        decoys = self._decoys(query)
        reach = self._reach(query, decoys)
        usual = self._usual_of(query)

        def looked_up(part: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
            words = smallest(usual.unusual(numbers[part], self.words), LOOKED_UP)
            rows, points, ratios = self._near(numbers[part], words, reach[part], decoys)
            return part[rows], points, ratios

        found = list(shared(looked_up, chunks(len(numbers)), threads))
        rows, points, ratios = (np.concatenate(column) for column in zip(*found, strict=True))
        return rows, points, ratios

    def _near(
        self,
        features: Float32[np.ndarray, "features sides dim"],
        words: Int64[np.ndarray, "features looked_up"],
        reach: Float32[np.ndarray, "features"],
        decoys: float,
    ) -> tuple[Int64[np.ndarray, "near"], Int64[np.ndarray, "near"], Float32[np.ndarray, "near"]]:
        """Rows of some features, points near them among those of their words, and mean distances as shares of their reach."""
        places, begins = _ranges(self.offsets, words.ravel())
        listed = np.diff([*begins, len(places)]).reshape(words.shape).sum(axis=1)
        keys = np.unique(np.repeat(np.arange(len(features)), listed) * self.points + self.entries[places])
        rows, points = keys // self.points, keys % self.points
        first = self.views[self.starts[points]].astype(np.float32)
        near = distances_of_pairs(features, rows, first) <= reach[rows]
        rows, points = rows[near], points[near]
        places, begins = _ranges(self.starts, points)
        counts = self.starts[points + 1] - self.starts[points]
        found = distances_of_pairs(features, np.repeat(rows, counts), self.views[places].astype(np.float32))
        means = mean_beyond(found[None], begins, decoys)[0] if len(points) else np.empty(0, dtype=np.float32)
        ratios = means / np.maximum(reach[rows], np.float32(1e-9))
        near = ratios <= HINTING_SHARE
        return rows[near], points[near], ratios[near]

    def _reach(self, query: Flat, decoys: float) -> Float32[np.ndarray, "features"]:
        """Mean distance of each feature to the nearest of some points that it does not see (Eq. 10)."""
        points = np.unique(np.linspace(0, self.points - 1, min(UNRELATED, self.points)).astype(np.int64))
        points = points[self.starts[points + 1] > self.starts[points]]
        places, begins = _ranges(self.starts, points)
        numbers = self.views[places].astype(np.float32)
        listed = numbers[:, 0].copy(), (numbers[:, 1:].copy() if numbers.shape[1] > 1 else None)
        found = mean_beyond(distances.pairwise(as_set(query), listed).astype(np.float32), begins, decoys)
        return np.sort(found, axis=1)[:, :NEAREST].mean(axis=1).astype(np.float32)

    def _decoys(self, query: Flat) -> float:
        """Distance up to which a feature of the query and a view may share a decoy."""
        return (
            self.space.decoy_distance
            if self.hardened and not isinstance(query, Points) and query.profile == "hardened"
            else 0.0
        )

    def _usual_of(self, query: Flat) -> Usual:
        """What is usual among unrelated features of the query's kind.

        Those of the map are of this kind, or points, through which subspaces of the query's dimension are laid.
        """
        m = 0 if isinstance(query, Points) else query.m
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


def index_points(
    forms: Mapping[str, tuple[Flat, Int64[np.ndarray, "_"]]],
    words: Float32[np.ndarray, "words dim"],
    points: int,
    *,
    entered: int = ENTERED,
    threads: int = 1,
    progress: Progress | None = None,
) -> PointIndex:
    """Index the points of a map by words that are near all their views (Eq. 9).

    - `forms`: by image name, the descriptors of the features that observe a point, and the row of that point; all in one space.
    - `words`, float32 (K, dim): the public dictionary in that space.
    - `points`: number of the map's points.
    - `entered`: words that each point is listed under.
    - `threads`: numbers of groups of points that are compared with the words at a time.
    - `progress`: called with the number of points that are indexed and of all.

    Raises SpaceError for images of several spaces, InputError for words of another dimension or a map without any view.
    """
    usable = {name: item for name, item in forms.items() if len(item[1])}
    if not usable:
        raise InputError("none of the map's images observes a point; build the map again")
    first = next(iter(usable.values()))[0]
    for form, _ in usable.values():
        require_same(first.space, form.space)
    if words.shape[1] != first.space.dim:
        raise InputError(f"the dictionary's words have {words.shape[1]} dimensions, the descriptors {first.space.dim}")
    names = tuple(forms)
    seen = np.concatenate([rows for _, rows in forms.values()])
    image = np.repeat(np.arange(len(names)), [len(rows) for _, rows in forms.values()])
    order = np.argsort(seen, kind="stable")
    bounds = np.searchsorted(seen[order], np.arange(points + 1))
    kept = _spread(bounds)
    views = np.empty((len(kept), 1 if isinstance(first, Points) else 1 + first.m, first.space.dim), dtype=np.float16)
    place = np.full(len(seen), -1)
    place[order[kept]] = np.arange(len(kept))
    begin = 0
    for form, rows in forms.values():
        own = place[begin : begin + len(rows)]
        views[own[own >= 0]] = rows_of(form)[own >= 0]
        begin += len(rows)
    starts = np.searchsorted(seen[order][kept], np.arange(points + 1)).astype(np.int64)
    sample = np.unique(np.linspace(0, len(kept) - 1, SAMPLED).astype(np.int64))
    usual = Usual.of(views[sample].astype(np.float32), words)
    chosen = _points_to_list(bounds, image[order])
    listed = _words_of_points(views, starts, chosen, words, usual, entered, threads, progress)
    order_of_words = np.argsort(listed.ravel(), kind="stable")
    return PointIndex(
        space=first.space,
        hardened=not isinstance(first, Points) and decoy_distance(first, first) > 0,
        image_names=names,
        words=words,
        mean=usual.mean,
        deviation=usual.deviation,
        offsets=np.searchsorted(listed.ravel()[order_of_words], np.arange(len(words) + 1)).astype(np.int64),
        entries=np.repeat(chosen, listed.shape[1])[order_of_words].astype(np.int32),
        starts=starts,
        views=views,
        seen_from=bounds.astype(np.int64),
        images=image[order].astype(np.int32),
    )


def _spread(bounds: Int64[np.ndarray, "bounds"]) -> Int64[np.ndarray, "kept"]:
    """Up to `VIEWS` of the observations of each point, spread evenly over them, as places in the order of points."""
    counts = np.diff(bounds)
    chosen = [bounds[:-1] + (number * counts) // VIEWS for number in range(VIEWS)]
    held = [(counts >= VIEWS) | (number < counts) for number in range(VIEWS)]
    few = [np.where(counts >= VIEWS, places, bounds[:-1] + number) for number, places in enumerate(chosen)]
    return np.sort(np.concatenate([places[mask] for places, mask in zip(few, held, strict=True)]))


def _points_to_list(
    bounds: Int64[np.ndarray, "bounds"], image: Int64[np.ndarray, "observations"]
) -> Int64[np.ndarray, "points"]:
    """Points with enough views, and all points of images that would have few; `image` is that of each observation, by point."""
    counts = np.diff(bounds)
    enough = counts >= LEAST_VIEWS
    observed = np.repeat(enough, counts)
    few = np.bincount(image[observed], minlength=int(image.max()) + 1) < FEW
    more = np.zeros(len(counts), dtype=bool)
    more[np.repeat(np.arange(len(counts)), counts)[few[image]]] = True
    return np.flatnonzero(enough | more)


def _words_of_points(
    views: Float16[np.ndarray, "views sides dim"],
    starts: Int64[np.ndarray, "bounds"],
    points: Int64[np.ndarray, "points"],
    words: Float32[np.ndarray, "words dim"],
    usual: Usual,
    entered: int,
    threads: int,
    progress: Progress | None,
) -> Int64[np.ndarray, "points entered"]:
    """The words that each of some points is listed under, ascending points with views."""
    each = max(1, TOGETHER // VIEWS)
    parts = [points[start : start + each] for start in range(0, len(points), each)]

    def nearest(part: np.ndarray) -> np.ndarray:
        places, begins = _ranges(starts, part)
        group = np.repeat(np.arange(len(part)), np.diff([*begins, len(places)]))
        total = usual.total_unusual(views[places].astype(np.float32), words, group)
        return smallest(total, entered)

    found = []
    for done, rows in enumerate(shared(nearest, parts, threads), start=1):
        found.append(rows)
        if progress is not None and (done % 100 == 0 or done == len(parts)):
            progress(min(done * each, len(points)), len(points))
    return np.concatenate(found).astype(np.int64)


def _ranges(
    starts: Int64[np.ndarray, "bounds"], rows: Int64[np.ndarray, "rows"]
) -> tuple[Int64[np.ndarray, "places"], Int64[np.ndarray, "rows"]]:
    """All places from `starts[row]` to `starts[row + 1]` of each row, one row after the other, and where each row begins."""
    counts = starts[rows + 1] - starts[rows]
    begins = np.cumsum(counts) - counts
    return np.arange(counts.sum()) - np.repeat(begins, counts) + np.repeat(starts[rows], counts), begins


def mean_beyond(
    found: Float32[np.ndarray, "features views"], begins: Int64[np.ndarray, "points"], decoys: float
) -> Float32[np.ndarray, "features points"]:
    """Mean distance to the views of each point that share no decoy with the feature; infinite where no view is left.

    The views of point p are the columns from `begins[p]` on.
    """
    beyond = found > decoys if decoys else np.ones(found.shape, dtype=bool)
    total = np.add.reduceat(np.where(beyond, found, 0.0), begins, axis=1)
    count = np.add.reduceat(beyond.astype(np.int64), begins, axis=1)
    return np.where(count > 0, total / np.maximum(count, 1), np.inf).astype(np.float32)
