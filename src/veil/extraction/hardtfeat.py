"""HardTFeat, a small learned descriptor of 128 signed dimensions, in plain NumPy.

The network is TFeat (Balntas et al., BMVC 2016), trained with the HardNet loss (Mishchuk et al., NeurIPS 2017); its
published weights are those of ducha-aiki/affnet (MIT).

A file of its own: each network of this folder is one, with its paper.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float32
from numpy.lib.stride_tricks import sliding_window_view

from veil.errors import InputError
from veil.threads import single_blas

PATCH = 32
# Layers of the published state dict: outputs, inputs, side of the square kernel.
LAYERS = {"features.0": (32, 1, 7), "features.3": (64, 32, 6), "classifier.1": (128, 64, 8)}
# Number of patches at a time: the unfolded second layer then takes 9 MB.
CHUNK = 32


@dataclass(frozen=True, kw_only=True, eq=False)
class Convolution:
    """One layer as PyTorch stores it: a cross-correlation without padding, plus a bias."""

    weight: Float32[np.ndarray, "outputs inputs side side"]
    bias: Float32[np.ndarray, "outputs"]

    def apply(
        self, maps: Float32[np.ndarray, "patches rows columns inputs"]
    ) -> Float32[np.ndarray, "patches rows_out columns_out outputs"]:
        """The layer's output, by one matrix product over all unfolded windows; channels come last."""
        outputs, _, side, _ = self.weight.shape
        windows = sliding_window_view(maps, (side, side), axis=(1, 2))  # patches rows columns inputs side side
        unfolded = windows.reshape(-1, self.weight[0].size)
        return (unfolded @ self.weight.reshape(outputs, -1).T + self.bias).reshape(*windows.shape[:3], outputs)


@dataclass(frozen=True, kw_only=True, eq=False)
class HardTFeat:
    """The three layers of the HardTFeat network; `from_arrays` makes and checks them."""

    first: Convolution
    second: Convolution
    last: Convolution

    @staticmethod
    def from_arrays(arrays: Mapping[str, np.ndarray]) -> HardTFeat:
        """The network of a state dict as published; its `SIFT.*` entries, which belong to another descriptor, are ignored.

        Raises InputError if a tensor is missing or unknown, has a wrong shape or type, or is not finite.
        """
        wanted = {f"{layer}.{part}" for layer in LAYERS for part in ("weight", "bias")}
        given = {name for name in arrays if not name.startswith("SIFT.")}
        if given != wanted:
            raise InputError(
                f"these are not HardTFeat's weights (missing: {sorted(wanted - given)}, unknown: "
                f"{sorted(given - wanted)}); use the bundled hardtfeat.npz"
            )
        first, second, last = (_layer(arrays, name) for name in LAYERS)
        return HardTFeat(first=first, second=second, last=last)

    def describe(self, patches: Float32[np.ndarray, "patches 32 32"]) -> Float32[np.ndarray, "patches 128"]:
        """Descriptors of unit length of gray patches, whose brightness and contrast do not matter.

        A constant patch gets the network's answer to zeros: finite, but the same for all constant patches.
        Raises InputError if patches are not (N, 32, 32) or not finite.
        """
        if patches.shape != (len(patches), PATCH, PATCH) or not np.isfinite(patches).all():
            raise InputError(f"patches must be finite and (N, {PATCH}, {PATCH}), got {patches.shape}; sample them again")
        descriptors = np.empty((len(patches), len(self.last.bias)), dtype=np.float32)
        # These products are small: a second BLAS thread saves a quarter, but costs tenfold where another process is busy.
        with single_blas():
            for start in range(0, len(patches), CHUNK):
                descriptors[start : start + CHUNK] = self._forward(patches[start : start + CHUNK])
        return descriptors

    def _forward(self, patches: Float32[np.ndarray, "patches 32 32"]) -> Float32[np.ndarray, "patches 128"]:
        maps = self.first.apply(_standardized(patches)[..., None])
        # tanh rises monotonically, so pooling before it gives the same numbers for a quarter of the work.
        maps = np.tanh(maps.reshape(len(maps), 13, 2, 13, 2, -1).max(axis=(2, 4)))
        maps = np.tanh(self.second.apply(maps))
        vectors = np.tanh(self.last.apply(maps)).reshape(len(patches), -1)
        return vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), np.finfo(np.float32).tiny)


def _layer(arrays: Mapping[str, np.ndarray], name: str) -> Convolution:
    """The layer of this name. Raises InputError if its tensors have a wrong shape or type, or are not finite."""
    outputs, inputs, side = LAYERS[name]
    weight, bias = arrays[f"{name}.weight"], arrays[f"{name}.bias"]
    for part, array, shape in (("weight", weight, (outputs, inputs, side, side)), ("bias", bias, (outputs,))):
        if array.shape != shape or array.dtype != np.float32 or not np.isfinite(array).all():
            raise InputError(
                f"{name}.{part} must be finite float32 of shape {shape}, got {array.dtype} {array.shape}; "
                "use the bundled hardtfeat.npz"
            )
    return Convolution(weight=weight, bias=bias)


def _standardized(patches: Float32[np.ndarray, "patches 32 32"]) -> Float32[np.ndarray, "patches 32 32"]:
    """Patches with zero mean and a standard deviation of one."""
    # In float64 the mean of a constant patch is exact, so its rounding error is not blown up by the small divisor.
    values = patches.astype(np.float64)
    values -= values.mean(axis=(1, 2), keepdims=True)
    deviation = values.std(axis=(1, 2), ddof=1, keepdims=True)
    return (values / (deviation + 1e-7)).astype(np.float32)  # the floor is the published network's
