"""Could a camera have seen these points? What the images of a map saw of them says from where, and how large."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float64, Int64

from veil.geometry.camera import Camera
from veil.geometry.rigid import Rigid

# Descriptors of one surface are no longer alike from directions this far apart (docs/theory/localization.md, "What a camera
# could have seen"), nor at sizes this many times apart.
MOST_TURN_DEG = 60.0
MOST_ZOOM = 4.0


@dataclass(frozen=True, kw_only=True, eq=False)
class MapViews:
    """Each observation of a map: its point, the unit vector from the point to the camera, and how large the camera sees it.

    `pixels` is the size of a unit length at the point in pixels (focal length over distance), `frames` in diagonals of the
    picture. Sorted by point: those of point p are rows `starts[p]` to `starts[p + 1]`.
    """

    starts: Int64[np.ndarray, "_"]
    direction: Float64[np.ndarray, "observations 3"]
    pixels: Float64[np.ndarray, "observations"]
    frames: Float64[np.ndarray, "observations"]

    def possible(
        self, camera: Camera, pose: Rigid, points: Float64[np.ndarray, "points 3"], rows: Int64[np.ndarray, "rows"]
    ) -> Bool[np.ndarray, "rows"]:
        """Whether the camera at `pose` sees point `rows[i]` from a side, and of a size, near those of one of its images.

        The size counts in pixels or in the picture's diagonals, whichever is nearer: a small copy of a photograph is right.
        """
        pair, observation = self._observations(rows)
        sight = pose.center - points[rows]
        distance = np.maximum(np.linalg.norm(sight, axis=1), 1e-12)
        turned = (self.direction[observation] * (sight / distance[:, None])[pair]).sum(axis=1)
        size = np.log(camera.focal_px / distance)[pair]
        zoom = np.minimum(
            np.abs(size - np.log(self.pixels[observation])),
            np.abs(size - math.log(diagonal_px(camera)) - np.log(self.frames[observation])),
        )
        near = (turned >= math.cos(math.radians(MOST_TURN_DEG))) & (zoom <= math.log(MOST_ZOOM))
        return np.bincount(pair[near], minlength=len(rows)) > 0

    def magnification(
        self, camera: Camera, pose: Rigid, points: Float64[np.ndarray, "points 3"], rows: Int64[np.ndarray, "rows"]
    ) -> float:
        """How large the points are in the picture beside the image of the map that shows each most alike: their median."""
        pair, observation = self._observations(rows)
        distance = np.maximum(np.linalg.norm(pose.center - points[rows], axis=1), 1e-12)
        ratio = np.log(camera.focal_px / distance / diagonal_px(camera))[pair] - np.log(self.frames[observation])
        order = np.lexsort((np.abs(ratio), pair))
        first = np.unique(pair[order], return_index=True)[1]
        return math.exp(float(np.median(ratio[order][first]))) if len(first) else 1.0

    def _observations(self, rows: Int64[np.ndarray, "rows"]) -> tuple[Int64[np.ndarray, "pairs"], Int64[np.ndarray, "pairs"]]:
        """Every pair of one of `rows` (its index) and an observation of that point."""
        counts = self.starts[rows + 1] - self.starts[rows]
        pair = np.repeat(np.arange(len(rows)), counts)
        return pair, np.arange(len(pair)) - np.repeat(np.cumsum(counts) - counts, counts) + self.starts[rows][pair]


def map_views(
    images: Sequence[tuple[Camera, Rigid, Int64[np.ndarray, "_"]]], points: Float64[np.ndarray, "points 3"]
) -> MapViews:
    """From each image's camera, pose, and the rows of the points that it observes."""
    rows = np.concatenate([seen for _, _, seen in images])
    sights = np.concatenate([pose.center - points[seen] for _, pose, seen in images])
    focal = np.concatenate([np.full(len(seen), camera.focal_px) for camera, _, seen in images])
    diagonal = np.concatenate([np.full(len(seen), diagonal_px(camera)) for camera, _, seen in images])
    order = np.argsort(rows, kind="stable")
    distance = np.maximum(np.linalg.norm(sights, axis=1), 1e-12)
    pixels = focal / distance
    return MapViews(
        starts=np.searchsorted(rows[order], np.arange(len(points) + 1)).astype(np.int64),
        direction=(sights / distance[:, None])[order],
        pixels=pixels[order],
        frames=(pixels / diagonal)[order],
    )


def diagonal_px(camera: Camera) -> float:
    """Length of the picture's diagonal."""
    return math.hypot(camera.width_px, camera.height_px)
