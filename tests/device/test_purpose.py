"""What leaves by default follows from what a message is for, and nothing leaves where it would be for nothing."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import veil
from veil.cli import _parser
from veil.cli.remedies import phrase
from veil.device.protection import EPSILON, FEATURES
from veil.errors import InputError, ReleaseRefused
from veil.features import Features
from veil.forms import Subsets, Subspaces, lifted_guarantee
from veil.geometry.camera import GIVEN, GUESS
from worlds import features, generator

ROOT = Path(__file__).parents[2]
DOWN = np.array([0.0, 2.0, 0.0])


def photograph(focal: str = "given") -> Features:
    made = features(generator("purposes"), 60)
    return replace(made, camera=replace(made.camera, focal=GUESS if focal == "guess" else GIVEN))


def test_what_leaves_to_be_localized_are_words_and_gravity(tmp_path: Path) -> None:
    """Oracle: the law that the page of decisions names, an epsilon of 4 a feature."""
    device = veil.Device(tmp_path)
    release = device.release(photograph(), gravity=DOWN)
    upload = veil.decode(release.message)
    assert isinstance(upload, veil.Upload) and isinstance(upload.form, Subsets) and upload.gravity is not None
    assert upload.form.mechanism.epsilon == EPSILON == 4 and upload.form.m == 2 and len(upload) == 60
    np.testing.assert_allclose(upload.gravity, [0, 1, 0])
    assert FEATURES == 4000 and [entry.charge is not None for entry in device.ledger.entries()] == [True]


def test_what_leaves_for_a_map_are_subspaces(tmp_path: Path) -> None:
    release = veil.Device(tmp_path).release(photograph("guess"), purpose="map")
    form = release.upload.form
    assert isinstance(form, Subspaces) and form.profile == "hardened"
    assert isinstance(form.guarantee, veil.NoProof) and "obfuscation without proof" in form.guarantee.reason


@pytest.mark.parametrize(
    ("gravity", "focal", "lacking", "given"),
    [
        (None, "given", "gravity", "veil gravity"),
        (DOWN, "guess", "focal length", "veil extract --camera"),
        (None, "guess", "gravity", "veil gravity"),
    ],
)
def test_nothing_leaves_for_nothing(gravity: np.ndarray | None, focal: str, lacking: str, given: str, tmp_path: Path) -> None:
    """What is lacking is named, with both ways and the obfuscation by its name; nothing is entered in the ledger."""
    device = veil.Device(tmp_path)
    with pytest.raises(ReleaseRefused, match=lacking) as refused:
        device.release(photograph(focal), gravity=gravity)
    told = [phrase(remedy) for remedy in refused.value.remedy]
    assert len(told) == 3 and "tiles" in told[0] and given in told[1] and "--obfuscate" in told[2]
    assert list(device.ledger.entries()) == []


def test_a_protection_that_is_given_is_what_leaves(tmp_path: Path) -> None:
    """Gravity beside it is refused: it would be passed over."""
    device, protection = veil.Device(tmp_path), veil.Protection(descriptors=veil.HideInSubspaces())
    assert isinstance(device.release(photograph("guess"), protection).upload.form, Subspaces)
    with pytest.raises(InputError, match="give it to Protection"):
        device.release(photograph(), protection, gravity=DOWN)


def test_a_smaller_epsilon_can_be_asked_for_and_no_larger_one() -> None:
    words = [
        veil.usual_protection("localize", photograph(), gravity=DOWN, most_epsilon=most).descriptors for most in (2.0, 9.0)
    ]
    assert [item.epsilon for item in words if isinstance(item, veil.HideInWords)] == [2.0, EPSILON]


def test_all_places_say_the_same_of_the_same_form() -> None:
    """A reader's test: subspaces are an obfuscation without proof, an epsilon is of a feature, positions tell the place."""
    commands = next(action.choices for action in _parser(["privatize"])._actions if isinstance(action.choices, dict))
    pages = {name: (ROOT / name).read_text() for name in ("README.md", "docs/choose.md", "docs/protects.md")}
    told = {**pages, "help": commands["privatize"].format_help()}
    for place, text in told.items():
        plain = re.sub(r"\s+", " ", text.replace("*", ""))
        assert re.search("obfuscations? without proof", plain) and "tiles" in plain, place
        assert re.search("epsilon,? (of 4 )?for each feature", plain), place
    for place, text in pages.items():
        assert re.search("ositions[^.]{0,80}(place away|outside of the epsilon|not hidden)", re.sub(r"\s+", " ", text)), place
    inspected = lifted_guarantee("hardened").reason
    assert "obfuscation without proof" in inspected
