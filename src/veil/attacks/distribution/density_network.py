"""Learned density of descriptors: a small network that tells descriptors from points near them in subspaces.

The network is read and differentiated here with NumPy alone; `veil lab train attacks` trains it.

Theory: learned_attacks.md#the-density-on-a-subspace.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from jaxtyping import Float32

from veil.errors import InputError
from veil.space import Space

# Largest magnitude of a stored weight; networks that were trained stay far below it.
LARGEST_WEIGHT = 1e3


@dataclass(frozen=True, kw_only=True, eq=False)
class DensityNetwork:
    """Network from descriptors of `space` to the logarithm of how much more likely they are than points near them.

    `weights` and `biases` are those of its layers (inputs x outputs), with the activation z / (1 + e^-z) between them (SiLU;
    Elfwing, Uchibe and Doya 2018). `source` says in words which photographs it was trained on. Raises InputError for layers
    that do not fit each other or the space, or weights that are not finite and below 1000.
    """

    space: Space
    weights: tuple[Float32[np.ndarray, "_ _"], ...]
    biases: tuple[Float32[np.ndarray, "_"], ...]
    source: str

    def __post_init__(self) -> None:
        sizes = [self.space.dim, *(len(bias) for bias in self.biases)]
        fits = [weight.shape == shape for weight, shape in zip(self.weights, pairwise(sizes), strict=False)]
        if not self.weights or len(self.weights) != len(self.biases) or not all(fits) or sizes[-1] != 1:
            shapes = [weight.shape for weight in self.weights]
            raise InputError(f"a density of {self.space.dim}-D descriptors cannot have layers of the shapes {shapes}")
        if not all((np.abs(item) < LARGEST_WEIGHT).all() for item in (*self.weights, *self.biases)):
            raise InputError("a density needs finite weights below 1000; train it again or get another file")

    def log_ratio(self, points: Float32[np.ndarray, "points dim"]) -> Float32[np.ndarray, "points"]:
        """Logarithm of the ratio of densities at each of `points`."""
        return forward(self.weights, self.biases, points)[0]

    def gradient(
        self, points: Float32[np.ndarray, "points dim"]
    ) -> tuple[Float32[np.ndarray, "points"], Float32[np.ndarray, "points dim"]]:
        """The log ratio at each of `points`, and its derivative there."""
        values, entering, shares = forward(self.weights, self.biases, points)
        error = np.ones((len(points), 1), dtype=np.float32)
        for weight, outputs, share in zip(self.weights[:0:-1], entering[:0:-1], shares[::-1], strict=True):
            error = error @ weight.T
            error *= silu_slope(outputs, share)
        return values, (error @ self.weights[0].T) * np.float32(np.sqrt(points.shape[1]))


def forward(
    weights: Sequence[np.ndarray], biases: Sequence[np.ndarray], points: Float32[np.ndarray, "points dim"]
) -> tuple[Float32[np.ndarray, "points"], list[np.ndarray], list[np.ndarray]]:
    """Outputs for each of `points`, what enters each layer, and for each layer but the first what share its activation lets in.

    The points are multiplied by sqrt(dim) first, so that their entries are of the order of 1.
    """
    entering, shares = [points * np.float32(np.sqrt(points.shape[1]))], []
    values = entering[0] @ weights[0] + biases[0]
    for weight, bias in zip(weights[1:], biases[1:], strict=True):
        shares.append(sigmoid(values))
        values *= shares[-1]
        entering.append(values)
        values = values @ weight + bias
    return values[:, 0], entering, shares


def silu_slope(outputs: np.ndarray, share: np.ndarray) -> np.ndarray:
    """Derivative of the activation z / (1 + e^-z) from what it gave, and the share of z that this is."""
    return share + outputs * (1 - share)


def sigmoid(inputs: np.ndarray) -> np.ndarray:
    """1 / (1 + e^-z), without overflow."""
    half = np.tanh(0.5 * inputs)
    half += 1
    half *= 0.5
    return half
