"""Training of the density of descriptors by noise contrast, in NumPy and repeatable from a seed.

An attacker lifts descriptors of its own, as the client's code does, and teaches a network to tell a vertex of a subspace (a
descriptor with its dither) from a point of the same subspace at some distance from it (Gutmann and Hyvärinen 2012). What it
learns is how likely a point is, compared with the points around it in such subspaces.

Theory: learned_attacks.md#the-density-on-a-subspace.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from jaxtyping import Float32, Float64, UInt8

from veil.attacks.distribution.density_network import DensityNetwork, forward, sigmoid, silu_slope
from veil.codebooks.compression import Compression
from veil.errors import InputError, RangeError
from veil.progress import Progress


@dataclass(frozen=True, kw_only=True)
class DensityTraining:
    """Options of the training.

    `steps` gradient steps, each with `batch` subspaces of `decoys` decoys, of which one vertex and one point at a distance
    between `nearest` and `farthest` (drawn evenly in its logarithm) are told apart. `hidden` are the sizes of the layers,
    `rate` the first learning rate of Adam (Kingma and Ba 2015), which falls to zero along a cosine. Raises RangeError for
    values outside their range.
    """

    steps: int = 6000
    batch: int = 1024
    decoys: int = 4
    hidden: tuple[int, ...] = (512, 512, 512)
    nearest: float = 0.03
    farthest: float = 1.2
    rate: float = 1e-3
    seed: int = 0

    def __post_init__(self) -> None:
        if min(self.steps, self.batch, self.decoys, *self.hidden) < 1:
            raise RangeError("steps, batch, decoys and the sizes of the layers must be at least 1")
        if not 0 < self.nearest < self.farthest < math.inf or not 0 < self.rate < 1:
            raise RangeError("distances must be positive and in order, and the rate between 0 and 1")


@dataclass(frozen=True, kw_only=True, eq=False)
class TrainingState:
    """State of a training after `step` steps, from which it goes on as if it had never stopped.

    `arrays` are weights and biases, their means and their squares (Adam), `generator` is the state of the generator, and
    `digest` that of the descriptors (SHA-256 in hex).
    """

    step: int
    arrays: tuple[Float32[np.ndarray, "..."], ...]
    generator: Mapping[str, Any]
    digest: str


def train_density(
    stored: UInt8[np.ndarray, "descriptors dim"] | Float32[np.ndarray, "descriptors dim"],
    *,
    compression: Compression,
    source: str,
    options: DensityTraining | None = None,
    state: TrainingState | None = None,
    keep: Callable[[TrainingState], None] = lambda state: None,
    progress: Progress | None = None,
) -> DensityNetwork:
    """A network trained on descriptors of the attacker's own photographs, for the space that `compression` leads to.

    The same descriptors and seed give the same network on one machine, also where `state` goes on with an earlier run; `keep`
    is called with the state after each step. Raises InputError for fewer descriptors than a subspace needs, a codebook without
    a PCA, or a state of other descriptors or layers.
    """
    options = options or DensityTraining()
    if compression.pca is None:
        raise InputError("the density is learned for the hardened profile, whose codebook has a PCA; this one has none")
    if len(stored) < 10 * (options.decoys + 1):
        raise InputError(f"{len(stored)} descriptors are too few to learn from; give more photographs")
    random = np.random.default_rng(options.seed)
    lift = _Lift(stored, compression, options, random)
    adam = _Adam(_initial(compression.hardened_space.dim, options, random))
    digest = hashlib.sha256(np.ascontiguousarray(stored).tobytes()).hexdigest()
    if state is not None:
        if state.digest != digest:
            raise InputError("the interrupted training was of other photographs; give the same ones, or begin anew")
        adam.restore(state)
        random.bit_generator.state = dict(state.generator)
    for step in range(state.step if state else 0, options.steps):
        vertices, others = lift.draw()
        gradients = contrast_gradients(adam.weights, adam.biases, vertices, others)
        adam.step(gradients, options.rate * 0.5 * (1 + math.cos(math.pi * step / options.steps)))
        keep(TrainingState(step=step + 1, arrays=adam.arrays, generator=random.bit_generator.state, digest=digest))
        if progress is not None:
            progress(step + 1, options.steps)
    return DensityNetwork(
        space=compression.hardened_space, weights=tuple(adam.weights), biases=tuple(adam.biases), source=source
    )


class _Lift:
    """Draws of vertices and of points near them in subspaces of the attacker's own descriptors."""

    def __init__(
        self, stored: np.ndarray, compression: Compression, options: DensityTraining, random: np.random.Generator
    ) -> None:
        assert compression.pca is not None
        self._stored, self._options, self._random = stored, options, random
        self._axes = compression.pca.axes.astype(np.float32)
        self._mean, self._steps = compression.pca.mean.astype(np.float32), np.float32(compression.dither_steps)

    def draw(self) -> tuple[Float32[np.ndarray, "batch dim"], Float32[np.ndarray, "batch dim"]]:
        """Vertices, one of each of a batch of subspaces, and a point of each subspace at some distance from its vertex."""
        options, random = self._options, self._random
        rows = random.integers(len(self._stored), size=(options.batch, options.decoys + 1))
        drawn = self._stored[rows].astype(np.float32)
        drawn += self._steps * random.random(drawn.shape, dtype=np.float32)
        drawn /= np.linalg.norm(drawn, axis=2, keepdims=True)
        points = (drawn - self._mean) @ self._axes.T
        directions = (points[:, 1:] - points[:, :1]).transpose(0, 2, 1)
        basis = np.linalg.qr(directions)[0]
        along = random.standard_normal((options.batch, options.decoys, 1), dtype=np.float32)
        along /= np.linalg.norm(along, axis=1, keepdims=True)
        low, high = math.log(options.nearest), math.log(options.farthest)
        distance = np.exp(random.uniform(low, high, (options.batch, 1))).astype(np.float32)
        return points[:, 0], points[:, 0] + distance * (basis @ along)[:, :, 0]


