"""Same photograph attack: of the modes of all features those that one photograph could have are the true ones.

All descriptors of a photograph share its light, its lens and its motif; decoys are from many others. So photographs differ in
where their descriptors lie on the average, and the attacker learned from its own by how much. It infers this average and the
true modes from each other. Positions are not needed: the attack is for lines, where `veil.attacks.distribution.context` has no
neighbors to ask.

Theory: learned_attacks.md#same-photograph.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Float64

from veil.attacks.distribution.modes import Modes, normalized
from veil.errors import InputError, RangeError
from veil.forms import Points
from veil.space import Space, require_same

# Largest magnitude of a stored number; fitted ones stay far below it.
LARGEST_NUMBER = 1e4


@dataclass(frozen=True, kw_only=True, eq=False)
class PhotographModel:
    """Law of the averages of photographs, for descriptors of `space`.

    - `mean` (dim): origin of the coordinates; `axes` (dim x directions): directions in which photographs differ most, scaled so
      that descriptors of one photograph have the covariance 1 there.
    - `center`, `spread` (directions): mean and variance of the averages of photographs.
    - `source`: in words, which photographs it was fitted to.
    - `sharpness`: factor of the log ratios of modes in beliefs. The default ships with veil; `veil lab tune` fits another.

    Raises InputError for arrays that do not fit each other or the space, and numbers that are not finite and below 10,000 or a
    `spread` that is not positive; RangeError for a sharpness that is not positive and below 100.
    """

    space: Space
    mean: Float64[np.ndarray, "dim"]
    axes: Float64[np.ndarray, "dim directions"]
    center: Float64[np.ndarray, "directions"]
    spread: Float64[np.ndarray, "directions"]
    source: str
    sharpness: float = 0.25

    def __post_init__(self) -> None:
        count = len(self.spread)
        shapes = self.mean.shape, self.axes.shape, self.center.shape, self.spread.shape
        if shapes != ((self.space.dim,), (self.space.dim, count), (count,), (count,)) or not count:
            raise InputError(f"a law of photographs for {self.space.dim}-D descriptors cannot have arrays of {shapes}")
        if not all((np.abs(item) < LARGEST_NUMBER).all() for item in (self.mean, self.axes, self.center, self.spread)):
            raise InputError("a law of photographs needs finite numbers below 10,000; train it again or get another file")
        if not (self.spread > 0).all():
            raise InputError("the averages of photographs vary in every direction: a spread is positive")
        if not 0 < self.sharpness < 100:
            raise RangeError(f"the sharpness must be positive and below 100, got {self.sharpness!r}")

    def coordinates(self, points: Float[np.ndarray, "*batch dim"]) -> Float64[np.ndarray, "*batch directions"]:
        """Coordinates of points in the directions in which photographs differ."""
        return (points - self.mean) @ self.axes


@dataclass(frozen=True, kw_only=True)
class PhotographOptions:
    """Options of the exchange of beliefs.

    Each of `rounds` moves beliefs by `damping`. Raises RangeError for values outside their range.
    """

    rounds: int = 12
    damping: float = 0.5

    def __post_init__(self) -> None:
        if not (self.rounds >= 1 and 0 < self.damping <= 1):
            raise RangeError("rounds must be at least 1, and the damping above 0 and at most 1")


class DecoyLaw(NamedTuple):
    """The normal law of the coordinates of decoys (learned_attacks.md, Eq. 7)."""

    mean: Float64[np.ndarray, "directions"]
    covariance: Float64[np.ndarray, "directions directions"]

    @staticmethod
    def of(database: Points, model: PhotographModel) -> DecoyLaw:
        """The law with the moments of `database`, and a little more variance, without which few points have none.

        `database` holds descriptors that are like decoys, of the attacker's own photographs or of the pool. Raises SpaceError
        if it is in another space than the model, and InputError without an entry.
        """
        require_same(database.space, model.space)
        if not len(database):
            raise InputError("without descriptors of its own the attacker does not know what decoys look like")
        values = model.coordinates(database.vectors.astype(np.float64))
        centered = values - values.mean(axis=0)
        return DecoyLaw(values.mean(axis=0), centered.T @ centered / len(values) + 1e-6 * np.eye(values.shape[1]))

    def log_density(self, values: Float64[np.ndarray, "*batch directions"]) -> Float64[np.ndarray, "*batch"]:
        """Logarithm of the density at each of `values`, but for a constant that depends on the number of directions alone."""
        away = values - self.mean
        inverse, volume = np.linalg.inv(self.covariance), np.linalg.slogdet(self.covariance)[1]
        return -0.5 * (np.einsum("...i,ij,...j->...", away, inverse, away) + volume)


def photograph_beliefs(
    modes: Modes, model: PhotographModel, decoys: DecoyLaw, *, options: PhotographOptions | None = None
) -> Float64[np.ndarray, "features modes"]:
    """Probabilities of the modes of each feature if all true ones are of one photograph (learned_attacks.md, Eq. 7-9).

    Raises InputError for modes of descriptors of another length.
    """
    options = options or PhotographOptions()
    if modes.points.shape[2] != model.space.dim:
        raise InputError(f"the law is for {model.space.dim}-D descriptors, and modes have {modes.points.shape[2]} numbers")
    known = np.isfinite(modes.log_ratios)
    places = model.coordinates(np.where(known[..., None], modes.points, 0.0))
    with np.errstate(invalid="ignore"):
        alone = np.where(known, model.sharpness * (modes.log_ratios - modes.log_ratios[:, :1]), -np.inf)
    decoy = decoys.log_density(places)
    beliefs = last = normalized(alone)
    for _ in range(options.rounds):
        last = normalized(alone + _fit_to_others(places, beliefs, model) - decoy)
        beliefs = (1 - options.damping) * beliefs + options.damping * last
    return last


def _fit_to_others(
    places: Float64[np.ndarray, "features modes directions"],
    beliefs: Float64[np.ndarray, "features modes"],
    model: PhotographModel,
) -> Float64[np.ndarray, "features modes"]:
    """Log density of each mode as a descriptor of the photograph that the other features show, as they are believed (Eq. 8)."""
    own = np.einsum("fa,fad->fd", beliefs, places)
    precision = 1 / model.spread + (len(own) - 1)
    average = (model.center / model.spread + own.sum(axis=0) - own) / precision
    variance = 1 + 1 / precision
    return -0.5 * ((places - average[:, None]) ** 2 / variance + np.log(variance)).sum(axis=2)
