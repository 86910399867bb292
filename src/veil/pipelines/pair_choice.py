"""Which pairs of images a map is made from: all, a sequence, a list, or what retrieval from the released features finds."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import cast

import numpy as np
from jaxtyping import Float32

from veil.codebooks.codebook import Codebook
from veil.errors import InputError
from veil.files.codebooks import bundled_codebook
from veil.files.pair_lists import read_pairs
from veil.forms import Flat, Form, Points, Subsets, Subspaces
from veil.matching import Matches
from veil.matching.match_graph import Nearness
from veil.matching.pair_selection import RETRIEVED, expanded_pairs, require_listed, sequential_pairs, similar_pairs
from veil.matching.pairs import all_pairs
from veil.matching.retrieval import words_in_common
from veil.matching.similar_images import ACCIDENTS, Background, SubspaceIndex, usual_votes, votes_for
from veil.one_line import one_line
from veil.pipelines.images_on_demand import types_in
from veil.progress import Progress

# Up to so many images all pairs are matched where nothing else is asked for: some 45,000 pairs.
ALL_UP_TO = 300
# A pair of images has matched, for the choice of further pairs, if it has so many more distinctive matches than most pairs
# have by accident, in standard deviations of a Poisson count; and a distinctive match is one that passes this ratio.
CLEARLY, DISTINCTIVE = 5.0, 0.8
# Tracks begin with so many pairs of each image, found by this share of its features under so many words each.
SEEDS, SEED_SHARE, SEED_WORDS = 8, 0.25, 6
METHODS = "auto, all, tracks, retrieval, sequential, or a file with two names a line"


@dataclass(frozen=True, kw_only=True)
class PairChoice:
    """How pairs of images are chosen: `method` is "all", "tracks", "retrieval", "sequential" or "list".

    - `listed`: the pairs of a list.
    - `count`: images that tracks or retrieval pair each image with, or neighbors on each side in a sequence.
    - `automatic`: whether nobody asked for this method, so that a better one may take its place.
    """

    method: str
    listed: tuple[tuple[str, str], ...] = ()
    count: int | None = None
    automatic: bool = False

    __repr__ = one_line


def pair_choice(text: str, images: int, *, count: int | None = None) -> PairChoice:
    """The choice that --pairs asks for, for a number of images.

    Raises InputError for another text that is no file, FileFormatError for a file that is no list of pairs.
    """
    if text == "auto":
        return PairChoice(method="all" if images <= ALL_UP_TO else "tracks", count=count, automatic=True)
    if text in ("all", "tracks", "retrieval", "sequential"):
        return PairChoice(method=text, count=count)
    if not Path(text).is_file():
        raise InputError(f"--pairs takes {METHODS}; got {text!r}, and there is no such file")
    return PairChoice(method="list", listed=tuple(read_pairs(Path(text))))


def first_pairs(
    forms: Mapping[str, Form],
    choice: PairChoice,
    *,
    codebook: Codebook | None = None,
    threads: int = 1,
    progress: Progress | None = None,
) -> list[tuple[str, str]]:
    """The pairs to match first; what matched among them may name more (`more_pairs`).

    Of tracks these are the few pairs that they begin with (`veil.pipelines.track_pairs`).
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
    names, similarity = similarities(forms, few=few, codebook=codebook, threads=threads, progress=progress)
    return similar_pairs(names, similarity, count=SEEDS if few else choice.count or RETRIEVED)


def similarities(
    forms: Mapping[str, Form],
    *,
    few: bool = False,
    codebook: Codebook | None = None,
    threads: int = 1,
    progress: Progress | None = None,
) -> tuple[list[str], Float32[np.ndarray, "images images"]]:
    """Names of the images, sorted, and how much each looks like each other by its features; the larger the more.

    Subspaces by votes less those that are usual for both images, others by the words that they have in common. `few`: of each
    image's subspaces the most distinctive alone vote, which takes a small part of the time and finds the nearest views. Raises
    InputError for images of several forms, or features that the codebook does not fit.
    """
    names = sorted(forms)
    types = types_in(forms)
    if len(types) > 1:
        raise InputError("retrieval compares images of one form; map messages and raw features apart, or give --pairs all")
    book = codebook or bundled_codebook(next(iter(forms.values())).space.descriptor)
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
        raise InputError(f"the codebook's words are of [{book.raw_space}], the descriptors of [{form.space}]; give --pairs all")
    return np.bincount(book.nearest(form.vectors), minlength=len(book)).astype(np.float64)


def accidental_rate(matches: Mapping[tuple[str, str], Matches], features: Mapping[str, int]) -> float:
    """Distinctive matches that pairs have by accident, in proportion to the geometric mean of their features.

    It is the rate that half of the pairs do not exceed, so most of them must show different things; 0 without pairs.
    """
    rates = [_distinctive(found) / max(1.0, math.sqrt(features[a] * features[b])) for (a, b), found in matches.items()]
    return float(np.median(rates)) if rates else 0.0


def unusual(
    matches: Mapping[tuple[str, str], Matches], features: Mapping[str, int], rate: float
) -> dict[tuple[str, str], float]:
    """How many more distinctive matches each pair has than accidents give at this rate, in standard deviations."""
    found = {}
    for (a, b), own in matches.items():
        usual = rate * math.sqrt(features[a] * features[b])
        found[a, b] = (_distinctive(own) - usual) / math.sqrt(usual + 1)
    return found


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


def _distinctive(found: Matches) -> int:
    return int((found.ratios <= DISTINCTIVE).sum())


def described(choice: PairChoice, images: int, pairs: Sequence[tuple[str, str]]) -> str:
    """A sentence on what is going to be matched."""
    every = images * (images - 1) // 2
    by = {
        "all": "all of them",
        "tracks": "those that see the same points",
        "retrieval": "those that look alike",
        "sequential": "neighbors in the order of their names",
        "list": "as listed",
    }[choice.method]
    return f"{len(pairs):,} of {every:,} pairs of {images:,} images to match, {by}"
