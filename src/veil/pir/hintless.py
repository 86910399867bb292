"""Private retrieval from one server without a hint: queries are encrypted by ring learning with errors (docs/theory/pir.md).

The server multiplies its matrix of bytes with a query, as with a hint (`veil.pir.one_server`). To decode the product, the hint
would be needed. So the server packs it into polynomials with keys that the query brings; what packing needs of the hint is
prepared once (`veil.pir.packing`). Mahdavi, Patel, Seo and Yeo, "InsPIRe", 2025, pack so.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Int64, UInt8, UInt32

from veil.errors import PirError, RangeError
from veil.ldp.guarantee import ComputationalPrivacy
from veil.pir import gaussian, kernels
from veil.pir.hintless_layout import COST, DIGITS, GADGET, PUBLIC_BITS, STEP, HintlessLayout
from veil.pir.layout import CENTER, SIGMA
from veil.pir.matrix import ByteRows, arranged_rows, halves, shares
from veil.pir.one_server import Pending
from veil.pir.packing import PreparedPacking, packed, prepared, public_columns, public_keys
from veil.pir.ring import DEGREE, MODULUS, centered, residues, ring, ternary
from veil.threads import shared

__all__ = ["GUARANTEE", "ByteRows", "PreparedPacking", "answers", "arranged_rows", "decode", "prepared", "queries"]

GUARANTEE = ComputationalPrivacy(
    assumption=f"{COST.sentence}; ring learning with errors in degree {DEGREE} modulo {MODULUS}, Gaussian noise "
    f"(sigma {SIGMA}), ternary secret, also where the server has encryptions of two automorphisms of the secret under itself",
    bits=float(math.floor(COST.classical)),
    unit="query",
)


class HintlessHeld(NamedTuple):
    """Key that decodes a batch of queries: for each, its secret and the sum of its noise."""

    layout: HintlessLayout
    secrets: Int64[np.ndarray, "queries degree"]
    noise_sums: Int64[np.ndarray, "queries"]


def queries(indices: Sequence[int], layout: HintlessLayout, seed: bytes) -> tuple[list[bytes], Pending[HintlessHeld]]:
    """Queries for records by their indices, `parts` of them for each, and the secrets that decode the answers.

    All queries have one length, whatever is asked for; secrets and noise are drawn anew from the operating system. A query is
    `columns` integers below q and the keys for packing.

    Raises RangeError for an index outside 0..records-1, no index, or a seed that is not 32 bytes.
    """
    if not indices or not all(0 <= index < layout.records for index in indices):
        raise RangeError(f"indices must be one or more between 0 and {layout.records - 1}, got {list(indices)!r}")
    base, degree = ring(layout.degree), layout.degree
    wanted = np.array([index * layout.parts + part for index in indices for part in range(layout.parts)])
    secrets = np.stack([ternary(degree) for _ in wanted])
    transforms = base.transformed(residues(secrets))
    noise = _noise(len(wanted), layout.columns)
    vectors = noise.copy()
    for number, public in enumerate(public_columns(seed, layout)):
        some = vectors[:, number * degree : (number + 1) * degree]
        some += base.polynomials(base.products(transforms, base.transformed(public)))[:, : some.shape[1]]
    vectors[np.arange(len(wanted)), wanted] += STEP
    keys = [_keys(secret, transform, seed) for secret, transform in zip(secrets, transforms, strict=True)]
    held = HintlessHeld(layout=layout, secrets=secrets, noise_sums=noise.sum(axis=1))
    parts = zip(residues(vectors), keys, strict=True)
    return [np.concatenate([vector, key.ravel()]).astype("<u4").tobytes() for vector, key in parts], Pending(held)


def _noise(*shape: int) -> Int64[np.ndarray, "*shape"]:
    return gaussian.sample(math.prod(shape)).reshape(shape)


def _keys(
    secret: Int64[np.ndarray, "degree"], transform: UInt32[np.ndarray, "degree"], seed: bytes
) -> UInt32[np.ndarray, "keys degree"]:
    """Encryptions under the secret s of multiples of s(X^5) and s(X^-1), for packing (docs/theory/pir.md, Eq. 16)."""
    degree = len(secret)
    base = ring(degree)
    multiples = np.int64(1) << (GADGET.dropped + GADGET.bits * np.arange(DIGITS, dtype=np.int64))
    switched = np.concatenate([multiples[:, None] * automorphism(secret, g) for g in (5, 2 * degree - 1)])
    masked = base.polynomials(base.products(base.transformed(public_keys(seed, degree)), transform[None]))
    return residues(masked + switched + _noise(*switched.shape))


def automorphism(values: Int64[np.ndarray, "degree"], power: int) -> Int64[np.ndarray, "degree"]:
    """The polynomial at X^power, for an odd power."""
    degree = len(values)
    places = np.arange(degree) * power % (2 * degree)
    out = np.empty_like(values)
    out[places % degree] = np.where(places < degree, values, -values)
    return out


def answers(
    matrix: ByteRows, made: PreparedPacking, layout: HintlessLayout, messages: Sequence[bytes], threads: int = 1
) -> list[bytes]:
    """The answer to each query, from one pass over the matrix and over what was prepared, by a number of threads.

    Raises PirError for a query of another length or with integers of q or more.
    """
    words = [_read(message, layout) for message in messages]
    if not words:
        return []
    vectors, keys = np.stack([item[: layout.columns] for item in words]), np.stack([item[layout.columns :] for item in words])
    values = exact_products(matrix, vectors, threads)
    return [row.astype("<u4").tobytes() for row in packed(values, keys.reshape(len(words), -1, layout.degree), made, threads)]


def require_query(message: bytes, layout: HintlessLayout) -> None:
    """Raise PirError for a query of another length or with integers of q or more."""
    _read(message, layout)


def _read(message: bytes, layout: HintlessLayout) -> UInt32[np.ndarray, "words"]:
    if len(message) != layout.query_bytes:
        raise PirError(f"a query for {layout.columns} columns has {layout.query_bytes} bytes, got {len(message)}")
    words = np.frombuffer(message, dtype="<u4").astype(np.uint32, copy=False)
    if (words >= MODULUS).any():
        raise PirError(f"a query holds integers below {MODULUS}, and this one has others; make a new one")
    return words


def exact_products(
    matrix: ByteRows, vectors: UInt32[np.ndarray, "vectors columns"], threads: int = 1
) -> UInt32[np.ndarray, "vectors rows"]:
    """Products of the matrix with each vector of integers below q, modulo q, in one pass over it by a number of threads."""
    both = halves(vectors)
    pieces = [(rows, np.ascontiguousarray(both[:, :, columns])) for columns, rows in matrix.panels()]
    out: Int64[np.ndarray, "vectors rows"] = np.zeros((len(vectors), matrix.layout.rows), dtype=np.int64)

    def work(some: slice) -> None:
        for rows, piece in pieces:
            kernels.add_exact_products(rows[some], piece, out[:, some])

    list(shared(work, shares(matrix.layout.rows, threads), threads))
    return residues(out)


def decode(received: Sequence[bytes], pending: Pending[HintlessHeld]) -> list[bytes]:
    """The records that were asked for, in the order of their indices. It uses up the secrets.

    Raises PirError if the number or the length of answers do not fit, or if it was called before. A server that lies gives
    other bytes: check them (docs/theory/pir.md#what-is-not-hidden).
    """
    held = pending.peek()
    layout = held.layout
    if len(received) != len(held.secrets):
        raise PirError(f"{len(held.secrets)} queries were made, got {len(received)} answers")
    if any(len(answer) != layout.answer_bytes for answer in received):
        raise PirError(
            f"answers of this layout have {layout.answer_bytes} bytes, got {sorted({len(item) for item in received})}"
        )
    symbols, _ = rounded(received, pending.take())
    whole = symbols.reshape(-1, layout.parts * layout.rows)[:, : layout.size]
    return [record.tobytes() for record in whole]


def rounded(
    received: Sequence[bytes], held: HintlessHeld
) -> tuple[UInt8[np.ndarray, "queries rows"], Int64[np.ndarray, "queries rows"]]:
    """The bytes of each answer, and the noise that was in it, in units of q / 2^18 (docs/theory/pir.md, Eq. 18)."""
    layout, unit = held.layout, 1 << PUBLIC_BITS
    base, half = ring(layout.degree), unit // 512
    words = np.stack([np.frombuffer(answer, dtype="<u4") for answer in received]).reshape(len(received), -1, layout.degree)
    public = ((words & np.uint32(unit - 1)).astype(np.int64) + unit // 2) % unit - unit // 2
    secrets = base.transformed(residues(held.secrets))
    products = [base.products(base.transformed(residues(a)), s[None]) for a, s in zip(public, secrets, strict=True)]
    masks = np.stack([centered(base.polynomials(product)) for product in products])
    values = ((words >> np.uint32(PUBLIC_BITS)).astype(np.int64) << (2 * PUBLIC_BITS - 32)) - masks
    middles = np.rint(CENTER * held.noise_sums * (unit / MODULUS)).astype(np.int64)
    rows = (values.reshape(len(received), -1)[:, : layout.rows] - middles[:, None] + half) % unit
    return (rows // (2 * half)).astype(np.uint8), rows % (2 * half) - half
