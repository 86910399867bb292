"""Draws of earlier releases in the ledger's file, sealed by the client's secret; the oldest are forgotten.

A file of its own: the ledger counts, and knows nothing of what left. What is sealed is as safe as the secret, which lies in the
same folder: the seal is for copies of the ledger.
"""

from __future__ import annotations

import hashlib
import hmac
import io
import os
import sqlite3

import numpy as np

from veil.mechanisms.carried_lines import DrawnLines
from veil.mechanisms.repeats import DrawnFeatures
from veil.randomness import Secret

TABLE = """CREATE TABLE IF NOT EXISTS drawn (
    image_digest TEXT NOT NULL, message_digest TEXT NOT NULL, kind TEXT NOT NULL,
    features INTEGER NOT NULL, sealed BLOB NOT NULL
)"""
# Features that are remembered: some fifty releases, 25 MB of subspaces.
MOST_REMEMBERED = 50_000
_NONCE, _TAG = 16, 32
_LINES = ("places", "normals", "aligned")


# Draws of the new features of a release: the kind of protection, the number of features, and what is sealed.
SealedDraws = tuple[str, int, bytes]


def sealed_draws(drawn: DrawnFeatures, kind: str, secret: Secret) -> SealedDraws:
    """Draws that only who has the secret can read."""
    buffer = io.BytesIO()
    arrays: dict[str, np.ndarray] = {"sketches": drawn.sketches, **drawn.draws}
    if drawn.lines is not None:
        arrays |= {name: getattr(drawn.lines, name) for name in _LINES}
    np.savez(buffer, **arrays)  # type: ignore[arg-type]
    return kind, len(drawn), _sealed(buffer.getvalue(), secret, os.urandom(_NONCE))


def insert_draws(connection: sqlite3.Connection, image_digest: str, message_digest: str, draws: SealedDraws) -> None:
    """Remember the draws of a release, and forget the oldest beyond `MOST_REMEMBERED` features."""
    connection.execute("INSERT INTO drawn VALUES (?, ?, ?, ?, ?)", (image_digest, message_digest, *draws))
    newest, total = connection.execute("SELECT rowid, features FROM drawn ORDER BY rowid DESC").fetchall(), 0
    for rowid, features in newest:
        total += features
        if total > MOST_REMEMBERED and rowid != newest[0][0]:
            connection.execute("DELETE FROM drawn WHERE rowid <= ?", (rowid,))
            return


class DrawnReader:
    """A reader of what ledgers remember, under one secret: it opens each seal once, and keeps what the ledger still holds."""

    def __init__(self, secret: Secret) -> None:
        self._secret = secret
        self._opened: dict[bytes, DrawnFeatures] = {}  # by the tag of the seal, which no other content has

    def earlier(self, connection: sqlite3.Connection, kind: str, image_digest: str) -> list[DrawnFeatures]:
        """Draws of a kind that were remembered before this image left first, oldest first.

        Its own and later ones are left out, so that the same image leaves again as it did. Raises ValueError for what another
        secret sealed.
        """
        facts = f"SELECT rowid, image_digest, substr(sealed, -{_TAG}) FROM drawn WHERE kind = ? ORDER BY rowid"
        rows = connection.execute(facts, (kind,)).fetchall()
        opened, drawn = {tag: self._opened[tag] for _, _, tag in rows if tag in self._opened}, []
        for rowid, digest, tag in rows:
            if digest == image_digest:
                break
            if tag not in opened:
                (blob,) = connection.execute("SELECT sealed FROM drawn WHERE rowid = ?", (rowid,)).fetchone()
                opened[tag] = _read(blob, self._secret)
            drawn.append(opened[tag])
        self._opened = opened
        return drawn


def opened_draws(draws: SealedDraws, secret: Secret) -> DrawnFeatures:
    """The draws that `sealed_draws` sealed. Raises ValueError if it was another secret."""
    return _read(draws[2], secret)


def _read(blob: bytes, secret: Secret) -> DrawnFeatures:
    with np.load(io.BytesIO(_opened(blob, secret)), allow_pickle=False) as arrays:
        draws = {name: arrays[name] for name in arrays.files}
    found = [draws.pop(name) for name in _LINES if name in draws]
    lines = DrawnLines(places=found[0], normals=found[1], aligned=found[2]) if found else None
    return DrawnFeatures(sketches=draws.pop("sketches"), draws=draws, lines=lines)


def _sealed(content: bytes, secret: Secret, nonce: bytes) -> bytes:
    """The nonce, the content under a stream of SHAKE-256 keyed by the secret, and a tag of both."""
    hidden = nonce + _under_stream(content, nonce, secret)
    return hidden + _tag(hidden, secret)


def _opened(blob: bytes, secret: Secret) -> bytes:
    hidden, tag = blob[:-_TAG], blob[-_TAG:]
    if len(blob) < _NONCE + _TAG or not hmac.compare_digest(tag, _tag(hidden, secret)):
        raise ValueError("earlier draws were not sealed by this secret")
    return _under_stream(hidden[_NONCE:], hidden[:_NONCE], secret)


def _tag(hidden: bytes, secret: Secret) -> bytes:
    return hashlib.blake2b(hidden, key=secret.key, digest_size=_TAG, person=b"veil drawn tag").digest()


def _under_stream(content: bytes, nonce: bytes, secret: Secret) -> bytes:
    """The content with the bits of a stream that the secret and the nonce give; twice is once too often, and gives it back."""
    seed = hashlib.blake2b(nonce, key=secret.key, digest_size=64, person=b"veil drawn").digest()
    stream = np.frombuffer(hashlib.shake_256(seed).digest(len(content)), dtype=np.uint8)
    return (np.frombuffer(content, dtype=np.uint8) ^ stream).tobytes()
