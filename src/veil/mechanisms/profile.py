"""Profiles of lifting: `paper` does what Dusmanu et al. 2021 describe, `hardened` is veil's default."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

from veil.codebooks.codebook import Kind
from veil.errors import RangeError
from veil.one_line import one_line

Strategy = Literal["random", "adversarial", "hybrid", "sub-adversarial", "sub-hybrid"]
STRATEGIES: tuple[Strategy, ...] = get_args(Strategy)
HARDENED_M = 4
HARDENED_DITHER_STEPS = 4.0


@dataclass(frozen=True, kw_only=True)
class Profile:
    """Parameters of lifting: how a descriptor d becomes the subspace D = d + span(decoys - d, random directions).

    - `name`: the name that releases carry.
    - `strategy`: "random" (no decoys), "adversarial" (decoys only), "hybrid" (floor(m / 2) decoys, the rest random directions),
      or "sub-adversarial" and "sub-hybrid", where each image draws its decoys from one sub-database (lifting.md#strategies).
    - `m`: dimension of every subspace.
    - `decoys`: kind of the codebook that decoys are drawn from, "centroids" or "descriptors".
    - `directions`: law of the random directions, "gaussian" (isotropic) or "cube" (the paper's U([-1, 1]^n);
      lifting.md#random-directions-gaussian-or-cube).
    - `dither_steps`: width of the uniform dither added to 8-bit descriptors, in steps of 1/512 (0: none).
    - `compress`: whether the codebook's PCA is applied.
    - `dtype`: precision of the numbers on the wire.

    `Profile.paper` and `Profile.hardened` make the two named profiles. Raises RangeError for an unknown strategy, m < 1
    (hybrids: m < 2), or a dither outside 0..64. Source: Dusmanu et al. 2021, Sec. 3.2 and 4.2.
    """

    name: str
    strategy: Strategy
    m: int
    decoys: Kind = "centroids"
    directions: Literal["gaussian", "cube"] = "gaussian"
    dither_steps: float = 0.0
    compress: bool = False
    dtype: Literal["float16", "float32"] = "float32"

    __repr__ = one_line

    def __post_init__(self) -> None:
        if self.strategy not in STRATEGIES:
            raise RangeError(f"strategy must be one of {', '.join(STRATEGIES)}, got {self.strategy!r}")
        if self.m < 1:
            raise RangeError(f"m must be at least 1, got {self.m!r}")
        if "hybrid" in self.strategy and self.m < 2:
            raise RangeError(
                "hybrid lifting needs m >= 2: with m = 1 there is no decoy at all (lifting.md#why-m--1-is-not-used)"
            )
        if not 0 <= self.dither_steps <= 64:
            raise RangeError(f"dither_steps must be between 0 and 64, got {self.dither_steps!r}")

    @staticmethod
    def paper(m: int, strategy: Strategy = "sub-hybrid") -> Profile:
        """The profile `paper`, as Dusmanu et al. 2021 describe it: centroids as decoys, cube directions, single precision.

        `m` is the dimension of each subspace, `strategy` one of `Profile`'s. Nothing protects 8-bit descriptors such as SIFT:
        they are recovered exactly from such subspaces (docs/theory/hardened.md). Raises RangeError as `Profile` does.
        """
        return Profile(name="paper", strategy=strategy, m=m, directions="cube")

    @staticmethod
    def hardened(*, quantized: bool, compress: bool = False) -> Profile:
        """The profile `hardened`, veil's default: m = 4, real descriptors as decoys, half precision on the wire.

        With `quantized` (8-bit descriptors such as SIFT) descriptors are also dithered and compressed by the codebook's PCA;
        learned float descriptors need neither, and are compressed, too, if `compress` says so. What it stops, and what it
        does not: docs/theory/hardened.md.
        """
        return Profile(
            name="hardened",
            strategy="sub-adversarial",
            m=HARDENED_M,
            decoys="descriptors",
            dither_steps=HARDENED_DITHER_STEPS if quantized else 0.0,
            compress=quantized or compress,
            dtype="float16",
        )

    @property
    def decoy_count(self) -> int:
        """Number of decoys in each subspace: m, none, or floor(m / 2) for the hybrids (lifting.md#why-m--1-is-not-used)."""
        if self.strategy == "random":
            return 0
        return self.m // 2 if "hybrid" in self.strategy else self.m

    @property
    def uses_slice(self) -> bool:
        """Whether each image draws its decoys from a single sub-database (Dusmanu et al. 2021, Sec. 4.2)."""
        return self.strategy.startswith("sub-")

    def warnings(self, *, quantized: bool) -> list[str]:
        """Sentences that a user should read before lifting 8-bit (`quantized`) or float descriptors with this profile."""
        sentences = []
        if self.m == 1:
            sentences.append("m = 1: a line meets the unit sphere in at most two points, one of which is the descriptor")
        if "hybrid" in self.strategy and self.m < 4:
            sentences.append(
                f"m = {self.m} with a hybrid strategy: one decoy, so guessing is a coin toss (lifting.md#why-m--1-is-not-used)"
            )
        if quantized and (self.dither_steps == 0 or not self.compress):
            sentences.append(
                "without both dither and compression, 8-bit descriptors are recovered exactly and without any database "
                "(docs/theory/hardened.md)"
            )
        return sentences
