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
from veil.forms import Form, Points, Subsets, Subspaces
from veil.matching import Matches
from veil.matching.pair_selection import RETRIEVED, expanded_pairs, require_listed, sequential_pairs, similar_pairs
from veil.matching.pairs import all_pairs
from veil.matching.retrieval import words_in_common
from veil.matching.similar_images import Background, SubspaceIndex, usual_votes, votes_for
from veil.pipelines.images_on_demand import types_in
from veil.progress import Progress

# Up to so many images all pairs are matched where nothing else is asked for: some 45,000 pairs.
ALL_UP_TO = 300
# A pair of images has matched, for the choice of further pairs, if it has so many more distinctive matches than most pairs
# have by accident, in standard deviations of a Poisson count; and a distinctive match is one that passes this ratio.
CLEARLY, DISTINCTIVE = 5.0, 0.8
METHODS = "auto, all, retrieval, sequential, or a file with two names a line"


@dataclass(frozen=True, kw_only=True)
class PairChoice:
    """How pairs of images are chosen: `method` is "all", "retrieval", "sequential" or "list".

    - `listed`: the pairs of a list.
    - `count`: images that retrieval pairs each image with, or neighbors on each side in a sequence.
    """

    method: str
    listed: tuple[tuple[str, str], ...] = ()
    count: int | None = None


def pair_choice(text: str, images: int, *, count: int | None = None) -> PairChoice:
    """The choice that --pairs asks for, for a number of images.

    Raises InputError for another text that is no file, FileFormatError for a file that is no list of pairs.
    """
    if text == "auto":
        text = "all" if images <= ALL_UP_TO else "retrieval"
    if text in ("all", "retrieval", "sequential"):
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
    names, similarity = similarities(forms, codebook=codebook, threads=threads, progress=progress)
    return similar_pairs(names, similarity, count=choice.count or RETRIEVED)


def similarities(
    forms: Mapping[str, Form], *, codebook: Codebook | None = None, threads: int = 1, progress: Progress | None = None
) -> tuple[list[str], Float32[np.ndarray, "images images"]]:
    """Names of the images, sorted, and how much each looks like each other by its features; the larger the more.

    Subspaces by votes less those that are usual for both images, others by the words that they have in common. Raises
    InputError for images of several forms, or features that the codebook does not fit.
    """
    names = sorted(forms)
    types = types_in(forms)
    if len(types) > 1:
        raise InputError("retrieval compares images of one form; map messages and raw features apart, or give --pairs all")
    book = codebook or bundled_codebook()
    if types == {Subspaces}:
        subspaces = cast("Mapping[str, Subspaces]", forms)
        words = _words_in(subspaces[names[0]], book)
        index = SubspaceIndex.of(subspaces, Background.of(subspaces, words), threads=threads)
        return names, usual_votes(votes_for(index, index, threads=threads, progress=progress))
    return names, words_in_common([_bag(forms[name], book) for name in names])


def _words_in(form: Subspaces, book: Codebook) -> Float32[np.ndarray, "words dim"]:
    """The codebook's words in the space of the subspaces."""
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


def more_pairs(matches: Mapping[tuple[str, str], Matches], features: Mapping[str, int]) -> list[tuple[str, str]]:
    """Pairs of images that both clearly match a third one, and were not tried.

    `features` are the numbers of features by name. By accident images have distinctive matches in proportion to the geometric
    mean of their features, at a rate that half of all tried pairs do not exceed; a pair matches clearly if it has `CLEARLY`
    standard deviations more.
    """
    if not matches:
        return []
    counts = np.array([(found.ratios <= DISTINCTIVE).sum() for found in matches.values()], dtype=np.float64)
    sizes = np.array([math.sqrt(features[a] * features[b]) for a, b in matches])
    usual = sizes * np.median(counts / np.maximum(sizes, 1.0))
    clear = [pair for pair, more in zip(matches, counts > usual + CLEARLY * np.sqrt(usual + 1), strict=True) if more]
    return expanded_pairs(clear, matches)


def described(choice: PairChoice, images: int, pairs: Sequence[tuple[str, str]]) -> str:
    """A sentence on what is going to be matched."""
    every = images * (images - 1) // 2
    by = {
        "all": "all of them",
        "retrieval": "those that look alike",
        "sequential": "neighbors in the order of their names",
        "list": "as listed",
    }[choice.method]
    return f"{len(pairs):,} of {every:,} pairs of {images:,} images to match, {by}"
