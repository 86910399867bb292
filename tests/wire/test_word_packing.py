"""Packed word ids against a slow reference that writes bit by bit, against their entropy, and with bytes that nobody packed."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from veil.errors import WireError
from veil.ldp.mechanism import SubsetMechanism
from veil.wire.packing import packed, packed_sizes, rice_width, unpacked
from worlds import generator
from worlds.word_uploads import random_ids


def slowly_packed(rows: list[list[int]], words: int) -> bytes:
    """Slow reference for docs/reference/wire.md, "Word ids": strings of bits and plain integers, without arrays."""
    m = len(rows[0])
    ratio = 4812 * (2 * words - m + 1) // (20000 * (m + 1))
    width = len(bin(ratio)) - 2 if ratio else 0
    remainders = quotients = ""
    for row in rows:
        for value in [row[0], *(b - a - 1 for a, b in itertools.pairwise(row))]:
            remainders += "".join(str(value >> bit & 1) for bit in range(width))
            quotients += "0" * (value >> width) + "1"
    return as_bytes(remainders) + as_bytes(quotients)


def as_bytes(bits: str) -> bytes:
    pieces = [bits[start : start + 8].ljust(8, "0") for start in range(0, len(bits), 8)]
    return bytes(int(piece[::-1], 2) for piece in pieces)


def subset_lists(words: int, m: int) -> st.SearchStrategy[list[list[int]]]:
    ids = st.sets(st.integers(0, words - 1), min_size=m, max_size=m)
    return st.lists(ids.map(sorted), min_size=1, max_size=30)


@st.composite
def problems(draw: st.DrawFn) -> tuple[int, list[list[int]]]:
    words = draw(st.one_of(st.integers(2, 40), st.integers(2, 10**6), st.integers(2**31, 2**32 - 1)))
    m = draw(st.integers(1, min(words - 1, 12)))
    return words, draw(subset_lists(words, m))


@pytest.mark.slow
@settings(max_examples=200, deadline=None)
@given(problems())
def test_the_slow_twin_writes_the_same_bytes_and_they_are_read_back(problem: tuple[int, list[list[int]]]) -> None:
    words, rows = problem
    ids = np.array(rows, dtype=np.uint32)
    data = packed(ids, words)
    assert data == slowly_packed(rows, words)
    assert len(data) in packed_sizes(len(rows), len(rows[0]), words)
    np.testing.assert_array_equal(unpacked(memoryview(data), len(rows), len(rows[0]), words), ids)


@pytest.mark.slow
@pytest.mark.parametrize(("count", "m"), [(16384, 1), (16385, 1), (16383, 1), (5462, 3), (40000, 2), (9, 20000), (1, 40000)])
def test_blocks_join_without_a_seam(count: int, m: int) -> None:
    """Slow reference and inverse pair, for counts about the size of the blocks that are spread into bits."""
    words = max(1000, 2 * m + 1)
    ids = random_ids(generator("blocks"), count, m, words)
    data = packed(ids, words)
    assert data == slowly_packed(ids.tolist(), words)
    np.testing.assert_array_equal(unpacked(memoryview(data), count, m, words), ids)


@pytest.mark.slow
@pytest.mark.parametrize("m", [1, 2, 3, 4, 5, 8, 13, 16, 24, 32, 48, 64])
@pytest.mark.parametrize("words", [100, 150, 255, 1000, 65536, 1_000_000])
def test_random_subsets_take_little_more_than_their_entropy(words: int, m: int) -> None:
    """Packed ids take at most 1.2 times log2 C(K, m) bits a feature, and not less than that: then something would be lost."""
    count = max(400, 4000 // m)
    ids = random_ids(generator(f"entropy {words} {m}"), count, m, words)
    entropy = count * math.log2(math.comb(words, m))
    assert SubsetMechanism(dictionary_size=words, epsilon=1.0, m=m).bits == pytest.approx(entropy / count, rel=1e-9)
    assert 0.99 * entropy < 8 * len(packed(ids, words)) <= 1.2 * entropy


@pytest.mark.parametrize(
    ("words", "m"), [(100, 1), (100, 64), (256_000, 2), (256_000, 64), (10**6, 5), (2**32 - 1, 3), (64, 63)]
)
def test_no_ids_take_more_than_the_bound(words: int, m: int) -> None:
    """Ids at the end, at the start, or with one far gap come back, and never exceed the bound of wire.md, which is reached."""
    width, count = rice_width(words, m), 50
    low, high = np.arange(m), np.arange(words - m, words)
    rows = [low, high, np.append(low[:-1], words - 1), np.append(0, high[1:])]
    bound = math.ceil(count * m * width / 8) + math.ceil(count * (m + ((words - m) >> width)) / 8)
    sizes = []
    for row in rows:
        ids = np.tile(row.astype(np.uint32), (count, 1))
        data = packed(ids, words)
        sizes.append(len(data))
        np.testing.assert_array_equal(unpacked(memoryview(data), count, m, words), ids)
    assert max(sizes) == bound == packed_sizes(count, m, words)[-1]
    # Nothing that an adversary sends is much longer than what chance sends.
    assert bound * 8 <= 2.5 * count * (m * (width + 2) + 2)


@pytest.mark.parametrize(
    ("words", "m"), [(2, 1), (3, 2), (8, 1), (12, 3), (40, 2), (1000, 1), (1000, 40), (256_000, 2), (10**6, 64)]
)
def test_the_width_is_the_best_one(words: int, m: int) -> None:
    """Second method: the exact expected length of every width, from P(value >= t) = C(K - t, m) / C(K, m). Within 2 %."""
    total = math.comb(words, m)

    def expected(width: int) -> float:
        steps = range(1 << width, words - m + 1, 1 << width)
        return width + 1 + sum(math.comb(words - t, m) / total for t in steps)

    low = max(0, rice_width(words, m) - 3)
    best = min(expected(width) for width in range(low, low + 7))
    assert expected(rice_width(words, m)) <= 1.02 * best


@pytest.mark.slow
@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize(("words", "m", "count"), [(5, 2, 1), (5, 2, 3), (30, 1, 2), (4, 3, 2)])
def test_each_string_of_bytes_is_refused_or_the_only_one_of_its_ids(words: int, m: int, count: int) -> None:
    """Enumeration of all strings of bytes: as many are read as there are sets of ids, and each is packed to the same bytes."""
    read = 0
    for length in range(packed_sizes(count, m, words)[-1] + 1):
        if length > 2:
            pytest.fail("choose a case of at most two bytes")
        for number in range(256**length):
            data = number.to_bytes(length, "little")
            try:
                ids = unpacked(memoryview(data), count, m, words)
            except WireError as error:
                assert str(error)
                continue
            assert packed(ids, words) == data
            read += 1
    assert read == math.comb(words, m) ** count


def test_what_is_wrong_with_bytes_is_said() -> None:
    words, count, m = 1000, 7, 3
    good = packed(random_ids(generator("damage"), count, m, words), words)
    fixed = math.ceil(count * m * rice_width(words, m) / 8)
    assert rice_width(words, m) * count * m % 8  # so that there are bits to set behind the last remainder

    def refused(data: bytes) -> str:
        with pytest.raises(WireError) as caught:
            unpacked(memoryview(data), count, m, words)
        return str(caught.value)

    assert "cannot hold" in refused(b"")
    assert "cannot hold" in refused(good[:fixed])
    assert "cannot hold" in refused(good + bytes(100))
    assert "end elsewhere" in refused(good[:-1])
    assert "end elsewhere" in refused(good + b"\0")
    assert "end elsewhere" in refused(good[:-1] + bytes([good[-1] | 0x80]))
    assert "behind the last remainder" in refused(good[: fixed - 1] + bytes([good[fixed - 1] | 0x80]) + good[fixed:])
    # Every id in place, but the largest remainders: beyond the dictionary.
    last = np.tile(np.arange(words - m, words, dtype=np.uint32), (count, 1))
    assert "outside the dictionary" in refused(packed(last + np.uint32(1), words + 1))
