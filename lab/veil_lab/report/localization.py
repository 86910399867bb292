"""Figures of `veil evaluate localization` and `reconstruction`: queries by form, and maps beside reference cameras."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from veil.geometry.rigid import Rigid
from veil.report.figures import BLACK, drawn, legend_below, log2_axis, series, write_figure
from veil.report.maps_from_above import maps_figure
from veil.trials.reconstruction_run import Run
from veil_lab.studies.localization.word_localization_settings import LocalizationRow, Setting


def draw_localization(path: Path, rows: Sequence[LocalizationRow], *, default: tuple[int, float, int]) -> None:
    """Write the figure (PNG or SVG by its suffix), with a column each for epsilon, K and m.

    The other two parameters are those of `default` (K, epsilon, m).
    """
    k, epsilon, m = default
    panels: tuple[tuple[str, str, str, dict[str, float]], ...] = (
        ("epsilon", "epsilon of each feature", f"K = {k}, m = {m}", {"words": float(k), "m": float(m)}),
        ("words", "words in the dictionary, K", f"epsilon = {epsilon:g}, m = {m}", {"epsilon": epsilon, "m": float(m)}),
        ("m", "words sent for each feature, m", f"K = {k}, epsilon = {epsilon:g}", {"words": float(k), "epsilon": epsilon}),
    )
    with drawn(path, 2, 3, size=(14, 7.4), sharex="col") as (figure, axes):
        for column, (name, label, fixed, values) in enumerate(panels):
            _panel(axes[0, column], rows, name, values, accepted=True)
            _panel(axes[1, column], rows, name, values, accepted=False)
            axes[0, column].set_title(fixed)
            axes[1, column].set_xlabel(label)
        axes[0, 0].set_ylabel("localized within the strictest threshold, %")
        axes[1, 0].set_ylabel("inliers, median of the queries")
        legend_below(figure, _key([row.scene for row in rows]), columns=9)


def _key(scenes: Sequence[str]) -> list[Any]:
    """Handles of the legend: a color for each scene, and the meaning of markers and of thin lines."""
    from matplotlib.lines import Line2D

    styles: tuple[tuple[str, Any, str], ...] = (
        ("o", "-", "words"),
        ("x", ":", "words, mutual nearest neighbor"),
        ("s", "--", "words with lines"),
    )
    return [
        *(Line2D([], [], color=color, linewidth=4, label=scene) for scene, color in series(scenes).items()),
        *(Line2D([], [], color=BLACK, marker=marker, linestyle=line, label=name) for marker, line, name in styles),
        Line2D([], [], color=BLACK, linewidth=0.7, alpha=0.4, label="raw descriptors"),
    ]


def _panel(axis: Any, rows: Sequence[LocalizationRow], name: str, fixed: dict[str, float], *, accepted: bool) -> None:
    """Draw curves against the parameter `name`: of localized queries if `accepted`, else of inliers."""
    chosen = [row for row in rows if row.setting.dictionary == "reference" and _on_line(row.setting, name, fixed)]
    most = max((row.setting.iterations or 0 for row in chosen), default=0)
    for scene, color in series([row.scene for row in rows]).items():
        for form, matching, style in (
            ("words", "vocabulary", "o-"),
            ("words", "mutual-nn", "x:"),
            ("words+lines", "vocabulary", "s--"),
        ):
            line = [
                row
                for row in chosen
                if (row.scene, row.setting.form, row.setting.matching, row.setting.iterations) == (scene, form, matching, most)
            ]
            line.sort(key=lambda row: getattr(row.setting, name))
            if not line:
                continue
            x = [getattr(row.setting, name) for row in line]
            y = [100 * next(iter(row.localized.values())) if accepted else max(row.median_inliers, 0.5) for row in line]
            axis.plot(x, y, style, color=color)
        raw = [row for row in rows if row.scene == scene and row.setting.form == "raw"]
        for row in raw:
            level = 100 * next(iter(row.localized.values())) if accepted else row.median_inliers
            axis.axhline(level, color=color, linewidth=0.7, alpha=0.4)
    if name != "epsilon":
        log2_axis(axis, sorted({getattr(row.setting, name) for row in chosen}))
    if accepted:
        axis.set_ylim(-4, 104)
    else:
        axis.set_yscale("log")


def _on_line(setting: Setting, name: str, fixed: dict[str, float]) -> bool:
    """Whether a setting has a finite value of the parameter `name`, and those of `fixed` for the other parameters."""
    value = getattr(setting, name)
    if value is None or (name == "epsilon" and math.isinf(value)):
        return False
    return all(getattr(setting, key) is not None and np.isclose(getattr(setting, key), wanted) for key, wanted in fixed.items())


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
