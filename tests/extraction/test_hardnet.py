"""HardNet through kornia: its refusals, and the published architecture if torch is installed."""

from __future__ import annotations

import sys

import numpy as np
import pytest
from scipy import signal

from veil.errors import InputError
from veil.extraction.hardnet import hardnet_describe
from worlds import generator

# Mishchuk et al. 2017, Fig. 2: index in kornia's Sequential, outputs, inputs, side, stride, padding.
LAYERS = [
    (0, 32, 1, 3, 1, 1),
    (3, 32, 32, 3, 1, 1),
    (6, 64, 32, 3, 2, 1),
    (9, 64, 64, 3, 1, 1),
    (12, 128, 64, 3, 2, 1),
    (15, 128, 128, 3, 1, 1),
    (19, 128, 128, 8, 1, 0),
]


def needs_torch() -> None:
    pytest.importorskip("torch", reason="HardNet runs in PyTorch")
    pytest.importorskip("kornia", reason="HardNet comes from kornia")


def random_weights() -> dict[str, np.ndarray]:
    random, weights = generator("hardnet"), {}
    for index, outputs, inputs, side, _, _ in LAYERS:
        kernel = random.normal(size=(outputs, inputs, side, side)) / np.sqrt(inputs * side * side)
        weights[f"features.{index}.weight"] = kernel.astype(np.float32)
        weights[f"features.{index + 1}.running_mean"] = random.normal(0, 0.1, outputs).astype(np.float32)
        weights[f"features.{index + 1}.running_var"] = random.uniform(0.5, 2, outputs).astype(np.float32)
        weights[f"features.{index + 1}.num_batches_tracked"] = np.array(7)
    return weights


def test_agrees_with_the_published_layers() -> None:
    """Oracle: convolutions by SciPy, batch normalization and ReLU written down, in float64."""
    needs_torch()
    weights = random_weights()
    patch = generator("hardnet patch").uniform(0, 255, (1, 32, 32)).astype(np.float32)
    maps = ((patch - patch.mean()) / (patch.std(ddof=1) + 1e-6)).astype(np.float64)
    for index, _, _, _, stride, padding in LAYERS:
        padded = np.pad(maps, ((0, 0), (padding, padding), (padding, padding)))
        kernels = weights[f"features.{index}.weight"].astype(np.float64)
        full = np.stack([signal.correlate(padded, k, mode="valid", method="fft")[0] for k in kernels])
        mean, variance = (weights[f"features.{index + 1}.running_{name}"][:, None, None] for name in ("mean", "var"))
        maps = (full[:, ::stride, ::stride] - mean) / np.sqrt(variance + 1e-5)
        if index != LAYERS[-1][0]:
            maps = np.maximum(maps, 0)
    expected = maps.ravel() / np.linalg.norm(maps)
    np.testing.assert_allclose(hardnet_describe(patch, weights=weights)[0], expected, atol=1e-5)


def test_unusable_weights_are_refused() -> None:
    """Oracle: each refusal says what is wrong; dropping one tensor or spoiling one number is enough."""
    needs_torch()
    weights, patch = random_weights(), np.ones((1, 32, 32), dtype=np.float32)
    with pytest.raises(InputError, match=r"infinity in features\.0\.weight"):
        hardnet_describe(patch, weights=weights | {"features.0.weight": np.full((32, 1, 3, 3), np.nan)})
    del weights["features.19.weight"]
    with pytest.raises(InputError, match="not HardNet's weights"):
        hardnet_describe(patch, weights=weights)


def test_unreachable_weights_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Oracle: a download that fails becomes an error with a remedy, not random weights."""
    needs_torch()
    from kornia.feature import hardnet

    def offline(*_: object, **__: object) -> None:
        raise OSError("offline")

    monkeypatch.setattr(hardnet, "load_state_dict_from_url", offline)
    with pytest.raises(InputError, match="go online once"):
        hardnet_describe(np.ones((1, 32, 32), dtype=np.float32), weights=None)


@pytest.mark.parametrize("missing", ["torch", "kornia.feature"])
def test_missing_extra_is_named(monkeypatch: pytest.MonkeyPatch, missing: str) -> None:
    """Oracle: the error names the extra to install."""
    monkeypatch.setitem(sys.modules, missing, None)
    with pytest.raises(InputError, match=r"install veil\[hardnet\]"):
        hardnet_describe(np.ones((1, 32, 32), dtype=np.float32), weights=None)
