"""The figure of `veil budget plan`: expected true words of an image against its epsilon, for several numbers of features.

A file of its own: each figure of a command loads what it draws, and no other.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from veil.ldp.planning import ReleasePlan, curve
from veil.ldp.rounding import outward
from veil.report.figures import GRAY, VERMILION, drawn

# Light to dark with the number of features: readable in print and with the common color deficiencies.
_SHADES = "viridis_r"


def draw_plans(path: Path, plans: Sequence[ReleasePlan], *, image_epsilon: float, needed: int) -> None:
    """Write the figure (PNG or SVG by its suffix) for the K and m of the first plan.

    `image_epsilon` is marked unless it is 0. Fewer than `needed` inliers give no pose: that part is shaded.
    """
    from matplotlib import colormaps

    law, delta = plans[0].mechanism, plans[0].delta
    numbers = sorted({plan.features for plan in plans})
    feature_epsilons = np.linspace(0.05, np.log(law.dictionary_size / law.m) + 5, 120).tolist()
    colors = colormaps[_SHADES](np.linspace(0.15, 1, len(numbers)))
    with drawn(path, size=(7, 4.8)) as (_, axes):
        axis = axes[0, 0]
        for features, color in zip(numbers, colors, strict=True):
            epsilons, words = zip(*curve(law.dictionary_size, law.m, features, delta, feature_epsilons), strict=True)
            axis.plot(epsilons, words, color=color, label=str(features))
        axis.axhspan(1e-3, needed, color=GRAY, alpha=0.15, linewidth=0)
        axis.text(
            0.02, needed * 0.9, f"fewer than the {needed} inliers of a pose", va="top", transform=axis.get_yaxis_transform()
        )
        if image_epsilon > 0:
            axis.axvline(image_epsilon, color=VERMILION)
            axis.text(image_epsilon, 0.12, f" epsilon {outward(image_epsilon, 6)}", color=VERMILION, va="bottom")
        axis.set_xscale("log")
        axis.set_yscale("log")
        axis.set_ylim(0.1, max(numbers) * 1.3)
        axis.set_xlim(left=1)
        axis.set_xlabel(f"epsilon of the image at delta {delta:g}")
        axis.set_ylabel("expected features whose true word is sent")
        axis.legend(title="features")
        axis.set_title(f"K = {law.dictionary_size} words, m = {law.m} sent; inliers are fewer than true words")
