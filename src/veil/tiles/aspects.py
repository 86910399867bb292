"""Aspects of a map's points: the mean descriptor of views that look alike, and from where they see the point."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float32, Float64, Int64

from veil.forms import Points
from veil.scene import Scene

# A point whose two most different views are less alike than this cosine gets two aspects: a mean of both would be like neither.
ALIKE = 0.85


@dataclass(frozen=True, kw_only=True, eq=False)
class Aspects:
    """Aspects of points, sorted by point: those of point p are rows `starts[p]` to `starts[p + 1]`.

    - `descriptors`, float32 (aspects, dim): means of the views' descriptors, of unit length.
    - `direction`: unit vectors from the point to the cameras, on average.
    - `pixels`, `frames`: geometric means of the size of a unit of the map there, in pixels and in diagonals of the picture.
    """

    starts: Int64[np.ndarray, "_"]
    descriptors: Float32[np.ndarray, "aspects dim"]
    direction: Float64[np.ndarray, "aspects 3"]
    pixels: Float64[np.ndarray, "aspects"]
    frames: Float64[np.ndarray, "aspects"]

    def rows_of(self, points: Int64[np.ndarray, "points"]) -> Int64[np.ndarray, "_"]:
        """Rows of the aspects of some points, point after point."""
        counts = self.starts[points + 1] - self.starts[points]
        first = np.repeat(self.starts[points] - (np.cumsum(counts) - counts), counts)
        return first + np.arange(int(counts.sum()))


def aspects(scene: Scene, most: int) -> Aspects:
    """The aspects of all points of a public map, at most `most` (1 or 2) of each."""
    rows, descriptors = _observed(scene)
    views = scene.views
    descriptors = descriptors[np.argsort(rows, kind="stable")]
    second = _second(descriptors, views.starts) if most > 1 else np.zeros(len(descriptors), dtype=np.int64)
    point = np.repeat(np.arange(len(scene.points)), np.diff(views.starts))
    keys, group = np.unique(2 * point + second, return_inverse=True)
    group = group.reshape(-1)

    def mean(values: np.ndarray) -> np.ndarray:
        """Means of the rows of each group."""
        order = np.argsort(group, kind="stable")
        starts = np.searchsorted(group[order], np.arange(len(keys)))
        total = np.add.reduceat(values[order].astype(np.float64), starts, axis=0)
        return total / np.bincount(group)[(..., *([None] * (values.ndim - 1)))]

    return Aspects(
        starts=np.searchsorted(keys // 2, np.arange(len(scene.points) + 1)).astype(np.int64),
        descriptors=_unit(mean(descriptors)).astype(np.float32),
        direction=_unit(mean(views.direction)),
        pixels=np.exp(mean(np.log(views.pixels))),
        frames=np.exp(mean(np.log(views.frames))),
    )


def _observed(scene: Scene) -> tuple[Int64[np.ndarray, "_"], Float32[np.ndarray, "_ dim"]]:
    """Row of the point and descriptor of each observation, image after image as `Scene.views` takes them."""
    images = list(scene.images.values())
    forms = [image.form for image in images]
    vectors = [form.vectors for form in forms if isinstance(form, Points)]
    return np.concatenate([image.point_rows for image in images]), np.concatenate(vectors)


def _second(descriptors: Float32[np.ndarray, "observations dim"], starts: Int64[np.ndarray, "_"]) -> Int64[np.ndarray, "_"]:
    """1 for each observation, sorted by point, that belongs to its point's second aspect, else 0."""
    second = np.zeros(len(descriptors), dtype=np.int64)
    for start, end in _several(starts):
        alike = descriptors[start:end] @ descriptors[start:end].T
        one, other = divmod(int(np.argmin(alike)), end - start)
        if alike[one, other] < ALIKE:
            second[start:end] = alike[one] < alike[other]
    return second


def _several(starts: Int64[np.ndarray, "_"]) -> Sequence[tuple[int, int]]:
    """First and last row of each point with several observations."""
    return [(start, end) for start, end in zip(starts.tolist(), starts[1:].tolist(), strict=False) if end - start > 1]


def _unit(vectors: Float64[np.ndarray, "rows dim"]) -> Float64[np.ndarray, "rows dim"]:
    return vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-12)
