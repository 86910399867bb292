"""Layers of convolutional networks in NumPy, on maps with channels last: (rows, columns, channels), float32.

Each works on a few rows at a time, so that what is unfolded stays in the processor's cache.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Float32, Float64, Int64

from veil.tensors import tensor

_UNFOLDED = 1 << 19  # numbers that are unfolded at a time: 2 MB
# Klambauer et al., "Self-Normalizing Neural Networks", NeurIPS 2017, Eq. 2.
_SELU_SCALE, _SELU_ALPHA = np.float32(1.0507009873554805), np.float32(1.6732632423543772)
BATCH_NORM_TOL = 1e-5  # added to variances by PyTorch's batch normalization

Maps = Float32[np.ndarray, "_ _ _"]


def selu(values: Float32[np.ndarray, "..."]) -> Float32[np.ndarray, "..."]:
    """Scaled exponential linear unit, in place."""
    negative = np.minimum(values, 0)
    np.exp(negative, out=negative)
    negative -= 1
    negative *= _SELU_ALPHA
    np.maximum(values, 0, out=values)
    values += negative
    values *= _SELU_SCALE
    return values


def relu(values: Float32[np.ndarray, "..."]) -> Float32[np.ndarray, "..."]:
    """Rectified linear unit, in place."""
    return np.maximum(values, 0, out=values)


def sigmoid(values: Float32[np.ndarray, "..."]) -> Float32[np.ndarray, "..."]:
    """Logistic function, without overflow."""
    grown = np.exp(-np.abs(values))
    return np.where(values >= 0, 1, grown) / (1 + grown)


def unchanged(values: Float32[np.ndarray, "..."]) -> Float32[np.ndarray, "..."]:
    """The values themselves: a layer without activation."""
    return values


Activation = Callable[[np.ndarray], np.ndarray]


@dataclass(frozen=True, kw_only=True, eq=False)
class SquareConvolution:
    """A square convolution as PyTorch stores it, a cross-correlation (outputs, inputs, side, side), and its bias (outputs,)."""

    weight: Float32[np.ndarray, "outputs inputs side side"]
    bias: Float32[np.ndarray, "outputs"]

    @property
    def side(self) -> int:
        """Rows and columns of the kernel."""
        return self.weight.shape[2]

    @property
    def matrix(self) -> Float32[np.ndarray, "unfolded outputs"]:
        """The weights of an unfolded window, ordered by its rows, columns and channels."""
        return np.ascontiguousarray(self.weight.transpose(2, 3, 1, 0).reshape(-1, len(self.weight)))

    def normalized(
        self, mean: np.ndarray, variance: np.ndarray, scale: np.ndarray | float, shift: np.ndarray | float
    ) -> SquareConvolution:
        """This layer with the batch normalization that follows it: equal to both for trained statistics."""
        factor = scale / np.sqrt(variance.astype(np.float64) + BATCH_NORM_TOL)
        bias = (self.bias - mean) * factor + shift
        return SquareConvolution(
            weight=(self.weight * factor[:, None, None, None]).astype(np.float32), bias=np.asarray(bias, dtype=np.float32)
        )


def layer(
    arrays: Mapping[str, np.ndarray], name: str, *, outputs: int, inputs: int, side: int, biased: bool
) -> SquareConvolution:
    """The convolution `name` of a state dict. Raises InputError for tensors that are missing or do not fit."""
    weight = tensor(arrays, f"{name}.weight", (outputs, inputs, side, side))
    bias = tensor(arrays, f"{name}.bias", (outputs,)) if biased else np.zeros(outputs, dtype=np.float32)
    return SquareConvolution(weight=weight, bias=bias)


def convolved(
    maps: Maps, layer: SquareConvolution, activation: Activation = unchanged, *, stride: int = 1, padding: int | None = None
) -> Maps:
    """The layer's output; zeros lie around the maps, as many as keep their size at stride 1 unless `padding` says."""
    side, outputs = layer.side, len(layer.weight)
    around = side // 2 if padding is None else padding
    matrix = layer.matrix
    padded = np.pad(maps, ((around, around), (around, around), (0, 0))) if around else maps
    rows, columns = ((size - side) // stride + 1 for size in padded.shape[:2])
    activated = np.empty((rows, columns, outputs), dtype=np.float32)
    step = max(1, _UNFOLDED // (columns * len(matrix)))
    unfolded = np.empty((min(step, rows), columns, side, side, maps.shape[2]), dtype=np.float32)
    for top in range(0, rows, step):
        count = min(step, rows - top)
        for i in range(side):
            for j in range(side):
                lines = slice(top * stride + i, (top + count - 1) * stride + i + 1, stride)
                unfolded[:count, :, i, j] = padded[lines, j : j + (columns - 1) * stride + 1 : stride]
        part = unfolded[:count].reshape(-1, len(matrix)) @ matrix
        part += layer.bias
        activated[top : top + count] = activation(part).reshape(count, columns, outputs)
    return activated


def sampled(
    maps: Maps, x: Float[np.ndarray, "*batch"], y: Float[np.ndarray, "*batch"]
) -> Float32[np.ndarray, "*batch channels"]:
    """Values between pixels, bilinearly; centers lie at integers, and zeros around the maps."""
    rows, columns, _ = maps.shape
    left, top = np.floor(x).astype(np.int64), np.floor(y).astype(np.int64)
    right, lower = (x - left).astype(np.float32), (y - top).astype(np.float32)
    values = np.zeros((*left.shape, maps.shape[2]), dtype=np.float32)
    for i, along in ((top, 1 - lower), (top + 1, lower)):
        for j, across in ((left, 1 - right), (left + 1, right)):
            weight = along * across * ((i >= 0) & (i < rows) & (j >= 0) & (j < columns))
            values += weight[..., None] * maps[np.clip(i, 0, rows - 1), np.clip(j, 0, columns - 1)]
    return values


def deformed(maps: Maps, layer: SquareConvolution, offsets: Float32[np.ndarray, "_ _ taps 2"], activation: Activation) -> Maps:
    """The layer's output where each tap of its kernel reads the maps at its place moved by an offset (y, x) in pixels.

    Source: Dai et al., "Deformable Convolutional Networks", ICCV 2017, Eq. 2 to 4.
    """
    rows, columns, _ = maps.shape
    side, matrix = layer.side, layer.matrix
    taps = np.arange(side) - side // 2
    activated = np.empty((rows, columns, len(layer.weight)), dtype=np.float32)
    step = max(1, _UNFOLDED // (columns * len(matrix)))
    for start in range(0, rows, step):
        part = slice(start, min(start + step, rows))
        y = np.arange(rows)[part, None, None] + np.repeat(taps, side) + offsets[part, :, :, 0]
        x = np.arange(columns)[None, :, None] + np.tile(taps, side) + offsets[part, :, :, 1]
        read = sampled(maps, x, y).reshape(-1, len(matrix)) @ matrix
        read += layer.bias
        activated[part] = activation(read).reshape(y.shape[0], columns, -1)
    return activated


def pooled(maps: Maps, factor: int) -> Maps:
    """Means of squares of `factor` pixels a side, which must divide both sides."""
    rows, columns, channels = maps.shape
    return np.ascontiguousarray(maps.reshape(rows // factor, factor, columns // factor, factor, channels).mean(axis=(1, 3)))


def stretched_places(size: int, places: Int64[np.ndarray, "*batch"], of: int) -> Float64[np.ndarray, "*batch"]:
    """Where pixels at `places` of `of` lie among `size` pixels, if first and last pixels lie on each other."""
    return places * ((size - 1) / (of - 1))


def stretched(maps: Maps, rows: int, columns: int) -> Maps:
    """Maps enlarged bilinearly, with first and last pixels on each other (PyTorch's `align_corners`)."""
    for axis, size in ((0, rows), (1, columns)):
        at = stretched_places(maps.shape[axis], np.arange(size), size)
        low = np.minimum(at.astype(np.int64), max(maps.shape[axis] - 2, 0))
        share = (at - low).astype(np.float32)[(slice(None), None, None) if axis == 0 else (slice(None), None)]
        high = np.minimum(low + 1, maps.shape[axis] - 1)
        maps = np.take(maps, low, axis=axis) * (1 - share) + np.take(maps, high, axis=axis) * share
    return maps
