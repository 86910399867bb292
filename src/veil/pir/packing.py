"""Packing: many encryptions of a number each become one of a polynomial (docs/theory/pir.md, Eq. 13-17).

All that depends on records and the seed alone is computed once (`prepared`): digits that multiply a query's keys. What is left
for a query is a sum of products (`packed`).
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import NamedTuple

import numpy as np
from jaxtyping import UInt32, UInt64

from veil.errors import InputError
from veil.pir import ring_kernels
from veil.pir.hintless_layout import DIGITS, GADGET, PUBLIC_BITS, SECRET_BITS, HintlessLayout
from veil.pir.matrix import Matrix
from veil.pir.ring import MODULUS, Ring, expanded, ring
from veil.pir.ring_kernels import PackingSteps
from veil.threads import shared

COLUMNS_DOMAIN, KEYS_DOMAIN = b"veil pir ring columns 1", b"veil pir ring keys 1"
WRAP = np.uint64((1 << 63) // MODULUS * MODULUS)
PLACES = 256  # of a transform whose sums stay in the nearest cache while the digits of all steps are read in order
_CHUNK = 8  # words of four rows whose products with the public polynomials are added up at a time


class PreparedPacking(NamedTuple):
    """Part of packing that the server computes once for a version of the records.

    - `seed`, 32 bytes: of the public polynomials.
    - `digits`: transforms of the digits of all steps of packing, for each block of rows, cut into tiles of places. They may be
      memory-mapped.
    - `public`: the public part of each answer, in units of q / 2^18.
    """

    seed: bytes
    digits: UInt32[np.ndarray, "blocks tiles steps digits places"]
    public: UInt32[np.ndarray, "blocks degree"]


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


def prepared(matrix: Matrix, layout: HintlessLayout, seed: bytes, threads: int = 1) -> PreparedPacking:
    """Prepare answers. It depends on the records and on nothing that a client sends.

    Raises InputError for the matrix of another layout and RangeError for a seed that is not 32 bytes.
    """
    if matrix.layout != layout:
        raise InputError(f"the matrix is of {matrix.layout}, and answers are prepared for {layout}; arrange the records for it")
    base, degree = ring(layout.degree), layout.degree
    keys = doubled(base.transformed(public_keys(seed, degree)))[0]
    columns = np.concatenate([base.transformed(column) for column in public_columns(seed, layout)])
    public, digits = (np.empty(shape, dtype=np.uint32) for shape in prepared_shapes(layout))

    def work(block: int) -> None:
        values = base.transformed(_hints(matrix, base, columns, block).T.copy())
        scaled = base.products(values, np.full((1, 1), pow(degree, -1, MODULUS), dtype=np.uint32))
        rest = np.empty((1, degree), dtype=np.uint32)
        ring_kernels.collapse(scaled, steps(degree), keys, GADGET, base.tables, WRAP, digits[block], rest[0])
        public[block] = switched(base.polynomials(rest)[0], PUBLIC_BITS)

    list(shared(work, range(layout.blocks), threads))
    return PreparedPacking(seed=seed, digits=digits, public=public)


def prepared_shapes(layout: HintlessLayout) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Shapes of the public part of answers and of the digits."""
    places = min(PLACES, layout.degree // 2)
    tiles = layout.degree // places
    return (layout.blocks, layout.degree), (layout.blocks, tiles, layout.degree - 1, DIGITS, places)


def _hints(
    matrix: Matrix, base: Ring, columns: UInt32[np.ndarray, "blocks degree"], block: int
) -> UInt32[np.ndarray, "degree degree"]:
    """Transforms of the polynomials A_i of a block of rows (docs/theory/pir.md, Eq. 14); 0 for rows that are not there."""
    degree, half = base.degree, base.degree // 2
    panels = list(matrix.panels())
    out = np.zeros((degree, degree), dtype=np.uint32)
    # X -> X^-1 exchanges the halves of a transform; records take it, and it is undone at the end.
    factors = np.concatenate([columns[:, half:], columns[:, :half]], axis=1)
    first = block * degree // 4
    for start in range(first, min(first + degree // 4, matrix.groups), _CHUNK):
        groups = slice(start, min(start + _CHUNK, first + degree // 4, matrix.groups))
        sums = np.zeros((4 * (groups.stop - groups.start), degree), dtype=np.uint64)
        plain, values = (np.zeros(sums.shape, dtype=np.uint32) for _ in range(2))
        for number, factor in enumerate(factors):
            plain[:] = 0
            for place, words in panels:
                low, high = max(place.start, number * degree), min(place.stop, (number + 1) * degree)
                if low < high:
                    some = plain[:, low - number * degree : high - number * degree]
                    ring_kernels.bytes_of_rows(words[groups, low - place.start : high - place.start], some)
            ring_kernels.transform(plain, base.tables, values)
            ring_kernels.add_products_of_rows(values, factor, WRAP, sums)
        rows = out[4 * (groups.start - first) : 4 * (groups.stop - first)]
        ring_kernels.reduce_sums(sums, np.uint32(MODULUS), rows)
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
    degree = keys.shape[-1]
    base, count = ring(degree), len(values)
    turned = doubled(base.transformed(keys.reshape(-1, degree)))
    filled = np.zeros((count, len(made.public), degree), dtype=np.uint32)
    filled.reshape(count, -1)[:, : values.shape[1]] = values

    def work(block: int) -> None:
        sums: UInt64[np.ndarray, "queries degree"] = np.zeros((count, degree), dtype=np.uint64)
        ring_kernels.add_switched(made.digits[block], steps(degree), turned, WRAP, sums)
        less = (sums % np.uint64(MODULUS)).astype(np.uint32)
        rest = (filled[:, block].astype(np.int64) - base.polynomials(less)) % MODULUS
        filled[:, block] = made.public[block] | switched(rest.astype(np.uint32), SECRET_BITS) << np.uint32(PUBLIC_BITS)

    list(shared(work, range(len(made.public)), threads))
    return filled.reshape(count, -1)


def switched(values: UInt32[np.ndarray, "*shape"], bits: int) -> UInt32[np.ndarray, "*shape"]:
    """Values modulo q in units of q / 2^bits, rounded, modulo 2^bits."""
    wide = (values.astype(np.uint64) << np.uint64(bits)) + np.uint64(MODULUS // 2)
    return (wide // np.uint64(MODULUS)).astype(np.uint32) & np.uint32((1 << bits) - 1)
