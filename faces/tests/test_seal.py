"""Tags and seals: every field counts, nothing can be moved from one to another, and the bytes are protocol."""

from __future__ import annotations

import hashlib
from dataclasses import replace

import pytest

from veil.errors import FileFormatError
from veil.randomness import Secret
from veil_faces.seal import Line, Sealer, require_equal

SEALER = Sealer.of(Secret(bytes(range(32))))
LINE = Line(person="bob", purpose="door", version=2, generation=7, enrolled_at=1.5, revoked_at=None)
FACTS = {"id": "ab", "setup": "{}"}


def test_the_bytes_are_those_of_the_definition() -> None:
    """Golden, by the formula of docs/theory/faces.md, Eq. 4, written out: stores outlive the code that wrote them."""
    key = hashlib.blake2b(b"veil face store seal 1", key=bytes(range(32)), digest_size=32).digest()
    words = b"2:id2:{}4:door3:bob1:21:73:1.50:1:31:2"
    tag = hashlib.blake2b(words + b"abc" + b"de", key=key, digest_size=32, person=b"template").digest()
    assert SEALER.tag("id", "{}", LINE, b"abc", b"de") == tag
    words = b"1:21:1" + b"2:id2:ab5:setup2:{}" + b"4:door3:bob1:21:73:1.50:" + b"64:" + tag.hex().encode()
    seal = hashlib.blake2b(words, key=key, digest_size=32, person=b"store").digest()
    assert SEALER.seal(FACTS, [replace(LINE, tag=tag)]) == seal


def test_every_field_counts() -> None:
    """Every other value, and every part moved to its neighbor, gives another tag or seal; the order of lines is none."""
    other = Sealer.of(Secret(b"s" * 32))
    tags = [SEALER.tag("id", "{}", LINE, b"abc", b"de"), other.tag("id", "{}", LINE, b"abc", b"de")]
    tags += [SEALER.tag("i", "d{}", LINE, b"abc", b"de"), SEALER.tag("id", "{}", LINE, b"ab", b"cde")]
    changes: list[dict[str, object]] = [{"person": "eve"}, {"purpose": "vault"}, {"version": 3}, {"generation": 8}]
    changes += [{"enrolled_at": 1.25}, {"revoked_at": 2.0}, {"person": "b", "purpose": "doorob"}]
    lines = [LINE, *(replace(LINE, **change) for change in changes)]  # type: ignore[arg-type]
    tags += [SEALER.tag("id", "{}", line, b"abc", b"de") for line in lines[1:]]
    assert len(set(tags)) == len(tags)
    facts = [FACTS, {**FACTS, "threshold": "9"}, {"id": "ab"}, {"id": "abs", "etup": "{}"}]
    seals = [SEALER.seal(some, lines[:2]) for some in facts]
    seals += [SEALER.seal(FACTS, lines[:1]), SEALER.seal(FACTS, []), SEALER.seal(FACTS, [replace(LINE, tag=b"t"), lines[1]])]
    assert len(set(seals)) == len(seals) and SEALER.seal(FACTS, lines[:2]) == SEALER.seal(FACTS, lines[1::-1])


def test_a_wrong_tag_is_named() -> None:
    require_equal(b"a", b"a", "x")
    with pytest.raises(FileFormatError, match="the store; somebody changed it"):
        require_equal(b"a", b"b", "the store")
