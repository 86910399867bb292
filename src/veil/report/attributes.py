"""The figure of `veil evaluate attributes`: accuracy against m, a panel for each attribute."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from veil.files.atomic import replacing
from veil.studies.faces.attributes import AttributeRow

_COLORS = {
    "random": "#E69F00",
    "hybrid": "#0072B2",
    "adversarial": "#009E73",
    "hybrid+": "#CC79A7",
    "hybrid+, others only": "#D55E00",
}


def draw_attributes(path: Path, rows: Sequence[AttributeRow]) -> None:
    """Write the figure (PNG or SVG by its suffix): a curve for each lifting, with 95 % intervals.

    Raw descriptors and chance are level lines.
    """
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    names = list(dict.fromkeys(row.attribute for row in rows))
    figure, axes = pyplot.subplots(1, len(names), figsize=(4.6 * len(names), 3.9), squeeze=False, layout="constrained")
    for axis, name in zip(axes[0], names, strict=True):
        own = [row for row in rows if row.attribute == name]
        dims = sorted({row.m for row in own} - {0})
        for row in own:
            if row.m == 0:
                axis.axhline(100 * row.accuracy, color="black", linewidth=1.5, label="raw")
                axis.axhspan(100 * row.low, 100 * row.high, color="black", alpha=0.08)
        axis.axhline(100 * own[0].baseline, color="#777777", linestyle=":", label="the most frequent class")
        for form in dict.fromkeys(row.form for row in own if row.m):
            curve = sorted((row for row in own if row.form == form), key=lambda row: row.m)
            middle = [100 * row.accuracy for row in curve]
            reach = [
                [100 * (row.accuracy - row.low) for row in curve],
                [100 * (row.high - row.accuracy) for row in curve],
            ]
            axis.errorbar(
                [row.m for row in curve],
                middle,
                yerr=reach,
                marker="o",
                markersize=4,
                capsize=3,
                color=_COLORS.get(form),
                label=form,
            )
        axis.set_xscale("log", base=2)
        axis.set_xticks(dims, [str(m) for m in dims])
        axis.set_ylim(0, 100)
        axis.set_xlabel("dimension m of the subspaces")
        axis.set_ylabel("inferred rightly, %")
        axis.set_title(name, fontsize=10)
        axis.grid(axis="y", alpha=0.3)
    axes[0][0].legend(fontsize=8, frameon=False)
    with replacing(path) as temporary:
        figure.savefig(temporary, dpi=120)
    pyplot.close(figure)
