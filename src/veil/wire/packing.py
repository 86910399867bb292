"""Sets of word ids as bits, close to their entropy (docs/reference/wire.md, "Word ids").

The ascending ids of a feature become its first id and the gaps to each next one, minus one. Rice's code splits such a value
into its lowest bits, the remainder, and the rest, the quotient. All remainders of a message come first and all quotients in
unary after them, so that both are written and read by whole arrays.
"""

from __future__ import annotations

import numpy as np
from jaxtyping import UInt32

from veil.errors import WireError

_BLOCK = 1 << 14  # values that are spread out into bits at a time, a multiple of 8: blocks of remainders end with a byte


def rice_width(dictionary_words: int, m: int) -> int:
    """Bits of a remainder; in integers only, so that it is the same on every machine.

    Gaps are about geometric with mean u = (K - m) / (m + 1). One bit more pays off as long as
    (u / (u + 1))^(2^(width - 1)) >= 1 / golden ratio (A. Kiely, Selecting the Golomb parameter in Rice coding, 2004);
    -log(u / (u + 1)) is about 1 / (u + 1/2), and 0.4812 is the logarithm of the golden ratio.
    """
    return (4812 * (2 * dictionary_words - m + 1) // (20000 * (m + 1))).bit_length()


def packed_sizes(features: int, m: int, dictionary_words: int) -> range:
    """All numbers of bytes that `packed` may return for sets of `m` ids below `dictionary_words`."""
    width, count = rice_width(dictionary_words, m), features * m
    # The values of a feature sum to K - m at most, and so do the quotients to that over 2^width.
    longest = count + features * ((dictionary_words - m) >> width)
    fixed = _bytes(count * width)
    return range(fixed + _bytes(count), fixed + _bytes(longest) + 1)


def packed(words: UInt32[np.ndarray, "features m"], dictionary_words: int) -> bytes:
    """The bits of `words`; each row must ascend and stay below `dictionary_words`."""
    width = rice_width(dictionary_words, words.shape[1])
    values = words.copy()
    values[:, 1:] -= words[:, :-1] + np.uint32(1)
    flat = values.ravel()
    remainders = [_lowest_bits(flat[start : start + _BLOCK], width) for start in range(0, len(flat), _BLOCK)]
    ends = np.cumsum((flat >> np.uint32(width)).astype(np.int64) + 1) - 1
    unary = np.zeros(int(ends[-1]) + 1, dtype=np.uint8)
    unary[ends] = 1
    return b"".join([*remainders, np.packbits(unary, bitorder="little").tobytes()])


def unpacked(data: memoryview, features: int, m: int, dictionary_words: int) -> UInt32[np.ndarray, "features m"]:
    """The ids that `packed` made `data` of. Raises WireError for bytes that it would not have written.

    Beside `data` and the ids, memory for a few blocks only.
    """
    width, count = rice_width(dictionary_words, m), features * m
    if len(data) not in packed_sizes(features, m, dictionary_words):
        raise WireError(f"{len(data)} bytes cannot hold {features} sets of {m} out of {dictionary_words} words")
    fixed = _bytes(count * width)
    words = _remainders(data[:fixed], count, width)
    _add_quotients(words, data[fixed:], width, dictionary_words)
    rows = words.reshape(features, m)
    step = max(1, _BLOCK // m)
    for start in range(0, features, step):
        part = rows[start : start + step]
        # Each value is below the dictionary's size, and sums of m of them stay below 2^48.
        ids = np.cumsum(part, axis=1, dtype=np.int64) + np.arange(m)
        if not (ids[:, -1] < dictionary_words).all():
            raise WireError(f"a word id lies outside the dictionary of {dictionary_words} words")
        part[:] = ids
    return rows


def _bytes(bits: int) -> int:
    return (bits + 7) // 8


def _lowest_bits(values: UInt32[np.ndarray, "count"], width: int) -> bytes:
    """`width` bits of each value, the lowest first."""
    bits = np.unpackbits(values.astype("<u4").view(np.uint8).reshape(-1, 4), axis=1, bitorder="little")
    return np.packbits(bits[:, :width], bitorder="little").tobytes()


def _remainders(data: memoryview, count: int, width: int) -> UInt32[np.ndarray, "count"]:
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


def _add_quotients(words: UInt32[np.ndarray, "count"], data: memoryview, width: int, dictionary_words: int) -> None:
    """Add to remainders the quotients' share: a quotient is as many zeros, then a one."""
    done, last = 0, -1  # values, and the bit where the last one ended
    for first in range(0, len(data), _BLOCK // 8):
        bits = np.unpackbits(np.frombuffer(data[first : first + _BLOCK // 8], np.uint8), bitorder="little")
        ends = np.flatnonzero(bits) + 8 * first
        if len(ends) > len(words) - done:
            break
        values = (np.diff(ends, prepend=last) - 1 << width) + words[done : done + len(ends)]
        if not (values < dictionary_words).all():
            raise WireError(f"a word id lies outside the dictionary of {dictionary_words} words")
        words[done : done + len(ends)] = values
        done, last = done + len(ends), int(ends[-1]) if len(ends) else last
    else:
        if done == len(words) and last // 8 == len(data) - 1:
            return
    raise WireError(f"the packed words end elsewhere than after {len(words)} ids")
