"""Figures of `veil evaluate inversion`: photographs beside their reconstructions, and similarity against m."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from veil.errors import InputError
from veil.files.atomic import replacing
from veil.studies.attacks.inversion import ORDER, RAW, InversionRow, Inverted

_COLORS = {RAW: "#000000", "database": "#D55E00", "clustering": "#E69F00", "direct": "#0072B2", "nearest": "#009E73"}


def draw_inversions(
    path: Path, originals: Mapping[str, np.ndarray], pictures: Sequence[Inverted], *, m: int, title: str
) -> None:
    """Write the figure (PNG or SVG by its suffix): a row for each photograph, with each attack's picture at `m` and its SSIM.

    `originals` are crops of photographs (256x256 px) by name. Raises InputError if there is no picture of one of them.
    """
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    shown = {(item.name, item.attack): item for item in pictures if item.m in (0, m)}
    attacks = [attack for attack in ORDER if any(key[1] == attack for key in shown)]
    missing = [name for name in originals if not any(key[0] == name for key in shown)]
    if missing or not originals:
        raise InputError(f"nothing was reconstructed at m = {m} of {missing[0] if missing else 'any photograph'}")
    size = (1.75 * (1 + len(attacks)), 1.95 * len(originals) + 0.35)
    figure, axes = plt.subplots(len(originals), 1 + len(attacks), figsize=size, squeeze=False, constrained_layout=True)
    for line, (name, original) in zip(axes, originals.items(), strict=True):
        _panel(line[0], original, "original")
        for axis, attack in zip(line[1:], attacks, strict=True):
            item = shown.get((name, attack))
            if item is None:
                axis.axis("off")
            else:
                _panel(axis, item.rgb, f"{attack}  {item.ssim:.2f}")
    figure.suptitle(title, fontsize=9)
    with replacing(path) as temporary:
        figure.savefig(temporary, dpi=120)
    plt.close(figure)


def _panel(axis, rgb: np.ndarray, title: str) -> None:  # type: ignore[no-untyped-def]
    """Draw one picture with its title."""
    axis.imshow(rgb, interpolation="nearest")
    axis.set_title(title, fontsize=8)
    axis.set_xticks([])
    axis.set_yticks([])


def draw_similarity(path: Path, table: Sequence[InversionRow], *, title: str) -> None:
    """Write the figure (PNG or SVG by its suffix): mean SSIM with its 95 % interval against m, a curve for each attack.

    Raw descriptors are a level line.
    """
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, axis = plt.subplots(figsize=(6.5, 4.2), constrained_layout=True)
    dims = sorted({row.m for row in table} - {0})
    for attack in dict.fromkeys((*ORDER, *(row.attack for row in table))):
        own = sorted((row for row in table if row.attack == attack), key=lambda row: row.m)
        if not own:
            continue
        color = _COLORS.get(attack, "#999999")
        if attack == RAW:
            axis.axhline(own[0].ssim, color=color, linewidth=1.5, label="raw descriptors")
            axis.axhspan(*own[0].interval, color=color, alpha=0.08)
            continue
        middle = [row.ssim for row in own]
        reach = np.abs(np.array([row.interval for row in own]).T - middle)
        axis.errorbar(
            [row.m for row in own], middle, yerr=reach, color=color, marker="o", markersize=4, capsize=3, label=attack
        )
    axis.set_xscale("log", base=2)
    axis.set_xticks(dims, [str(m) for m in dims])
    axis.set_xlabel("dimension m of the subspaces")
    axis.set_ylabel("SSIM, mean and its 95 % interval")
    axis.legend(fontsize=8, frameon=False)
    axis.set_title(title, fontsize=10)
    with replacing(path) as temporary:
        figure.savefig(temporary, dpi=120)
    plt.close(figure)
