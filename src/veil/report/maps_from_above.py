"""A figure of maps from above, beside the reference."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from veil.geometry.rigid import Rigid
from veil.report.figures import BLACK, BLUE, GRAY, VERMILION, in_style, legend_below, new_figure
from veil.trials.reconstruction_run import Run

COLORS = {"lines": VERMILION, "points": BLUE}
REFERENCE, FAINT, POINTS = BLACK, 0.35, GRAY


def maps_figure(runs: Sequence[Run], references: Mapping[str, Mapping[str, Rigid]]) -> Any:
    """A matplotlib figure of maps from above, with a panel for each scene and method.

    It shows points and cameras of the run with the median error, seen along gravity, over the reference cameras. `references`
    are reference poses by scene and image name.
    """
    chosen = _typical(runs)
    scenes = list(dict.fromkeys(run.scene for run in chosen))
    methods = [method for method in ("points", "lines") if any(run.method == method for run in chosen)]
    with in_style(grid=None):
        figure = new_figure((4.2 * len(scenes), 3.9 * len(methods)))
        axes = figure.subplots(len(methods), len(scenes), squeeze=False)
        for run in chosen:
            _draw(axes[methods.index(run.method), scenes.index(run.scene)], run, references.get(run.scene, {}))
        _explain(figure, methods, bool(references))
    return figure


def _explain(figure: Any, methods: Sequence[str], with_reference: bool) -> None:
    """Draw the legend below all panels: a camera is a triangle that opens where it looks."""
    from matplotlib.lines import Line2D

    names = {"lines": "camera mapped from lines", "points": "camera mapped by COLMAP"}
    triangle: dict[str, Any] = {"marker": "v", "fillstyle": "none", "linestyle": ""}
    marks = [Line2D([], [], color=COLORS[method], label=names[method], **triangle) for method in methods]
    if with_reference:
        marks.append(Line2D([], [], color=REFERENCE, alpha=FAINT, label="reference camera", **triangle))
    marks.append(Line2D([], [], color=POINTS, marker=".", linestyle="", label="mapped point"))
    legend_below(figure, marks, columns=2)


def _typical(runs: Sequence[Run]) -> list[Run]:
    """The run with the median position error for each scene and method, of those with the least noise of gravity."""
    chosen = []
    for key in dict.fromkeys((run.scene, run.method) for run in runs):
        group = [run for run in runs if (run.scene, run.method) == key and run.position is not None]
        if group:
            least = min(run.gravity_noise_deg for run in group)
            group = sorted((run for run in group if run.gravity_noise_deg == least), key=lambda run: run.position.mean)  # type: ignore[union-attr]
            chosen.append(group[(len(group) - 1) // 2])
    return chosen


def _draw(axis: Any, run: Run, reference: Mapping[str, Rigid]) -> None:
    """Draw one map and its reference cameras."""
    poses = {**run.cam_from_world, **reference}
    plane = _horizontal([poses[name] for name in sorted(reference or poses)])
    points = run.points @ plane.T
    centers = np.array([pose.center for pose in poses.values()]) @ plane.T
    shown = points[_near(points, centers)]
    axis.scatter(shown[:, 0], shown[:, 1], s=0.6, c=POINTS, linewidths=0)
    size = 0.05 * float(np.linalg.norm(np.ptp(np.vstack([shown, centers]), axis=0)))
    for pose in reference.values():
        _camera(axis, pose, plane, size, color=REFERENCE, width=2.4, alpha=FAINT)
    for pose in run.cam_from_world.values():
        _camera(axis, pose, plane, size, color=COLORS[run.method], width=1.1, alpha=1.0)
    assert run.position is not None
    title = "lines alone" if run.method == "lines" else "COLMAP, raw keypoints"
    axis.set_title(
        f"{run.scene}: {title}\n{run.registered} of {run.total} images, {len(run.points)} points, "
        f"mean error {run.position.mean:.2g}",
        fontsize=9,
    )
    axis.set_xlabel("seen from above, in units of the reference")
    axis.set_aspect("equal")


def _horizontal(poses: Sequence[Rigid]) -> np.ndarray:
    """Two unit vectors perpendicular to the cameras' mean y-axis, as rows: right and forward of the first camera."""
    down = np.mean([pose.rotation[1] for pose in poses], axis=0)
    down /= np.linalg.norm(down)
    forward = poses[0].rotation[2] - (poses[0].rotation[2] @ down) * down
    forward /= np.linalg.norm(forward)
    return np.stack([np.cross(down, forward), forward])


def _near(points: np.ndarray, centers: np.ndarray) -> np.ndarray:
    """Mask of the points that are drawn: without far ones, which would shrink the rest."""
    if not len(points):
        return np.zeros(0, dtype=bool)
    low, high = np.percentile(points, [2, 98], axis=0)
    low, high = np.minimum(low, centers.min(axis=0)), np.maximum(high, centers.max(axis=0))
    margin = 0.1 * (high - low)
    return ((points >= low - margin) & (points <= high + margin)).all(axis=1)


def _camera(axis: Any, pose: Rigid, plane: np.ndarray, size: float, *, color: str, width: float, alpha: float) -> None:
    """Draw a camera as a triangle that opens where it looks."""
    corners = np.array([[0, 0, 0], [-0.6, 0, 1.0], [0.6, 0, 1.0], [0, 0, 0]]) * size
    world = (corners @ pose.rotation + pose.center) @ plane.T
    axis.plot(world[:, 0], world[:, 1], color=color, linewidth=width, alpha=alpha)
