"""Shape of generated code: the register tiles that cover the Gram entries of some left features and one panel of right ones."""

from __future__ import annotations

from dataclasses import dataclass

# By the number of registers: most rows and most vectors of a register tile, most accumulators where one tile holds whole pairs,
# and most rows of a block of the elimination.
TILES = {32: (9, 3, 28, 5), 16: (4, 3, 12, 3)}
# Most components of a right feature for which one tile holds whole pairs. With more, the panel would stream
# through the first-level cache, so that tiles share parts of it instead.
DIRECT_COLUMNS = 5
# Rows of left features that share one part of a panel while it lies in the first-level cache. Twice as many are as fast where a
# thread has its core alone, but two hyperthreads then evict each other's data (measured: 2.5 times slower at m = 8).
SHARED_ROWS = 18
# Coordinate 1.0 in 16 bits.
ONE = 32767.0


@dataclass(frozen=True, kw_only=True)
class Shape:
    """Parameters of generated code: components (m + 1) of a `left` and of a `right` feature, and floats in a vector (`lanes`).

    With `fixed` the sweep multiplies coordinates of 16 bits, two in the place of a float (`veil.distances.cpu.pack`).
    """

    left: int
    right: int
    lanes: int
    fixed: bool = False

    @property
    def registers(self) -> int:
        """Number of vector registers: 16 of AVX2, 32 of AVX-512 and NEON."""
        return 16 if self.lanes == 8 else 32

    @property
    def direct(self) -> bool:
        """Whether one register tile holds a whole pair; otherwise tiles of several features share parts of the panel."""
        return self.left * self.right <= TILES[self.registers][2] and self.right <= DIRECT_COLUMNS

    @property
    def straight(self) -> bool:
        """Whether the solve is unrolled in full; otherwise it runs over blocks."""
        return self.direct or self.left == 1

    @property
    def features(self) -> int:
        """Number of left features of a group, which are computed together."""
        if self.direct:
            return TILES[self.registers][2] // (self.left * self.right)
        return max(1, SHARED_ROWS // self.left)

    @property
    def row_groups(self) -> tuple[int, ...]:
        """Numbers of rows of the register tiles, which cover the components of a group's left features, one after the other."""
        rows = self.features * self.left
        return (rows,) if self.direct else even(rows, TILES[self.registers][0])

    @property
    def column_groups(self) -> tuple[int, ...]:
        """Numbers of vectors of the register tiles, which cover the components of the right features."""
        return (self.right,) if self.direct else even(self.right, TILES[self.registers][1])

    @property
    def blocks(self) -> tuple[int, ...]:
        """Numbers of rows of the blocks of the elimination."""
        return even(self.left, TILES[self.registers][3])

    @property
    def scratch_floats(self) -> int:
        """Floats of scratch memory: Gram entries of a group, the factor of one feature, and its result (distance and reach)."""
        return self.lanes * (self.features * self.left * self.right + self.left * self.left + self.left + 2)


def even(total: int, largest: int) -> tuple[int, ...]:
    """Sizes of the fewest parts of at most `largest` that add up to `total`, as equal as they can be."""
    parts = -(-total // largest)
    return tuple(total // parts + (k < total % parts) for k in range(parts))
