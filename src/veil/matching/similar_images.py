"""Which images look like which, from their subspaces alone: words propose pairs of features, distances decide.

A subspace passes near the words of its true descriptor and of its decoys, and by accident near others. Two features that share
a near word are compared by their distance, as matching would compare them (Dusmanu et al. 2021, Eq. 2), and count as a vote for
their images if they are much nearer than the nearest of unrelated features are. No descriptor of a whole image leaves a device
(docs/theory/scale.md#retrieval, Eq. 1-3).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float32, Int64

from veil import distances
from veil.errors import InputError
from veil.forms import Subspaces
from veil.matching.neighbors import decoy_distance
from veil.matching.voting import Listed, voters
from veil.matching.word_distances import Usual, chunks, rows_of, smallest
from veil.progress import Progress
from veil.space import require_same
from veil.threads import shared

# Words that each feature is listed under: those that it is nearest to, beside what is usual for the word.
LISTED = 10
# Features that stand for unrelated ones, and how many of them, the nearest, tell how near unrelated features come.
UNRELATED, NEAREST = 1000, 3
# A pair of features votes if its distance is at most this share of the smaller of both features' distances to unrelated ones.
VOTING_SHARE = 0.65
# Votes that are added to what is usual between two images, so that one vote says little.
ACCIDENTS = 8.0
# Features that are compared with as many at a time, and words that one thread takes at a time.
_TOGETHER, _WORDS = 256, 64


@dataclass(frozen=True, kw_only=True, eq=False)
class Background:
    """Usual similarity of unrelated features of one kind of uploads, from which an unusual one is told.

    - `words`, float32 (K, dim): the public dictionary in the uploads' space.
    - `mean`, `deviation`, float32 (K,): of the distance of an unrelated subspace to each word.
    - `unrelated`: the features that stand for unrelated ones.
    - `decoys`: distance up to which two subspaces may share a decoy.
    """

    words: Float32[np.ndarray, "words dim"]
    mean: Float32[np.ndarray, "words"]
    deviation: Float32[np.ndarray, "words"]
    unrelated: Subspaces
    decoys: float

    @staticmethod
    def of(forms: Mapping[str, Subspaces], words: Float32[np.ndarray, "words dim"]) -> Background:
        """The background of these images, by features that are spread evenly over them.

        Raises InputError for words of another dimension or for images without any feature, SpaceError for images of several
        spaces.
        """
        names = sorted(forms)
        if len(names) > UNRELATED:
            names = [names[i * len(names) // UNRELATED] for i in range(UNRELATED)]
        each, parts = max(1, UNRELATED // max(1, len(names))), []
        for name in names:
            form = forms[name]
            if len(form):
                parts.append(form.take(np.linspace(0, len(form) - 1, min(each, len(form))).astype(np.int64)))
        if not parts:
            raise InputError("none of the images has a feature; extract them again")
        first = parts[0]
        for part in parts:
            require_same(first.space, part.space)
        if words.shape[1] != first.space.dim:
            raise InputError(f"the dictionary's words have {words.shape[1]} dimensions, the subspaces {first.space.dim}")
        unrelated = _joined(parts)
        usual = Usual.of(rows_of(unrelated), words)
        decoys = decoy_distance(first, first)
        return Background(words=words, mean=usual.mean, deviation=usual.deviation, unrelated=unrelated, decoys=decoys)

    def nearest_words(self, form: Subspaces, listed: int = LISTED) -> Int64[np.ndarray, "features listed"]:
        """The words that each feature is nearest to in units of what is usual for the word, ascending."""
        count = min(listed, len(self.words))
        words = np.empty((len(form), count), dtype=np.int64)
        numbers, usual = rows_of(form), Usual(mean=self.mean, deviation=self.deviation)
        for rows in chunks(len(form)):
            unusual = usual.unusual(numbers[rows], self.words)
            words[rows] = np.sort(smallest(unusual, count), axis=1)
        return words

    def distinctive(
        self, form: Subspaces, share: float
    ) -> tuple[Int64[np.ndarray, "features"], Float32[np.ndarray, "features"]]:
        """Rows, ascending, of the share of an image's features that have the largest reach, and this: unlike most others."""
        reach = self.reach(form)
        rows = np.sort(np.argsort(-reach, kind="stable")[: math.ceil(share * len(form))])
        return rows, reach[rows]

    def reach(self, form: Subspaces, *, threads: int = 1) -> Float32[np.ndarray, "features"]:
        """Mean distance of each feature to the `NEAREST` of the unrelated ones that it shares no decoy with (Eq. 2)."""
        if not len(form):
            return np.empty(0, dtype=np.float32)
        count = min(len(self.unrelated), 4 * NEAREST)
        sets = (form.origin, form.basis), (self.unrelated.origin, self.unrelated.basis)
        distance = distances.nearest(*sets, count, threads=threads).distance
        beyond = np.sort(np.where(distance > self.decoys, distance, np.inf), axis=1)[:, :NEAREST]
        usable = np.isfinite(beyond)
        total = np.where(usable, beyond, 0.0).sum(axis=1)
        return np.where(usable.any(axis=1), total / np.maximum(usable.sum(axis=1), 1), 0.0).astype(np.float32)


