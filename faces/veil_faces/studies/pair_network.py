"""A network that says whether two templates are one person's, trained in NumPy on pairs of an attacker's own.

One hidden layer of rectified units, a logistic output, and Adam (Kingma and Ba 2015). It stops at the epoch that separates
held-out pairs best.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float64

from veil.errors import InputError, RangeError


@dataclass(frozen=True, kw_only=True)
class TemplatePairTraining:
    """Options of the training: hidden units, epochs, pairs in a batch, step of Adam, and weight decay.

    Raises RangeError for a number below 1 of units, epochs or pairs, or a step that is not positive.
    """

    hidden: int = 32
    epochs: int = 25
    batch: int = 256
    step: float = 2e-3
    decay: float = 1e-3

    def __post_init__(self) -> None:
        if min(self.hidden, self.epochs, self.batch) < 1 or not self.step > 0:
            raise RangeError(f"units, epochs, pairs of a batch and the step are positive, got {self}")


@dataclass(frozen=True, kw_only=True, eq=False)
class TemplatePairNetwork:
    """Trained weights, and the mean and scale that take features of pairs to about unit size."""

    mean: Float64[np.ndarray, "_"]
    scale: Float64[np.ndarray, "_"]
    weights: tuple[np.ndarray, ...]

    def scores(self, features: Float64[np.ndarray, "pairs features"]) -> Float64[np.ndarray, "pairs"]:
        """Log-odds that each pair is one person's."""
        return _forward(self.weights, (features - self.mean) / self.scale)[1]


def area(mated: Float64[np.ndarray, "mated"], others: Float64[np.ndarray, "others"]) -> float:
    """Area under the ROC curve: probability that a mated score is above another one, ties counting half."""
    ranked = np.sort(others)
    below, equal_or_below = (np.searchsorted(ranked, mated, side=side) for side in ("left", "right"))
    return float((below + equal_or_below).mean() / (2 * len(others)))


def train_pairs(
    features: Float64[np.ndarray, "pairs features"],
    same: Bool[np.ndarray, "pairs"],
    held_out: Bool[np.ndarray, "pairs"],
    *,
    seed: int,
    options: TemplatePairTraining | None = None,
) -> TemplatePairNetwork:
    """The network trained on pairs that are not `held_out`, at the epoch with the largest area on those that are.

    Both kinds of pairs weigh alike. Raises InputError unless both parts have pairs of both kinds.
    """
    options = options or TemplatePairTraining()
    for part in (held_out, ~held_out):
        if not (same[part].any() and (~same[part]).any()):
            raise InputError("training needs pairs of one person and of two, in the part that is held out as well")
    random = np.random.default_rng(seed)
    mean = features[~held_out].mean(axis=0)
    scale = np.maximum(features[~held_out].std(axis=0), 1e-9)
    inputs, wanted = (features[~held_out] - mean) / scale, same[~held_out].astype(np.float64)
    tried = (features[held_out] - mean) / scale
    share = wanted.mean()
    weigh = np.where(wanted > 0, 0.5 / share, 0.5 / (1 - share))
    width = features.shape[1]
    weights = [
        random.normal(0, np.sqrt(2 / width), (width, options.hidden)),
        np.zeros(options.hidden),
        random.normal(0, np.sqrt(1 / options.hidden), options.hidden),
        np.zeros(1),
    ]
    moments = [(np.zeros_like(item), np.zeros_like(item)) for item in weights]
    best, chosen, steps = -1.0, tuple(weights), 0
    for _ in range(options.epochs):
        order = random.permutation(len(inputs))
        for rows in np.array_split(order, max(1, len(order) // options.batch)):
            steps += 1
            gradients = _gradients(weights, inputs[rows], wanted[rows], weigh[rows])
            _adam(weights, gradients, moments, steps, options)
        scores = _forward(weights, tried)[1]
        reached = area(scores[same[held_out]], scores[~same[held_out]])
        if reached > best:
            best, chosen = reached, tuple(item.copy() for item in weights)
    return TemplatePairNetwork(mean=mean, scale=scale, weights=chosen)


def _forward(
    weights: Sequence[np.ndarray], inputs: Float64[np.ndarray, "pairs features"]
) -> tuple[Float64[np.ndarray, "pairs hidden"], Float64[np.ndarray, "pairs"]]:
    """Hidden units and log-odds."""
    first, shift, second, offset = weights
    hidden = np.maximum(inputs @ first + shift, 0)
    return hidden, hidden @ second + offset


def _gradients(weights: Sequence[np.ndarray], inputs: np.ndarray, wanted: np.ndarray, weigh: np.ndarray) -> list[np.ndarray]:
    """Gradients of the weighted logistic loss by the weights."""
    hidden, odds = _forward(weights, inputs)
    error = weigh * (0.5 * (1 + np.tanh(odds / 2)) - wanted) / len(inputs)
    back = np.outer(error, weights[2]) * (hidden > 0)
    return [inputs.T @ back, back.sum(axis=0), hidden.T @ error, error.sum(keepdims=True)]


def _adam(
    weights: list[np.ndarray],
    gradients: Sequence[np.ndarray],
    moments: list[tuple[np.ndarray, np.ndarray]],
    steps: int,
    options: TemplatePairTraining,
) -> None:
    """One step of Adam, with weight decay beside it, in place."""
    for place, gradient in enumerate(gradients):
        first, second = moments[place]
        first, second = 0.9 * first + 0.1 * gradient, 0.999 * second + 0.001 * gradient**2
        moments[place] = first, second
        moved = (first / (1 - 0.9**steps)) / (np.sqrt(second / (1 - 0.999**steps)) + 1e-8)
        weights[place] = weights[place] - options.step * (moved + options.decay * weights[place])
