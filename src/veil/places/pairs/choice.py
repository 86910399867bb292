"""The choice of pairs of images that are matched: one decision, which maps of points, maps of lines and growth ask alike.

The demo and the trials of held-out photographs match all pairs of a few images, and do not ask it.

Some choices depend on matches: tracks begin with a few pairs of each image, and those of them that match name others. So pairs
are chosen in rounds (`rounds`), each of which reads the matches of those before.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from veil.codebooks.codebook import Codebook
from veil.errors import InputError, Remedy
from veil.files.codebooks import bundled_codebook
from veil.forms import Flat, Form, Points, Subspaces
from veil.matching import Matches
from veil.matching.pairs import all_pairs
from veil.matching.point_index import PointIndex, RankedImages, ranked_images
from veil.one_line import one_line
from veil.places.pairs.candidates import (
    BY_TRACKS,
    DISTINCTIVE,
    RETRIEVED,
    accidental_rate,
    clear_pairs,
    far_pairs,
    more_pairs,
    nearness,
    require_listed,
    sequential_pairs,
    similar_pairs,
    similarities,
    words_in,
)
from veil.places.pairs.images import sizes_in, types_in
from veil.places.pairs.store import read_pairs
from veil.places.pairs.tracks import pairs_by_tracks, tracks_of
from veil.progress import Progress, Steps

Pair = tuple[str, str]
# Number of images up to which all pairs are matched where nothing else is asked for: some 45,000 pairs.
ALL_UP_TO = 300
# Number of pairs of each image with which tracks begin.
SEEDS = 8
# Pairs that chains of matches name, at most, as a share of those matched before.
CHAINED = 0.05
# Number of images with which one that tracks do not reach is paired at most, where they reach others.
ALONE = 20
# Number of images up to which all that are added to a map are matched with each other.
FEW_NEW = 50
METHODS = "auto, all, tracks, retrieval, sequential, or a file with two names a line"


@dataclass(frozen=True, kw_only=True)
class PairChoice:
    """How pairs of images are chosen: `method` is "all", "tracks", "retrieval", "sequential" or "list".

    - `listed`: the pairs of a list.
    - `count`: images that tracks or retrieval pair each image with, or neighbors on each side in a sequence.
    - `automatic`: whether nobody asked for this method, so that a better one may take its place.
    """

    method: str
    listed: tuple[Pair, ...] = ()
    count: int | None = None
    automatic: bool = False

    __repr__ = one_line


def pair_choice(text: str, images: int, *, count: int | None = None) -> PairChoice:
    """The choice that a text asks for, for a number of images.

    Raises InputError for another text that is no file, FileFormatError for a file that is no list of pairs.
    """
    if text == "auto":
        return PairChoice(method="all" if images <= ALL_UP_TO else "tracks", count=count, automatic=True)
    if text in ("all", "tracks", "retrieval", "sequential"):
        return PairChoice(method=text, count=count)
    if not Path(text).is_file():
        raise InputError(
            f"{text!r} is no choice of pairs, and there is no such file", remedy=Remedy("give", "MappingOptions.pairs", METHODS)
        )
    return PairChoice(method="list", listed=tuple(read_pairs(Path(text))))


@dataclass(frozen=True, kw_only=True)
class Round:
    """Pairs that are matched together: in the `step` of this name, after a `sentence` on them is told."""

    pairs: list[Pair]
    step: str
    sentence: str


def rounds(
    forms: Mapping[str, Form],
    choice: PairChoice,
    matches: Mapping[Pair, Matches],
    *,
    codebook: Codebook | None = None,
    threads: int = 1,
    steps: Steps[Progress],
    matched_already: frozenset[str] = frozenset(),
) -> Iterator[Round]:
    """The pairs to match, round by round; each round is chosen when `matches` holds those of all rounds before.

    - `forms`: the images' features by name.
    - `codebook`: the public one whose words retrieval uses; None: the bundled one.
    - `steps`: shows progress of retrieval.
    - `matched_already`: pairs of two of these images are left out, except far ones that tell the rate of accidents.

    Words have no tracks: retrieval takes their place. Raises as `first_pairs` does.
    """
    if choice.method == "tracks" and types_in(forms) not in ({Points}, {Subspaces}):
        choice = replace(choice, method="retrieval")

    def new(pairs: list[Pair]) -> list[Pair]:
        return [(a, b) for a, b in pairs if not (a in matched_already and b in matched_already)]

    if choice.method in ("tracks", "retrieval"):
        with steps("retrieval") as bar:
            pairs = new(first_pairs(forms, choice, codebook=codebook, threads=threads, progress=bar))
    else:
        pairs = new(first_pairs(forms, choice))
    rate = 0.0
    if choice.method == "tracks":
        listed = set(pairs)
        far = [pair for pair in far_pairs(sorted(forms)) if pair not in listed]
        first = f"{len(pairs) + len(far):,} pairs of images to match first, for tracks"
        yield Round(pairs=[*pairs, *far], step="matching for tracks", sentence=first)
        rate = accidental_rate({pair: matches[pair] for pair in far} or matches, sizes_in(forms))
        if further := new(more_pairs(matches, sizes_in(forms), rate)):
            common = f"{len(further):,} more pairs of images that match a common one"
            yield Round(pairs=further, step="matching for tracks", sentence=common)
        with steps("retrieval by tracks") as bar:
            by_tracks = _pairs_by_tracks(forms, choice, matches, rate, codebook, threads, bar)
        pairs = [pair for pair in new(by_tracks) if pair not in matches]
    yield Round(pairs=pairs, step="matching", sentence=described(choice, len(forms), pairs))
    further = []
    if choice.method == "retrieval":
        further = new(more_pairs(matches, sizes_in(forms)))
    elif choice.method == "tracks":
        near = nearness(matches, sizes_in(forms), rate)
        further = new(near.pairs(choice.count or BY_TRACKS, matches, most=math.ceil(CHAINED * len(matches))))
    if further:
        common = f"{len(further):,} more pairs of images that match common ones"
        yield Round(pairs=further, step="matching further", sentence=common)


def first_pairs(
    forms: Mapping[str, Form],
    choice: PairChoice,
    *,
    codebook: Codebook | None = None,
    threads: int = 1,
    progress: Progress | None = None,
) -> list[Pair]:
    """The pairs of the first round; of tracks these are the few pairs that they begin with (`veil.places.pairs.tracks`).

    `codebook` is the public one whose words retrieval uses; by default the bundled one. Raises InputError for a list that names
    unknown images, and for features that the codebook does not fit.
    """
    names = sorted(forms)
    if choice.method == "list":
        return require_listed(choice.listed, forms)
    if choice.method == "sequential":
        return sequential_pairs(names, **({} if choice.count is None else {"overlap": choice.count}))
    if choice.method == "all":
        return all_pairs(names)
    few = choice.method == "tracks"
    book = codebook or bundled_codebook(next(iter(forms.values())).space.descriptor)
    names, similarity = similarities(forms, book, few=few, threads=threads, progress=progress)
    return similar_pairs(names, similarity, count=SEEDS if few else choice.count or RETRIEVED)


def _pairs_by_tracks(
    forms: Mapping[str, Form],
    choice: PairChoice,
    matches: Mapping[Pair, Matches],
    rate: float,
    codebook: Codebook | None,
    threads: int,
    progress: Progress,
) -> list[Pair]:
    """Pairs by tracks through clear matches, and by features for images that tracks do not reach."""
    features = sizes_in(forms)
    clear = {pair: matches[pair] for pair in clear_pairs(matches, features, rate)}
    tracked, count = tracks_of(features, clear, DISTINCTIVE)
    first = forms[min(forms)]
    assert isinstance(first, Points | Subspaces)
    words = words_in(first, codebook or bundled_codebook(first.space.descriptor))
    pairs, alone = pairs_by_tracks(forms, tracked, count, words, count=choice.count, threads=threads, progress=progress)
    if len(alone) > 1:
        by_features = replace(choice, method="retrieval", count=choice.count or (ALONE if pairs else None))
        more = first_pairs(alone, by_features, codebook=codebook, threads=threads, progress=progress)
        pairs = sorted({*pairs, *more})
    return pairs


def described(choice: PairChoice, images: int, pairs: Sequence[Pair]) -> str:
    """A sentence on the pairs that are going to be matched."""
    every = images * (images - 1) // 2
    by = {
        "all": "all of them",
        "tracks": "those that see the same points",
        "retrieval": "those that look alike",
        "sequential": "neighbors in the order of their names",
        "list": "as listed",
    }[choice.method]
    return f"{len(pairs):,} of {every:,} pairs of {images:,} images to match, {by}"


def images_like(index: PointIndex, query: Flat, codebook: Codebook | None = None, *, threads: int = 2) -> RankedImages | None:
    """The images of a map that a query or a new image is matched with, the most similar first; None if `index` is of no use.

    `codebook` is the one that brings public descriptors into the index's space; by default the bundled one.
    """
    if isinstance(query, Points) and query.space != index.space:
        book = codebook or bundled_codebook(query.space.descriptor)
        if book.compression.hardened_space != index.space or query.space != book.raw_space:
            return None
        query = book.compression.into_space(query, index.space)
    return ranked_images(index, query, threads=threads) if index.serves(query) else None


def pairs_with_map(
    ranked: Callable[[Form], RankedImages | None], forms: Mapping[str, Form], choice: PairChoice | None, *, threads: int
) -> PairChoice:
    """The pairs of new images with those of a map that its index names, and with each other.

    `ranked` gives the map's images that a new one looks like (`images_like`), None without an index that serves it. `choice`
    stays as it is if somebody asked for it, or the map has no index that serves the new images.
    """
    automatic = choice is None or choice.automatic
    if not automatic or any(ranked(form.take(np.arange(0))) is None for form in forms.values()):
        return choice or pair_choice("auto", len(forms))
    among = pair_choice("all" if len(forms) <= FEW_NEW else "retrieval", len(forms))
    pairs = first_pairs(forms, among, threads=threads) if len(forms) > 1 else []
    for name, form in forms.items():
        best = ranked(form)
        pairs += [(other, name) for other in (best.names if best else [])[:BY_TRACKS]]
    return PairChoice(method="list", listed=tuple(pairs))
