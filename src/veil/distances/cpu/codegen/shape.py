"""Which register tiles cover the Gram entries of a few left features and one panel of right features."""

from __future__ import annotations

from dataclasses import dataclass

# The largest register tile, rows times vectors, and the largest block of the elimination, by the number of registers.
TILES = {32: (9, 3, 28, 5), 16: (4, 3, 12, 3)}
# Wider right features than this stream their panel through the first cache, so that tiles share a part of it instead.
DIRECT_COLUMNS = 5
# Rows of left features that share one part of a panel while it lies in the first cache. Twice as many are as fast on a core
# of one's own, but two hyperthreads then drive each other out of that cache (measured: 2.5 times slower at m = 8).
SHARED_ROWS = 18


# A coordinate of one in 16 bits.
ONE = 32767.0


@dataclass(frozen=True, kw_only=True)
class Shape:
    """Everything the generated code depends on: components of a left and of a right feature, and the vector unit.

    With `fixed` the sweep multiplies coordinates of 16 bits, two in the place of a float (`veil.distances.cpu.fixed_point`).
    """

    left: int
    right: int
    lanes: int
    fixed: bool = False

    @property
    def registers(self) -> int:
        """AVX2 has 16 vector registers; AVX-512 and NEON have 32."""
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
        """Left features that are computed together."""
        if self.direct:
            return TILES[self.registers][2] // (self.left * self.right)
        return max(1, SHARED_ROWS // self.left)

    @property
    def row_groups(self) -> tuple[int, ...]:
        """Rows of each register tile: components of all left features of a group, one after the other."""
        rows = self.features * self.left
        return (rows,) if self.direct else even(rows, TILES[self.registers][0])

    @property
    def column_groups(self) -> tuple[int, ...]:
        """Vectors of each register tile: components of the right features."""
        return (self.right,) if self.direct else even(self.right, TILES[self.registers][1])

    @property
    def blocks(self) -> tuple[int, ...]:
        """Rows of each block of the elimination."""
        return even(self.left, TILES[self.registers][3])

    @property
    def scratch_floats(self) -> int:
        """Gram entries of a group, the factor of one feature, and its result (distance and reach)."""
        return self.lanes * (self.features * self.left * self.right + self.left * self.left + self.left + 2)


def even(total: int, largest: int) -> tuple[int, ...]:
    """Split into the fewest parts of at most `largest`, as equal as they can be."""
    parts = -(-total // largest)
    return tuple(total // parts + (k < total % parts) for k in range(parts))
