"""Detection of faces in photographs by dlib, with their landmarks, from which all face descriptors are computed."""

from __future__ import annotations

import importlib
import importlib.util
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import UInt8

from veil.errors import InputError, NoFace

FIVE_LANDMARKS, SIXTY_EIGHT_LANDMARKS = "shape_predictor_5_face_landmarks.dat", "shape_predictor_68_face_landmarks.dat"
DETECTION_NETWORK = "mmod_human_face_detector.dat"
# Least confidence of the network for a face, and the longest side of the picture that it is given: its time grows with the
# pixels.
LEAST_CONFIDENCE, LONGEST_PX = 0.5, 800
FIRST_TRY = "frontal detector"
SECOND_TRY = "detection network"


@dataclass(frozen=True, kw_only=True, eq=False)
class FoundFace:
    """A detected face: dlib's landmarks, the detector (`found_by`), and the network's confidence (about 1 for a clear face).

    `confidence` is None for a face of the frontal detector.
    """

    landmarks: Any
    found_by: str
    confidence: float | None = None

    def __str__(self) -> str:
        sure = "" if self.confidence is None else f", confidence {self.confidence:.2f}"
        return f"{self.found_by}{sure}"


@dataclass(frozen=True, kw_only=True, eq=False)
class FaceFinder:
    """dlib's detector of frontal faces with a predictor of landmarks, and a network for photographs where it finds none.

    The detector of gradients misses faces that are turned, dark, covered or cut off by the edge of the photograph. dlib's
    network (King 2015, max-margin object detection) finds most of them, and takes some fifty times as long. `network` None
    makes no second try. A face that the network found is marked, as it may take something else for a face.
    """

    detector: Any
    predictor: Any
    network: Any = None

    def find(self, pixels: UInt8[np.ndarray, "height width 3"], *, only: bool = False, least_px: int = 0) -> FoundFace:
        """The largest face in contiguous RGB pixels.

        Raises NoFace if no try finds a face, with `only` if there are several, or if it is narrower than `least_px` pixels.
        """
        # The detector finds faces of 80 px; small ones are looked for in the picture at twice its size.
        faces = self.detector(pixels, 0) or self.detector(pixels, 1)
        sure: list[float] | None = None
        if not len(faces) and self.network is not None:
            faces, sure = self._by_network(pixels)
        if not len(faces):
            raise NoFace(f"no face was found ({self.tried}); give a photograph that shows one from the front")
        if only and len(faces) > 1:
            raise NoFace(f"{len(faces)} faces were found; crop the photograph to one of them")
        at = max(range(len(faces)), key=lambda k: int(faces[k].width() * faces[k].height()))
        if faces[at].width() < least_px:
            raise NoFace(f"the face is {faces[at].width()} px wide, {least_px} are needed; give a larger photograph of it")
        shape = self.predictor(pixels, faces[at])
        if sure is None:
            return FoundFace(landmarks=shape, found_by=FIRST_TRY)
        return FoundFace(landmarks=shape, found_by=SECOND_TRY, confidence=sure[at])

    @property
    def tried(self) -> str:
        """Phrase for messages that lists the detectors that were tried."""
        first = f"tried: dlib's {FIRST_TRY} at one and two times the size"
        return (
            first
            if self.network is None
            else f"{first}, its {SECOND_TRY} with a confidence of {LEAST_CONFIDENCE:g}, also beyond the edges"
        )

    def _by_network(self, pixels: UInt8[np.ndarray, "height width 3"]) -> tuple[list[Any], list[float]]:
        """Rectangles of faces in these pixels, with the network's confidences.

        If it finds none, the photograph is shown to it once more in a frame of repeated edge pixels, without which it misses
        faces that are cut off.
        """
        for frame in (0, -(-max(pixels.shape[:2]) // 4)):
            shown = np.pad(pixels, [(frame, frame), (frame, frame), (0, 0)], mode="edge") if frame else pixels
            step = -(-max(shown.shape[:2]) // LONGEST_PX)
            small = shown if step == 1 else _shrunk(shown, step)
            faces = [item for item in self.network(small, 0) if item.confidence >= LEAST_CONFIDENCE]
            if faces:
                return [_moved(item.rect, step, frame) for item in faces], [float(item.confidence) for item in faces]
        return [], []


def _shrunk(pixels: UInt8[np.ndarray, "height width 3"], step: int) -> UInt8[np.ndarray, "_ _ 3"]:
    """Pixels averaged over squares of `step` a side; an incomplete square at the right or at the bottom is cut off."""
    height, width = pixels.shape[0] // step, pixels.shape[1] // step
    squares = pixels[: height * step, : width * step].reshape(height, step, width, step, 3)
    return np.ascontiguousarray(squares.mean(axis=(1, 3), dtype=np.float32).astype(np.uint8))


def _moved(box: Any, step: int, frame: int) -> Any:
    """A rectangle in pixels of the photograph, from one in the framed and shrunk picture that the network saw."""
    if step == 1 and frame == 0:
        return box
    sides = (box.left(), box.top(), box.right(), box.bottom())
    return import_dlib().rectangle(*(step * side - frame for side in sides))


def import_dlib() -> Any:
    """The module dlib. Raises InputError, which says how to install it, if it is missing."""
    try:
        return importlib.import_module("dlib")
    except ImportError as error:
        raise InputError(f"face descriptors need dlib ({error}); run: pip install 'veil-faces[networks]'") from None


def shipped_network(name: str) -> str:
    """The path of a file of the package `face-recognition-models`. Raises InputError if it is not installed.

    The package is found without being imported: it imports pkg_resources, which newer setuptools no longer have.
    """
    package = importlib.util.find_spec("face_recognition_models")
    folders = [Path(place) / "models" for place in (package.submodule_search_locations or ())] if package else []
    folder = next((place for place in folders if (place / name).is_file()), None)
    if folder is None:
        raise InputError(
            "face descriptors need the networks of face-recognition-models; run: pip install 'veil-faces[networks]'"
        )
    return str(folder / name)


def load_face_finder(landmarks: str, *, second_try: bool = True) -> FaceFinder:
    """The detector with one of the two predictors of landmarks (a file name), and the network if there is a `second_try`.

    Raises InputError if dlib or its files are not installed.
    """
    dlib = import_dlib()
    network = dlib.cnn_face_detection_model_v1(shipped_network(DETECTION_NETWORK)) if second_try else None
    predictor = dlib.shape_predictor(shipped_network(landmarks))
    return FaceFinder(detector=dlib.get_frontal_face_detector(), predictor=predictor, network=network)