def contrast_gradients(
    weights: Sequence[Float32[np.ndarray, "_ _"]],
    biases: Sequence[Float32[np.ndarray, "_"]],
    vertices: Float32[np.ndarray, "batch dim"],
    others: Float32[np.ndarray, "batch dim"],
) -> list[tuple[Float32[np.ndarray, "_ _"], Float32[np.ndarray, "_"]]]:
    """Derivatives, by layer, of the mean logistic loss of telling `vertices` (1) from `others` (0)."""
    points = np.concatenate([vertices, others])
    values, entering, shares = forward(weights, biases, points)
    label = np.zeros(len(points), dtype=np.float32)
    label[: len(vertices)] = 1
    error = ((sigmoid(values) - label) / len(points)).astype(np.float32)[:, None]
    gradients: list[tuple[np.ndarray, np.ndarray]] = []
    for layer in range(len(weights) - 1, 0, -1):
        gradients.append((entering[layer].T @ error, error.sum(axis=0)))
        error = (error @ weights[layer].T) * silu_slope(entering[layer], shares[layer - 1])
    gradients.append((entering[0].T @ error, error.sum(axis=0)))
    return gradients[::-1]


def _initial(
    dim: int, options: DensityTraining, random: np.random.Generator
) -> list[tuple[Float32[np.ndarray, "_ _"], Float32[np.ndarray, "_"]]]:
    """Random weights of the variance 2 / inputs (He et al. 2015), biases of zero."""
    sizes = [dim, *options.hidden, 1]
    return [
        (
            (random.standard_normal((inputs, outputs)) * math.sqrt(2 / inputs)).astype(np.float32),
            np.zeros(outputs, dtype=np.float32),
        )
        for inputs, outputs in pairwise(sizes)
    ]


class _Adam:
    """Weights and biases of layers with the moments of Adam (Kingma and Ba 2015, Alg. 1)."""

    def __init__(self, layers: list[tuple[np.ndarray, np.ndarray]]) -> None:
        self._values = [array for layer in layers for array in layer]
        self._means = [np.zeros_like(array) for array in self._values]
        self._squares = [np.zeros_like(array) for array in self._values]
        self._count = 0

    @property
    def weights(self) -> list[Float64[np.ndarray, "_ _"] | np.ndarray]:
        """The layers' weights."""
        return self._values[0::2]

    @property
    def biases(self) -> list[np.ndarray]:
        """The layers' biases."""
        return self._values[1::2]

    @property
    def arrays(self) -> tuple[np.ndarray, ...]:
        """All values, then their means, then their squares; they change with the next step."""
        return (*self._values, *self._means, *self._squares)

    def restore(self, state: TrainingState) -> None:
        """Take the values and moments of `state`. Raises InputError if they are of other layers."""
        if [item.shape for item in state.arrays] != [item.shape for item in self.arrays]:
            raise InputError("the interrupted training was of another network; begin anew")
        count = len(self._values)
        copies = [item.astype(np.float32).copy() for item in state.arrays]
        self._values, self._means, self._squares = copies[:count], copies[count : 2 * count], copies[2 * count :]
        self._count = state.step

    def step(self, gradients: list[tuple[np.ndarray, np.ndarray]], rate: float) -> None:
        """Move all values against their gradients."""
        self._count += 1
        scale = rate * math.sqrt(1 - 0.999**self._count) / (1 - 0.9**self._count)
        flat = [array for layer in gradients for array in layer]
        for value, mean, square, gradient in zip(self._values, self._means, self._squares, flat, strict=True):
            mean += 0.1 * (gradient - mean)
            square += 0.001 * (gradient * gradient - square)
            value -= np.float32(scale) * mean / (np.sqrt(square) + np.float32(1e-8))
