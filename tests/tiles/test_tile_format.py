"""Bytes of tiles: an inverse pair, a golden head, and hostile bytes, which are refused before they cost anything."""

from __future__ import annotations

import struct
from dataclasses import replace

import numpy as np
import pytest

from veil.errors import InputError, WireError
from veil.tiles.tile_format import HEADER, Tile, decode_tile, encode_tile, point_bytes
from worlds import generator

AXES = 10


def made(name: str, points: int = 9, bits: int = 8) -> Tile:
    random = generator(name)
    counts = random.integers(1, 5, points).astype(np.uint8)
    aspects = int(counts.sum())
    most = (1 << (bits - 1)) - 1
    return Tile(
        index=5,
        origin=np.array([-7, 1 << 50, 0]),
        places=random.integers(0, 1 << 21, (points, 3)).astype(np.uint32),
        counts=counts,
        directions=random.integers(0, 256, (aspects, 2)).astype(np.uint8),
        sizes=random.integers(0, 256, (aspects, 2)).astype(np.uint8),
        descriptors=random.integers(-most, most + 1, (aspects, AXES)).astype(np.int8),
    )


def decoded(data: bytes, bits: int = 8) -> Tile:
    return decode_tile(data, index=5, axes=AXES, bits=bits)


@pytest.mark.parametrize("bits", [4, 8])
@pytest.mark.parametrize("points", [0, 1, 9])
def test_decoding_gives_back_every_number(bits: int, points: int) -> None:
    """Oracle: the inverse pair, and the size by its formula."""
    tile = made(f"tile {points}", points, bits)
    data = encode_tile(tile, bits=bits, size=4096)
    again = decoded(data, bits)
    for name in ("index", "origin", "places", "counts", "directions", "sizes", "descriptors"):
        np.testing.assert_array_equal(getattr(again, name), getattr(tile, name))
    used = HEADER.size + sum(point_bytes(AXES, bits, int(count)) for count in tile.counts)
    assert len(data) == 4096 and encode_tile(tile, bits=bits, size=used) == data[:used]
    with pytest.raises(InputError, match="does not fit"):
        encode_tile(tile, bits=bits, size=used - 1)


def test_the_bytes_are_those_of_the_format() -> None:
    """A golden value by the table of docs/reference/tiles.md: one point with one aspect."""
    tile = Tile(
        index=3,
        origin=np.array([1, -1, 2]),
        places=np.array([[1, 2, 3]], dtype=np.uint32),
        counts=np.array([1], dtype=np.uint8),
        directions=np.array([[10, 20]], dtype=np.uint8),
        sizes=np.array([[30, 40]], dtype=np.uint8),
        descriptors=np.array([[1, -1, 7, -7]], dtype=np.int8),
    )
    head = b"VEILTILE" + struct.pack("<4H3I4x3q", 1, 4, 4, 0, 3, 1, 1, 1, -1, 2)
    place = struct.pack("<Q", 1 + (2 << 21) + (3 << 42))
    assert encode_tile(tile, bits=4, size=80) == (head + place + bytes([1, 10, 20, 30, 40, 0xF1, 0x97])).ljust(80, b"\0")


def test_hostile_bytes_are_refused() -> None:
    tile = made("hostile")
    data = encode_tile(tile, bits=8, size=2000)
    wrong = {
        "begin": b"VEILTALE" + data[8:],
        "version": data[:8] + b"\2\0" + data[10:],
        "not tile 5": data[:16] + b"\6" + data[17:],
        "axes": data[:10] + b"\4\0" + data[12:],
        "truncated": data[: HEADER.size + 50],
        "too short": data[:20],
        "cannot have": data[:20] + b"\xff" * 8 + data[28:],
        "filling": data[:-1] + b"\1",
        "must be zero": data[: HEADER.size + 7] + b"\x80" + data[HEADER.size + 8 :],
        "origin": data[:32] + b"\xff" * 7 + b"\x7f" + data[40:],
    }
    for words, bad in wrong.items():
        with pytest.raises(WireError, match=words):
            decoded(bad)
    for counts in ([0] * 9, [5] * 9):
        with pytest.raises(WireError, match="aspects"):
            decoded(encode_tile(replace(tile, counts=np.array(counts, dtype=np.uint8)), bits=8, size=2000))
    for bits, level in ((8, -128), (4, -8)):
        one = made("one level", 3, bits)
        one.descriptors[0, 0] = level
        with pytest.raises(WireError, match="no meaning"):
            decoded(encode_tile(one, bits=bits, size=2000), bits)


def test_changed_bytes_raise_nothing_else() -> None:
    """Decoding changed bytes gives a tile of bounded size or a WireError: 1,500 random changes and cuts."""
    random = generator("changed bytes")
    data = encode_tile(made("changed"), bits=8, size=700)
    for _ in range(1500):
        bad = bytearray(data[: random.integers(0, len(data) + 1)] if random.random() < 0.3 else data)
        for place in random.integers(0, 60 if random.random() < 0.7 else max(len(bad), 1), random.integers(1, 5)):
            if place < len(bad):
                bad[place] = random.integers(0, 256)
        try:
            tile = decoded(bytes(bad))
        except WireError:
            continue
        assert len(tile) <= len(bad) and (tile.counts <= 4).all() and (tile.places < 1 << 21).all()
