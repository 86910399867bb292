"""Blind sorting: candidates of all features are sorted into photographs that each agree with themselves; then one is named.

Where the decoys of a message are other photographs, placed as wholes, what agrees need not be the truth. This attack runs as
many copies of `veil.attacks.distribution.context` as there are photographs in the message. Copies exclude each other: each
candidate is in one of them at most. Places are exact in the true photograph alone, so the copy whose neighbors fit each other
best is named, for all features at once.

Theory: learned_attacks.md#blind-sorting.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float32, Float64, Int64

from veil.attacks.distribution.context import (
    NEIGHBORS,
    ContextNetwork,
    distance_inputs,
    fit_to_whole,
    mean_spacing,
    neighbor_fits,
    neighbor_rows,
)
from veil.attacks.distribution.modes import Modes, normalized
from veil.errors import InputError, RangeError
from veil.one_line import one_line

# Rounds in which one copy after another takes candidates, rounds of all copies together, and the step of each.
ALONE_ROUNDS, ROUNDS, STEP = 10, 30, 0.5
# Sweeps that make each candidate belong to one photograph at most, and least belief that a later copy may take.
SWEEPS, LEAST = 4, 1e-6


@dataclass(frozen=True, kw_only=True, eq=False)
class Readings:
    """Photographs into which the candidates of a message were sorted.

    - `beliefs`, float64 (photographs, features, modes): that a mode is the feature's in each of them.
    - `agreement`, float64 (photographs,): how well neighbors fit each other in each, as a mean logarithm over features.
    """

    beliefs: Float64[np.ndarray, "readings features modes"]
    agreement: Float64[np.ndarray, "readings"]

    __repr__ = one_line

    @property
    def named(self) -> int:
        """The photograph that is named as the true one: that which agrees best."""
        return int(self.agreement.argmax())


def sorted_readings(
    modes: Modes,
    network: ContextNetwork,
    keypoints: Float64[np.ndarray, "features 2"],
    *,
    readings: int,
    spacing: float | None = None,
) -> Readings:
    """The modes of all features sorted into a number of photographs (docs/theory/learned_attacks.md, Eq. 12).

    `keypoints` are positions in pixels; `spacing` is the mean spacing of all keypoints of the release (None: that of these).
    Raises RangeError for fewer than one photograph, InputError if there are not as many keypoints as features, or the network
    reads descriptors of another length.
    """
    if readings < 1:
        raise RangeError(f"readings must be at least 1, got {readings!r}")
    if modes.points.shape[2] != network.space.dim or len(keypoints) != len(modes):
        raise InputError(
            f"{len(modes)} features of {modes.points.shape[2]} numbers do not fit {len(keypoints)} keypoints and a network for "
            f"{network.space.dim}"
        )
    known = np.isfinite(modes.log_ratios)
    inputs = (np.where(known[..., None], modes.points, 0.0) * math.sqrt(network.space.dim)).astype(np.float32)
    with np.errstate(invalid="ignore"):
        ratios = np.where(known, modes.log_ratios - modes.log_ratios[:, :1], 0.0)
    rows = neighbor_rows(keypoints, NEIGHBORS)
    gaps = np.linalg.norm(keypoints[rows] - keypoints[:, None], axis=2)
    fits = neighbor_fits(inputs, known, rows, distance_inputs(gaps, spacing or mean_spacing(keypoints)), network.neighbors)
    graph = _Graph(
        known=known,
        likely=np.where(known, network.sharpness * ratios, -np.inf),
        style=network.style(inputs),
        rows=rows,
        fits=fits,
        network=network,
    )
    beliefs = graph.one_by_one(np.where(known, network.alone(inputs)[..., 0].astype(np.float64), 0.0), readings)
    for _ in range(ROUNDS):
        logs = np.stack([graph.likely + graph.heard(own) + graph.whole(own) for own in beliefs])
        beliefs = (1 - STEP) * beliefs + STEP * _exclusive(logs, known)
    agreement = np.array([(own * graph.heard(own)).sum() for own in beliefs]) / max(len(modes), 1)
    return Readings(beliefs=beliefs, agreement=agreement)


@dataclass(frozen=True, kw_only=True, eq=False)
class _Graph:
    """Modes with the logarithm of how likely each is alone, their styles, and how well they fit those of neighbors."""

    known: Bool[np.ndarray, "features modes"]
    likely: Float64[np.ndarray, "features modes"]
    style: Float32[np.ndarray, "features modes style"]
    rows: Int64[np.ndarray, "features neighbors"]
    fits: Float32[np.ndarray, "features neighbors modes modes"]
    network: ContextNetwork

    def heard(self, beliefs: Float64[np.ndarray, "features modes"]) -> Float64[np.ndarray, "features modes"]:
        """What the neighbors of one photograph say of each mode (learned_attacks.md, Eq. 6)."""
        mistaken = self.network.neighbors.mistaken
        messages = np.einsum("fnab,fnb->fna", self.fits, beliefs[self.rows])
        return np.log(mistaken + (1 - mistaken) * messages).sum(axis=1)

    def whole(self, beliefs: Float64[np.ndarray, "features modes"]) -> Float64[np.ndarray, "features modes"]:
        """What the whole of one photograph says of each mode (learned_attacks.md, Eq. 5)."""
        return fit_to_whole(self.style, beliefs, self.network.whole)

    def one_by_one(
        self, own: Float64[np.ndarray, "features modes"], readings: int
    ) -> Float64[np.ndarray, "readings features modes"]:
        """Beliefs of one copy after another, each among the modes that those before left; `own` is what each says alone."""
        left, copies = np.ones(self.known.shape), []
        for _ in range(readings):
            alone = self.likely + own + np.log(np.maximum(left, LEAST))
            beliefs = normalized(alone)
            for _ in range(ALONE_ROUNDS):
                last = normalized(alone + self.heard(beliefs) + self.whole(beliefs))
                beliefs = (1 - STEP) * beliefs + STEP * last
            copies.append(beliefs)
            left = left * (1 - beliefs)
        return np.stack(copies)


def _exclusive(
    logs: Float64[np.ndarray, "readings features modes"], known: Bool[np.ndarray, "features modes"]
) -> Float64[np.ndarray, "readings features modes"]:
    """Beliefs in proportion to exponentials, of which those in one mode add up to 1 at most (Sinkhorn and Knopp 1967)."""
    beliefs = np.stack([normalized(one) for one in logs])
    for _ in range(SWEEPS):
        beliefs = beliefs / np.maximum(beliefs.sum(axis=0), 1.0)
        beliefs = beliefs / np.maximum(beliefs.sum(axis=2, keepdims=True), 1e-12)
    return np.where(known, beliefs, 0.0)
