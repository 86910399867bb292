"""MAE, PSNR and SSIM against numbers by hand and against their definitions written out as loops."""

from __future__ import annotations

import math

import numpy as np
import pytest

from veil.errors import InputError
from veil.inversion.quality import quality
from worlds import generator


def flat(level: int, side: int = 16) -> np.ndarray:
    return np.full((side, side, 3), level, dtype=np.uint8)


def ssim_by_hand(x: np.ndarray, y: np.ndarray) -> float:
    """Wang et al. 2004, Eq. 13, window by window."""
    offsets = np.arange(-5, 6)
    window = np.exp(-(offsets[:, None] ** 2 + offsets[None] ** 2) / (2 * 1.5**2))
    window /= window.sum()
    values = []
    for row in range(5, x.shape[0] - 5):
        for column in range(5, x.shape[1] - 5):
            a, b = (p[row - 5 : row + 6, column - 5 : column + 6] for p in (x, y))
            ma, mb = (window * a).sum(), (window * b).sum()
            va, vb = (window * (a - ma) ** 2).sum(), (window * (b - mb) ** 2).sum()
            cov = (window * (a - ma) * (b - mb)).sum()
            top = (2 * ma * mb + 0.0001) * (2 * cov + 0.0009)
            values.append(top / ((ma**2 + mb**2 + 0.0001) * (va + vb + 0.0009)))
    return float(np.mean(values))


def test_flat_pictures_by_hand() -> None:
    """Levels 51 and 102 are 0.2 and 0.4: MAE 0.2, PSNR -20 log10 0.2 = 13.98 dB, SSIM its luminance term."""
    scores = quality(flat(51), flat(102))
    assert scores.mae == pytest.approx(0.2)
    assert scores.psnr == pytest.approx(-20 * math.log10(0.2)) and scores.psnr == pytest.approx(13.9794, abs=1e-4)
    assert scores.ssim == pytest.approx((2 * 0.2 * 0.4 + 0.0001) / (0.2**2 + 0.4**2 + 0.0001))


def test_one_wrong_pixel_by_hand() -> None:
    """Of 256 pixels one is off by 1 in one of three channels."""
    other = flat(0)
    other[0, 0, 1] = 255
    scores = quality(flat(0), other)
    assert scores.mae == pytest.approx(1 / 768)
    assert scores.psnr == pytest.approx(10 * math.log10(768))
    assert scores.ssim == pytest.approx((2 + found_channel(other)) / 3)


def found_channel(other: np.ndarray) -> float:
    return ssim_by_hand(np.zeros((16, 16)), other[:, :, 1] / 255)


def test_ssim_is_its_definition() -> None:
    random = generator("ssim")
    x = random.integers(0, 256, (19, 15, 3), dtype=np.uint8)
    y = np.clip(x + random.normal(0, 40, x.shape), 0, 255).astype(np.uint8)
    expected = np.mean([ssim_by_hand(x[..., c] / 255, y[..., c] / 255) for c in range(3)])
    assert quality(x, y).ssim == pytest.approx(expected, abs=1e-10)
    assert 0.3 < expected < 0.95  # neither limit, where wrong formulas agree


def test_a_picture_is_like_itself_and_noise_is_like_nothing() -> None:
    random = generator("quality")
    x, y = random.integers(0, 256, (2, 64, 64, 3), dtype=np.uint8)
    same, chance = quality(x, x), quality(x, y)
    assert (same.mae, same.psnr) == (0.0, math.inf) and same.ssim == pytest.approx(1.0)
    assert -0.05 < chance.ssim < 0.05
    assert chance.mae == pytest.approx(1 / 3, abs=0.02)  # of two uniform numbers
    assert chance.psnr == pytest.approx(10 * math.log10(6), abs=0.3)
    assert quality(y, x) == chance


def test_a_negative_is_worse_than_a_blur() -> None:
    """Signs: SSIM of a negative is below 0, which MAE alone would not tell from any other error."""
    x = generator("negative").integers(0, 256, (40, 40, 3), dtype=np.uint8)
    assert quality(x, 255 - x).ssim < -0.5


def test_pictures_that_cannot_be_compared_are_refused() -> None:
    with pytest.raises(InputError, match="cannot be compared"):
        quality(flat(0), flat(0, side=17))
    with pytest.raises(InputError, match="at least 11"):
        quality(flat(0, side=10), flat(0, side=10))
