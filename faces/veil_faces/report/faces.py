"""The figure of `veil evaluate faces`: accuracy against m, and error curves at one m."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Bool

from veil.report.figures import BLACK, GRAY, LIFTINGS, draw_curve, draw_level, drawn
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
