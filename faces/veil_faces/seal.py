"""Tags and seals that bind the templates of a face store to its people: a keyed tag each, and one seal over the whole store.

A template is only a few vectors; nothing in them says whose they are. Whoever can write to a store could put one person's
vectors into another's row, raise the threshold, or bring an erased template back. The client has a secret, so it can tell:
each template has a tag over everything that it is used with, and the seal covers the facts of the store and the list of tags.
Both are MACs (keyed BLAKE2b), no encryption, and do not reveal an older store that is put back whole: for that a client
records what it saw last (`veil_faces.files.face_home`, docs/theory/faces.md#what-binds-a-template-to-its-person).
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
    """One template as a store lists it.

    `generation` is the number of the store's write that made or revoked it, times are seconds since 1970 (UTC). `tag` covers
    the line and the template's numbers, which are erased once `revoked_at` is set.
    """

    person: str
    purpose: str
    version: int
    generation: int
    enrolled_at: float
    revoked_at: float | None
    tag: bytes = b""

    @property
    def valid(self) -> bool:
        """Whether the template is in force: it was not revoked."""
        return self.revoked_at is None


@dataclass(frozen=True)
class Sealer:
    """Maker of tags and seals, with a key that serves nothing else and is derived from the client's secret."""

    key: bytes = field(repr=False)

    @staticmethod
    def of(secret: Secret) -> Sealer:
        """The sealer of the client that has this secret."""
        return Sealer(hashlib.blake2b(b"veil face store seal 1", key=secret.key, digest_size=32).digest())

    def tag(self, store: str, setup: str, line: Line, origin: bytes, basis: bytes) -> bytes:
        """The tag of a template, `TAG_BYTES` long.

        It covers the store's identity, the text of its scheme (lifting, network, digest of the decoys), the person, purpose,
        version, generation and times of the line, and the template's numbers `origin` and `basis` (empty once revoked).
        """
        digest = _begun(self.key, store, setup).copy()
        digest.update(_packed([*_words(line), str(len(origin)), str(len(basis))]))
        digest.update(origin)
        digest.update(basis)
        return digest.digest()

    def seal(self, facts: Mapping[str, str], lines: Iterable[Line]) -> bytes:
        """The seal of a store, `TAG_BYTES` long, over all facts by name and all lines with their tags, sorted by key."""
        ordered = sorted(lines, key=lambda line: (line.purpose, line.person, line.version))
        digest = hashlib.blake2b(key=self.key, digest_size=TAG_BYTES, person=b"store")
        digest.update(_packed([str(len(facts)), str(len(ordered))]))
        for name in sorted(facts):
            digest.update(_packed([name, facts[name]]))
        digest.update(b"".join(_packed([*_words(line), line.tag.hex()]) for line in ordered))
        return digest.digest()


@lru_cache(maxsize=8)
def _begun(key: bytes, store: str, setup: str) -> hashlib.blake2b:
    """The keyed hash that all tags of a store begin with, over its identity and the text of its scheme."""
    return hashlib.blake2b(_packed([store, setup]), key=key, digest_size=TAG_BYTES, person=b"template")


def require_equal(tag: bytes, expected: bytes, what: str) -> None:
    """Raise FileFormatError if a tag is not the expected one; the time does not depend on where they differ."""
    if not hmac.compare_digest(tag, expected):
        raise FileFormatError(f"{what}; somebody changed it, or it is damaged: restore it from a backup, or start a new store")


def _words(line: Line) -> list[str]:
    """Every field of a line but its tag, as text in one spelling; `repr` of a float is exact."""
    revoked = "" if line.revoked_at is None else repr(line.revoked_at)
    return [line.purpose, line.person, str(line.version), str(line.generation), repr(line.enrolled_at), revoked]


def _packed(words: Sequence[str]) -> bytes:
    """UTF-8 bytes of a list of words, each preceded by its number of letters, so that no two lists have the same bytes."""
    return "".join([f"{len(word)}:{word}" for word in words]).encode()
