"""Inversion with NumPy alone: the network of `network.py` written out, for audits without torch.

It is the slow reference of that network: both give the same pictures up to rounding.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from jaxtyping import Float32, Int64, UInt8

from veil.errors import InputError
from veil.inversion.maps import DIM, SIDE, Kind, SparseMap
from veil.inversion.weights import Weights
from veil.progress import Progress

SLOPE, BATCH_NORM_EPSILON = 0.2, 1e-5
# Planes are (height, width, channels), the order that suits matrix products.
Planes = Float32[np.ndarray, "_ _ _"]


class PlainInverter:
    """An inversion network in NumPy with its weights; it takes about a second a picture.

    Raises InputError if the weights are those of another network.
    """

    def __init__(self, weights: Weights) -> None:
        self.kind: Kind = weights.kind
        self._arrays = {name: array.astype(np.float32) for name, array in weights.arrays.items()}
        try:
            self.invert([SparseMap(kind=self.kind, cells=np.arange(1), values=np.zeros((1, 2, DIM), dtype=np.float32))])
        except (KeyError, ValueError, IndexError) as error:
            raise InputError(f"these are no weights of this network ({error}); train again with this veil") from None

    def invert(self, maps: Sequence[SparseMap], *, progress: Progress | None = None) -> UInt8[np.ndarray, "images 256 256 3"]:
        """Pictures of the maps, 8-bit RGB, one for each; arguments and errors as in `veil.inversion.network.Inverter`."""
        wrong = [item.kind for item in maps if item.kind != self.kind]
        if wrong:
            raise InputError(f"these weights invert {self.kind}, not {wrong[0]}; give the weights for {wrong[0]}")
        pictures = np.empty((len(maps), SIDE, SIDE, 3), dtype=np.uint8)
        for k, item in enumerate(maps):
            pictures[k] = (255 * self._picture(item) + 0.5).astype(np.uint8)
            if progress is not None:
                progress(k + 1, len(maps))
        return pictures

    def _picture(self, seen: SparseMap) -> Planes:
        """The picture of one map, RGB in [0, 1] (docs/theory/inversion.md, Eq. 6)."""
        rows = self._embedded(seen.values)
        levels, entries = self._count("widen"), self._count("entries")
        maps = self._entering(seen.cells, rows, 0)
        skips = []
        for level in range(levels):
            if level:
                maps = self._normalized(f"halve.{level - 1}", maps, stride=2)
                maps = maps + self._entering(seen.cells, rows, level) if level < entries else maps
            maps = self._residuals(f"down.{level}", maps)
            skips.append(maps)
        for level in reversed(range(levels)):
            if level < levels - 1:
                maps = self._normalized(f"join.{level}", _rectified(np.concatenate([maps, skips[level]], axis=2)))
            maps = self._residuals(f"up.{level}", maps)
            maps = _shuffled(self._pointwise(f"widen.{level}", maps))
        full = np.concatenate([maps, _scattered(seen.cells, self._linear("fine", rows), SIDE)], axis=2)
        maps = _rectified(self._normalized("detail", _rectified(full)))
        logits = convolved(maps, self._arrays["rgb.weight"]) + self._arrays["rgb.bias"]
        return 1 / (1 + np.exp(-np.clip(logits, -80, 80)))

    def _embedded(self, values: Float32[np.ndarray, "rows vectors 128"]) -> Float32[np.ndarray, "rows channels"]:
        """Channels of each keypoint (docs/theory/inversion.md, Eq. 5).

        Words enter by their mean, subspaces by the origin and the lengths of learned vectors projected on them.
        """
        scaled = values * np.float32(DIM**0.5)
        if self.kind != "subspaces":
            hidden = _rectified(self._linear("embedding.first", scaled)).mean(axis=1)
        else:
            kept = values[:, 1:] @ self._arrays["embedding.probes.weight"].T
            lengths = np.square(kept).mean(axis=1) - 1
            share = np.full((len(values), 1), (values.shape[1] - 1) / 16, dtype=np.float32)
            hidden = _rectified(self._linear("embedding.first", np.concatenate([scaled[:, 0], lengths, share], axis=1)))
        return _rectified(self._linear("embedding.second", hidden))

    def _entering(self, cells: Int64[np.ndarray, "rows"], rows: Float32[np.ndarray, "rows channels"], level: int) -> Planes:
        """Planes of a level: the sums of its cells' features, each by the kernel of the quarter that it lies in (Eq. 6)."""
        size = 2 << level
        y, x = np.divmod(cells, SIDE)
        every = self._linear(f"entries.{level}", rows)
        every = every.reshape(len(rows), 4, every.shape[1] // 4)
        chosen = every[np.arange(len(rows)), 2 * (y % size // (size // 2)) + x % size // (size // 2)]
        return _scattered((y // size) * (SIDE // size) + x // size, chosen, SIDE // size)

    def _residuals(self, name: str, planes: Planes) -> Planes:
        """Planes after the residual blocks of a level."""
        for block in range(self._count(name)):
            inner = _rectified(self._normalized(f"{name}.{block}.first", planes))
            planes = planes + self._normalized(f"{name}.{block}.second", inner)
        return planes

    def _normalized(self, name: str, planes: Planes, stride: int = 1) -> Planes:
        """Planes after a 3x3 convolution and batch normalization with the means of training."""
        gain, bias, mean, variance = (
            self._arrays[f"{name}.1.{part}"] for part in ("weight", "bias", "running_mean", "running_var")
        )
        factor = gain / np.sqrt(variance + np.float32(BATCH_NORM_EPSILON))
        kernel = self._arrays[f"{name}.0.weight"] * factor[:, None, None, None]
        return convolved(planes, kernel, stride) + (bias - mean * factor)

    def _pointwise(self, name: str, planes: Planes) -> Planes:
        """Planes after a 1x1 convolution."""
        return planes @ self._arrays[f"{name}.weight"][:, :, 0, 0].T + self._arrays[f"{name}.bias"]

    def _linear(self, name: str, rows: np.ndarray) -> np.ndarray:
        return rows @ self._arrays[f"{name}.weight"].T + self._arrays[f"{name}.bias"]

    def _count(self, part: str) -> int:
        """Number of layers or blocks in the network's part of that name."""
        return len({name[len(part) + 1 :].split(".")[0] for name in self._arrays if name.startswith(f"{part}.")})


def convolved(planes: Planes, kernel: Float32[np.ndarray, "outputs channels 3 3"], stride: int = 1) -> Planes:
    """Planes after a 3x3 convolution with a margin of zeros, by one matrix product over all windows."""
    padded = np.pad(planes, ((1, 1), (1, 1), (0, 0)))
    windows = np.lib.stride_tricks.sliding_window_view(padded, (3, 3), axis=(0, 1))[::stride, ::stride]
    return np.tensordot(windows, kernel, axes=([2, 3, 4], [1, 2, 3])).astype(np.float32, copy=False)


def _rectified(values: np.ndarray) -> np.ndarray:
    return np.maximum(values, np.float32(SLOPE) * values)


def _shuffled(planes: Planes) -> Planes:
    """Planes of twice the resolution, in which every four channels of a pixel become four pixels of one channel."""
    height, width, channels = planes.shape
    apart = planes.reshape(height, width, channels // 4, 2, 2)
    return np.ascontiguousarray(apart.transpose(0, 3, 1, 4, 2)).reshape(2 * height, 2 * width, channels // 4)


def _scattered(cells: Int64[np.ndarray, "rows"], rows: Float32[np.ndarray, "rows channels"], side: int) -> Planes:
    """Planes with the sums of the rows at their cells, and the number of rows as the last channel."""
    flat = np.zeros((side * side, rows.shape[1] + 1), dtype=np.float32)
    np.add.at(flat, cells, np.concatenate([rows, np.ones((len(rows), 1), dtype=np.float32)], axis=1))
    return flat.reshape(side, side, -1)
