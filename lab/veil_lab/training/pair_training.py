"""Training of the network that tells how far apart two features lie: stochastic gradients in NumPy, repeatable from a seed.

Theory: docs/theory/position_attacks.md, Eq. 16.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Float32, Float64, Int64

from veil.attacks.positions.neighbor_field import CLASSES, DISTANCES_PX
from veil.attacks.positions.pair_network import CODE, HIDDEN, INNER, Layers, PairNetwork, ring_areas, scaled
from veil.errors import InputError, RangeError
from veil.progress import Progress
from veil.space import Space


@dataclass(frozen=True, kw_only=True, eq=False)
class TrainingPhotograph:
    """A photograph of the attacker: descriptors, keypoints (pixels) and size (pixels)."""

    vectors: Float32[np.ndarray, "features dim"]
    keypoints: Float32[np.ndarray, "features 2"]
    size_px: tuple[int, int]


@dataclass(frozen=True, kw_only=True)
class PairTraining:
    """Options of the training.

    `steps` gradient steps with `batch` pairs each, equally many of each class; at most `pairs` pairs of a class are taken from
    one photograph. `rate` is the first learning rate of Adam (Kingma and Ba 2015), which falls to zero along a cosine.
    """

    steps: int = 8000
    batch: int = 1536
    pairs: int = 400
    rate: float = 2e-3
    seed: int = 0

    def __post_init__(self) -> None:
        for name in ("steps", "batch", "pairs"):
            if not getattr(self, name) >= 1:
                raise RangeError(f"{name} must be at least 1, got {getattr(self, name)!r}")
        if not 0 < self.rate < 1:
            raise RangeError(f"rate must be above 0 and below 1, got {self.rate!r}")


def train_pairs(
    photographs: Sequence[TrainingPhotograph],
    *,
    space: Space,
    source: str,
    options: PairTraining | None = None,
    progress: Progress | None = None,
) -> PairNetwork:
    """A network trained to tell the class of distance of two features of one of the `photographs`.

    The same photographs and seed give the same network on one machine. Raises InputError where a class of distance has no pair
    in any of them.
    """
    options = options or PairTraining()
    random = np.random.default_rng(options.seed)
    vectors = scaled(np.concatenate([item.vectors for item in photographs]))
    pairs, crowding = _pairs(photographs, options, random)
    missing = [k for k, rows in enumerate(pairs) if len(rows) == 0]
    if missing:
        raise InputError(f"no two features of these photographs lie at distances of class {missing[0]}; give more photographs")
    state = [_Momentum(item) for item in _initial(space.dim, random)]
    each = max(1, options.batch // CLASSES)
    labels = np.repeat(np.arange(CLASSES), each)
    for step in range(options.steps):
        rows = np.concatenate([of_class[random.integers(len(of_class), size=each)] for of_class in pairs])
        gradients = _gradients(Layers(*(item.value for item in state)), vectors[rows[:, 0]], vectors[rows[:, 1]], labels)
        rate = options.rate * 0.5 * (1 + math.cos(math.pi * step / options.steps))
        for item, gradient in zip(state, gradients, strict=True):
            item.step(gradient, rate, step + 1)
        if progress is not None:
            progress(step + 1, options.steps)
    layers = Layers(*(item.value for item in state))
    return PairNetwork(space=space, layers=layers, crowding=crowding, source=source)


def _pairs(
    photographs: Sequence[TrainingPhotograph], options: PairTraining, random: np.random.Generator
) -> tuple[list[Int64[np.ndarray, "_ 2"]], Float64[np.ndarray, "near"]]:
    """Rows of pairs of features for each class of distance, and how much more often than evenly they lie at near ones."""
    from scipy.spatial import cKDTree

    by_class: list[list[np.ndarray]] = [[] for _ in range(CLASSES)]
    seen, even = np.zeros(CLASSES - 1), np.zeros(CLASSES - 1)
    start = 0
    for item in photographs:
        count = len(item.keypoints)
        close = cKDTree(item.keypoints).query_pairs(DISTANCES_PX[-1], output_type="ndarray")
        distance = np.linalg.norm(item.keypoints[close[:, 0]] - item.keypoints[close[:, 1]], axis=1)
        kind = np.searchsorted(DISTANCES_PX, distance, side="right")
        seen += np.bincount(kind, minlength=CLASSES)[:-1]
        even += ring_areas() * count * (count - 1) / 2 / (item.size_px[0] * item.size_px[1])
        for k in range(CLASSES - 1):
            rows = close[kind == k]
            by_class[k].append(start + rows[random.permutation(len(rows))[: options.pairs]])
        if count > 1:
            any_two = random.integers(count, size=(options.pairs, 2))
            gap = np.linalg.norm(item.keypoints[any_two[:, 0]] - item.keypoints[any_two[:, 1]], axis=1)
            by_class[-1].append(start + any_two[gap >= DISTANCES_PX[-1]])
        start += count
    joined = [np.concatenate([np.empty((0, 2), dtype=np.int64), *rows]) for rows in by_class]
    return joined, np.maximum(seen, 0.5) / np.maximum(even, 1e-9)


def _initial(dim: int, random: np.random.Generator) -> Layers:
    """Random weights of the variance 2 / inputs (He et al. 2015), biases of zero."""
    shapes = ((dim, HIDDEN), (HIDDEN, CODE), (2 * CODE, INNER), (INNER, CLASSES))
    drawn = []
    for inputs, outputs in shapes:
        drawn.append((random.standard_normal((inputs, outputs)) * math.sqrt(2 / inputs)).astype(np.float32))
        drawn.append(np.zeros(outputs, dtype=np.float32))
    return Layers(*drawn)


def _gradients(
    layers: Layers,
    first: Float[np.ndarray, "pairs dim"],
    second: Float[np.ndarray, "pairs dim"],
    labels: Int64[np.ndarray, "pairs"],
) -> Layers:
    """Derivatives of the mean cross entropy of the pairs' classes with respect to all weights."""
    count = len(labels)
    both = np.concatenate([first, second])
    hidden = np.maximum(both @ layers.w1 + layers.b1, 0)
    code = hidden @ layers.w2 + layers.b2
    left, right = code[:count], code[count:]
    pair = np.hstack([np.abs(left - right), left * right])
    inner = np.maximum(pair @ layers.w3 + layers.b3, 0)
    logits = inner @ layers.w4 + layers.b4
    share = np.exp(logits - logits.max(axis=1, keepdims=True))
    share /= share.sum(axis=1, keepdims=True)
    share[np.arange(count), labels] -= 1
    share /= count
    to_inner = (share @ layers.w4.T) * (inner > 0)
    to_pair = to_inner @ layers.w3.T
    sign = np.sign(left - right)
    to_left = to_pair[:, :CODE] * sign + to_pair[:, CODE:] * right
    to_right = -to_pair[:, :CODE] * sign + to_pair[:, CODE:] * left
    to_code = np.concatenate([to_left, to_right])
    to_hidden = (to_code @ layers.w2.T) * (hidden > 0)
    return Layers(
        w1=both.T @ to_hidden,
        b1=to_hidden.sum(axis=0),
        w2=hidden.T @ to_code,
        b2=to_code.sum(axis=0),
        w3=pair.T @ to_inner,
        b3=to_inner.sum(axis=0),
        w4=inner.T @ share,
        b4=share.sum(axis=0),
    )


class _Momentum:
    """One array of weights with the moments of Adam (Kingma and Ba 2015, Alg. 1)."""

    def __init__(self, value: np.ndarray) -> None:
        self.value = value
        self._mean, self._square = np.zeros_like(value), np.zeros_like(value)

    def step(self, gradient: np.ndarray, rate: float, number: int) -> None:
        """Move the weights against the gradient; `number` counts the steps from 1."""
        self._mean = 0.9 * self._mean + 0.1 * gradient
        self._square = 0.999 * self._square + 0.001 * gradient**2
        mean, square = self._mean / (1 - 0.9**number), self._square / (1 - 0.999**number)
        self.value = (self.value - rate * mean / (np.sqrt(square) + 1e-8)).astype(np.float32)
