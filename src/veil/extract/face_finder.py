"""Faces in photographs by dlib's detector, with their landmarks: what all face descriptors start from, and what they refuse."""

from __future__ import annotations

import importlib
import importlib.util
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import UInt8

from veil.errors import InputError

FIVE_LANDMARKS, SIXTY_EIGHT_LANDMARKS = "shape_predictor_5_face_landmarks.dat", "shape_predictor_68_face_landmarks.dat"


@dataclass(frozen=True, kw_only=True, eq=False)
class FaceFinder:
    """dlib's detector of frontal faces, and a predictor of their landmarks."""

    detector: Any
    predictor: Any

    def find(self, pixels: UInt8[np.ndarray, "height width 3"], *, only: bool = False, least_px: int = 0) -> Any:
        """dlib's landmarks of the largest face in contiguous RGB pixels.

        Raises InputError if the detector finds no face, several where there may be `only` one, or one narrower than `least_px`.
        """
        # The detector finds faces of 80 px; small ones are looked for in the picture at twice its size.
        faces = self.detector(pixels, 0) or self.detector(pixels, 1)
        if not len(faces):
            raise InputError("no face was found; give a photograph that shows one from the front")
        if only and len(faces) > 1:
            raise InputError(f"{len(faces)} faces were found; crop the photograph to one of them")
        largest = max(faces, key=lambda face: int(face.width() * face.height()))
        if largest.width() < least_px:
            raise InputError(f"the face is {largest.width()} px wide, {least_px} are needed; give a larger photograph of it")
        return self.predictor(pixels, largest)


def import_dlib() -> Any:
    """dlib, or an InputError that says how to install it."""
    try:
        return importlib.import_module("dlib")
    except ImportError as error:
        raise InputError(f"face descriptors need dlib ({error}); run: pip install 'veil[faces]'") from None


def shipped_network(name: str) -> str:
    """The path of a file of `face-recognition-models`. Raises InputError if it is not installed.

    That package is found without being imported: it imports pkg_resources, which newer setuptools no longer have.
    """
    found = importlib.util.find_spec("face_recognition_models")
    folders = [Path(place) / "models" for place in (found.submodule_search_locations or ())] if found else []
    folder = next((place for place in folders if (place / name).is_file()), None)
    if folder is None:
        raise InputError("face descriptors need the networks of face-recognition-models; run: pip install 'veil[faces]'")
    return str(folder / name)


def load_face_finder(landmarks: str) -> FaceFinder:
    """The detector with one of the two predictors of landmarks. Raises InputError if it or dlib are not installed."""
    dlib = import_dlib()
    return FaceFinder(detector=dlib.get_frontal_face_detector(), predictor=dlib.shape_predictor(shipped_network(landmarks)))
