"""Polynomials modulo X^d + 1 and a prime q: the ring in which queries of the hintless exit are encrypted (docs/theory/pir.md).

Products of polynomials are products of the values of their transforms (`veil.pir.ring_kernels`).
"""

from __future__ import annotations

import hashlib
import os
from dataclasses import dataclass
from functools import cache

import numpy as np
from jaxtyping import Int64, UInt32

from veil.errors import RangeError
from veil.pir.public_matrix import SEED_BYTES
from veil.pir.ring_kernels import LATE, Factors, TransformTables, transform, untransform

MODULUS = 2_147_389_441  # q: prime, 1 modulo 2^12, and just below 2^31
DEGREE = 2048  # d
TERNARY = (2 / 3) ** 0.5  # deviation of a secret's coefficients
_GENERATOR = 11  # of the integers modulo q; a test tries it
_SPARE = 64  # integers that are drawn beyond those needed, as one in 20,000 is not below q


@dataclass(frozen=True, kw_only=True, eq=False)
class Ring:
    """Polynomials of fewer than `degree` coefficients modulo X^degree + 1 and q; `ring` makes it.

    - `degree`: d, a power of two from 16 to 2048.
    - `tables`: constants of its transform.
    """

    degree: int
    tables: TransformTables

    def transformed(self, values: UInt32[np.ndarray, "batch degree"]) -> UInt32[np.ndarray, "batch degree"]:
        """The transform of each polynomial."""
        out = np.empty(values.shape, dtype=np.uint32)
        transform(values.copy(), self.tables, out)
        return out

    def polynomials(self, values: UInt32[np.ndarray, "batch degree"]) -> UInt32[np.ndarray, "batch degree"]:
        """The polynomial of each transform."""
        out = np.empty(values.shape, dtype=np.uint32)
        untransform(np.ascontiguousarray(values), self.tables, out)
        return out

    def products(
        self, left: UInt32[np.ndarray, "#batch #degree"], right: UInt32[np.ndarray, "#batch #degree"]
    ) -> UInt32[np.ndarray, "batch degree"]:
        """Products of transforms, value by value; one of them may stand for many."""
        return (left.astype(np.uint64) * right % np.uint64(MODULUS)).astype(np.uint32)


@cache
def ring(degree: int = DEGREE) -> Ring:
    """The ring of a degree. Raises RangeError unless it is a power of two from 16 to 2048."""
    if degree not in {1 << power for power in range(4, 12)}:
        raise RangeError(f"the degree of a ring is a power of two from 16 to 2048, got {degree!r}")
    root = pow(_GENERATOR, (MODULUS - 1) // (2 * degree), MODULUS)
    bits = degree.bit_length() - 1
    reversed_bits = [int(format(place, f"0{bits}b")[::-1], 2) for place in range(degree)]
    roots = [pow(root, exponent, MODULUS) for exponent in reversed_bits]
    inverses = [pow(value, -1, MODULUS) for value in roots]
    # The transform leaves the value at z^g in the place of (g - 1) / 2 with its bits reversed, and blocks of it are transposed.
    turns = [pow(5, power, 2 * degree) for power in range(degree // 2)]
    places = [reversed_bits[(g - 1) // 2] for g in (*turns, *(2 * degree - g for g in turns))]
    order = [place % LATE * (degree // LATE) + place // LATE for place in places]
    return Ring(
        degree=degree,
        tables=TransformTables(
            modulus=np.uint32(MODULUS),
            forth=_factors(roots, 1),
            back=_factors(inverses, pow(degree, -1, MODULUS)),
            order=np.array(order, dtype=np.int64),
        ),
    )


def _factors(roots: list[int], last: int) -> Factors:
    """Factors of a transform whose step with `parts` parts reads roots from the place `parts` on."""
    blocks = len(roots) // LATE
    rows = [roots[parts * blocks + place : 2 * parts * blocks : parts] for parts in (1, 2, 4, 8) for place in range(parts)]
    return Factors(early=_with_up(roots[:blocks]), late=_with_up(rows), last=_with_up([last]).reshape(2))


def _with_up(factors: list[int] | list[list[int]]) -> UInt32[np.ndarray, "2 *shape"]:
    """Factors w, and floor(2^32 w / q)."""
    plain = np.array(factors, dtype=np.uint64)
    return np.stack([plain, (plain << np.uint64(32)) // np.uint64(MODULUS)]).astype(np.uint32)


def expanded(domain: bytes, seed: bytes, number: int, degree: int) -> UInt32[np.ndarray, "degree"]:
    """A public polynomial, uniform in the random-oracle model.

    It is SHAKE-256 of the domain, the seed and the number as 8 bytes, read as integers of 32 bits, least byte first. The
    highest bit is cleared, and integers of q or more are left out. Raises RangeError for a seed that is not 32 bytes.
    """
    if len(seed) != SEED_BYTES:
        raise RangeError(f"the seed of the public polynomials has {SEED_BYTES} bytes, got {len(seed)}")
    stream, drawn = hashlib.shake_256(domain + seed + number.to_bytes(8, "little")), degree + _SPARE
    while True:
        words = np.frombuffer(stream.digest(4 * drawn), dtype="<u4") & np.uint32(0x7FFF_FFFF)
        kept = words[words < MODULUS]
        if len(kept) >= degree:
            return kept[:degree].astype(np.uint32)
        drawn *= 2


def ternary(degree: int) -> Int64[np.ndarray, "degree"]:
    """Independent coefficients, uniform on -1, 0 and 1, from the operating system."""
    kept = np.zeros(0, dtype=np.int64)
    while len(kept) < degree:
        drawn = np.frombuffer(os.urandom(degree + _SPARE), dtype=np.uint8)
        kept = np.concatenate([kept, drawn[drawn < 255].astype(np.int64) % 3 - 1])
    return kept[:degree]


def residues(values: Int64[np.ndarray, "*shape"]) -> UInt32[np.ndarray, "*shape"]:
    """Integers modulo q."""
    return (values % MODULUS).astype(np.uint32)


def centered(values: UInt32[np.ndarray, "*shape"]) -> Int64[np.ndarray, "*shape"]:
    """Integers between -q/2 and q/2."""
    wide = values.astype(np.int64)
    return np.where(wide > MODULUS // 2, wide - MODULUS, wide)
