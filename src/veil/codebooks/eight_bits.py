"""Words of float descriptors in 8 bits, for small files: rounded to levels, and dithered again when they are read.

What was rounded lies on a grid, and the grain of a decoy would tell it from a descriptor of full precision
(docs/theory/hardened.md#grain-of-float-descriptors). A uniform dither as wide as a level takes the grid away.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float32, Int8

from veil.errors import InputError, RangeError
from veil.one_line import one_line

LARGEST = 127
_FRACTION_BITS = 16  # of the dither, in parts of a level
_BLOCK = 1 << 12  # rows at a time


@dataclass(frozen=True, kw_only=True, eq=False)
class EightBitWords:
    """Words as levels of 8 bits and a sign, with the seed of the dither that `words` adds.

    - `levels`, int8 (K, dim): each row scaled so that its largest entry is 127, and rounded; no row is zero.
    - `seed`: of the dither, 0 to 2^32 - 1.

    Raises InputError for rows of zeros, RangeError for an impossible seed.
    """

    levels: Int8[np.ndarray, "words dim"]
    seed: int

    __repr__ = one_line

    def __post_init__(self) -> None:
        if not self.levels.any(axis=1).all():
            raise InputError("words in 8 bits are zero; the file is damaged")
        if not 0 <= self.seed < 1 << 32:
            raise RangeError(f"the seed of a dither must be between 0 and 2^32 - 1, got {self.seed!r}")

    @staticmethod
    def of(vectors: Float32[np.ndarray, "words dim"], seed: int) -> EightBitWords:
        """The vectors rounded to 8 bits and a sign. Raises InputError for vectors that are zero or not finite."""
        largest = np.abs(vectors).max(axis=1, keepdims=True).astype(np.float64)
        if not (largest > 0).all() or not np.isfinite(largest).all():
            raise InputError("words in 8 bits must be finite and not zero")
        return EightBitWords(levels=np.rint(vectors / largest * LARGEST).astype(np.int8), seed=seed)

    def words(self) -> Float32[np.ndarray, "words dim"]:
        """Unit vectors of the levels with their dither: the same bits on every machine.

        The dither is drawn by SHAKE-256 from the seed. Levels and dither are whole numbers of parts of a level, whose squares
        int64 sums up exactly; IEEE 754 fixes the root and the quotient.
        """
        count, dim = self.levels.shape
        stream = hashlib.shake_256(b"veil eight-bit words|%d" % self.seed).digest(2 * count * dim)
        drawn = np.frombuffer(stream, dtype="<u2").reshape(count, dim)
        vectors = np.empty((count, dim), dtype=np.float32)
        for start in range(0, count, _BLOCK):
            rows = slice(start, start + _BLOCK)
            # Odd numbers of 2^-17 levels, so that the dither is symmetric about zero.
            dither = 2 * drawn[rows].astype(np.int64) - ((1 << _FRACTION_BITS) - 1)
            fixed = (self.levels[rows].astype(np.int64) << (_FRACTION_BITS + 1)) + dither
            vectors[rows] = fixed / np.sqrt((fixed * fixed).sum(axis=1, keepdims=True).astype(np.float64))
        return vectors
