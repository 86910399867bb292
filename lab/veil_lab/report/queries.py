"""Figures of `veil evaluate queries`: errors of lines against points, and the evidence of true, false and forged queries."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from veil.report.figures import BLACK, BLUE, GREEN, LIGHT, ORANGE, PURPLE, VERMILION, drawn
from veil_lab.studies.localization.acceptance_counts import QueryAnswer
from veil_lab.studies.localization.forged_answers import ForgedAnswer
from veil_lab.studies.localization.robustness import ALL_MATCHES, RobustnessTrial, error_summaries, points_medians

_COLORS = {
    "points": BLUE,
    "random lines": VERMILION,
    "aligned lines": ORANGE,
    "convergent lines": GREEN,
    "parallel lines": PURPLE,
}
_TRUE, _FALSE = GREEN, VERMILION
_LINTHRESH = 10.0  # the axes of evidence are linear up to here, and logarithmic beyond


def draw_queries(path: Path, answers: Sequence[QueryAnswer], trials: Sequence[RobustnessTrial], *, threshold: float) -> None:
    """Write the figure of errors and evidence (PNG or SVG by its suffix).

    `threshold` is the -log10 NFA from which a pose is accepted.
    """
    with drawn(path, 1, 2, size=(13, 4.6), grid="y") as (_, axes):
        _errors(axes[0, 0], trials)
        _evidence(axes[0, 1], [item for item in answers if item.observation != "points"], threshold)


def draw_forged(path: Path, answers: Sequence[ForgedAnswer], *, threshold: float) -> None:
    """Write the figure of forged queries and their true counterparts (PNG or SVG by its suffix).

    It shows the -log10 NFA of each best pose, a row for each kind, colored by whether the query was refused as chance, refused
    otherwise, or accepted; `threshold` is the value from which a pose is beyond chance.
    """
    kinds = list(dict.fromkeys((item.true, item.kind) for item in sorted(answers, key=lambda item: (item.true, item.kind))))
    with drawn(path, size=(11, 1.2 + 0.24 * len(kinds)), grid="x") as (figure, axes):
        axis = axes[0, 0]
        _forged(axis, answers, kinds, threshold)
        axis.set_xscale("symlog", linthresh=_LINTHRESH)
        axis.axvline(threshold, color=BLACK, linewidth=1, linestyle="--")
        axis.set_yticks(range(len(kinds)), [kind for _, kind in kinds])
        axis.set_ylim(len(kinds) - 0.4, -0.6)
        axis.set_xlabel("-log10 of the expected number of chance poses, of the best pose")
        handles, labels = axis.get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside upper right", ncols=max(1, len(labels)))


def _forged(axis: Any, answers: Sequence[ForgedAnswer], kinds: Sequence[tuple[bool, str]], threshold: float) -> None:
    """Draw a dot for each query in the row of its kind, spread over its height."""
    shown: set[str] = set()
    random = np.random.default_rng(0)
    for item in answers:
        if not np.isfinite(item.log10_nfa):
            continue
        beyond = -item.log10_nfa >= threshold
        word = "accepted" if item.accepted else ("refused though beyond chance" if beyond else "refused: chance")
        color = {"accepted": _TRUE if item.true else _FALSE, "refused: chance": LIGHT}.get(word, ORANGE)
        label = f"{'true' if item.true else 'forged'}, {word}" if item.accepted else word
        y = kinds.index((item.true, item.kind)) + random.uniform(-0.3, 0.3)
        axis.plot(-item.log10_nfa, y, ".", color=color, markersize=4, label=None if label in shown else label)
        shown.add(label)


def _errors(axis: Any, trials: Sequence[RobustnessTrial]) -> None:
    """Draw median and middle half of the errors at each level, for points and both kinds of lines side by side.

    Scenes differ in size and in how good their maps are, so an error counts in medians of the points' errors of its scene.
    """
    levels = list(dict.fromkeys((row.matches, row.wrong_share) for row in error_summaries(trials) if row.matches >= 0))
    shown: list[float] = []
    kinds = [kind for kind in _COLORS if any(item.observation == kind for item in trials)]
    step = 0.8 / max(1, len(kinds))
    for column, level in enumerate(levels):
        group = [item for item in trials if (item.matches, item.wrong_share) == level]
        units = points_medians(group)
        for offset, observation in enumerate(kinds):
            color = _COLORS[observation]
            errors = np.array([item.position_error / units[item.group] for item in group if item.observation == observation])
            x = column + step * (offset - (len(kinds) - 1) / 2)
            (low, high), middle = np.quantile(errors, [0.25, 0.75], method="nearest"), np.median(errors)
            label = observation if column == 0 else None
            if np.isfinite(middle):
                axis.plot([x, x], [low, min(high, 1e3)], color=color, linewidth=3, alpha=0.35, solid_capstyle="butt")
                shown.append(float(middle))
                axis.plot(x, middle, "o", color=color, markersize=5, label=label)
            else:
                axis.plot(x, 0.03, "x", color=color, label=label, transform=axis.get_xaxis_transform())
    axis.axhline(1.3, color=BLACK, linewidth=0.8, linestyle="--")
    axis.text(1.005, 1.3, "1.3", va="center", transform=axis.get_yaxis_transform())
    names = [f"{count if count != ALL_MATCHES else 'all'}\n{100 * share:.0f} %" for count, share in levels]
    axis.set_xticks(range(len(levels)), names)
    axis.set_ylim(0, max(2.0, 1.35 * max(shown, default=1.0)))  # bars may leave the picture, medians do not
    axis.set_xlabel("matches, and share of them that is wrong")
    axis.set_ylabel("position error / median of the scene's points")
    axis.set_title("the same matches from points and from lines\n(median and middle half; x: no pose)")
    axis.legend(loc="upper left", ncols=3)


def _evidence(axis: Any, answers: Sequence[QueryAnswer], threshold: float) -> None:
    """Draw histograms of -log10 NFA of true and of false queries, on an axis that is linear near zero."""
    strengths = {
        True: np.array([-item.log10_nfa for item in answers if item.kind == "true" and np.isfinite(item.log10_nfa)]),
        False: np.array([-item.log10_nfa for item in answers if item.kind != "true" and np.isfinite(item.log10_nfa)]),
    }
    axis.set_xscale("symlog", linthresh=_LINTHRESH)
    edges = _edges(max((values.max() for values in strengths.values() if len(values)), default=_LINTHRESH))
    for kind, color, name in ((True, _TRUE, "held-out photographs"), (False, _FALSE, "other places and noise")):
        axis.hist(strengths[kind], edges, color=color, alpha=0.75, label=f"{name} ({len(strengths[kind])})")
    axis.axvline(threshold, color=BLACK, linewidth=1, linestyle="--")
    axis.annotate("accepted", (threshold, 0.93), xycoords=("data", "axes fraction"), xytext=(4, 0), textcoords="offset points")
    axis.set_xlabel("-log10 of the expected number of chance poses")
    axis.set_ylabel("queries")
    axis.set_title("queries from lines")
    axis.legend()


def _edges(most: float) -> np.ndarray:
    """Edges of bins that are about equally wide on the axis, up to `most`: equal steps where linear, then equal ratios."""
    outer = np.geomspace(_LINTHRESH, max(most, 10 * _LINTHRESH), 25)
    return np.concatenate([-np.geomspace(100.0, _LINTHRESH, 10)[:-1], np.linspace(-_LINTHRESH, _LINTHRESH, 19)[:-1], outer])
