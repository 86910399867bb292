"""Content of a viewer: points and images as their server has them, with additions of the device and of attacks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from jaxtyping import Float, Float32, Float64, Int64, UInt8

from veil.errors import InputError, RangeError
from veil.forms import Form, Lines, Subsets, Subspaces
from veil.geometry.camera import Camera
from veil.geometry.rigid import Rigid
from veil.ldp.guarantee import LocalDP
from veil.ldp.rounding import outward
from veil.one_line import one_line
from veil.scene import Scene

NO_POINT = -1


@dataclass(frozen=True, kw_only=True, eq=False)
class ShownImage:
    """An image of a map, or a query, as its server has it.

    - `camera`, `cam_from_world`: intrinsics and pose; None for the pose of an image that no map holds.
    - `keypoints`, float32 (N, 2): positions in pixels, in a map from lines the projections of its points; none of a query in
      lines.
    - `point_rows`, int64 (N,): which row of the view's points each keypoint, or line, sees; -1: none.
    - `lines`: the N lines that were sent in place of positions.
    - `is_query`, `center_covariance`: whether it is a query; covariance of its center in the world, where it is known.
    - `told`: sentences about the image.
    - `sent`: a picture (8-bit RGB) of what was sent, where the positions themselves are not at hand.

    Raises InputError if keypoints, points and lines differ in number.
    """

    name: str
    camera: Camera
    cam_from_world: Rigid | None
    keypoints: Float32[np.ndarray, "_ 2"]
    point_rows: Int64[np.ndarray, "_"]
    lines: Lines | None = None
    is_query: bool = False
    center_covariance: Float64[np.ndarray, "3 3"] | None = None
    told: tuple[str, ...] = ()
    sent: UInt8[np.ndarray, "height width 3"] | None = None

    def __post_init__(self) -> None:
        count = len(self.point_rows)
        if (self.lines is None or len(self.keypoints)) and len(self.keypoints) != count:
            raise InputError(f"image {self.name!r}: {len(self.keypoints)} positions and {count} points do not belong together")
        if self.lines is not None and len(self.lines) != count:
            raise InputError(f"image {self.name!r}: {len(self.lines)} lines and {count} points do not belong together")


@dataclass(frozen=True, kw_only=True, eq=False)
class Known:
    """The device's own of one image: its `photograph` (8-bit RGB), and true `keypoints` in pixels, where it gave them."""

    photograph: UInt8[np.ndarray, "height width 3"] | None = None
    keypoints: Float[np.ndarray, "_ 2"] | None = None


@dataclass(frozen=True, kw_only=True, eq=False)
class AttackPicture:
    """A picture that an attack drew of an image, and how: 8-bit RGB of its photograph, or if square of its central square."""

    title: str
    rgb: UInt8[np.ndarray, "height width 3"]


@dataclass(frozen=True, kw_only=True, eq=False)
class View:
    """All that a page of the viewer shows.

    - `title`, `kind`: of the page, such as "map" and "private map".
    - `points`, float64 (N, 3): in units of the map; those that are not finite are left out and counted.
    - `images`: those of the map, and queries.
    - `down`: gravity in the world, a unit vector; None if it is not known.
    - `of_server`: sentences on what the server has.
    - `known`, `recovered`: what the device gave, and pictures that attacks drew, by the name of the image.
    """

    title: str
    kind: str
    points: Float64[np.ndarray, "points 3"]
    images: Sequence[ShownImage]
    of_server: Sequence[str]
    down: Float64[np.ndarray, "3"] | None = None
    known: Mapping[str, Known] = field(default_factory=dict)
    recovered: Mapping[str, Sequence[AttackPicture]] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class ViewLimits:
    """The most that a page holds: `points`, `sightings` of them by images, `images`, `pictures`, and `picture_px`.

    The last one bounds the longer side of a picture, in pixels.
    Of more than that a page holds an even choice, and says so. Raises RangeError for numbers below 1.
    """

    points: int = 1_000_000
    sightings: int = 2_000_000
    images: int = 5_000
    pictures: int = 80
    picture_px: int = 720

    __repr__ = one_line

    def __post_init__(self) -> None:
        for name in ("points", "sightings", "images", "pictures", "picture_px"):
            if getattr(self, name) < 1:
                raise RangeError(f"{name} must be at least 1, got {getattr(self, name)!r}")


def view_of_scene(scene: Scene, title: str) -> View:
    """The view of a map as its server has it: points, poses, positions or lines. Nothing of any descriptor is in it."""
    images = [
        ShownImage(
            name=image.name,
            camera=image.camera,
            cam_from_world=image.cam_from_world,
            keypoints=image.keypoints,
            point_rows=image.point_rows,
            lines=image.lines,
            told=(f"sees {len(image.point_rows):,} points of the map", _size(image.camera)),
        )
        for _, image in sorted(scene.images.items())
    ]
    hidden = sum(image.lines is not None for image in images)
    kind = "public map" if scene.is_public else "private map from lines" if hidden else "private map"
    return View(title=title, kind=kind, points=scene.points, images=images, of_server=_facts(scene, hidden), down=scene.down)


def _size(camera: Camera) -> str:
    """A sentence about a camera."""
    return f"{camera.width_px} x {camera.height_px} px, focal length {camera.focal_px:.0f} px"


def _facts(scene: Scene, hidden: int) -> list[str]:
    """Sentences on what the server of a map has."""
    form = next(iter(scene.images.values())).form
    facts = [
        f"{len(scene.points):,} points, {len(scene.images):,} poses, and {_what(form)} "
        f"{scene.observation_count:,} features. No photograph.",
        _promise(form),
    ]
    if hidden:
        facts.append(
            f"{hidden:,} of {len(scene.images):,} images sent a line through each keypoint in place of its position. Each "
            "point lies where planes of several images meet, so that its projections tell these positions again."
        )
    else:
        facts.append("Positions of keypoints, image sizes and intrinsics were sent in the clear.")
    facts.append("Descriptors are not in this page, in whatever form.")
    return facts


def _what(form: Form) -> str:
    """The words that say what the server has in place of each descriptor, up to the number of features."""
    if isinstance(form, Subspaces):
        return f"an affine subspace ({form.profile}, m = {form.m}) in place of the descriptor of each of"
    if isinstance(form, Subsets):
        return f"{form.m} random words in place of the descriptor of each of"
    return "the raw descriptors of"


def _promise(form: Form) -> str:
    """The sentence about what is promised of descriptors."""
    guarantee = form.guarantee
    if isinstance(guarantee, LocalDP):
        epsilon = outward(guarantee.epsilon, 6)
        return f"The words promise an epsilon of {epsilon} for each {guarantee.unit}, and nothing about positions."
    return getattr(guarantee, "reason", "Nothing is promised of the descriptors.")
