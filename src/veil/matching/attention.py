"""Layers of a transformer that matches two images, in NumPy: one row of float32 for each keypoint, one BLAS product a layer.

Theory: docs/theory/learned_matching.md, Eq. 1-5.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float32, Float64

from veil.tensors import tensor

_ATTENDING = 512  # rows whose attention is computed at a time: 8 MB with 4,096 keypoints on the other side
_LAYER_NORM_TOL = 1e-5  # added to variances by PyTorch's layer normalization

States = Float32[np.ndarray, "keypoints width"]
Heads = Float32[np.ndarray, "keypoints heads channels"]


@dataclass(frozen=True, kw_only=True, eq=False)
class Linear:
    """A linear layer: `matrix` (inputs, outputs), which is the transpose of what PyTorch stores, and `bias` (outputs,)."""

    matrix: Float32[np.ndarray, "inputs outputs"]
    bias: Float32[np.ndarray, "outputs"]

    @staticmethod
    def of(arrays: Mapping[str, np.ndarray], name: str, *, inputs: int, outputs: int) -> Linear:
        """The linear layer `name` of a state dict. Raises InputError for tensors that are missing or do not fit."""
        weight = tensor(arrays, f"{name}.weight", (outputs, inputs))
        return Linear(matrix=np.ascontiguousarray(weight.T), bias=tensor(arrays, f"{name}.bias", (outputs,)))

    def apply(self, states: Float32[np.ndarray, "rows inputs"]) -> Float32[np.ndarray, "rows outputs"]:
        """The layer's output for each row."""
        outputs = states @ self.matrix
        outputs += self.bias
        return outputs


@dataclass(frozen=True, kw_only=True, eq=False)
class Update:
    """Update of a layer by its message: x + MLP([x | m]), where m is a linear layer of what was attended to (Eq. 1).

    The linear layer and the part of the MLP's first matrix that reads m are one matrix here, `message`.
    """

    own: Float32[np.ndarray, "width hidden"]
    message: Float32[np.ndarray, "width hidden"]
    bias: Float32[np.ndarray, "hidden"]
    scale: Float32[np.ndarray, "hidden"]
    shift: Float32[np.ndarray, "hidden"]
    out: Linear

    @staticmethod
    def of(arrays: Mapping[str, np.ndarray], name: str, message: str, *, width: int) -> Update:
        """The MLP of the layer `name` with its linear layer `message`. Raises InputError for tensors that do not fit."""
        before = Linear.of(arrays, f"{name}.{message}", inputs=width, outputs=width)
        first = Linear.of(arrays, f"{name}.ffn.0", inputs=2 * width, outputs=2 * width)
        read = first.matrix[width:].astype(np.float64)
        return Update(
            own=np.ascontiguousarray(first.matrix[:width]),
            message=(before.matrix.astype(np.float64) @ read).astype(np.float32),
            bias=(before.bias.astype(np.float64) @ read + first.bias).astype(np.float32),
            scale=tensor(arrays, f"{name}.ffn.1.weight", (2 * width,)),
            shift=tensor(arrays, f"{name}.ffn.1.bias", (2 * width,)),
            out=Linear.of(arrays, f"{name}.ffn.3", inputs=2 * width, outputs=width),
        )

    def apply(self, states: States, attended: States) -> States:
        """The states after the layer."""
        hidden = states @ self.own
        hidden += attended @ self.message
        hidden += self.bias
        normalize(hidden)
        hidden *= self.scale
        hidden += self.shift
        gelu(hidden)
        changed = self.out.apply(hidden)
        changed += states
        return changed


@dataclass(frozen=True, kw_only=True, eq=False)
class SelfAttention:
    """A layer in which each keypoint attends to those of its own image, by descriptors and by where they lie to it (Eq. 3-4).

    `asked` gives queries, keys and values, one after the other, with the pairs of channels that turn together apart: first the
    first ones of all pairs, then the second ones. Products of queries and keys are the same in any order.
    """

    asked: Linear
    update: Update
    heads: int

    @staticmethod
    def of(arrays: Mapping[str, np.ndarray], name: str, *, width: int, heads: int) -> SelfAttention:
        """The layer `name` of a state dict. Raises InputError for tensors that are missing or do not fit."""
        channels = width // heads
        # The published layer has query, key and value of a channel side by side.
        weight = tensor(arrays, f"{name}.Wqkv.weight", (3 * width, width)).reshape(heads, channels, 3, width)
        bias = tensor(arrays, f"{name}.Wqkv.bias", (3 * width,)).reshape(heads, channels, 3)
        apart = np.r_[0:channels:2, 1:channels:2]
        parts = [(weight[:, rows, k].reshape(width, width), bias[:, rows, k].ravel()) for k, rows in enumerate((apart, apart))]
        parts.append((weight[:, :, 2].reshape(width, width), bias[:, :, 2].ravel()))
        return SelfAttention(
            asked=Linear(
                matrix=np.ascontiguousarray(np.concatenate([matrix for matrix, _ in parts]).T),
                bias=np.concatenate([row for _, row in parts]),
            ),
            update=Update.of(arrays, name, "out_proj", width=width),
            heads=heads,
        )

    def apply(self, states: States, turns: RotaryTurns) -> States:
        """The states after the layer; `turns` are those of the keypoints' positions."""
        asked = self.asked.apply(states).reshape(len(states), 3, self.heads, -1)
        queries, keys, values = asked[:, 0], asked[:, 1], asked[:, 2]
        return self.update.apply(states, attention(turns.apply(queries), turns.apply(keys), values))


