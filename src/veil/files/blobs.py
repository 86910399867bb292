"""A folder of files that are named by what they hold, each written once."""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Iterator
from pathlib import Path

from veil.errors import FileFormatError, InputError
from veil.files.atomic import read_bytes, replacing, writing

_NAME = re.compile(r"[0-9a-f]{64}")


class FolderBlobs:
    """Bytes by their SHA-256 (hex), as files of a folder; equal bytes are one file."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def put(self, data: bytes) -> str:
        """Keep bytes, on the disk at once or not at all, and return their name. Raises InputError if they cannot be written."""
        name = hashlib.sha256(data).hexdigest()
        path = self.path(name)
        if not path.is_file():
            with replacing(path, suffix=".part", private=True) as temporary, temporary.open("wb") as stream:
                stream.write(data)
                stream.flush()
                os.fsync(stream.fileno())
        return name

    def get(self, name: str) -> bytes:
        """The bytes of a name. Raises FileFormatError if they are missing or damaged."""
        data = read_bytes(self.path(name))
        if hashlib.sha256(data).hexdigest() != name:
            raise FileFormatError(f"{self.path(name)} is damaged: it does not hold what its name says; restore it")
        return data

    def delete(self, name: str) -> None:
        """Delete the bytes of a name, if they are there. Raises InputError if they cannot be deleted."""
        with writing(self.path(name)):
            self.path(name).unlink(missing_ok=True)

    def names(self) -> Iterator[str]:
        """Names of all that is kept."""
        for path in sorted(self.folder.glob("??/*")):
            if _NAME.fullmatch(path.name):
                yield path.name

    def path(self, name: str) -> Path:
        """The file of a name. Raises InputError for what is no name."""
        if not _NAME.fullmatch(name):
            raise InputError(f"{name!r} is no SHA-256 in hex digits")
        return self.folder / name[:2] / name
