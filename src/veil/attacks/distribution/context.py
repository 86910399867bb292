"""Context attack: of the modes of neighboring features those that go together are the true ones.

Patches of neighboring keypoints overlap, so that their descriptors resemble each other in ways that decoys, from other
photographs, do not. A network that was taught how far apart two features of a photograph lie, from their descriptors, turns
around: at the known distance it says how well two candidates fit. Neighbors then exchange beliefs about all features.

Theory: learned_attacks.md#context.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float32, Float64, Int64

from veil.attacks.distribution.modes import Modes
from veil.attacks.positions.neighbor_field import DISTANCES_PX
from veil.attacks.positions.pair_network import PairNetwork
from veil.errors import InputError, RangeError


@dataclass(frozen=True, kw_only=True)
class ContextOptions:
    """Options of the exchange of beliefs between neighbors.

    Each feature listens to its `neighbors` nearest keypoints in `rounds` rounds; the logarithm of what a neighbor says is
    multiplied by `strength`, each round moves beliefs by `damping`, and a neighbor is mistaken with probability `mistaken`.
    `sharpness` multiplies the log ratios of the modes. Raises RangeError for values outside their range.
    """

    neighbors: int = 6
    rounds: int = 15
    strength: float = 1.0
    damping: float = 0.5
    mistaken: float = 0.1
    sharpness: float = 2.0

    def __post_init__(self) -> None:
        if min(self.neighbors, self.rounds) < 1:
            raise RangeError("neighbors and rounds must be at least 1")
        if not (0 < self.damping <= 1 and 0 < self.mistaken < 1 and self.strength >= 0 and self.sharpness > 0):
            raise RangeError("damping and mistaken lie between 0 and 1, strength and sharpness are positive")


def neighbor_rows(keypoints: Float64[np.ndarray, "features 2"], count: int) -> Int64[np.ndarray, "features neighbors"]:
    """Rows of the `count` nearest other keypoints of each feature, fewer if there are fewer features."""
    from scipy.spatial import cKDTree

    count = min(count, len(keypoints) - 1)
    if count < 1:
        return np.empty((len(keypoints), 0), dtype=np.int64)
    _, rows = cKDTree(keypoints).query(keypoints, count + 1)
    is_self = rows == np.arange(len(keypoints))[:, None]
    is_self[~is_self.any(axis=1), -1] = True  # of many keypoints at one place a feature itself may be missing
    return rows[~is_self].reshape(len(keypoints), count).astype(np.int64)


def context_beliefs(
    modes: Modes, keypoints: Float64[np.ndarray, "features 2"], network: PairNetwork, *, options: ContextOptions | None = None
) -> Float64[np.ndarray, "features modes"]:
    """Probabilities of the modes of each feature, given those of the neighbors (docs/theory/learned_attacks.md, Eq. 4-5).

    `keypoints` are positions in pixels. Raises InputError if there are not as many as features, or the network reads
    descriptors of another length.
    """
    options = options or ContextOptions()
    if len(keypoints) != len(modes) or modes.points.shape[2] != network.space.dim:
        raise InputError(
            f"{len(modes)} features with {modes.points.shape[2]}-D modes need as many positions and a network for them"
        )
    alone = modes.beliefs(options.sharpness)
    rows = neighbor_rows(keypoints, options.neighbors)
    if rows.shape[1] == 0:
        return alone
    fits = _fits(modes, keypoints, rows, network, options.strength)
    with np.errstate(divide="ignore"):
        base = np.log(alone)
    beliefs = alone
    for _ in range(options.rounds):
        messages = np.einsum("fnab,fnb->fna", fits, beliefs[rows])
        heard = np.log(options.mistaken + (1 - options.mistaken) * messages).sum(axis=1)
        logs = base + heard
        weights = np.exp(logs - logs.max(axis=1, keepdims=True))
        beliefs = (1 - options.damping) * beliefs + options.damping * weights / weights.sum(axis=1, keepdims=True)
    return beliefs


def _fits(
    modes: Modes,
    keypoints: Float64[np.ndarray, "features 2"],
    rows: Int64[np.ndarray, "features neighbors"],
    network: PairNetwork,
    strength: float,
) -> Float32[np.ndarray, "features neighbors modes modes"]:
    """How many times likelier two modes of neighbors are at their distance than far apart, to the power `strength`.

    1 where a mode is missing.
    """
    count, width = modes.log_ratios.shape
    known = np.isfinite(modes.log_ratios)
    codes = network.codes(np.where(known[..., None], modes.points, 1.0).reshape(count * width, -1).astype(np.float32))
    codes = codes.reshape(count, width, -1)
    gap = np.linalg.norm(keypoints[rows] - keypoints[:, None], axis=2)
    kind = np.searchsorted(DISTANCES_PX, gap, side="right")
    fits = np.ones((count, rows.shape[1], width, width), dtype=np.float32)
    for feature in range(count):
        others = codes[rows[feature]].reshape(-1, codes.shape[2])
        classes = np.repeat(kind[feature], width)
        for mode in np.flatnonzero(known[feature]):
            logs = network.log_likelihoods(codes[feature, mode], others)
            ratio = logs[np.arange(len(logs)), classes] - logs[:, -1]
            fits[feature, :, mode] = np.exp(strength * np.clip(ratio, -20, 20)).reshape(-1, width)
    both = known[:, None, :, None] & known[rows][:, :, None, :]
    return np.where(both, fits, np.float32(1))
