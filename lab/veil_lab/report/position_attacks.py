"""The figure of attacks on hidden positions: histograms of their errors beside those of blind guesses.

Each share of lines along gravity has a panel.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from veil.report.figures import BLUE, GRAY, GREEN, LIGHT, ORANGE, PURPLE, VERMILION, drawn, legend_below
from veil_lab.studies.attacks.positions import PositionTrial, position_histograms, position_rows

EDGES_PX = np.logspace(-2, 3, 31)
# Color, dash and label of each attack; a dashed curve is for lines without one of their defenses.
_STYLES: dict[str, tuple[str, Any, str]] = {
    "chance": (LIGHT, "fill", "blind: random point of the line"),
    "midpoint": (GRAY, ":", "blind: middle of the line"),
    "density": (BLUE, "-", "density of the line cloud"),
    "true neighbors": (ORANGE, "-", "bound: true neighbors given"),
    "twins": (VERMILION, "-", "neighbors from descriptors"),
    "twins, own lines": (VERMILION, "--", "… if each feature had its own line"),
    "order, sorted": (GREEN, "--", "order, if it were not shuffled"),
    "repeat, fresh": (PURPLE, "--", "a second release, if it were not memoized"),
}


def draw_position_attacks(path: Path, trials: Sequence[PositionTrial], *, title: str) -> None:
    """Write the figure (PNG or SVG by its suffix), with a panel for each share of lines along gravity.

    Undecided features are left out; errors below 0.01 px stand in the first bin.
    """
    shares = list(dict.fromkeys(trial.aligned_share for trial in trials))
    histograms = position_histograms(trials, EDGES_PX)
    size = (max(4.6 * len(shares) + 0.6, 9.2), 5.0)
    with drawn(path, 1, len(shares), size=size, title=title, sharey=True) as (figure, axes):
        for axis, share in zip(axes[0], shares, strict=True):
            for attack, (color, dash, _) in _STYLES.items():
                if (values := histograms.get((share, attack))) is not None and values.any():
                    _step(axis, values, color, dash)
            axis.set_title(f"{100 * share:g} % of the lines along gravity")
            axis.set_xscale("log")
            axis.xaxis.set_major_formatter("{x:g}")
            axis.set_xlim(0.8 * EDGES_PX[0], EDGES_PX[-1])  # room for the first bin
            axis.set_xlabel("distance to the true keypoint [px]")
            _note(axis, trials, share)
        axes[0, 0].set_yscale("symlog", linthresh=0.01)
        axes[0, 0].set_ylim(0, 1)
        axes[0, 0].set_yticks([0, 0.01, 0.1, 1], ["0", "1 %", "10 %", "100 %"])
        axes[0, 0].set_ylabel("share of all features in a bin")
        _legend(figure, {trial.attack for trial in trials})


def _step(axis: Any, values: np.ndarray, color: str, dash: str) -> None:
    """Draw one histogram."""
    if dash == "fill":
        axis.stairs(values, EDGES_PX, fill=True, color=color, alpha=0.6)
    else:
        axis.stairs(values, EDGES_PX, color=color, linestyle=dash)


def _note(axis: Any, trials: Sequence[PositionTrial], share: float) -> None:
    """Write into a panel how many of the drawn attacks decide nothing, and whose horizontal coordinate is known anyway."""
    rows = {row.attack: row for row in position_rows([trial for trial in trials if trial.aligned_share == share])}
    silent = [attack for attack in _STYLES if attack in rows and rows[attack].undecided == rows[attack].features]
    text = []
    if share > 0:
        text.append(f"horizontal coordinate exact for {100 * share:g} %")
    if silent:
        text.append(f"{len(silent)} attacks decide nothing")
    if text:
        axis.text(0.08, 0.97, "\n".join(text), transform=axis.transAxes, va="top")


def _legend(figure: Any, used: set[str]) -> None:
    """Draw the legend of the attacks that were used."""
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    handles: list[Patch | Line2D] = []
    for attack, (color, dash, label) in _STYLES.items():
        if attack in used and dash == "fill":
            handles.append(Patch(color=color, alpha=0.6, label=label))
        elif attack in used:
            handles.append(Line2D([], [], color=color, linestyle=dash, label=label))
    legend_below(figure, handles)
