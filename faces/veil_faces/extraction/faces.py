"""Descriptors of faces: the interface of networks, and dlib's network, with the optional extra `veil-faces[networks]`.

King 2017: a residual network of 29 layers, 128 numbers a face, trained so that faces of one person are nearer than 0.6. Its
vectors have a length of about 1.4; veil scales them to unit length, and the space says so: "dlib-face", normalization L2.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol, runtime_checkable

import numpy as np
from jaxtyping import Float32, Float64, UInt8

from veil.errors import InputError
from veil.features import unit_length
from veil.space import Space
from veil_faces.extraction.face_finder import (
    FIVE_LANDMARKS,
    FaceFinder,
    FoundFace,
    import_dlib,
    load_face_finder,
    shipped_network,
)

FACE_SPACE = Space(descriptor="dlib-face", normalization="L2", dim=128)
ENCODER = "dlib_face_recognition_resnet_model_v1.dat"
CHIP_PX, CHIP_PADDING = 150, 0.25  # what the network was trained on


@runtime_checkable
class FaceNetwork(Protocol):
    """Interface of face networks: a `finder` of faces, the `space` of the descriptors, and `describe`."""

    @property
    def finder(self) -> FaceFinder: ...

    @property
    def space(self) -> Space: ...

    def describe(self, pixels: UInt8[np.ndarray, "height width 3"], landmarks: Any) -> Float64[np.ndarray, "dim"]:
        """The descriptor of the face at these landmarks, not scaled to unit length."""
        ...


@dataclass(frozen=True, kw_only=True, eq=False)
class DlibNetwork:
    """The `FaceNetwork` of dlib, whose faces are aligned by the five landmarks of its own predictor."""

    finder: FaceFinder
    dlib: Any
    encoder: Any
    space: Space = FACE_SPACE

    def describe(self, pixels: UInt8[np.ndarray, "height width 3"], landmarks: Any) -> Float64[np.ndarray, "dim"]:
        """The descriptor of the face at these landmarks, float64 (128,), not scaled to unit length."""
        chip = self.dlib.get_face_chip(pixels, landmarks, CHIP_PX, CHIP_PADDING)
        return np.array(self.encoder.compute_face_descriptor(chip), dtype=np.float64)


def load_face_network(*, second_try: bool = True) -> DlibNetwork:
    """dlib's network from `face-recognition-models`. Raises InputError if that package or dlib is not installed."""
    dlib = import_dlib()
    encoder = shipped_network(ENCODER)
    finder = load_face_finder(FIVE_LANDMARKS, second_try=second_try)
    return DlibNetwork(finder=finder, dlib=dlib, encoder=dlib.face_recognition_model_v1(encoder))


def describe_face(
    rgb: UInt8[np.ndarray, "height width 3"],
    network: FaceNetwork,
    *,
    only: bool = False,
    least_px: int = 0,
    on_found: Callable[[FoundFace], None] | None = None,
) -> Float32[np.ndarray, "dim"]:
    """The unit-length descriptor of the largest face in an RGB picture.

    `only` and `least_px` are as in `FaceFinder.find`; `on_found` is called with the face that was found. Raises NoFace if the
    finder refuses the picture, InputError if the network returns NaN, infinity or nothing but zeros.
    """
    pixels = np.ascontiguousarray(rgb)
    face = network.finder.find(pixels, only=only, least_px=least_px)
    if on_found is not None:
        on_found(face)
    vector = network.describe(pixels, face.landmarks)
    length = float(np.linalg.norm(vector))
    if not 0 < length < math.inf:
        raise InputError(f"the network's descriptor of this face has length {length:g}; give a network that serves")
    return unit_length(vector).astype(np.float32)


def describe_faces(
    pictures: Iterable[UInt8[np.ndarray, "_ _ 3"]],
    network: FaceNetwork,
    *,
    only: bool = False,
    least_px: int = 0,
    on_found: Callable[[int, FoundFace], None] | None = None,
) -> tuple[Float32[np.ndarray, "faces dim"], dict[int, str]]:
    """Unit-length descriptors of the pictures that show a face, in their order, and by number why the others were refused.

    `only` and `least_px` are as in `FaceFinder.find`; `on_found` is called with the number of a picture and its face.
    """
    vectors, refused = [], {}
    for row, rgb in enumerate(pictures):
        tell = None if on_found is None else partial(on_found, row)
        try:
            vectors.append(describe_face(rgb, network, only=only, least_px=least_px, on_found=tell))
        except InputError as error:
            refused[row] = str(error)
    return np.array(vectors, dtype=np.float32).reshape(len(vectors), network.space.dim), refused
