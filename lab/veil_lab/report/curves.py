"""Figures of mean matching accuracy against the pixel threshold: of liftings (Dusmanu et al. 2021, Fig. 2), of descriptors.

A file of its own: no other figure shows matching accuracy.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

from veil.report.figures import BLACK, GRAY, GREEN, LIFTINGS, drawn, legend_below, series

_DASHES: dict[int, Literal["-", "--", "-.", ":"]] = {2: "-", 4: "--", 8: "-.", 16: ":"}


def draw_accuracy(path: Path, rows: Sequence[dict], *, title: str) -> None:
    """Write the figure (PNG or SVG by its suffix); `rows` are records as in the JSON of `veil evaluate homographies`."""
    columns = [("p2s", "paper"), ("s2s", "paper"), ("p2s", "real"), ("s2s", "real")]
    with drawn(path, 1, 4, size=(14, 4.6), title=title, sharey=True) as (figure, axes):
        for axis, (distance, profile) in zip(axes[0], columns, strict=True):
            _panel(axis, rows, distance, profile)
        axes[0, 0].set_ylabel("mean matching accuracy")
        _legend(figure, rows)


def _panel(axis: Any, rows: Sequence[dict], distance: str, profile: str) -> None:
    """Draw the curves of one distance and profile, with those of raw descriptors and of the hardened profile."""
    for row in rows:
        thresholds = [int(t) for t in row["mma"]]
        values = list(row["mma"].values())
        if row["profile"] == "raw":
            axis.plot(thresholds, values, color=BLACK, linewidth=2.5)
        elif row["distance"] == distance and row["profile"] == "hardened":
            axis.plot(thresholds, values, color=GREEN, linewidth=2.5)
        elif row["distance"] == distance and row["profile"] == profile:
            axis.plot(
                thresholds,
                values,
                color=LIFTINGS.get(row["lifting"], BLACK),
                linestyle=_DASHES.get(row["m"], "-"),
                linewidth=1.4,
            )
    name = "point-to-subspace" if distance == "p2s" else "subspace-to-subspace"
    axis.set_title(f"{name}\n{'centroids as decoys (paper)' if profile == 'paper' else 'real descriptors as decoys'}")
    axis.set_xlabel("threshold [px]")
    axis.set_xlim(1, 10)
    axis.set_ylim(0, 1)


def _legend(figure: Any, rows: Sequence[dict]) -> None:
    """Draw one legend for all panels: colors are liftings, dashes are dimensions."""
    from matplotlib.lines import Line2D

    hardened_m = next((row["m"] for row in rows if row["profile"] == "hardened"), None)
    handles = [Line2D([], [], color=BLACK, linewidth=2.5, label="raw")]
    if hardened_m is not None:
        handles.append(Line2D([], [], color=GREEN, linewidth=2.5, label=f"hardened (m = {hardened_m})"))
    used = {row["lifting"] for row in rows if row["profile"] not in ("raw", "hardened")}
    handles += [Line2D([], [], color=color, label=name) for name, color in LIFTINGS.items() if name in used]
    dims = sorted({row["m"] for row in rows if row["profile"] not in ("raw", "hardened")})
    handles += [Line2D([], [], color=GRAY, linestyle=_DASHES.get(m, "-"), label=f"m = {m}") for m in dims]
    legend_below(figure, handles, columns=len(handles))


def draw_descriptors(path: Path, rows: Sequence[dict], *, title: str) -> None:
    """Write the figure of several descriptors (PNG or SVG by its suffix), a curve a row and a panel a form.

    `rows` are records as in the JSON of the study of homographies, of several descriptors. Broken lines are between two
    images of the same form, others against a raw image.
    """
    from matplotlib.lines import Line2D

    panels = {"raw": "raw", "hardened": "hardened subspaces", "words": "words"}
    colors = series([row["descriptor"] for row in rows])
    with drawn(path, 1, 3, size=(12, 4.6), title=title, sharey=True) as (figure, axes):
        for axis, (profile, name) in zip(axes[0], panels.items(), strict=True):
            for row in rows:
                if row["profile"] == profile:
                    line = "--" if row["distance"] in ("s2s", "w2w") else "-"
                    thresholds = [int(t) for t in row["mma"]]
                    axis.plot(thresholds, list(row["mma"].values()), line, color=colors[row["descriptor"]])
            axis.set_title(name)
            axis.set_xlabel("threshold [px]")
            axis.set_xlim(1, 10)
            axis.set_ylim(0, 1)
        axes[0, 0].set_ylabel("mean matching accuracy")
        handles = [Line2D([], [], color=color, linewidth=3, label=name) for name, color in colors.items()]
        handles.append(Line2D([], [], color=GRAY, linestyle="-", label="against a raw image"))
        handles.append(Line2D([], [], color=GRAY, linestyle="--", label="against an image in the same form"))
        legend_below(figure, handles, columns=len(handles))
