"""Bytes of a tile: whole numbers, little-endian, filled up to the size of all tiles of a map (docs/reference/tiles.md)."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal, get_args

import numpy as np
from jaxtyping import Int8, Int64, UInt8, UInt32

from veil.errors import InputError, WireError

MAGIC, VERSION = b"VEILTILE", 1
HEADER = struct.Struct("<8sHHHHIII4x3q")
# Number of bits of a point's place along each axis, and its largest distance from zero, in steps.
PLACE_BITS = 21
FARTHEST = 1 << 52
MOST_POINTS, MOST_ASPECTS = 1 << 20, 4
LevelBits = Literal[4, 8]
BITS = get_args(LevelBits)


@dataclass(frozen=True, kw_only=True, eq=False)
class Tile:
    """A piece of a public map, in the whole numbers that its manifest's `TileCoding` gives a meaning.

    - `index`: number of the tile in its map.
    - `origin`, int64 (3,): what places are relative to, in steps from the map's zero.
    - `places`, uint32 (points, 3): of the points, in steps from `origin`, each below 2^21.
    - `counts`, uint8 (points,): how many aspects each point has, 1 to 4; those of a point follow each other.
    - `directions`, uint8 (aspects, 2): from which direction the point is seen.
    - `sizes`, uint8 (aspects, 2): how large it is seen, in pixels and in diagonals of the picture.
    - `descriptors`, int8 (aspects, axes): levels of the compressed descriptor along each axis.
    """

    index: int
    origin: Int64[np.ndarray, "3"]
    places: UInt32[np.ndarray, "points 3"]
    counts: UInt8[np.ndarray, "points"]
    directions: UInt8[np.ndarray, "aspects 2"]
    sizes: UInt8[np.ndarray, "aspects 2"]
    descriptors: Int8[np.ndarray, "aspects axes"]

    def __len__(self) -> int:
        return len(self.places)


def point_bytes(axes: int, bits: int, aspects: int = 1) -> int:
    """Bytes of a point with a number of aspects."""
    return 9 + aspects * (4 + axes * bits // 8)


def encode_tile(tile: Tile, *, bits: int, size: int) -> bytes:
    """The bytes of a tile, `size` of them. Raises InputError if it does not fit."""
    axes = tile.descriptors.shape[1]
    head = HEADER.pack(MAGIC, VERSION, axes, bits, 0, tile.index, len(tile), len(tile.descriptors), *tile.origin.tolist())
    x, y, z = tile.places.astype(np.uint64).T
    packed = x | y << np.uint64(PLACE_BITS) | z << np.uint64(2 * PLACE_BITS)
    parts = [
        head,
        packed.astype("<u8").tobytes(),
        tile.counts.tobytes(),
        tile.directions.tobytes(),
        tile.sizes.tobytes(),
        _packed_levels(tile.descriptors, bits),
    ]
    data = b"".join(parts)
    if len(data) > size:
        raise InputError(f"a tile of {len(data)} bytes does not fit into {size}; give it fewer points")
    return data.ljust(size, b"\0")


def decode_tile(data: bytes, *, index: int, axes: int, bits: int) -> Tile:
    """The tile of some bytes, which may come from anyone: every number is checked before it is used.

    `index`, `axes` and `bits` are what the manifest says of it. Raises WireError for anything but the bytes that
    `encode_tile` makes.
    """
    if len(data) < HEADER.size or data[:8] != MAGIC:
        raise WireError("this is no tile: it is too short, or does not begin as one")
    _, version, own_axes, own_bits, zero, own_index, points, aspects, *origin = HEADER.unpack_from(data)
    if version != VERSION:
        raise WireError(f"a tile of version {version} cannot be read; update veil, or cut the map again")
    if (own_axes, own_bits, own_index, zero) != (axes, bits, index, 0) or any(data[28:32]):
        raise WireError(f"tile {own_index} of {own_axes} axes with {own_bits} bits is not tile {index} of the manifest")
    if not (points <= aspects <= MOST_ASPECTS * points and points <= MOST_POINTS):
        raise WireError(f"a tile cannot have {points} points with {aspects} aspects")
    if any(not -FARTHEST <= value <= FARTHEST for value in origin):
        raise WireError("a tile's origin is too far away")
    ends = np.cumsum([HEADER.size, 8 * points, points, 2 * aspects, 2 * aspects, aspects * axes * bits // 8]).tolist()
    if ends[-1] > len(data):
        raise WireError(f"the tile is truncated: {points} points take {ends[-1]} bytes, and it has {len(data)}")
    if data[ends[-1] :].strip(b"\0"):
        raise WireError("a tile's filling must be zero")
    packed, counts, directions, sizes, levels = (
        np.frombuffer(data[start:end], dtype=np.uint8) for start, end in pairwise(ends)
    )
    if points and (not 1 <= counts.min() <= counts.max() <= MOST_ASPECTS or int(counts.sum(dtype=np.int64)) != aspects):
        raise WireError("a tile's points must each have between one and four aspects, and all of them together")
    return Tile(
        index=index,
        origin=np.array(origin, dtype=np.int64),
        places=_places(packed.view("<u8").astype(np.uint64)),
        counts=counts,
        directions=directions.reshape(-1, 2),
        sizes=sizes.reshape(-1, 2),
        descriptors=_levels(levels, aspects, axes, bits),
    )


def _places(packed: np.ndarray) -> UInt32[np.ndarray, "points 3"]:
    if (packed >> np.uint64(3 * PLACE_BITS)).any():
        raise WireError("a tile's places have bits that must be zero")
    mask = np.uint64((1 << PLACE_BITS) - 1)
    columns = [packed >> np.uint64(axis * PLACE_BITS) & mask for axis in range(3)]
    return np.stack(columns, axis=1).astype(np.uint32)


def _packed_levels(levels: Int8[np.ndarray, "aspects axes"], bits: int) -> bytes:
    """The levels as bytes; of four bits each, two to a byte with the earlier axis in the lower half."""
    if bits == 8:
        return levels.tobytes()
    halves = levels.view(np.uint8) & 15
    return (halves[:, 0::2] | halves[:, 1::2] << 4).tobytes()


def _levels(packed: UInt8[np.ndarray, "_"], aspects: int, axes: int, bits: int) -> Int8[np.ndarray, "aspects axes"]:
    if bits == 8:
        levels = packed.view(np.int8).reshape(aspects, axes)
    else:
        halves = np.stack([packed & 15, packed >> 4], axis=1).reshape(aspects, axes)
        levels = (halves << 4).view(np.int8) >> 4
    if (levels == -(1 << (bits - 1))).any():
        raise WireError("a tile's descriptors hold a level that has no meaning")
    return levels
