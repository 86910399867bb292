"""Packing: many encryptions of a number each become one of a polynomial (docs/theory/pir.md, Eq. 13-17).

All that depends on records and the seed alone is computed once (`prepared`): weights that multiply a query's keys, and the
noise that they let through. What is left for a query is a sum of products (`packed`).
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import cache
from typing import NamedTuple

import numpy as np
from jaxtyping import Float64, Int16, Int32, Int64, UInt32, UInt64

from veil.compiled import PAIR_LANES
from veil.errors import InputError, RangeError
from veil.pir import kernels, ring_kernels
from veil.pir.hintless_layout import DIGITS, GADGET, PUBLIC_BITS, SECRET_BITS, HintlessLayout
from veil.pir.layout import SIGMA
from veil.pir.matrix import ByteRows, halves
from veil.pir.ring import MODULUS, TERNARY, Ring, centered, expanded, residues, ring
from veil.pir.ring_kernels import PackingSteps
from veil.threads import shared

COLUMNS_DOMAIN, KEYS_DOMAIN = b"veil pir ring columns 1", b"veil pir ring keys 1"
WRAP = np.uint64((1 << 63) // MODULUS * MODULUS)
_CHUNK = 32  # rows whose products with the public polynomials are added up at a time


class PreparedPacking(NamedTuple):
    """Part of packing that the server computes once for a version of the records. Arrays may be memory-mapped.

    - `seed`, 32 bytes: of the public polynomials.
    - `weights`: of the coefficients of a query's keys from 5 to 1, for each block of rows; sums of digits.
    - `last`: transforms of the digits that multiply the key from -1 to 1.
    - `public`: the public part of each answer, in units of q / 2^18.
    """

    seed: bytes
    weights: Int16[np.ndarray, "blocks digits degree degree"]
    last: UInt32[np.ndarray, "blocks digits degree"]
    public: UInt32[np.ndarray, "blocks degree"]


class CollapsedBlock(NamedTuple):
    """Packing of a block of rows as far as it is public (docs/theory/pir.md, Eq. 17).

    - `weights`, `last`: as in `PreparedPacking`.
    - `dropped`: weights of the coefficients of s(X^5), from all that digits leave out.
    - `public`: the polynomial a'.
    """

    weights: Int16[np.ndarray, "digits degree degree"]
    last: UInt32[np.ndarray, "digits degree"]
    dropped: Int32[np.ndarray, "degree degree"]
    public: UInt32[np.ndarray, "degree"]


@cache
def steps(degree: int) -> PackingSteps:
    """The steps of packing: along the powers of 5 from the highest down, then along their negatives, then from -1 to 1."""
    half = degree // 2
    turns = [*range(half - 2, -1, -1)]
    sides, which = [0] * len(turns) + [1] * len(turns) + [0], [0] * 2 * len(turns) + [1]
    return PackingSteps(*(np.array(values, dtype=np.int64) for values in (sides, [*turns, *turns, 0], which)))


def public_columns(seed: bytes, layout: HintlessLayout) -> Iterator[UInt32[np.ndarray, "1 degree"]]:
    """The public polynomial of each block of columns."""
    for number in range(-(-layout.columns // layout.degree)):
        yield expanded(COLUMNS_DOMAIN, seed, number, layout.degree)[None]


def public_keys(seed: bytes, degree: int) -> UInt32[np.ndarray, "keys degree"]:
    """The public polynomials of the keys: the digits of that from 5 to 1, then of that from -1 to 1."""
    return np.stack([expanded(KEYS_DOMAIN, seed, number, degree) for number in range(2 * DIGITS)])


def doubled(transforms: UInt32[np.ndarray, "*keys degree"]) -> UInt32[np.ndarray, "*queries 2 digits 2 degree"]:
    """Transforms of keys with each half twice, so that a turn of a half is a slice of it."""
    degree = transforms.shape[-1]
    halves = transforms.reshape(-1, 2, DIGITS, 2, degree // 2)
    return np.concatenate([halves, halves], axis=-1)


def prepared(matrix: ByteRows, layout: HintlessLayout, seed: bytes, threads: int = 1) -> PreparedPacking:
    """Prepare answers. It depends on the records and on nothing that a client sends.

    Raises InputError for the matrix of another layout, and RangeError for a seed that is not 32 bytes or with which noise would
    be too large, which no seed is known to have.
    """
    if matrix.layout != layout:
        raise InputError(f"the matrix is of {matrix.layout}, and answers are prepared for {layout}; arrange the records for it")
    base, degree = ring(layout.degree), layout.degree
    keys = doubled(base.transformed(public_keys(seed, degree)))[0]
    columns = np.concatenate([base.transformed(column) for column in public_columns(seed, layout)])
    of_weights, of_last, of_public = prepared_shapes(layout)
    weights = np.empty(of_weights, dtype=np.int16)
    last, public = np.empty(of_last, dtype=np.uint32), np.empty(of_public, dtype=np.uint32)

    def work(block: int) -> float:
        made = collapsed(_hints(matrix, base, columns, block), keys)
        weights[block], last[block], public[block] = made.weights, made.last, switched(made.public, PUBLIC_BITS)
        _require_lanes(made.weights)
        return float(noise_variances(made).max())

    layout.require_packing(math.sqrt(max(shared(work, range(layout.blocks), threads))))
    return PreparedPacking(seed=seed, weights=weights, last=last, public=public)


def prepared_shapes(layout: HintlessLayout) -> tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]:
    """Shapes of the weights, of the last digits, and of the public part of answers."""
    blocks, degree = layout.blocks, layout.degree
    return (blocks, DIGITS, degree, degree), (blocks, DIGITS, degree), (blocks, degree)


def collapsed(hints: UInt32[np.ndarray, "degree degree"], keys: UInt32[np.ndarray, "2 digits 2 degree"]) -> CollapsedBlock:
    """Packing of a block of rows as far as it is public.

    - `hints`: transforms of the polynomials A_i, one in each row.
    - `keys`: `doubled` transforms of the public parts of the keys.
    """
    degree = len(hints)
    base, walk = ring(degree), steps(degree)
    values = base.products(base.transformed(hints.T.copy()), np.full((1, 1), pow(degree, -1, MODULUS), dtype=np.uint32))
    digits, rest = np.empty((degree - 1, DIGITS + 1, degree), dtype=np.uint32), np.empty((1, degree), dtype=np.uint32)
    ring_kernels.collapse(values, walk, keys, GADGET, base.tables, WRAP, digits, rest[0])
    # The step from -1 to 1 drops a multiple of s(X^-1), and that is where s(X^5) is turned by -5^(d/2 - 1).
    first = PackingSteps(*(part[:-1] for part in walk))
    whole = walk._replace(sides=np.append(first.sides, 1), turns=np.append(first.turns, degree // 2 - 1))
    return CollapsedBlock(
        weights=np.stack([_matrix(base, digits[:-1, digit], first).astype(np.int16) for digit in range(DIGITS)]),
        last=digits[-1, :DIGITS],
        dropped=_matrix(base, digits[:, DIGITS], whole).astype(np.int32),
        public=base.polynomials(rest)[0],
    )


def _matrix(base: Ring, values: UInt32[np.ndarray, "steps degree"], walk: PackingSteps) -> Int64[np.ndarray, "degree degree"]:
    """The matrix that takes coefficients of a polynomial to those of the sum of its turns times values, which are transforms.

    Values at z^t are sums of X^l at z^t' over t', and the transform of both sides is undone. Its entries are sums of small
    digits, below q / 2.
    """
    spread = np.empty((base.degree, base.degree), dtype=np.uint32)
    ring_kernels.spread(values, walk, spread)
    rows = base.polynomials(base.polynomials(spread).T.copy())
    return centered(base.products(rows, np.full((1, 1), base.degree, dtype=np.uint32))).T


def _require_lanes(weights: Int16[np.ndarray, "digits degree degree"]) -> None:
    """Raise RangeError if products of weights and 16 bits might pass 32 bits in a sum of `pair_sums`."""
    whole = weights.shape[-1] // (2 * PAIR_LANES) * 2 * PAIR_LANES
    lanes = np.abs(weights[:, :, :whole].astype(np.int32)).reshape(*weights.shape[:2], -1, PAIR_LANES, 2)
    if lanes.sum(axis=(2, 4), dtype=np.int64).max(initial=0) >= 1 << 16:
        raise RangeError("weights of packing are too large to be added exactly with this seed; take another one")


def noise_variances(made: CollapsedBlock) -> Float64[np.ndarray, "degree"]:
    """Variances of the noise of packing in each coefficient of an answer, for the weights that it has (docs/theory/pir.md)."""
    degree, unit = len(made.public), MODULUS / (1 << PUBLIC_BITS)
    keys = (made.weights.astype(np.float64) ** 2).sum(axis=(0, 2)) + (centered(ring(degree).polynomials(made.last)) ** 2).sum()
    rounding = made.public / unit - np.rint(made.public / unit)
    secret = np.sqrt((made.dropped.astype(np.float64) ** 2).sum(axis=1)) + unit * math.sqrt((rounding**2).sum())
    return np.asarray(SIGMA**2 * keys + (TERNARY * secret) ** 2)


def _hints(
    matrix: ByteRows, base: Ring, columns: UInt32[np.ndarray, "blocks degree"], block: int
) -> UInt32[np.ndarray, "degree degree"]:
    """Transforms of the polynomials A_i of a block of rows (docs/theory/pir.md, Eq. 14); 0 for rows that are not there."""
    degree, half = base.degree, base.degree // 2
    panels = list(matrix.panels())
    out = np.zeros((degree, degree), dtype=np.uint32)
    # X -> X^-1 exchanges the halves of a transform; records take it, and it is undone at the end.
    factors = np.concatenate([columns[:, half:], columns[:, :half]], axis=1)
    first = block * degree
    for start in range(first, min(first + degree, matrix.layout.rows), _CHUNK):
        rows = slice(start, min(start + _CHUNK, first + degree, matrix.layout.rows))
        sums = np.zeros((rows.stop - rows.start, degree), dtype=np.uint64)
        plain, values = (np.zeros(sums.shape, dtype=np.uint32) for _ in range(2))
        for number, factor in enumerate(factors):
            plain[:] = 0
            for place, panel in panels:
                low, high = max(place.start, number * degree), min(place.stop, (number + 1) * degree)
                if low < high:
                    plain[:, low - number * degree : high - number * degree] = panel[
                        rows, low - place.start : high - place.start
                    ]
            ring_kernels.transform(plain, base.tables, values)
            ring_kernels.add_products_of_rows(values, factor, WRAP, sums)
        ring_kernels.reduce_sums(sums, np.uint32(MODULUS), out[rows.start - first : rows.stop - first])
    return np.concatenate([out[:, half:], out[:, :half]], axis=1)


def packed(
    values: UInt32[np.ndarray, "queries rows"],
    keys: UInt32[np.ndarray, "queries keys degree"],
    made: PreparedPacking,
    threads: int = 1,
) -> UInt32[np.ndarray, "queries words"]:
    """The words of each answer: 18 bits of the public part below 14 bits of the part that only the query's secret opens.

    - `values`: products of the records' matrix and each query, modulo q.
    - `keys`: of each query.
    """
    count, degree = len(values), keys.shape[-1]
    read = read_keys(keys)
    filled = np.zeros((count, len(made.public), degree), dtype=np.uint32)
    filled.reshape(count, -1)[:, : values.shape[1]] = values

    def work(block: int) -> None:
        sums: Int64[np.ndarray, "queries degree"] = np.zeros((count, degree), dtype=np.int64)
        for digit, weights in enumerate(made.weights[block]):
            kernels.add_exact_products(weights, read.halves[:, digit], sums)
        filled[:, block] = finished(filled[:, block], sums, read, made, block)

    list(shared(work, range(len(made.public)), threads))
    return filled.reshape(count, -1)


class ReadKeys(NamedTuple):
    """Keys of queries as packing multiplies them.

    - `halves`: of the coefficients of the key from 5 to 1, as `veil.pir.matrix.halves` makes them.
    - `turned`: transforms of the key from -1 to 1.
    """

    halves: Int16[np.ndarray, "queries digits 2 degree"]
    turned: UInt64[np.ndarray, "queries digits degree"]


def read_keys(keys: UInt32[np.ndarray, "queries keys degree"]) -> ReadKeys:
    """The keys of queries, for `packed`."""
    degree = keys.shape[-1]
    turned = ring(degree).transformed(keys[:, DIGITS:].reshape(-1, degree)).reshape(-1, DIGITS, degree)
    return ReadKeys(halves=halves(keys[:, :DIGITS]), turned=turned.astype(np.uint64))


def finished(
    values: UInt32[np.ndarray, "queries degree"],
    sums: Int64[np.ndarray, "queries degree"],
    keys: ReadKeys,
    made: PreparedPacking,
    block: int,
) -> UInt32[np.ndarray, "queries degree"]:
    """The words of a block of answers, given the products of the matrix, and those of weights and the first key."""
    modulus = np.uint64(MODULUS)
    last = (made.last[block] * keys.turned % modulus).sum(axis=1) % modulus
    rest = residues(values - sums - ring(values.shape[1]).polynomials(last.astype(np.uint32)))
    return made.public[block] | switched(rest, SECRET_BITS) << np.uint32(PUBLIC_BITS)


def switched(values: UInt32[np.ndarray, "*shape"], bits: int) -> UInt32[np.ndarray, "*shape"]:
    """Values modulo q in units of q / 2^bits, rounded, modulo 2^bits."""
    wide = (values.astype(np.uint64) << np.uint64(bits)) + np.uint64(MODULUS // 2)
    return (wide // np.uint64(MODULUS)).astype(np.uint32) & np.uint32((1 << bits) - 1)
