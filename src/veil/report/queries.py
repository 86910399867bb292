"""The figure of `veil evaluate queries`: errors of lines against points, and the evidence of true and false queries."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from veil.files.atomic import replacing
from veil.studies.localization.acceptance_counts import Verdict
from veil.studies.localization.forged_answers import Answer
from veil.studies.localization.robustness import ALL, Strained, cells, points_medians

_COLORS = {"points": "#1d4ed8", "random lines": "#c2410c", "aligned lines": "#d99a2b"}
_TRUE, _FALSE = "#0f766e", "#b91c1c"
_LINTHRESH = 10.0


def draw_queries(path: Path, verdicts: Sequence[Verdict], strained: Sequence[Strained], *, threshold: float) -> None:
    """Write the figure (PNG or SVG by its suffix); `threshold` is the -log10 NFA from which a pose is accepted."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, (left, right) = pyplot.subplots(1, 2, figsize=(13, 4.6), layout="constrained")
    _errors(left, strained)
    _evidence(right, [item for item in verdicts if item.sight != "points"], threshold)
    with replacing(path) as temporary:
        figure.savefig(temporary, dpi=130)
    pyplot.close(figure)


def draw_forged(path: Path, answers: Sequence[Answer], *, threshold: float) -> None:
    """The evidence of each best pose, a row for each kind: refused as chance, refused otherwise, accepted."""
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


def _errors(axis: Any, strained: Sequence[Strained]) -> None:
    """Median and middle half of each load, points and both kinds of lines side by side.

    Scenes differ in size and in how good their maps are, so an error counts in medians of the points' errors of its scene.
    """
    loads = list(dict.fromkeys((cell.matches, cell.wrong_share) for cell in cells(strained) if cell.matches >= 0))
    shown: list[float] = []
    for column, load in enumerate(loads):
        group = [item for item in strained if (item.matches, item.wrong_share) == load]
        units = points_medians(group)
        for offset, (sight, color) in enumerate(_COLORS.items()):
            errors = np.array([item.position_error / units[item.case] for item in group if item.sight == sight])
            x = column + 0.25 * (offset - 1)
            (low, high), middle = np.quantile(errors, [0.25, 0.75], method="nearest"), np.median(errors)
            label = sight if column == 0 else None
            if np.isfinite(middle):
                axis.plot([x, x], [low, min(high, 1e3)], color=color, linewidth=3, alpha=0.35, solid_capstyle="butt")
                shown.append(float(middle))
                axis.plot(x, middle, "o", color=color, markersize=5, label=label)
            else:
                axis.plot(x, 1, "x", color=color, label=label, transform=axis.get_xaxis_transform(), clip_on=False)
    axis.axhline(1.3, color="black", linewidth=0.8, linestyle="--")
    axis.text(1.005, 1.3, "1.3", va="center", fontsize=8, transform=axis.get_yaxis_transform())
    axis.set_xticks(range(len(loads)), [f"{n if n != ALL else 'all'}\n{100 * share:.0f} %" for n, share in loads], fontsize=8)
    axis.set_ylim(0, max(2.0, 1.2 * max(shown, default=1.0)))  # bars may leave the picture, medians do not
    axis.set_xlabel("matches, and share of them that is wrong")
    axis.set_ylabel("position error / median of the scene's points")
    axis.set_title("the same matches from points and from lines\n(median and middle half; x: no pose)", fontsize=10)
    axis.legend(fontsize=8, loc="lower left", ncols=3)
    axis.grid(axis="y", alpha=0.3)


def _evidence(axis: Any, verdicts: Sequence[Verdict], threshold: float) -> None:
    """How strongly chance is refused, true queries and false ones, on an axis that is linear near zero."""
    strengths = {
        True: np.array([-item.log10_nfa for item in verdicts if item.kind == "true" and np.isfinite(item.log10_nfa)]),
        False: np.array([-item.log10_nfa for item in verdicts if item.kind != "true" and np.isfinite(item.log10_nfa)]),
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
    """Bins of equal width on the axis: linear up to the threshold of the scale, then in equal ratios."""
    outer = np.geomspace(_LINTHRESH, max(most, 10 * _LINTHRESH), 25)
    return np.concatenate([-np.geomspace(100.0, _LINTHRESH, 10)[:-1], np.linspace(-_LINTHRESH, _LINTHRESH, 19)[:-1], outer])
