"""Pairs of images that might show one place: of a list or a sequence, by retrieval, or by matches of other pairs.

Candidates cost some maps a few images and save most of the work: docs/theory/scale.md#pairs. Two views of one place from far
apart match poorly; a chain of views between them matches well. Random walks over the graph of clear pairs rank images by all
such chains (docs/theory/scale.md#chains-of-matches, Eq. 16; Zhou, Weston, Gretton, Bousquet and Schölkopf, NIPS 2003).
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from typing import cast

import numpy as np
from jaxtyping import Float, Float32, Float64

from veil.codebooks.codebook import Codebook
from veil.errors import InputError, RangeError, Remedy
from veil.forms import Flat, Form, Points, Subsets, Subspaces
from veil.matching import Matches
from veil.matching.retrieval import words_in_common
from veil.matching.similar_images import ACCIDENTS, Background, SubspaceIndex, usual_votes, votes_for
from veil.places.pairs.images import types_in
from veil.progress import Progress

# Images that retrieval and tracks pair each image with, at most, and neighbors in a sequence on each side.
RETRIEVED, BY_TRACKS, OVERLAP = 40, 20, 10
# Share of the most distinctive features of each image that finds the nearest views, and the words of each of them.
SEED_SHARE, SEED_WORDS = 0.25, 6
# Number of pairs of images that stand far from each other in the order of names: they tell how many matches are accidents.
FAR_PAIRS = 100
# A pair is clear if its distinctive matches exceed those that most pairs have by accident by more than this number of standard
# deviations of a Poisson count; a distinctive match is one that passes this ratio.
CLEARLY, DISTINCTIVE = 5.0, 0.8
# Pairs of a chain at most, and the weight of each further one.
STEPS, DAMPING = 7, 0.85
# Number of standard deviations above which a clear pair is no clearer.
CLEAREST = 30.0
# Number of nearest images of each image that are kept in each step: memory grows with the images and not with their square.
KEPT = 128


def sequential_pairs(names: Sequence[str], *, overlap: int = OVERLAP) -> list[tuple[str, str]]:
    """Pairs of images that are at most `overlap` places apart, or a power of two places up to 2^`overlap`.

    `names` are in the order in which the photographs were taken. The powers of two join parts that a blurred photograph would
    separate, as in COLMAP's sequential matching (Schönberger and Frahm 2016). Raises RangeError for an overlap below 1.
    """
    if not overlap >= 1:
        raise RangeError(f"overlap must be at least 1, got {overlap!r}")
    steps = sorted({*range(1, overlap + 1), *(1 << power for power in range(overlap + 1))})
    return [(names[i], names[i + step]) for i in range(len(names)) for step in steps if i + step < len(names)]


def similar_pairs(
    names: Sequence[str], similarity: Float[np.ndarray, "images images"], *, count: int = RETRIEVED
) -> list[tuple[str, str]]:
    """Each image with the `count` images that are most similar to it; a pair is listed once, its names sorted.

    Only positive similarities count: an image to which nothing is similar is paired with nothing. Raises RangeError for a count
    below 1.
    """
    if not count >= 1:
        raise RangeError(f"count must be at least 1, got {count!r}")
    pairs: set[tuple[str, str]] = set()
    for row, name in enumerate(names):
        scores = np.array(similarity[row], dtype=np.float64)
        scores[row] = 0.0
        best = np.argsort(-scores, kind="stable")[:count]
        pairs |= {(min(name, names[other]), max(name, names[other])) for other in best if scores[other] > 0}
    return sorted(pairs)


def expanded_pairs(matched: Collection[tuple[str, str]], tried: Collection[tuple[str, str]]) -> list[tuple[str, str]]:
    """Pairs of images that both match a third one and were not tried: COLMAP's transitive matching, one step of it.

    `matched` are the pairs that show the same thing, `tried` all that were matched. Names of a pair may stand either way round.
    """
    near: dict[str, set[str]] = defaultdict(set)
    for a, b in matched:
        near[a].add(b)
        near[b].add(a)
    known = {frozenset(pair) for pair in tried}
    expanded = {
        (min(a, b), max(a, b))
        for others in near.values()
        for a in others
        for b in others
        if a < b and frozenset((a, b)) not in known
    }
    return sorted(expanded)


def require_listed(pairs: Sequence[tuple[str, str]], names: Mapping[str, object]) -> list[tuple[str, str]]:
    """The pairs of a list, each once, whichever way round.

    Raises InputError for a pair with a name that is not among `names`, and for an image that is paired with itself.
    """
    unknown = sorted({name for pair in pairs for name in pair} - set(names))
    if unknown:
        raise InputError(
            f"the list of pairs names {len(unknown)} images that were not given, such as {unknown[0]!r}; the images are "
            f"called {', '.join(sorted(names)[:3])}, ..."
        )
    if alone := sorted({a for a, b in pairs if a == b}):
        raise InputError(f"the list of pairs pairs {alone[0]!r} with itself; remove that line")
    return list({frozenset(pair): pair for pair in pairs}.values())


def similarities(
    forms: Mapping[str, Form],
    book: Codebook,
    *,
    few: bool = False,
    threads: int = 1,
    progress: Progress | None = None,
) -> tuple[list[str], Float32[np.ndarray, "images images"]]:
    """Names of the images, sorted, and how much each looks like each other by its features; the larger the more.

    Subspaces by votes less those that are usual for both images, others by the words of `book` that they have in common. `few`:
    of each image's subspaces the most distinctive alone vote, which takes a small part of the time and finds the nearest views.
    Raises InputError for images of several forms, or features that the codebook does not fit.
    """
    names = sorted(forms)
    types = types_in(forms)
    if len(types) > 1:
        raise InputError(
            "retrieval compares images of one form",
            remedy=(Remedy("give", "images of one kind"), Remedy("give", "MappingOptions.pairs", "all")),
        )
    if types == {Subspaces}:
        subspaces = cast("Mapping[str, Subspaces]", forms)
        words = words_in(subspaces[names[0]], book)
        some = {"share": SEED_SHARE, "listed": SEED_WORDS} if few else {}
        index = SubspaceIndex.of(subspaces, Background.of(subspaces, words), **some, threads=threads)  # type: ignore[arg-type]
        votes = votes_for(index, index, threads=threads, progress=progress)
        return names, usual_votes(votes, accidents=1.0 if few else ACCIDENTS)
    return names, words_in_common([_bag(forms[name], book) for name in names])


def words_in(form: Flat, book: Codebook) -> Float32[np.ndarray, "words dim"]:
    """The codebook's words in the space of the features. Raises SpaceError where it does not lead there."""
    points = Points(vectors=book.vectors, space=book.raw_space)
    return book.compression.into_space(points, form.space).vectors


