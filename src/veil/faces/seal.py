"""What binds the numbers of a face store to its people: keyed tags of templates, and one seal over all that a store holds.

A template is only a few vectors; nothing in them says whose they are. Whoever can write to a store could put one person's
vectors into another's row, raise the threshold, or bring an erased template back. The client has a secret, so it can tell:
each template has a tag over everything that it is used with, and the seal covers the facts of the store and the list of tags.
It is a MAC, no encryption, and says nothing of an older store that is put back whole: for that a client remembers what it
saw last (`veil.files.face_home`, docs/theory/faces.md).
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache

from veil.errors import FileFormatError
from veil.randomness import Secret

TAG_BYTES = 32


@dataclass(frozen=True, kw_only=True)
class Line:
    """One template as a store lists it; `tag` covers its numbers, which are gone once `revoked_at` is set."""

    person: str
    purpose: str
    version: int
    generation: int
    enrolled_at: float
    revoked_at: float | None
    tag: bytes = b""

    @property
    def valid(self) -> bool:
        """Whether it still verifies anybody."""
        return self.revoked_at is None


@dataclass(frozen=True)
class Sealer:
    """Makes and checks tags with a key that serves nothing else, derived from the client's secret."""

    key: bytes = field(repr=False)

    @staticmethod
    def of(secret: Secret) -> Sealer:
        """The sealer of a client."""
        return Sealer(hashlib.blake2b(b"veil face store seal 1", key=secret.key, digest_size=32).digest())

    def tag(self, store: str, setup: str, line: Line, origin: bytes, basis: bytes) -> bytes:
        """The tag of a template: over the store's identity, its setup (lifting, network, digest of the decoys), whose template
        it is and what for, version, generation, times, and all its numbers."""
        found = _begun(self.key, store, setup).copy()
        found.update(_packed([*_words(line), str(len(origin)), str(len(basis))]))
        found.update(origin)
        found.update(basis)
        return found.digest()

    def seal(self, facts: Mapping[str, str], lines: Iterable[Line]) -> bytes:
        """The seal over all facts of a store, by name, and its lines with their tags, in the order of their keys."""
        ordered = sorted(lines, key=lambda line: (line.purpose, line.person, line.version))
        found = hashlib.blake2b(key=self.key, digest_size=TAG_BYTES, person=b"store")
        found.update(_packed([str(len(facts)), str(len(ordered))]))
        for name in sorted(facts):
            found.update(_packed([name, facts[name]]))
        found.update(b"".join(_packed([*_words(line), line.tag.hex()]) for line in ordered))
        return found.digest()


@lru_cache(maxsize=8)
def _begun(key: bytes, store: str, setup: str) -> hashlib.blake2b:
    """What all tags of a store begin with."""
    return hashlib.blake2b(_packed([store, setup]), key=key, digest_size=TAG_BYTES, person=b"template")


def require_equal(found: bytes, expected: bytes, what: str) -> None:
    """Raises FileFormatError where a tag is not the one expected; takes as long wherever they differ."""
    if not hmac.compare_digest(found, expected):
        raise FileFormatError(f"{what}; somebody changed it, or it is damaged: restore it from a backup, or start a new store")


def _words(line: Line) -> list[str]:
    """Every field as text of one spelling. `repr` of a float is exact."""
    revoked = "" if line.revoked_at is None else repr(line.revoked_at)
    return [line.purpose, line.person, str(line.version), str(line.generation), repr(line.enrolled_at), revoked]


def _packed(words: Sequence[str]) -> bytes:
    """Each word after how many letters it has, so that no two lists of words have one encoding (UTF-8)."""
    return "".join([f"{len(word)}:{word}" for word in words]).encode()
