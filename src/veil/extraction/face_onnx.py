"""Descriptors of faces by an ONNX network of the ArcFace kind that the user has: veil ships none, and fetches none.

Deng et al. 2019: the face, aligned by five points, goes through a network whose last layer is the descriptor. Models differ in
what is done to pixels first, and their files do not say; so that is a `Preparation`, and the space names it beside the file.
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
from veil.extraction.face_alignment import TEMPLATE_PX, aligned_face, five_points
from veil.extraction.face_finder import SIXTY_EIGHT_LANDMARKS, FaceFinder, load_face_finder
from veil.extraction.onnx_tensors import has_external_tensors
from veil.space import Space

SMALLEST_PX, LARGEST_PX = 16, 1024
EXPECTED = "expected one float32 input of 1 x 3 x S x S or 1 x S x S x 3 and one output of floats (1, d)"


@dataclass(frozen=True, kw_only=True)
class Preparation:
    """How 8-bit pixels x reach the network: red first, or blue first with `bgr`, and as (x - mean) / scale.

    Raises RangeError if a number is not finite, or scale not positive.
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
        """What it adds to the name of a descriptor: nothing by default, and 32 bits of a hash for other numbers."""
        order = "-bgr" if self.bgr else ""
        if (self.mean, self.scale) == (127.5, 127.5):
            return order
        numbers = f"{float(self.mean) + 0.0!r} {float(self.scale)!r}"  # + 0.0: minus zero is zero
        return f"{order}-{hashlib.sha256(numbers.encode()).hexdigest()[:8]}"

    def __call__(self, chip: UInt8[np.ndarray, "size size 3"]) -> np.ndarray:
        """float32 (size, size, 3)."""
        ordered = chip[..., ::-1] if self.bgr else chip
        return ((ordered.astype(np.float64) - self.mean) / self.scale).astype(np.float32)


@dataclass(frozen=True, kw_only=True, eq=False)
class OnnxModel:
    """A model that is loaded and checked: pictures of `size_px` in, descriptors of `space` out."""

    session: Any
    input_name: str
    size_px: int
    channels_first: bool
    preparation: Preparation
    space: Space

    def describe(self, chip: UInt8[np.ndarray, "size size 3"]) -> Float64[np.ndarray, "dim"]:
        """The descriptor of an aligned face, of any length. Raises InputError if the model fails, or returns another shape."""
        (vector,) = _run(self.session, self.input_name, _batch(self.preparation(chip), self.channels_first))
        if vector.shape != (self.space.dim,):
            raise InputError(f"the model returned {len(vector)} numbers, and {self.space.dim} when loaded; give another")
        return vector


@dataclass(frozen=True, kw_only=True, eq=False)
class OnnxNetwork:
    """A model with dlib's detector and its 68 landmarks: a `FaceNetwork`."""

    finder: FaceFinder
    model: OnnxModel

    @property
    def space(self) -> Space:
        """Where the model's descriptors live."""
        return self.model.space

    def describe(self, pixels: UInt8[np.ndarray, "height width 3"], landmarks: Any) -> Float64[np.ndarray, "dim"]:
        """The descriptor of the face at these landmarks, of any length."""
        return self.model.describe(aligned_face(pixels, five_points(landmarks), self.model.size_px))


def load_onnx_network(model: OnnxModel, *, second_try: bool = True) -> OnnxNetwork:
    """The model with what finds faces. Raises InputError if dlib or its predictor of 68 landmarks are not installed."""
    return OnnxNetwork(finder=load_face_finder(SIXTY_EIGHT_LANDMARKS, second_try=second_try), model=model)


def load_onnx_model(content: bytes, preparation: Preparation) -> OnnxModel:
    """A model from the bytes of its file, run once to see what it returns.

    Its descriptors are called onnx-, the first 12 digits of the file's SHA-256, and the preparation where it is not the
    default, so those of two models or preparations never meet. Raises InputError if onnxruntime is missing, or the model is
    damaged, leaves weights to other files, or has other inputs and outputs than a network of faces.
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
    try:
        runtime = importlib.import_module("onnxruntime")
    except ImportError as error:
        raise InputError(f"ONNX models need onnxruntime ({error}); run: pip install 'veil[faces]'") from None
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
    """The name and shape of the one input."""
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
    """S, and whether channels come before pixels. Sizes that the model leaves open are 112; a batch has one picture."""
    channels_first = shape[1] == 3
    sides = shape[2:] if channels_first else shape[1:3]
    fixed = {side for side in sides if isinstance(side, int)} or {TEMPLATE_PX}
    size = fixed.pop()
    fits = not fixed and isinstance(size, int) and SMALLEST_PX <= size <= LARGEST_PX
    if not fits or not (channels_first or shape[3] == 3) or (isinstance(shape[0], int) and shape[0] != 1):
        raise InputError(f"the model's input is {_plain(shape)}; {EXPECTED}, S between {SMALLEST_PX} and {LARGEST_PX}")
    return size, channels_first


def _batch(prepared: np.ndarray, channels_first: bool) -> np.ndarray:
    return np.ascontiguousarray(prepared.transpose(2, 0, 1) if channels_first else prepared)[None]


def _run(session: Any, name: str, batch: np.ndarray) -> Float64[np.ndarray, "1 dim"]:
    try:
        (found,) = session.run(None, {name: batch})
    except Exception as error:  # onnxruntime's errors have no other class in common
        raise InputError(f"the model fails on a picture of {batch.shape} ({_plain(error)}); give a network of faces") from None
    if not isinstance(found, np.ndarray) or found.dtype.kind != "f" or found.ndim != 2 or len(found) != 1:
        has = f"{found.dtype} {found.shape}" if isinstance(found, np.ndarray) else type(found).__name__
        raise InputError(f"the model returns {has} for one picture; {EXPECTED}")
    return found.astype(np.float64)


def _plain(value: object) -> str:
    """What a model says, for a message: printable, and short."""
    text = str(value)[:300]
    return "".join(character if character.isprintable() else " " for character in text).strip()