def _bag(form: Form, book: Codebook) -> Subsets | np.ndarray:
    """Words of an image as they were sent, or the nearest word of each public descriptor."""
    if isinstance(form, Subsets):
        return form
    assert isinstance(form, Points)
    if form.space != book.raw_space:
        raise InputError(
            f"the codebook's words are of [{book.raw_space}], the descriptors of [{form.space}]",
            remedy=Remedy("give", "MappingOptions.pairs", "all"),
        )
    return np.bincount(book.nearest(form.vectors), minlength=len(book)).astype(np.float64)


def far_pairs(names: Sequence[str]) -> list[tuple[str, str]]:
    """Some pairs of images half of all names apart, most of which show different things; none among few images."""
    half = len(names) // 2
    if half < FAR_PAIRS:
        return []
    rows = np.unique(np.linspace(0, half - 1, FAR_PAIRS).astype(int))
    return [(names[row], names[row + half]) for row in rows]


def accidental_rate(matches: Mapping[tuple[str, str], Matches], features: Mapping[str, int]) -> float:
    """Distinctive matches that pairs have by accident, in proportion to the geometric mean of their features.

    It is the rate that half of the pairs do not exceed, so most of them must show different things; 0 without pairs.
    """
    rates = [_distinctive(own) / max(1.0, math.sqrt(features[a] * features[b])) for (a, b), own in matches.items()]
    return float(np.median(rates)) if rates else 0.0


def unusual(
    matches: Mapping[tuple[str, str], Matches], features: Mapping[str, int], rate: float
) -> dict[tuple[str, str], float]:
    """How many more distinctive matches each pair has than accidents give at this rate, in standard deviations."""
    deviations = {}
    for (a, b), own in matches.items():
        usual = rate * math.sqrt(features[a] * features[b])
        deviations[a, b] = (_distinctive(own) - usual) / math.sqrt(usual + 1)
    return deviations


