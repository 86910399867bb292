"""How far apart two features of one photograph lie, told from their descriptors by a small network (Chelani et al. 2024).

Theory: docs/theory/position_attacks.md, Eq. 16-17.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from jaxtyping import Float32, Float64

from veil.attacks.positions.neighbor_field import CLASSES, DISTANCES_PX, DistanceBeliefs
from veil.errors import InputError, RangeError
from veil.geometry.camera import Camera
from veil.progress import Progress
from veil.space import Space

CODE, HIDDEN, INNER = 64, 96, 64


class Layers(NamedTuple):
    """Weights (inputs x outputs) and biases of the network's four layers, two for each descriptor and two for the pair."""

    w1: Float32[np.ndarray, "dim hidden"]
    b1: Float32[np.ndarray, "hidden"]
    w2: Float32[np.ndarray, "hidden code"]
    b2: Float32[np.ndarray, "code"]
    w3: Float32[np.ndarray, "two_codes inner"]
    b3: Float32[np.ndarray, "inner"]
    w4: Float32[np.ndarray, "inner classes"]
    b4: Float32[np.ndarray, "classes"]


@dataclass(frozen=True, kw_only=True, eq=False)
class PairNetwork:
    """Network for descriptors of `space`, with how much more often than even keypoints pairs lie at each near distance.

    Its outputs are log likelihoods of the classes of distance (`DISTANCES_PX`), up to a constant for each pair. `source` says
    in words which photographs it was trained on.
    """

    space: Space
    layers: Layers
    crowding: Float64[np.ndarray, "near"]
    source: str

    def __post_init__(self) -> None:
        shapes = [item.shape for item in self.layers]
        dim, hidden = shapes[0]
        inner = shapes[4][1]
        expected = [
            (dim, hidden),
            (hidden,),
            (hidden, CODE),
            (CODE,),
            (2 * CODE, inner),
            (inner,),
            (inner, CLASSES),
            (CLASSES,),
        ]
        if shapes != expected or dim != self.space.dim or self.crowding.shape != (CLASSES - 1,):
            raise InputError(f"a network of pairs has layers of the shapes {expected}, got {shapes}")
        if not all(np.isfinite(item).all() for item in self.layers) or not (self.crowding > 0).all():
            raise InputError("a network of pairs needs finite weights and positive crowding")

    def codes(self, vectors: Float32[np.ndarray, "features dim"]) -> Float32[np.ndarray, "features code"]:
        """Features of the network for each descriptor; rows of any length but zero are scaled to the unit sphere."""
        layers = self.layers
        return np.maximum(scaled(vectors) @ layers.w1 + layers.b1, 0) @ layers.w2 + layers.b2

    def log_likelihoods(
        self, code: Float32[np.ndarray, "code"], others: Float32[np.ndarray, "features code"]
    ) -> Float32[np.ndarray, "features classes"]:
        """Log likelihoods of the classes of distance between one feature and each of the others."""
        layers = self.layers
        inner = np.abs(code - others) @ layers.w3[:CODE] + (code * others) @ layers.w3[CODE:] + layers.b3
        return np.maximum(inner, 0) @ layers.w4 + layers.b4

    def beliefs(
        self, vectors: Float32[np.ndarray, "features dim"], *, camera: Camera, count: int = 48, progress: Progress | None = None
    ) -> DistanceBeliefs:
        """For each feature of a photograph the `count` others that are likeliest within 32 px, and their classes of distance.

        `vectors` are descriptors in the network's space, raw or estimated; rows with NaN have no neighbors and are none.
        Raises InputError for descriptors of another length, RangeError for a count below 1.
        """
        if vectors.ndim != 2 or vectors.shape[1] != self.space.dim:
            raise InputError(f"the network reads descriptors of {self.space.dim} numbers, got {vectors.shape}")
        if not count >= 1:
            raise RangeError(f"the number of neighbors must be at least 1, got {count!r}")
        known = np.isfinite(vectors).all(axis=1)
        codes = self.codes(np.where(known[:, None], vectors, 1.0).astype(np.float32))
        prior = class_prior(self.crowding, camera)
        width = min(count, max(len(vectors) - 1, 1))
        rows = np.full((len(vectors), width), -1, dtype=np.int64)
        probabilities = np.zeros((len(vectors), width, CLASSES))
        probabilities[..., -1] = 1.0
        for row in np.flatnonzero(known):
            logs = self.log_likelihoods(codes[row], codes).astype(np.float64) + np.log(prior)
            belief = np.exp(logs - logs.max(axis=1, keepdims=True))
            belief /= belief.sum(axis=1, keepdims=True)
            near = np.where(known, belief[:, : CLASSES - 2].sum(axis=1), -1.0)
            near[row] = -1.0
            best = np.argsort(-near, kind="stable")[:width]
            best = best[near[best] >= 0]
            rows[row, : len(best)], probabilities[row, : len(best)] = best, belief[best]
            if progress is not None:
                progress(int(row) + 1, len(vectors))
        return DistanceBeliefs(rows=rows, probabilities=probabilities)


def scaled(vectors: Float32[np.ndarray, "features dim"]) -> Float32[np.ndarray, "features dim"]:
    """Rows of length sqrt(dim), so that entries are of the order of 1; a row of zeros stays."""
    length = np.linalg.norm(vectors, axis=1, keepdims=True)
    return (vectors * (math.sqrt(vectors.shape[1]) / np.maximum(length, 1e-12))).astype(np.float32)


def ring_areas() -> Float64[np.ndarray, "near"]:
    """Areas (square pixels) of the rings of the near classes of distance."""
    ends = np.array([0.0, *DISTANCES_PX])
    return np.pi * np.diff(ends**2)


def class_prior(crowding: Float64[np.ndarray, "near"], camera: Camera) -> Float64[np.ndarray, "classes"]:
    """Probability of each class of distance for two features of a picture of this size (position_attacks.md, Eq. 17)."""
    near = np.asarray(crowding) * ring_areas() / (camera.width_px * camera.height_px)
    near *= min(1.0, 0.9 / float(near.sum()))
    return np.append(near, 1 - near.sum())
