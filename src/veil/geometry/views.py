"""Points as cameras see them: their pixels, and directions and sizes that bound the cameras that could have seen them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float64, Int64

from veil.compiled import compiled
from veil.geometry.camera import Camera, as_colmap
from veil.geometry.rigid import Rigid

# Descriptors of one surface are no longer alike from directions this far apart, nor at sizes this many times apart
# (localization.md#what-a-camera-could-have-seen).
MOST_TURN_DEG = 60.0
MOST_ZOOM = 4.0
LEAST_COSINE = math.cos(math.radians(MOST_TURN_DEG))


def projected(camera: Camera, points: Float64[np.ndarray, "points 3"]) -> Float64[np.ndarray, "points 2"]:
    """Pixels of points in the camera frame; NaN for those that are not before the camera."""
    ahead = points[:, 2] > 1e-9
    pixels = np.full((len(points), 2), np.nan)
    if ahead.any():
        pixels[ahead] = np.asarray(as_colmap(camera).img_from_cam(points[ahead]), dtype=np.float64).reshape(-1, 2)
    return pixels


@dataclass(frozen=True, kw_only=True, eq=False)
class MapViews:
    """Directions and sizes in which the images of a map see its points: observations sorted by point.

    Those of point p are rows `starts[p]` to `starts[p + 1]`. `direction` is the unit vector from the point to the camera,
    `pixels` the size of a unit length at the point in pixels (focal length over distance), `frames` that size in diagonals of
    the picture.
    """

    starts: Int64[np.ndarray, "_"]
    direction: Float64[np.ndarray, "observations 3"]
    pixels: Float64[np.ndarray, "observations"]
    frames: Float64[np.ndarray, "observations"]

    def possible(
        self, camera: Camera, pose: Rigid, points: Float64[np.ndarray, "points 3"], rows: Int64[np.ndarray, "rows"]
    ) -> Bool[np.ndarray, "rows"]:
        """Mask of the `rows` of `points` that a camera at `pose` could see as one of the map's images does.

        Direction and size must be near those of one observation of the point. The size counts in pixels or in the picture's
        diagonals, whichever is nearer: a small copy of a photograph is right.
        """
        mask = np.zeros(len(rows), dtype=bool)
        sights = pose.center - points[rows]
        starts, ends = self.starts[rows], self.starts[rows + 1]
        _seen_alike(sights, starts, ends, self.direction, self.pixels, self.frames, camera.focal_px, diagonal_px(camera), mask)
        return mask

    def magnification(
        self, camera: Camera, pose: Rigid, points: Float64[np.ndarray, "points 3"], rows: Int64[np.ndarray, "rows"]
    ) -> float:
        """Median ratio of the points' size in the picture to that in an image of the map, in diagonals of both.

        Each point of `rows` counts with the image that shows it at the most similar size; the ratio is 1 without points.
        """
        pair, observation = self._observations(rows)
        distance = np.maximum(np.linalg.norm(pose.center - points[rows], axis=1), 1e-12)
        ratio = np.log(camera.focal_px / distance / diagonal_px(camera))[pair] - np.log(self.frames[observation])
        order = np.lexsort((np.abs(ratio), pair))
        first = np.unique(pair[order], return_index=True)[1]
        return math.exp(float(np.median(ratio[order][first]))) if len(first) else 1.0

    def _observations(self, rows: Int64[np.ndarray, "rows"]) -> tuple[Int64[np.ndarray, "pairs"], Int64[np.ndarray, "pairs"]]:
        """All pairs of an index into `rows` and an observation of that point."""
        counts = self.starts[rows + 1] - self.starts[rows]
        pair = np.repeat(np.arange(len(rows)), counts)
        return pair, np.arange(len(pair)) - np.repeat(np.cumsum(counts) - counts, counts) + self.starts[rows][pair]


@compiled
def _seen_alike(sights, starts, ends, direction, pixels, frames, focal_px, diagonal, mask):
    """Whether each point is seen from `sights` (from it to the camera) as in one of its observations `starts` to `ends`."""
    for i in range(len(sights)):
        x, y, z = sights[i]
        distance = max(math.sqrt(x * x + y * y + z * z), 1e-12)
        size = focal_px / distance
        frame = size / diagonal
        for k in range(starts[i], ends[i]):
            if direction[k, 0] * x + direction[k, 1] * y + direction[k, 2] * z < LEAST_COSINE * distance:
                continue
            in_pixels = size <= MOST_ZOOM * pixels[k] and pixels[k] <= MOST_ZOOM * size
            if in_pixels or (frame <= MOST_ZOOM * frames[k] and frames[k] <= MOST_ZOOM * frame):
                mask[i] = True
                break


def map_views(
    images: Sequence[tuple[Camera, Rigid, Int64[np.ndarray, "_"]]], points: Float64[np.ndarray, "points 3"]
) -> MapViews:
    """The map's views from each image's camera, pose (cam_from_world), and the rows of the points that it observes."""
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
    """Length of the picture's diagonal in pixels."""
    return math.hypot(camera.width_px, camera.height_px)
