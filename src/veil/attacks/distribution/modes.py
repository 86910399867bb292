"""Modes attack: the points of a subspace where descriptors are likeliest, by a learned density.

A subspace of the hardened profile holds five real descriptors. A density of descriptors, restricted to the subspace, has its
modes near them: the true one is among the few highest far more often than near the nearest entry of a database. Which mode is
the true one the density does not tell; `veil.attacks.distribution.context` asks the neighbors.

Theory: learned_attacks.md#modes.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float32, Float64

from veil.attacks.claims import Estimates
from veil.attacks.distribution.density_network import DensityNetwork
from veil.distances import nearest
from veil.errors import RangeError
from veil.forms import Points, Subspaces
from veil.progress import Progress
from veil.space import require_same

# Features whose searches are held at a time.
CHUNK_FEATURES = 48


@dataclass(frozen=True, kw_only=True)
class ModeOptions:
    """Options of the search for modes.

    The `entries` nearest entries of the attacker's database are projected on each subspace; the likeliest projections, at least
    `spread` from each other, are the starts of `starts` ascents of `steps` steps, whose lengths fall from `longest` to
    `shortest`. Of what they reach, at most `modes` points at least `apart` from each other are kept. `sharpness` multiplies the
    log ratios when they are compared. Raises RangeError for values outside their range.
    """

    entries: int = 300
    starts: int = 80
    steps: int = 20
    modes: int = 10
    spread: float = 0.1
    apart: float = 0.25
    longest: float = 0.08
    shortest: float = 0.004
    sharpness: float = 1.5

    def __post_init__(self) -> None:
        if min(self.entries, self.starts, self.steps, self.modes) < 1:
            raise RangeError("entries, starts, steps and modes must be at least 1")
        if not (self.spread >= 0 and self.apart >= 0 and 0 < self.shortest <= self.longest and self.sharpness > 0):
            raise RangeError("distances must not be negative, steps must shrink, and the sharpness must be positive")


@dataclass(frozen=True, kw_only=True, eq=False)
class Modes:
    """Modes of each subspace, the highest first, and the log ratios there; NaN and -inf where there are fewer."""

    points: Float64[np.ndarray, "features modes dim"]
    log_ratios: Float64[np.ndarray, "features modes"]

    def __len__(self) -> int:
        return len(self.points)

    def beliefs(
        self, sharpness: float, evidence: Float64[np.ndarray, "features modes"] | None = None
    ) -> Float64[np.ndarray, "features modes"]:
        """Probabilities of the modes that are proportional to the `sharpness`-th power of their ratios.

        `evidence` is further knowledge of each, as the logarithm of a likelihood ratio.
        """
        return normalized(sharpness * self.log_ratios + (0.0 if evidence is None else evidence))

    def estimates(self, beliefs: Float64[np.ndarray, "features modes"]) -> Estimates:
        """The likeliest mode of each feature under `beliefs`, with its probability as the confidence."""
        best = beliefs.argmax(axis=1)
        rows = np.arange(len(self))
        return Estimates(
            points=self.points[rows, best],
            confidence=np.clip(beliefs[rows, best], 0.0, 1.0),
            certified=np.zeros(len(self), dtype=bool),
        )


def normalized(logs: Float64[np.ndarray, "features modes"]) -> Float64[np.ndarray, "features modes"]:
    """Probabilities that are proportional to the exponentials of `logs`, of which each row has a finite one."""
    weights = np.exp(logs - logs.max(axis=1, keepdims=True))
    return weights / weights.sum(axis=1, keepdims=True)


def joined_modes(parts: list[Modes]) -> Modes:
    """Modes of several parts, concatenated in their order."""
    return Modes(
        points=np.concatenate([part.points for part in parts]), log_ratios=np.concatenate([part.log_ratios for part in parts])
    )


def density_modes(
    form: Subspaces,
    network: DensityNetwork,
    database: Points,
    *,
    options: ModeOptions | None = None,
    threads: int = 1,
    progress: Progress | None = None,
) -> Modes:
    """Modes of the learned density on each subspace of `form`.

    `database` holds descriptors of the attacker's own photographs, where the ascents begin. Raises SpaceError if the spaces
    differ.
    """
    options = options or ModeOptions()
    require_same(form.space, network.space)
    require_same(form.space, database.space)
    points = np.full((len(form), options.modes, form.space.dim), np.nan)
    log_ratios = np.full((len(form), options.modes), -np.inf)
    for start in range(0, len(form), CHUNK_FEATURES):
        rows = np.arange(start, min(start + CHUNK_FEATURES, len(form)))
        part = form.take(rows)
        origin, basis = part.origin.astype(np.float32), part.basis.astype(np.float32)
        begun = _starts(part, network, database, options, threads)
        reached, values = _ascended(origin, basis, begun, network, options)
        for row, inside, value in zip(rows, reached, values, strict=True):
            kept = distinct(inside, value, options.apart, options.modes)
            points[row, : len(kept)] = part.origin[row - start] + inside[kept] @ part.basis[row - start]
            log_ratios[row, : len(kept)] = value[kept]
        if progress is not None:
            progress(int(rows[-1]) + 1, len(form))
    return Modes(points=points, log_ratios=log_ratios)


def ascended(
    form: Subspaces, points: Float64[np.ndarray, "features dim"], network: DensityNetwork, *, options: ModeOptions | None = None
) -> tuple[Float64[np.ndarray, "features dim"], Float64[np.ndarray, "features"]]:
    """Modes that ascents of the density in each subspace of `form` reach from `points`, and the log ratios there.

    Rows of NaN stay, with the log ratio -inf.
    """
    reached, log_ratios = np.full(points.shape, np.nan), np.full(len(points), -np.inf)
    rows = np.flatnonzero(np.isfinite(points).all(axis=1))
    if len(rows):
        origin, basis = (item[rows].astype(np.float32) for item in (form.origin, form.basis))
        begun = np.einsum("fmn,fn->fm", basis, points[rows].astype(np.float32) - origin)[:, None]
        inside, values = _ascended(origin, basis, begun, network, options or ModeOptions())
        reached[rows], log_ratios[rows] = _points(origin, basis, inside)[:, 0], values[:, 0]
    return reached, log_ratios


def _starts(
    form: Subspaces, network: DensityNetwork, database: Points, options: ModeOptions, threads: int
) -> Float32[np.ndarray, "features starts m"]:
    """Coordinates in each subspace from which the ascents begin; a subspace with fewer different ones repeats its best."""
    count = min(options.entries, len(database))
    entries = nearest((form.origin, form.basis), (database.vectors, None), count, threads=threads).index
    origin, basis = form.origin.astype(np.float32), form.basis.astype(np.float32)
    inside = np.einsum("fmn,fen->fem", basis, database.vectors[entries] - origin[:, None])
    values = network.log_ratio(_points(origin, basis, inside).reshape(-1, form.space.dim)).reshape(len(form), count)
    chosen = np.empty((len(form), options.starts), dtype=np.int64)
    for row in range(len(form)):
        kept = distinct(inside[row], values[row], options.spread, options.starts)
        chosen[row] = np.resize(kept, options.starts)
    return np.take_along_axis(inside, chosen[:, :, None], axis=1)


def _ascended(
    origin: Float32[np.ndarray, "features dim"],
    basis: Float32[np.ndarray, "features m dim"],
    inside: Float32[np.ndarray, "features starts m"],
    network: DensityNetwork,
    options: ModeOptions,
) -> tuple[Float32[np.ndarray, "features starts m"], Float32[np.ndarray, "features starts"]]:
    """Coordinates of the highest points on each ascent, and the log ratios there."""
    best, highest = inside.copy(), np.full(inside.shape[:2], -np.inf, dtype=np.float32)
    for length in np.geomspace(options.longest, options.shortest, options.steps).astype(np.float32):
        points = _points(origin, basis, inside)
        values, slope = network.gradient(points.reshape(-1, points.shape[2]))
        values = values.reshape(highest.shape)
        higher = values > highest
        best[higher], highest[higher] = inside[higher], values[higher]
        along = np.einsum("fmn,fsn->fsm", basis, slope.reshape(points.shape))
        inside = inside + length * along / np.maximum(np.linalg.norm(along, axis=2, keepdims=True), np.float32(1e-12))
    return best, highest


def _points(origin: np.ndarray, basis: np.ndarray, inside: np.ndarray) -> Float32[np.ndarray, "features points dim"]:
    """Points with coordinates `inside` in each subspace."""
    return origin[:, None] + inside @ basis


def distinct(
    inside: Float32[np.ndarray, "points m"], values: Float32[np.ndarray, "points"], apart: float, most: int
) -> list[int]:
    """Rows of at most `most` points by falling value, each at least `apart` from every one before it."""
    kept: list[int] = []
    free = np.ones(len(values), dtype=bool)
    for row in np.argsort(-values, kind="stable"):
        if not free[row]:
            continue
        kept.append(int(row))
        if len(kept) == most:
            break
        free &= np.linalg.norm(inside - inside[row], axis=1) >= apart
    return kept
