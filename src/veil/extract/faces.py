"""dlib's face descriptor, for those who install the optional extra `veil[faces]`.

King 2017: a residual network of 29 layers, 128 numbers a face, trained so that faces of one person are nearer than 0.6. Its
vectors are not of unit length (about 1.4); veil scales them to it, and the space says so: "dlib-face", normalization L2.
"""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float32, UInt8

from veil.errors import InputError
from veil.features import unit_length
from veil.space import Space

FACE_SPACE = Space(descriptor="dlib-face", normalization="L2", dim=128)
ENCODER, LANDMARKS = "dlib_face_recognition_resnet_model_v1.dat", "shape_predictor_5_face_landmarks.dat"
CHIP_PX, CHIP_PADDING = 150, 0.25  # what the network was trained on


@dataclass(frozen=True, kw_only=True, eq=False)
class FaceNetwork:
    """dlib's detector of frontal faces, its five landmarks, and its descriptor."""

    dlib: Any
    detector: Any
    landmarks: Any
    encoder: Any


def load_face_network() -> FaceNetwork:
    """The networks as `face-recognition-models` ships them. Raises InputError if they or dlib are not installed.

    That package is found without being imported: it imports pkg_resources, which newer setuptools no longer have.
    """
    try:
        dlib = importlib.import_module("dlib")
    except ImportError as error:
        raise InputError(f"face descriptors need dlib ({error}); run: pip install 'veil[faces]'") from None
    found = importlib.util.find_spec("face_recognition_models")
    folders = [Path(place) / "models" for place in (found.submodule_search_locations or ())] if found else []
    folder = next((place for place in folders if (place / ENCODER).is_file() and (place / LANDMARKS).is_file()), None)
    if folder is None:
        raise InputError("face descriptors need the networks of face-recognition-models; run: pip install 'veil[faces]'")
    return FaceNetwork(
        dlib=dlib,
        detector=dlib.get_frontal_face_detector(),
        landmarks=dlib.shape_predictor(str(folder / LANDMARKS)),
        encoder=dlib.face_recognition_model_v1(str(folder / ENCODER)),
    )


def describe_face(
    rgb: UInt8[np.ndarray, "height width 3"], network: FaceNetwork, *, only: bool = False, least_px: int = 0
) -> Float32[np.ndarray, "128"]:
    """The unit-length descriptor of the largest face, aligned by its landmarks.

    Raises InputError if the detector finds no face, several where there may be `only` one, or one narrower than `least_px`.
    """
    pixels = np.ascontiguousarray(rgb)
    # The detector finds faces of 80 px; small ones are looked for in the picture at twice its size.
    faces = network.detector(pixels, 0) or network.detector(pixels, 1)
    if not len(faces):
        raise InputError("no face was found; give a photograph that shows one from the front")
    if only and len(faces) > 1:
        raise InputError(f"{len(faces)} faces were found; crop the photograph to one of them")
    largest = max(faces, key=lambda face: int(face.width() * face.height()))
    if largest.width() < least_px:
        raise InputError(f"the face is {largest.width()} px wide, {least_px} are needed; give a larger photograph of it")
    chip = network.dlib.get_face_chip(pixels, network.landmarks(pixels, largest), CHIP_PX, CHIP_PADDING)
    vector = np.array(network.encoder.compute_face_descriptor(chip), dtype=np.float64)
    return unit_length(vector).astype(np.float32)


def describe_faces(
    pictures: Iterable[UInt8[np.ndarray, "_ _ 3"]], network: FaceNetwork, *, only: bool = False, least_px: int = 0
) -> tuple[Float32[np.ndarray, "faces 128"], dict[int, str]]:
    """Descriptors of all pictures with a face, and for those that were refused, by number, why."""
    found, refused = [], {}
    for row, rgb in enumerate(pictures):
        try:
            found.append(describe_face(rgb, network, only=only, least_px=least_px))
        except InputError as error:
            refused[row] = str(error)
    return np.array(found, dtype=np.float32).reshape(len(found), FACE_SPACE.dim), refused
