"""Bytes that are named by what they hold, each written once: one small interface, and a folder of files behind it."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Protocol, runtime_checkable

from veil.errors import FileFormatError, InputError, Remedy
from veil.files.atomic import clear_leftovers, read_bytes, replacing, sync_folder, write_bytes, writing

# What says to which store bytes belong.
OWNER = "store.json"
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

    def names(self) -> Iterator[str]:
        """Names of all that is kept."""

    def owner(self) -> str | None:
        """The id of the store that these bytes belong to, None where none is noted. Raises FileFormatError if it is damaged."""

    def claim(self, store: str, *, anew: bool = False) -> str:
        """Note a store as the owner where none is noted, or `anew`; returns who is the owner now."""

    def clear(self, *, older_than_s: float) -> None:
        """Delete what killed writers left, if it is at least `older_than_s` seconds old."""


def owner_note(store: str) -> bytes:
    """The note that says to which store bytes belong."""
    return json.dumps({"store": store}).encode() + b"\n"


def noted_owner(data: bytes, place: object) -> str:
    """The store that a note names. Raises FileFormatError for a damaged one."""
    try:
        owner = json.loads(data)["store"]
        if isinstance(owner, str) and owner:
            return owner
    except (ValueError, KeyError, TypeError):
        pass
    raise FileFormatError(
        f"{place} does not say which store it belongs to",
        remedy=(Remedy("restore", "note of the store"), Remedy("adopt", "server's store")),
    )


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
            with replacing(path, suffix="", private=True) as temporary, temporary.open("wb") as stream:
                stream.write(data)
                stream.flush()
                os.fsync(stream.fileno())
            with writing(path):
                sync_folder(path.parent)
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
        """Delete the bytes of a name, if they are there, and what is being written of them.

        Whoever is writing them meanwhile must do it again. Raises InputError if they cannot be deleted.
        """
        path = self.path(name)
        with writing(path):
            path.unlink(missing_ok=True)
        clear_leftovers(path.parent, name=name, older_than_s=0.0)

    def place(self, name: str, path: Path) -> None:
        """Link or copy the file of a name, as `Blobs` says."""
        try:
            os.link(self.path(name), path)
        except OSError:  # of another file system
            try:
                shutil.copyfile(self.path(name), path)
            except FileNotFoundError as error:
                raise FileFormatError(f"cannot read {self.path(name)}: {error.strerror}") from None

    def names(self) -> Iterator[str]:
        """Names of all that is kept, as `Blobs` says."""
        return (path.name for path in sorted(self.folder.glob("??/*")) if is_name(path.name))

    def owner(self) -> str | None:
        """The id of the store, as `Blobs` says."""
        path = self.folder / OWNER
        return noted_owner(read_bytes(path), path) if path.is_file() else None

    def claim(self, store: str, *, anew: bool = False) -> str:
        """Note the owner, as `Blobs` says."""
        if anew or self.owner() is None:
            write_bytes(self.folder / OWNER, owner_note(store))
        return self.owner() or store

    def clear(self, *, older_than_s: float) -> None:
        """Delete what killed writers left, as `Blobs` says."""
        for folder in (self.folder, *self.folder.glob("??")):
            clear_leftovers(folder, older_than_s=older_than_s)

    def path(self, name: str) -> Path:
        """The file of a name. Raises InputError for what is no name."""
        return self.folder / require_name(name)[:2] / name
