"""Arrays of a view as base64, and the record that says what they are.

Points are 16-bit steps of the box around them where that is exact enough, else 32-bit floats about the middle of the map. They
lie in an order of chance, so that the first of them are an even choice of all: the page draws fewer while the eye moves.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from jaxtyping import Float64, Int64, UInt8

from veil.report.viewer.content import ShownImage, View, ViewLimits

STEPS = 65535
# Half a step of 16 bits may be this share of the map's extent (the box of the middle 90 % of its points); else floats are used.
MOST_ERROR = 2e-5
NONE = np.uint32(0xFFFFFFFF)
# Keypoints lie on corners, where one pixel says little: colors are those of a picture with this number of pixels a side.
COLOR_PX = 200


@dataclass(frozen=True, kw_only=True)
class PackedArray:
    """An array as text: its `name`, the JavaScript `type` of typed array, and its bytes in little-endian order as base64."""

    name: str
    type: str
    base64: str


@dataclass(frozen=True, kw_only=True, eq=False)
class PackedPoints:
    """The points that a page holds.

    - `kept`, int64 (N,): their rows in the view, in the order of the page.
    - `origin`, `low`, `stride`, float64 (3,): point = origin + low + stride * (numbers of the array).
    - `values`: uint16 or float32 (N, 3).
    - `error`: largest distance along an axis of a point of the page from that of the map, in units of the map.
    - `not_finite`: how many points of the view were left out as not finite.
    - `extent`: diagonal of the box of the middle 90 % of the points along each axis.
    """

    kept: Int64[np.ndarray, "_"]
    origin: Float64[np.ndarray, "3"]
    low: Float64[np.ndarray, "3"]
    stride: Float64[np.ndarray, "3"]
    values: np.ndarray
    error: float
    not_finite: int
    extent: float

    def decoded(self) -> Float64[np.ndarray, "points 3"]:
        """The points as the page has them, in its order."""
        return self.origin + self.low + self.stride * self.values.astype(np.float64)


def array(name: str, values: np.ndarray) -> PackedArray:
    """An array of 8, 16 or 32-bit numbers without sign, or 32-bit floats, as text."""
    kinds = {"u1": "Uint8Array", "u2": "Uint16Array", "u4": "Uint32Array", "f4": "Float32Array"}
    little = np.ascontiguousarray(values, dtype=values.dtype.newbyteorder("<"))
    kind = f"{values.dtype.kind}{values.dtype.itemsize}"
    return PackedArray(name=name, type=kinds[kind], base64=base64.b64encode(little.tobytes()).decode())


def packed_points(points: Float64[np.ndarray, "points 3"], most: int) -> PackedPoints:
    """At most `most` of the points, evenly chosen, in few bytes."""
    finite = np.flatnonzero(np.isfinite(points).all(axis=1) & (np.abs(points) < 1e30).all(axis=1))
    # The order is the same at every run: a page of the same map has the same bytes.
    kept = np.random.default_rng(0).permutation(finite)[:most].astype(np.int64)
    chosen = points[kept]
    if not len(kept):
        zero = np.zeros(3)
        nothing = np.zeros((0, 3), dtype=np.uint16)
        return PackedPoints(
            kept=kept, origin=zero, low=zero, stride=zero, values=nothing, error=0.0, not_finite=len(points), extent=0.0
        )
    inner = np.percentile(chosen, [5, 95], axis=0)
    extent = float(np.linalg.norm(inner[1] - inner[0]))
    origin = np.median(chosen, axis=0)
    away = chosen - origin
    low, side = away.min(axis=0), np.ptp(away, axis=0)
    stride = side / STEPS
    if 0.5 * stride.max() <= MOST_ERROR * extent:
        values: np.ndarray = np.round(np.divide(away - low, stride, where=stride > 0, out=np.zeros_like(away))).astype(
            np.uint16
        )
    else:
        low, stride, values = np.zeros(3), np.ones(3), away.astype(np.float32)
    made = PackedPoints(
        kept=kept,
        origin=origin,
        low=low,
        stride=stride,
        values=values,
        error=0.0,
        not_finite=len(points) - len(finite),
        extent=extent,
    )
    return _with_error(made, chosen)


def _with_error(packed: PackedPoints, points: Float64[np.ndarray, "points 3"]) -> PackedPoints:
    """The same with the largest error that it has."""
    return replace(packed, error=float(np.abs(packed.decoded() - points).max(initial=0.0)))


@dataclass(frozen=True, kw_only=True, eq=False)
class PackedImages:
    """Sightings of all images of a page, one after the other, and where those of each image begin.

    - `images`: the view's, or an even choice of them.
    - `first`, `count`: of each image's sightings among all; `lines`: where its lines begin among all lines, None without.
    - `arrays`: "keypoints" (fractions of the image, 16 bits), "seen" (rows of points), "lines" and "aligned".
    - `left_out`: how many sightings the page lacks.
    """

    images: Sequence[ShownImage]
    first: Sequence[int]
    count: Sequence[int]
    lines: Sequence[int | None]
    arrays: Sequence[PackedArray]
    left_out: int


def packed_images(images: Sequence[ShownImage], points: PackedPoints, all_points: int, limits: ViewLimits) -> PackedImages:
    """The sightings of images, of which rows of points are those of the page."""
    shown = [images[k] for k in evenly(len(images), limits.images)]
    total = sum(len(image.point_rows) for image in shown)
    share = min(1.0, limits.sightings / max(1, total))
    row_of = np.full(all_points + 1, NONE, dtype=np.uint32)  # the last one stands for -1, no point
    row_of[points.kept] = np.arange(len(points.kept), dtype=np.uint32)
    places, seen, lines, aligned = [], [], [], []
    first: list[int] = []
    count: list[int] = []
    line_first: list[int | None] = []
    at = line_at = 0
    for image in shown:
        rows = evenly(len(image.point_rows), int(np.ceil(share * len(image.point_rows))))
        keypoints = image.keypoints[rows] if len(image.keypoints) else np.zeros((len(rows), 2), dtype=np.float32)
        places.append(fractions(keypoints, image))
        seen.append(row_of[image.point_rows[rows]])
        first.append(at)
        count.append(len(rows))
        line_first.append(None if image.lines is None else line_at)
        if image.lines is not None:
            lines.append(image.lines.coefficients[rows].astype(np.float32))
            aligned.append(image.lines.aligned[rows].astype(np.uint8))
            line_at += len(rows)
        at += len(rows)
    empty = np.zeros((0, 2), dtype=np.uint16)
    arrays = [
        array("keypoints", np.concatenate([empty, *places])),
        array("seen", np.concatenate([np.zeros(0, dtype=np.uint32), *seen])),
    ]
    if lines:
        arrays += [array("lines", np.concatenate(lines)), array("aligned", np.concatenate(aligned))]
    return PackedImages(images=shown, first=first, count=count, lines=line_first, arrays=arrays, left_out=total - at)


def fractions(keypoints: np.ndarray, image: ShownImage) -> np.ndarray:
    """Positions in pixels as 16-bit fractions of the image's width and height: to within a 131,070th of each."""
    size = np.array([image.camera.width_px, image.camera.height_px], dtype=np.float64)
    share = np.nan_to_num(keypoints.astype(np.float64) / size, nan=0.0, posinf=1.0, neginf=0.0)
    return np.round(np.clip(share, 0, 1) * STEPS).astype(np.uint16)


