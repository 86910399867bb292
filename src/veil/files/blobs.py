"""Bytes that are named by what they hold, each written once: one small interface, and a folder of files behind it."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Protocol, runtime_checkable

from veil.errors import FileFormatError, InputError
from veil.files.atomic import read_bytes, replacing, writing

_NAME = re.compile(r"[0-9a-f]{64}")


@runtime_checkable
class Blobs(Protocol):
    """Bytes by their SHA-256 (hex), which several processes share; equal bytes are kept once."""

    def put(self, data: bytes) -> str:
        """Keep bytes, lastingly or not at all, and return their name. Raises InputError or StorageTrouble if that fails."""

    def has(self, name: str) -> bool:
        """Whether the bytes of a name are there. Raises StorageTrouble if nobody can say."""

    def get(self, name: str) -> bytes:
        """The bytes of a name. Raises FileFormatError if they are missing or damaged, StorageTrouble if nobody can say."""

    def place(self, name: str, path: Path) -> None:
        """Have a file that is not there yet hold the bytes of a name; raises what `get` does. Nobody may write the file."""

    def delete(self, name: str) -> None:
        """Delete the bytes of a name, if they are there. Raises InputError or StorageTrouble if it cannot be done."""

    def names(self, *, older_than_s: float = 0.0) -> Iterator[str]:
        """Names of all that is kept, and was written so many seconds ago or before."""


def blob_name(data: bytes) -> str:
    """The name of bytes."""
    return hashlib.sha256(data).hexdigest()


def require_name(name: str) -> str:
    """A name of bytes as it is. Raises InputError for what is none."""
    if not _NAME.fullmatch(name):
        raise InputError(f"{name!r} is no SHA-256 in hex digits")
    return name


def is_name(text: str) -> bool:
    """Whether a text names bytes."""
    return _NAME.fullmatch(text) is not None


class FolderBlobs:
    """Bytes by their SHA-256 (hex), as files of a folder; equal bytes are one file."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def put(self, data: bytes) -> str:
        """Keep bytes, on the disk at once or not at all, and return their name. Raises InputError if they cannot be written."""
        name = blob_name(data)
        path = self.path(name)
        if not path.is_file():
            with replacing(path, suffix=".part", private=True) as temporary, temporary.open("wb") as stream:
                stream.write(data)
                stream.flush()
                os.fsync(stream.fileno())
        return name

    def has(self, name: str) -> bool:
        """Whether the bytes of a name are there, as `Blobs` says."""
        return self.path(name).is_file()

    def get(self, name: str) -> bytes:
        """The bytes of a name. Raises FileFormatError if they are missing or damaged."""
        data = read_bytes(self.path(name))
        if blob_name(data) != name:
            raise FileFormatError(f"{self.path(name)} is damaged: it does not hold what its name says; restore it")
        return data

    def delete(self, name: str) -> None:
        """Delete the bytes of a name, if they are there. Raises InputError if they cannot be deleted."""
        with writing(self.path(name)):
            self.path(name).unlink(missing_ok=True)

    def place(self, name: str, path: Path) -> None:
        """Link or copy the file of a name, as `Blobs` says."""
        try:
            os.link(self.path(name), path)
        except OSError:  # of another file system
            try:
                shutil.copyfile(self.path(name), path)
            except FileNotFoundError as error:
                raise FileFormatError(f"cannot read {self.path(name)}: {error.strerror}") from None

    def names(self, *, older_than_s: float = 0.0) -> Iterator[str]:
        """Names of all that is kept, as `Blobs` says."""
        latest = time.time() - older_than_s
        for path in sorted(self.folder.glob("??/*")):
            if is_name(path.name) and (not older_than_s or path.stat().st_mtime <= latest):
                yield path.name

    def path(self, name: str) -> Path:
        """The file of a name. Raises InputError for what is no name."""
        return self.folder / require_name(name)[:2] / name
