"""Map of a place: images with cameras and poses, points, and which released feature observes which point."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from jaxtyping import Float32, Float64, Int64

from veil.errors import InputError
from veil.forms import Form, Lines, Points
from veil.geometry.camera import Camera
from veil.geometry.rigid import Rigid
from veil.geometry.views import MapViews, map_views
from veil.map_check import MapCheck
from veil.one_line import one_line
from veil.space import Space


@dataclass(frozen=True, kw_only=True, eq=False)
class MappedImage:
    """Registered image of a map, with those of its features that observe a point.

    `name` is the image's, `camera` its camera, `cam_from_world` its pose, and `form` holds the descriptors of its features.
    `keypoints`, float32 (observations, 2), and `point_rows`, int64 (observations,), say which point each of them observes.
    Feature i observes the point `point_rows[i]` (row of `Scene.points`) at `keypoints[i]` (pixels). Where the image hid its
    positions, `lines` are what it sent, and `keypoints` are the projections of its points: the true positions are not here.
    Raises InputError if keypoints, observations, descriptors or lines differ in number.
    """

    name: str
    camera: Camera
    cam_from_world: Rigid
    keypoints: Float32[np.ndarray, "_ 2"]
    point_rows: Int64[np.ndarray, "_"]
    form: Form
    lines: Lines | None = None

    __repr__ = one_line

    def __post_init__(self) -> None:
        if self.lines is not None and len(self.lines) != len(self.keypoints):
            raise InputError(f"image {self.name!r}: {len(self.lines)} lines for {len(self.keypoints)} observations")
        if not len(self.keypoints) == len(self.point_rows) == len(self.form):
            raise InputError(
                f"image {self.name!r}: {len(self.keypoints)} positions, {len(self.point_rows)} observations and "
                f"{len(self.form)} descriptors do not belong together"
            )


@dataclass(frozen=True, kw_only=True, eq=False)
class Scene:
    """Content of a map: `images` by name, `points` in world coordinates, float64 (points, 3), and how well both fit.

    `mean_reprojection_error_px` is the mean distance of keypoints to the projections of their points, in pixels. World
    coordinates have an arbitrary scale unless the images' poses were metric. `measured_down` is gravity in the world (unit
    vector) where it was given apart from the images' lines. `check` says how sure a map of positions was when it was built.

    Raises InputError for a map without images or points, or with points that are not finite.

    Not public: `views`.
    """

    images: Mapping[str, MappedImage]
    points: Float64[np.ndarray, "points 3"]
    mean_reprojection_error_px: float
    measured_down: Float64[np.ndarray, "3"] | None = None
    check: MapCheck | None = None

    __repr__ = one_line

    def __post_init__(self) -> None:
        if not self.images or len(self.points) == 0:
            raise InputError("a map needs at least one image and one point")
        if not np.isfinite(self.points).all():
            raise InputError("a map's points must be finite")

    @property
    def space(self) -> Space:
        """Descriptor space of the map."""
        return next(iter(self.images.values())).form.space

    @property
    def is_public(self) -> bool:
        """Whether the map's descriptors are raw, so that queries match by point-to-subspace distance."""
        return isinstance(next(iter(self.images.values())).form, Points)

    @property
    def down(self) -> Float64[np.ndarray, "3"] | None:
        """Gravity in the world (unit vector): as measured, or the mean of the images' readings; None if there is neither."""
        if self.measured_down is not None:
            return self.measured_down
        return mean_down({name: image.lines.gravity for name, image in self.images.items() if image.lines}, self.images)

    def nearest(self, place: Float64[np.ndarray, "3"], count: int) -> list[str]:
        """Names of the `count` images whose cameras are nearest to a place (world coordinates), the nearest first."""
        distance = {name: float(np.linalg.norm(image.cam_from_world.center - place)) for name, image in self.images.items()}
        return sorted(distance, key=lambda name: distance[name])[:count]

    @cached_property
    def views(self) -> MapViews:
        """Directions and sizes in which the map's images see its points."""
        images = [(image.camera, image.cam_from_world, image.point_rows) for image in self.images.values()]
        return map_views(images, self.points)

    @property
    def observation_count(self) -> int:
        """Number of observations of all images together."""
        return sum(len(image.keypoints) for image in self.images.values())

    @property
    def extent(self) -> float:
        """Diagonal of the box that holds the middle 90 % of the points along each axis, in world units."""
        low, high = np.percentile(self.points, [5, 95], axis=0)
        return float(np.linalg.norm(high - low))


def mean_down(
    gravity: Mapping[str, Float64[np.ndarray, "3"] | None], images: Mapping[str, MappedImage]
) -> Float64[np.ndarray, "3"] | None:
    """Mean direction of gravity in the world, from readings (by image) in the camera frames.

    Readings more than 10 degrees off the median are left out. None if no reading is left, or if not more than half of them
    agree so: nothing tells which of them to believe.
    """
    readings = [
        images[name].cam_from_world.rotation.T @ down for name, down in gravity.items() if down is not None and name in images
    ]
    if not readings:
        return None
    down = np.array(readings)
    middle = np.median(down, axis=0)
    length = float(np.linalg.norm(middle))
    if not length > 0.5:  # opposite readings leave a rounding error, whose direction is no agreement
        return None
    near = down[down @ middle > np.cos(np.radians(10)) * length]
    if not 2 * len(near) > len(down):
        return None
    mean = near.mean(axis=0)
    return mean / float(np.linalg.norm(mean))
