"""The figure of `veil evaluate faces`: accuracy against m, and error curves at one m."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from jaxtyping import Bool

from veil.files.atomic import replacing
from veil.studies.faces.verification import VerificationRow, error_rates

COLORS = {"random": "#E69F00", "hybrid": "#0072B2", "adversarial": "#009E73", "hybrid+": "#CC79A7"}
_NAMES = {"p2s": "template against raw descriptor (p2s)", "s2s": "template against template (s2s)"}


def draw_verification(path: Path, rows: Sequence[VerificationRow], same: Bool[np.ndarray, "pairs"]) -> None:
    """Write the figure (PNG or SVG by its suffix); `same` says which of the pairs behind `rows` are of one person.

    Left and middle: accuracy with 95 % intervals by distance; right: false accepts against false rejects at one m.
    """
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(1, 3, figsize=(13.5, 3.9), layout="constrained")
    raw = rows[0]
    lifted = [row for row in rows if row.m]
    dims = sorted({row.m for row in lifted})
    for axis, distance in zip(axes[:2], ("p2s", "s2s"), strict=True):
        axis.axhline(100 * raw.accuracy, color="black", linewidth=1.5, label="raw")
        axis.axhspan(100 * raw.low, 100 * raw.high, color="black", alpha=0.08)
        for name in dict.fromkeys(row.lifting for row in lifted):
            curve = sorted((row for row in lifted if (row.lifting, row.distance) == (name, distance)), key=lambda row: row.m)
            middle = [100 * row.accuracy for row in curve]
            reach = [
                [max(0.0, 100 * (row.accuracy - row.low)) for row in curve],
                [max(0.0, 100 * (row.high - row.accuracy)) for row in curve],
            ]
            axis.errorbar(
                [dims.index(row.m) for row in curve],
                middle,
                yerr=reach,
                marker="o",
                markersize=4,
                capsize=3,
                color=COLORS[name],
                label=name,
            )
        axis.set_xticks(range(len(dims)), [str(m) for m in dims])
        axis.set_ylim(45, 101)
        axis.set_xlabel("dimension m of the templates")
        axis.set_ylabel("verified rightly, %")
        axis.set_title(_NAMES[distance], fontsize=10)
        axis.grid(axis="y", alpha=0.3)
    axes[0].legend(fontsize=8, frameon=False)
    shown = 4 if 4 in dims else dims[0]
    for row in rows:
        if row.m in (0, shown):
            accepts, rejects = error_rates(row.distances, same)
            color = COLORS.get(row.lifting, "black" if row.lifting == "raw" else "gray")
            label = f"{row.lifting}, {row.distance}" if row.m else row.lifting
            axes[2].plot(
                100 * accepts, 100 * rejects, color=color, linestyle="--" if row.distance == "s2s" else "-", label=label
            )
    axes[2].set_xlabel("false accepts, %")
    axes[2].set_ylabel("false rejects, %")
    axes[2].set_xlim(0, 30)
    axes[2].set_ylim(0, 30)
    axes[2].set_title(f"error curves at m = {shown}", fontsize=10)
    axes[2].grid(alpha=0.3)
    axes[2].legend(fontsize=7, framealpha=0.85, edgecolor="none")
    with replacing(path) as temporary:
        figure.savefig(temporary, dpi=120)
    pyplot.close(figure)
