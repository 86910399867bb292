"""The figure of `veil evaluate protection`: linkability and reversal against m, with and without keys."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from veil.report.figures import BLACK, GRAY, LIFTINGS, drawn, legend_below
from veil_faces.studies.unlinkability import ProtectionStudy

_TITLES = {
    "linkability": "two templates, two photographs:\nlinkability (0 to 1)",
    "reversed": "estimates that pass\nfor the person, %",
}


def draw_protection(path: Path, found: ProtectionStudy) -> None:
    """Write the figure (PNG or SVG by its suffix): both measures against m, a curve for each lifting.

    Full lines are without keys, dashed ones with keys; gray is what chance, or an attacker without a template, reaches; the
    dotted line is for raw descriptors.
    """
    from matplotlib.lines import Line2D

    with drawn(path, 1, 2, size=(9.2, 4.4), grid="y") as (figure, axes):
        for axis, measure in zip(axes[0], _TITLES, strict=True):
            _panel(axis, found, measure)
        left, right = axes[0]
        unaided = max(found.accepted_strangers, found.accepted_mean)
        chance = max(row.by_chance for row in found.rows)
        shades = [
            left.axhspan(0, chance, color=BLACK, alpha=0.08, linewidth=0, label="left: 95 % of shuffled pairs"),
            right.axhspan(0, 100 * unaided, color=BLACK, alpha=0.08, linewidth=0, label="right: without a template"),
        ]
        raw = right.axhline(100 * found.accepted_raw, color=BLACK, linestyle=":", label="right: raw descriptors")
        names = dict.fromkeys(row.lifting for row in found.rows)
        colors = [Line2D([], [], color=LIFTINGS[name], marker="o", label=name) for name in names]
        dashes = [
            Line2D([], [], color=GRAY, linestyle="-", label="no key"),
            Line2D([], [], color=GRAY, linestyle="--", label="with keys"),
        ]
        legend_below(figure, [*colors, *dashes, raw, *shades])


def _panel(axis: Any, found: ProtectionStudy, measure: str) -> None:
    """Draw the curves of one measure."""
    dims, scale = sorted({row.m for row in found.rows}), 100 if measure == "reversed" else 1
    for name in dict.fromkeys(row.lifting for row in found.rows):
        for keyed in (False, True):
            curve = sorted((row for row in found.rows if (row.lifting, row.keyed) == (name, keyed)), key=lambda row: row.m)
            x, y = [dims.index(row.m) for row in curve], [scale * getattr(row, measure) for row in curve]
            axis.plot(x, y, color=LIFTINGS[name], linestyle="--" if keyed else "-", marker="o")
    axis.set_xticks(range(len(dims)), [str(m) for m in dims])
    axis.set_xlabel("dimension m of the templates")
    axis.set_title(_TITLES[measure])
    axis.set_ylim(-0.03 * scale, 1.03 * scale)
