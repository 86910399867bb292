"""The refusal of a second release names the choices that differ, whichever they are."""

from __future__ import annotations

from itertools import permutations
from pathlib import Path

import numpy as np
import pytest

import veil
from veil.errors import ReleaseRefused
from worlds import features, generator

DOWN = np.array([0.0, 1.0, 0.0])
TILTED = np.array([0.0, 0.6, 0.8])
SUBSPACES, WORDS = veil.HideInSubspaces(), veil.HideInWords(epsilon=8.0, m=2)
CHOICES = {
    "subspaces": veil.Protection(descriptors=SUBSPACES),
    "subspaces with gravity": veil.Protection(descriptors=SUBSPACES, gravity=DOWN),
    "subspaces with another gravity": veil.Protection(descriptors=SUBSPACES, gravity=TILTED),
    "subspaces in lines": veil.Protection(descriptors=SUBSPACES, lines=veil.HideInLines()),
    "subspaces in lines with gravity": veil.Protection(descriptors=SUBSPACES, lines=veil.HideInLines(gravity=DOWN)),
    "words": veil.Protection(descriptors=WORDS),
    "words with gravity": veil.Protection(descriptors=WORDS, gravity=DOWN),
    "words in lines with gravity": veil.Protection(descriptors=WORDS, lines=veil.HideInLines(gravity=DOWN)),
}


def expected(first: str, second: str) -> set[str]:
    """The differences of two choices, read from their names."""
    parts = set()
    forms = [name.split()[0] for name in (first, second)]
    shown = ["lines" if "lines" in name else "positions" for name in (first, second)]
    if forms[0] != forms[1]:
        parts.add(f"{forms[1]} and not {forms[0]}")
    if shown[0] != shown[1]:
        parts.add(f"{shown[1]} and not {shown[0]}")
    gravity = [name.partition("with ")[2] for name in (first, second)]
    if gravity[0] != gravity[1]:
        parts.add("another gravity" if all(gravity) else "with gravity" if gravity[1] else "without gravity")
    return parts


@pytest.mark.parametrize(("first", "second"), list(permutations(CHOICES, 2)))
def test_what_differs_is_named_and_nothing_else(first: str, second: str, tmp_path: Path) -> None:
    """Oracle: the names of the choices, for every pair of them. No version of veil is blamed for what the user chose."""
    image = features(generator("second releases"), 30)
    device = veil.Device(tmp_path / "home")
    device.release(image, CHOICES[first], name="a.jpg")
    with pytest.raises(ReleaseRefused) as refused:
        device.release(image, CHOICES[second], name="a.jpg")
    told = refused.value.cause.split("): now ")[1].split(";")[0]
    assert set(told.split(", ")) == expected(first, second)
