"""The figure of gravity from vertical edges: segments that agree, over the photograph, and down at a grid of points.

A file of its own: each figure of a command loads what it draws, and no other.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
from jaxtyping import Float64, UInt8

from veil.geometry.camera import Camera, as_colmap
from veil.geometry.vanishing_point import Vertical
from veil.report.figures import GRAY, GREEN, VERMILION, drawn

_AGREES, _OTHER, _DOWN = GREEN, GRAY, VERMILION


def draw_vertical(
    path: Path,
    rgb: UInt8[np.ndarray, "height width 3"],
    segments: Float64[np.ndarray, "segments 2 2"],
    camera: Camera,
    vertical: Vertical,
) -> None:
    """Write the figure (PNG or SVG by its suffix).

    `segments` (segments, ends, xy) are all that were detected, in pixels; those of `vertical.rows` are marked.
    """
    from matplotlib.collections import LineCollection

    height, width = rgb.shape[:2]
    size = (max(4.5, 7 * width / max(width, height)), 7 * height / max(width, height) + 0.6)
    title = (
        f"{vertical.lines} vertical lines (green) of {len(segments)} segments (gray)\n"
        f"down (orange), standard deviation {vertical.gravity.sigma_deg:.1f} degrees"
    )
    with drawn(path, size=size, grid=None) as (_, axes):
        axis = axes[0, 0]
        axis.imshow(0.45 * rgb / 255.0 + 0.55, extent=(0, width, height, 0))
        others = np.delete(segments, vertical.rows, axis=0)
        axis.add_collection(LineCollection(list(others), colors=_OTHER, linewidths=0.4))
        axis.add_collection(LineCollection(list(segments[vertical.rows]), colors=_AGREES, linewidths=1.3))
        for start, end in _plumb_lines(camera, vertical.gravity.direction):
            axis.annotate("", tuple(end), tuple(start), arrowprops={"arrowstyle": "-|>", "color": _DOWN, "linewidth": 1.6})
        axis.set_xlim(0, width)
        axis.set_ylim(height, 0)
        axis.axis("off")
        axis.set_title(title)


def _plumb_lines(camera: Camera, down: np.ndarray) -> list[tuple[np.ndarray, np.ndarray]]:
    """Start and end in pixels of short pieces that hang down in the world, from a grid of points over the picture."""
    width, height = camera.width_px, camera.height_px
    grid = np.array([[x * width, y * height] for y in (0.2, 0.5, 0.8) for x in (0.1, 0.3, 0.5, 0.7, 0.9)])
    colmap = as_colmap(camera)
    rays = np.concatenate([np.asarray(colmap.cam_from_img(grid)), np.ones((len(grid), 1))], axis=1)
    length = 0.12 * height / camera.focal_px
    tips = rays + length * (down - rays * down[2])  # the image of a step down from the point of depth 1, to first order
    tips /= tips[:, 2:]
    return list(zip(grid, np.asarray(colmap.img_from_cam(tips)), strict=True))
