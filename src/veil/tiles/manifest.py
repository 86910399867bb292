"""The manifest of a map's tiles: what every device has of the map before it asks for a tile, and everybody else, too.

It is two files: JSON for what is small, and a binary part for arrays (docs/reference/tiles.md). The version is the SHA-256 of
both; as the tiles' Merkle root is in it, a version stands for all bytes of a map's tiles.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float64

from veil.codebooks.compression import Pca
from veil.errors import FileFormatError, Remedy, VeilError
from veil.geometry.georeference import Georeference, place_facts, place_of
from veil.space import Space
from veil.tiles.coding import TileCoding
from veil.tiles.merkle import HASH_BYTES, depth_of
from veil.tiles.sketches import Sketches
from veil.tiles.tile_format import BITS, HEADER

FORMAT = 1
# Cells lie so far from the map's zero at most, in its units.
FARTHEST = 1e100
MOST_TILES, MOST_TILE_BYTES, MOST_WORDS = 1 << 20, 1 << 28, 1 << 16
# The JSON part holds some twenty short facts, and the reference of a place.
MOST_JSON_BYTES = 4096


@dataclass(frozen=True, kw_only=True, eq=False)
class Manifest:
    """Public facts of a map's tiles.

    - `coding`: what the numbers in the tiles mean.
    - `low`, `high`, float64 (tiles, 3): corners of the box around each cell's own cameras, in units of the map.
    - `sketches`: from which a device chooses tiles without asking anyone.
    - `tile_bytes`: size of every tile, without its proof.
    - `asked`: number of tiles that every device asks for in every localization, so that the number says nothing.
    - `root`, 32 bytes: of the Merkle tree over the tiles.
    - `place`: where on Earth the map is, or None.
    """

    coding: TileCoding
    low: Float64[np.ndarray, "tiles 3"]
    high: Float64[np.ndarray, "tiles 3"]
    sketches: Sketches
    tile_bytes: int
    asked: int
    root: bytes
    place: Georeference | None = None

    def __len__(self) -> int:
        return len(self.low)

    @property
    def record_bytes(self) -> int:
        """Size of what is fetched: a tile and its proof."""
        return record_bytes(self.tile_bytes, len(self))

    @property
    def version(self) -> str:
        """SHA-256 (hex) of the manifest's bytes, which stands for those of all tiles, too."""
        return encode_manifest(self)[2]


def record_bytes(tile_bytes: int, tiles: int) -> int:
    """Size of one of a number of tiles with its proof."""
    return tile_bytes + HASH_BYTES * depth_of(tiles)


def most_manifest_bytes(tiles: int, *, dim: int, axes: int, words: int) -> int:
    """Largest size of both parts of a manifest, for descriptors of `dim` along `axes` and sketches of `words`."""
    return MOST_JSON_BYTES + sum(math.prod(shape) * np.dtype(kind).itemsize for shape, kind in _layout(tiles, dim, axes, words))


def _layout(tiles: int, dim: int, axes: int, words: int) -> list[tuple[tuple[int, ...], str]]:
    """Shape and type of the arrays of the binary part in their order."""
    box, principal = (tiles, 3), (axes, dim)
    shapes = box, box, (dim,), principal, (axes,), (words, axes), (tiles, words)
    return list(zip(shapes, ("<f8", "<f8", "<f4", "<f4", "<f4", "i1", "u1"), strict=True))


def encode_manifest(manifest: Manifest) -> tuple[bytes, bytes, str]:
    """The JSON and the binary part of a manifest, and its version."""
    coding, sketches = manifest.coding, manifest.sketches
    space = coding.raw_space
    layout = _layout(len(manifest), space.dim, coding.axes, len(sketches.words))
    arrays = manifest.low, manifest.high, coding.pca.mean, coding.pca.axes, coding.scales, sketches.words, sketches.counts
    binary = b"".join(
        np.ascontiguousarray(array, dtype=kind).tobytes() for array, (_, kind) in zip(arrays, layout, strict=True)
    )
    facts: dict[str, Any] = {
        "veil_tiles": FORMAT,
        "tiles": len(manifest),
        "tile_bytes": manifest.tile_bytes,
        "record_bytes": manifest.record_bytes,
        "asked": manifest.asked,
        "merkle_root": manifest.root.hex(),
        "descriptor": {"kind": space.descriptor, "normalization": space.normalization, "dim": space.dim},
        "axes": coding.axes,
        "bits": coding.bits,
        "step": coding.step,
        "max_position_error": coding.max_position_error,
        "least_pixels": coding.least_pixels,
        "least_frames": coding.least_frames,
        "words": len(sketches.words),
        "place": None if manifest.place is None else place_facts(manifest.place),
        "binary_sha256": hashlib.sha256(binary).hexdigest(),
    }
    version = _version(facts)
    return json.dumps({**facts, "version": version}, indent=2).encode() + b"\n", binary, version


