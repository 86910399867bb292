"""Releases that cannot change by accident: whole messages of every kind for one secret, as veil 0.1 made them.

Oracle: the files in `golden/`, written by `python tests/mechanisms/test_golden.py` and never again unless a release is meant to
change. Inputs come from SHAKE-256, so that no random generator's version enters. Pinned byte for byte are words, lines,
positions, their order and every field. A subspace's numbers pass through LAPACK, and may differ by one step of the precision
in which they are sent; with the kernels of OpenBLAS tried here (`.ci/haswell`) they do not differ at all.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from veil.features import Features
from veil.files.codebooks import bundled_codebook, bundled_decoys
from veil.forms import Subsets, Subspaces
from veil.geometry.camera import Camera
from veil.ldp.mechanism import SubsetMechanism
from veil.mechanisms import HideInLines, hardened, paper, privatize, privatize_words
from veil.mechanisms.profile import Profile
from veil.randomness import Secret, memoized
from veil.space import Space
from veil.wire import Message, Upload, decode, encode
from veil_faces.collection import Faces
from veil_faces.template import Client, TemplateScheme, decoys_digest

FOLDER = Path(__file__).with_name("golden")
SECRET = Secret(b"golden secret".ljust(32, b"."))
COUNT = 12


def stream(name: str, *shape: int) -> np.ndarray:
    """Bytes that no library's version changes."""
    return np.frombuffer(hashlib.shake_256(name.encode()).digest(int(np.prod(shape))), dtype=np.uint8).reshape(shape)


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
        camera=Camera(model="SIMPLE_RADIAL", width_px=640, height_px=480, params=(500.0, 320.0, 240.0, -0.03)),
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


def template(*, balance: str = "", quota: tuple[tuple[str, int], ...] = ()) -> bytes:
    """A face's template, in the form of a message: its numbers, behind a camera and positions that say nothing."""
    space = Space(descriptor="golden face", normalization="L2", dim=32)
    people = stream("people", 81, 32).astype(np.float64) - 127.5
    people = (people / np.linalg.norm(people, axis=1, keepdims=True)).astype(np.float32)
    labels = tuple("ab"[row % 4 // 2] for row in range(80))
    pool = Faces(vectors=people[1:], space=space, names=tuple(f"face {row}" for row in range(80)), labels={"group": labels})
    scheme = TemplateScheme(
        strategy="hybrid", m=6, comparison="p2s", space=space, decoys=decoys_digest(pool, balance), balance=balance, quota=quota
    )
    client = Client(scheme=scheme, decoys=pool, secret=SECRET)
    form = client.template(people[0], purpose="door", person="ada", version=1, label="a" if balance else None)
    return encode(Upload(camera=image().camera, keypoints=np.zeros((1, 2), dtype=np.float32), form=form), dtype="float32")


UPRIGHT = HideInLines(gravity=np.array([0.05, 0.99, 0.12]))
MESSAGES: dict[str, Callable[[], bytes]] = {
    "hardened": lambda: subspaces(hardened(quantized=True)),
    "paper": lambda: subspaces(paper(4)),
    "paper-8-adversarial": lambda: subspaces(paper(8, "adversarial"), features=3),
    "hardened-lines": lambda: subspaces(hardened(quantized=True), HideInLines()),
    "hardened-upright-lines": lambda: subspaces(hardened(quantized=True), UPRIGHT),
    "words": words,
    "words-upright-lines": lambda: words(UPRIGHT),
    "face": template,
    "face-balanced": lambda: template(balance="group", quota=(("a", 2), ("b", 1))),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", MESSAGES)
def test_a_release_is_what_it_was(name: str) -> None:
    pinned, made = (FOLDER / f"{name}.veil").read_bytes(), MESSAGES[name]()
    assert len(made) == len(pinned)
    was, now = decode(pinned), decode(made)
    assert encode(without_numbers(now)) == encode(without_numbers(was))
    if isinstance(was.form, Subspaces) and isinstance(now.form, Subspaces):
        step = 2.0**-11 if name.startswith("hardened") else 2.0**-22
        for sent, then in ((now.form.origin, was.form.origin), (now.form.basis, was.form.basis)):
            assert np.abs(sent.astype(np.float64) - then).max() <= step
    else:
        assert isinstance(was.form, Subsets) and made == pinned


def without_numbers(message: Message) -> Message:
    """The message with the numbers of its subspaces set aside."""
    if not isinstance(message.form, Subspaces):
        return message
    form = message.form
    flat = np.zeros_like(form.basis)
    flat[:, np.arange(form.m), np.arange(form.m)] = 1
    return replace(message, form=replace(form, origin=np.zeros_like(form.origin), basis=flat))


if __name__ == "__main__":
    FOLDER.mkdir(exist_ok=True)
    for name, make in MESSAGES.items():
        (FOLDER / f"{name}.veil").write_bytes(make())
