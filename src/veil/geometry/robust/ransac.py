"""Robust estimation by LO-MSAC, a RANSAC that asks an estimator for samples, models, residuals and a refinement.

Local optimization and the number of samples are functions of their own, which the grouped search
(`veil.geometry.robust.grouped`) shares.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar, runtime_checkable

import numpy as np
from jaxtyping import Bool, Float64, Int64

from veil.errors import RangeError

Model = TypeVar("Model")
Hypothesis = TypeVar("Hypothesis")

ROUNDS = 3  # of local optimization after each new best model
# A search for a model that a share of the data agrees with misses it with this probability.
RIVAL_MISSED = 1e-3


@runtime_checkable
class Estimator(Protocol[Model]):
    """A problem as `ransac` needs it: how to draw samples, solve them, measure residuals and refine a model."""

    def sample(self, random: np.random.Generator) -> Int64[np.ndarray, "sample"]:
        """Rows of the data in one minimal sample."""
        ...

    def models(self, rows: Int64[np.ndarray, "sample"]) -> Sequence[Model]:
        """All models that a sample allows, possibly none."""
        ...

    def residuals(self, model: Model) -> Float64[np.ndarray, "data"]:
        """Non-negative residuals of all data, infinite for what can never be an inlier."""
        ...

    def refine(self, model: Model, inliers: Bool[np.ndarray, "data"]) -> Model | None:
        """The model refined on its inliers, or None where they do not determine one."""
        ...


@dataclass(frozen=True, kw_only=True)
class RansacOptions:
    """Settings of `ransac`. Raises RangeError for values out of range.

    `max_error` is the inlier threshold, in the residuals' unit. Iterations are samples: the loop ends, after `min_iterations`
    at least and `max_iterations` at most, when with probability `confidence` one sample has held inliers only. Runs with one
    `seed` are equal.
    """

    max_error: float
    confidence: float = 0.9999
    min_iterations: int = 100
    max_iterations: int = 10_000
    seed: int = 0

    def __post_init__(self) -> None:
        if not 0 < self.max_error < math.inf:
            raise RangeError(f"max_error must be positive and finite, got {self.max_error!r}")
        if not 0 < self.confidence < 1:
            raise RangeError(f"confidence must lie between 0 and 1, got {self.confidence!r}")
        if not 1 <= self.min_iterations <= self.max_iterations:
            raise RangeError("iterations must satisfy 1 <= min_iterations <= max_iterations")


@dataclass(frozen=True, kw_only=True, eq=False)
class Consensus(Generic[Model]):
    """Best model of a robust search, its inliers, its truncated cost (`score`), and how many samples were drawn."""

    model: Model
    inliers: Bool[np.ndarray, "data"]
    score: float
    iterations: int


def ransac(
    estimator: Estimator[Model],
    sample_size: int,
    options: RansacOptions,
    *,
    clean_share: Callable[[Bool[np.ndarray, "data"]], float] | None = None,
) -> Consensus[Model] | None:
    """The model of least truncated squared residuals (Torr and Zisserman 2000), or None if no sample gave a model.

    Each new best model is refined on its inliers (Chum et al. 2003). `sample_size` is the number of data in a sample.
    `clean_share` gives the share of samples that hold inliers only, from a mask of the inliers; without it, samples are taken
    to be uniform.
    """
    random = np.random.default_rng(options.seed)
    best: Consensus[Model] | None = None
    needed, iteration = options.max_iterations, 0
    while iteration < min(needed, options.max_iterations) or iteration < options.min_iterations:
        iteration += 1
        for model in estimator.models(estimator.sample(random)):
            hypothesis = _scored(estimator, model, options.max_error, iteration)
            if best is not None and hypothesis.score >= best.score:
                continue
            best = locally_optimized(
                hypothesis, refined=lambda each: _refined(estimator, each, options.max_error), cost=_cost, rounds=ROUNDS
            )
            clean = best.inliers.mean() ** sample_size if clean_share is None else clean_share(best.inliers)
            needed = samples_needed(clean, options.confidence)
    if best is None:
        return None
    return Consensus(model=best.model, inliers=best.inliers, score=best.score, iterations=iteration)


def locally_optimized(
    start: Hypothesis,
    *,
    refined: Callable[[Hypothesis], Hypothesis | None],
    cost: Callable[[Hypothesis], float],
    rounds: int,
) -> Hypothesis:
    """The best of a hypothesis and its successive refinements: the local optimization of LO-RANSAC (Chum et al. 2003).

    `refined` makes the next hypothesis from the best one on its inliers, or None where these do not determine one. At most
    `rounds` refinements are made, and none after one that does not lower `cost`.
    """
    best = start
    for _ in range(rounds):
        hypothesis = refined(best)
        if hypothesis is None or cost(hypothesis) >= cost(best):
            break
        best = hypothesis
    return best


def samples_needed(clean_share: float, confidence: float) -> int:
    """Number of samples of which one holds inliers only with probability `confidence` (2^62 where practically none does).

    `clean_share` is the probability that a sample holds inliers only.
    """
    if clean_share >= 1:
        return 1
    if clean_share < 1e-15:
        return 2**62
    return math.ceil(math.log(1 - confidence) / math.log1p(-clean_share))


def samples_for(share: float, size: int, most: int) -> int:
    """Number of samples of `size` pairs, at most `most`, that are enough to draw one of inliers only.

    If `share` of the pairs are inliers, one is drawn with probability 1 - `RIVAL_MISSED`, unless `most` is too few.
    """
    return min(most, samples_needed(min(share, 1.0) ** size, 1 - RIVAL_MISSED))


def _scored(estimator: Estimator[Model], model: Model, max_error: float, iteration: int) -> Consensus[Model]:
    """The consensus of all data with a model that was found in sample `iteration`."""
    residuals = np.minimum(estimator.residuals(model), max_error)
    return Consensus(model=model, inliers=residuals < max_error, score=float((residuals**2).sum()), iterations=iteration)


def _refined(estimator: Estimator[Model], start: Consensus[Model], max_error: float) -> Consensus[Model] | None:
    """The consensus of all data with a model refined on its inliers."""
    model = estimator.refine(start.model, start.inliers)
    return None if model is None else _scored(estimator, model, max_error, start.iterations)


def _cost(consensus: Consensus[Model]) -> float:
    """The truncated cost, which the loop minimizes."""
    return consensus.score
