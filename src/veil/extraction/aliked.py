"""ALIKED: keypoints with learned descriptors of 128 signed dimensions, in plain NumPy.

Source: Zhao et al., "ALIKED: A Lighter Keypoint and Descriptor Extraction Network via Deformable Transformation", IEEE
Transactions on Instrumentation and Measurement 2023; weights of Shiaoming/ALIKED (BSD-3-Clause).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float32, Int64, UInt8

from veil.errors import InputError
from veil.extraction.convolution import (
    Maps,
    SquareConvolution,
    convolved,
    deformed,
    layer,
    pooled,
    sampled,
    selu,
    sigmoid,
    stretched,
    stretched_places,
    unchanged,
)
from veil.extraction.detection import local_maxima, refined, strongest
from veil.tensors import digest_of, tensor
from veil.threads import single_blas

LEAST_SCORE = 0.2  # of a keypoint, as published
RADIUS, TEMPERATURE = 2, 0.1  # of maxima and of their refinement ("differentiable keypoint detection")
_LEVELS = (1, 2, 8, 32)  # pixels of the image a side, for one of each block's
_ALIGN = 32  # sides are filled up to a multiple of this
_KEYPOINTS = 256  # described at a time: 10 MB
_NORM = (
    "running_mean",
    "running_var",
    "weight",
    "bias",
)  # of a batch normalization, as `SquareConvolution.normalized` takes them
# SHA-256 of the published weights `aliked-n16rot`, as `digest_of` gives it.
_N16ROT = "4a593f61f2b2c22c5172bdb52eade8cfc48e01ed3ee68c4f790019ecac3da332"


@dataclass(frozen=True, kw_only=True, eq=False)
class Block:
    """Two convolutions with batch normalization, and a third across both (None in the first block).

    `offsets` are the layers that say where the taps of the two convolutions read, or None where these are ordinary ones.
    """

    first: SquareConvolution
    second: SquareConvolution
    across: SquareConvolution | None
    offsets: tuple[SquareConvolution, SquareConvolution] | None

    def apply(self, maps: Maps) -> Maps:
        """The block's output."""
        inner = self._convolved(maps, 0, self.across is not None)
        if self.across is None:
            return self._convolved(inner, 1, True)
        outer = self._convolved(inner, 1, False)
        outer += convolved(maps, self.across)
        return selu(outer)

    def _convolved(self, maps: Maps, which: int, gated: bool) -> Maps:
        taken, activation = (self.first, self.second)[which], selu if gated or which == 0 else unchanged
        if self.offsets is None:
            return convolved(maps, taken, activation)
        rows, columns, _ = maps.shape
        moved = np.clip(convolved(maps, self.offsets[which]), -max(rows, columns) / 4, max(rows, columns) / 4)
        return deformed(maps, taken, moved.reshape(rows, columns, -1, 2), activation)


@dataclass(frozen=True, kw_only=True, eq=False)
class Dense:
    """Output of the network for all pixels: `scores` (rows, columns), and the four levels that descriptors are made from.

    `levels` are gated maps of 32 channels each, in their own resolution; `corner` is the image's first pixel (x, y) in them, as
    the image was filled up on all sides.
    """

    scores: Float32[np.ndarray, "rows columns"]
    levels: tuple[Maps, ...]
    corner: tuple[int, int]

    def features(self, pixels: Int64[np.ndarray, "*batch 2"]) -> Float32[np.ndarray, "*batch channels"]:
        """Features of unit length of the image's pixels (x, y), zero outside of it: the enlarged levels one behind another."""
        rows, columns = self.scores.shape
        inside = np.logical_and(pixels >= 0, pixels < (columns, rows)).all(axis=-1, keepdims=True)
        at = np.clip(pixels, 0, (columns - 1, rows - 1)) + self.corner
        whole_rows, whole_columns, _ = self.levels[0].shape
        parts = [self.levels[0][at[..., 1], at[..., 0]]]
        for maps in self.levels[1:]:
            x = stretched_places(maps.shape[1], at[..., 0], whole_columns)
            y = stretched_places(maps.shape[0], at[..., 1], whole_rows)
            parts.append(sampled(maps, x, y))
        joined = np.concatenate(parts, axis=-1)
        return inside * joined / np.maximum(np.linalg.norm(joined, axis=-1, keepdims=True), np.float32(1e-12))

    def between(self, places: Float32[np.ndarray, "*batch 2"]) -> Float32[np.ndarray, "*batch channels"]:
        """Features between pixels: those of the four neighbors, weighted bilinearly and not scaled again."""
        low = np.floor(places).astype(np.int64)
        right, lower = np.moveaxis((places - low).astype(np.float32), -1, 0)[..., None]
        features = np.zeros((*places.shape[:-1], 1), dtype=np.float32)
        for y, along in ((0, 1 - lower), (1, lower)):
            for x, across in ((0, 1 - right), (1, right)):
                features = features + along * across * self.features(low + np.array([x, y]))
        return features


