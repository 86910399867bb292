"""Files of arrays in a folder, each named by what it was made from: a killed run goes on with those that are whole."""

from __future__ import annotations

import hashlib
import io
import zipfile
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from veil.errors import InputError
from veil.files.atomic import read_bytes, write_bytes


class KeptArrays:
    """A folder with one .npz for each key, and its SHA-256 at the end; damaged files count as missing."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def path(self, key: str) -> Path:
        """Path of the file of a key, whether it is there or not."""
        return self.folder / f"{key}.npz"

    def get(self, key: str) -> dict[str, np.ndarray] | None:
        """The arrays of a key by name; None if they are missing or damaged."""
        path = self.path(key)
        if not path.is_file():
            return None
        try:
            data = read_bytes(path)
            if hashlib.sha256(data[:-32]).digest() != data[-32:]:
                return None
            with np.load(io.BytesIO(data[:-32]), allow_pickle=False) as stored:
                return {name: stored[name] for name in stored.files}
        except (OSError, ValueError, LookupError, zipfile.BadZipFile, InputError):
            return None

    def put(self, key: str, arrays: Mapping[str, np.ndarray]) -> None:
        """Keep the arrays of a key, at once or not at all. Raises InputError if they cannot be written."""
        stream = io.BytesIO()
        np.savez(stream, **arrays)  # type: ignore[arg-type]
        data = stream.getvalue()
        write_bytes(self.path(key), data + hashlib.sha256(data).digest())
