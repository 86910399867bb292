"""The server's matrix of bytes, arranged for its kernels, and its products with vectors of integers modulo 2^32."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from jaxtyping import Int16, UInt8, UInt32

from veil.errors import InputError
from veil.pir import kernels
from veil.pir.kernels import BYTE_PANEL, PANEL, VECTORS
from veil.pir.layout import Columns
from veil.threads import shared

_ALIGNMENT = 64  # bytes of a cache line and of the widest register: vectors that straddle lines take twice the loads


@dataclass(frozen=True, kw_only=True, eq=False)
class Matrix:
    """Records as columns of bytes: column i * parts + k is part k of record i (`veil.pir.layout.Columns`).

    - `layout`: how the records lie in it.
    - `words`: panels of PANEL columns one after the other (the last may be narrower), in each the words of four rows with
      the first row in the lowest byte. They are as many bytes as the records, but for padding, and may be memory-mapped.

    Raises InputError if the words are not those of the layout.
    """

    layout: Columns
    words: UInt32[np.ndarray, "words"]

    def __post_init__(self) -> None:
        count = self.groups * self.layout.columns
        if self.words.shape != (count,):
            raise InputError(
                f"the matrix of {self.layout} has {count} words, got {self.words.shape}; arrange the records again"
            )

    @property
    def groups(self) -> int:
        """Words of a column."""
        return _groups(self.layout)

    def panels(self) -> Iterator[tuple[slice, UInt32[np.ndarray, "groups columns"]]]:
        """The columns of each panel, and its words."""
        for columns in _panels(self.layout, PANEL):
            words = self.words[columns.start * self.groups : columns.stop * self.groups]
            yield columns, words.reshape(self.groups, columns.stop - columns.start)


@dataclass(frozen=True, kw_only=True, eq=False)
class ByteRows:
    """Records as columns of bytes, as in `Matrix`, whose rows are not woven into words: for exact products.

    - `values`: panels of BYTE_PANEL columns one after the other (the last may be narrower), in each its rows. They are as many
      bytes as the records, but for padding, and may be memory-mapped.

    Raises InputError if the bytes are not those of the layout.
    """

    layout: Columns
    values: UInt8[np.ndarray, "bytes"]

    def __post_init__(self) -> None:
        count = self.layout.rows * self.layout.columns
        if self.values.shape != (count,):
            raise InputError(
                f"the matrix of {self.layout} has {count} bytes, got {self.values.shape}; arrange the records again"
            )

    def panels(self) -> Iterator[tuple[slice, UInt8[np.ndarray, "rows columns"]]]:
        """The columns of each panel, and its bytes."""
        for columns in _panels(self.layout, BYTE_PANEL):
            some = self.values[columns.start * self.layout.rows : columns.stop * self.layout.rows]
            yield columns, some.reshape(self.layout.rows, columns.stop - columns.start)


def arranged_rows(records: UInt8[np.ndarray, "records size"], layout: Columns) -> ByteRows:
    """The records as rows of bytes, a copy as large as they are. Raises InputError if the layout is not for them."""
    _require_records(records, layout)
    matrix = ByteRows(
        layout=layout, values=aligned((-(-layout.rows * layout.columns // 4),)).view(np.uint8)[: layout.rows * layout.columns]
    )
    for columns, rows in matrix.panels():
        rows[:] = _parts(records, layout, columns).T
    return matrix


def arranged(records: UInt8[np.ndarray, "records size"], layout: Columns) -> Matrix:
    """The matrix of the records, a copy as large as they are. Raises InputError if the layout is not for them."""
    _require_records(records, layout)
    matrix = Matrix(layout=layout, words=aligned((_groups(layout) * layout.columns,)))
    for columns, words in matrix.panels():
        filled = np.zeros((words.shape[1], 4 * matrix.groups), dtype=np.uint8)
        filled[:, : layout.rows] = _parts(records, layout, columns)
        words[:] = filled.view("<u4").T
    return matrix


def _require_records(records: UInt8[np.ndarray, "records size"], layout: Columns) -> None:
    if records.shape != (layout.records, layout.size):
        raise InputError(f"the layout is for {layout.records} records of {layout.size} bytes, got {records.shape}")


def _parts(records: UInt8[np.ndarray, "records size"], layout: Columns, columns: slice) -> UInt8[np.ndarray, "columns rows"]:
    """Some columns, one in each row."""
    first, last = columns.start // layout.parts, -(-columns.stop // layout.parts)
    whole = np.zeros((last - first, layout.parts * layout.rows), dtype=np.uint8)
    whole[:, : layout.size] = records[first:last]
    skipped = columns.start - first * layout.parts
    return whole.reshape(-1, layout.rows)[skipped : skipped + columns.stop - columns.start]


def products(
    matrix: Matrix, vectors: UInt32[np.ndarray, "vectors columns"], threads: int = 1
) -> UInt32[np.ndarray, "vectors rows"]:
    """Products of the matrix with each vector, in one pass over it by a number of threads."""
    count = len(vectors) if len(vectors) == 1 else VECTORS * -(-len(vectors) // VECTORS)
    out = aligned((count, 4 * matrix.groups))
    pieces = []
    for columns, _ in matrix.panels():
        piece = aligned((count, columns.stop - columns.start))
        piece[: len(vectors)] = vectors[:, columns]
        pieces.append(piece)

    def work(groups: slice) -> None:
        for (_, words), piece in zip(matrix.panels(), pieces, strict=True):
            add_panel(words[groups], piece, out[:, 4 * groups.start : 4 * groups.stop])

    list(shared(work, shares(matrix.groups, threads), threads))
    return out[: len(vectors), : matrix.layout.rows]


def add_panel(
    words: UInt32[np.ndarray, "groups columns"],
    vectors: UInt32[np.ndarray, "vectors columns"],
    out: UInt32[np.ndarray, "vectors 4*groups"],
) -> None:
    """Add the products of some words and vectors, one or a multiple of VECTORS, to `out`."""
    if len(vectors) == 1:
        kernels.add_product(words, vectors[0], out[0])
    else:
        kernels.add_products(words, vectors, out)


def halves(vectors: UInt32[np.ndarray, "*vectors columns"]) -> Int16[np.ndarray, "*vectors 2 columns"]:
    """Integers of 16 bits with sign, of which the low and 2^16 times the high make those below 2^31 - 2^15."""
    low = vectors.astype(np.uint16).view(np.int16)
    return np.stack([low, ((vectors.astype(np.int64) - low) >> 16).astype(np.int16)], axis=-2)


def shares(count: int, threads: int) -> list[slice]:
    """Slices of 0..count-1, one for each thread."""
    edges = [count * part // threads for part in range(threads + 1)]
    return [slice(first, last) for first, last in pairwise(edges) if first < last]


def aligned(shape: tuple[int, ...]) -> UInt32[np.ndarray, "*shape"]:
    """Zeros that begin at a cache line."""
    count = int(np.prod(shape))
    spare = np.zeros(count + _ALIGNMENT // 4, dtype=np.uint32)
    start = -spare.ctypes.data % _ALIGNMENT // 4
    return spare[start : start + count].reshape(shape)


def _groups(layout: Columns) -> int:
    return -(-layout.rows // 4)


def _panels(layout: Columns, width: int) -> Iterator[slice]:
    for start in range(0, layout.columns, width):
        yield slice(start, min(start + width, layout.columns))