@dataclass(frozen=True, kw_only=True, eq=False)
class Aliked:
    """The ALIKED network; `from_arrays` makes and checks it. Widths and numbers of sampled places are read from the weights.

    `kind` names its descriptors: "aliked-n16rot" for the published weights of that name, else "aliked-" and a hash of the
    weights, as descriptors of different weights cannot be compared.
    """

    kind: str
    blocks: tuple[Block, ...]
    level: tuple[SquareConvolution, ...]
    score: tuple[SquareConvolution, ...]
    place: tuple[SquareConvolution, SquareConvolution]
    feature: SquareConvolution
    aggregation: Float32[np.ndarray, "places channels dim"]

    @staticmethod
    def from_arrays(arrays: Mapping[str, np.ndarray]) -> Aliked:
        """The network of a state dict as published. Raises InputError if a tensor is missing, does not fit or is not finite."""
        try:
            widths = [
                3,
                *(arrays[f"block{k}.conv{2}.weight"].shape[0] for k in (1, 2)),
                *(arrays[f"block{k}.conv2.regular_conv.weight"].shape[0] for k in (3, 4)),
            ]
            places, channels, dim = arrays["desc_head.agg_weights"].shape
        except (KeyError, ValueError, IndexError) as error:
            raise InputError(f"these are not ALIKED's weights (missing: {error}); use the bundled aliked-n16rot.npz") from None
        part, digest = channels // 4, digest_of(arrays)
        narrowing = ((0, channels, 8, 1), (2, 8, 4, 3), (4, 4, 4, 3), (6, 4, 1, 3))
        return Aliked(
            kind="aliked-n16rot" if digest == _N16ROT else f"aliked-{digest[:8]}",
            blocks=tuple(_block(arrays, f"block{k}", *widths[k - 1 : k + 1]) for k in (1, 2, 3, 4)),
            level=tuple(layer(arrays, f"conv{k}", outputs=part, inputs=widths[k], side=1, biased=False) for k in (1, 2, 3, 4)),
            score=tuple(
                layer(arrays, f"score_head.{name}", outputs=o, inputs=i, side=s, biased=False) for name, i, o, s in narrowing
            ),
            place=(
                layer(arrays, "desc_head.offset_conv.0", outputs=2 * places, inputs=channels, side=3, biased=True),
                layer(arrays, "desc_head.offset_conv.2", outputs=2 * places, inputs=2 * places, side=1, biased=True),
            ),
            feature=layer(arrays, "desc_head.sf_conv", outputs=channels, inputs=channels, side=1, biased=False),
            aggregation=tensor(arrays, "desc_head.agg_weights", (places, channels, dim)),
        )

    @property
    def dim(self) -> int:
        """Number of dimensions of a descriptor."""
        return self.aggregation.shape[2]

    def detect_and_describe(
        self, rgb: UInt8[np.ndarray, "rows columns 3"], *, most: int, least_score: float | None = None
    ) -> tuple[Float32[np.ndarray, "found 2"], Float32[np.ndarray, "found"], Float32[np.ndarray, "found dim"]]:
        """Keypoints (x, y) in pixels whose centers lie at integers, their scores, and descriptors of unit length.

        At most `most` with a score above `least_score` (None: 0.2, as published), the strongest first. Raises InputError if
        there are none.
        """
        with single_blas():
            dense = self.dense(rgb)
            least = LEAST_SCORE if least_score is None else least_score
            peaks = local_maxima(dense.scores, RADIUS)
            pixels = strongest(dense.scores, peaks, least=least, most=most, border=RADIUS)
            places = refined(dense.scores, pixels, radius=RADIUS, temperature=TEMPERATURE)
            scores = sampled(dense.scores[..., None], places[:, 0], places[:, 1])[:, 0]
            return places, scores, self.describe(dense, places)

    def dense(self, rgb: UInt8[np.ndarray, "rows columns 3"]) -> Dense:
        """Scores and levels of an image of any size; its border pixels are repeated until sides are multiples of 32."""
        rows, columns, _ = rgb.shape
        fill = [(-size) % _ALIGN for size in (rows, columns)]
        top, left = fill[0] // 2, fill[1] // 2
        sides = ((top, fill[0] - top), (left, fill[1] - left), (0, 0))
        maps = np.pad(rgb, sides, mode="edge").astype(np.float32) / np.float32(255)
        size = maps.shape[:2]
        levels = []
        narrow = np.zeros((*size, len(self.score[0].weight)), dtype=np.float32)
        for index, (block, level) in enumerate(zip(self.blocks, self.level, strict=True)):
            if index:
                maps = pooled(maps, _LEVELS[index] // _LEVELS[index - 1])
            maps = block.apply(maps)
            levels.append(convolved(maps, level, selu))
            narrow += stretched(convolved(levels[-1], self._narrowing(index)), *size)
        for head in self.score[1:]:
            narrow = convolved(selu(narrow), head)
        scores = sigmoid(narrow[top : top + rows, left : left + columns, 0])
        return Dense(scores=np.ascontiguousarray(scores), levels=tuple(levels), corner=(left, top))

    def _narrowing(self, index: int) -> SquareConvolution:
        """The part of the score's first layer that reads one level: applied before the level is enlarged, it gives the same."""
        part = len(self.level[0].weight)
        weight = np.ascontiguousarray(self.score[0].weight[:, index * part : (index + 1) * part])
        return SquareConvolution(weight=weight, bias=np.zeros(len(weight), dtype=np.float32))

    def describe(self, dense: Dense, keypoints: Float32[np.ndarray, "found 2"]) -> Float32[np.ndarray, "found dim"]:
        """Descriptors of unit length of keypoints (x, y), in pixels whose centers lie at integers.

        The features around a keypoint say where others are read, and these are summed with a matrix for each place (Zhao et
        al. 2023, "sparse deformable descriptor head").
        """
        descriptors = np.empty((len(keypoints), self.dim), dtype=np.float32)
        for start in range(0, len(keypoints), _KEYPOINTS):
            chunk = keypoints[start : start + _KEYPOINTS]
            values = selu(dense.between(self._places(dense, chunk)) @ self.feature.matrix)
            sums = values.reshape(len(chunk), -1) @ self.aggregation.reshape(-1, self.dim)
            descriptors[start : start + _KEYPOINTS] = sums / np.linalg.norm(sums, axis=1, keepdims=True)
        return descriptors

    def _places(self, dense: Dense, keypoints: Float32[np.ndarray, "found 2"]) -> Float32[np.ndarray, "found places 2"]:
        """Where features are read for each keypoint: it and offsets that follow from the 3 x 3 features around it."""
        rows, columns = dense.scores.shape
        corner = np.clip(np.trunc(keypoints).astype(np.int64) - 1, 0, (columns - 4, rows - 4))
        grid = np.stack(np.meshgrid(np.arange(3), np.arange(3)), axis=-1)
        around = dense.features(corner[:, None, None] + grid).reshape(len(keypoints), -1)
        hidden = selu(around @ self.place[0].matrix + self.place[0].bias)
        offsets = hidden @ self.place[1].matrix + self.place[1].bias
        offsets = np.clip(offsets, -max(rows, columns) / 4, max(rows, columns) / 4)
        return keypoints[:, None] + np.swapaxes(offsets.reshape(len(keypoints), 2, -1), 1, 2)


def _block(arrays: Mapping[str, np.ndarray], name: str, inputs: int, outputs: int) -> Block:
    """The block of this name. Raises InputError for tensors that do not fit."""
    moves = f"{name}.conv1.offset_conv.weight" in arrays
    layers: list[SquareConvolution] = []
    offsets: list[SquareConvolution] = []
    for which, width in ((1, inputs), (2, outputs)):
        conv = f"{name}.conv{which}.regular_conv" if moves else f"{name}.conv{which}"
        plain = layer(arrays, conv, outputs=outputs, inputs=width, side=3, biased=False)
        norm = [tensor(arrays, f"{name}.bn{which}.{part}", (outputs,)) for part in _NORM]
        layers.append(plain.normalized(*norm))
        if moves:
            offsets.append(layer(arrays, f"{name}.conv{which}.offset_conv", outputs=18, inputs=width, side=3, biased=True))
    across = None
    if f"{name}.downsample.weight" in arrays:
        across = layer(arrays, f"{name}.downsample", outputs=outputs, inputs=inputs, side=1, biased=True)
    return Block(first=layers[0], second=layers[1], across=across, offsets=(offsets[0], offsets[1]) if moves else None)
