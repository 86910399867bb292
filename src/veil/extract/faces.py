"""dlib's face descriptor, for those who install the optional extra `veil[faces]`.

King 2017: a residual network of 29 layers, 128 numbers a face, trained so that faces of one person are nearer than 0.6. Its
vectors are not of unit length (about 1.4); veil scales them to it, and the space says so: "dlib-face", normalization L2.
"""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float32, UInt8

from veil.errors import InputError
from veil.features import Features, unit_length
from veil.geometry.camera import guessed
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


def describe_face(rgb: UInt8[np.ndarray, "height width 3"], network: FaceNetwork) -> Float32[np.ndarray, "128"] | None:
    """The unit-length descriptor of the largest face, aligned by its landmarks; None if the detector finds no face."""
    pixels = np.ascontiguousarray(rgb)
    # The detector finds faces of 80 px; small ones are looked for in the picture at twice its size.
    faces = network.detector(pixels, 0) or network.detector(pixels, 1)
    if not len(faces):
        return None
    largest = max(faces, key=lambda face: int(face.width() * face.height()))
    chip = network.dlib.get_face_chip(pixels, network.landmarks(pixels, largest), CHIP_PX, CHIP_PADDING)
    vector = np.array(network.encoder.compute_face_descriptor(chip), dtype=np.float64)
    return unit_length(vector).astype(np.float32)


def as_features(vectors: Float32[np.ndarray, "faces 128"]) -> Features:
    """Face descriptors as the features of one picture, to be lifted like any others; a face has no position."""
    return Features(
        keypoints=np.zeros((len(vectors), 2), dtype=np.float32),
        descriptors=vectors,
        space=FACE_SPACE,
        camera=guessed(CHIP_PX, CHIP_PX),
        image_digest=hashlib.blake2b(vectors.tobytes(), digest_size=32).digest(),
    )


def describe_faces(
    pictures: Sequence[UInt8[np.ndarray, "_ _ 3"]], network: FaceNetwork
) -> tuple[Float32[np.ndarray, "faces 128"], list[int]]:
    """Descriptors of all pictures with a face, and which pictures these are."""
    found = [(row, vector) for row, rgb in enumerate(pictures) if (vector := describe_face(rgb, network)) is not None]
    vectors = np.array([vector for _, vector in found], dtype=np.float32).reshape(len(found), FACE_SPACE.dim)
    return vectors, [row for row, _ in found]
