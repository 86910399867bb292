"""Figures of `veil evaluate faces`, `protection`, `identification` and `attributes`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Bool

from veil.report.figures import BLACK, BLUE, GRAY, LIFTINGS, VERMILION, draw_curve, draw_level, drawn, legend_below, log2_axis
from veil_faces.studies.attributes import AttributeRow
from veil_faces.studies.identification import IdentificationRow
from veil_faces.studies.unlinkability import ProtectionStudy
from veil_faces.studies.verification import VerificationRow, error_rates

_NAMES = {"p2s": "template against raw descriptor (p2s)", "s2s": "template against template (s2s)"}


def draw_verification(path: Path, rows: Sequence[VerificationRow], same: Bool[np.ndarray, "pairs"]) -> None:
    """Write the figure (PNG or SVG by its suffix); `same` says which of the pairs behind `rows` are of one person.

    Left and middle: accuracy with 95 % intervals by distance; right: false accepts against false rejects at one m.
    """
    with drawn(path, 1, 3, size=(13.5, 4.2)) as (_, axes):
        for axis, distance in zip(axes[0, :2], ("p2s", "s2s"), strict=True):
            _accuracies(axis, rows, distance)
        axes[0, 0].legend(loc="lower right")
        _error_curves(axes[0, 2], rows, same)


def _accuracies(axis: Any, rows: Sequence[VerificationRow], distance: str) -> None:
    """Draw the accuracy of each lifting against m, by one distance."""
    raw, lifted = rows[0], [row for row in rows if row.m]
    dims = sorted({row.m for row in lifted})
    draw_level(axis, 100 * raw.accuracy, 100 * raw.low, 100 * raw.high, label="raw")
    for name in dict.fromkeys(row.lifting for row in lifted):
        curve = sorted((row for row in lifted if (row.lifting, row.distance) == (name, distance)), key=lambda row: row.m)
        middle, low, high = ([100 * getattr(row, key) for row in curve] for key in ("accuracy", "low", "high"))
        draw_curve(axis, [dims.index(row.m) for row in curve], middle, low, high, color=LIFTINGS[name], label=name)
    axis.set_xticks(range(len(dims)), [str(m) for m in dims])
    axis.set_ylim(45, 101)
    axis.set_xlabel("dimension m of the templates")
    axis.set_ylabel("verified rightly, %")
    axis.set_title(_NAMES[distance])


def _error_curves(axis: Any, rows: Sequence[VerificationRow], same: np.ndarray) -> None:
    """Draw false rejects against false accepts, of raw descriptors and of every lifting at one m."""
    dims = sorted({row.m for row in rows} - {0})
    shown = 4 if 4 in dims else dims[0]
    for row in rows:
        if row.m in (0, shown):
            accepts, rejects = error_rates(row.distances, same)
            color = LIFTINGS.get(row.lifting, BLACK if row.lifting == "raw" else GRAY)
            label = f"{row.lifting}, {row.distance}" if row.m else row.lifting
            axis.plot(100 * accepts, 100 * rejects, color=color, linestyle="--" if row.distance == "s2s" else "-", label=label)
    axis.set_xlabel("false accepts, %")
    axis.set_ylabel("false rejects, %")
    axis.set_xlim(0, 30)
    axis.set_ylim(0, 30)
    axis.set_title(f"error curves at m = {shown}")
    axis.legend(fontsize=7, loc="upper right", ncols=2)


_TITLES = {
    "linkability": "two templates, two photographs:\nlinkability (0 to 1)",
    "reversed": "estimates that pass\nfor the person, %",
}


def draw_protection(path: Path, protection: ProtectionStudy) -> None:
    """Write the figure (PNG or SVG by its suffix): both measures against m, a curve for each lifting.

    Full lines are without keys, dashed ones with keys; gray is what chance, or an attacker without a template, reaches; the
    dotted line is for raw descriptors.
    """
    from matplotlib.lines import Line2D

    with drawn(path, 1, 2, size=(9.2, 4.4), grid="y") as (figure, axes):
        for axis, measure in zip(axes[0], _TITLES, strict=True):
            _measure(axis, protection, measure)
        left, right = axes[0]
        unaided = max(protection.accepted_strangers, protection.accepted_mean)
        chance = max(row.by_chance for row in protection.rows)
        shades = [
            left.axhspan(0, chance, color=BLACK, alpha=0.08, linewidth=0, label="left: 95 % of shuffled pairs"),
            right.axhspan(0, 100 * unaided, color=BLACK, alpha=0.08, linewidth=0, label="right: without a template"),
        ]
        raw = right.axhline(100 * protection.accepted_raw, color=BLACK, linestyle=":", label="right: raw descriptors")
        names = dict.fromkeys(row.lifting for row in protection.rows)
        colors = [Line2D([], [], color=LIFTINGS[name], marker="o", label=name) for name in names]
        dashes = [
            Line2D([], [], color=GRAY, linestyle="-", label="no key"),
            Line2D([], [], color=GRAY, linestyle="--", label="with keys"),
        ]
        legend_below(figure, [*colors, *dashes, raw, *shades])


def _measure(axis: Any, protection: ProtectionStudy, measure: str) -> None:
    """Draw the curves of one measure."""
    dims, scale = sorted({row.m for row in protection.rows}), 100 if measure == "reversed" else 1
    for name in dict.fromkeys(row.lifting for row in protection.rows):
        for keyed in (False, True):
            curve = sorted((row for row in protection.rows if (row.lifting, row.keyed) == (name, keyed)), key=lambda row: row.m)
            x, y = [dims.index(row.m) for row in curve], [scale * getattr(row, measure) for row in curve]
            axis.plot(x, y, color=LIFTINGS[name], linestyle="--" if keyed else "-", marker="o")
    axis.set_xticks(range(len(dims)), [str(m) for m in dims])
    axis.set_xlabel("dimension m of the templates")
    axis.set_title(_TITLES[measure])
    axis.set_ylim(-0.03 * scale, 1.03 * scale)


FITTED, SINGLE = BLUE, VERMILION


def draw_identification(path: Path, rows: Sequence[IdentificationRow], asked: float) -> None:
    """Write the figure (PNG or SVG by its suffix); `asked` is the FPIR that was asked for.

    Left: FPIR of held-out strangers with 95 % intervals, beside what was asked; right: FNIR at rank 1.
    """
    with drawn(path, 1, 2, size=(9.6, 4.1)) as (figure, axes):
        _rates(axes[0], rows, asked)
        legend_below(figure)


def _rates(axes: Any, rows: Sequence[IdentificationRow], asked: float) -> None:
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


def draw_attributes(path: Path, rows: Sequence[AttributeRow]) -> None:
    """Write the figure (PNG or SVG by its suffix): a curve for each lifting, with 95 % intervals.

    Raw descriptors and chance are level lines.
    """
    names = list(dict.fromkeys(row.attribute for row in rows))
    size = (max(4.6 * len(names), 6.0), 4.2)
    with drawn(path, 1, len(names), size=size, grid="y", sharey=True) as (figure, axes):
        for axis, name in zip(axes[0], names, strict=True):
            _attribute(axis, [row for row in rows if row.attribute == name])
            axis.set_title(name)
        axes[0, 0].set_ylabel("inferred rightly, %")
        legend_below(figure)


def _attribute(axis: Any, rows: Sequence[AttributeRow]) -> None:
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
