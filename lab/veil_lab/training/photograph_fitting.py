"""Fit of the law by which photographs differ in the average of their descriptors, and of the sharpness of beliefs under it.

The law has a closed form. The sharpness is that of largest likelihood of the right modes, on photographs that the density was
not trained on: where it has seen them it is surer of them than of any other.

A file of its own: it needs no torch, and what trains beside it does.

Theory: learned_attacks.md#same-photograph.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from jaxtyping import Bool, Float64

from veil.attacks.distribution.modes import Modes
from veil.attacks.distribution.same_photograph import DecoyLaw, PhotographModel, photograph_beliefs
from veil.audit.ground_truth import in_space
from veil.codebooks.codebook import Codebook
from veil.errors import InputError
from veil.features import Features
from veil.mechanisms.selection import Selection, selected_rows
from veil.randomness import seeded
from veil_lab.training.context_options import LEAST_FEATURES

# Directions in which photographs differ most; more of them added nothing on photographs that were not fitted.
DIRECTIONS = 20
# Share of the mean variance within photographs that is added to that of each coordinate, or few descriptors would have none.
RIDGE = 1e-4
# Least spread of the averages, in variances within a photograph: an estimate of less than nothing is sampling.
LEAST_SPREAD = 1e-6
# Values of the sharpness that are tried, each 15 % above the one before it. Between them the likelihood is a parabola.
SHARPNESSES = np.geomspace(0.02, 5.0, 41)
# Least belief whose logarithm is taken.
LEAST_BELIEF = 1e-300


def fit_photographs(photographs: Sequence[Features], book: Codebook, *, source: str) -> PhotographModel:
    """The law of `photographs` in the compressed space of `book`, of the features that `veil privatize` sends of each.

    Raises InputError for fewer than two photographs with 12 such features.
    """
    space, parts = book.compression.hardened_space, []
    for item in photographs:
        rows = selected_rows(item, Selection(), seeded("photographs"))
        if len(rows) >= LEAST_FEATURES:
            parts.append(in_space(item.take(rows), space, book))
    if len(parts) < 2:
        raise InputError(
            f"the law of photographs is learned from two or more with {LEAST_FEATURES} features that lie apart, "
            f"got {len(parts)}; give more photographs"
        )
    mean = np.concatenate(parts).mean(axis=0)
    counts = np.array([len(part) for part in parts])
    averages = np.array([part.mean(axis=0) for part in parts]) - mean
    centered = np.concatenate([part - part.mean(axis=0) for part in parts])
    within = centered.T @ centered / (counts - 1).sum()
    within += RIDGE * np.trace(within) / len(within) * np.eye(len(within))
    center = averages.mean(axis=0)
    between = (averages - center).T @ (averages - center) / len(averages) - within * (1 / counts).mean()
    inverse = np.linalg.inv(np.linalg.cholesky(within))
    spread, directions = np.linalg.eigh(inverse @ between @ inverse.T)
    order = np.argsort(-spread)[:DIRECTIONS]
    axes = inverse.T @ directions[:, order]
    return PhotographModel(
        space=space,
        mean=mean,
        axes=axes,
        center=center @ axes,
        spread=np.maximum(spread[order], LEAST_SPREAD),
        source=source,
    )


@dataclass(frozen=True, kw_only=True, eq=False)
class JudgedModes:
    """Modes of the features of one photograph, which of them are right, and the law of decoys."""

    modes: Modes
    is_right: Bool[np.ndarray, "features modes"]
    decoys: DecoyLaw

    @property
    def features(self) -> int:
        """Number of features that have a right mode."""
        return int(self.is_right.any(axis=1).sum())

    def log_likelihood(self, law: PhotographModel) -> float:
        """Sum of the logarithms (nats) of the beliefs in the right modes (learned_attacks.md, Eq. 9).

        Features without a right mode do not count.
        """
        beliefs = photograph_beliefs(self.modes, law, self.decoys)
        right = np.where(self.is_right, beliefs, 0.0).sum(axis=1)[self.is_right.any(axis=1)]
        return float(np.log(np.maximum(right, LEAST_BELIEF)).sum())


@dataclass(frozen=True, kw_only=True)
class FittedSharpness:
    """Sharpness of largest likelihood, and its standard error: NaN where a single photograph has right modes."""

    sharpness: float
    error: float


def log_likelihoods(photographs: Sequence[JudgedModes], law: PhotographModel) -> Float64[np.ndarray, "photographs sharpnesses"]:
    """Log likelihood (nats) of the right modes of each photograph, for each of `SHARPNESSES` instead of the law's own."""
    laws = [replace(law, sharpness=float(sharpness)) for sharpness in SHARPNESSES]
    return np.array([[item.log_likelihood(sharp) for sharp in laws] for item in photographs])


def fit_sharpness(likelihoods: Float64[np.ndarray, "photographs sharpnesses"]) -> FittedSharpness:
    """The sharpness that all photographs together make likeliest, by the table of `log_likelihoods`, to three digits.

    Features of one photograph are not independent. So the standard error is that of the jackknife, which leaves out one
    photograph in turn (Efron 1979). Raises InputError where no feature has a right mode.
    """
    kept = likelihoods[(likelihoods != 0).any(axis=1)]
    if not len(kept):
        raise InputError(
            "no mode of any feature lies near its descriptor, and nothing says which are right; give more photographs"
        )
    total, count = kept.sum(axis=0), len(kept)
    without = np.array([_likeliest(total - own) for own in kept])
    error = np.sqrt((count - 1) / count * np.square(without - without.mean()).sum()) if count > 1 else np.nan
    return FittedSharpness(sharpness=float(f"{_likeliest(total):.3g}"), error=float(error))


def _likeliest(likelihood: Float64[np.ndarray, "sharpnesses"]) -> float:
    """The vertex of the parabola through the highest value and the two beside it, over the logarithm of the sharpness."""
    best = int(np.clip(likelihood.argmax(), 1, len(likelihood) - 2))
    low, high = likelihood[best - 1] - likelihood[best], likelihood[best + 1] - likelihood[best]
    step = np.clip((low - high) / (2 * (low + high)), -1, 1) if low + high < 0 else 0.0
    return float(SHARPNESSES[best] * (SHARPNESSES[1] / SHARPNESSES[0]) ** step)
