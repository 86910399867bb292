"""HardTFeat against its defining equation, against PyTorch, and against SIFT on a real pair."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from scipy import signal

from veil.errors import InputError
from veil.extraction.hardtfeat import CHUNK, HardTFeat
from veil.extraction.learned import describe_keypoints
from veil.extraction.sift import extract_sift
from veil.features import Features
from veil.files.photographs.pictures import read_picture
from veil.files.weights import load_hardtfeat
from worlds import generator

LAYERS = ("features.0", "features.3", "classifier.1")


@pytest.fixture(scope="module")
def network() -> HardTFeat:
    return load_hardtfeat()


def tensors(network: HardTFeat) -> dict[str, np.ndarray]:
    """The state dict of a network, from which it was made."""
    layers = zip(LAYERS, (network.first, network.second, network.last), strict=True)
    return {f"{name}.{part}": getattr(layer, part) for name, layer in layers for part in ("weight", "bias")}


def patches(name: str, count: int) -> np.ndarray:
    """Gray values between 0 and 255, smooth and each different."""
    values = generator(name).normal(size=(count, 32, 32)).cumsum(axis=2).cumsum(axis=1)
    values -= values.min(axis=(1, 2), keepdims=True)
    return (values / values.max(axis=(1, 2), keepdims=True) * 255).astype(np.float32)


def correlated(maps: np.ndarray, weight: np.ndarray, bias: np.ndarray) -> np.ndarray:
    """The layer's equation in float64: sum over inputs of cross-correlations, plus the bias."""
    return np.stack(
        [
            sum(signal.correlate(m, k, mode="valid", method="direct") for m, k in zip(maps, kernel, strict=True)) + b
            for kernel, b in zip(weight.astype(np.float64), bias, strict=True)
        ]
    )


@pytest.mark.slow
def test_agrees_with_the_defining_equation(network: HardTFeat) -> None:
    """Oracle: the published network written down layer by layer, in float64."""
    weights, two = tensors(network), patches("defining", 2)
    for patch, descriptor in zip(two.astype(np.float64), network.describe(two), strict=True):
        maps = ((patch - patch.mean()) / (patch.std(ddof=1) + 1e-7))[None]
        for name in LAYERS:
            maps = np.tanh(correlated(maps, weights[f"{name}.weight"], weights[f"{name}.bias"]))
            if name == "features.0":
                maps = np.maximum.reduce([maps[:, i::2, j::2] for i in (0, 1) for j in (0, 1)])
        expected = maps.ravel() / np.linalg.norm(maps)
        np.testing.assert_allclose(descriptor, expected, atol=2e-6)


def test_agrees_with_pytorch(network: HardTFeat) -> None:
    """Second method: PyTorch's own layers, over more than one chunk."""
    torch = pytest.importorskip("torch", reason="the second method needs PyTorch")
    functional = torch.nn.functional
    weights = {name: torch.from_numpy(array.copy()) for name, array in tensors(network).items()}
    many = patches("pytorch", CHUNK + 5)
    maps = torch.from_numpy(many)[:, None]
    flat = maps.flatten(1)
    maps = (maps - flat.mean(1).view(-1, 1, 1, 1)) / (flat.std(1).view(-1, 1, 1, 1) + 1e-7)
    for name in LAYERS:
        maps = torch.tanh(functional.conv2d(maps, weights[f"{name}.weight"], weights[f"{name}.bias"]))
        if name == "features.0":
            maps = functional.max_pool2d(maps, 2)
    expected = functional.normalize(maps.flatten(1)).numpy()
    np.testing.assert_allclose(network.describe(many), expected, atol=1e-5)


def test_brightness_and_contrast_do_not_matter(network: HardTFeat) -> None:
    """Oracle: the definition's invariance; another patch is far away."""
    one = patches("contrast", 2)
    before = network.describe(one)
    np.testing.assert_allclose(network.describe(0.25 * one + 70), before, atol=1e-4)
    assert np.linalg.norm(before[0] - before[1]) > 0.3


