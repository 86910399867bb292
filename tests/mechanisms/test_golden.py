"""Releases that cannot change by accident: whole messages of seven settings for one secret, as veil 0.1 made them.

Oracle: the files in `golden/`, written by `python tests/mechanisms/test_golden.py` (those of faces by their own test) and never
again unless a release is meant to change. Inputs come from SHAKE-256, so that no random generator's version enters. Pinned
byte for byte are words, lines, positions, their order and every field. A subspace's numbers pass through LAPACK, and may
differ by one step of the precision in which they are sent. With the kernels of OpenBLAS that `.ci/haswell` tries they do not.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from veil.features import Features
from veil.files.codebooks import bundled_codebook, bundled_decoys
from veil.geometry.camera import FROM_EXIF, Camera
from veil.ldp.mechanism import SubsetMechanism
from veil.mechanisms import HideInLines, Profile, privatize, privatize_words
from veil.randomness import Secret, memoized
from veil.space import Space
from veil.wire import encode
from worlds.pinned import require_unchanged, stream

FOLDER = Path(__file__).with_name("golden")
SECRET = Secret(b"golden secret".ljust(32, b"."))
COUNT = 12


def image() -> Features:
    """Twelve SIFT-like features, two of them at one position."""
    wide = stream("descriptors", COUNT, 128).astype(np.float64)
    wide = np.where(wide > 40, wide, 0)
    places = stream("places", COUNT, 4).astype(np.float64) @ [[2.5, 0], [0, 1.8], [2.5 / 256, 0], [0, 1.8 / 256]]
    places[1] = places[0]
    return Features(
        keypoints=places.astype(np.float32),
        descriptors=np.round(512 * wide / np.linalg.norm(wide, axis=1, keepdims=True)).clip(0, 255).astype(np.uint8),
        space=Space(descriptor="sift", normalization="L2", dim=128),
        camera=Camera(model="SIMPLE_RADIAL", width_px=640, height_px=480, params=(500.0, 320.0, 240.0, -0.03), focal=FROM_EXIF),
        image_digest=hashlib.sha256(b"golden image").digest(),
    )


def subspaces(profile: Profile, lines: HideInLines | None = None, *, features: int = COUNT) -> bytes:
    book = bundled_codebook()
    decoys = bundled_decoys() if profile.decoys == "descriptors" else book
    photograph = image().take(np.arange(features))
    made = privatize(
        photograph, profile=profile, compression=book.compression, decoys=decoys, randomness=memoized(SECRET), lines=lines
    )
    return encode(made.upload, dtype=profile.dtype)


def words(lines: HideInLines | None = None) -> bytes:
    book = bundled_codebook()
    law = SubsetMechanism(dictionary_size=len(book), epsilon=6.0, m=2)
    made = privatize_words(image(), mechanism=law, dictionary=book, randomness=memoized(SECRET), lines=lines, features_sent=10)
    return encode(made.upload)


UPRIGHT = HideInLines(gravity=np.array([0.05, 0.99, 0.12]))
MESSAGES: dict[str, Callable[[], bytes]] = {
    "hardened": lambda: subspaces(Profile.hardened(quantized=True)),
    "paper": lambda: subspaces(Profile.paper(4)),
    "paper-8-adversarial": lambda: subspaces(Profile.paper(8, "adversarial"), features=3),
    "hardened-lines": lambda: subspaces(Profile.hardened(quantized=True), HideInLines()),
    "hardened-upright-lines": lambda: subspaces(Profile.hardened(quantized=True), UPRIGHT),
    "words": words,
    "words-upright-lines": lambda: words(UPRIGHT),
}


@pytest.mark.parametrize("name", MESSAGES)
def test_a_release_is_what_it_was(name: str) -> None:
    require_unchanged(
        (FOLDER / f"{name}.veil").read_bytes(), MESSAGES[name](), step=2.0**-11 if name.startswith("hardened") else 2.0**-22
    )


if __name__ == "__main__":
    FOLDER.mkdir(exist_ok=True)
    for name, make in MESSAGES.items():
        (FOLDER / f"{name}.veil").write_bytes(make())
