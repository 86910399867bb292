"""Estimated cost of the primal lattice attack on learning with errors, in three counts (docs/theory/pir.md, Eq. 11-12)."""

from __future__ import annotations

import math
from dataclasses import dataclass

from veil.errors import RangeError

_LEAST_BLOCK = 60  # below, the formula for the root Hermite factor does not hold


@dataclass(frozen=True, kw_only=True)
class LatticeCost:
    """Cost of the primal attack, as its block size says. All logarithms are to base 2.

    - `block`: the least block size of lattice reduction that finds the secret.
    - `dimension`: of the smallest lattice in which it does.
    """

    block: int
    dimension: int

    @property
    def classical(self) -> float:
        """Core-SVP: one call of a sieve on an ordinary computer, 2^(0.292 block) operations."""
        return 0.292 * self.block

    @property
    def quantum(self) -> float:
        """Core-SVP with quantum search in the sieve, 2^(0.265 block)."""
        return 0.265 * self.block

    @property
    def standard(self) -> float:
        """Count of the homomorphic encryption standard of 2018: all calls of sieves with all their steps."""
        return 0.292 * self.block + 16.4 + math.log2(8 * self.dimension)

    @property
    def sentence(self) -> str:
        """The three counts, rounded down."""
        return (
            f"counted as classical core-SVP; quantum core-SVP counts 2^{math.floor(self.quantum)}, and the homomorphic "
            f"encryption standard 2^{math.floor(self.standard)}"
        )


def lattice_cost(*, dimension: int, modulus: int, sigma: float, secret: float | None = None) -> LatticeCost:
    """Cost of the primal attack with as many samples as serve it best (docs/theory/pir.md, Eq. 11).

    - `dimension`: of the secret; for ring-LWE the degree of the ring, as no attack is known that its structure helps.
    - `modulus`: q.
    - `sigma`: standard deviation of the noise.
    - `secret`: standard deviation of the secret's entries; None if they are uniform modulo q.

    Raises RangeError for parameters that no attack is estimated for.
    """
    if dimension < 1 or modulus < 2 or not 0 < sigma < modulus or not (secret is None or 0 < secret <= sigma):
        raise RangeError(
            f"dimension {dimension!r}, modulus {modulus!r}, noise {sigma!r} and secret {secret!r} are no learning with errors; "
            "give positive numbers, and a secret that is no larger than the noise"
        )
    # A small secret is scaled to the size of the noise, which makes the lattice sparser.
    scaled = 0.0 if secret is None else dimension * math.log2(sigma / secret)
    volume = (dimension + 1) * math.log2(modulus) - scaled
    for block in range(_LEAST_BLOCK, 100 * dimension):
        root = math.log2((math.pi * block) ** (1 / block) * block / (2 * math.pi * math.e)) / (2 * (block - 1))
        margin = (2 * block - 1) * root + math.log2(modulus) - math.log2(sigma) - math.log2(block) / 2
        # It succeeds where d root + volume / d <= margin: in the dimensions d between two roots, if there are any.
        if margin > 0 and margin * margin >= 4 * root * volume:
            least = math.ceil((margin - math.sqrt(margin * margin - 4 * root * volume)) / (2 * root))
            least = max(least, dimension + 2)
            if least * root + volume / least <= margin:
                return LatticeCost(block=block, dimension=least)
    raise RangeError(
        f"no block size below {100 * dimension} breaks dimension {dimension} modulo {modulus}; nothing is estimated"
    )
