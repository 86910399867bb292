"""Figures of attacks: on hidden positions, in spite of defenses, of an oracle's choice, and of pictures from descriptors.

Of positions each share of lines along gravity has a panel, with blind guesses beside; each defense has a row.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from veil.errors import InputError
from veil.report.figures import (
    BLACK,
    BLUE,
    GRAY,
    GREEN,
    LIGHT,
    ORANGE,
    PURPLE,
    SERIES,
    VERMILION,
    draw_curve,
    draw_level,
    drawn,
    legend_below,
    log2_axis,
    series,
)
from veil_lab.studies.attacks.defenses import DefenseRow
from veil_lab.studies.attacks.positions import PositionTrial, position_histograms, position_rows
from veil_lab.studies.pictures.inversion import ORDER, RAW, InversionRow, Inverted

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


def draw_oracle(path: Path, curves: Mapping[str, np.ndarray], *, title: str) -> None:
    """Write the figure (PNG or SVG by its suffix): distance to the truth against the length K of an oracle's list.

    `curves` are those of `oracle_curve` by descriptor. Dotted lines are their limits ([D21], Fig. 6).
    """
    with drawn(path, size=(6.5, 4.4), title=title) as (figure, axes):
        axis, colors = axes[0, 0], series(list(curves))
        for name, both in curves.items():
            for values, dash, label in zip(both, ("-", "--"), (name, f"{name}, projected"), strict=True):
                axis.plot(np.arange(1, len(values) + 1), values, dash, color=colors[name], label=label)
                axis.axhline(values[-1], linestyle=":", color=colors[name], linewidth=1)
        axis.set_xscale("log")
        axis.set_xlim(1, max(both.shape[1] for both in curves.values()))
        axis.set_ylim(bottom=0)
        axis.set_xlabel("K, entries that the oracle picks from")
        axis.set_ylabel("mean distance to the descriptor")
        legend_below(figure)


_COLORS = {"database": VERMILION, "clustering": ORANGE, "direct": BLUE, "nearest": GREEN}


def draw_inversions(
    path: Path, originals: Mapping[str, np.ndarray], pictures: Sequence[Inverted], *, m: int, title: str
) -> None:
    """Write the figure (PNG or SVG by its suffix): a row for each photograph, with each attack's picture at `m` and its SSIM.

    `originals` are crops of photographs (256x256 px) by name. Raises InputError if there is no picture of one of them.
    """
    shown = {(item.name, item.attack): item for item in pictures if item.m in (0, m)}
    drawn_from = dict.fromkeys(attack for _, attack in shown)
    attacks = [attack for attack in dict.fromkeys((*ORDER, *drawn_from)) if attack in drawn_from]
    missing = [name for name in originals if not any(key[0] == name for key in shown)]
    if missing or not originals:
        raise InputError(f"nothing was reconstructed at m = {m} of {missing[0] if missing else 'any photograph'}")
    size = (1.75 * (1 + len(attacks)), 1.95 * len(originals) + 0.35)
    with drawn(path, len(originals), 1 + len(attacks), size=size, grid=None, title=title) as (_, axes):
        for line, (name, original) in zip(axes, originals.items(), strict=True):
            _panel(line[0], original, "original")
            for axis, attack in zip(line[1:], attacks, strict=True):
                item = shown.get((name, attack))
                if item is None:
                    axis.axis("off")
                else:
                    _panel(axis, item.rgb, f"{attack}  {item.ssim:.2f}")


def _panel(axis: Any, rgb: np.ndarray, title: str) -> None:
    """Draw one picture with its title."""
    axis.imshow(rgb, interpolation="nearest")
    axis.set_title(title, fontsize=8)
    axis.spines[:].set_visible(False)
    axis.set_xticks([])
    axis.set_yticks([])


def draw_similarity(path: Path, table: Sequence[InversionRow], *, title: str) -> None:
    """Write the figure (PNG or SVG by its suffix): mean SSIM with its 95 % interval against m, a curve for each attack.

    Raw descriptors are a level line.
    """
    with drawn(path, size=(6.5, 4.2), title=title) as (figure, axes):
        _similarity(axes[0, 0], table)
        legend_below(figure, columns=5)


def _similarity(axis: Any, table: Sequence[InversionRow]) -> None:
    """Draw a curve for each attack."""
    for attack in dict.fromkeys((*ORDER, *(row.attack for row in table))):
        own = sorted((row for row in table if row.attack == attack), key=lambda row: row.m)
        if not own:
            continue
        if attack == RAW:
            draw_level(axis, own[0].ssim, *own[0].interval, label="raw descriptors")
            continue
        low, high = zip(*(row.interval for row in own), strict=True)
        middle, color = [row.ssim for row in own], _COLORS.get(attack, GRAY)
        draw_curve(axis, [row.m for row in own], middle, low, high, color=color, label=attack)
    log2_axis(axis, sorted({row.m for row in table} - {0}))
    axis.set_xlabel("dimension m of the subspaces")
    axis.set_ylabel("SSIM, mean and its 95 % interval")
