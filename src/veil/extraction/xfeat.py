"""XFeat: keypoints with learned descriptors of 64 signed dimensions, in plain NumPy.

Source: Potje et al., "XFeat: Accelerated Features for Lightweight Image Matching", CVPR 2024; weights of
verlab/accelerated_features (Apache-2.0).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Float32, Float64, UInt8

from veil.errors import InputError
from veil.extraction.convolution import (
    Activation,
    Maps,
    SquareConvolution,
    convolved,
    layer,
    pooled,
    relu,
    sampled,
    sigmoid,
    unchanged,
)
from veil.extraction.detection import largest_around, strongest
from veil.tensors import digest_of, tensor
from veil.threads import single_blas

LEAST_SCORE = 0.05  # of a keypoint, as published
RADIUS = 2
CELL, _ALIGN = 8, 32  # pixels a side of a descriptor's cell, and of the deepest one
_NORM_TOL = 1e-5  # added to the image's variance
_CUBIC = -0.75  # PyTorch's bicubic kernel
# SHA-256 of the published weights, as `digest_of` gives it.
_PUBLISHED = "78ae173bb9591094673a719bc65b72d6f0a68a6fcb6e30e363aed37c7f6d638b"
# Inputs and outputs of each layer, the side of its kernel and its stride.
_BLOCKS: Mapping[str, tuple[tuple[int, int, int, int], ...]] = {
    "block1": ((1, 4, 3, 1), (4, 8, 3, 2), (8, 8, 3, 1), (8, 24, 3, 2)),
    "block2": ((24, 24, 3, 1), (24, 24, 3, 1)),
    "block3": ((24, 64, 3, 2), (64, 64, 3, 1), (64, 64, 1, 1)),
    "block4": ((64, 64, 3, 2), (64, 64, 3, 1), (64, 64, 3, 1)),
    "block5": ((64, 128, 3, 2), (128, 128, 3, 1), (128, 128, 3, 1), (128, 64, 1, 1)),
    "block_fusion": ((64, 64, 3, 1), (64, 64, 3, 1), (64, 64, 1, 1)),
    "heatmap_head": ((64, 64, 1, 1), (64, 64, 1, 1), (64, 1, 1, 1)),
    "keypoint_head": ((64, 64, 1, 1), (64, 64, 1, 1), (64, 64, 1, 1), (64, 65, 1, 1)),
}
_HEADS = ("block_fusion", "heatmap_head", "keypoint_head")  # whose last layer has a bias, and no activation


@dataclass(frozen=True, kw_only=True, eq=False)
class Chain:
    """Layers one behind another, each with its stride and what follows it."""

    layers: tuple[tuple[SquareConvolution, int, Activation], ...]

    def apply(self, maps: Maps) -> Maps:
        """The output of the last layer."""
        for taken, stride, activation in self.layers:
            maps = convolved(maps, taken, activation, stride=stride)
        return maps


@dataclass(frozen=True, kw_only=True, eq=False)
class XFeat:
    """The XFeat network; `from_arrays` makes and checks it.

    `kind` names its descriptors: "xfeat" for the published weights, else "xfeat-" and a hash of the weights, as descriptors of
    different weights cannot be compared.
    """

    kind: str
    skip: SquareConvolution
    chains: Mapping[str, Chain]

    @staticmethod
    def from_arrays(arrays: Mapping[str, np.ndarray]) -> XFeat:
        """The network of a state dict as published; the matcher in it is not used.

        Raises InputError if a tensor is missing, does not fit or is not finite.
        """
        if "skip1.1.weight" not in arrays:
            raise InputError("these are not XFeat's weights; give the xfeat.pt of verlab/accelerated_features")
        digest = digest_of(arrays)
        return XFeat(
            kind="xfeat" if digest == _PUBLISHED else f"xfeat-{digest[:8]}",
            skip=layer(arrays, "skip1.1", outputs=24, inputs=1, side=1, biased=True),
            chains={name: _chain(arrays, name) for name in _BLOCKS},
        )

    def detect_and_describe(
        self, rgb: UInt8[np.ndarray, "rows columns 3"], *, most: int, least_score: float | None = None
    ) -> tuple[Float32[np.ndarray, "found 2"], Float32[np.ndarray, "found"], Float32[np.ndarray, "found 64"]]:
        """Keypoints (x, y) in pixels whose centers lie at integers, their scores, and descriptors of unit length.

        At most `most` whose probability of being a keypoint exceeds `least_score` (None: 0.05, as published), those of the
        largest score first: the probability times the reliability of the descriptor there. Raises InputError if there are none,
        or the image has less than 32 pixels a side.
        """
        rows, columns = (size // _ALIGN * _ALIGN for size in rgb.shape[:2])
        if not (rows and columns):
            raise InputError(f"the image is {rgb.shape[1]}x{rgb.shape[0]} px; XFeat needs at least {_ALIGN} px a side")
        with single_blas():
            gray = resized(rgb.mean(axis=2, dtype=np.float32)[..., None] / np.float32(255), rows, columns)
            features, probability, reliability = self.dense(gray)
            maxima = (probability == largest_around(probability, RADIUS)) & (probability > 0)
            least = LEAST_SCORE if least_score is None else least_score
            pixels = strongest(probability, maxima, least=least, most=probability.size, border=0)
            x, y = (_in_cells(pixels[:, axis], size) for axis, size in ((0, columns), (1, rows)))
            scores = probability[pixels[:, 1], pixels[:, 0]] * sampled(reliability, x, y)[:, 0]
            order = np.argsort(-scores, kind="stable")[:most]
            order = order[scores[order] > 0]
            descriptors = _cubic(features, x[order], y[order])
        factor = np.array([rgb.shape[1] / columns, rgb.shape[0] / rows], dtype=np.float32)
        places = (pixels[order].astype(np.float32) + np.float32(0.5)) * factor - np.float32(0.5)
        return places, scores[order], _unit(descriptors)

    def dense(self, gray: Maps) -> tuple[Maps, Float32[np.ndarray, "rows columns"], Maps]:
        """Features of unit length of all cells, the probability that each pixel is a keypoint, and the cells' reliability.

        `gray` is one channel with sides that are multiples of 32. Source: Potje et al. 2024, Fig. 3.
        """
        wide = gray.astype(np.float64)
        image = ((wide - wide.mean()) / np.sqrt(wide.var() + _NORM_TOL)).astype(np.float32)
        shallow = self.chains["block1"].apply(image) + convolved(pooled(image, 4), self.skip)
        third = self.chains["block3"].apply(self.chains["block2"].apply(shallow))
        fourth = self.chains["block4"].apply(third)
        fifth = self.chains["block5"].apply(fourth)
        size = third.shape[:2]
        features = self.chains["block_fusion"].apply(third + resized(fourth, *size) + resized(fifth, *size))
        reliability = sigmoid(self.chains["heatmap_head"].apply(features))
        cells = image.reshape(size[0], CELL, size[1], CELL).swapaxes(1, 2).reshape(*size, CELL * CELL)
        logits = self.chains["keypoint_head"].apply(np.ascontiguousarray(cells))
        shares = np.exp(logits - logits.max(axis=2, keepdims=True))
        shares = (shares / shares.sum(axis=2, keepdims=True))[..., : CELL * CELL]  # the last one says that there is none
        probability = shares.reshape(*size, CELL, CELL).swapaxes(1, 2).reshape(image.shape[:2])
        return _unit(features), np.ascontiguousarray(probability), reliability


def resized(maps: Maps, rows: int, columns: int) -> Maps:
    """Maps of another size, bilinearly between the centers of pixels, border pixels repeated."""
    for axis, size in ((0, rows), (1, columns)):
        of = maps.shape[axis]
        if of == size:
            continue
        at = np.clip((np.arange(size) + 0.5) * (of / size) - 0.5, 0, of - 1)
        low = np.minimum(at.astype(np.int64), max(of - 2, 0))
        share = (at - low).astype(np.float32)[(slice(None), None, None) if axis == 0 else (slice(None), None)]
        maps = np.take(maps, low, axis=axis) * (1 - share) + np.take(maps, np.minimum(low + 1, of - 1), axis=axis) * share
    return maps


def _chain(arrays: Mapping[str, np.ndarray], name: str) -> Chain:
    """The layers of this name. Raises InputError for tensors that do not fit."""
    layers: list[tuple[SquareConvolution, int, Activation]] = []
    for index, (inputs, outputs, side, stride) in enumerate(_BLOCKS[name]):
        if name in _HEADS and index == len(_BLOCKS[name]) - 1:
            last = layer(arrays, f"{name}.{index}", outputs=outputs, inputs=inputs, side=side, biased=True)
            layers.append((last, stride, unchanged))
            continue
        place = f"{name}.{index}.layer"
        plain = layer(arrays, f"{place}.0", outputs=outputs, inputs=inputs, side=side, biased=False)
        mean, variance = (tensor(arrays, f"{place}.1.running_{part}", (outputs,)) for part in ("mean", "var"))
        layers.append((plain.normalized(mean, variance, 1.0, 0.0), stride, relu))
    return Chain(layers=tuple(layers))


def _in_cells(pixels: np.ndarray, size: int) -> Float64[np.ndarray, "_"]:
    """Where pixels of an image side lie among its cells, as published: first and last pixels on the outer borders of cells."""
    return pixels / (size - 1) * (size // CELL) - 0.5


def _unit(maps: Float[np.ndarray, "*batch channels"]) -> Float32[np.ndarray, "*batch channels"]:
    return (maps / np.maximum(np.linalg.norm(maps, axis=-1, keepdims=True), 1e-12)).astype(np.float32)


def _cubic(
    maps: Maps, x: Float64[np.ndarray, "found"], y: Float64[np.ndarray, "found"]
) -> Float32[np.ndarray, "found channels"]:
    """Values between pixels by cubic convolution (Keys 1981, with a = -0.75), zeros around the maps."""
    padded = np.pad(maps, ((2, 2), (2, 2), (0, 0)))
    left, top = np.floor(x).astype(np.int64), np.floor(y).astype(np.int64)
    values = np.zeros((len(x), maps.shape[2]), dtype=np.float32)
    for i in range(-1, 3):
        for j in range(-1, 3):
            weight = (_keys(y - top - i) * _keys(x - left - j)).astype(np.float32)
            values += weight[:, None] * padded[top + i + 2, left + j + 2]
    return values


def _keys(distance: Float64[np.ndarray, "found"]) -> Float64[np.ndarray, "found"]:
    d = np.abs(distance)
    near = ((_CUBIC + 2) * d - (_CUBIC + 3)) * d * d + 1
    return np.where(d <= 1, near, _CUBIC * (((d - 5) * d + 8) * d - 4))
