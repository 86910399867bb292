"""Figures of `veil evaluate queries`: errors of lines against points, and the evidence of true, false and forged queries."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from veil.files.atomic import replacing
from veil.studies.localization.acceptance_counts import QueryAnswer
from veil.studies.localization.forged_answers import FormAnswer
from veil.studies.localization.robustness import ALL_MATCHES, RobustnessTrial, error_summaries, points_medians

_COLORS = {
    "points": "#1d4ed8",
    "random lines": "#c2410c",
    "aligned lines": "#d99a2b",
    "convergent lines": "#15803d",
    "parallel lines": "#7e22ce",
}
_TRUE, _FALSE = "#0f766e", "#b91c1c"
_LINTHRESH = 10.0  # the axes of evidence are linear up to here, and logarithmic beyond


def draw_queries(path: Path, answers: Sequence[QueryAnswer], trials: Sequence[RobustnessTrial], *, threshold: float) -> None:
    """Write the figure of errors and evidence (PNG or SVG by its suffix).

    `threshold` is the -log10 NFA from which a pose is accepted.
    """
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, (left, right) = pyplot.subplots(1, 2, figsize=(13, 4.6), layout="constrained")
    _errors(left, trials)
    _evidence(right, [item for item in answers if item.observation != "points"], threshold)
    with replacing(path) as temporary:
        figure.savefig(temporary, dpi=130)
    pyplot.close(figure)


def draw_forged(path: Path, answers: Sequence[FormAnswer], *, threshold: float) -> None:
    """Write the figure of forged queries and their true counterparts (PNG or SVG by its suffix).

    It shows the -log10 NFA of each best pose, a row for each kind, colored by whether the query was refused as chance, refused
    otherwise, or accepted; `threshold` is the value from which a pose is beyond chance.
    """
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    kinds = list(dict.fromkeys((item.true, item.kind) for item in sorted(answers, key=lambda item: (item.true, item.kind))))
    figure, axis = pyplot.subplots(figsize=(11, 1.2 + 0.24 * len(kinds)), layout="constrained")
    shown: set[str] = set()
    random = np.random.default_rng(0)
    for item in answers:
        if not np.isfinite(item.log10_nfa):
            continue
        beyond = -item.log10_nfa >= threshold
        word = "accepted" if item.accepted else ("refused though beyond chance" if beyond else "refused: chance")
        color = {"accepted": _TRUE if item.true else _FALSE, "refused: chance": "#9ca3af"}.get(word, "#d99a2b")
        label = f"{'true' if item.true else 'forged'}, {word}" if item.accepted else word
        y = kinds.index((item.true, item.kind)) + random.uniform(-0.3, 0.3)
        axis.plot(-item.log10_nfa, y, ".", color=color, markersize=4, label=None if label in shown else label)
        shown.add(label)
    axis.set_xscale("symlog", linthresh=_LINTHRESH)
    axis.axvline(threshold, color="black", linewidth=1, linestyle="--")
    axis.set_yticks(range(len(kinds)), [kind for _, kind in kinds], fontsize=7)
    axis.set_ylim(len(kinds) - 0.4, -0.6)
    axis.set_xlabel("-log10 of the expected number of chance poses, of the best pose")
    figure.legend(fontsize=8, loc="outside upper right", ncols=len(shown), frameon=False)
    axis.grid(axis="x", alpha=0.3)
    with replacing(path) as temporary:
        figure.savefig(temporary, dpi=130)
    pyplot.close(figure)


def _errors(axis: Any, trials: Sequence[RobustnessTrial]) -> None:
    """Draw median and middle half of the errors at each level, for points and both kinds of lines side by side.

    Scenes differ in size and in how good their maps are, so an error counts in medians of the points' errors of its scene.
    """
    levels = list(dict.fromkeys((row.matches, row.wrong_share) for row in error_summaries(trials) if row.matches >= 0))
    shown: list[float] = []
    for column, level in enumerate(levels):
        group = [item for item in trials if (item.matches, item.wrong_share) == level]
        units = points_medians(group)
        for offset, (observation, color) in enumerate(_COLORS.items()):
            errors = np.array([item.position_error / units[item.group] for item in group if item.observation == observation])
            x = column + 0.25 * (offset - 1)
            (low, high), middle = np.quantile(errors, [0.25, 0.75], method="nearest"), np.median(errors)
            label = observation if column == 0 else None
            if np.isfinite(middle):
                axis.plot([x, x], [low, min(high, 1e3)], color=color, linewidth=3, alpha=0.35, solid_capstyle="butt")
                shown.append(float(middle))
                axis.plot(x, middle, "o", color=color, markersize=5, label=label)
            else:
                axis.plot(x, 1, "x", color=color, label=label, transform=axis.get_xaxis_transform(), clip_on=False)
    axis.axhline(1.3, color="black", linewidth=0.8, linestyle="--")
    axis.text(1.005, 1.3, "1.3", va="center", fontsize=8, transform=axis.get_yaxis_transform())
    names = [f"{count if count != ALL_MATCHES else 'all'}\n{100 * share:.0f} %" for count, share in levels]
    axis.set_xticks(range(len(levels)), names, fontsize=8)
    axis.set_ylim(0, max(2.0, 1.2 * max(shown, default=1.0)))  # bars may leave the picture, medians do not
    axis.set_xlabel("matches, and share of them that is wrong")
    axis.set_ylabel("position error / median of the scene's points")
    axis.set_title("the same matches from points and from lines\n(median and middle half; x: no pose)", fontsize=10)
    axis.legend(fontsize=8, loc="lower left", ncols=3)
    axis.grid(axis="y", alpha=0.3)


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
    axis.axvline(threshold, color="black", linewidth=1, linestyle="--")
    axis.annotate("accepted", (threshold, 0.93), xycoords=("data", "axes fraction"), xytext=(4, 0), textcoords="offset points")
    axis.set_xlabel("-log10 of the expected number of chance poses")
    axis.set_ylabel("queries")
    axis.set_title("queries from lines", fontsize=10)
    axis.legend(fontsize=8)
    axis.grid(axis="y", alpha=0.3)


def _edges(most: float) -> np.ndarray:
    """Edges of bins that are about equally wide on the axis, up to `most`: equal steps where linear, then equal ratios."""
    outer = np.geomspace(_LINTHRESH, max(most, 10 * _LINTHRESH), 25)
    return np.concatenate([-np.geomspace(100.0, _LINTHRESH, 10)[:-1], np.linspace(-_LINTHRESH, _LINTHRESH, 19)[:-1], outer])