@pytest.mark.parametrize("gray", [0.0, 0.1, 77.7, 255.0])
def test_constant_patch_is_finite(network: HardTFeat, gray: float) -> None:
    """Oracle: the network's answer to zeros, whatever the gray value."""
    constant = network.describe(np.full((1, 32, 32), gray, dtype=np.float32))
    np.testing.assert_allclose(np.linalg.norm(constant), 1, atol=1e-6)
    np.testing.assert_array_equal(constant, network.describe(np.zeros((1, 32, 32), dtype=np.float32)))


def test_no_patches_give_no_descriptors(network: HardTFeat) -> None:
    """Oracle: the shape."""
    assert network.describe(np.empty((0, 32, 32), dtype=np.float32)).shape == (0, 128)


def test_unusable_weights_and_patches_are_refused(network: HardTFeat) -> None:
    """Oracle: each refusal names the tensor; entries of the other descriptor are no reason to refuse."""
    good = tensors(network)
    HardTFeat.from_arrays(good | {"SIFT.pk.0.weight": np.full((1, 1), np.nan)})
    bias = good["features.3.bias"]
    for wrong in (np.where(bias == bias[3], np.nan, bias).astype(np.float32), bias[:-1], bias.astype(np.float64)):
        with pytest.raises(InputError, match=r"features\.3\.bias must be finite float32"):
            HardTFeat.from_arrays(good | {"features.3.bias": wrong})
    with pytest.raises(InputError, match=r"unknown: \['features\.9\.bias'\]"):
        HardTFeat.from_arrays(good | {"features.9.bias": bias})
    with pytest.raises(InputError, match=r"missing: \['classifier\.1\.bias'\]"):
        HardTFeat.from_arrays({name: array for name, array in good.items() if name != "classifier.1.bias"})
    with pytest.raises(InputError, match="finite"):
        network.describe(np.full((1, 32, 32), np.nan, dtype=np.float32))


def test_bundled_weights_are_the_published_ones(network: HardTFeat, veil_data: Path) -> None:
    """Oracle: the converted state dict, bit for bit."""
    with np.load(veil_data / "weights" / "hardtfeat.npz") as published:
        for name, array in tensors(network).items():
            assert array.tobytes() == published[name].tobytes()


def right_matches(first: Features, second: Features, second_from_first: np.ndarray) -> int:
    """Mutual nearest neighbors whose keypoints agree within 3 px; the homography has pixel centers at integers."""
    similar = first.descriptors.astype(np.float32) @ second.descriptors.astype(np.float32).T
    there, back = similar.argmax(axis=1), similar.argmax(axis=0)
    mutual = np.flatnonzero(back[there] == np.arange(len(first)))
    moved = np.column_stack([first.keypoints[mutual].astype(np.float64) - 0.5, np.ones(len(mutual))]) @ second_from_first.T
    errors = moved[:, :2] / moved[:, 2:] + 0.5 - second.keypoints[there[mutual]]
    return int((np.linalg.norm(errors, axis=1) < 3).sum())


@pytest.mark.slow
@pytest.mark.parametrize(("other", "at_least"), [(2, 0.9), (4, 1.4)])
def test_matches_as_well_as_sift(network: HardTFeat, veil_data: Path, other: int, at_least: float) -> None:
    """Second method: SIFT on the same keypoints; the learned descriptor gains as the viewpoint turns away."""
    folder = veil_data / "homography" / "oxford_graf"
    pictures = [read_picture(folder / f"{i}.jpg") for i in (1, other)]
    sift = [extract_sift(one) for one in pictures]
    learned = [describe_keypoints(one, raw, "hardtfeat", network) for one, raw in zip(pictures, sift, strict=True)]
    second_from_first = np.loadtxt(folder / f"H_1_{other}")
    by_sift = right_matches(sift[0], sift[1], second_from_first)
    assert by_sift > 50
    assert right_matches(learned[0], learned[1], second_from_first) >= at_least * by_sift
