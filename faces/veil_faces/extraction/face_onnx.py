"""Descriptors of faces by an ONNX network of the ArcFace kind that the user has; veil ships none and downloads none.

Deng et al. 2019: the face, turned and scaled so that eyes, nose and mouth lie where such networks expect them, goes through a
network whose last layer is the descriptor. Models differ in how pixels are prepared, and their files do not say it; so this is
a `Preparation`, and the space names it beside the file.
"""

from __future__ import annotations

import hashlib
import importlib
import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float64, UInt8

from veil.errors import InputError, RangeError
from veil.geometry.similarity import align_points
from veil.space import Space
from veil_faces.extraction.face_finder import SIXTY_EIGHT_LANDMARKS, FaceFinder, load_face_finder
from veil_faces.extraction.onnx_tensors import has_external_tensors

SMALLEST_PX, LARGEST_PX = 16, 1024
EXPECTED = "expected one float32 input of 1 x 3 x S x S or 1 x S x S x 3 and one output of floats (1, d)"


@dataclass(frozen=True, kw_only=True)
class Preparation:
    """The preparation of 8-bit pixels x for a network: (x - `mean`) / `scale`, with red first, or blue first with `bgr`.

    Raises RangeError if a number is not finite, or `scale` is not positive.
    """

    bgr: bool = False
    mean: float = 127.5
    scale: float = 127.5

    def __post_init__(self) -> None:
        if not math.isfinite(self.mean):
            raise RangeError(f"mean must be finite, got {self.mean!r}; give the gray that the network sees as 0")
        if not 0 < self.scale < math.inf:
            raise RangeError(f"scale must be finite and > 0, got {self.scale!r}; give what the network's pixels are divided by")

    @property
    def mark(self) -> str:
        """Suffix of the descriptor's name: empty by default, "-bgr" for blue first, 32 bits of a hash for other numbers."""
        order = "-bgr" if self.bgr else ""
        if (self.mean, self.scale) == (127.5, 127.5):
            return order
        numbers = f"{float(self.mean) + 0.0!r} {float(self.scale)!r}"  # + 0.0: minus zero is zero
        return f"{order}-{hashlib.sha256(numbers.encode()).hexdigest()[:8]}"

    def __call__(self, chip: UInt8[np.ndarray, "size size 3"]) -> np.ndarray:
        """The prepared pixels, float32 (size, size, 3)."""
        ordered = chip[..., ::-1] if self.bgr else chip
        return ((ordered.astype(np.float64) - self.mean) / self.scale).astype(np.float32)


@dataclass(frozen=True, kw_only=True, eq=False)
class OnnxModel:
    """A loaded and checked model that takes pictures of `size_px` a side and returns descriptors of `space`."""

    session: Any
    input_name: str
    size_px: int
    channels_first: bool
    preparation: Preparation
    space: Space

    def describe(self, chip: UInt8[np.ndarray, "size size 3"]) -> Float64[np.ndarray, "dim"]:
        """The descriptor of an aligned face, not scaled to unit length.

        Raises InputError if the model fails, or returns another shape than when it was loaded.
        """
        (vector,) = _run(self.session, self.input_name, _batch(self.preparation(chip), self.channels_first))
        if vector.shape != (self.space.dim,):
            raise InputError(f"the model returned {len(vector)} numbers, and {self.space.dim} when loaded; give another")
        return vector


@dataclass(frozen=True, kw_only=True, eq=False)
class OnnxNetwork:
    """A `FaceNetwork` of an ONNX model with dlib's detector and its 68 landmarks."""

    finder: FaceFinder
    model: OnnxModel

    @property
    def space(self) -> Space:
        """The space of the model's descriptors."""
        return self.model.space

    def describe(self, pixels: UInt8[np.ndarray, "height width 3"], landmarks: Any) -> Float64[np.ndarray, "dim"]:
        """The descriptor of the face at these landmarks, not scaled to unit length."""
        return self.model.describe(aligned_face(pixels, five_points(landmarks), self.model.size_px))


def load_onnx_network(model: OnnxModel, *, second_try: bool = True) -> OnnxNetwork:
    """The model with dlib's detector. Raises InputError if dlib or its predictor of 68 landmarks is not installed."""
    return OnnxNetwork(finder=load_face_finder(SIXTY_EIGHT_LANDMARKS, second_try=second_try), model=model)


def load_onnx_model(content: bytes, preparation: Preparation) -> OnnxModel:
    """Load a model from the bytes of its file and run it once to learn the size of its descriptors.

    Its descriptors are called "onnx-", the first 12 digits of the file's SHA-256, and the preparation's suffix, so that those
    of two models or preparations are never compared. Raises InputError if onnxruntime is missing, or the model is damaged,
    leaves weights to other files, or has other inputs and outputs than a network of faces.
    """
    session = _session(content)
    input_name, shape = _signature(session)
    size_px, channels_first = _layout(shape)
    trial = _run(session, input_name, _batch(np.zeros((size_px, size_px, 3), dtype=np.float32), channels_first))
    dim = trial.shape[1]
    try:
        name = f"onnx-{hashlib.sha256(content).hexdigest()[:12]}{preparation.mark}"
        space = Space(descriptor=name, normalization="L2", dim=dim)
    except RangeError as error:
        raise InputError(f"the model's descriptors have {dim} numbers ({error})") from None
    return OnnxModel(
        session=session,
        input_name=input_name,
        size_px=size_px,
        channels_first=channels_first,
        preparation=preparation,
        space=space,
    )


