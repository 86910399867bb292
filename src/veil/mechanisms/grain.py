"""The grain of stored descriptors: numbers that were kept in few bits lie on a grid, and a lattice attack looks for it.

Descriptors in half precision (hloc's default) or bfloat16 get a dither as wide as their own steps before they are lifted; those
on a grid of 8 bits are refused (docs/theory/hardened.md#grain-of-float-descriptors).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from jaxtyping import Bool, Float, Float32, Float64

from veil.codebooks.codebook import Codebook
from veil.errors import InputError
from veil.features import Features
from veil.mechanisms.profile import Profile

MANTISSA_BITS = 23  # of float32, beside the leading one
# Numbers of full precision end in three zero bits by chance once in eight; that all numbers of an image do shows a grid.
FEWEST_ZERO_BITS = 3
FULL_BITS = MANTISSA_BITS - FEWEST_ZERO_BITS + 1
_EIGHT_BIT_ROWS, _BLOCK = 64, 1 << 14  # rows looked at, and rows at a time


@dataclass(frozen=True, kw_only=True)
class Grain:
    """A grid of floating point numbers: each has at most `bits` bits after its leading one, and is a multiple of `step`.

    Half precision has 10 bits and steps of 2^-24, bfloat16 7 bits.
    """

    bits: int
    step: float

    @property
    def is_full(self) -> bool:
        """Whether nothing was cut off: these are numbers as float32 arithmetic gives them."""
        return self.bits >= FULL_BITS

    def spacing(self, values: Float64[np.ndarray, "*batch"]) -> Float64[np.ndarray, "*batch"]:
        """Distance of the neighbors of each value on the grid: all that rounded to it lies within half of it."""
        _, exponents = np.frexp(values)  # value = fraction 2^exponent with the fraction in [1/2, 1)
        relative = np.where(values == 0, 0.0, np.ldexp(1.0, exponents - 1 - self.bits))
        return np.maximum(relative, self.step)


def grain_of(values: Float32[np.ndarray, "rows dim"]) -> Grain:
    """The grid of the coarsest row of `values`, from the last bit that is set in each number; zeros lie on any grid."""
    parts = [_grain(values[start : start + _BLOCK]) for start in range(0, len(values), _BLOCK)]
    return Grain(bits=min(part.bits for part in parts), step=min(part.step for part in parts))


def _grain(rows: Float32[np.ndarray, "rows dim"]) -> Grain:
    whole = rows.view(np.uint32) & np.uint32((1 << MANTISSA_BITS) - 1) | np.uint32(1 << MANTISSA_BITS)
    _, place = np.frexp((whole & (~whole + np.uint32(1))).astype(np.float32))  # of the last bit that is set, from 1 to 24
    place = np.where(rows == 0, MANTISSA_BITS + 1, place)
    _, exponents = np.frexp(np.where(rows == 0, 1, rows))
    return Grain(
        bits=int((MANTISSA_BITS + 1 - place).max(axis=1).min()),
        step=float(np.ldexp(1.0, int((exponents - MANTISSA_BITS + place - 2).min()))),
    )


def on_eight_bit_grid(descriptors: Float[np.ndarray, "rows dim"]) -> bool:
    """Whether most rows are multiples of a step, each of its own, with at most 8 bits and a sign."""
    rows = descriptors[:_EIGHT_BIT_ROWS].astype(np.float64)
    smallest = np.where(np.abs(rows) > 1e-6, np.abs(rows), np.inf).min(axis=1, keepdims=True)
    hits: Bool[np.ndarray, "rows"] = np.zeros(len(rows), dtype=bool)
    for multiple in range(1, 9):  # the smallest entry may itself be a few steps
        scaled = rows / (smallest / multiple)
        fits = np.abs(scaled).max(axis=1) < 256
        hits |= fits & (np.abs(scaled - np.round(scaled)).max(axis=1) < 1e-3)
    return bool(hits.mean() > 0.5)


def grain_to_dither(features: Features, decoys: Codebook, profile: Profile) -> Grain | None:
    """The grid that the hardened profile has to dither away from float descriptors (hardened.md#grain-of-float-descriptors).

    Raises InputError for descriptors on an 8-bit grid, and for decoys on a coarser grid than the descriptors: the grain
    would tell one from the other.
    """
    if profile.name != "hardened":
        return None
    if features.is_quantized:
        if profile.dither_steps < 1:
            raise InputError("8-bit descriptors need a dither of at least one step; use the default hardened profile")
        return None
    if on_eight_bit_grid(features.descriptors):
        raise InputError(
            "these float descriptors were stored in 8 bits before: a lattice attack recovers them exactly; "
            "extract them again in full precision"
        )
    grain = grain_of(features.descriptors)
    if _bits_of(decoys) < min(grain.bits, FULL_BITS):
        raise InputError(
            "the decoys were stored in fewer bits than the descriptors, which would stand out among them; build the pool from "
            "features of the same precision"
        )
    return None if grain.is_full else grain


@lru_cache(maxsize=4)
def _bits_of(decoys: Codebook) -> int:
    """Bits that decoys were stored in after the leading one; 8-bit ones do not go with float descriptors anyway."""
    return FULL_BITS if decoys.stored.dtype == np.uint8 else grain_of(decoys.stored).bits
