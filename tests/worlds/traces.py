"""Prints that would betray a contribution, byte by byte, and a search for all of them in one pass.

A map keeps a form as it was decoded, and `read_map` returns its canonical form, which differs in last digits. So the arrays are
taken from the map's file as they are stored, every row of them; what veil computes from them is looked for beside.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import h5py
import numpy as np

from veil.files.maps.format import read_map
from veil.forms import Points, Subsets
from veil.scene import MappedImage

# Bytes of a print of a row; a row with fewer different bytes stands in any file.
WIDTH, LEAST_DIFFERENT = 24, 6
# Bits of the table that says where a print may begin.
_BITS = 22
_FACTOR = np.uint64(0x9E3779B97F4A7C15)


@dataclass(frozen=True)
class Traces:
    """Prints of a contribution by what they are of; `stored` of the kinds are those that a map's files hold as they are."""

    prints: dict[str, list[bytes]]
    stored: frozenset[str]

    def counts(self, sources: Iterable[tuple[str, bytes]]) -> dict[str, int]:
        """Number of prints of each kind that stand in some source; kinds without any are left out."""
        every = {part for parts in self.prints.values() for part in parts}
        held: set[bytes] = set()
        for _, data in sources:
            held |= held_in(data, every - held)
        counts = {what: len(held.intersection(parts)) for what, parts in self.prints.items()}
        return {what: count for what, count in counts.items() if count}

    def missed(self, sources: Iterable[tuple[str, bytes]]) -> dict[str, int]:
        """Number of stored prints of each kind that no source holds: none before a deletion."""
        counts = self.counts(sources)
        missing = {what: len(set(self.prints[what])) - counts.get(what, 0) for what in self.stored}
        return {what: count for what, count in missing.items() if count}


def held_in(data: bytes, prints: Collection[bytes]) -> set[bytes]:
    """Those prints, of eight bytes or more, that stand in some data, at any place."""
    beginning: dict[bytes, list[bytes]] = {}
    for part in prints:
        assert len(part) >= 8, "fewer bytes stand in a long file by chance"
        beginning.setdefault(part[:8], []).append(part)
    table = np.zeros(1 << _BITS, dtype=bool)
    table[_hashed(np.frombuffer(b"".join(beginning), dtype="<u8"))] = True
    held: set[bytes] = set()
    for shift in range(min(8, max(0, len(data) - 7))):
        words = np.frombuffer(data, dtype="<u8", offset=shift, count=(len(data) - shift) // 8)
        for place in (8 * np.flatnonzero(table[_hashed(words)]) + shift).tolist():
            held.update(part for part in beginning.get(data[place : place + 8], ()) if data.startswith(part, place))
    return held


def _hashed(words: np.ndarray) -> np.ndarray:
    return (words * _FACTOR) >> np.uint64(64 - _BITS)


def windows(data: bytes, *, first: int = 150, count: int = 400) -> list[bytes]:
    """Windows of a message behind its head, evenly spread."""
    return [data[place : place + WIDTH] for place in np.linspace(first, len(data) - WIDTH, count).astype(int).tolist()]


def traces_of(folder: Path, name: str, message: bytes | None = None) -> Traces:
    """Traces of an image of a map, and of the message that it came from."""
    prints: dict[str, list[bytes]] = {"name": [name.encode()], "name in UTF-16": [name.encode("utf-16-le")]}
    with h5py.File(folder / "descriptors.h5") as file:
        file[name].visititems(lambda what, item: prints.update(_rows_of(f"stored {what}", item)))
    stored = {what for what, parts in prints.items() if what.startswith("stored") and parts}
    if message is not None:
        prints["message"] = windows(message)
        stored.add("message")
    image = read_map(folder).images[name]
    for what, values, types in _values(image):
        for dtype in types.split():
            prints[f"{what} as {dtype}"] = list(_rows(values.astype(dtype)))
    return Traces(prints=prints, stored=frozenset({"name", "keypoints as f8", *stored}))


def _rows_of(what: str, item: object) -> dict[str, list[bytes]]:
    return {what: list(_rows(item[()]))} if isinstance(item, h5py.Dataset) and item.ndim > 1 else {}


def _rows(values: np.ndarray) -> Iterator[bytes]:
    """The beginning of each row."""
    for row in values.reshape(-1, values.shape[-1]):
        part = row.tobytes()[:WIDTH]
        if len(part) >= 8 and len(set(part)) >= min(LEAST_DIFFERENT, len(part) // 2):
            yield part


def _values(image: MappedImage) -> Iterator[tuple[str, np.ndarray, str]]:
    """The arrays that veil computes from an image, with the types in which it may store them."""
    form = image.form
    if isinstance(form, Points):
        yield "descriptors", form.vectors, "f2 f4 f8"
    elif isinstance(form, Subsets):
        yield "words", form.ids, "u4 i8"
    else:
        yield "canonical origins", form.origin, "f2 f4 f8"
        yield "canonical bases", form.basis, "f2 f4 f8"
    yield "keypoints", image.keypoints, "f4 f8"
    yield "position of the camera", image.cam_from_world.translation[None], "f8"
    if image.lines is not None:
        yield "lines", image.lines.coefficients, "f4 f8"
        if image.lines.gravity is not None:
            yield "gravity", image.lines.gravity[None], "f8"
