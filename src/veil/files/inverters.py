"""Weights of inversion networks as .npz files that carry their own hash, and the state of an unfinished training."""

from __future__ import annotations

import json
import shutil
import struct
import tokenize
import zipfile
import zlib
from collections.abc import Mapping
from importlib.resources import as_file, files
from pathlib import Path
from typing import Any

import numpy as np

from veil.errors import FileFormatError, InputError, Remedy
from veil.files.atomic import replacing, write_text
from veil.files.containers import require_filled
from veil.inversion.photos import Example, assembled
from veil.inversion.weights import Training, Weights

FORMAT = 1
_DAMAGE = (
    *(OSError, EOFError, zipfile.BadZipFile, zlib.error, struct.error, NotImplementedError, RuntimeError, MemoryError),
    *(ValueError, LookupError, TypeError, AttributeError, OverflowError, tokenize.TokenError),
)


def write_weights(path: Path, weights: Weights) -> None:
    """Write weights as .npz with their hash, at once or not at all."""
    _save(path, weights.arrays, {"format": FORMAT, "digest": weights.digest, **weights.header})


def read_weights(path: Path) -> Weights:
    """Read weights and verify their hash. Raises FileFormatError if the file is damaged, foreign, or does not match it."""
    arrays, header = _load(path, "weights of inversion")
    try:
        if header["format"] != FORMAT:
            raise FileFormatError(f"{path} has format {header['format']!r}; this veil reads {FORMAT}")
        weights = Weights(kind=header["kind"], arrays=arrays, training=Training.from_json(header["training"]))
        if weights.digest != header["digest"]:
            raise FileFormatError(f"{path} does not match its hash; fetch it again")
    except _DAMAGE as error:
        raise FileFormatError(f"{path} holds no weights of inversion, or is damaged ({error})") from None
    return weights


def bundled_inverter() -> Weights:
    """The network for raw SIFT (L2) descriptors that `veil audit` draws pictures with (NOTICE tells what it was trained on)."""
    with as_file(files("veil") / "data" / "inverter-sift-l2.npz") as path:
        return read_weights(path)


class Workshop:
    """The folder of an unfinished training: the run's key, its examples, and the state of the optimizer.

    Raises InputError if the folder belongs to another run, or to this one and `resume` is not given.
    """

    def __init__(self, folder: Path, key: str, *, resume: bool) -> None:
        self._folder = folder
        run = folder / "run.txt"
        if folder.exists():
            if not run.is_file() or run.read_text().strip() != key:
                raise InputError(
                    f"{folder} belongs to a training with other photographs or options; give these, or remove the folder"
                )
            if not resume:
                raise InputError(f"{folder} holds an unfinished training", remedy=Remedy("allow", "Workshop.resume"))
        else:
            write_text(run, key + "\n")

    def example(self, index: int) -> Example | None:
        """The stored example number `index`; None if it is missing or damaged."""
        path = self._path(index)
        if not path.is_file():
            return None
        try:
            arrays, header = _load(path, "an example")
            return assembled(arrays["rgb"], arrays["keypoints"], arrays["descriptors"], bytes.fromhex(header["digest"]))
        except (FileFormatError, InputError, *_DAMAGE):
            return None

    def save_example(self, index: int, example: Example) -> None:
        """Store an example under its number."""
        features = example.features
        arrays = {"rgb": example.rgb, "keypoints": features.keypoints, "descriptors": features.descriptors}
        _save(self._path(index), arrays, {"digest": features.image_digest.hex()})

    def _path(self, index: int) -> Path:
        return self._folder / f"example-{index:06d}.npz"

    def state(self) -> tuple[dict[str, np.ndarray], dict] | None:
        """Arrays and header of the state saved last; None if there is none. Raises FileFormatError for a damaged one."""
        path = self._folder / "state.npz"
        return _load(path, "the state of a training") if path.is_file() else None

    def save_state(self, arrays: Mapping[str, np.ndarray], header: Mapping[str, object]) -> None:
        """Save the state of training in place of the one before."""
        _save(self._folder / "state.npz", arrays, header)

    def remove(self) -> None:
        """Remove the folder: the training is finished."""
        shutil.rmtree(self._folder, ignore_errors=True)


def _save(path: Path, arrays: Mapping[str, np.ndarray], header: Mapping[str, object]) -> None:
    every: dict[str, Any] = {"header": np.frombuffer(json.dumps(header).encode(), dtype=np.uint8), **arrays}
    with replacing(path) as temporary, temporary.open("wb") as stream:
        # Without `allow_pickle`, which NumPy 1 would store as one more array.
        np.savez(stream, **every)


def _load(path: Path, what: str) -> tuple[dict[str, np.ndarray], dict]:
    """Arrays and header of an .npz that `_save` wrote; FileFormatError otherwise, which calls it `what`."""
    try:
        require_filled(path)
        with np.load(path, allow_pickle=False) as stored:
            header = json.loads(stored["header"].tobytes())
            return {name: stored[name] for name in stored.files if name != "header"}, header
    except FileNotFoundError:
        raise FileFormatError(f"there is no file {path}") from None
    except _DAMAGE as error:
        raise FileFormatError(f"{path} is not {what}, or is damaged ({error})") from None
