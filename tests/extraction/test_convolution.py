"""Layers against their defining sums, one number at a time in float64."""

from __future__ import annotations

import math

import numpy as np
import pytest

from veil.errors import InputError
from veil.extraction import convolution
from veil.extraction.convolution import (
    SquareConvolution,
    convolved,
    deformed,
    layer,
    pooled,
    relu,
    sampled,
    selu,
    sigmoid,
    stretched,
    unchanged,
)
from worlds import generator


def planted(name: str, *shape: int) -> np.ndarray:
    return generator(name).normal(size=shape).astype(np.float32)


def read(maps: np.ndarray, y: float, x: float, channel: int) -> float:
    """Bilinear value between pixels, zero outside, by its four neighbors."""
    total = 0.0
    for i in (math.floor(y), math.floor(y) + 1):
        for j in (math.floor(x), math.floor(x) + 1):
            if 0 <= i < maps.shape[0] and 0 <= j < maps.shape[1]:
                total += (1 - abs(y - i)) * (1 - abs(x - j)) * float(maps[i, j, channel])
    return total


def summed(maps: np.ndarray, kernel: SquareConvolution, offsets: np.ndarray, *, stride: int = 1) -> np.ndarray:
    """The definition: a sum over taps and channels, each tap read at its place moved by an offset (y, x)."""
    side = kernel.side
    rows, columns = ((size - 1) // stride + 1 for size in maps.shape[:2])
    sums = np.zeros((rows, columns, len(kernel.bias)))
    for (i, j), output in ((place, o) for place in np.ndindex(rows, columns) for o in range(len(kernel.bias))):
        total = float(kernel.bias[output])
        for tap, (a, b) in enumerate(np.ndindex(side, side)):
            y = i * stride + a - side // 2 + offsets[i, j, tap, 0]
            x = j * stride + b - side // 2 + offsets[i, j, tap, 1]
            for channel in range(maps.shape[2]):
                total += float(kernel.weight[output, channel, a, b]) * read(maps, y, x, channel)
        sums[i, j, output] = total
    return sums


@pytest.mark.parametrize(("side", "stride"), [(1, 1), (3, 1), (3, 2)])
def test_a_convolution_is_its_sum(side: int, stride: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Oracle: the defining sum in plain loops, for one row at a time, for some, and for all at once."""
    maps = planted("convolution", 9, 7, 3)
    kernel = SquareConvolution(weight=planted("kernel", 4, 3, side, side), bias=planted("bias", 4))
    expected = summed(maps, kernel, np.zeros((9, 7, side * side, 2)), stride=stride)
    for unfolded in (1, 500, 1 << 20):
        monkeypatch.setattr(convolution, "_UNFOLDED", unfolded)
        np.testing.assert_allclose(convolved(maps, kernel, stride=stride), expected, atol=1e-5)


def test_a_deformable_convolution_is_its_sum(monkeypatch: pytest.MonkeyPatch) -> None:
    """Offsets lead between pixels and outside; the broken twin takes (x, y) for (y, x)."""
    maps, kernel = (
        planted("deformed", 6, 5, 2),
        SquareConvolution(weight=planted("deformed kernel", 3, 2, 3, 3), bias=planted("b", 3)),
    )
    offsets = 2 * planted("offsets", 6, 5, 9, 2)
    offsets[0, 0] = 0  # on pixels
    expected = summed(maps, kernel, offsets)
    for unfolded in (1, 1 << 20):
        monkeypatch.setattr(convolution, "_UNFOLDED", unfolded)
        np.testing.assert_allclose(deformed(maps, kernel, offsets, unchanged), expected, atol=1e-5)
    assert np.abs(deformed(maps, kernel, offsets[..., ::-1], unchanged) - expected).max() > 0.1
    np.testing.assert_allclose(deformed(maps, kernel, 0 * offsets, unchanged), convolved(maps, kernel), atol=1e-5)


def test_batch_normalization_is_part_of_the_layer() -> None:
    """Second method: the layer, then (x - mean) / sqrt(variance + 1e-5) scale + shift."""
    maps, plain = planted("normal", 5, 4, 2), SquareConvolution(weight=planted("w", 3, 2, 3, 3), bias=planted("b", 3))
    mean, scale, shift = planted("mean", 3), planted("scale", 3), planted("shift", 3)
    variance = np.abs(planted("variance", 3))
    expected = (convolved(maps, plain) - mean) / np.sqrt(variance + 1e-5) * scale + shift
    np.testing.assert_allclose(convolved(maps, plain.normalized(mean, variance, scale, shift)), expected, atol=1e-4)


def test_values_between_pixels_and_enlarged_maps() -> None:
    maps = planted("between", 4, 6, 2)
    x, y = generator("x").uniform(-2, 7, 50), generator("y").uniform(-2, 5, 50)
    expected = [[read(maps, b, a, channel) for channel in (0, 1)] for a, b in zip(x, y, strict=True)]
    np.testing.assert_allclose(sampled(maps, x, y), expected, atol=1e-6)
    large = stretched(maps, 10, 13)
    for i, j in ((0, 0), (9, 12), (3, 5), (9, 1)):
        np.testing.assert_allclose(large[i, j], [read(maps, i * 3 / 9, j * 5 / 12, channel) for channel in (0, 1)], atol=1e-6)
    np.testing.assert_allclose(pooled(maps, 2)[1, 2], maps[2:4, 4:6].mean(axis=(0, 1)), atol=1e-6)
    np.testing.assert_array_equal(stretched(maps[:1, :1], 3, 2), np.broadcast_to(maps[:1, :1], (3, 2, 2)))


def test_activations() -> None:
    values = np.array([-200.0, -1.0, 0.0, 0.5, 200.0], dtype=np.float32)
    expected = [1.0507009873554805 * (v if v > 0 else 1.6732632423543772 * math.expm1(v)) for v in values.tolist()]
    np.testing.assert_allclose(selu(values.copy()), expected, rtol=1e-6, atol=1e-6)
    np.testing.assert_array_equal(relu(values.copy()), [0, 0, 0, 0.5, 200])
    np.testing.assert_allclose(sigmoid(values), [0, 1 / (1 + math.e), 0.5, 1 / (1 + math.exp(-0.5)), 1], rtol=1e-6, atol=1e-12)


@pytest.mark.parametrize("bad", [np.zeros((2, 1, 3, 3)), np.zeros((2, 1, 1, 1), "f4"), np.full((2, 1, 3, 3), np.nan, "f4")])
def test_tensors_that_do_not_fit(bad: np.ndarray) -> None:
    with pytest.raises(InputError, match=r"weight conv\.weight must be finite float32"):
        layer({"conv.weight": bad}, "conv", outputs=2, inputs=1, side=3, biased=False)
