"""Compiled kernels compute what the slow references in Python's integers say, for any shape and for extremes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from veil.errors import InputError
from veil.pir import kernels, reference
from veil.pir.layout import Layout
from veil.pir.matrix import Matrix, arranged, products, shares
from worlds import generator

# records, bytes of a record, parts: rows that are no multiple of 4, one of everything, and columns around the edge of a panel
SHAPES = [(1, 1, 1), (3, 5, 1), (7, 13, 3), (2, 9, 9), (kernels.PANEL, 2, 1), (kernels.PANEL + 1, 4, 1), (700, 6, 3)]


def rows_of(records: np.ndarray, parts: int) -> list[list[int]]:
    """The rows of the reference's matrix."""
    columns = reference.columns([record.tobytes() for record in records], parts)
    return [list(row) for row in zip(*columns, strict=True)]


@pytest.mark.slow
@pytest.mark.parametrize(("records", "size", "parts"), SHAPES)
@pytest.mark.parametrize("vectors", [1, 2, 4, 5])
def test_products_are_those_of_the_reference(records: int, size: int, parts: int, vectors: int) -> None:
    """Oracle: the definition in Python's integers."""
    random = generator(f"products {records} {size} {parts}")
    data = random.integers(0, 256, (records, size), dtype=np.uint8)
    factors = random.integers(0, 1 << 32, (vectors, records * parts), dtype=np.uint32)
    matrix = arranged(data, Layout(records=records, size=size, parts=parts))
    expected = [reference.product(rows_of(data, parts), vector.tolist()) for vector in factors]
    for threads in (1, 3):
        assert products(matrix, factors, threads).tolist() == expected


@pytest.mark.parametrize("vectors", [1, 4])
def test_products_wrap_exactly_at_the_extremes(vectors: int) -> None:
    """Oracle: all bytes 255 and all integers 2^32 - 1, whose product is -255 for each column."""
    for columns in (1, 1000, 3000):
        matrix = arranged(np.full((columns, 6), 255, dtype=np.uint8), Layout(records=columns, size=6))
        got = products(matrix, np.full((vectors, columns), 2**32 - 1, dtype=np.uint32))
        assert (got == -255 * columns % 2**32).all()


def test_more_rows_than_a_block_of_groups() -> None:
    """Oracle: NumPy's product in 64 bits; 1,500 rows are several blocks of 128 groups, the last of them not whole."""
    random = generator("many rows")
    data = random.integers(0, 256, (9, 1500), dtype=np.uint8)
    factors = random.integers(0, 1 << 32, (8, 9), dtype=np.uint32)
    matrix = arranged(data, Layout(records=9, size=1500))
    expected = (factors.astype(np.uint64) @ data.astype(np.uint64)) % 2**32
    np.testing.assert_array_equal(products(matrix, factors), expected)


@pytest.mark.slow
def test_words_may_be_read_from_a_file(tmp_path: Path) -> None:
    """Oracle: the same words in memory. The file is mapped and cannot be written to."""
    random = generator("mapped")
    matrix = arranged(random.integers(0, 256, (50, 9), dtype=np.uint8), Layout(records=50, size=9))
    np.save(tmp_path / "words.npy", matrix.words)
    mapped = Matrix(layout=matrix.layout, words=np.load(tmp_path / "words.npy", mmap_mode="r"))
    for vectors in (1, 4):
        factors = random.integers(0, 1 << 32, (vectors, 50), dtype=np.uint32)
        np.testing.assert_array_equal(products(mapped, factors), products(matrix, factors))


def test_words_of_another_layout_are_refused() -> None:
    layout = Layout(records=3, size=5)
    with pytest.raises(InputError, match="has 6 words"):
        Matrix(layout=layout, words=np.zeros(5, dtype=np.uint32))
    with pytest.raises(InputError, match="3 records of 5 bytes"):
        arranged(np.zeros((3, 6), dtype=np.uint8), layout)


def test_inner_products_are_modulo_2_32() -> None:
    """Oracle: Python's integers; also no rows and no columns."""
    random = generator("inner products")
    for left, right, dimension in ((3, 2, 1024), (1, 1, 1), (5, 3, 17), (0, 2, 4), (2, 2, 0)):
        one = random.integers(0, 1 << 32, (left, dimension), dtype=np.uint32)
        two = random.integers(0, 1 << 32, (right, dimension), dtype=np.uint32)
        out = np.empty((right, left), dtype=np.uint32)
        kernels.inner_products(one, two, out)
        assert out.tolist() == [[sum(map(int.__mul__, a, b)) % 2**32 for a in one.tolist()] for b in two.tolist()]


@pytest.mark.parametrize("size", [0, 1, 7, 64, 1000])
def test_xor_is_that_of_the_reference(size: int) -> None:
    """Oracle: Python's integers, in blocks of one record and of more than there are, and for a part of the bytes."""
    random = generator("xor")
    data = random.integers(0, 256, (9, size), dtype=np.uint8)
    chosen = random.integers(0, 2, (3, 9)).astype(bool)
    expected = [reference.xor([record.tobytes() for record in data], row.tolist()) for row in chosen]
    for block in (1, 4, 100):
        out = np.zeros((3, size), dtype=np.uint8)
        for part in shares(size, 2):
            kernels.xor_chosen(data, chosen, block, part.start, part.stop, out)
        assert [row.tobytes() for row in out] == expected


def test_shares_cover_everything_once() -> None:
    for count in (0, 1, 5, 17):
        for threads in (1, 2, 7):
            assert [i for part in shares(count, threads) for i in range(part.start, part.stop)] == list(range(count))
