"""Packing of sets of word ids into bits, close to their entropy (docs/reference/wire.md, "Word ids").

The ascending ids of a feature become its first id and the gaps to each next one, minus one. Rice's code splits such a value
into its lowest bits, the remainder, and the rest, the quotient. All remainders of a message come first and all quotients in
unary after them, so that both are written and read by whole arrays.
"""

from __future__ import annotations

import numpy as np
from jaxtyping import UInt32

from veil.errors import WireError

_BLOCK = 1 << 14  # values that are spread into bits at a time; a multiple of 8, so that blocks of remainders end with a byte


def rice_width(dictionary_size: int, m: int) -> int:
    """Number of bits of a remainder, computed in integers only, so that it is the same on every machine.

    Gaps are about geometric with mean u = (K - m) / (m + 1). One bit more pays off as long as
    (u / (u + 1))^(2^(width - 1)) >= 1 / golden ratio (A. Kiely, Selecting the Golomb parameter in Rice coding, 2004);
    -log(u / (u + 1)) is about 1 / (u + 1/2), and 0.4812 is the logarithm of the golden ratio.
    """
    return (4812 * (2 * dictionary_size - m + 1) // (20000 * (m + 1))).bit_length()


def packed_sizes(features: int, m: int, dictionary_size: int) -> range:
    """Numbers of bytes that `packed` may return for sets of `m` ids below `dictionary_size`."""
    width, count = rice_width(dictionary_size, m), features * m
    # The values of a feature sum to at most K - m, and its quotients to at most that over 2^width.
    longest = count + features * ((dictionary_size - m) >> width)
    fixed = _bytes(count * width)
    return range(fixed + _bytes(count), fixed + _bytes(longest) + 1)


def packed(ids: UInt32[np.ndarray, "features m"], dictionary_size: int) -> bytes:
    """Word ids packed into bits; each row must ascend and stay below `dictionary_size`."""
    width = rice_width(dictionary_size, ids.shape[1])
    values = ids.copy()
    values[:, 1:] -= ids[:, :-1] + np.uint32(1)
    flat = values.ravel()
    remainders = [_lowest_bits(flat[start : start + _BLOCK], width) for start in range(0, len(flat), _BLOCK)]
    ends = np.cumsum((flat >> np.uint32(width)).astype(np.int64) + 1) - 1
    unary = np.zeros(int(ends[-1]) + 1, dtype=np.uint8)
    unary[ends] = 1
    return b"".join([*remainders, np.packbits(unary, bitorder="little").tobytes()])


def unpacked(data: memoryview, features: int, m: int, dictionary_size: int) -> UInt32[np.ndarray, "features m"]:
    """Word ids that `packed` made `data` from. Raises WireError for bytes that it would not have written.

    Beside `data` and the ids it takes memory for a few blocks only.
    """
    width, count = rice_width(dictionary_size, m), features * m
    if len(data) not in packed_sizes(features, m, dictionary_size):
        raise WireError(f"{len(data)} bytes cannot hold {features} sets of {m} out of {dictionary_size} words")
    fixed = _bytes(count * width)
    gaps = _remainders(data[:fixed], count, width)
    _add_quotients(gaps, data[fixed:], width, dictionary_size)
    rows = gaps.reshape(features, m)
    step = max(1, _BLOCK // m)
    for start in range(0, features, step):
        part = rows[start : start + step]
        # Each value is below the dictionary's size, and sums of m of them stay below 2^48.
        ids = np.cumsum(part, axis=1, dtype=np.int64) + np.arange(m)
        if not (ids[:, -1] < dictionary_size).all():
            raise WireError(f"a word id lies outside the dictionary of {dictionary_size} words")
        part[:] = ids
    return rows


def _bytes(bits: int) -> int:
    return (bits + 7) // 8


def _lowest_bits(values: UInt32[np.ndarray, "count"], width: int) -> bytes:
    """Lowest `width` bits of each value, packed into bytes, the lowest bit first."""
    bits = np.unpackbits(values.astype("<u4").view(np.uint8).reshape(-1, 4), axis=1, bitorder="little")
    return np.packbits(bits[:, :width], bitorder="little").tobytes()


def _remainders(data: memoryview, count: int, width: int) -> UInt32[np.ndarray, "count"]:
    """Values of `count` remainders of `width` bits each. Raises WireError if padding bits are set."""
    values = np.empty(count, dtype=np.uint32)
    for start in range(0, count, _BLOCK):
        block = min(_BLOCK, count - start)
        first = start * width // 8
        bits = np.unpackbits(np.frombuffer(data[first : first + _bytes(block * width)], np.uint8), bitorder="little")
        if bits[block * width :].any():
            raise WireError("bits are set behind the last remainder")
        wide = np.zeros((block, 32), dtype=np.uint8)
        wide[:, :width] = bits[: block * width].reshape(block, width)
        values[start : start + block] = np.packbits(wide, axis=1, bitorder="little").view("<u4")[:, 0]
    return values


def _add_quotients(remainders: UInt32[np.ndarray, "count"], data: memoryview, width: int, dictionary_size: int) -> None:
    """Add the quotients, times 2^`width`, to `remainders`; a quotient is as many zeros, then a one.

    Raises WireError for another number of quotients, or values outside the dictionary.
    """
    done, last = 0, -1  # number of values that are complete, and the bit where the last one ended
    for first in range(0, len(data), _BLOCK // 8):
        bits = np.unpackbits(np.frombuffer(data[first : first + _BLOCK // 8], np.uint8), bitorder="little")
        ends = np.flatnonzero(bits) + 8 * first
        if len(ends) > len(remainders) - done:
            break
        values = (np.diff(ends, prepend=last) - 1 << width) + remainders[done : done + len(ends)]
        if not (values < dictionary_size).all():
            raise WireError(f"a word id lies outside the dictionary of {dictionary_size} words")
        remainders[done : done + len(ends)] = values
        done, last = done + len(ends), int(ends[-1]) if len(ends) else last
    else:
        if done == len(remainders) and last // 8 == len(data) - 1:
            return
    raise WireError(f"the packed words end elsewhere than after {len(remainders)} ids")
