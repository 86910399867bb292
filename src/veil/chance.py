"""Chance as an argument: `Secure` may make releases, `Seeded` may only make studies; two types, never confused.

Both are keyed pseudorandom functions (keyed BLAKE2b to a seed, SHAKE-256 to a stream): a draw depends on the key and
on the context that asks for it, never on what was drawn before. With a key kept by the client this *is* the memoized
release of traps D15: the same descriptor under the same secret, parameters and sub-database is lifted the same way,
whenever and however often.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from jaxtyping import Float64, Int64, UInt64

from veil.errors import InputError

KEY_BYTES = 32


@dataclass(frozen=True)
class Secret:
    """A client's secret of 256 bits; whoever holds it can undo the memoized choices, so it stays on the device."""

    key: bytes = field(repr=False)

    def __post_init__(self) -> None:
        if len(self.key) != KEY_BYTES:
            raise InputError(f"a client secret has {KEY_BYTES} bytes, got {len(self.key)}; do not edit its file")

    @staticmethod
    def generate() -> Secret:
        """A new secret from the operating system's CSPRNG."""
        return Secret(os.urandom(KEY_BYTES))

    @property
    def fingerprint(self) -> str:
        """Eight hex digits that tell secrets apart in the ledger and say nothing about the key."""
        return hashlib.blake2b(b"fingerprint", key=self.key, digest_size=4).hexdigest()


@dataclass(frozen=True)
class Secure:
    """Draws that may make a release: keyed by a client's secret, or by a fresh key of the operating system."""

    key: bytes = field(repr=False)
    releasable = True

    def words(self, contexts: Sequence[bytes], count: int) -> UInt64[np.ndarray, "contexts count"]:
        """`count` uniform 64-bit words for each context."""
        return _words(self.key, contexts, count)


@dataclass(frozen=True)
class Seeded:
    """Draws for studies, reproducible from a case name; what they make is marked as not releasable."""

    name: str
    releasable = False

    def words(self, contexts: Sequence[bytes], count: int) -> UInt64[np.ndarray, "contexts count"]:
        """`count` uniform 64-bit words for each context."""
        return _words(hashlib.sha256(b"veil study:" + self.name.encode()).digest(), contexts, count)


Chance = Secure | Seeded


def memoized(secret: Secret) -> Secure:
    """The chance of a release that is the same each time (traps D15)."""
    return Secure(secret.key)


def fresh() -> Secure:
    """A chance that never repeats; two fresh releases of one image give it away, so the ledger asks first."""
    return Secure(os.urandom(KEY_BYTES))


def seeded(name: str) -> Seeded:
    """A reproducible chance for the study called `name`."""
    return Seeded(name)


def _words(key: bytes, contexts: Sequence[bytes], count: int) -> UInt64[np.ndarray, "contexts count"]:
    out = np.empty((len(contexts), count), dtype="<u8")
    for row, context in enumerate(contexts):
        seed = hashlib.blake2b(context, key=key, digest_size=64).digest()
        out[row] = np.frombuffer(hashlib.shake_256(seed).digest(8 * count), dtype="<u8")
    return out.astype(np.uint64, copy=False)


def uniform(words: UInt64[np.ndarray, "*shape"]) -> Float64[np.ndarray, "*shape"]:
    """Uniform in the open interval (0, 1): 52 random bits, centered in their cell so that 0 and 1 never occur."""
    return ((words >> np.uint64(12)).astype(np.float64) + 0.5) * 2.0**-52


def gaussian(words: UInt64[np.ndarray, "*shape"]) -> Float64[np.ndarray, "*shape"]:
    """Standard normal by inversion of `uniform`."""
    from scipy.special import ndtri

    return ndtri(uniform(words))


def below(words: UInt64[np.ndarray, "*shape"], bound: int) -> Int64[np.ndarray, "*shape"]:
    """Uniform integers in 0..bound-1 by multiply-shift of 52 bits; the bias is below bound / 2^52."""
    return np.minimum((uniform(words) * bound).astype(np.int64), bound - 1)


def distinct_below(words: UInt64[np.ndarray, "rows picks"], bound: int) -> Int64[np.ndarray, "rows picks"]:
    """For each row, `picks` distinct integers in 0..bound-1, every set equally likely (Floyd's sampling).

    The order within a row is not uniform: use the row as a set.
    Raises InputError if fewer than `picks` integers exist.
    """
    rows, picks = words.shape
    if picks > bound:
        raise InputError(f"cannot draw {picks} distinct decoys from {bound}; use a larger codebook or fewer slices")
    chosen = np.full((rows, picks), -1, dtype=np.int64)
    for column in range(picks):
        top = bound - picks + column
        candidate = below(words[:, column], top + 1)
        seen = (chosen[:, :column] == candidate[:, None]).any(axis=1)
        chosen[:, column] = np.where(seen, top, candidate)
    return chosen
