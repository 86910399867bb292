"""Figures that are read by people: labels do not lie over each other, and every mark is explained."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest

from veil.geometry.rigid import Rigid
from veil.report.maps_from_above import maps_figure
from veil.report.pictures import error_figure
from veil.trials.reconstruction_run import ErrorStatistics, Run
from worlds import generator


@pytest.mark.slow
@pytest.mark.parametrize(
    "errors",
    [
        [[0.048, 0.052, 0.061], [0.2, 0.27, 0.38], []],
        [[0.05, 0.06], [0.09]],
        [[0.0012, 0.02], [3.0, 45.0]],
        [[0.07]],
        [[0.1, 0.2]],
        [[1e-4, 100.0]],
    ],
)
def test_labels_of_the_error_axis_stand_apart(errors: list[list[float]]) -> None:
    """Oracle: the boxes that the renderer gives the labels, and the axis around all that is drawn."""
    figure = error_figure([f"variant {k}" for k in range(len(errors))], errors)
    figure.canvas.draw()
    axis = figure.axes[0]
    low, high = axis.get_xlim()
    values = [value for row in errors for value in row]
    assert low <= min(values) and max(values) <= high
    labels = [label for label in (*axis.get_xticklabels(), *axis.get_xticklabels(minor=True)) if label.get_text()]
    boxes = sorted((label.get_window_extent() for label in labels), key=lambda box: float(box.x0))
    inside = [box for box in boxes if axis.bbox.x0 - 1 <= (box.x0 + box.x1) / 2 <= axis.bbox.x1 + 1]
    assert len(inside) >= 2 and all(a.x1 + 2 < b.x0 for a, b in pairwise(inside))


def test_every_color_of_a_map_is_explained() -> None:
    """The reference cameras are gray, and who sees the figure must not guess why."""
    random = generator("maps")
    poses = {str(k): Rigid(rotation=np.eye(3), translation=random.normal(size=3)) for k in range(4)}
    run = Run(
        scene="door",
        method="lines",
        seed=0,
        gravity_noise_deg=0.0,
        total=4,
        cam_from_world=poses,
        points=random.normal(size=(50, 3)),
        position=ErrorStatistics.of(np.array([0.1])),
    )
    for reference, expected in (({}, 2), (poses, 3)):
        figure = maps_figure([run], {"door": reference} if reference else {})
        told = [text.get_text() for legend in figure.legends for text in legend.get_texts()]
        assert len(told) == expected and ("reference camera" in told) == bool(reference)
