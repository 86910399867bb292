"""Images whose pairs are matched: as a server holds them, and facts of descriptors that are known without reading these."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from veil.forms import Form, Lines, Points, Subsets
from veil.geometry.camera import Camera
from veil.matching.lightglue import LightGlue
from veil.matching.placed_points import PlacedPoints, placed, require_raw
from veil.one_line import in_full, one_line
from veil.places.maps.images import MapImage, OnDemand

# A function of a module, which other processes can import: the path of a file and names of images in it give names and
# descriptors, one after the other.
ReadForms = Callable[[Path, Collection[str]], Iterable[tuple[str, Form]]]


@dataclass(frozen=True, kw_only=True, eq=False)
class LoadedImage:
    """One image as a server's work needs it.

    `camera` is its camera. `positions` are those of the keypoints, float32 (N, 2) in pixels, or the lines that hide them;
    `form` holds the N descriptors. `gravity` came beside positions: a unit vector down in the camera frame.
    """

    camera: Camera
    positions: np.ndarray | Lines
    form: Form
    gravity: np.ndarray | None = None

    __repr__ = one_line

    @property
    def features(self) -> int:
        """Number of features."""
        return len(self.form)

    @property
    def digest(self) -> str:
        """Name of the descriptors in a store of matches (`form_digest`)."""
        return form_digest(self.form)

    @property
    def kind(self) -> str:
        """Phrase that names what all messages of one map have in common: form, dictionary, lines or positions, and space."""
        form = self.form
        of = (
            f"words of dictionary {form.dictionary[:12]}, {form.m} each"
            if isinstance(form, Subsets)
            else type(form).__name__.lower()
        )
        return f"{of} with {'lines' if isinstance(self.positions, Lines) else 'positions'} in the space {form.space}"

    @property
    def form_type(self) -> type[Form]:
        """Class of the descriptors' form."""
        return type(self.form)


@dataclass(frozen=True, kw_only=True)
class ImageFiles:
    """Files from which another process can read descriptors.

    - `of`: by the name of an image, the path of its file, and the image's name there.
    - `read`: reads them (`ReadForms`).
    """

    of: Mapping[str, tuple[str, str]]
    read: ReadForms


class FormsOf(OnDemand[LoadedImage, Form]):
    """The descriptors of images by name, each taken from its image when it is asked for; facts about them read nothing."""

    def __init__(self, images: Mapping[str, LoadedImage]) -> None:
        super().__init__(images, lambda _, image: image.form)


class PlacedImages(OnDemand[LoadedImage, PlacedPoints]):
    """Raw descriptors and positions for LightGlue by name, each taken from its image when it is asked for.

    Raises InputError at once, without reading any descriptor, if one of the images is protected.
    """

    def __init__(self, images: Mapping[str, LoadedImage]) -> None:
        for name, image in images.items():
            require_raw(image.form_type, image.positions, what=name)
        super().__init__(images, lambda name, image: placed(image.form, image.positions, image.camera, what=name))


@dataclass(frozen=True, kw_only=True, eq=False)
class NetworkMatching:
    """LightGlue and the raw descriptors and positions of each image, by name."""

    network: LightGlue
    images: Mapping[str, PlacedPoints]


def of_map_images(network: LightGlue, images: Mapping[str, MapImage]) -> NetworkMatching:
    """LightGlue with images of a map and new ones. Raises InputError if one of them is protected."""
    read = {name: placed(image.form, image.keypoints, image.camera, what=name) for name, image in images.items()}
    return NetworkMatching(network=network, images=read)


def form_digest(form: Form) -> str:
    """SHA-256 (hex) of all that matching reads of an image's features: their numbers, type, space and dictionary."""
    if isinstance(form, Points):
        kind, arrays = "points", [form.vectors]
    elif isinstance(form, Subsets):
        kind, arrays = f"words {in_full(form.mechanism)} {form.dictionary}", [form.ids]
    else:
        kind, arrays = f"subspaces {form.profile}", [form.origin, form.basis]
    hasher = hashlib.sha256(f"{kind} [{in_full(form.space)}]".encode())
    for array in arrays:
        hasher.update(f"{array.dtype.str}{array.shape}".encode())
        hasher.update(np.ascontiguousarray(array).tobytes())
    return hasher.hexdigest()


def digest_in(forms: Mapping[str, Form], name: str) -> str:
    """The name of an image's descriptors in a store of matches, without reading them where it is known."""
    return forms.images[name].digest if isinstance(forms, FormsOf) else form_digest(forms[name])


def sizes_in(forms: Mapping[str, Form]) -> dict[str, int]:
    """The numbers of features by name, without reading descriptors where they are known."""
    if isinstance(forms, FormsOf):
        return {name: image.features for name, image in forms.images.items()}
    return {name: len(form) for name, form in forms.items()}


def types_in(forms: Mapping[str, Form]) -> set[type[Form]]:
    """The classes of the forms, without reading descriptors where they are known."""
    if isinstance(forms, FormsOf):
        return {image.form_type for image in forms.images.values()}
    return {type(form) for form in forms.values()}
