"""The figure of `veil evaluate protection`: linkability and reversal against m, with and without keys."""

from __future__ import annotations

from pathlib import Path

from veil.files.atomic import replacing
from veil.report.faces import COLORS
from veil.studies.faces.unlinkability import Protection

_TITLES = {
    "linkability": "two templates, two photographs:\nlinkability (0 to 1)",
    "reversed": "estimates that pass\nfor the person, %",
}


def draw_protection(path: Path, found: Protection) -> None:
    """Write the figure (PNG or SVG by its suffix): both measures against m, a curve for each lifting.

    Full lines are without keys, dashed ones with keys; gray is what chance, or an attacker without a template, reaches; the
    dotted line is for raw descriptors.
    """
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(1, 2, figsize=(9.2, 3.9), layout="constrained")
    dims = sorted({row.m for row in found.rows})
    for axis, (measure, title) in zip(axes, _TITLES.items(), strict=True):
        scale = 100 if measure == "reversed" else 1
        for name in dict.fromkeys(row.lifting for row in found.rows):
            for keyed in (False, True):
                curve = sorted((row for row in found.rows if (row.lifting, row.keyed) == (name, keyed)), key=lambda row: row.m)
                axis.plot(
                    [dims.index(row.m) for row in curve],
                    [scale * getattr(row, measure) for row in curve],
                    color=COLORS[name],
                    linestyle="--" if keyed else "-",
                    marker="o",
                    markersize=4,
                    label=f"{name}, {'keyed' if keyed else 'no key'}",
                )
        axis.set_xticks(range(len(dims)), [str(m) for m in dims])
        axis.set_xlabel("dimension m of the templates")
        axis.set_title(title, fontsize=10)
        axis.set_ylim(-0.03 * scale, 1.03 * scale)
        axis.grid(axis="y", alpha=0.3)
    axes[0].axhspan(0, max(row.by_chance for row in found.rows), color="black", alpha=0.08, label="shuffled pairs, 95 %")
    axes[1].axhline(100 * found.accepted_raw, color="black", linestyle=":", label="raw descriptors")
    unaided = max(found.accepted_strangers, found.accepted_mean)
    axes[1].axhspan(0, 100 * unaided, color="black", alpha=0.08, label="without a template")
    axes[0].legend(handles=axes[0].get_legend_handles_labels()[0][-1:], fontsize=7, frameon=False)
    axes[1].legend(fontsize=7, frameon=False)
    with replacing(path) as temporary:
        figure.savefig(temporary, dpi=120)
    pyplot.close(figure)
