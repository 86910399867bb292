"""The figure of `veil evaluate attributes`: accuracy against m, a panel for each attribute."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from veil.report.figures import GRAY, LIFTINGS, draw_curve, draw_level, drawn, legend_below, log2_axis
from veil_faces.studies.attributes import AttributeRow


def draw_attributes(path: Path, rows: Sequence[AttributeRow]) -> None:
    """Write the figure (PNG or SVG by its suffix): a curve for each lifting, with 95 % intervals.

    Raw descriptors and chance are level lines.
    """
    names = list(dict.fromkeys(row.attribute for row in rows))
    size = (max(4.6 * len(names), 6.0), 4.2)
    with drawn(path, 1, len(names), size=size, grid="y", sharey=True) as (figure, axes):
        for axis, name in zip(axes[0], names, strict=True):
            _panel(axis, [row for row in rows if row.attribute == name])
            axis.set_title(name)
        axes[0, 0].set_ylabel("inferred rightly, %")
        legend_below(figure)


def _panel(axis: Any, rows: Sequence[AttributeRow]) -> None:
    """Draw the curves of one attribute."""
    for row in rows:
        if row.m == 0:
            draw_level(axis, 100 * row.accuracy, 100 * row.low, 100 * row.high, label="raw")
    axis.axhline(100 * rows[0].baseline, color=GRAY, linestyle=":", label="the most frequent class")
    for form in dict.fromkeys(row.form for row in rows if row.m):
        curve = sorted((row for row in rows if row.form == form), key=lambda row: row.m)
        middle, low, high = ([100 * getattr(row, key) for row in curve] for key in ("accuracy", "low", "high"))
        draw_curve(axis, [row.m for row in curve], middle, low, high, color=LIFTINGS.get(form, GRAY), label=form)
    log2_axis(axis, sorted({row.m for row in rows} - {0}))
    axis.set_ylim(0, 100)
    axis.set_xlabel("dimension m of the subspaces")