@dataclass(frozen=True, kw_only=True, eq=False)
class SubspaceIndex:
    """Images by the words of their features.

    - `names`: of the images, sorted.
    - `starts`, `rows`: word w lists the features `rows[starts[w] : starts[w + 1]]`.
    - `numbers`, float32 (features, m + 1, dim): origin and basis of each feature.
    - `image`, `reach`, `words`: of each feature, its image's row in `names`, `Background.reach` and `Background.nearest_words`.
    """

    names: tuple[str, ...]
    background: Background
    starts: Int64[np.ndarray, "bounds"]
    rows: Int64[np.ndarray, "listed"]
    numbers: Float32[np.ndarray, "features sides dim"]
    image: Int64[np.ndarray, "features"]
    reach: Float32[np.ndarray, "features"]
    words: Int64[np.ndarray, "features each"]

    @staticmethod
    def of(
        forms: Mapping[str, Subspaces],
        background: Background,
        *,
        listed: int = LISTED,
        share: float = 1.0,
        threads: int = 1,
        progress: Progress | None = None,
    ) -> SubspaceIndex:
        """Index images, which all must live in the background's space, `threads` of them at a time.

        - `listed`: words that each feature is listed under.
        - `share`: share of each image's features in the index, those of largest reach: unlike most others, they find their own
          kind with few accidents.
        - `progress`: called with the number of images that are indexed and of all.

        Raises SpaceError for another space.
        """
        names = tuple(sorted(forms))

        def indexed(name: str) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
            form = forms[name]
            require_same(background.unrelated.space, form.space)
            rows, reach = background.distinctive(form, share)
            form = form.take(rows)
            return background.nearest_words(form, listed), reach, rows_of(form)

        words, reach, numbers = [], [], []
        for done, (own_words, own_reach, own_numbers) in enumerate(shared(indexed, names, threads), start=1):
            words.append(own_words)
            reach.append(own_reach)
            numbers.append(own_numbers)
            if progress is not None:
                progress(done, len(names))
        under = np.concatenate(words)
        order = np.argsort(under.ravel(), kind="stable")
        return SubspaceIndex(
            names=names,
            background=background,
            starts=np.searchsorted(under.ravel()[order], np.arange(len(background.words) + 1)).astype(np.int64),
            rows=order // max(1, under.shape[1]),
            numbers=np.concatenate(numbers),
            image=np.repeat(np.arange(len(names)), [len(own) for own in reach]),
            reach=np.concatenate(reach),
            words=under,
        )

    def under(self, word: int) -> Iterator[Listed]:
        """The features that are listed under a word, some hundred at a time."""
        rows = self.rows[self.starts[word] : self.starts[word + 1]]
        for start in range(0, len(rows), _TOGETHER):
            part = rows[start : start + _TOGETHER]
            numbers = self.numbers[part].reshape(-1, self.numbers.shape[2])
            yield Listed(numbers, self.image[part], self.reach[part], self.words[part])


def votes_for(
    asked: SubspaceIndex, listed: SubspaceIndex, *, threads: int = 1, progress: Progress | None = None
) -> Int64[np.ndarray, "asked listed"]:
    """Votes of each asked image for each listed one: pairs of features that share a word and are unusually near (Eq. 3).

    Both must have one background. Where both are the same index, no image votes for itself. `threads` words are compared at a
    time; `progress` is called with the number of words and of all.
    """
    before = 0 if asked is listed else len(asked.names)
    votes = np.zeros((len(asked.names), len(listed.names)), dtype=np.int64)
    background = listed.background

    def of_words(words: range) -> Int64[np.ndarray, "votes"]:
        pair_keys = [np.empty(0, dtype=np.int64)]
        for word in words:
            for one in asked.under(word):
                # Asked images of another index come before all listed ones; within one index, each two are compared once.
                first = one._replace(image=one.image - before)
                for other in listed.under(word):
                    a, b = voters(first, other, word, background.decoys, VOTING_SHARE)
                    pair_keys.append((a + before) * len(listed.names) + b)
        return np.concatenate(pair_keys)

    count = len(background.words)
    parts = [range(start, min(start + _WORDS, count)) for start in range(0, count, _WORDS)]
    for part, keys in zip(parts, shared(of_words, parts, threads), strict=True):
        np.add.at(votes.reshape(-1), keys, 1)
        if progress is not None:
            progress(part.stop, count)
    return votes + votes.T if asked is listed else votes


def usual_votes(
    votes: Int64[np.ndarray, "images images"], *, accidents: float = ACCIDENTS
) -> Float32[np.ndarray, "images images"]:
    """Votes in standard deviations above those that are usual for both images (Eq. 4).

    Some images get votes from everywhere, as some give many: from an image that gives the share g of all votes to one that gets
    the share h, g h of all votes are usual. `accidents` keep images with few votes from seeming unusual.
    """
    total = max(1.0, float(votes.sum()))
    usual = np.outer(votes.sum(axis=1), votes.sum(axis=0)) / total
    return ((votes - usual) / np.sqrt(usual + accidents)).astype(np.float32)


def _joined(parts: list[Subspaces]) -> Subspaces:
    """The features of several images of one space as if they were one image's."""
    first = parts[0]
    return Subspaces(
        origin=np.concatenate([part.origin for part in parts]),
        basis=np.concatenate([part.basis for part in parts]),
        space=first.space,
        guarantee=first.guarantee,
        profile=first.profile,
        releasable=False,
    )
