"""One robust loop for all of veil: LO-MSAC that asks an estimator for samples, models, residuals and a refinement."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar, runtime_checkable

import numpy as np
from jaxtyping import Bool, Float64, Int64

from veil.errors import RangeError

Model = TypeVar("Model")


@runtime_checkable
class Estimator(Protocol[Model]):
    """What the loop needs to know of a problem; residuals are non-negative, infinite for what can never be an inlier."""

    def sample(self, random: np.random.Generator) -> Int64[np.ndarray, "sample"]: ...

    def models(self, rows: Int64[np.ndarray, "sample"]) -> Sequence[Model]: ...

    def residuals(self, model: Model) -> Float64[np.ndarray, "data"]: ...

    def refine(self, model: Model, inliers: Bool[np.ndarray, "data"]) -> Model | None: ...


@dataclass(frozen=True, kw_only=True)
class RansacOptions:
    """The threshold has the residuals' unit; the seed makes runs repeat."""

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
    """The best model, its inliers, its truncated cost, and how many samples were drawn."""

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
    """The model of least truncated squared residual (Torr and Zisserman 2000), each new best refined on its inliers
    (Chum et al. 2003). None if no sample gave a model.

    `clean_share` says which share of samples holds inliers only; without it, samples are taken to be uniform.
    """
    random = np.random.default_rng(options.seed)
    best: Consensus[Model] | None = None
    needed, iteration = options.max_iterations, 0
    while iteration < min(needed, options.max_iterations) or iteration < options.min_iterations:
        iteration += 1
        for model in estimator.models(estimator.sample(random)):
            found = _scored(estimator, model, options.max_error, iteration)
            if best is not None and found.score >= best.score:
                continue
            best = _locally_optimized(estimator, found, options.max_error)
            clean = best.inliers.mean() ** sample_size if clean_share is None else clean_share(best.inliers)
            needed = _iterations(clean, options.confidence)
    if best is None:
        return None
    return Consensus(model=best.model, inliers=best.inliers, score=best.score, iterations=iteration)


def _scored(estimator: Estimator[Model], model: Model, max_error: float, iteration: int) -> Consensus[Model]:
    residuals = np.minimum(estimator.residuals(model), max_error)
    return Consensus(model=model, inliers=residuals < max_error, score=float((residuals**2).sum()), iterations=iteration)


def _locally_optimized(estimator: Estimator[Model], start: Consensus[Model], max_error: float) -> Consensus[Model]:
    best = start
    for _ in range(3):
        refined = estimator.refine(best.model, best.inliers)
        if refined is None:
            break
        found = _scored(estimator, refined, max_error, best.iterations)
        if found.score >= best.score:
            break
        best = found
    return best


def _iterations(clean: float, confidence: float) -> int:
    """Samples after which one is all inliers with the given confidence."""
    if clean >= 1:
        return 1
    if clean < 1e-12:
        return 2**62
    return math.ceil(math.log(1 - confidence) / math.log1p(-clean))