def evenly(count: int, most: int) -> Int64[np.ndarray, "_"]:
    """At most `most` of the numbers below `count`, evenly spread."""
    return np.unique(np.linspace(0, max(0, count - 1), min(count, most)).astype(np.int64))


def mean_colors(view: View, pictures: Mapping[str, np.ndarray]) -> UInt8[np.ndarray, "points 4"]:
    """Mean colors of all points of a view in pictures of the images that see them; the last number is 255, or 0 without any.

    `pictures` are those of images by name; a square one shows the central square of its image.
    """
    total, times = np.zeros((len(view.points), 3)), np.zeros(len(view.points))
    for image in view.images:
        if image.name not in pictures or not len(image.keypoints):
            continue
        rgb = _coarse(pictures[image.name])
        size = np.array([image.camera.width_px, image.camera.height_px], dtype=np.float64)
        side = np.full(2, size.min()) if pictures[image.name].shape[0] == pictures[image.name].shape[1] else size
        shape = np.array([rgb.shape[1], rgb.shape[0]])
        at = (image.keypoints.astype(np.float64) - (size - side) / 2) / side * shape
        inside = (at >= 0).all(axis=1) & (at < shape).all(axis=1) & (image.point_rows >= 0)
        x, y = at[inside].astype(np.int64).T
        np.add.at(total, image.point_rows[inside], rgb[y, x].astype(np.float64))
        np.add.at(times, image.point_rows[inside], 1)
    colored = times > 0
    colors = np.zeros((len(view.points), 4), dtype=np.uint8)
    colors[colored, :3] = np.round(total[colored] / times[colored][:, None])
    colors[colored, 3] = 255
    return colors


def _coarse(rgb: UInt8[np.ndarray, "height width 3"]) -> UInt8[np.ndarray, "_ _ 3"]:
    """A picture of at most `COLOR_PX` pixels a side, each the mean of those that it covers."""
    from PIL import Image

    picture = Image.fromarray(rgb)
    picture.thumbnail((COLOR_PX, COLOR_PX), Image.Resampling.BOX)
    return np.asarray(picture)


def photograph_colors(view: View) -> UInt8[np.ndarray, "points 4"]:
    """Colors of all points in the photographs that the device gave, as in `mean_colors`."""
    return mean_colors(view, {n: k.photograph for n, k in view.known.items() if k.photograph is not None})


def attack_colors(view: View) -> UInt8[np.ndarray, "points 4"]:
    """Colors of all points in the first picture that an attack drew of each image, as in `mean_colors`."""
    return mean_colors(view, {name: drawn[0].rgb for name, drawn in view.recovered.items() if drawn})
