"""The figure of `veil evaluate defenses`: what each attack recovers, beside the matching accuracy, a row for each defense."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from veil.report.figures import BLACK, BLUE, ORANGE, SERIES, drawn, legend_below
from veil_lab.studies.attacks.defenses import DefenseRow


def draw_defenses(path: Path, rows: Sequence[DefenseRow]) -> None:
    """Write the figure (PNG or SVG by its suffix): bars of the share that each attack recovers within 0.1, and accuracies.

    Mean matching accuracies at 3 px, of raw descriptors and by both distances, stand beside the bars.
    """
    size, widths = (11, 0.42 * len(rows) + 1.6), {"width_ratios": [3, 2]}
    with drawn(path, 1, 2, size=size, grid="x", sharey=True, gridspec_kw=widths) as (figure, axes):
        _recoveries(axes[0, 0], rows)
        _accuracies(axes[0, 1], rows)
        axes[0, 0].set_ylim(len(rows) - 0.4, -0.6)
        legend_below(figure)


def _recoveries(axis: Any, rows: Sequence[DefenseRow]) -> None:
    """Draw a bar for each attack and defense."""
    attacks = [item.attack for item in rows[0].recoveries]
    height = 0.8 / len(attacks)
    for k, name in enumerate(attacks):
        places = [row + (k - (len(attacks) - 1) / 2) * height for row in range(len(rows))]
        values = [100 * row.recoveries[k].within[0] for row in rows]
        axis.barh(places, values, height=height, color=SERIES[k % len(SERIES)], label=name)
    axis.set_xlabel("descriptors recovered within 0.1, %")
    axis.set_yticks(range(len(rows)), [row.defense.name for row in rows])
    axis.set_xlim(0, 100)


def _accuracies(axis: Any, rows: Sequence[DefenseRow]) -> None:
    """Draw three mean matching accuracies of each defense."""
    for values, marker, color, label in (
        ([row.raw for row in rows], "|", BLACK, "raw, in the defense's space"),
        ([row.p2s for row in rows], "o", BLUE, "point to subspace"),
        ([row.s2s for row in rows], "s", ORANGE, "subspace to subspace"),
    ):
        axis.plot([100 * value for value in values], range(len(rows)), marker, color=color, label=label, markersize=6)
    axis.set_xlabel("mean matching accuracy at 3 px, %")
