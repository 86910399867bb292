"""Context attack: of the modes of all features those that go together are the true ones.

Patches of neighboring keypoints overlap, and all patches of a photograph share its light, lens and motif; decoys are from
other photographs. A network says how well two candidates fit at the distance of their keypoints, and how well one fits the rest
of the photograph. Features then exchange beliefs.

The networks were trained through the exchange itself, on releases that the attacker made of its own photographs.

Theory: learned_attacks.md#context.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from jaxtyping import Float32, Float64, Int64

from veil.attacks.claims import Estimates
from veil.attacks.distribution.density_network import LARGEST_WEIGHT, sigmoid
from veil.attacks.distribution.modes import Modes, normalized
from veil.errors import InputError
from veil.forms import Subspaces
from veil.space import Space, require_same

# Nearest keypoints that a feature listens to, and rounds of exchange; the whole photograph is asked anew every third round.
NEIGHBORS, ROUNDS, ASKED_EVERY = 6, 8, 3
# Largest distance to a neighbor, in units of the mean spacing, that the network tells from larger ones.
FARTHEST = 8.0
# Centers and widths of the bumps by which the network reads a distance in units of the mean spacing.
BUMPS = ((0.3, 0.2), (0.6, 0.2), (1.0, 0.3), (1.6, 0.5), (2.5, 1.0))
DISTANCE_INPUTS = 3 + len(BUMPS)
# Largest logarithm of how much likelier two candidates are as neighbors.
LARGEST_FIT = 15.0
# Features whose pairs of candidates are held at a time.
CHUNK_FEATURES = 32


class Perceptron(NamedTuple):
    """Weights (inputs x outputs) and biases of two layers with the activation z / (1 + e^-z) between them."""

    w1: Float32[np.ndarray, "inputs hidden"]
    b1: Float32[np.ndarray, "hidden"]
    w2: Float32[np.ndarray, "hidden outputs"]
    b2: Float32[np.ndarray, "outputs"]

    def __call__(self, values: Float32[np.ndarray, "*batch inputs"]) -> Float32[np.ndarray, "*batch outputs"]:
        """Outputs for each row of `values`."""
        return _activated(values @ self.w1 + self.b1) @ self.w2 + self.b2

    @property
    def sizes(self) -> tuple[int, int]:
        """Numbers of inputs and outputs. Raises InputError where the layers do not fit each other."""
        fits = self.w1.ndim == self.w2.ndim == 2 and self.b1.shape == self.w1.shape[1:] == self.w2.shape[:1]
        if not fits or self.b2.shape != self.w2.shape[1:]:
            raise InputError(f"layers of the shapes {[item.shape for item in self]} do not fit each other")
        return self.w1.shape[0], self.w2.shape[1]


class NeighborLayers(NamedTuple):
    """Layers that say how well two candidates fit as neighbors.

    `code` reads each candidate; `pair` and `pair_bias` compare two codes, by their absolute difference and their product;
    `distance` scales and shifts what they give; `out` and `out_bias` weigh it. A neighbor is mistaken with probability
    `mistaken`.
    """

    code: Perceptron
    pair: Float32[np.ndarray, "two_codes inner"]
    pair_bias: Float32[np.ndarray, "inner"]
    distance: Perceptron
    out: Float32[np.ndarray, "inner"]
    out_bias: float
    mistaken: float


@dataclass(frozen=True, kw_only=True, eq=False)
class ContextNetwork:
    """Network of the attack `context` for descriptors of `space`.

    - `alone`: how likely a candidate is the feature's own, by itself. Features that leave are larger than those of a pool.
    - `style`, `whole`: what a candidate says of its photograph, and how well it fits what all others say.
    - `vertex`: the way from a mode to the descriptor beside it.
    - `sharpness` multiplies log ratios of modes, and each round moves beliefs by `damping`. `source` says in words which
      photographs it was trained on.

    Raises InputError for layers that do not fit each other or the space, and weights that are not finite and below 1000.
    """

    space: Space
    alone: Perceptron
    style: Perceptron
    whole: Perceptron
    vertex: Perceptron
    neighbors: NeighborLayers
    sharpness: float
    damping: float
    source: str

    def __post_init__(self) -> None:
        dim, style = self.space.dim, self.style.b2.shape[0]
        expected = [(self.alone, (dim, 1)), (self.style, (dim, style)), (self.whole, (3 * style, 1)), (self.vertex, (dim, dim))]
        numbers = [self.sharpness, self.damping]
        near = self.neighbors
        code, inner = near.code.b2.shape[0], near.pair_bias.shape[0]
        expected += [(near.code, (dim, code)), (near.distance, (DISTANCE_INPUTS, 2 * inner))]
        if near.pair.shape != (2 * code, inner) or near.out.shape != (inner,):
            raise InputError(f"pairs of codes of {code} numbers cannot be compared by weights of {near.pair.shape}")
        numbers += [near.out_bias, near.mistaken, *near.pair.ravel(), *near.pair_bias, *near.out]
        if not 0 < near.mistaken < 1:
            raise InputError(f"neighbors are mistaken with a probability between 0 and 1, not {near.mistaken!r}")
        for layers, sizes in expected:
            if layers.sizes != sizes:
                raise InputError(f"a network of context for {dim}-D descriptors has layers of {layers.sizes} for {sizes}")
            numbers += [np.abs(item).max() for item in layers]
        if not (np.abs(np.array(numbers, dtype=np.float64)) < LARGEST_WEIGHT).all():
            raise InputError("a network of context needs finite weights below 1000; train it again or get another file")
        if not 0 < self.damping <= 1:
            raise InputError(f"the damping lies between 0 and 1, got {self.damping!r}")


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


def mean_spacing(keypoints: Float64[np.ndarray, "features 2"]) -> float:
    """Mean distance (pixels) of a keypoint to the nearest other one, the unit of the distances that are read; 1 if none."""
    nearest = neighbor_rows(keypoints, 1)
    if not nearest.size:
        return 1.0
    return max(float(np.linalg.norm(keypoints[nearest[:, 0]] - keypoints, axis=1).mean()), 1e-3)


def context_beliefs(
    modes: Modes,
    network: ContextNetwork,
    keypoints: Float64[np.ndarray, "features 2"],
    *,
    spacing: float | None = None,
    rounds: int = ROUNDS,
    evidence: Float64[np.ndarray, "features modes"] | None = None,
) -> Float64[np.ndarray, "features modes"]:
    """Probabilities of the modes of each feature, given those of all others (docs/theory/learned_attacks.md, Eq. 4-6).

    `keypoints` are positions in pixels; `spacing` is the mean spacing of all keypoints of the release (None: that of these).
    `evidence` is further knowledge of each mode, as the logarithm of a likelihood ratio.
    Raises InputError if there are not as many as features, or the network reads descriptors of another length.
    """
    if modes.points.shape[2] != network.space.dim:
        raise InputError(f"the network reads {network.space.dim}-D descriptors, and modes have {modes.points.shape[2]} numbers")
    if len(keypoints) != len(modes):
        raise InputError(f"{len(modes)} features need as many positions, got {len(keypoints)}")
    known = np.isfinite(modes.log_ratios)
    inputs = (np.where(known[..., None], modes.points, 0.0) * math.sqrt(network.space.dim)).astype(np.float32)
    with np.errstate(invalid="ignore"):
        ratios = np.where(known, modes.log_ratios - modes.log_ratios[:, :1], 0.0)
    likely = network.sharpness * ratios + network.alone(inputs)[..., 0]
    alone = np.where(known, likely if evidence is None else likely + evidence, -np.inf)
    style = network.style(inputs)
    rows, mistaken = neighbor_rows(keypoints, NEIGHBORS), network.neighbors.mistaken
    gaps = np.linalg.norm(keypoints[rows] - keypoints[:, None], axis=2)
    fits = neighbor_fits(inputs, known, rows, distance_inputs(gaps, spacing or mean_spacing(keypoints)), network.neighbors)
    beliefs, whole = normalized(alone), np.zeros(known.shape)
    for number in range(rounds):
        if number % ASKED_EVERY == 0:
            whole = fit_to_whole(style, beliefs, network.whole)
        messages = np.einsum("fnab,fnb->fna", fits, beliefs[rows])
        heard = np.log(mistaken + (1 - mistaken) * messages).sum(axis=1)
        last = normalized(alone + whole + heard)
        beliefs = (1 - network.damping) * beliefs + network.damping * last
    return last if rounds else beliefs


def context_estimates(
    form: Subspaces, modes: Modes, beliefs: Float64[np.ndarray, "features modes"], network: ContextNetwork
) -> Estimates:
    """The likeliest mode of each subspace of `form` under `beliefs`, moved in the subspace to the descriptor beside it.

    Raises SpaceError if the network is for another space.
    """
    require_same(form.space, network.space)
    chosen = modes.estimates(beliefs)
    moved = network.vertex((chosen.points * math.sqrt(network.space.dim)).astype(np.float32)).astype(np.float64)
    basis = form.basis.astype(np.float64)
    inside = np.einsum("fmn,fm->fn", basis, np.einsum("fmn,fn->fm", basis, moved))
    return Estimates(points=chosen.points + inside, confidence=chosen.confidence, certified=chosen.certified)


def fit_to_whole(
    style: Float32[np.ndarray, "features modes style"], beliefs: Float64[np.ndarray, "features modes"], whole: Perceptron
) -> Float64[np.ndarray, "features modes"]:
    """How well each candidate fits what the other features of the photograph say, as they are believed (Eq. 5)."""
    own = np.einsum("fa,fad->fd", beliefs, style)
    others = ((own.sum(axis=0) - own) / max(len(own) - 1, 1)).astype(np.float32)
    spread = np.broadcast_to(others[:, None], style.shape)
    return whole(np.concatenate([style, spread, style * spread], axis=2))[..., 0].astype(np.float64)


def distance_inputs(
    gaps: Float64[np.ndarray, "features neighbors"], spacing: float
) -> Float32[np.ndarray, "features neighbors inputs"]:
    """What the network reads of distances (pixels): in units of the spacing, logarithms, and how near they are to some."""
    units = np.minimum(gaps / spacing, FARTHEST)
    near = [np.exp(-((units - center) ** 2) / (2 * width**2)) for center, width in BUMPS]
    return np.stack([units, np.log(units + 0.05), np.log(gaps + 1) / 3, *near], axis=2).astype(np.float32)


def neighbor_fits(
    inputs: Float32[np.ndarray, "features modes dim"],
    known: np.ndarray,
    rows: Int64[np.ndarray, "features neighbors"],
    distances: Float32[np.ndarray, "features neighbors inputs"],
    layers: NeighborLayers,
) -> Float32[np.ndarray, "features neighbors modes modes"]:
    """How many times likelier two candidates of neighbors are at their distance than of two photographs (Eq. 4); 1 for none."""
    codes = layers.code(inputs)
    width = codes.shape[2]
    scale, shift = np.split(layers.distance(distances)[:, :, None, None], 2, axis=4)
    fits = np.empty((*rows.shape, codes.shape[1], codes.shape[1]), dtype=np.float32)
    for start in range(0, len(rows), CHUNK_FEATURES):
        part = slice(start, start + CHUNK_FEATURES)
        left, right = codes[part, None, :, None], codes[rows[part]][:, :, None]
        compared = np.abs(left - right) @ layers.pair[:width] + (left * right) @ layers.pair[width:] + layers.pair_bias
        logs = _activated(compared * (1 + scale[part]) + shift[part]) @ layers.out + np.float32(layers.out_bias)
        fits[part] = np.exp(np.clip(logs, -LARGEST_FIT, LARGEST_FIT))
    both = known[:, None, :, None] & known[rows][:, :, None, :]
    return np.where(both, fits, np.float32(1))


def _activated(values: np.ndarray) -> np.ndarray:
    return values * sigmoid(values)
