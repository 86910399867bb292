"""Patches against an analytic image, quarter turns, COLMAP's own orientations, and the pyramid's promise."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import ndimage, spatial

from veil.errors import InputError, RangeError
from veil.extraction import learned as module
from veil.extraction.learned import sample_patches
from veil.extraction.picture import Picture
from veil.extraction.sift import SiftOptions, extract_sift
from worlds import generator


def f32(*values: float) -> np.ndarray:
    return np.array(values, dtype=np.float32)


def texture(name: str, height: int, width: int, blur_px: float) -> np.ndarray:
    """Smooth noise, 8 bits."""
    noise = ndimage.gaussian_filter(generator(name).normal(size=(height, width)), blur_px)
    return np.clip(128 + 45 * noise / noise.std(), 0, 255).astype(np.uint8)


def turned_right(image: np.ndarray) -> np.ndarray:
    """A quarter turn clockwise: what lay at (x, y) from the corner lies at (height - y, x)."""
    return np.ascontiguousarray(np.rot90(image, -1))


@pytest.mark.parametrize("scale", [0.7, 1.9, 4.0, 11.0])
def test_ramp_is_sampled_exactly(scale: float) -> None:
    """Oracle: bilinear sampling and a symmetric blur keep a linear function, so the patch is that function."""
    rows, columns = np.mgrid[:700, :800] + 0.5
    image = (0.5 * columns - 0.25 * rows + 300).astype(np.float32)
    center, angle = f32(401.3, 352.8), 0.7
    patch = sample_patches(image, center[None], scales=f32(scale), orientations=f32(angle), support_scale=24.0)[0]
    v, u = (np.mgrid[:32, :32] - 15.5) * (24.0 * scale / 32)
    x = center[0] + np.cos(angle) * u - np.sin(angle) * v
    y = center[1] + np.sin(angle) * u + np.cos(angle) * v
    np.testing.assert_allclose(patch, 0.5 * x - 0.25 * y + 300, atol=2e-3)


def test_upright_patch_of_unit_step_is_a_crop() -> None:
    """Oracle: indexing. Rows are y and columns x, and a pixel's center is at +0.5."""
    image = texture("crop", 60, 90, 1.0)
    patch = sample_patches(image, f32(50, 30)[None], scales=f32(2), orientations=f32(0), support_scale=16.0)[0]
    np.testing.assert_array_equal(patch, image[14:46, 34:66])


@pytest.mark.parametrize(("scale", "blur_px", "atol"), [(1.0, 4.0, 1e-2), (6.0, 12.0, 1.5)])
def test_patch_turns_with_the_image(scale: float, blur_px: float, atol: float) -> None:
    """Inverse pair: image, keypoint and orientation turned together give the same patch; the other sense does not.

    Halving keeps the even pixels, which are others after the turn, so coarse levels agree less exactly.
    """
    image = texture("turn", 200, 260, blur_px)
    before = sample_patches(image, f32(120.25, 90.5)[None], scales=f32(scale), orientations=f32(0.4))
    moved = f32(200 - 90.5, 120.25)[None]
    right, wrong = (
        sample_patches(turned_right(image), moved, scales=f32(scale), orientations=f32(0.4 + turn))
        for turn in (np.pi / 2, -np.pi / 2)
    )
    np.testing.assert_allclose(right, before, atol=atol)
    assert np.abs(wrong - before).max() > 5 * atol


