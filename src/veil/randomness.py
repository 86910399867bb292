"""Randomness as an argument of two types, never confused: `Secure` may make releases, `Seeded` may only make studies.

Both are keyed pseudorandom functions (keyed BLAKE2b to a seed, SHAKE-256 to a stream): a draw depends on the key and on its
context, never on what was drawn before. With a key kept by the client this *is* the memoized release of
release.md#memoized-draws: the same descriptor under the same secret, parameters and sub-database is lifted the same way,
whenever and however often.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from fractions import Fraction

import numpy as np
from jaxtyping import Bool, Float64, Int64, UInt64

from veil.errors import InputError, RangeError, ReleaseRefused

KEY_BYTES = 32


@dataclass(frozen=True)
class Secret:
    """Secret of a client, 32 bytes; whoever holds it can undo the memoized choices, so it stays on the device.

    Raises InputError for a key of another length.
    """

    key: bytes = field(repr=False)

    def __post_init__(self) -> None:
        if len(self.key) != KEY_BYTES:
            raise InputError(f"a client secret has {KEY_BYTES} bytes, got {len(self.key)}; do not edit its file")

    @staticmethod
    def generate() -> Secret:
        """A new secret from the operating system's generator. Raises ReleaseRefused if the system has no randomness."""
        return Secret(_entropy())

    @property
    def fingerprint(self) -> str:
        """Fingerprint of eight hex digits, which tells secrets apart in the ledger and says nothing about the key."""
        return hashlib.blake2b(b"fingerprint", key=self.key, digest_size=4).hexdigest()


@dataclass(frozen=True)
class Secure:
    """Randomness that may make a release, keyed by a client's secret or by a fresh key of the operating system."""

    key: bytes = field(repr=False)
    releasable = True

    def bits64(self, contexts: Sequence[bytes], count: int) -> UInt64[np.ndarray, "contexts count"]:
        """`count` uniform 64-bit integers for each context."""
        return _bits64(self.key, contexts, count)


@dataclass(frozen=True)
class Seeded:
    """Randomness for studies, reproducible from a case's name; whatever is drawn from it is marked as not releasable."""

    name: str
    releasable = False

    def bits64(self, contexts: Sequence[bytes], count: int) -> UInt64[np.ndarray, "contexts count"]:
        """`count` uniform 64-bit integers for each context."""
        return _bits64(hashlib.sha256(b"veil study:" + self.name.encode()).digest(), contexts, count)


Randomness = Secure | Seeded


def memoized(secret: Secret) -> Secure:
    """Randomness for a release that is the same each time, keyed by the client's secret (release.md#memoized-draws)."""
    return Secure(secret.key)


def fresh() -> Secure:
    """Randomness with a new key, which never repeats. Two fresh releases of one image give it away, so the ledger asks first.

    Raises ReleaseRefused if the operating system has no randomness.
    """
    return Secure(_entropy())


def _entropy() -> bytes:
    """A key of 32 bytes from the operating system.

    Raises ReleaseRefused if the system has no randomness: nothing is drawn from anything weaker.
    """
    try:
        key = os.urandom(KEY_BYTES)
    except (OSError, NotImplementedError) as error:
        raise ReleaseRefused(f"the operating system gave no randomness ({error}); nothing was released, try again") from None
    if len(key) != KEY_BYTES:
        raise ReleaseRefused(f"the operating system gave {len(key)} of {KEY_BYTES} random bytes; nothing was released")
    return key


def seeded(name: str) -> Seeded:
    """Reproducible randomness for the study called `name`."""
    return Seeded(name)


def _bits64(key: bytes, contexts: Sequence[bytes], count: int) -> UInt64[np.ndarray, "contexts count"]:
    """`count` uniform 64-bit integers for each context, by keyed BLAKE2b and SHAKE-256 (docs/theory/release.md, Eq. 3)."""
    out = np.empty((len(contexts), count), dtype="<u8")
    for row, context in enumerate(contexts):
        seed = hashlib.blake2b(context, key=key, digest_size=64).digest()
        out[row] = np.frombuffer(hashlib.shake_256(seed).digest(8 * count), dtype="<u8")
    return out.astype(np.uint64, copy=False)


def uniform(bits: UInt64[np.ndarray, "*shape"]) -> Float64[np.ndarray, "*shape"]:
    """Uniform numbers in the open interval (0, 1) from 52 of the bits, centered in their cells so that 0 and 1 never occur."""
    return ((bits >> np.uint64(12)).astype(np.float64) + 0.5) * 2.0**-52


def gaussian(bits: UInt64[np.ndarray, "*shape"]) -> Float64[np.ndarray, "*shape"]:
    """Standard normal numbers, by inversion of `uniform`."""
    from scipy.special import ndtri

    return ndtri(uniform(bits))


