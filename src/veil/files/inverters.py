"""Weights of inversion networks as .npz files that carry their own hash."""

from __future__ import annotations

import json
import struct
import tokenize
import zipfile
import zlib
from collections.abc import Mapping
from importlib.resources import as_file, files
from pathlib import Path
from typing import Any

import numpy as np

from veil.errors import FileFormatError
from veil.files.atomic import replacing
from veil.files.containers import require_filled
from veil.inversion.weights import Training, Weights

FORMAT = 1
DAMAGE = (
    *(OSError, EOFError, zipfile.BadZipFile, zlib.error, struct.error, NotImplementedError, RuntimeError, MemoryError),
    *(ValueError, LookupError, TypeError, AttributeError, OverflowError, tokenize.TokenError),
)


def write_weights(path: Path, weights: Weights) -> None:
    """Write weights as .npz with their hash, at once or not at all."""
    save_arrays(path, weights.arrays, {"format": FORMAT, "digest": weights.digest, **weights.header})


def read_weights(path: Path) -> Weights:
    """Read weights and verify their hash. Raises FileFormatError if the file is damaged, foreign, or does not match it."""
    arrays, header = load_arrays(path, "weights of inversion")
    try:
        if header["format"] != FORMAT:
            raise FileFormatError(f"{path} has format {header['format']!r}; this veil reads {FORMAT}")
        weights = Weights(kind=header["kind"], arrays=arrays, training=Training.from_json(header["training"]))
        if weights.digest != header["digest"]:
            raise FileFormatError(f"{path} does not match its hash; fetch it again")
    except DAMAGE as error:
        raise FileFormatError(f"{path} holds no weights of inversion, or is damaged ({error})") from None
    return weights


def bundled_inverter() -> Weights:
    """The network for raw SIFT (L2) descriptors that `veil audit` draws pictures with (NOTICE tells what it was trained on)."""
    with as_file(files("veil") / "data" / "inverter-sift-l2.npz") as path:
        return read_weights(path)


def save_arrays(path: Path, arrays: Mapping[str, np.ndarray], header: Mapping[str, object]) -> None:
    """Write arrays and a header as .npz, at once or not at all."""
    every: dict[str, Any] = {"header": np.frombuffer(json.dumps(header).encode(), dtype=np.uint8), **arrays}
    with replacing(path) as temporary, temporary.open("wb") as stream:
        # Without `allow_pickle`, which NumPy 1 would store as one more array.
        np.savez(stream, **every)


def load_arrays(path: Path, what: str) -> tuple[dict[str, np.ndarray], dict]:
    """Arrays and header of an .npz that `save_arrays` wrote; FileFormatError otherwise, which calls it `what`."""
    try:
        require_filled(path)
        with np.load(path, allow_pickle=False) as stored:
            header = json.loads(stored["header"].tobytes())
            return {name: stored[name] for name in stored.files if name != "header"}, header
    except FileNotFoundError:
        raise FileFormatError(f"there is no file {path}") from None
    except DAMAGE as error:
        raise FileFormatError(f"{path} is not {what}, or is damaged ({error})") from None
