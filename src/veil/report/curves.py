"""The figure of mean matching accuracy against the pixel threshold, in the layout of Dusmanu et al. 2021, Fig. 2."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from veil.files.atomic import replacing

# One hue a strategy, darker with larger m: readable in print and with the common color deficiencies (Okabe-Ito).
_COLORS = {
    "random": "#999999",
    "adversarial": "#D55E00",
    "hybrid": "#E69F00",
    "sub-adversarial": "#CC79A7",
    "sub-hybrid": "#0072B2",
}
_DASHES = {2: "-", 4: "--", 8: "-.", 16: ":"}


def draw_accuracy(path: Path, rows: Sequence[dict], *, title: str) -> None:
    """Write the figure (PNG or SVG by its suffix); `rows` as in `veil evaluate homographies --json`."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    columns = [("p2s", "paper"), ("s2s", "paper"), ("p2s", "real"), ("s2s", "real")]
    figure, axes = plt.subplots(1, 4, figsize=(17, 5.0), sharey=True, constrained_layout=True)
    for axis, (distance, profile) in zip(axes, columns, strict=True):
        _panel(axis, rows, distance, profile)
    axes[0].set_ylabel("mean matching accuracy")
    figure.suptitle(title, fontsize=11)
    with replacing(path) as temporary:
        figure.savefig(temporary, dpi=120)
    plt.close(figure)


def _panel(axis, rows: Sequence[dict], distance: str, profile: str) -> None:  # type: ignore[no-untyped-def]
    for row in rows:
        thresholds = [int(t) for t in row["mma"]]
        values = list(row["mma"].values())
        if row["profile"] == "raw":
            axis.plot(thresholds, values, color="black", linewidth=2.5, label="raw")
        elif row["distance"] == distance and row["profile"] == "hardened":
            axis.plot(thresholds, values, color="#009E73", linewidth=2.5, label=f"hardened m={row['m']}")
        elif row["distance"] == distance and row["profile"] == profile:
            axis.plot(
                thresholds,
                values,
                color=_COLORS.get(row["lifting"], "black"),
                linestyle=_DASHES.get(row["m"], "-"),
                linewidth=1.4,
                label=f"{row['lifting']} m={row['m']}",
            )
    name = "point-to-subspace" if distance == "p2s" else "subspace-to-subspace"
    axis.set_title(f"{name}\n{'centroids as decoys (paper)' if profile == 'paper' else 'real descriptors as decoys'}")
    axis.set_xlabel("threshold [px]")
    axis.set_xlim(1, 10)
    axis.set_ylim(0, 1)
    axis.grid(alpha=0.3)
    axis.legend(fontsize=6.5, ncol=2, loc="lower right")