def below(bits: UInt64[np.ndarray, "*shape"], bound: int) -> Int64[np.ndarray, "*shape"]:
    """Uniform integers in 0..bound-1 by multiply-shift of 52 bits; the bias is below bound / 2^52."""
    return np.minimum((uniform(bits) * bound).astype(np.int64), bound - 1)


def distinct_below(bits: UInt64[np.ndarray, "rows picks"], bound: int) -> Int64[np.ndarray, "rows picks"]:
    """Rows of distinct integers in 0..bound-1, as many as `bits` has columns, every set equally likely (Floyd's sampling).

    The order within a row is not uniform: use the row as a set. Raises InputError if there are fewer integers than columns.
    """
    rows, picks = bits.shape
    if picks > bound:
        raise InputError(f"cannot draw {picks} distinct decoys from {bound}; use a larger codebook or fewer slices")
    chosen = np.full((rows, picks), -1, dtype=np.int64)
    for column in range(picks):
        top = bound - picks + column
        candidate = below(bits[:, column], top + 1)
        taken = (chosen[:, :column] == candidate[:, None]).any(axis=1)
        chosen[:, column] = np.where(taken, top, candidate)
    return chosen


def integers_below(
    randomness: Randomness, contexts: Sequence[bytes], bounds: Sequence[int]
) -> Int64[np.ndarray, "rows bounds"]:
    """One integer for each context (row) and each of `bounds` (column), exactly uniform in 0..bound-1.

    The integers are remainders of 64-bit words; a word from the largest multiple of its bound on is drawn again. Raises
    RangeError for bounds outside 1..2^63.
    """
    if not all(1 <= bound <= 1 << 63 for bound in bounds):
        raise RangeError(f"bounds must lie between 1 and 2^63, got {min(bounds)} to {max(bounds)}")
    divisors = np.array(bounds, dtype=np.uint64)
    last = np.array([(1 << 64) - 1 - (1 << 64) % bound for bound in bounds], dtype=np.uint64)
    bits = randomness.bits64(contexts, len(bounds))
    round_index = 0
    while (refused := bits > last).any():
        rows = np.flatnonzero(refused.any(axis=1)).tolist()
        round_index += 1
        again = randomness.bits64([b"again %d|" % round_index + contexts[row] for row in rows], len(bounds))
        bits[rows] = np.where(refused[rows], again, bits[rows])
    return (bits % divisors).astype(np.int64)


def bernoulli(randomness: Randomness, contexts: Sequence[bytes], probability: Fraction) -> Bool[np.ndarray, "rows"]:
    """One boolean for each context, True with exactly `probability`, a rational number.

    A uniform real is drawn 64 binary digits at a time and compared with `probability` until they differ, mostly at once. Raises
    RangeError for a probability outside [0, 1].
    """
    if not 0 <= probability <= 1:
        raise RangeError(f"probability must lie in [0, 1], got {probability!r}")
    if probability == 1:
        return np.ones(len(contexts), dtype=bool)
    below_it = np.zeros(len(contexts), dtype=bool)
    undecided = np.arange(len(contexts))
    rest, round_index = probability, 0
    while undecided.size:
        digit, rest = divmod(rest * (1 << 64), 1)
        bits = randomness.bits64([b"digit %d|" % round_index + contexts[row] for row in undecided.tolist()], 1)[:, 0]
        below_it[undecided] = bits < np.uint64(digit)
        undecided = undecided[bits == np.uint64(digit)]
        round_index += 1
        if rest == 0:
            break  # its digits end here: an equal real is not below it
    return below_it


def subsets_below(randomness: Randomness, contexts: Sequence[bytes], bound: int, size: int) -> Int64[np.ndarray, "rows size"]:
    """Rows of `size` distinct integers in 0..bound-1, one for each context, all sets exactly equally likely (Floyd's sampling).

    The order within a row is not uniform: use the row as a set. Raises RangeError if fewer than `size` integers exist.
    """
    if not 0 <= size <= bound:
        raise RangeError(f"cannot draw {size} distinct integers below {bound}")
    tops = [bound - size + column for column in range(size)]
    candidates = (
        integers_below(randomness, contexts, [top + 1 for top in tops]) if size else np.empty((len(contexts), 0), np.int64)
    )
    chosen = np.full((len(contexts), size), -1, dtype=np.int64)
    for column, top in enumerate(tops):
        taken = (chosen[:, :column] == candidates[:, column, None]).any(axis=1)
        chosen[:, column] = np.where(taken, top, candidates[:, column])
    return chosen
