"""Figures of `veil evaluate inversion`: photographs beside their reconstructions, and similarity against m."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from veil.errors import InputError
from veil.report.figures import BLUE, GRAY, GREEN, ORANGE, VERMILION, draw_curve, draw_level, drawn, legend_below, log2_axis
from veil_lab.studies.attacks.inversion import ORDER, RAW, InversionRow, Inverted

_COLORS = {"database": VERMILION, "clustering": ORANGE, "direct": BLUE, "nearest": GREEN}


def draw_inversions(
    path: Path, originals: Mapping[str, np.ndarray], pictures: Sequence[Inverted], *, m: int, title: str
) -> None:
    """Write the figure (PNG or SVG by its suffix): a row for each photograph, with each attack's picture at `m` and its SSIM.

    `originals` are crops of photographs (256x256 px) by name. Raises InputError if there is no picture of one of them.
    """
    shown = {(item.name, item.attack): item for item in pictures if item.m in (0, m)}
    attacks = [attack for attack in ORDER if any(key[1] == attack for key in shown)]
    missing = [name for name in originals if not any(key[0] == name for key in shown)]
    if missing or not originals:
        raise InputError(f"nothing was reconstructed at m = {m} of {missing[0] if missing else 'any photograph'}")
    size = (1.75 * (1 + len(attacks)), 1.95 * len(originals) + 0.35)
    with drawn(path, len(originals), 1 + len(attacks), size=size, grid=None, title=title) as (_, axes):
        for line, (name, original) in zip(axes, originals.items(), strict=True):
            _panel(line[0], original, "original")
            for axis, attack in zip(line[1:], attacks, strict=True):
                item = shown.get((name, attack))
                if item is None:
                    axis.axis("off")
                else:
                    _panel(axis, item.rgb, f"{attack}  {item.ssim:.2f}")


def _panel(axis: Any, rgb: np.ndarray, title: str) -> None:
    """Draw one picture with its title."""
    axis.imshow(rgb, interpolation="nearest")
    axis.set_title(title, fontsize=8)
    axis.spines[:].set_visible(False)
    axis.set_xticks([])
    axis.set_yticks([])


def draw_similarity(path: Path, table: Sequence[InversionRow], *, title: str) -> None:
    """Write the figure (PNG or SVG by its suffix): mean SSIM with its 95 % interval against m, a curve for each attack.

    Raw descriptors are a level line.
    """
    with drawn(path, size=(6.5, 4.2), title=title) as (figure, axes):
        _similarity(axes[0, 0], table)
        legend_below(figure, columns=5)


def _similarity(axis: Any, table: Sequence[InversionRow]) -> None:
    """Draw a curve for each attack."""
    for attack in dict.fromkeys((*ORDER, *(row.attack for row in table))):
        own = sorted((row for row in table if row.attack == attack), key=lambda row: row.m)
        if not own:
            continue
        if attack == RAW:
            draw_level(axis, own[0].ssim, *own[0].interval, label="raw descriptors")
            continue
        low, high = zip(*(row.interval for row in own), strict=True)
        middle, color = [row.ssim for row in own], _COLORS.get(attack, GRAY)
        draw_curve(axis, [row.m for row in own], middle, low, high, color=color, label=attack)
    log2_axis(axis, sorted({row.m for row in table} - {0}))
    axis.set_xlabel("dimension m of the subspaces")
    axis.set_ylabel("SSIM, mean and its 95 % interval")
