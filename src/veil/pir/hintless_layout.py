"""How records lie in the matrix of the hintless exit, its cost, and the noise it bears (docs/theory/pir.md, Eq. 18-20)."""

from __future__ import annotations

import math
from dataclasses import dataclass

from veil.errors import RangeError
from veil.pir.layout import CENTER, FAILURE_BITS, SIGMA, Columns
from veil.pir.ring import DEGREE, MODULUS, TERNARY, ring
from veil.pir.ring_kernels import Gadget
from veil.pir.security import lattice_cost

STEP = (MODULUS - 1) // 256  # Delta: a byte is a symbol
GADGET = Gadget(dropped=6, bits=5)
DIGITS = 5  # 6 + 5 * 5 bits are those of q
# Bits of the two parts of an answer, of which a byte takes one each: together a word.
PUBLIC_BITS, SECRET_BITS = 18, 14
# Layouts leave room for this multiple of the deviation that packing's noise has if public digits are as good as random; servers
# compute the deviation itself when they prepare answers.
MARGIN = 1.25
# Rows that are packed in 16 polynomials: a record of more bytes is cut into parts, which bounds what the server keeps.
MOST_ROWS = 16 * DEGREE
COST = lattice_cost(dimension=DEGREE, modulus=MODULUS, sigma=SIGMA, secret=TERNARY)


def _tail(size: int) -> float:
    """Deviations that no byte of a record of `size` bytes exceeds, but with probability 2^-40."""
    return math.sqrt(2 * math.log(2 * size * 2.0**FAILURE_BITS))


# Noise below half a step is rounded away; half a step of the word's upper part, and a unit of its lower one, are never noise.
BEARABLE = STEP / 2 * (1 - 2.0 ** (8 - SECRET_BITS) - 2.0 ** (9 - PUBLIC_BITS))


def packing_deviation(degree: int) -> float:
    """Deviation of the noise that packing adds: of keys, dropped digits and rounding (docs/theory/pir.md, Eq. 19)."""
    secret = TERNARY * math.sqrt(degree)
    keys = degree * math.sqrt(DIGITS * (4.0**GADGET.bits + 2) / 12) * SIGMA
    dropped = math.sqrt(degree) * 2.0**GADGET.dropped / math.sqrt(12) * secret
    rounding = MODULUS / 2.0**PUBLIC_BITS / math.sqrt(12) * secret
    return math.hypot(keys, dropped, rounding)


def most_hintless_columns(size: int, degree: int = DEGREE) -> int:
    """The most columns with which records of `size` bytes are decoded (docs/theory/pir.md, Eq. 20)."""
    left = (BEARABLE / _tail(size)) ** 2 - (MARGIN * packing_deviation(degree)) ** 2
    return math.ceil(left / (CENTER * SIGMA) ** 2) - 1


@dataclass(frozen=True, kw_only=True)
class HintlessLayout(Columns):
    """How records lie in the matrix of the hintless exit.

    - `degree`: of the ring. Another one than 2048 hides nothing: it is for tests.

    Raises RangeError for numbers below 1, and for more columns than noise allows.
    """

    degree: int = DEGREE

    def __post_init__(self) -> None:
        super().__post_init__()
        ring(self.degree)
        self.require_columns(most_hintless_columns(self.size, self.degree))

    @property
    def blocks(self) -> int:
        """Polynomials in which the rows are packed."""
        return -(-self.rows // self.degree)

    @property
    def key_bytes(self) -> int:
        """Bytes of the keys in a query, with which the server packs its answer."""
        return 4 * 2 * DIGITS * self.degree

    @property
    def query_bytes(self) -> int:
        """Bytes of one of the `parts` queries of a fetch."""
        return 4 * self.columns + self.key_bytes

    @property
    def answer_bytes(self) -> int:
        """Bytes of the answer to one query."""
        return 4 * self.degree * self.blocks

    @property
    def server_bytes(self) -> int:
        """Bytes that the server keeps beside the records: weights of keys, the last digits, and the public part of answers."""
        return self.blocks * self.degree * (2 * DIGITS * self.degree + 4 * DIGITS + 4)

    def require_packing(self, deviation: float) -> None:
        """Raise RangeError if this deviation of the noise that packing adds is more than records allow (Eq. 20)."""
        bound = math.hypot(CENTER * SIGMA * math.sqrt(self.columns), deviation) * _tail(self.size)
        if bound >= BEARABLE:
            raise RangeError(
                f"noise up to {bound:.3g} would pass the {BEARABLE:.3g} that bytes bear with this seed; take another one"
            )

    @property
    def noise_bound(self) -> float:
        """The noise that no byte of a record exceeds, but with probability 2^-40; below BEARABLE."""
        matrix = CENTER * SIGMA * math.sqrt(self.columns)
        return math.hypot(matrix, MARGIN * packing_deviation(self.degree)) * _tail(self.size)


def hintless_layout(records: int, size: int) -> HintlessLayout:
    """The layout with the least traffic among those in which a part has MOST_ROWS bytes at most.

    Raises RangeError if the records have no layout.
    """
    return HintlessLayout(records=records, size=size, parts=-(-size // MOST_ROWS))
