"""The figure of a codebook's quality: distances to the nearest word, beside those of random and of nearest descriptors."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from veil.files.atomic import replacing
from veil.studies.matching.quantization import Quantization

_WORD, _RANDOM, _OTHER = "#0072B2", "#999999", "#D55E00"


def draw_quantization(path: Path, found: Quantization, *, title: str) -> None:
    """Write the figure (PNG or SVG by its suffix): histograms of the three kinds of distances, with their medians."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    groups = [
        (found.to_word, _WORD, "to the nearest word"),
        (found.to_random, _RANDOM, "between two random descriptors"),
        (found.to_other, _OTHER, f"to the nearest other of {found.pool_size:,} descriptors"),
    ]
    edges = np.linspace(0, max(float(values.max()) for values, _, _ in groups) * 1.02, 61)
    figure, axis = plt.subplots(figsize=(8, 4.5), constrained_layout=True)
    for values, color, label in groups:
        median = float(np.median(values))
        style = "step" if color == _OTHER else "stepfilled"
        axis.hist(
            values,
            edges.tolist(),
            density=True,
            histtype=style,  # type: ignore[arg-type]
            color=color,
            alpha=1 if style == "step" else 0.55,
            linewidth=1.6,
            label=f"{label}, median {median:.2f}",
        )
        axis.axvline(median, ymax=0.72, color=color, linestyle="--", linewidth=1)
    axis.set_xlim(0, edges[-1])
    axis.set_xlabel("distance of unit vectors")
    axis.set_ylabel("density")
    axis.set_yticks([])
    axis.set_ylim(0, 1.35 * axis.get_ylim()[1])  # room for the legend above the highest bin
    axis.legend(fontsize=9, frameon=False, loc="upper left")
    axis.set_title(title, fontsize=10)
    with replacing(path) as temporary:
        figure.savefig(temporary, dpi=120)
    plt.close(figure)
