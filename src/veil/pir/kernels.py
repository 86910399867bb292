"""Compiled inner loops of private retrieval: XOR of chosen records, and products of bytes with integers modulo 2^32."""

from __future__ import annotations

import numpy as np
from jaxtyping import Int64, UInt8, UInt32

from veil.compiled import compiled


@compiled
def xor_of_chosen(
    records: UInt8[np.ndarray, "records size"], chosen: Int64[np.ndarray, "chosen"], out: UInt8[np.ndarray, "size"]
) -> None:
    """XOR the chosen records into `out`."""
    for index in chosen:
        record = records[index]
        for column in range(len(out)):
            out[column] ^= record[column]


def product(
    matrix: UInt8[np.ndarray, "rows columns"], vectors: UInt32[np.ndarray, "vectors columns"], threads: int = 1
) -> UInt32[np.ndarray, "vectors rows"]:
    """Products of a matrix of bytes with vectors of integers, modulo 2^32, in one pass over the matrix."""
    return vectors @ matrix.T.astype(np.uint32)


def inner_products(
    left: UInt32[np.ndarray, "left dimension"], right: UInt32[np.ndarray, "right dimension"]
) -> UInt32[np.ndarray, "right left"]:
    """Inner products of all pairs of rows, modulo 2^32."""
    return right @ left.T
