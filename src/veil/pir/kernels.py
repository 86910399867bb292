"""Compiled inner loops of private retrieval, at the speed of memory; `veil.pir.reference` says what they compute.

A word holds one column of four rows of a matrix of bytes, the first row in its lowest byte. For words w and factors v, the sums
modulo 2^32 over columns of w v, (w >> 8) v, (w >> 16) v and (w >> 24) v give the products of the rows:
sum_k - 2^8 sum_(k+1) is that of row k (docs/theory/pir.md, Eq. 10). So a word is loaded once, and no byte is cut out of it.
"""

from __future__ import annotations

import numpy as np
from jaxtyping import Bool, Int16, Int64, UInt8, UInt32

from veil.compiled import compiled, pair_sums

VECTORS = 4  # that are multiplied at a time: with four rows, 16 sums stay in registers
_GROUPS = 128  # of four rows, that are multiplied with four vectors before the next four: with PANEL columns, half a MiB
PANEL = 1024  # columns of a panel of words
# Columns of a panel of bytes, whose part of a vector stays in the nearest cache. A lane adds 32 pairs of products below 2^23.
BYTE_PANEL = 2048


@compiled
def add_product(
    panel: UInt32[np.ndarray, "groups columns"], vector: UInt32[np.ndarray, "columns"], out: UInt32[np.ndarray, "4*groups"]
) -> None:
    """Add the product of a panel of words and one vector to `out`."""
    for group in range(panel.shape[0]):
        row = panel[group]
        sum0 = sum1 = sum2 = sum3 = np.uint32(0)
        for column in range(panel.shape[1]):
            word, factor = row[column], vector[column]
            sum0 = np.uint32(sum0 + word * factor)
            sum1 = np.uint32(sum1 + np.uint32(word >> np.uint32(8)) * factor)
            sum2 = np.uint32(sum2 + np.uint32(word >> np.uint32(16)) * factor)
            sum3 = np.uint32(sum3 + np.uint32(word >> np.uint32(24)) * factor)
        _add_rows(sum0, sum1, sum2, sum3, out, 4 * group)


@compiled
def add_products(
    panel: UInt32[np.ndarray, "groups columns"],
    vectors: UInt32[np.ndarray, "vectors columns"],
    out: UInt32[np.ndarray, "vectors 4*groups"],
) -> None:
    """Add the products of a panel of words and vectors, a multiple of VECTORS of them, to `out`."""
    for first in range(0, panel.shape[0], _GROUPS):
        groups = panel[first : first + _GROUPS]
        for index in range(0, vectors.shape[0], VECTORS):
            some = slice(index, index + VECTORS)
            _add_four(groups, vectors[some], out[some, 4 * first :])


@compiled
def _add_four(
    panel: UInt32[np.ndarray, "groups columns"],
    vectors: UInt32[np.ndarray, "4 columns"],
    out: UInt32[np.ndarray, "4 rows"],
) -> None:
    """Add the products of words and four vectors to `out`: 16 sums in registers, each with a name of its own."""
    a, b, c, d = vectors[0], vectors[1], vectors[2], vectors[3]
    for group in range(panel.shape[0]):
        row = panel[group]
        a0 = a1 = a2 = a3 = b0 = b1 = b2 = b3 = c0 = c1 = c2 = c3 = d0 = d1 = d2 = d3 = np.uint32(0)
        for column in range(panel.shape[1]):
            word0 = row[column]
            word1, word2, word3 = np.uint32(word0 >> 8), np.uint32(word0 >> 16), np.uint32(word0 >> 24)
            at, bt, ct, dt = a[column], b[column], c[column], d[column]
            a0, b0 = np.uint32(a0 + word0 * at), np.uint32(b0 + word0 * bt)
            c0, d0 = np.uint32(c0 + word0 * ct), np.uint32(d0 + word0 * dt)
            a1, b1 = np.uint32(a1 + word1 * at), np.uint32(b1 + word1 * bt)
            c1, d1 = np.uint32(c1 + word1 * ct), np.uint32(d1 + word1 * dt)
            a2, b2 = np.uint32(a2 + word2 * at), np.uint32(b2 + word2 * bt)
            c2, d2 = np.uint32(c2 + word2 * ct), np.uint32(d2 + word2 * dt)
            a3, b3 = np.uint32(a3 + word3 * at), np.uint32(b3 + word3 * bt)
            c3, d3 = np.uint32(c3 + word3 * ct), np.uint32(d3 + word3 * dt)
        _add_rows(a0, a1, a2, a3, out[0], 4 * group)
        _add_rows(b0, b1, b2, b3, out[1], 4 * group)
        _add_rows(c0, c1, c2, c3, out[2], 4 * group)
        _add_rows(d0, d1, d2, d3, out[3], 4 * group)


@compiled
def _add_rows(
    sum0: np.uint32, sum1: np.uint32, sum2: np.uint32, sum3: np.uint32, out: UInt32[np.ndarray, "rows"], first: int
) -> None:
    """Add the products of four rows to `out` from the row `first` on, given the sums with shifted words."""
    out[first] += np.uint32(sum0 - (sum1 << 8))
    out[first + 1] += np.uint32(sum1 - (sum2 << 8))
    out[first + 2] += np.uint32(sum2 - (sum3 << 8))
    out[first + 3] += sum3


@compiled
def add_exact_products(
    rows: UInt8[np.ndarray, "rows columns"] | Int16[np.ndarray, "rows columns"],
    halves: Int16[np.ndarray, "queries 2 columns"],
    out: Int64[np.ndarray, "queries rows"],
) -> None:
    """Add the products of rows and vectors, low + 2^16 high, to `out`: of at most BYTE_PANEL bytes, or of small weights.

    Rows are read one after the other, as two at a time are two streams, which memory gives more slowly.
    """
    for row in range(rows.shape[0]):
        for query in range(out.shape[0]):
            low, high = pair_sums(rows[row], (halves[query, 0], halves[query, 1]))
            out[query, row] += low + (high << 16)


@compiled
def inner_products(
    left: UInt32[np.ndarray, "left dimension"],
    right: UInt32[np.ndarray, "right dimension"],
    out: UInt32[np.ndarray, "right left"],
) -> None:
    """Put the inner products of all pairs of rows into `out`."""
    for i in range(left.shape[0]):
        row = left[i]
        for j in range(right.shape[0]):
            other, total = right[j], np.uint32(0)
            for k in range(row.shape[0]):
                total = np.uint32(total + row[k] * other[k])
            out[j, i] = total


@compiled
def xor_chosen(
    records: UInt8[np.ndarray, "records size"],
    chosen: Bool[np.ndarray, "queries records"],
    block: int,
    start: int,
    stop: int,
    out: UInt8[np.ndarray, "queries size"],
) -> None:
    """XOR bytes `start` to `stop` of the records that each query chooses into its row of `out`.

    `block` records stay in the cache while all queries read them. Two are taken at a time, which halves the work on `out`.
    """
    for first in range(0, records.shape[0], block):
        last = min(first + block, records.shape[0])
        for query in range(chosen.shape[0]):
            total, waiting = out[query, start:stop], -1
            for index in range(first, last):
                if not chosen[query, index]:
                    continue
                if waiting < 0:
                    waiting = index
                    continue
                one, two = records[waiting, start:stop], records[index, start:stop]
                for column in range(stop - start):
                    total[column] ^= one[column] ^ two[column]
                waiting = -1
            if waiting >= 0:
                one = records[waiting, start:stop]
                for column in range(stop - start):
                    total[column] ^= one[column]
