"""The figure of attacks on hidden positions: histograms of their errors beside those of blind guesses.

Each share of lines along gravity has a panel.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from veil.files.atomic import replacing
from veil.studies.attacks.positions import PositionTrial, position_histograms, position_rows

EDGES_PX = np.logspace(-2, 3, 31)
# Color (Okabe-Ito), dash and label of each attack; a dashed curve is for lines without one of their defenses.
_STYLES: dict[str, tuple[str, Any, str]] = {
    "chance": ("#bbbbbb", "fill", "blind: random point of the line"),
    "midpoint": ("#555555", ":", "blind: middle of the line"),
    "density": ("#0072B2", "-", "density of the line cloud"),
    "true neighbors": ("#E69F00", "-", "bound: true neighbors given"),
    "twins": ("#D55E00", "-", "neighbors from descriptors"),
    "twins, own lines": ("#D55E00", "--", "… if each feature had its own line"),
    "order, sorted": ("#009E73", "--", "order, if it were not shuffled"),
    "repeat, fresh": ("#CC79A7", "--", "a second release, if it were not memoized"),
}


def draw_position_attacks(path: Path, trials: Sequence[PositionTrial], *, title: str) -> None:
    """Write the figure (PNG or SVG by its suffix), with a panel for each share of lines along gravity.

    Undecided features are left out; errors below 0.01 px stand in the first bin.
    """
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    shares = list(dict.fromkeys(trial.aligned_share for trial in trials))
    histograms = position_histograms(trials, EDGES_PX)
    figure, axes = plt.subplots(
        1, len(shares), figsize=(4.6 * len(shares) + 0.6, 5.0), sharey=True, squeeze=False, constrained_layout=True
    )
    for axis, share in zip(axes[0], shares, strict=True):
        for attack, (color, dash, _) in _STYLES.items():
            if (values := histograms.get((share, attack))) is not None and values.any():
                _step(axis, values, color, dash)
        axis.set_title(f"{100 * share:g} % of the lines along gravity", fontsize=10)
        axis.set_xscale("log")
        axis.xaxis.set_major_formatter("{x:g}")
        axis.set_xlim(0.8 * EDGES_PX[0], EDGES_PX[-1])  # room for the first bin
        axis.set_xlabel("distance to the true keypoint [px]")
        axis.grid(alpha=0.3)
        _note(axis, trials, share)
    axes[0, 0].set_yscale("symlog", linthresh=0.01)
    axes[0, 0].set_ylim(0, 1)
    axes[0, 0].set_yticks([0, 0.01, 0.1, 1], ["0", "1 %", "10 %", "100 %"])
    axes[0, 0].set_ylabel("share of all features in a bin")
    _legend(figure, {trial.attack for trial in trials})
    figure.suptitle(title, fontsize=11)
    with replacing(path) as temporary:
        figure.savefig(temporary, dpi=120)
    plt.close(figure)


def _step(axis, values: np.ndarray, color: str, dash: str) -> None:  # type: ignore[no-untyped-def]
    """Draw one histogram."""
    if dash == "fill":
        axis.stairs(values, EDGES_PX, fill=True, color=color, alpha=0.6)
    else:
        axis.stairs(values, EDGES_PX, color=color, linestyle=dash, linewidth=1.6)


def _note(axis, trials: Sequence[PositionTrial], share: float) -> None:  # type: ignore[no-untyped-def]
    """Write into a panel how many of the drawn attacks decide nothing, and whose horizontal coordinate is known anyway."""
    rows = {row.attack: row for row in position_rows([trial for trial in trials if trial.aligned_share == share])}
    silent = [attack for attack in _STYLES if attack in rows and rows[attack].undecided == rows[attack].features]
    text = []
    if share > 0:
        text.append(f"horizontal coordinate exact for {100 * share:g} %")
    if silent:
        text.append(f"{len(silent)} attacks decide nothing")
    if text:
        axis.text(0.08, 0.97, "\n".join(text), transform=axis.transAxes, va="top", fontsize=9, color="#333333")


def _legend(figure, used: set[str]) -> None:  # type: ignore[no-untyped-def]
    """Draw the legend of the attacks that were used."""
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    handles: list[Patch | Line2D] = []
    for attack, (color, dash, label) in _STYLES.items():
        if attack in used and dash == "fill":
            handles.append(Patch(color=color, alpha=0.6, label=label))
        elif attack in used:
            handles.append(Line2D([], [], color=color, linestyle=dash, linewidth=1.6, label=label))
    figure.legend(handles=handles, loc="outside lower center", ncol=min(len(handles), 4), fontsize=9, frameon=False)
