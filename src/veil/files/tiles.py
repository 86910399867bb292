"""Private tiles on disk: a folder with a manifest in two files and all records in one, and what a device keeps of it.

A folder of tiles is made for anyone to read: `manifest.json`, `manifest.bin`, and `tiles.bin`, the records one after the other
(docs/reference/tiles.md).
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from jaxtyping import UInt8

from veil.errors import FileFormatError, InputError
from veil.files.atomic import new_folder, read_bytes, replacing, require_vacant, writing
from veil.tiles.cutting import CutMap
from veil.tiles.manifest import Manifest, decode_manifest, encode_manifest

JSON, BINARY, RECORDS = "manifest.json", "manifest.bin", "tiles.bin"
# No manifest is larger: its parts are read whole.
MOST_JSON_BYTES, MOST_BINARY_BYTES = 1 << 20, 1 << 30


def write_tiles(folder: Path, cut: CutMap) -> None:
    """Write a map's tiles to a new folder, at once or not at all. Raises InputError if it already holds something."""
    require_vacant(folder)
    text, binary, _ = encode_manifest(cut.manifest)
    with writing(folder), new_folder(folder) as temporary:
        for name, data in ((JSON, text), (BINARY, binary), (RECORDS, cut.records.data)):
            with (temporary / name).open("wb") as stream:
                stream.write(data)
                stream.flush()
                os.fsync(stream.fileno())


def holds_tiles(folder: Path) -> bool:
    """Whether a folder holds a map's tiles."""
    return (folder / JSON).is_file()


def read_manifest(folder: Path) -> Manifest:
    """The manifest in a folder of tiles. Raises FileFormatError if it is missing or damaged."""
    return decode_manifest(_bounded(folder / JSON, MOST_JSON_BYTES), _bounded(folder / BINARY, MOST_BINARY_BYTES))


def read_records(folder: Path, manifest: Manifest) -> UInt8[np.ndarray, "records size"]:
    """All records of a folder of tiles, mapped into memory. Raises FileFormatError for another number of bytes."""
    path, shape = folder / RECORDS, (len(manifest), manifest.record_bytes)
    try:
        if path.stat().st_size != shape[0] * shape[1]:
            raise FileFormatError(
                f"{path} has {path.stat().st_size} bytes, and the manifest says {shape[0] * shape[1]}; get it again"
            )
        return np.memmap(path, dtype=np.uint8, mode="r", shape=shape)
    except OSError as error:
        raise FileFormatError(f"cannot read {path}: {error.strerror or error}") from None


def _bounded(path: Path, most: int) -> bytes:
    """The bytes of a file. Raises FileFormatError if there are more than `most`, or it cannot be read."""
    if path.is_file() and path.stat().st_size > most:
        raise FileFormatError(f"{path} has {path.stat().st_size} bytes, more than a manifest has")
    return read_bytes(path)


@dataclass(frozen=True, kw_only=True)
class FolderCache:
    """Records that a device keeps in a folder, for their owner alone: they tell where it was. One folder a version."""

    folder: Path

    def get(self, version: str, index: int) -> bytes | None:
        """A kept record, or None. It may be damaged, and is proved anew whenever it is used."""
        path = self._path(version, index)
        return read_bytes(path) if path.is_file() else None

    def put(self, version: str, index: int, record: bytes) -> None:
        """Keep a record. Raises InputError if it cannot be written."""
        with replacing(self._path(version, index), suffix="", private=True) as temporary:
            temporary.write_bytes(record)

    def hint(self, digest: str) -> bytes | None:
        """A kept hint of one-server retrieval by its SHA-256 (hex), or None. It tells nothing of where the device was."""
        path = self._hint_path(digest)
        return read_bytes(path) if path.is_file() else None

    def put_hint(self, digest: str, hint: bytes) -> None:
        """Keep a hint. Raises InputError if it cannot be written."""
        with replacing(self._hint_path(digest), suffix="", private=True) as temporary:
            temporary.write_bytes(hint)

    def _hint_path(self, digest: str) -> Path:
        if len(digest) != 64 or not set(digest) <= set("0123456789abcdef"):
            raise InputError(f"{digest!r} is no digest of a hint")
        return self.folder / "hints" / f"{digest}.hint"

    def _path(self, version: str, index: int) -> Path:
        if len(version) != 64 or not set(version) <= set("0123456789abcdef"):
            raise InputError(f"{version!r} is no version of a map's tiles")
        return self.folder / version[:16] / f"{index}.tile"