def _version(facts: Mapping[str, Any]) -> str:
    """SHA-256 (hex) of a manifest's facts, in one order and spelling whatever the file looks like."""
    text = json.dumps(facts, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(b"veil tiles\0" + text.encode()).hexdigest()


def decode_manifest(text: bytes, binary: bytes) -> Manifest:
    """The manifest of its two parts, which may come from anyone.

    Raises FileFormatError if a part is damaged or of another version, or both do not belong together.
    """
    try:
        facts = json.loads(text)
        if not isinstance(facts, dict) or facts.get("veil_tiles") != FORMAT:
            raise ValueError("it is of another version, or of something else")
        version = facts.pop("version")
        if version != _version(facts) or facts["binary_sha256"] != hashlib.sha256(binary).hexdigest():
            raise ValueError("its parts are not those that were written together")
        made = _manifest(facts, binary)
    except (KeyError, TypeError, ValueError, OverflowError, RecursionError, VeilError) as error:
        raise FileFormatError(f"this is no manifest of tiles ({error})", remedy=Remedy("renew", "tiles")) from None
    return made


def _manifest(facts: Mapping[str, Any], binary: bytes) -> Manifest:
    count, words, axes = (
        _number(facts, key, most) for key, most in (("tiles", MOST_TILES), ("words", MOST_WORDS), ("axes", 4095))
    )
    tile_bytes = _number(facts, "tile_bytes", MOST_TILE_BYTES)
    kept = facts["descriptor"]
    space = Space(descriptor=kept["kind"], normalization=kept["normalization"], dim=_number(kept, "dim", 4096))
    bits = _number(facts, "bits", 8)
    if bits not in BITS or axes >= space.dim or axes * bits % 8 or tile_bytes < HEADER.size:
        raise ValueError(f"{axes} axes of {bits} bits in {tile_bytes} bytes cannot be")
    low, high, mean, principal, scales, centers, counts = _read(binary, _layout(count, space.dim, axes, words))
    if not ((low > -FARTHEST).all() and (low <= high).all() and (high < FARTHEST).all()):  # also refuses NaN
        raise ValueError("a cell is no box")
    root = bytes.fromhex(facts["merkle_root"])
    if len(root) != HASH_BYTES:
        raise ValueError("the Merkle root is no SHA-256")
    made = Manifest(
        coding=TileCoding(
            raw_space=space,
            pca=Pca(mean=mean, axes=principal),
            scales=scales,
            bits=bits,
            step=float(facts["step"]),
            least_pixels=float(facts["least_pixels"]),
            least_frames=float(facts["least_frames"]),
        ),
        low=low,
        high=high,
        sketches=Sketches(words=centers, counts=counts),
        tile_bytes=tile_bytes,
        asked=_number(facts, "asked", count),
        root=root,
        place=None if facts["place"] is None else place_of(facts["place"]),
    )
    if facts["record_bytes"] != made.record_bytes:
        raise ValueError("the size of its records is wrong")
    return made


def _number(facts: Mapping[str, Any], key: str, most: int) -> int:
    """The integer of a key, between 1 and `most`."""
    value = facts[key]
    if not isinstance(value, int) or isinstance(value, bool) or not 1 <= value <= most:
        raise ValueError(f"{key} must be an integer from 1 to {most}, got {value!r}")
    return value


def _read(binary: bytes, layout: list[tuple[tuple[int, ...], str]]) -> list[np.ndarray]:
    """The arrays of the binary part, as `_layout` names them."""
    sizes = [math.prod(shape) * np.dtype(kind).itemsize for shape, kind in layout]
    if sum(sizes) != len(binary):
        raise ValueError(f"its binary part has {len(binary)} bytes and must have {sum(sizes)}")
    arrays, start = [], 0
    for (shape, kind), size in zip(layout, sizes, strict=True):
        array = np.frombuffer(binary[start : start + size], dtype=kind).reshape(shape)
        arrays.append(array.astype(array.dtype.newbyteorder("=")))
        start += size
    return arrays
