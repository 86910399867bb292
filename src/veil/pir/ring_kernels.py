"""Compiled loops on polynomials modulo a prime below 2^31: transforms, gadget digits and sums of products (docs/theory/pir.md).

Values are integers below the prime. The transform of a polynomial f modulo X^d + 1 holds f(z^g) for a 2d-th root of unity z and
all odd g, ordered as g = 1, 5, 5^2, ..., then -1, -5, -5^2, ... . There the automorphism X -> X^(5^k) turns both halves by k
places, and X -> X^-1 exchanges them. `veil.pir.reference` says what packing computes.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from jaxtyping import Int64, UInt32, UInt64

from veil.compiled import compiled

LATE = 16  # values at a distance below this are transformed as rows of a transposed copy, so that loops stay long


class Factors(NamedTuple):
    """Powers of z in the order in which a transform reads them, each with floor(2^32 w / q), which spares a division.

    - `early`: of the steps at distances of LATE and more.
    - `late`: of those at distances 8, 4, 2 and 1, a row for each place in the blocks of LATE values.
    - `last`: the factor of all values at the end.
    """

    early: UInt32[np.ndarray, "2 blocks"]
    late: UInt32[np.ndarray, "2 15 blocks"]
    last: UInt32[np.ndarray, "2"]


class TransformTables(NamedTuple):
    """Constants of a ring: q, the factors of both transforms, and where in the transposed copy each value stands."""

    modulus: np.uint32
    forth: Factors
    back: Factors
    order: Int64[np.ndarray, "degree"]


class PackingSteps(NamedTuple):
    """The automorphisms of the secret after each step of packing: 5^turn or -5^turn, and the key that leads there.

    - `sides`: 0 for 5^turn, 1 for -5^turn.
    - `which`: 0 for the key from 5 to 1, 1 for that from -1 to 1.
    """

    sides: Int64[np.ndarray, "steps"]
    turns: Int64[np.ndarray, "steps"]
    which: Int64[np.ndarray, "steps"]


class Gadget(NamedTuple):
    """Digits in packing: the number of the lowest bits that are dropped, and the bits of a digit."""

    dropped: int
    bits: int


@compiled
def _times(value: np.uint32, factor: np.uint32, factor_up: np.uint32, modulus: np.uint32) -> np.uint32:
    """The product modulo q."""
    quotient = np.uint32((np.uint64(value) * np.uint64(factor_up)) >> np.uint64(32))
    rest = np.uint32(value * factor - quotient * modulus)  # below 2 q
    return min(rest, np.uint32(rest - modulus))


@compiled
def _forth(
    one: UInt32[np.ndarray, "places"],
    two: UInt32[np.ndarray, "places"],
    root: UInt32[np.ndarray, "places"],
    root_up: UInt32[np.ndarray, "places"],
    modulus: np.uint32,
) -> None:
    """A step of the transform on two rows; the factors are one for all places, or one for each."""
    every = 0 if root.shape[0] == 1 else 1
    for place in range(one.shape[0]):
        left, right = one[place], _times(two[place], root[every * place], root_up[every * place], modulus)
        total, rest = np.uint32(left + right), np.uint32(left - right)
        one[place] = min(total, np.uint32(total - modulus))
        two[place] = min(rest, np.uint32(rest + modulus))


@compiled
def _back(
    one: UInt32[np.ndarray, "places"],
    two: UInt32[np.ndarray, "places"],
    root: UInt32[np.ndarray, "places"],
    root_up: UInt32[np.ndarray, "places"],
    modulus: np.uint32,
) -> None:
    """A step of the inverse transform on two rows, as `_forth`."""
    every = 0 if root.shape[0] == 1 else 1
    for place in range(one.shape[0]):
        left, right = one[place], two[place]
        total, rest = np.uint32(left + right), np.uint32(left - right)
        one[place] = min(total, np.uint32(total - modulus))
        two[place] = _times(min(rest, np.uint32(rest + modulus)), root[every * place], root_up[every * place], modulus)


@compiled
def transform(
    values: UInt32[np.ndarray, "batch degree"], tables: TransformTables, out: UInt32[np.ndarray, "batch degree"]
) -> None:
    """Put the transform of each row into `out`. It destroys the rows."""
    modulus, factors = tables.modulus, tables.forth
    degree = values.shape[1]
    blocks = degree // LATE
    turned = np.empty((LATE, blocks), dtype=np.uint32)
    flat = turned.reshape(degree)
    for row in range(values.shape[0]):
        half, parts = degree // 2, 1
        while half >= LATE:
            for part in range(parts):
                start, place = 2 * part * half, parts + part
                one, two = values[row, start : start + half], values[row, start + half : start + 2 * half]
                _forth(one, two, factors.early[0, place : place + 1], factors.early[1, place : place + 1], modulus)
            half, parts = half // 2, 2 * parts
        for block in range(blocks):
            for place in range(LATE):
                turned[place, block] = values[row, LATE * block + place]
        half = LATE // 2
        while half >= 1:
            for first in range(LATE):
                if first // half % 2 == 0:
                    at = LATE // 2 // half - 1 + first // (2 * half)
                    _forth(turned[first], turned[first + half], factors.late[0, at], factors.late[1, at], modulus)
            half //= 2
        for place in range(degree):
            out[row, place] = flat[tables.order[place]]


@compiled
def untransform(
    values: UInt32[np.ndarray, "batch degree"], tables: TransformTables, out: UInt32[np.ndarray, "batch degree"]
) -> None:
    """Put the polynomial of each row, a transform, into `out`."""
    modulus, factors = tables.modulus, tables.back
    degree = values.shape[1]
    blocks = degree // LATE
    turned = np.empty((LATE, blocks), dtype=np.uint32)
    flat = turned.reshape(degree)
    for row in range(values.shape[0]):
        for place in range(degree):
            flat[tables.order[place]] = values[row, place]
        half = 1
        while half < LATE:
            for first in range(LATE):
                if first // half % 2 == 0:
                    at = LATE // 2 // half - 1 + first // (2 * half)
                    _back(turned[first], turned[first + half], factors.late[0, at], factors.late[1, at], modulus)
            half *= 2
        for block in range(blocks):
            for place in range(LATE):
                out[row, LATE * block + place] = turned[place, block]
        half, parts = LATE, blocks // 2
        while parts >= 1:
            for part in range(parts):
                start, place = 2 * part * half, parts + part
                one, two = out[row, start : start + half], out[row, start + half : start + 2 * half]
                _back(one, two, factors.early[0, place : place + 1], factors.early[1, place : place + 1], modulus)
            half, parts = 2 * half, parts // 2
        for place in range(degree):
            out[row, place] = _times(out[row, place], factors.last[0], factors.last[1], modulus)


@compiled
def add_products_of(
    left: UInt32[np.ndarray, "degree"], right: UInt32[np.ndarray, "degree"], wrap: np.uint64, out: UInt64[np.ndarray, "degree"]
) -> None:
    """Add products to sums that stay below `wrap`, a multiple of q of at most 2^63."""
    for place in range(out.shape[0]):
        total = out[place] + np.uint64(left[place]) * np.uint64(right[place])
        out[place] = min(total, np.uint64(total - wrap))


@compiled
def add_products_of_rows(
    rows: UInt32[np.ndarray, "count degree"],
    factor: UInt32[np.ndarray, "degree"],
    wrap: np.uint64,
    out: UInt64[np.ndarray, "count degree"],
) -> None:
    """Add the products of each row and one factor to sums, as `add_products_of`."""
    for row in range(rows.shape[0]):
        add_products_of(rows[row], factor, wrap, out[row])


@compiled
def reduce_sums(sums: UInt64[np.ndarray, "count degree"], modulus: np.uint32, out: UInt32[np.ndarray, "count degree"]) -> None:
    """Put the sums modulo q into `out`."""
    for row in range(sums.shape[0]):
        for place in range(sums.shape[1]):
            out[row, place] = np.uint32(sums[row, place] % np.uint64(modulus))


@compiled
def add_turned(
    digits: UInt32[np.ndarray, "digits places"],
    keys: UInt32[np.ndarray, "digits 2 degree"],
    side: int,
    turn: int,
    first: int,
    wrap: np.uint64,
    out: UInt64[np.ndarray, "places"],
) -> None:
    """Add the products of digits and turned keys to sums, for some places of one half, from `first` of all on.

    `keys` hold each half of a transform twice, so that turns are slices.
    """
    half = keys.shape[2] // 2
    part, start = first // half, first % half + turn
    for digit in range(digits.shape[0]):
        add_products_of(digits[digit], keys[digit, part ^ side, start : start + out.shape[0]], wrap, out)


@compiled
def split(
    values: UInt32[np.ndarray, "degree"], gadget: Gadget, modulus: np.uint32, out: UInt32[np.ndarray, "digits+1 degree"]
) -> None:
    """Signed digits modulo q, and last what is dropped: values between -q/2 and q/2 are the sum of it and of digit j times
    2^(dropped + bits j).

    Digits lie between -2^(bits - 1) and 2^(bits - 1), and what is dropped between -2^(dropped - 1) and 2^(dropped - 1).
    """
    base, last, limit = np.int32(1 << gadget.bits), out.shape[0] - 2, np.int32(modulus)
    rest = np.empty(values.shape[0], dtype=np.int32)
    for place in range(values.shape[0]):
        value = np.int64(values[place])
        value -= np.int64(limit) * np.int64(value > limit // 2)
        rest[place] = np.int32((value + (1 << (gadget.dropped - 1))) >> gadget.dropped)
        low = np.int32(value - (np.int64(rest[place]) << gadget.dropped))
        out[last + 1, place] = np.uint32(low + limit * np.int32(low < 0))
    for digit in range(last):
        for place in range(values.shape[0]):
            low = np.int32(((rest[place] + base // 2) & (base - 1)) - base // 2)
            rest[place] = np.int32((rest[place] - low) >> gadget.bits)
            out[digit, place] = np.uint32(low + limit * np.int32(low < 0))
    for place in range(values.shape[0]):
        out[last, place] = np.uint32(rest[place] + limit * np.int32(rest[place] < 0))


@compiled
def _term(values: UInt32[np.ndarray, "degree degree"], side: int, turn: int, out: UInt32[np.ndarray, "degree"]) -> None:
    """The factor of the secret under an automorphism in packing: a diagonal of the two-dimensional transform."""
    half = out.shape[0] // 2
    for part in range(2):
        for place in range(half):
            source = place + turn if place + turn < half else place + turn - half
            out[part * half + place] = values[(part ^ side) * half + source, part * half + place]


@compiled
def collapse(
    values: UInt32[np.ndarray, "degree degree"],
    steps: PackingSteps,
    keys: UInt32[np.ndarray, "2 digits 2 degree"],
    gadget: Gadget,
    tables: TransformTables,
    wrap: np.uint64,
    digits: UInt32[np.ndarray, "steps digits+1 degree"],
    out: UInt32[np.ndarray, "degree"],
) -> None:
    """The public part of packing (docs/theory/pir.md, Eq. 17): transforms of the digits of all steps and of what is dropped
    there, and the rest at the end.

    `values` is the two-dimensional transform, divided by the degree, and `keys` the public parts of the keys.
    """
    degree, modulus = values.shape[0], tables.modulus
    half, last = degree // 2, digits.shape[1] - 1
    rest, others = np.empty((1, degree), dtype=np.uint32), np.empty(degree, dtype=np.uint32)
    polynomial = np.empty((1, degree), dtype=np.uint32)
    plain = np.empty((last + 1, degree), dtype=np.uint32)
    sums = np.empty(degree, dtype=np.uint64)
    for step in range(degree - 1):
        if steps.which[step] == 0 and steps.turns[step] == half - 2:
            if steps.sides[step] == 1:
                others[:] = rest[0]  # what is left of the first side waits for that of the second
            _term(values, steps.sides[step], half - 1, rest[0])
        untransform(rest, tables, polynomial)
        split(polynomial[0], gadget, modulus, plain)
        transform(plain, tables, digits[step])
        sums[:] = 0
        key = keys[steps.which[step]]
        for first in (0, half):
            some = slice(first, first + half)
            add_turned(digits[step, :last, some], key, steps.sides[step], steps.turns[step], first, wrap, sums[some])
        if steps.which[step] == 0:
            _term(values, steps.sides[step], steps.turns[step], rest[0])
        else:
            rest[0] = others
        for place in range(degree):
            less = np.uint32(rest[0, place] - np.uint32(sums[place] % np.uint64(modulus)))
            rest[0, place] = min(less, np.uint32(less + modulus))
    out[:] = rest[0]


@compiled
def spread(values: UInt32[np.ndarray, "steps degree"], steps: PackingSteps, out: UInt32[np.ndarray, "degree degree"]) -> None:
    """Put transforms, which multiply turned transforms, where a matrix has them, with its columns' halves exchanged.

    The product of the matrix and a transform is the sum over steps of the products of values and the turned transform.
    """
    half = out.shape[0] // 2
    out[:] = 0
    for step in range(values.shape[0]):
        for part in range(2):
            first = (1 - (part ^ steps.sides[step])) * half
            for place in range(half):
                source = place + steps.turns[step]
                out[part * half + place, first + (source if source < half else source - half)] = values[
                    step, part * half + place
                ]