def _session(content: bytes) -> Any:
    """The session of onnxruntime for a model, on the CPU and without telemetry."""
    try:
        runtime = importlib.import_module("onnxruntime")
    except ImportError as error:
        raise InputError(f"ONNX models need onnxruntime ({error}); run: pip install 'veil-faces[networks]'") from None
    try:
        elsewhere = has_external_tensors(content)
    except ValueError as error:
        raise InputError(f"this is no ONNX model, or a damaged one ({error}); export it again") from None
    if elsewhere:
        raise InputError("the model leaves weights to other files; save it as one file, so that its name stands for all of it")
    runtime.disable_telemetry_events()  # on by default in its builds for Windows
    options = runtime.SessionOptions()
    options.log_severity_level = 4
    options.add_session_config_entry("session.load_model_format", "ONNX")
    try:
        return runtime.InferenceSession(content, options, providers=["CPUExecutionProvider"])
    except Exception as error:  # onnxruntime's errors have no other class in common
        raise InputError(f"onnxruntime cannot load the model ({_plain(error)}); export it again") from None


def _signature(session: Any) -> tuple[str, list[object]]:
    """Name and shape of the model's one input. Raises InputError for other inputs or outputs."""
    try:
        ends = (session.get_inputs(), session.get_outputs())
        inputs, outputs = ([(node.name, node.type, list(node.shape)) for node in nodes] for nodes in ends)
    except UnicodeDecodeError:
        raise InputError("the model's inputs have names that are no text; export it again") from None
    if len(inputs) != 1 or len(outputs) != 1 or inputs[0][1] != "tensor(float)" or len(inputs[0][2]) != 4:
        has = "; ".join(f"{what} {_plain(ends)}" for what, ends in (("inputs", inputs), ("outputs", outputs)))
        raise InputError(f"the model has {has}; {EXPECTED}")
    return inputs[0][0], inputs[0][2]


def _layout(shape: list[object]) -> tuple[int, bool]:
    """Side S of the input in pixels, and whether channels come first. A size that the model leaves open is 112 px.

    Raises InputError for other shapes than a batch of one picture of three channels.
    """
    channels_first = shape[1] == 3
    sides = shape[2:] if channels_first else shape[1:3]
    fixed = {side for side in sides if isinstance(side, int)} or {TEMPLATE_PX}
    size = fixed.pop()
    fits = not fixed and isinstance(size, int) and SMALLEST_PX <= size <= LARGEST_PX
    if not fits or not (channels_first or shape[3] == 3) or (isinstance(shape[0], int) and shape[0] != 1):
        raise InputError(f"the model's input is {_plain(shape)}; {EXPECTED}, S between {SMALLEST_PX} and {LARGEST_PX}")
    return size, channels_first


def _batch(prepared: np.ndarray, channels_first: bool) -> np.ndarray:
    """A batch of one prepared picture, contiguous and in the model's order of axes."""
    return np.ascontiguousarray(prepared.transpose(2, 0, 1) if channels_first else prepared)[None]


def _run(session: Any, name: str, batch: np.ndarray) -> Float64[np.ndarray, "1 dim"]:
    """The model's output for a batch. Raises InputError if it fails, or returns no floats of shape (1, dim)."""
    try:
        (output,) = session.run(None, {name: batch})
    except Exception as error:  # onnxruntime's errors have no other class in common
        raise InputError(f"the model fails on a picture of {batch.shape} ({_plain(error)}); give a network of faces") from None
    if not isinstance(output, np.ndarray) or output.dtype.kind != "f" or output.ndim != 2 or len(output) != 1:
        has = f"{output.dtype} {output.shape}" if isinstance(output, np.ndarray) else type(output).__name__
        raise InputError(f"the model returns {has} for one picture; {EXPECTED}")
    return output.astype(np.float64)


def _plain(value: object) -> str:
    """Text from a model for a message, printable and at most 300 characters long."""
    text = str(value)[:300]
    return "".join(character if character.isprintable() else " " for character in text).strip()


# Eyes, tip of the nose, corners of the mouth, left to right, in 112 x 112 px (Deng et al. 2019; their published code).
TEMPLATE_PX = 112
TEMPLATE = np.array(
    [[38.2946, 51.6963], [73.5318, 51.5014], [56.0252, 71.7366], [41.5493, 92.3655], [70.7299, 92.2041]], dtype=np.float64
)
# These five places among the 68 landmarks of dlib's predictor; an eye is the mean of its outline.
PLACES = (range(36, 42), range(42, 48), (30,), (48,), (54,))


def five_points(landmarks: Any) -> Float64[np.ndarray, "5 2"]:
    """The five places of the template in a photograph, pixels (x, y), from dlib's 68 landmarks of a face."""
    return np.array(
        [np.mean([(landmarks.part(k).x, landmarks.part(k).y) for k in place], axis=0) for place in PLACES], dtype=np.float64
    )


def aligned_face(
    pixels: UInt8[np.ndarray, "height width 3"], points: Float64[np.ndarray, "5 2"], size_px: int
) -> UInt8[np.ndarray, "size size 3"]:
    """The face at five points as a square picture of `size_px` a side; black where the photograph ends.

    The similarity that brings the points nearest to the template, scaled by `size_px` / 112, is applied. Raises InputError if
    all points are the same.
    """
    import cv2

    chip_from_photo = align_points(points, TEMPLATE * (size_px / TEMPLATE_PX))
    matrix = np.column_stack((chip_from_photo.scale * chip_from_photo.rotation, chip_from_photo.translation))
    return np.asarray(cv2.warpAffine(pixels, matrix, (size_px, size_px), flags=cv2.INTER_LINEAR), dtype=np.uint8)
