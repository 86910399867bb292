"""Checkpoints of long mapping on disk: the growing model, from which a killed run continues."""

from __future__ import annotations

import hashlib
import shutil
import zipfile
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from veil.errors import InputError
from veil.files.atomic import replacing, write_text
from veil.mapping.lines.reconstruction import Reconstruction

_FIELDS = ("registered", "rotations", "translations", "points", "observed")


def run_key(parts: list[bytes]) -> str:
    """SHA-256 (hex) of the parts that a run depends on; their lengths count."""
    hasher = hashlib.sha256()
    for part in parts:
        hasher.update(len(part).to_bytes(8, "little") + part)
    return hasher.hexdigest()


class Checkpoints:
    """The folder of an unfinished run, beside its output.

    `key` (`run_key`) stands for the run's messages and options. Raises InputError if the folder holds the state of another run:
    nothing is overwritten.
    """

    def __init__(self, folder: Path, key: str) -> None:
        self._folder = folder
        if folder.exists():
            stored = folder / "run.txt"
            if not stored.is_file() or stored.read_text().strip() != key:
                raise InputError(
                    f"{folder} holds the unfinished run of other messages or options; finish that one with its own command, "
                    "or remove the folder"
                )
        else:
            write_text(folder / "run.txt", key + "\n")

    def model(self) -> Reconstruction | None:
        """The model that was saved last; None if there is none, or it is damaged."""
        path = self._folder / "model.npz"
        arrays = _load(path) if path.is_file() else None
        return None if arrays is None else Reconstruction(**{field: arrays[field] for field in _FIELDS})

    def save_model(self, model: Reconstruction) -> None:
        """Save the model in place of the one before."""
        _save(self._folder / "model.npz", {field: getattr(model, field) for field in _FIELDS})

    def remove(self) -> None:
        """Remove the folder: the run is finished."""
        shutil.rmtree(self._folder, ignore_errors=True)


def _save(path: Path, arrays: Mapping[str, np.ndarray]) -> None:
    with replacing(path) as temporary, temporary.open("wb") as stream:
        np.savez(stream, **arrays)  # type: ignore[arg-type]


def _load(path: Path) -> dict[str, np.ndarray] | None:
    """The arrays of an .npz by name; None if it is missing or damaged."""
    try:
        with np.load(path, allow_pickle=False) as stored:
            return {name: stored[name] for name in stored.files}
    except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile):
        return None
