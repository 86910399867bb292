"""Choices that change a release's draws change what the ledger compares; choices that neither can express are refused."""

from __future__ import annotations

from dataclasses import dataclass, fields, make_dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from veil import randomness
from veil.codebooks.codebook import Codebook
from veil.errors import ReleaseRefused
from veil.files.device.ledger import Ledger
from veil.ldp.mechanism import SubsetMechanism
from veil.mechanisms.lines import LineOptions, lift_to_lines
from veil.mechanisms.parameters import line_draws, subspace_parameters, word_parameters
from veil.mechanisms.profile import Profile
from veil.mechanisms.subspaces import lift, uniform_rule
from worlds import codebook, features, generator
from worlds.ledgers import ENTRY

BOOK = codebook(generator("book"), 512, 4)
POOL = codebook(generator("pool"), 400, 4, kind="descriptors")
IMAGE = features(generator("parameters"), 6)
SECRET = randomness.memoized(randomness.Secret(b"parameters".ljust(32, b".")))
RULE = uniform_rule.identity(np.arange(6))

# One other value for each field of a profile. A new field fails the test below until version 1 refuses it, or a version has it.
OTHERS: dict[str, Any] = {
    "name": "hardened",
    "strategy": "random",
    "m": 5,
    "decoys": "descriptors",
    "directions": "gaussian",
    "dither_steps": 2.0,
    "compress": True,
    "dtype": "float16",
}


def forced(name: str, value: object) -> Profile:
    """Profile with a value that its type forbids, as code without a type checker could make it."""
    profile = Profile.paper(4)
    object.__setattr__(profile, name, value)
    return profile


def encoded(profile: Profile, decoys: Codebook = BOOK, slice_index: int | None = 3, rule: list[bytes] = RULE):
    return subspace_parameters(profile, compression=BOOK.compression, decoys=decoys, slice_index=slice_index, rule=rule)


def test_the_encoding_is_a_protocol() -> None:
    """Golden bytes that veil 0.1 drew by; they look like what Python then printed of a profile."""
    assert encoded(Profile.hardened(quantized=True)).draws == (
        b"Profile(name='hardened', strategy='sub-adversarial', m=4, decoys='descriptors', directions='gaussian', "
        b"dither_steps=4.0, compress=True, dtype='float16')|" + f"{BOOK.digest}|{BOOK.digest}|3|".encode()
    )
    law = SubsetMechanism(dictionary_size=512, epsilon=6.0, m=2)
    assert word_parameters(law, dictionary=BOOK).draws == f"words|512|6.0|2|{BOOK.digest}|".encode()
    assert line_draws(LineOptions(), upright=True) == b"line|LineOptions(aligned_share=0.5)|True|"


def test_a_number_is_the_same_whatever_type_holds_it() -> None:
    """Numbers of any type give the same bytes; `repr` would print np.int64(4) for one type, and redraw every release."""
    first = encoded(Profile.paper(4))
    for name, value in (("m", np.int64(4)), ("dither_steps", np.float64(0)), ("dither_steps", 0), ("compress", np.False_)):
        assert encoded(forced(name, value)) == first


@pytest.mark.parametrize("name", [item.name for item in fields(Profile)])
def test_every_field_of_a_profile_changes_draws_and_ledger(name: str) -> None:
    one, other = Profile.paper(4), replace(Profile.paper(4), **{name: OTHERS[name]})
    assert encoded(one).draws != encoded(other).draws
    assert encoded(one).text != encoded(other).text


def test_books_slice_rule_and_law_change_draws_and_ledger() -> None:
    one = encoded(Profile.paper(4))
    for other in (
        encoded(Profile.paper(4), decoys=POOL),
        encoded(Profile.paper(4), slice_index=None),
        encoded(Profile.paper(4), slice_index=1),
    ):
        assert one.draws != other.draws and one.text != other.text
    assert one.text != encoded(Profile.paper(4), rule=[b"another rule"]).text
    laws = [
        word_parameters(SubsetMechanism(dictionary_size=512, epsilon=e, m=m), dictionary=BOOK)
        for e in (1.0, 2.0)
        for m in (1, 2)
    ]
    assert len({law.draws for law in laws}) == len({law.text for law in laws}) == 4
    fewer = word_parameters(SubsetMechanism(dictionary_size=512, epsilon=1.0, m=1), dictionary=BOOK, features_sent=5)
    assert fewer.draws == laws[0].draws and fewer.text != laws[0].text


@dataclass(frozen=True, kw_only=True)
class Widened(Profile):
    """Broken twin of a profile: it has one more field, which no draw depends on."""

    sparsity: float = 0.5


def renamed() -> Profile:
    """Broken twin of a profile: it has `directions` under another name."""
    values = {("kinds" if name == "directions" else name): value for name, value in vars(Profile.paper(4)).items()}
    Twin = make_dataclass("Profile", [(name, object) for name in values], frozen=True)
    return Twin(**values)


def test_what_a_version_cannot_express_is_refused() -> None:
    """Profiles beyond version 1 are refused: a second draw under one secret would allow the intersection attack."""
    for twin, named in ((Widened(name="x", strategy="random", m=2), "sparsity"), (renamed(), "directions, kinds")):
        with pytest.raises(ReleaseRefused, match=f"cannot express a .*{named}.*version"):
            subspace_parameters(twin, compression=BOOK.compression, decoys=BOOK, slice_index=None, rule=RULE)
    with pytest.raises(ReleaseRefused, match="sparsity"):
        lift(
            IMAGE,
            profile=Widened(name="x", strategy="random", m=2),
            compression=BOOK.compression,
            decoys=BOOK,
            randomness=SECRET,
        )
    with pytest.raises(ReleaseRefused, match="decoys 'words'"):
        encoded(forced("decoys", "words"))
    with pytest.raises(ReleaseRefused, match="name"):
        encoded(replace(Profile.paper(4), name="x', m=9, '"))

    @dataclass(frozen=True, kw_only=True)
    class Slanted(LineOptions):
        slant: float = 0.0

    with pytest.raises(ReleaseRefused, match="slant"):
        lift_to_lines(IMAGE, gravity=None, randomness=SECRET, options=Slanted())


@pytest.mark.parametrize("name", [item.name for item in fields(Profile)])
def test_the_ledger_refuses_what_the_draws_would_change(tmp_path: Path, name: str) -> None:
    ledger = Ledger(tmp_path)
    ledger.record(replace(ENTRY, parameters=encoded(Profile.paper(4)).text, message_digest="0"))
    other = replace(Profile.paper(4), **{name: OTHERS[name]})
    with pytest.raises(ReleaseRefused, match="already released with other choices"):
        ledger.record(replace(ENTRY, parameters=encoded(other).text, message_digest="1"))


def test_a_release_that_notes_less_is_not_taken_for_the_same(tmp_path: Path) -> None:
    """A ledger entry that noted less counts as another release, unless it is the very message."""
    ledger = Ledger(tmp_path)
    ledger.record(replace(ENTRY, parameters="paper sub-hybrid m=4 codebook=0123 decoys=4567 secret=01234567 positions"))
    now = replace(ENTRY, parameters=encoded(Profile.paper(4)).text + " secret=01234567 positions")
    assert not ledger.record(now)
    with pytest.raises(ReleaseRefused, match="already released with other choices"):
        ledger.record(replace(now, message_digest="another"))
