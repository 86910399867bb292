"""Similarity of a picture and its reconstruction: MAE, PSNR and SSIM of [P23] Table 1 (docs/theory/inversion.md, Eq. 8-10)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TypedDict

import numpy as np
from jaxtyping import Float64, UInt8

from veil.errors import InputError
from veil.one_line import one_line

# Wang, Bovik, Sheikh and Simoncelli 2004, Sec. III-C: an 11x11 Gaussian window of 1.5 px, K1 = 0.01, K2 = 0.03.
SIGMA_PX, RADIUS_PX, C1, C2 = 1.5, 5, 0.01**2, 0.03**2


class QualityJson(TypedDict):
    """Measures of a reconstruction's quality; an infinite `psnr` is None."""

    mae: float
    ssim: float
    psnr: float | None


class OptionalQualityJson(TypedDict):
    """The same, each None without an original."""

    mae: float | None
    ssim: float | None
    psnr: float | None


@dataclass(frozen=True, kw_only=True)
class Quality:
    """Measures of a reconstruction's quality.

    `mae` is the mean absolute error in [0, 1], `ssim` the structural similarity in [-1, 1], and `psnr` the peak signal-to-noise
    ratio in dB (infinite for equal pictures).
    """

    mae: float
    ssim: float
    psnr: float

    __repr__ = one_line

    def as_json(self) -> QualityJson:
        """The record of docs/reference/json.md."""
        return {
            "mae": self.mae,
            "ssim": self.ssim,
            "psnr": self.psnr,
        }


def quality_facts(measured: Quality | None) -> OptionalQualityJson:
    """The record of a quality; without one its keys with None."""
    return {"mae": None, "ssim": None, "psnr": None} if measured is None else {**measured.as_json()}


def quality(original: UInt8[np.ndarray, "height width 3"], other: UInt8[np.ndarray, "_ _ 3"]) -> Quality:
    """The quality of a picture beside the original, both 8-bit RGB; intensities are scaled to [0, 1].

    Raises InputError for pictures of different sizes, or smaller than 11 px a side.
    """
    if original.shape != other.shape:
        raise InputError(f"pictures of {original.shape} and {other.shape} cannot be compared; crop both alike")
    if min(original.shape[:2]) <= 2 * RADIUS_PX:
        raise InputError(f"SSIM needs pictures of at least {2 * RADIUS_PX + 1} px a side, got {original.shape}")
    x, y = original.astype(np.float64) / 255, other.astype(np.float64) / 255
    return Quality(
        mae=float(np.abs(x - y).mean()),
        ssim=float(np.mean([_ssim(x[..., channel], y[..., channel]) for channel in range(3)])),
        psnr=_psnr(float(np.square(x - y).mean())),
    )


def _psnr(mean_squared_error: float) -> float:
    """Peak signal-to-noise ratio in dB with a peak of 1 (docs/theory/inversion.md, Eq. 9)."""
    return -10 * math.log10(mean_squared_error) if mean_squared_error > 0 else math.inf


def _ssim(x: Float64[np.ndarray, "height width"], y: Float64[np.ndarray, "height width"]) -> float:
    """Structural similarity of one channel: mean of docs/theory/inversion.md, Eq. 10, over all windows that lie inside."""
    mean_x, mean_y = _windowed(x), _windowed(y)
    spread_x, spread_y = _windowed(x * x) - mean_x**2, _windowed(y * y) - mean_y**2
    shared = _windowed(x * y) - mean_x * mean_y
    luminance = (2 * mean_x * mean_y + C1) / (mean_x**2 + mean_y**2 + C1)
    return float((luminance * (2 * shared + C2) / (spread_x + spread_y + C2)).mean())


def _windowed(values: Float64[np.ndarray, "height width"]) -> Float64[np.ndarray, "inner_height inner_width"]:
    """Weighted means over the Gaussian windows that lie inside."""
    from scipy import ndimage

    smooth = ndimage.gaussian_filter(values, SIGMA_PX, radius=RADIUS_PX)
    return smooth[RADIUS_PX:-RADIUS_PX, RADIUS_PX:-RADIUS_PX]