def test_orientations_of_colmap_undo_a_quarter_turn() -> None:
    """Second method: SIFT finds the same keypoints in the turned image; with its orientations patches are the same."""
    image = texture("colmap", 240, 300, 2.0)
    upright, turned = (
        extract_sift(Picture.of(np.repeat(gray[:, :, None], 3, axis=2), {}, None), SiftOptions(max_features=300))
        for gray in (image, turned_right(image))
    )
    first, second = (
        sample_patches(gray, f.keypoints, scales=f.scales, orientations=f.orientations).reshape(len(f), -1)
        for gray, f in ((image, upright), (turned_right(image), turned))
        if f.scales is not None and f.orientations is not None
    )
    expected = np.stack([240 - upright.keypoints[:, 1], upright.keypoints[:, 0]], axis=1)
    distance, nearest = spatial.cKDTree(turned.keypoints).query(expected)
    same = distance < 0.05
    assert same.sum() > 50
    agreement = [np.corrcoef(a, b)[0, 1] for a, b in zip(first[same], second[nearest[same]], strict=True)]
    assert np.median(agreement) > 0.99  # a place with two orientations may find its other one


def test_fine_detail_does_not_alias() -> None:
    """Oracle: a checkerboard of single pixels, seen from far, is gray; sampling the image itself would keep it."""
    image = np.indices((300, 300)).sum(axis=0) % 2 * 255.0
    patch = sample_patches(image, f32(150, 150)[None], scales=f32(7), orientations=f32(0.3))
    np.testing.assert_allclose(patch, 127.5, atol=0.5)


def test_step_is_one_to_two_pixels_of_the_level() -> None:
    """Oracle: the definition, at and around powers of two; a huge keypoint stops at the single pixel."""
    steps = np.array([1.0, 1.999, 2.0, 3.99, 4.0, 127.9, 128.0])
    inside = steps / 2.0 ** module._levels(steps, 1000)
    assert ((inside >= 1) & (inside < 2)).all()
    assert module._levels(np.array([0.01, 0.999, 1e30]), 1000).tolist() == [0, 0, 9]


def test_beyond_the_border_the_edge_continues() -> None:
    """Oracle: the last column's value, right of the image."""
    image = np.tile(np.arange(50, dtype=np.uint8), (40, 1))
    patch = sample_patches(image, f32(200, 20)[None], scales=f32(1), orientations=f32(1))
    assert (patch == 49).all()


def test_chunks_do_not_matter(monkeypatch: pytest.MonkeyPatch) -> None:
    """Second method: the same keypoints one at a time."""
    random = generator("chunks")
    image = texture("chunks", 120, 150, 2.0)
    keypoints = random.uniform(0, 120, (25, 2)).astype(np.float32)
    scales, angles = random.uniform(0.5, 8, 25).astype(np.float32), random.uniform(-3, 3, 25).astype(np.float32)
    monkeypatch.setattr(module, "CHUNK", 4)
    together = sample_patches(image, keypoints, scales=scales, orientations=angles)
    for row in range(25):
        one = slice(row, row + 1)
        alone = sample_patches(image, keypoints[one], scales=scales[one], orientations=angles[one])
        np.testing.assert_array_equal(alone[0], together[row])


def test_no_keypoints_give_no_patches() -> None:
    """Oracle: the shape."""
    none = sample_patches(np.zeros((20, 30), np.uint8), np.empty((0, 2), np.float32), scales=f32(), orientations=f32())
    assert none.shape == (0, 32, 32)


def test_unusable_input_is_refused() -> None:
    """Oracle: each refusal names what is wrong."""
    image, point = np.zeros((20, 30), np.float32), f32(3, 4)[None]
    with pytest.raises(InputError, match="scales"):
        sample_patches(image, point, scales=f32(np.nan), orientations=f32(0))
    with pytest.raises(InputError, match="scales"):
        sample_patches(image, point, scales=f32(0), orientations=f32(0))
    with pytest.raises(InputError, match="keypoints"):
        sample_patches(image, point * np.float32(np.inf), scales=f32(1), orientations=f32(0))
    with pytest.raises(InputError, match="image"):
        sample_patches(image * np.nan, point, scales=f32(1), orientations=f32(0))
    with pytest.raises(RangeError, match="support_scale"):
        sample_patches(image, point, scales=f32(1), orientations=f32(0), support_scale=float("nan"))
