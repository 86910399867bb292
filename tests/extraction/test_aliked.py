"""ALIKED against the published network written down slowly, against turned pictures, and against SIFT on real pairs."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from scipy import ndimage, signal

from veil.errors import InputError
from veil.extraction import extract
from veil.extraction.aliked import Aliked
from veil.extraction.detection import DetectorOptions, local_maxima
from veil.extraction.picture import Picture
from veil.extraction.sift import SiftOptions
from veil.features import Features
from veil.files.photographs.examples import other_place
from veil.files.photographs.pictures import read_picture, read_rgb
from veil.files.weights import load_aliked
from veil.matching.neighbors import match
from veil.mechanisms.public import publish
from worlds import generator

ALPHA, SCALE = 1.6732632423543772, 1.0507009873554805


@pytest.fixture(scope="module")
def network() -> Aliked:
    return load_aliked()


@pytest.fixture(scope="module")
def weights() -> dict[str, np.ndarray]:
    from importlib.resources import as_file, files

    with as_file(files("veil") / "data" / "aliked-n16rot.npz") as path, np.load(path) as arrays:
        return {name: array.astype(np.float64) for name, array in arrays.items()}


def gate(x: np.ndarray) -> np.ndarray:
    return SCALE * np.where(x > 0, x, ALPHA * np.expm1(np.minimum(x, 0)))


def correlated(maps: np.ndarray, weight: np.ndarray, bias: np.ndarray | float = 0.0) -> np.ndarray:
    """Cross-correlation of maps (channels, rows, columns), with zeros around."""
    edge = weight.shape[-1] // 2
    wide = np.pad(maps, ((0, 0), (edge, edge), (edge, edge)))
    total = [signal.correlate(wide, kernel, mode="valid", method="direct")[0] for kernel in weight]
    return np.stack(total) + np.reshape(bias, (-1, 1, 1))


def moved(maps: np.ndarray, weights: Mapping[str, np.ndarray], name: str) -> np.ndarray:
    """Deformable convolution: shifted maps for each tap, by spline-free interpolation of SciPy."""
    _, rows, columns = maps.shape
    offsets = correlated(maps, weights[f"{name}.offset_conv.weight"], weights[f"{name}.offset_conv.bias"])
    offsets = np.clip(offsets, -max(rows, columns) / 4, max(rows, columns) / 4)
    kernel, total = weights[f"{name}.regular_conv.weight"], 0.0
    i, j = np.mgrid[:rows, :columns]
    padded = np.pad(maps, ((0, 0), (2, 2), (2, 2)))
    for tap, (a, b) in enumerate(np.ndindex(3, 3)):
        at = np.stack([i + a - 1 + offsets[2 * tap], j + b - 1 + offsets[2 * tap + 1]])
        wide = [ndimage.map_coordinates(m, at + 2, order=1, mode="constant") for m in padded]
        total = total + np.einsum("oc,crk->ork", kernel[:, :, a, b], np.stack(wide))
    return np.asarray(total)


def normal(x: np.ndarray, weights: Mapping[str, np.ndarray], name: str) -> np.ndarray:
    mean, variance, scale, shift = (
        weights[f"{name}.{part}"][:, None, None] for part in ("running_mean", "running_var", "weight", "bias")
    )
    return (x - mean) / np.sqrt(variance + 1e-5) * scale + shift


def block(x: np.ndarray, weights: Mapping[str, np.ndarray], name: str) -> np.ndarray:
    def conv(y: np.ndarray, which: int) -> np.ndarray:
        key = f"{name}.conv{which}"
        y = correlated(y, weights[f"{key}.weight"]) if f"{key}.weight" in weights else moved(y, weights, key)
        return normal(y, weights, f"{name}.bn{which}")

    y = conv(gate(conv(x, 1)), 2)
    if f"{name}.downsample.weight" in weights:
        y = y + correlated(x, weights[f"{name}.downsample.weight"], weights[f"{name}.downsample.bias"])
    return gate(y)


def enlarged(maps: np.ndarray, rows: int, columns: int) -> np.ndarray:
    at = np.meshgrid(np.linspace(0, maps.shape[1] - 1, rows), np.linspace(0, maps.shape[2] - 1, columns), indexing="ij")
    return np.stack([ndimage.map_coordinates(m, at, order=1, mode="nearest") for m in maps])


def slow(rgb: np.ndarray, weights: Mapping[str, np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """Scores and features of unit length, as the paper's Fig. 2 has them; sides are multiples of 32."""
    x = np.moveaxis(rgb / 255.0, -1, 0)
    levels = []
    for k, factor in enumerate((1, 2, 4, 4), start=1):
        _, rows, columns = x.shape
        x = x.reshape(-1, rows // factor, factor, columns // factor, factor).mean(axis=(2, 4))
        x = block(x, weights, f"block{k}")
        levels.append(enlarged(gate(correlated(x, weights[f"conv{k}.weight"])), *rgb.shape[:2]))
    joined = np.concatenate(levels)
    score = joined
    for index in (0, 2, 4, 6):
        score = correlated(gate(score) if index else score, weights[f"score_head.{index}.weight"])
    return 1 / (1 + np.exp(-score[0])), joined / np.linalg.norm(joined, axis=0)


def slow_descriptor(features: np.ndarray, weights: Mapping[str, np.ndarray], x: float, y: float) -> np.ndarray:
    """The descriptor head for one keypoint inside the image."""
    patch = features[:, int(y) - 1 : int(y) + 2, int(x) - 1 : int(x) + 2]
    hidden = gate(
        np.einsum("ocij,cij->o", weights["desc_head.offset_conv.0.weight"], patch) + weights["desc_head.offset_conv.0.bias"]
    )
    offsets = weights["desc_head.offset_conv.2.weight"][:, :, 0, 0] @ hidden + weights["desc_head.offset_conv.2.bias"]
    offsets = np.clip(offsets, -max(features.shape[1:]) / 4, max(features.shape[1:]) / 4)
    places = len(offsets) // 2
    total = np.zeros(features.shape[0])
    padded, channels = np.pad(features, ((0, 0), (2, 2), (2, 2))), np.arange(len(features))
    for k in range(places):
        at = [channels, np.full(len(channels), y + offsets[places + k] + 2), np.full(len(channels), x + offsets[k] + 2)]
        read = ndimage.map_coordinates(padded, at, order=1, mode="constant")
        total += gate(weights["desc_head.sf_conv.weight"][:, :, 0, 0] @ read) @ weights["desc_head.agg_weights"][k]
    return total / np.linalg.norm(total)


def photograph(rows: int, columns: int) -> np.ndarray:
    """A part of the bundled photograph of another place, in colors."""
    with other_place() as path:
        return np.ascontiguousarray(read_rgb(path)[200 : 200 + rows, 100 : 100 + columns])


@pytest.mark.slow
def test_agrees_with_the_published_network(network: Aliked, weights: dict[str, np.ndarray]) -> None:
    """Oracle: the network layer by layer in float64, by SciPy; the broken twin leaves out that taps are moved."""
    rgb = photograph(64, 96)
    scores, features = slow(rgb, weights)
    dense = network.dense(rgb)
    np.testing.assert_allclose(dense.scores, scores, atol=1e-4)
    pixels = np.stack(np.meshgrid(np.arange(96), np.arange(64)), axis=-1)
    np.testing.assert_allclose(np.moveaxis(dense.features(pixels), -1, 0), features, atol=1e-3)
    places, confidences, descriptors = network.detect_and_describe(rgb, most=40, least_score=0.0)
    for place, score, descriptor in zip(places, confidences, descriptors, strict=True):
        expected = ndimage.map_coordinates(scores, [[place[1]], [place[0]]], order=1, mode="nearest")[0]
        assert score == pytest.approx(expected, abs=1e-3)
        if 2 <= place[0] < 94 and 2 <= place[1] < 62:
            assert descriptor @ slow_descriptor(features, weights, *place.tolist()) > 0.9999
    twin = weights | {name: 0 * array for name, array in weights.items() if "conv1.offset_conv" in name}
    assert np.abs(slow(rgb, twin)[0] - scores).max() > 1e-3


def test_keypoints_are_maxima_refined_as_they_are_defined(network: Aliked) -> None:
    """Enumeration: each comes from a pixel that no pixel around exceeds, moved by the softmax of the 5 x 5 scores at 0.1."""
    rgb = photograph(96, 128)
    scores = network.dense(rgb).scores
    places, confidences, _ = network.detect_and_describe(rgb, most=50, least_score=0.05)
    maxima = np.argwhere(local_maxima(scores, 2))
    expected = []
    for i, j in maxima.tolist():
        if 2 <= i < 94 and 2 <= j < 126 and scores[i, j] > 0.05:
            around = scores[i - 2 : i + 3, j - 2 : j + 3].astype(np.float64)
            share = np.exp(around / 0.1) / np.exp(around / 0.1).sum()
            expected.append((scores[i, j], j + (share.sum(0) @ np.arange(-2, 3)), i + (share.sum(1) @ np.arange(-2, 3))))
    expected.sort(reverse=True)
    np.testing.assert_allclose(places, [row[1:] for row in expected[:50]], atol=1e-3)
    assert (np.diff([row[0] for row in expected[: len(confidences)]]) <= 0).all()
    first = scores == ndimage.maximum_filter(scores, 5, mode="constant", cval=-1)
    assert (local_maxima(scores, 2) >= first).all() and (local_maxima(scores, 2) > first).any()


def agreeing(first: Features, second: Features, truth: np.ndarray) -> int:
    """Mutual neighbors whose positions agree with the homography `truth`, of positions from the corner, in 3 px."""
    matches = match(publish(first), publish(second)).indices
    ends = np.column_stack([first.keypoints[matches[:, 0]], np.ones(len(matches))]) @ truth.T
    gaps = np.linalg.norm(ends[:, :2] / ends[:, 2:] - second.keypoints[matches[:, 1]], axis=1)
    return int((gaps < 3).sum())


@pytest.mark.slow
@pytest.mark.parametrize(("degrees", "share"), [(20, 0.5), (-30, 0.45)])
def test_turned_pictures_have_the_same_features(network: Aliked, degrees: float, share: float) -> None:
    """Planted truth: a turn, as a homography; the broken twin is to expect no turn. Quarter turns are beyond this network."""
    rgb = photograph(320, 320)
    side, angle = float(rgb.shape[0]), np.deg2rad(degrees)
    turned = np.asarray(Image.fromarray(rgb).rotate(degrees, resample=Image.Resampling.BICUBIC))
    options = DetectorOptions(max_features=300, min_score=0.0)
    first, second = (extract(Picture.of(pixels, {}, None), "aliked", options, network) for pixels in (rgb, turned))
    center = np.array([[1, 0, side / 2], [0, 1, side / 2], [0, 0, 1]])
    turn = np.array([[np.cos(angle), np.sin(angle), 0], [-np.sin(angle), np.cos(angle), 0], [0, 0, 1]])
    assert agreeing(first, second, center @ turn @ np.linalg.inv(center)) > share * len(first)
    assert agreeing(first, second, np.eye(3)) < 0.1 * len(first)


@pytest.mark.slow
def test_at_least_as_many_right_matches_as_sift(network: Aliked, veil_data: Path) -> None:
    """Second method and measured truth: SIFT with as many features, and the sequence's homography."""
    folder = veil_data / "homography" / "oxford_graf"
    shift = np.array([[1, 0, 0.5], [0, 1, 0.5], [0, 0, 1]])
    truth = shift @ np.loadtxt(folder / "H_1_3") @ np.linalg.inv(shift)
    pictures = [read_picture(folder / f"{k}.jpg") for k in (1, 3)]
    sift = [extract(p, "sift", SiftOptions(max_features=1000, first_octave=None)) for p in pictures]
    aliked = [
        extract(p, "aliked", DetectorOptions(max_features=len(s), min_score=0.0), network)
        for p, s in zip(pictures, sift, strict=True)
    ]
    assert [len(item) for item in aliked] == [len(item) for item in sift]
    assert agreeing(aliked[0], aliked[1], truth) >= agreeing(sift[0], sift[1], truth) > 100


def test_what_is_extracted(network: Aliked) -> None:
    """Space, scores and positions; a shrunk picture's keypoints are in its own pixels; gray pictures go, too."""
    rgb = photograph(128, 200)
    whole = extract(Picture.of(rgb, {}, None), "aliked", DetectorOptions(min_score=0.05), network)
    assert whole.space.descriptor == "aliked-n16rot" == network.kind and whole.space.dim == 128 and not whole.is_quantized
    assert whole.scores is not None and whole.scales is None
    small = extract(Picture.of(rgb, {}, None), "aliked", DetectorOptions(min_score=0.05, max_image_side_px=100), network)
    gaps = np.linalg.norm(small.keypoints[:, None] - whole.keypoints[None], axis=2).min(axis=1)
    assert np.median(gaps) < 3 and small.keypoints[:, 0].max() > 110
    gray = Picture(gray=Picture.of(rgb, {}, None).gray, camera=whole.camera, digest=bytes(32))
    assert len(extract(gray, "aliked", DetectorOptions(min_score=0.05), network)) > 5
    fewer = extract(Picture.of(rgb, {}, None), "aliked", SiftOptions(max_features=7), network)
    assert len(fewer) <= 7


def test_what_cannot_be(network: Aliked, weights: dict[str, np.ndarray]) -> None:
    single = {name: array.astype(np.float32) for name, array in weights.items()}
    changed = single | {"conv1.weight": single["conv1.weight"] * np.float32(1.01)}
    assert Aliked.from_arrays(changed).kind.startswith("aliked-") and Aliked.from_arrays(changed).kind != network.kind
    for bad in ({}, {k: v for k, v in single.items() if k != "conv3.weight"}, single | {"conv1.weight": np.zeros((32, 16))}):
        with pytest.raises(InputError, match=r"ALIKED's weights|must be finite float32"):
            Aliked.from_arrays(bad)
    blank = Picture.of(np.full((64, 64, 3), 128, np.uint8), {}, None)
    with pytest.raises(InputError, match="no features were found"):
        extract(blank, "aliked", None, network)
    with pytest.raises(InputError, match="needs its network"):
        extract(blank, "aliked")
    with pytest.raises(InputError, match="give SiftOptions"):
        extract(blank, "sift", DetectorOptions())
    noise = Picture.of(generator("n").integers(0, 255, (17, 16, 3)).astype(np.uint8), {}, None)
    assert len(extract(noise, "aliked", DetectorOptions(min_score=0.0), network)) >= 1
