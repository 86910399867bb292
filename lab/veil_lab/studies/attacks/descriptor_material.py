"""Material of the study of attacks by descriptor: photographs by the part that they play, books, and releases."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from veil.codebooks.codebook import Codebook, Provenance
from veil.codebooks.decoys import DecoyPool, in_runs
from veil.codebooks.eight_bits import EightBitWords
from veil.errors import InputError
from veil.features import Features
from veil.ldp.mechanism import SubsetMechanism
from veil.mechanisms.profile import Profile
from veil.mechanisms.release import privatize, privatize_words
from veil.mechanisms.selection import Selection
from veil.randomness import seeded
from veil.wire.codec_subspaces import as_sent
from veil.wire.message import Upload

SLICES = 16  # of the paper's dictionary
SUBSET_SIZE = 2  # words that are sent of a feature


@dataclass(frozen=True, kw_only=True, eq=False)
class DescribedPhotographs:
    """Raw features of one kind, by the part that their photographs play; these sets are disjoint.

    - `attacked`: whose releases are attacked, by name; `views`: a second view of each, by the same name.
    - `others`: of which the server has uploads.
    - `owned`: the attacker's own, of which its database is made.

    Raises InputError without attacked photographs or those of the attacker, or for features of several kinds.
    """

    attacked: Mapping[str, Features]
    views: Mapping[str, Features]
    others: Mapping[str, Features]
    owned: Sequence[Features]

    def __post_init__(self) -> None:
        if not self.attacked or not self.owned:
            raise InputError("attacks need photographs that are attacked, and others of the attacker; give more")
        every = [*self.attacked.values(), *self.views.values(), *self.others.values(), *self.owned]
        spaces = {str(item.space) for item in every}
        if len(spaces) > 1:
            raise InputError(f"features of one kind are attacked at a time, got {', '.join(sorted(spaces))}")

    @property
    def is_quantized(self) -> bool:
        """Whether the descriptors have 8 bits."""
        return self.owned[0].is_quantized


@dataclass(frozen=True, kw_only=True, eq=False)
class StudyBooks:
    """Books of one kind of descriptor, made of other photographs than those attacked.

    - `dictionary`: words and PCA, public; the paper's decoys are its words.
    - `decoys`: the client's pool of the hardened form.
    - `database`: real descriptors of the attacker's own photographs, which neither of the others was made of.

    Raises InputError for books of different descriptors, or a dictionary without a PCA.
    """

    dictionary: Codebook
    decoys: Codebook
    database: Codebook

    def __post_init__(self) -> None:
        spaces = {str(book.raw_space) for book in (self.dictionary, self.decoys, self.database)}
        if len(spaces) > 1:
            raise InputError(f"dictionary, decoys and database must be of one descriptor, got {', '.join(sorted(spaces))}")
        self.dictionary.compression.require_pca()

    def with_runs(self) -> StudyBooks:
        """These books with the dictionary in runs, as the paper's lifting draws its decoys."""
        return replace(self, dictionary=replace(self.dictionary, slices=min(SLICES, len(self.dictionary) // 2)))


def database_of(images: Sequence[Features], most: int, seed: int) -> DecoyPool:
    """At most `most` distinct descriptors of the attacker's photographs, drawn from `seed`."""
    stored = np.concatenate([item.descriptors for item in images])
    stored = stored[np.random.default_rng(seed).permutation(len(stored))][:most]
    stored = stored[np.sort(np.unique(stored, axis=0, return_index=True)[1])]
    return DecoyPool(
        descriptor=images[0].space.descriptor,
        normalization=images[0].space.normalization,
        stored=np.ascontiguousarray(stored),
        slices=1,
        pca=None,
        dither_steps=0.0,
        provenance=Provenance(
            source="the attacker's photographs", license="", image_count=len(images), descriptor_count=len(stored)
        ),
    )


def in_subspaces(features: Features, books: StudyBooks, profile: Profile, *, selection: Selection, case: str) -> Upload:
    """The release of one photograph in subspaces as a server gets it; `case` seeds the draws."""
    decoys = books.dictionary
    if profile.decoys == "descriptors":
        decoys = in_runs(books.decoys, (selection.features or len(features)) * profile.decoy_count)
    made = privatize(
        features,
        profile=profile,
        compression=books.dictionary.compression,
        decoys=decoys,
        randomness=seeded(case),
        selection=selection,
    ).upload
    assert isinstance(made, Upload)
    return replace(made, form=as_sent(made.form, profile.dtype))  # type: ignore[arg-type]


def in_words(features: Features, dictionary: Codebook, *, epsilon: float, most: int, case: str) -> Upload:
    """The release of one photograph in words of an epsilon a feature; `case` seeds the draws."""
    made = privatize_words(
        features,
        mechanism=SubsetMechanism(dictionary_size=len(dictionary), epsilon=epsilon, m=SUBSET_SIZE),
        dictionary=dictionary,
        randomness=seeded(case),
        features_sent=most,
    ).upload
    assert isinstance(made, Upload)
    return made


def in_eight_bits(features: Features) -> Features:
    """Float descriptors as an extractor stores them that rounds each to 8 bits and a sign, and scales it to unit length."""
    levels = EightBitWords.of(features.descriptors, seed=0).levels.astype(np.float64)
    unit = levels / np.linalg.norm(levels, axis=1, keepdims=True)
    digest = hashlib.blake2b(b"eight bits|" + features.image_digest, digest_size=32).digest()
    return replace(features, descriptors=unit.astype(np.float32), image_digest=digest)
