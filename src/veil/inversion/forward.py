"""Pictures from maps with trained weights and NumPy alone: the network of `network.py` written out, for audits without torch.

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
# (height, width, channels), as matrix products like it.
Planes = Float32[np.ndarray, "_ _ _"]


class PlainInverter:
    """A network with its weights, about a second a picture. Raises InputError if they are those of another network."""

    def __init__(self, weights: Weights) -> None:
        self.kind: Kind = weights.kind
        self._arrays = {name: array.astype(np.float32) for name, array in weights.arrays.items()}
        try:
            self.invert([SparseMap(kind=self.kind, cells=np.arange(1), values=np.zeros((1, 2, DIM), dtype=np.float32))])
        except (KeyError, ValueError, IndexError) as error:
            raise InputError(f"these are no weights of this network ({error}); train again with this veil") from None

    def invert(self, maps: Sequence[SparseMap], *, progress: Progress | None = None) -> UInt8[np.ndarray, "images 256 256 3"]:
        """A picture for each map, as `veil.inversion.inference.Inverter` does. Raises InputError for maps of another kind."""
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
        """Eq. 6 of docs/theory/inversion.md."""
        rows = self._embedded(seen.values)
        maps = self._block("first", self._halved(seen.cells, rows))
        skips = [maps]
        for level in range(self._levels("down")):
            maps = self._block(f"down.{level}.1", self._block(f"down.{level}.0", maps, stride=2))
            skips.append(maps)
        maps = skips.pop()
        for level in range(self._levels("up")):
            wider = maps.repeat(2, axis=0).repeat(2, axis=1)
            maps = self._block(f"up.{level}", np.concatenate([wider, skips.pop()], axis=2))
        full = np.concatenate([_shuffled(maps), _scattered(seen.cells, self._linear("fine", rows), SIDE)], axis=2)
        logits = _convolved(self._block("detail", full), self._arrays["rgb.weight"]) + self._arrays["rgb.bias"]
        return 1 / (1 + np.exp(-np.clip(logits, -80, 80)))

    def _embedded(self, values: Float32[np.ndarray, "rows vectors 128"]) -> Float32[np.ndarray, "rows channels"]:
        """Eq. 5: words by their mean, subspaces by the origin and the lengths of what projections keep of learned vectors."""
        scaled = values * np.float32(DIM**0.5)
        if self.kind != "subspaces":
            hidden = _rectified(self._linear("embedding.first", scaled)).mean(axis=1)
        else:
            kept = values[:, 1:] @ self._arrays["embedding.probes.weight"].T
            lengths = np.square(kept).mean(axis=1) - 1
            share = np.full((len(values), 1), (values.shape[1] - 1) / 16, dtype=np.float32)
            hidden = _rectified(self._linear("embedding.first", np.concatenate([scaled[:, 0], lengths, share], axis=1)))
        return _rectified(self._linear("embedding.second", hidden))

    def _halved(self, cells: Int64[np.ndarray, "rows"], rows: Float32[np.ndarray, "rows channels"]) -> Planes:
        """The first convolution, of stride 2, at the features alone."""
        y, x = np.divmod(cells, SIDE)
        every = self._linear("coarse", rows).reshape(len(rows), 4, len(self._arrays["coarse.bias"]) // 4)
        chosen = every[np.arange(len(rows)), 2 * (y % 2) + x % 2]
        return _scattered((y // 2) * (SIDE // 2) + x // 2, chosen, SIDE // 2)

    def _linear(self, name: str, rows: np.ndarray) -> np.ndarray:
        return rows @ self._arrays[f"{name}.weight"].T + self._arrays[f"{name}.bias"]

    def _block(self, name: str, planes: Planes, stride: int = 1) -> Planes:
        """Convolution, batch normalization with the means of training, leaky rectifier."""
        gain, bias, mean, variance = (
            self._arrays[f"{name}.1.{part}"] for part in ("weight", "bias", "running_mean", "running_var")
        )
        factor = gain / np.sqrt(variance + np.float32(BATCH_NORM_EPSILON))
        kernel = self._arrays[f"{name}.0.weight"] * factor[:, None, None, None]
        return _rectified(_convolved(planes, kernel, stride) + (bias - mean * factor))

    def _levels(self, part: str) -> int:
        return len({name.split(".")[1] for name in self._arrays if name.startswith(f"{part}.")})


def _convolved(planes: Planes, kernel: Float32[np.ndarray, "outputs channels 3 3"], stride: int = 1) -> Planes:
    """A 3x3 convolution with a margin of zeros: one matrix product over all windows."""
    padded = np.pad(planes, ((1, 1), (1, 1), (0, 0)))
    windows = np.lib.stride_tricks.sliding_window_view(padded, (3, 3), axis=(0, 1))[::stride, ::stride]
    return np.tensordot(windows, kernel, axes=([2, 3, 4], [1, 2, 3])).astype(np.float32, copy=False)


def _rectified(values: np.ndarray) -> np.ndarray:
    return np.maximum(values, np.float32(SLOPE) * values)


def _shuffled(planes: Planes) -> Planes:
    """Four channels of a pixel to four pixels of a channel."""
    height, width, channels = planes.shape
    apart = planes.reshape(height, width, channels // 4, 2, 2)
    return np.ascontiguousarray(apart.transpose(0, 3, 1, 4, 2)).reshape(2 * height, 2 * width, channels // 4)


def _scattered(cells: Int64[np.ndarray, "rows"], rows: Float32[np.ndarray, "rows channels"], side: int) -> Planes:
    """Rows and a count of them, summed at their cells."""
    flat = np.zeros((side * side, rows.shape[1] + 1), dtype=np.float32)
    np.add.at(flat, cells, np.concatenate([rows, np.ones((len(rows), 1), dtype=np.float32)], axis=1))
    return flat.reshape(side, side, -1)
