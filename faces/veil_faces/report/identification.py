"""The figure of `veil evaluate identification`: strangers accepted, and people missed, against the size of the gallery."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from veil.report.figures import BLACK, BLUE, VERMILION, drawn, legend_below
from veil_faces.studies.identification import IdentificationRow

FITTED, SINGLE = BLUE, VERMILION


def draw_identification(path: Path, rows: Sequence[IdentificationRow], asked: float) -> None:
    """Write the figure (PNG or SVG by its suffix); `asked` is the FPIR that was asked for.

    Left: FPIR of held-out strangers with 95 % intervals, beside what was asked; right: FNIR at rank 1.
    """
    with drawn(path, 1, 2, size=(9.6, 4.1)) as (figure, axes):
        _draw(axes[0], rows, asked)
        legend_below(figure)


def _draw(axes: Any, rows: Sequence[IdentificationRow], asked: float) -> None:
    """Draw both panels."""
    fitted = [row for row in rows if row.threshold is not None]
    for kind, color, label, shown in (
        ("single_", SINGLE, "threshold of one comparison", rows),
        ("", FITTED, "threshold for this size", fitted),
    ):
        sizes = [row.templates for row in shown]
        share, low, high = (
            [100 * getattr(row, f"{kind}{name}") for row in shown] for name in ("fpir", "fpir_low", "fpir_high")
        )
        axes[0].plot(sizes, share, marker="o", color=color, label=label)
        axes[0].fill_between(sizes, low, high, color=color, alpha=0.15, linewidth=0)
        missed = [(row.templates, getattr(row, f"{kind}fnir")) for row in shown if getattr(row, f"{kind}fnir") is not None]
        axes[1].plot([size for size, _ in missed], [100 * value for _, value in missed], marker="o", color=color)
    axes[0].axhline(100 * asked, color=BLACK, linewidth=1, linestyle="--", label=f"asked: {asked:.2%}")
    axes[0].set_yscale("symlog", linthresh=100 * asked / 2)
    axes[0].set_ylim(0, 110)
    axes[0].set_ylabel("strangers accepted (FPIR), %")
    axes[0].set_title("held-out strangers (shaded: 95 % intervals)")
    axes[1].set_ylim(0, 100)
    axes[1].set_ylabel("not named first below the threshold (FNIR), %")
    axes[1].set_title("held-out people who are enrolled")
    for axis in axes:
        axis.set_xscale("log")
        axis.set_xlabel("templates in the gallery")
        axis.xaxis.set_major_formatter("{x:g}")
    ticks = [0, 100 * asked / 2, 100 * asked, *[tick for tick in (5, 10, 20, 50, 100) if tick > 150 * asked]]
    axes[0].set_yticks(ticks, [f"{tick:g}" for tick in ticks])
    axes[0].yaxis.minorticks_off()
