"""The figure of a codebook's quality: distances to the nearest word, beside those of random and of nearest descriptors.

A file of its own: each figure of a command loads what it draws, and no other.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from veil.codebooks.quantization import Quantization
from veil.report.figures import BLUE, GRAY, VERMILION, drawn

_WORD, _RANDOM, _OTHER = BLUE, GRAY, VERMILION


def draw_quantization(path: Path, quantization: Quantization, *, title: str) -> None:
    """Write the figure (PNG or SVG by its suffix): histograms of the three kinds of distances, with their medians."""
    groups = [
        (quantization.to_word, _WORD, "to the nearest word"),
        (quantization.to_random, _RANDOM, "between two random descriptors"),
        (quantization.to_other, _OTHER, f"to the nearest other of {quantization.pool_size:,} descriptors"),
    ]
    edges = np.linspace(0, max(float(values.max()) for values, _, _ in groups) * 1.02, 61)
    with drawn(path, size=(8, 4.5), grid="x") as (_, axes):
        axis = axes[0, 0]
        axis.set_title(title)
        for values, color, label in groups:
            median = float(np.median(values))
            style = "step" if color == _OTHER else "stepfilled"
            axis.hist(
                values,
                edges.tolist(),
                density=True,
                histtype=style,
                color=color,
                alpha=1 if style == "step" else 0.55,
                label=f"{label}, median {median:.2f}",
            )
            axis.axvline(median, ymax=0.72, color=color, linestyle="--", linewidth=1)
        axis.set_xlim(0, edges[-1])
        axis.set_xlabel("distance of unit vectors")
        axis.set_ylabel("density")
        axis.set_yticks([])
        axis.set_ylim(0, 1.35 * axis.get_ylim()[1])  # room for the legend above the highest bin
        axis.legend(loc="upper left")
