"""How records lie in SimplePIR's matrix of bytes, what that costs, and the noise it bears (docs/theory/pir.md, Eq. 6-9)."""

from __future__ import annotations

import math
from dataclasses import dataclass

from veil.errors import RangeError
from veil.pir.security import lattice_cost

DIMENSION = 1408  # n; Henzinger et al., USENIX Security 2023, have 1024, which core-SVP counts below 128 bits
SIGMA = 6.4
MOST_SAMPLES = 1 << 21  # where the table of parameters of Henzinger et al. ends
COST = lattice_cost(dimension=DIMENSION, modulus=1 << 32, sigma=SIGMA)
STEP = 1 << 24  # Delta = q / p, for q = 2^32 and p = 256: a byte is a symbol
CENTER = 128  # bytes count from their middle, so that none weighs noise by more
FAILURE_BITS = 40  # a record is decoded wrongly with probability below 2^-40


def noise_bound(columns: int, size: int) -> float:
    """The noise that no byte of a record of `size` bytes exceeds, but with probability 2^-40 (docs/theory/pir.md, Eq. 8)."""
    return CENTER * SIGMA * math.sqrt(columns * 2 * math.log(2 * size * 2.0**FAILURE_BITS))


def most_columns(size: int) -> int:
    """The most columns with which records of `size` bytes are decoded and safe (docs/theory/pir.md, Eq. 9)."""
    return min(MOST_SAMPLES, math.ceil((STEP / 2 / noise_bound(1, size)) ** 2) - 1)


@dataclass(frozen=True, kw_only=True)
class Columns:
    """Records as columns of a matrix of bytes, each cut into `parts` columns; the last part is filled up with zeros.

    - `records`: number of records.
    - `size`: bytes of a record.
    - `parts`: columns of a record, at most one for each byte; a fetch of one record is as many queries.

    Raises RangeError for numbers below 1.
    """

    records: int
    size: int
    parts: int = 1

    def __post_init__(self) -> None:
        if not (self.records >= 1 and self.size >= 1 and 1 <= self.parts <= self.size):
            raise RangeError(
                f"{self.records!r} records of {self.size!r} bytes in {self.parts!r} parts are no database; "
                "give one record, byte and part or more, and no more parts than bytes"
            )

    @property
    def rows(self) -> int:
        """Rows of the matrix: bytes of a part."""
        return -(-self.size // self.parts)

    @property
    def columns(self) -> int:
        """Columns of the matrix: parts of all records."""
        return self.records * self.parts

    @property
    def query_bytes(self) -> int:
        """Bytes of one of the `parts` queries of a fetch."""
        return 4 * self.columns

    def require_columns(self, most: int) -> None:
        """Raise RangeError for more columns than `most`."""
        if self.columns > most:
            raise RangeError(
                f"{self.records} records in {self.parts} parts are {self.columns} columns, and records of {self.size} bytes "
                f"allow at most {most}; use fewer parts, or several databases"
            )


@dataclass(frozen=True, kw_only=True)
class Layout(Columns):
    """How records lie in the matrix of the exit with a hint. More parts make the hint smaller and each fetch dearer.

    Raises RangeError for numbers below 1, and for more columns than noise and security allow.
    """

    def __post_init__(self) -> None:
        super().__post_init__()
        self.require_columns(most_columns(self.size))

    @property
    def hint_bytes(self) -> int:
        """Bytes of the hint, which a client downloads once for a version of the records."""
        return 4 * self.rows * DIMENSION

    @property
    def answer_bytes(self) -> int:
        """Bytes of the answer to one query."""
        return 4 * self.rows

    @property
    def noise_bound(self) -> float:
        """The noise that no byte of a record exceeds, but with probability 2^-40; below half of STEP."""
        return noise_bound(self.columns, self.size)

    def traffic(self, fetches: int) -> int:
        """Bytes that travel for the hint and a number of fetches (docs/theory/pir.md, Eq. 6)."""
        return self.hint_bytes + fetches * self.parts * (self.query_bytes + self.answer_bytes)


def best_layout(records: int, size: int, *, fetches: int = 100) -> Layout:
    """The layout with the least traffic for a client that fetches `fetches` records of one version (docs/theory/pir.md, Eq. 6).

    - `records`, `size`: number of records, and bytes of each.
    - `fetches`: records that a client fetches with one hint; a server's work is a pass over all records for each part of each.

    Raises RangeError if the records have no layout, or for less than one fetch.
    """
    if not fetches >= 1:
        raise RangeError(f"fetches must be at least 1, got {fetches!r}")
    single = Layout(records=records, size=size)
    most = min(size, most_columns(size) // records)
    # Traffic is a falling and a rising term in `parts`, but for rounding: no minimum lies far beyond where they meet.
    ideal = (single.hint_bytes / (8 * fetches * records)) ** (1 / 3)
    around = range(max(1, math.floor(ideal / 2)), min(most, math.ceil(2 * ideal) + 1) + 1)
    layouts = [Layout(records=records, size=size, parts=parts) for parts in {1, most, *around} if parts <= most]
    return min(layouts, key=lambda layout: (layout.traffic(fetches), layout.parts))
