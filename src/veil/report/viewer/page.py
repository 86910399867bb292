"""The page of a view: one HTML file with its data, style and script, from which no request leaves."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from importlib.resources import files
from typing import Any

import numpy as np

from veil.errors import Say
from veil.report.page_templates import page_template
from veil.report.viewer.content import ShownImage, View, ViewLimits
from veil.report.viewer.packing import PackedArray, array, packed_images, packed_points
from veil.report.viewer.records import Pictures, record

SCRIPTS = ("arrays", "vectors", "orbit", "drawing", "sketches", "picture", "main")


@dataclass(frozen=True, kw_only=True)
class Page:
    """A page: its `html`, and what it holds of the view.

    `points` of `all_points` are shown, each within `error` (units of the map) along each axis; `images` of `all_images` with
    `sightings`; `photographs` and `recovered` pictures, and true positions of keypoints of `true_positions` images.
    """

    html: str
    points: int
    all_points: int
    not_finite: int
    error: float
    images: int
    all_images: int
    sightings: int
    sightings_left_out: int
    photographs: int
    true_positions: int
    recovered: int


def page(view: View, limits: ViewLimits | None = None, *, say: Say = str) -> Page:
    """The self-contained HTML page of a view: nothing in it is fetched, and its policy forbids it.

    Names are data and never become markup. Memory and size are bounded by `limits`. `say` turns a remedy into a phrase.
    """
    limits = limits or ViewLimits()
    view = replace(view, images=[_placed(image) for image in view.images])
    points = packed_points(view.points, limits.points)
    images = packed_images(view.images, points, len(view.points), limits)
    pictures = Pictures(view, images.images, limits)
    head, arrays = record(view, points, images, pictures, say)
    return Page(
        html=_html(view, head, [array("places", points.values), *images.arrays, *arrays]),
        points=len(points.kept),
        all_points=len(view.points),
        not_finite=points.not_finite,
        error=points.error,
        images=len(images.images),
        all_images=len(view.images),
        sightings=sum(images.count),
        sightings_left_out=images.left_out,
        photographs=len(pictures.photographs),
        true_positions=sum(
            image.name in view.known and view.known[image.name].keypoints is not None for image in images.images
        ),
        recovered=sum(len(recovered) for recovered in pictures.recovered.values()),
    )


def _placed(image: ShownImage) -> ShownImage:
    """The image, without its pose where that is not finite: a damaged map is shown, too."""
    pose = image.cam_from_world
    if pose is None or (np.isfinite(pose.rotation).all() and np.isfinite(pose.translation).all()):
        return image
    return replace(image, cam_from_world=None, told=(*image.told, "its pose is not finite, and left out"))


def _html(view: View, head: dict[str, Any], arrays: Sequence[PackedArray]) -> str:
    """The page's text."""
    folder = files("veil.report") / "templates" / "viewer"
    style, script = (folder / "page.css").read_text(), bundled_script()
    policy = (
        f"default-src 'none'; script-src '{_hash(script)}'; style-src '{_hash(style)}'; img-src data:; base-uri 'none'; "
        "form-action 'none'"
    )
    # In JSON "<" stands in texts alone: escaped there, no name can end the element or begin a comment.
    text = json.dumps(head, allow_nan=False, separators=(",", ":")).replace("<", "\\u003c")
    return page_template("viewer/page.html").render(
        title=_written(view.title),
        kind=_written(view.kind),
        policy=policy,
        style=style,
        script=script,
        head=text,
        arrays=arrays,
    )


def _written(text: str) -> str:
    """The text as UTF-8 can hold it: names of files may hold what it cannot."""
    return text.encode("utf-8", "replace").decode()


def bundled_script() -> str:
    """The page's modules as one script: each without its imports and exports, as all of their names differ."""
    folder = files("veil.report") / "templates" / "viewer"
    lines = ['"use strict";']
    for name in SCRIPTS:
        for line in (folder / f"{name}.js").read_text().splitlines():
            if not line.startswith("import "):
                lines.append(line.removeprefix("export "))
    return "\n".join(lines) + "\n"


def _hash(text: str) -> str:
    """The source of a policy that allows one inline element of this text alone."""
    return f"sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}"
