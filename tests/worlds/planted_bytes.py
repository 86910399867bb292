"""Bytes that are planted in a store, and the places that hold any of them: files, compressed ones too, and buckets."""

from __future__ import annotations

import hashlib
import urllib.request
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote, unquote
from xml.etree import ElementTree

import h5py

from veil.files.maps.folders import model_folders
from veil.places.pairs.blocks import KIND
from veil.places.pairs.store import MatchStore
from worlds.servers import arrays_of

# Bytes of a window, and where in a message or an array windows begin, as shares of its length.
WINDOW, SHARES = 32, tuple(0.02 + 0.96 * number / 15 for number in range(16))


def windows(data: bytes, *, shares: Iterable[float] = SHARES) -> list[bytes]:
    """Windows of some bytes; the search also detects bytes that are cut off anywhere after the first window."""
    starts = sorted({int(share * max(0, len(data) - WINDOW)) for share in shares})
    return [part for part in (data[start : start + WINDOW] for start in starts) if len(set(part)) >= WINDOW // 4]


def told_apart(messages: list[bytes]) -> list[list[bytes]]:
    """Windows of each message that no other one holds."""
    distinct = []
    for number, message in enumerate(messages):
        others = [other for place, other in enumerate(messages) if place != number]
        distinct.append([part for part in windows(message) if not any(part in other for other in others)])
        assert len(distinct[-1]) >= 3, "messages are too much alike"
    return distinct


def of_maps(folder: Path) -> dict[str, list[bytes]]:
    """By name of each image in the maps of a folder, windows of the arrays that the map holds of it, as they are stored."""
    windows_by_name: dict[str, list[bytes]] = {}
    for model in model_folders(folder):
        with h5py.File(model / "descriptors.h5") as file:
            for name, group in file.items():
                arrays: list[bytes] = []
                group.visititems(lambda _, item, arrays=arrays: arrays.append(_bytes_of(item)))
                windows_by_name.setdefault(name, []).extend(
                    part for data in arrays for part in windows(data, shares=(0.3, 0.7))
                )
    return windows_by_name


def _bytes_of(item: object) -> bytes:
    return item[()].tobytes() if isinstance(item, h5py.Dataset) and item.dtype.itemsize >= 2 else b""


def of_matches(folder: Path) -> dict[str, list[bytes]]:
    """By name of each image, the digests by which a store of matches knows it."""
    known = MatchStore(folder, KIND, read=False).names()
    return {name: [digest.encode() for digest in listed] for name, listed in known.items()}


@dataclass(frozen=True)
class Objects:
    """The objects of a bucket below a prefix, by requests that a test's server takes."""

    endpoint: str
    bucket: str
    prefix: str

    def all(self) -> dict[str, bytes]:
        """All objects by key, without the prefix, and uploads in parts that did not end."""
        uploads = self._ask("GET", "?uploads")
        assert b"<Key>" not in uploads, "an upload in parts is left"
        listing = ElementTree.fromstring(self._ask("GET", f"?list-type=2&prefix={quote(self.prefix)}/"))
        keys = [unquote(item.text or "") for item in listing.iter() if item.tag.endswith("Key")]
        return {key.removeprefix(f"{self.prefix}/"): self._ask("GET", f"/{quote(key)}") for key in keys}

    def have(self, objects: Mapping[str, bytes]) -> None:
        """Have these objects be all that there are."""
        present = self.all()
        for key in present.keys() - objects.keys():
            self._ask("DELETE", f"/{quote(self.prefix)}/{quote(key)}")
        for key, data in objects.items():
            if present.get(key) != data:
                self._ask("PUT", f"/{quote(self.prefix)}/{quote(key)}", data)

    def _ask(self, method: str, path: str, data: bytes | None = None) -> bytes:
        signed = {"Authorization": "AWS tests:of-which-nobody-asks", "Content-Type": "application/octet-stream"}
        request = urllib.request.Request(f"{self.endpoint}/{self.bucket}{path}", data=data, headers=signed, method=method)
        with urllib.request.urlopen(request) as answer:
            return answer.read()


def places_of(needles: Iterable[bytes], sources: Iterable[tuple[str, bytes]]) -> list[str]:
    """Names of what holds any of some bytes, sorted."""
    wanted = list(needles)
    return sorted({name for name, data in sources if any(part in data for part in wanted)})


def held_in(folder: Path, objects: Objects | None) -> Iterator[tuple[str, bytes]]:
    """All files of a folder, with what compressed ones hold, and all objects of a bucket."""
    for path in sorted(item for item in folder.rglob("*") if item.is_file()):
        name = path.relative_to(folder).as_posix()
        yield name, path.read_bytes()
        with suppress(OSError, KeyError, RuntimeError):  # one that a kill cut off
            if h5py.is_hdf5(path):
                yield f"{name} (arrays)", b"".join(arrays_of(path.read_bytes()))
    for key, data in (objects.all() if objects else {}).items():
        yield f"bucket:{key}", data


def digest(data: bytes) -> str:
    """SHA-256 in hex."""
    return hashlib.sha256(data).hexdigest()
