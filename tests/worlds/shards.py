"""Shards of descriptors that workers make by themselves, from a seed."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True, kw_only=True)
class Rows:
    """So many 8-bit descriptors of a seed."""

    seed: int
    count: int

    def load(self) -> np.ndarray:
        """The descriptors."""
        return np.random.default_rng(self.seed).integers(0, 256, (self.count, 128), dtype=np.uint8)
