"""The figure of `veil lab tune`: distances of right and of wrong candidates to other views, and the fitted ratios.

A file of its own: each figure of a command loads what it draws, and no other.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from veil.attacks.matches.view_weights import DistanceRatio, ViewWeights
from veil.report.figures import BLACK, BLUE, VERMILION, drawn
from veil_lab.training.view_fit import RatedCandidates

EDGES = np.linspace(0, 0.8, 41)
# Fewest distances of each kind in a bin whose ratio is drawn.
FEWEST = 5


def draw_view_ratios(path: Path, rated: Sequence[RatedCandidates], weights: ViewWeights) -> None:
    """Write the figure (PNG or SVG by its suffix): above histograms, below the logarithm of their ratio and the fitted one."""
    with drawn(path, 2, 2, size=(11, 7), sharex=True) as (_, axes):
        panels = (
            ("to the nearest subspace of a view", weights.nearest, False),
            ("to a verified partner", weights.verified, True),
        )
        for column, (title, ratio, is_verified) in zip(axes.T, panels, strict=True):
            right, wrong = (_histogram(rated, is_verified, is_right) for is_right in (True, False))
            column[0].set_title(title)
            _draw_histograms(column[0], right, wrong)
            _draw_ratio(column[1], right, wrong, ratio)
            column[1].set_xlabel("distance of a candidate, parts of the length of a descriptor")
        axes[0, 0].set_ylabel("density")
        axes[1, 0].set_ylabel("log of the ratio right : wrong")


def _histogram(rated: Sequence[RatedCandidates], is_verified: bool, is_right: bool) -> np.ndarray:
    """Numbers of distances in each bin, of the right or the wrong candidates, of verified partners or others."""
    counts = np.zeros(len(EDGES) - 1)
    for item in rated:
        chosen = np.isfinite(item.log_ratios) & (item.is_right == is_right)
        chosen = chosen & (item.is_verified == is_verified)[:, :, None]
        counts += np.histogram(item.distance[chosen], EDGES)[0]
    return counts


def _draw_histograms(axis: Any, right: np.ndarray, wrong: np.ndarray) -> None:
    for counts, color, label in ((right, BLUE, "right candidates"), (wrong, VERMILION, "wrong candidates")):
        axis.stairs(
            counts / max(counts.sum(), 1), EDGES, color=color, fill=True, alpha=0.5, label=f"{int(counts.sum()):,} {label}"
        )
    axis.set_yticks([])
    axis.set_ylim(0, 1.35 * axis.get_ylim()[1])
    axis.legend(loc="upper left")


def _draw_ratio(axis: Any, right: np.ndarray, wrong: np.ndarray, ratio: DistanceRatio) -> None:
    """The logarithm of the ratio of both histograms, with its standard error, and the fitted curve."""
    middle, enough = (EDGES[1:] + EDGES[:-1]) / 2, (right >= FEWEST) & (wrong >= FEWEST)
    logs = np.log(right[enough] / right.sum()) - np.log(wrong[enough] / wrong.sum())
    errors = np.sqrt(1 / right[enough] + 1 / wrong[enough])
    axis.errorbar(middle[enough], logs, errors, fmt="o", markersize=4, color=BLACK, label="counted")
    # Eq. 15 leaves a factor open, which the counts give.
    fitted = ratio.log_ratios(middle[enough])
    offset = np.average(logs - fitted, weights=1 / errors**2) if enough.any() else 0.0
    axis.plot(EDGES, ratio.log_ratios(EDGES) + offset, color=BLUE, linewidth=2, label="fitted")
    axis.legend(loc="upper right")
