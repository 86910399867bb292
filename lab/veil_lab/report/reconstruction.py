"""Figures of `veil evaluate reconstruction`: maps from above beside the reference, and success against gravity noise."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from veil.geometry.rigid import Rigid
from veil.report.figures import drawn, series, write_figure
from veil.report.maps_from_above import maps_figure
from veil.trials.reconstruction_run import Run


def draw_maps(path: Path, runs: Sequence[Run], references: Mapping[str, Mapping[str, Rigid]]) -> None:
    """Write `maps_figure` (PNG or SVG by the suffix of `path`)."""
    write_figure(path, maps_figure(runs, references))


def draw_curve(path: Path, runs: Sequence[Run]) -> None:
    """Write the figure (PNG or SVG by its suffix) of success against gravity noise, with a curve for each scene.

    Success is the share of draws with a map in which every image is registered and right.
    """
    lines = [run for run in runs if run.method == "lines"]
    with drawn(path, size=(6.2, 3.8)) as (_, axes):
        axis = axes[0, 0]
        for number, (scene, color) in enumerate(series([run.scene for run in lines]).items()):
            noises = sorted({run.gravity_noise_deg for run in lines if run.scene == scene})
            shares = [
                np.mean([run.succeeded for run in lines if run.scene == scene and run.gravity_noise_deg == noise])
                for noise in noises
            ]
            # Curves that coincide stay visible.
            axis.plot(noises, 100 * np.array(shares) - 0.8 * number, marker="o", color=color, label=scene)
        axis.set(xlabel="gravity noise, degrees about each axis", ylabel="draws with a right map, %", ylim=(-6, 104))
        axis.legend()