@dataclass(frozen=True, kw_only=True, eq=False)
class CrossAttention:
    """A layer in which the keypoints of two images attend to each other, by descriptors alone (Eq. 5)."""

    key: Linear
    value: Linear
    update: Update
    heads: int

    @staticmethod
    def of(arrays: Mapping[str, np.ndarray], name: str, *, width: int, heads: int) -> CrossAttention:
        """The layer `name` of a state dict. Raises InputError for tensors that are missing or do not fit."""
        return CrossAttention(
            key=Linear.of(arrays, f"{name}.to_qk", inputs=width, outputs=width),
            value=Linear.of(arrays, f"{name}.to_v", inputs=width, outputs=width),
            update=Update.of(arrays, name, "to_out", width=width),
            heads=heads,
        )

    def apply(
        self, left: Float32[np.ndarray, "left width"], right: Float32[np.ndarray, "right width"]
    ) -> tuple[Float32[np.ndarray, "left width"], Float32[np.ndarray, "right width"]]:
        """The states of both images after the layer; both read the states before it."""
        keys = [self.key.apply(side).reshape(len(side), self.heads, -1) for side in (left, right)]
        values = [self.value.apply(side).reshape(len(side), self.heads, -1) for side in (left, right)]
        return (
            self.update.apply(left, attention(keys[0], keys[1], values[1])),
            self.update.apply(right, attention(keys[1], keys[0], values[0])),
        )


@dataclass(frozen=True, kw_only=True, eq=False)
class RotaryTurns:
    """By how much the position of each keypoint turns the pairs of channels of its queries and keys (Eq. 4)."""

    cosines: Float32[np.ndarray, "keypoints pairs"]
    sines: Float32[np.ndarray, "keypoints pairs"]

    @staticmethod
    def at(positions: Float64[np.ndarray, "keypoints 2"], frequencies: Float32[np.ndarray, "pairs 2"]) -> RotaryTurns:
        """The turns of positions, each by the angle of its product with each of the learned frequencies."""
        angles = positions @ frequencies.T.astype(np.float64)
        return RotaryTurns(cosines=np.cos(angles).astype(np.float32), sines=np.sin(angles).astype(np.float32))

    def take(self, rows: np.ndarray) -> RotaryTurns:
        """The turns of the keypoints `rows` (indices or a mask)."""
        return RotaryTurns(cosines=self.cosines[rows], sines=self.sines[rows])

    def apply(self, channels: Heads) -> Heads:
        """Queries or keys, turned; the first channels of all pairs come first."""
        half = channels.shape[2] // 2
        first, second = channels[..., :half], channels[..., half:]
        cosines, sines = self.cosines[:, None], self.sines[:, None]
        return np.concatenate([first * cosines - second * sines, second * cosines + first * sines], axis=2)


def attention(
    queries: Float32[np.ndarray, "asking heads channels"],
    keys: Float32[np.ndarray, "asked heads channels"],
    values: Float32[np.ndarray, "asked heads channels"],
) -> Float32[np.ndarray, "asking width"]:
    """Means of the values, weighted by the softmax of the products of queries and keys over the root of their length (Eq. 2).

    Heads come one after the other in the result.
    """
    count, heads, channels = queries.shape
    means = np.empty((count, heads * channels), dtype=np.float32)
    scale = np.float32(channels**-0.5)
    for start in range(0, count, _ATTENDING):
        for head in range(heads):
            weights = (queries[start : start + _ATTENDING, head] * scale) @ keys[:, head].T
            weights -= weights.max(axis=1, keepdims=True)
            np.exp(weights, out=weights)
            mean = weights @ values[:, head]
            mean /= weights.sum(axis=1, keepdims=True)
            means[start : start + _ATTENDING, head * channels : (head + 1) * channels] = mean
    return means


def normalize(rows: Float32[np.ndarray, "rows width"]) -> None:
    """Give each row zero mean and unit variance, in place (Ba et al. 2016)."""
    rows -= rows.mean(axis=1, keepdims=True)
    variance = np.einsum("rw,rw->r", rows, rows) / np.float32(rows.shape[1])
    rows /= np.sqrt(variance + np.float32(_LAYER_NORM_TOL))[:, None]


def gelu(values: Float32[np.ndarray, "rows width"]) -> None:
    """Multiply each number by the probability that a standard normal one is smaller, in place (Hendrycks and Gimpel 2016)."""
    from scipy.special import erf

    share = values * np.float32(0.5**0.5)
    erf(share, out=share)
    share += 1
    values *= share
    values *= np.float32(0.5)