def clear_pairs(matches: Mapping[tuple[str, str], Matches], features: Mapping[str, int], rate: float) -> list[tuple[str, str]]:
    """Pairs with more distinctive matches than accidents give at this rate, by `CLEARLY` standard deviations."""
    return [pair for pair, value in unusual(matches, features, rate).items() if value > CLEARLY]


def nearness(matches: Mapping[tuple[str, str], Matches], features: Mapping[str, int], rate: float) -> Nearness:
    """How near the images of `features` are in the graph of the clear ones among matched pairs (scale.md#chains-of-matches)."""
    values = unusual(matches, features, rate)
    return Nearness({pair: value for pair, value in values.items() if value > CLEARLY}, sorted(features))


def more_pairs(
    matches: Mapping[tuple[str, str], Matches], features: Mapping[str, int], rate: float | None = None
) -> list[tuple[str, str]]:
    """Pairs of images that both clearly match a third one, and were not tried.

    `features` are the numbers of features by name, `rate` is that of accidental matches; None: that of half of all tried pairs.
    """
    if rate is None:
        rate = accidental_rate(matches, features)
    return expanded_pairs(clear_pairs(matches, features, rate), matches)


def _distinctive(matches: Matches) -> int:
    return int((matches.ratios <= DISTINCTIVE).sum())


class Nearness:
    """How near images are in the graph of clear matches.

    `strengths` gives the clear pairs and how unusual each is, in standard deviations; `names` are all images.
    """

    def __init__(self, strengths: Mapping[tuple[str, str], float], names: Sequence[str]) -> None:
        from scipy.sparse import coo_array

        self.names = tuple(names)
        row_of = {name: row for row, name in enumerate(names)}
        ends = np.array([(row_of[a], row_of[b]) for a, b in strengths], dtype=np.int64).reshape(-1, 2)
        weights = np.minimum(np.array(list(strengths.values()), dtype=np.float64), CLEAREST)
        degrees = np.bincount(ends.ravel(), np.repeat(weights, 2), minlength=len(names))
        scaled = weights / np.sqrt(degrees[ends[:, 0]] * degrees[ends[:, 1]])
        one_way = coo_array((scaled, (ends[:, 0], ends[:, 1])), shape=(len(names), len(names))).tocsr()
        step = (one_way + one_way.T).tocsr()
        reached, total = step, DAMPING * step
        for length in range(2, STEPS + 1):
            reached = _largest((reached @ step).tocsr(), KEPT)
            total = total + DAMPING**length * reached
        self._total = total.tocsr()

    def of(self, row: int) -> Float64[np.ndarray, "images"]:
        """The nearness of each image to the one at `row` of the names; 0 where no chain leads, and for itself."""
        near = self._total[[row]].toarray()[0]
        near[row] = 0.0
        return near

    def pairs(self, count: int, tried: Collection[tuple[str, str]], *, most: int | None = None) -> list[tuple[str, str]]:
        """Each image with the `count` images that are nearest to it, without those tried; names of a pair are sorted.

        `most` of them are kept, the nearest ones; None: all.
        """
        known = {frozenset(pair) for pair in tried}
        nearest: dict[tuple[str, str], float] = {}
        for row, name in enumerate(self.names):
            near = self.of(row)
            for other in np.argsort(-near, kind="stable")[:count]:
                pair = (min(name, self.names[other]), max(name, self.names[other]))
                if near[other] > 0 and frozenset(pair) not in known:
                    nearest[pair] = max(near[other], nearest.get(pair, 0.0))
        return sorted(sorted(nearest, key=lambda pair: (-nearest[pair], pair))[:most])


def _largest(rows, most: int):  # type: ignore[no-untyped-def]
    """The `most` largest entries of each row of a sparse matrix; of equal ones those of lower columns."""
    from scipy.sparse import csr_array

    counts = np.diff(rows.indptr)
    if counts.max(initial=0) <= most:
        return rows
    row = np.repeat(np.arange(len(counts)), counts)
    order = np.lexsort((rows.indices, -rows.data, row))
    rank = np.arange(len(order)) - np.repeat(rows.indptr[:-1], counts)
    kept = order[rank < most]
    return csr_array((rows.data[kept], (row[kept], rows.indices[kept])), shape=rows.shape)
