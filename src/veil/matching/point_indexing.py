"""Indexes of a map's points: the words that all views of a point are near, and the views that are kept of it.

What an index answers is in `veil.matching.point_index` (docs/theory/scale.md#queries, Eq. 9).
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from jaxtyping import Float16, Float32, Int64

from veil.errors import InputError
from veil.forms import Flat, Points
from veil.matching.neighbors import decoy_distance
from veil.matching.point_index import SAMPLED, PointIndex, ranges
from veil.matching.word_distances import TOGETHER, Usual, rows_of, smallest
from veil.progress import Progress
from veil.space import require_same
from veil.threads import shared

# Views that are kept of each point, and least number of them that tell its words from accidents.
VIEWS, LEAST_VIEWS = 5, 3
# Points with fewer views are listed too for images that see fewer listed points than this: what the map knows from few images
# would not be found otherwise, least of all where a copy of it is known from many.
FEW = 200
# Words that each point is listed under.
ENTERED = 1


def index_points(
    forms: Mapping[str, tuple[Flat, Int64[np.ndarray, "_"]]],
    words: Float32[np.ndarray, "words dim"],
    points: int,
    *,
    entered: int = ENTERED,
    known: PointIndex | None = None,
    threads: int = 1,
    progress: Progress | None = None,
) -> PointIndex:
    """Index the points of a map by words that are near all their views (Eq. 9).

    - `forms`: by image name, the descriptors of the features that observe a point, and the row of that point; all in one space.
    - `words`, float32 (K, dim): the public dictionary in that space.
    - `points`: number of the map's points.
    - `entered`: words that each point is listed under.
    - `known`: index of the map before it grew; what is usual is taken from it, and points whose views are the same keep their
      words. None, or one of other words: all points are compared with all words.
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
    chosen = _points_to_list(bounds, image[order])
    if known is not None and np.array_equal(known.words, words) and known.views.shape[1:] == views.shape[1:]:
        usual = Usual(mean=known.mean, deviation=known.deviation)
        listed = _kept_words(known, views, starts, chosen, entered)
    else:
        sample = np.unique(np.linspace(0, len(kept) - 1, SAMPLED).astype(np.int64))
        usual = Usual.of(views[sample].astype(np.float32), words)
        listed = np.full((len(chosen), entered), -1, dtype=np.int64)
    new = np.flatnonzero(listed[:, 0] < 0)
    listed[new] = _words_of_points(views, starts, chosen[new], words, usual, entered, threads, progress)
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


def _kept_words(
    known: PointIndex,
    views: Float16[np.ndarray, "views sides dim"],
    starts: Int64[np.ndarray, "bounds"],
    points: Int64[np.ndarray, "points"],
    entered: int,
) -> Int64[np.ndarray, "points entered"]:
    """The words under which an earlier index lists points of the same views; -1 for all others."""
    words = np.repeat(np.arange(len(known.words)), np.diff(known.offsets))
    by_point = np.argsort(known.entries, kind="stable")
    bounds = np.searchsorted(known.entries[by_point], np.arange(known.points + 1))
    held = np.flatnonzero(np.diff(bounds) == entered)
    place = {known.views[known.starts[point] : known.starts[point + 1]].tobytes(): point for point in held.tolist()}
    listed = np.full((len(points), entered), -1, dtype=np.int64)
    for row, point in enumerate(points.tolist()):
        before = place.get(views[starts[point] : starts[point + 1]].tobytes())
        if before is not None:
            listed[row] = words[by_point[bounds[before] : bounds[before + 1]]]
    return listed


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
        places, begins = ranges(starts, part)
        group = np.repeat(np.arange(len(part)), np.diff([*begins, len(places)]))
        total = usual.total_unusual(views[places].astype(np.float32), words, group)
        return smallest(total, entered)

    blocks = []
    for done, rows in enumerate(shared(nearest, parts, threads), start=1):
        blocks.append(rows)
        if progress is not None and (done % 100 == 0 or done == len(parts)):
            progress(min(done * each, len(points)), len(points))
    return np.concatenate(blocks).astype(np.int64) if blocks else np.empty((0, entered), dtype=np.int64)
