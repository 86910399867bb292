"""SIFT of the bundled photographs, lifted in the ways that the attacks are tested on."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import numpy as np

from veil.codebooks.codebook import Codebook
from veil.extraction.sift import SiftOptions, extract_sift
from veil.features import Features
from veil.files.codebooks import bundled_codebook, bundled_decoys
from veil.files.photographs.examples import lund_door
from veil.files.photographs.pictures import read_picture
from veil.forms import Subspaces
from veil.mechanisms.profile import Profile
from veil.mechanisms.public import publish
from veil.mechanisms.subspaces import lift
from veil.randomness import seeded


@cache
def photograph(number: int = 1, count: int = 300) -> Features:
    """The first `count` features of one of the twelve bundled photographs; none of them made a codebook."""
    with lund_door() as example:
        picture = read_picture(sorted(example.folder.glob("*.jpg"))[number])
    features = extract_sift(picture, SiftOptions(max_features=2000))
    rows = np.random.default_rng(number).permutation(len(features))[:count]
    return replace(
        features, keypoints=features.keypoints[rows], descriptors=features.descriptors[rows], scales=None, orientations=None
    )


def truth(features: Features, form: Subspaces) -> np.ndarray:
    """The descriptors (without their dither) in the space of the form."""
    return bundled_codebook().compression.into_space(publish(features), form.space).vectors.astype(np.float64)


def lifted(features: Features, profile: Profile, *, case: str, decoys: Codebook | None = None) -> Subspaces:
    """In the order of the features."""
    book = bundled_codebook()
    pool = decoys or (bundled_decoys() if profile.decoys == "descriptors" else book)
    return lift(features, profile=profile, compression=book.compression, decoys=pool, randomness=seeded(case)).form


def paper_form(features: Features, m: int, case: str = "attack") -> Subspaces:
    return lifted(features, Profile.paper(m), case=case)


def hardened_form(features: Features, case: str = "attack") -> Subspaces:
    return lifted(features, Profile.hardened(quantized=True), case=case)
