"""Pictures of the HTML pages, as data URIs so that a page opens offline."""

from __future__ import annotations

import base64
import io
from collections.abc import Sequence
from typing import Any

import numpy as np

from veil.forms import Lines
from veil.geometry.camera import Camera, as_colmap
from veil.report.figures import (
    BLACK,
    BLUE,
    DOTS_PER_INCH,
    GRAY,
    GREEN,
    LIGHT,
    ORANGE,
    figure_bytes,
    in_style,
    log_ticks,
    new_figure,
)

_BLANK = 246  # the gray of a picture without content
_SCALE = 0.73  # pixels of a drawn picture for each of the photograph


def matches_picture(
    query: np.ndarray, mapped: np.ndarray, query_xy: np.ndarray, mapped_xy: np.ndarray, *, shown: int = 60
) -> str:
    """Data URI of two photographs side by side, joined by about `shown` of the inlier matches, evenly spread over the list.

    `query_xy` and `mapped_xy` (matches, 2) are the matched keypoints in pixels.
    """
    height = max(len(query), len(mapped))
    gap = 20
    canvas = np.full((height, query.shape[1] + gap + mapped.shape[1], 3), 255, dtype=np.uint8)
    canvas[: len(query), : query.shape[1]] = query
    canvas[: len(mapped), query.shape[1] + gap :] = mapped
    figure, axis = _canvas(canvas.shape)
    axis.imshow(canvas)
    for row in range(0, len(query_xy), max(1, len(query_xy) // shown)):
        (x0, y0), (x1, y1) = query_xy[row], mapped_xy[row]
        x1 += query.shape[1] + gap
        axis.plot([x0, x1], [y0, y1], color=GREEN, linewidth=0.8, alpha=0.8, marker="o", markersize=2)
    return figure_picture(figure)


def server_view(width: int, height: int, keypoints: np.ndarray) -> str:
    """Data URI of the positions of `keypoints` (pixels) on a blank picture, as the server gets them beside subspaces."""
    figure, axis = _canvas((height, width, 3))
    axis.imshow(np.full((height, width, 3), _BLANK, dtype=np.uint8))
    axis.plot(keypoints[:, 0], keypoints[:, 1], ".", color=GRAY, markersize=2.5)
    return figure_picture(figure)


def recovered_view(width: int, height: int, keypoints: np.ndarray, error: np.ndarray) -> str:
    """Data URI of keypoints (pixels), colored by the error of an attack on their descriptors: within 0.1, within 0.4, or not.

    An error of NaN, of an undecided feature, counts as not recovered.
    """
    figure, axis = _canvas((height, width, 3))
    axis.imshow(np.full((height, width, 3), _BLANK, dtype=np.uint8))
    near, close = error < 0.1, (error >= 0.1) & (error < 0.4)
    for rows, color in ((~near & ~close, LIGHT), (close, ORANGE), (near, GREEN)):
        axis.plot(keypoints[rows, 0], keypoints[rows, 1], "o", color=color, markersize=4, markeredgewidth=0)
    return figure_picture(figure)


def lines_view(camera: Camera, lines: Lines, *, shown: int = 250) -> str:
    """Data URI of about `shown` of the lines that the server gets in place of positions; those along gravity are blue."""
    figure, axis = _canvas((camera.height_px, camera.width_px, 3))
    axis.imshow(np.full((camera.height_px, camera.width_px, 3), _BLANK, dtype=np.uint8))
    normal, offset = lines.coefficients[:, :2].astype(np.float64), lines.coefficients[:, 2].astype(np.float64)
    along = np.linspace(-1.0, 1.0, 41)[:, None]
    for row in range(0, len(lines), max(1, len(lines) // shown)):
        run = -offset[row] * normal[row] + along * np.array([-normal[row, 1], normal[row, 0]])
        pixels = np.asarray(as_colmap(camera).img_from_cam(np.hstack([run, np.ones((len(run), 1))])))
        color = BLUE if lines.aligned[row] else GRAY
        axis.plot(pixels[:, 0], pixels[:, 1], color=color, linewidth=0.5, alpha=0.7)
    axis.set(xlim=(0, camera.width_px), ylim=(camera.height_px, 0))
    return figure_picture(figure)


def figure_picture(figure: Any) -> str:
    """Data URI of a drawn matplotlib figure."""
    return _uri(figure_bytes(figure, "jpg"), "jpeg")


def photograph(pixels: np.ndarray) -> str:
    """Data URI of the photograph itself, which stays on the device."""
    from PIL import Image

    buffer = io.BytesIO()
    Image.fromarray(pixels).save(buffer, "JPEG", quality=80)
    return _uri(buffer.getvalue(), "jpeg")


def error_chart(labels: Sequence[str], position: Sequence[Sequence[float]]) -> str:
    """Data URI of the position errors of all queries (percent of the extent), a row for each variant, on a logarithmic axis."""
    return _uri(figure_bytes(error_figure(labels, position), "svg"), "svg+xml")


def error_figure(labels: Sequence[str], position: Sequence[Sequence[float]]) -> Any:
    """The matplotlib figure of `error_chart`."""
    with in_style(grid="x"):
        figure = new_figure((8.5, 0.36 * len(labels) + 1.0))
        _errors(figure.subplots(), labels, position)
    return figure


def _errors(axis: Any, labels: Sequence[str], position: Sequence[Sequence[float]]) -> None:
    """Draw a row of errors for each label."""
    for row, values in enumerate(position):
        color = BLACK if row == 0 else (GREEN if "hardened" in labels[row] else BLUE)
        axis.plot(values, [row] * len(values), "o", color=color, markersize=6, alpha=0.75)
        if len(values):
            axis.plot([np.median(values)], [row], "|", color=color, markersize=18, markeredgewidth=2.5)
    axis.set_yticks(range(len(labels)), labels)
    axis.set_ylim(len(labels) - 0.5, -0.5)
    axis.set_xscale("log")
    ticks = log_ticks(min(map(min, filter(None, position)), default=1.0), max(map(max, filter(None, position)), default=1.0))
    axis.set_xlim(0.95 * ticks[0], 1.05 * ticks[-1])
    axis.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
    axis.minorticks_off()
    axis.set_xlabel("position error, % of the cameras' extent (dots: queries, bar: median)")


def _canvas(shape: tuple[int, ...]) -> tuple[Any, Any]:
    """A figure without margins for a picture of this shape (rows, columns, ...), and its axis in pixels of the picture."""
    figure = new_figure((_SCALE * shape[1] / DOTS_PER_INCH, _SCALE * shape[0] / DOTS_PER_INCH), constrained=False)
    axis = figure.add_axes((0, 0, 1, 1))
    axis.set_axis_off()
    axis.set_xlim(0, shape[1])
    axis.set_ylim(shape[0], 0)
    return figure, axis


def _uri(data: bytes, kind: str) -> str:
    """Data URI of the bytes of an image of this kind."""
    return f"data:image/{kind};base64,{base64.b64encode(data).decode()}"
