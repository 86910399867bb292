"""The figure of `veil evaluate defenses`: what each attack recovers, beside the matching accuracy, a row for each defense."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from veil.files.atomic import replacing
from veil.studies.attacks.defenses import DefenseRow


def draw_defenses(path: Path, rows: Sequence[DefenseRow]) -> None:
    """Write the figure (PNG or SVG by its suffix): bars of the share that each attack recovers within 0.1, and accuracies.

    Mean matching accuracies at 3 px, of raw descriptors and by both distances, stand beside the bars.
    """
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, (left, right) = pyplot.subplots(
        1, 2, figsize=(11, 0.42 * len(rows) + 1.4), layout="constrained", sharey=True, gridspec_kw={"width_ratios": [3, 2]}
    )
    attacks = [item.attack for item in rows[0].recoveries]
    height = 0.8 / len(attacks)
    colors = ("#b3400e", "#E69F00", "#0072B2", "#009E73", "#CC79A7")
    for k, name in enumerate(attacks):
        places = [row + (k - (len(attacks) - 1) / 2) * height for row in range(len(rows))]
        values = [100 * row.recoveries[k].within[0] for row in rows]
        left.barh(places, values, height=height, color=colors[k % len(colors)], label=name)
    left.set_xlabel("descriptors recovered within 0.1, %")
    left.set_yticks(range(len(rows)), [row.defense.name for row in rows])
    left.invert_yaxis()
    left.set_xlim(0, 100)
    left.legend(fontsize=8, loc="lower right")
    for values, marker, label in (
        ([row.raw for row in rows], "|", "raw, in the defense's space"),
        ([row.p2s for row in rows], "o", "point to subspace"),
        ([row.s2s for row in rows], "s", "subspace to subspace"),
    ):
        right.plot([100 * value for value in values], range(len(rows)), marker, label=label, markersize=6)
    right.set_xlabel("mean matching accuracy at 3 px, %")
    figure.legend(*right.get_legend_handles_labels(), loc="outside upper right", ncols=3, fontsize=8, frameon=False)
    for axis in (left, right):
        axis.grid(axis="x", alpha=0.3)
    with replacing(path) as temporary:
        figure.savefig(temporary, dpi=120)
    pyplot.close(figure)
