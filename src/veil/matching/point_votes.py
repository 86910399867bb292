"""Which images see the same points, from tracks of several views: points of two parts of a collection that are one.

A point that three images of a sequence see is told from others more surely than a feature of one image, by words and by
distance, and there are fewer of them, so that all images are compared in a small part of the time that their features would
take (docs/theory/scale.md#tracks, Eq. 13-15).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from jaxtyping import Float32, Int64

from veil.compiled import compiled
from veil.matching.point_index import PointIndex
from veil.matching.voting import squared_distance
from veil.progress import Progress
from veil.threads import shared

# Words that a point is listed under, for the comparison of points with points.
ENTERED = 6
# Points that stand for unrelated ones, of which the three nearest tell how near unrelated points come.
UNRELATED = 100
# Two points are taken for one if their mean distance is at most this share of the smaller of both points' reaches.
VOTING_SHARE = 0.8
# What a point that both images see counts beside a pair of points that vote.
COMMON = 0.3
# Points, words and images of one task.
_POINTS, _WORDS, _IMAGES = 512, 64, 256
# Points of one word that are compared with as many at a time.
_TOGETHER = 256


class _Views(NamedTuple):
    """Views of points as the compiled comparison reads them: `rows` are origin and basis of each view, view after view.

    Point p has the views `starts[p]` to `starts[p + 1]`; `squares` are |origin|^2 of each view.
    """

    rows: Float32[np.ndarray, "rows dim"]
    starts: Int64[np.ndarray, "bounds"]
    squares: Float32[np.ndarray, "views"]


def similarity_by_points(
    index: PointIndex, *, threads: int = 1, progress: Progress | None = None
) -> Float32[np.ndarray, "images images"]:
    """How much more than usual each two images see the same points, by points that vote for each other (Eq. 15).

    `index` must list its points under some `ENTERED` words each and hold views of all of them. `threads` groups of points are
    compared at a time; `progress` is called with the number of words and of all.
    """
    from scipy.sparse import csr_array

    first, second = same_points(index, threads=threads, progress=progress)
    count, points = len(index.image_names), index.points
    seen_in = np.repeat(np.arange(points), np.diff(index.seen_from))
    sees = csr_array((np.ones(len(index.images), dtype=np.float32), (index.images, seen_in)), shape=(count, points))
    ones = np.ones(len(first), dtype=np.float32)
    voting = csr_array((ones, (first, second)), shape=(points, points))
    weights = (voting + voting.T + COMMON * csr_array((np.ones(points, dtype=np.float32), (np.arange(points),) * 2))).tocsr()
    similarity = np.empty((count, count), dtype=np.float32)
    seen = sees.T.tocsr()
    for start in range(0, count, _IMAGES):
        part = slice(start, min(start + _IMAGES, count))
        similarity[part] = (sees[part] @ weights @ seen).toarray()
    np.fill_diagonal(similarity, 0.0)
    given = similarity.sum(axis=1, dtype=np.float64)
    total = max(1.0, float(given.sum()))
    for row in range(count):
        usual = given[row] / total * given
        similarity[row] = (similarity[row] - usual) / np.sqrt(usual + 1.0)
    return similarity


def same_points(
    index: PointIndex, *, threads: int = 1, progress: Progress | None = None
) -> tuple[Int64[np.ndarray, "votes"], Int64[np.ndarray, "votes"]]:
    """Pairs of points that are listed under one word and are unusually near (Eq. 13-14), the smaller row first, each once."""
    if not index.points:
        return np.empty(0, dtype=np.int64), np.empty(0, dtype=np.int64)
    numbers = index.views.astype(np.float32)
    views = _Views(numbers.reshape(-1, numbers.shape[2]), index.starts, (numbers[:, 0] ** 2).sum(axis=1))
    delta = np.float32(index.space.decoy_distance if index.hardened else 0.0)
    reach = _reaches(views, numbers.shape[1], delta, threads)
    entries = index.entries.astype(np.int64)

    def of_words(words: range) -> Int64[np.ndarray, "votes"]:
        keys = [np.empty(0, dtype=np.int64)]
        for word in words:
            own = entries[index.offsets[word] : index.offsets[word + 1]]
            if len(own) > 1:
                keys.extend(_near_points(views, own, reach, delta))
        return np.unique(np.concatenate(keys))

    count = len(index.words)
    parts = [range(start, min(start + _WORDS, count)) for start in range(0, count, _WORDS)]
    votes = []
    for part, keys in zip(parts, shared(of_words, parts, threads), strict=True):
        votes.append(keys)
        if progress is not None:
            progress(part.stop, count)
    voting = np.unique(np.concatenate(votes))
    return voting // index.points, voting % index.points


def _reaches(views: _Views, sides: int, delta: np.float32, threads: int) -> Float32[np.ndarray, "points"]:
    """Mean of the three smallest mean distances of each point to some others that stand for unrelated ones."""
    points = len(views.starts) - 1
    sample = np.unique(np.linspace(0, points - 1, min(UNRELATED, points)).astype(np.int64))
    places = np.concatenate([np.arange(views.starts[p], views.starts[p + 1]) for p in sample])
    own = _Views(
        np.ascontiguousarray(views.rows.reshape(-1, sides, views.rows.shape[1])[places].reshape(-1, views.rows.shape[1])),
        np.concatenate([[0], np.cumsum(views.starts[sample + 1] - views.starts[sample])]),
        views.squares[places],
    )
    starts = range(0, points, _POINTS)
    parts = [(start, min(start + _POINTS, points)) for start in starts]
    return np.concatenate(list(shared(lambda part: _reach_of(views, own, sample, *part, delta), parts, threads)))


def _near_points(
    views: _Views, points: Int64[np.ndarray, "listed"], reach: Float32[np.ndarray, "points"], delta: np.float32
) -> list[Int64[np.ndarray, "votes"]]:
    """Keys of the pairs among some points, ascending, that vote: first * number of points + second."""
    sides = len(views.rows) // len(views.squares)
    parts = [points[start : start + _TOGETHER] for start in range(0, len(points), _TOGETHER)]
    firsts = [views.rows[(views.starts[part][:, None] * sides + np.arange(sides)).ravel()] for part in parts]
    keys = []
    for i, first in enumerate(parts):
        for j, second in enumerate(parts[i:], start=i):
            buffer = np.empty(len(first) * len(second), dtype=np.int64)
            count = _vote(views, first, second, firsts[i] @ firsts[j].T, reach, delta, np.float32(VOTING_SHARE), buffer)
            keys.append(buffer[:count])
    return keys


@compiled
def _reach_of(views, sample_views, sample, start, end, delta):
    """Reaches of the points `start` to `end`."""
    reaches = np.empty(end - start, dtype=np.float32)
    far = np.float32(1e6)
    for point in range(start, end):
        near = np.full(3, far)
        means = _means(views, point, sample_views, delta)
        for k in range(len(sample)):
            value = means[k]
            if sample[k] == point or value >= near[2]:
                continue
            place = 2
            while place > 0 and near[place - 1] > value:
                near[place] = near[place - 1]
                place -= 1
            near[place] = value
        total, number = np.float32(0.0), 0
        for value in near:
            if value < far:
                total += value
                number += 1
        reaches[point - start] = total / max(number, 1)
    return reaches


@compiled
def _means(views, point, others, delta):
    """Mean distances beyond `delta` of the views of a point to those of each of some others; huge where none is beyond."""
    sides = len(views.rows) // len(views.squares)
    begin, end = views.starts[point], views.starts[point + 1]
    products = views.rows[begin * sides : end * sides] @ others.rows.T
    lower, residue = np.zeros((sides, sides), dtype=np.float32), np.zeros(sides, dtype=np.float32)
    means = np.empty(len(others.starts) - 1, dtype=np.float32)
    for k in range(len(means)):
        total, number = np.float32(0.0), 0
        for i in range(end - begin):
            for j in range(others.starts[k], others.starts[k + 1]):
                gram = products[i * sides : (i + 1) * sides, j * sides : (j + 1) * sides]
                distance = np.sqrt(squared_distance(gram, views.squares[begin + i] + others.squares[j], lower, residue))
                if distance > delta:
                    total += distance
                    number += 1
        means[k] = total / np.float32(number) if number else np.float32(1e6)
    return means


@compiled
def _mean(views, a, b, delta, lower, residue):
    """Mean distance beyond `delta` of the views of two points; huge where none is beyond."""
    sides = len(views.rows) // len(views.squares)
    first, second = views.starts[a], views.starts[b]
    products = (
        views.rows[first * sides : views.starts[a + 1] * sides] @ views.rows[second * sides : views.starts[b + 1] * sides].T
    )
    total, number = np.float32(0.0), 0
    for i in range(views.starts[a + 1] - first):
        for j in range(views.starts[b + 1] - second):
            gram = products[i * sides : (i + 1) * sides, j * sides : (j + 1) * sides]
            distance = np.sqrt(squared_distance(gram, views.squares[first + i] + views.squares[second + j], lower, residue))
            if distance > delta:
                total += distance
                number += 1
    return total / np.float32(number) if number else np.float32(1e6)


@compiled
def _vote(views, first, second, products, reach, delta, share, keys):
    """Fill `keys` with those of the pairs of points that vote, by their first views and then by all; returns their number."""
    sides = len(views.rows) // len(views.squares)
    lower, residue = np.zeros((sides, sides), dtype=np.float32), np.zeros(sides, dtype=np.float32)
    number = 0
    for x in range(len(first)):
        a = first[x]
        for y in range(len(second)):
            b = second[y]
            if a >= b:
                continue
            near = min(reach[a], reach[b])
            gram = products[x * sides : (x + 1) * sides, y * sides : (y + 1) * sides]
            squares = views.squares[views.starts[a]] + views.squares[views.starts[b]]
            if squared_distance(gram, squares, lower, residue) > near * near:
                continue
            if _mean(views, a, b, delta, lower, residue) <= share * near:
                keys[number] = a * len(reach) + b
                number += 1
    return number
