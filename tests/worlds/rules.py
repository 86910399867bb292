"""A rule of decoys made of a function, for tests that plant decoys."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Rule:
    """`choose(rows, draws, available)` returns the words of each feature; equal names draw alike."""

    choose: Callable[[np.ndarray, np.ndarray, np.ndarray], np.ndarray]
    name: str = "a rule of a test"

    def __call__(self, rows: np.ndarray, draws: np.ndarray, available: np.ndarray) -> np.ndarray:
        return self.choose(rows, draws, available)

    def identity(self, rows: np.ndarray) -> list[bytes]:
        return [self.name.encode()] * len(rows)
