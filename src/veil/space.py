"""Spaces of descriptors: two descriptors are compared only if their spaces are equal."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Literal

from veil.errors import RangeError, Remedy, SpaceError
from veil.one_line import one_line

# COLMAP stores a unit SIFT descriptor as round(512 x), clipped to 255; dithers are counted in these steps.
U8_STEP = 1.0 / 512.0
# Subspaces of unit descriptors that meet are at most this far apart after their numbers are rounded to half precision.
WIRE_ROUNDING = 2e-3
Normalization = Literal["L2", "L1_ROOT"]
NORMALIZATIONS: tuple[Normalization, ...] = ("L2", "L1_ROOT")
# Numbers of a descriptor by its kind, as its authors' network gives them. Networks of one family give other descriptors each.
DIMS: Mapping[str, int] = MappingProxyType(
    {
        "sift": 128,
        "hardtfeat": 128,
        "hardnet": 128,
        "aliked-t16": 64,
        "aliked-n16": 128,
        "aliked-n16rot": 128,
        "aliked-n32": 128,
        "disk": 128,
        "loma-b": 256,
        "loma-b128": 128,
        "superpoint": 256,
        "xfeat": 64,
    }
)


@dataclass(frozen=True, kw_only=True)
class Space:
    """Space of descriptors: their kind, their normalization, and the public projection that was applied, if any.

    - `descriptor`: name of the kind, such as "sift"; 1 to 32 printable ASCII characters.
    - `normalization`: "L2" or "L1_ROOT" (lifting.md#strategies).
    - `dim`: dimension, after the projection.
    - `codebook`: SHA-256 (hex) of the codebook whose PCA was applied; "" where none was.
    - `dither_steps`: width, in steps of 1/512, of the uniform dither that was added before normalization; 0 for none. It is
      part of the space because it moves the mean of every descriptor.

    Raises RangeError for values outside these ranges.
    """

    descriptor: str
    normalization: Normalization
    dim: int
    codebook: str = ""
    dither_steps: float = 0.0

    __repr__ = one_line

    def __post_init__(self) -> None:
        if not (self.descriptor.isascii() and self.descriptor.isprintable() and 1 <= len(self.descriptor) <= 32):
            raise RangeError(f"descriptor name must be 1 to 32 printable ASCII characters, got {self.descriptor!r}")
        if self.normalization not in NORMALIZATIONS:
            raise RangeError(f"normalization must be one of {NORMALIZATIONS}, got {self.normalization!r}")
        if not 2 <= self.dim <= 4096:
            raise RangeError(f"dim must be between 2 and 4096, got {self.dim!r}")
        if not 0 <= self.dither_steps <= 64:
            raise RangeError(f"dither_steps must be between 0 and 64, got {self.dither_steps!r}")
        if self.codebook and not (len(self.codebook) == 64 and set(self.codebook) <= set("0123456789abcdef")):
            raise RangeError(f"codebook must be a SHA-256 in hex or empty, got {self.codebook!r}")

    @property
    def decoy_distance(self) -> float:
        """Distance up to which two subspaces may meet in one decoy: that of two dithered copies, or the wire's rounding.

        Two copies of a word differ by a / 512 sqrt(dim / 6) on average, with a dither of a steps of 1/512
        (hardened.md#what-remains); twice that is wide enough for nearly all of them, and far below the distance of others.
        """
        return max(WIRE_ROUNDING, 2 * math.sqrt(self.dim / 6) * self.dither_steps * U8_STEP)

    def __str__(self) -> str:
        projected = f", codebook {self.codebook[:12]}" if self.codebook else ""
        dithered = f", dither {self.dither_steps:g}" if self.dither_steps else ""
        return f"{self.descriptor} {self.normalization} {self.dim}-D{projected}{dithered}"


def known_space(descriptor: str, dim: int | None = None, *, normalization: Normalization = "L2") -> Space:
    """The space of descriptors of this kind as they are extracted; `dim` is needed for kinds that are not in `DIMS`.

    Raises RangeError where it is missing, or is not the dimension that the kind has.
    """
    usual = DIMS.get(descriptor)
    if dim is None and usual is None:
        raise RangeError(f"the dimension of {descriptor!r} is not known (known are {', '.join(DIMS)}); say NAME:DIM")
    if usual is not None and dim not in (None, usual):
        raise RangeError(f"{descriptor} has {usual} dimensions, not {dim}; say {descriptor}, or another name with :{dim}")
    return Space(descriptor=descriptor, normalization=normalization, dim=usual if dim is None else dim)  # type: ignore[arg-type]


def require_same(a: Space, b: Space) -> None:
    """Raise SpaceError, which says how they differ, unless `a` equals `b`; distances across spaces are meaningless numbers."""
    if a != b:
        differing = differences(a, b)
        remedy = root_remedy(a, b) or root_remedy(b, a)
        same = "" if remedy else f"; extract and privatize both sides with the same {' and '.join(differing)}"
        raise SpaceError(
            f"cannot compare descriptors of different spaces: [{a}] and [{b}] differ in {' and '.join(differing)}{same}",
            remedy=remedy,
        )


def differences(a: Space, b: Space) -> list[str]:
    """Names of what differs between two spaces; what follows from another difference is left out."""
    if a.descriptor != b.descriptor:
        return ["descriptor"]
    if a.normalization != b.normalization:
        return ["normalization"]
    if a.codebook != b.codebook:
        return ["codebook"]
    return [
        name for name, one, other in (("dimension", a.dim, b.dim), ("dither", a.dither_steps, b.dither_steps)) if one != other
    ]


def root_remedy(a: Space, b: Space) -> tuple[Remedy, ...]:
    """The remedy where `a` is raw RootSIFT and `b` SIFT in L2, which it can be converted to; none for other spaces."""
    is_root = a.descriptor == b.descriptor == "sift" and (a.normalization, b.normalization) == ("L1_ROOT", "L2")
    return (Remedy("make", "features in L2"),) if is_root and not a.codebook else ()
