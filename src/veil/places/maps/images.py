"""Images to map from positions, which of them no photograph can have made, and the answer where there is no map."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Generic, TypeVar

import numpy as np
from jaxtyping import Float32, Float64

from veil.errors import InputError, Remedy
from veil.forms import Form, Subsets, Subspaces
from veil.geometry.camera import Camera, as_colmap, implausible, require_inside
from veil.one_line import one_line
from veil.scene import MapCheck

# Names of two images.
Pair = tuple[str, str]
Image = TypeVar("Image")
Value = TypeVar("Value")


@dataclass(frozen=True, kw_only=True, eq=False)
class MapImage:
    """Image to map: camera, keypoints in pixels, and descriptors as an upload holds them (raw ones for public images)."""

    camera: Camera
    keypoints: Float32[np.ndarray, "features 2"]
    form: Form

    @property
    def is_in_words(self) -> bool:
        """Whether the descriptors are words of a dictionary."""
        return isinstance(self.form, Subsets)

    def with_camera(self, camera: Camera) -> MapImage:
        """The image with another camera."""
        return replace(self, camera=camera)


@dataclass(frozen=True)
class NoMap:
    """The answer where no map could be built.

    - `reason`: a sentence that says why.
    - `remedy`: what may help, any one of them; empty where nothing is known to.
    - `left_out`: by image name, why single images could not be mapped.
    - `check`: numbers that speak against a map that was built and refused; None if there was none.
    """

    reason: str
    left_out: Mapping[str, str] = field(default_factory=dict)
    check: MapCheck | None = None
    remedy: tuple[Remedy, ...] = ()

    __repr__ = one_line


class MapImageOnDemand(MapImage):
    """Image to map whose descriptors `read` gives each time that they are needed; `in_words` tells whether they are words.

    It is pickled as a `MapImage` with its descriptors.
    """

    def __init__(
        self, camera: Camera, keypoints: Float32[np.ndarray, "features 2"], read: Callable[[], Form], in_words: bool
    ) -> None:
        for key, value in (("camera", camera), ("keypoints", keypoints), ("_read", read), ("_in_words", in_words)):
            object.__setattr__(self, key, value)

    _read: Callable[[], Form]
    _in_words: bool

    @property
    def is_in_words(self) -> bool:
        """Whether the descriptors are words of a dictionary, which is known without reading them."""
        return self._in_words

    @property
    def form(self) -> Form:
        """The descriptors, read now."""
        return self._read()

    def with_camera(self, camera: Camera) -> MapImage:
        """The image with another camera; its descriptors are not read."""
        return MapImageOnDemand(camera, self.keypoints, self._read, self._in_words)

    def __reduce__(self) -> tuple[Any, ...]:
        return MapImage.__new__, (MapImage,), {"camera": self.camera, "keypoints": self.keypoints, "form": self.form}


class OnDemand(Mapping[str, Value], Generic[Image, Value]):
    """Something of each image by name, made by `value(name, image)` when it is asked for."""

    def __init__(self, images: Mapping[str, Image], value: Callable[[str, Image], Value]) -> None:
        self.images = images
        self._value = value

    def __getitem__(self, name: str) -> Value:
        return self._value(name, self.images[name])

    def __contains__(self, name: object) -> bool:
        return name in self.images

    def __iter__(self) -> Iterator[str]:
        return iter(self.images)

    def __len__(self) -> int:
        return len(self.images)


def more_matches(images: Mapping[str, MapImage]) -> tuple[Remedy, ...]:
    """Remedies that may give more matches to images, by the form of their descriptors: all of one form, as maps take them."""
    form = next(iter(images.values())).form if images else None
    overlap = Remedy("give", "photographs with more overlap")
    if isinstance(form, Subspaces):
        return overlap, Remedy("give", "HideInSubspaces.selection")
    if isinstance(form, Subsets):
        # Words of other places part the views of a point, whatever epsilon is (words.md#a-dictionary-of-the-place).
        more = (overlap, Remedy("make", "dictionary of the place"))
        return (*more, Remedy("raise", "HideInWords.epsilon")) if math.isfinite(form.mechanism.epsilon) else more
    return (overlap,)


def impossible(images: Mapping[str, MapImage]) -> dict[str, str]:
    """Reasons for the images that cannot be mapped, by name: intrinsics that no lens has, or positions outside the image.

    Such an image can hang COLMAP's solvers or drag the others to one center; messages are checked when they are decoded, and
    this is the second lock.
    """
    return {name: reason for name, image in images.items() if (reason := _impossible(image)) is not None}


def _impossible(image: MapImage) -> str | None:
    if (reason := implausible(image.camera)) is not None:
        return reason
    try:
        require_inside(image.camera, image.keypoints)
    except InputError as error:
        return str(error)
    return None


def undistorted_pixels(camera: Camera, keypoints: np.ndarray) -> Float64[np.ndarray, "features 2"]:
    """Positions in pixels of the pinhole camera with the same focal lengths and principal point."""
    rays = np.asarray(as_colmap(camera).cam_from_img(np.ascontiguousarray(keypoints, dtype=np.float64))).reshape(-1, 2)
    return rays * [camera.params[0], camera.params[camera.focal_count - 1]] + camera.params[camera.focal_count :][:2]


def calibration(camera: Camera) -> Float64[np.ndarray, "3 3"]:
    """Matrix K of the pinhole camera with the focal lengths and principal point of `camera`, without its distortion."""
    cx, cy = camera.params[camera.focal_count : camera.focal_count + 2]
    return np.array([[camera.params[0], 0.0, cx], [0.0, camera.params[camera.focal_count - 1], cy], [0.0, 0.0, 1.0]])
