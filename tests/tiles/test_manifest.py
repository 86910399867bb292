"""The manifest: an inverse pair, a version that stands for every byte, and hostile ones."""

from __future__ import annotations

import hashlib
import json
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest

from veil.errors import FileFormatError
from veil.geometry.earth import EarthFrame
from veil.geometry.georeference import Georeference
from veil.geometry.similarity import Similarity
from veil.tiles.cutting import CutOptions, cut
from veil.tiles.manifest import Manifest, decode_manifest, encode_manifest
from worlds.tile_streets import street

PLACE = Georeference(
    frame=EarthFrame(latitude_deg=55.7, longitude_deg=13.2, height_m=80.0),
    enu_from_map=Similarity(scale=2.0, rotation=np.eye(3), translation=np.array([1.0, 2.0, 3.0])),
    median_error_m=0.5,
    largest_error_m=1.0,
    agreeing=np.ones(4, dtype=bool),
    uses_gravity=False,
)


@cache
def manifest() -> Manifest:
    return cut(street("manifest", cameras=8).scene, CutOptions(tile_bytes=20_000, words=16), place=PLACE).manifest


def test_decoding_gives_back_the_manifest() -> None:
    text, binary, version = encode_manifest(manifest())
    again = decode_manifest(text, binary)
    assert encode_manifest(again) == (text, binary, version) and again.version == version
    assert again.place is not None and again.place.frame == PLACE.frame
    np.testing.assert_array_equal(again.sketches.counts, manifest().sketches.counts)
    np.testing.assert_array_equal(again.coding.pca.axes, manifest().coding.pca.axes)


def test_the_version_is_what_the_format_says() -> None:
    """Oracle: the formula of docs/reference/tiles.md over the JSON as anyone would read it."""
    text, binary, version = encode_manifest(manifest())
    facts = json.loads(text)
    assert facts.pop("version") == version and facts["binary_sha256"] == hashlib.sha256(binary).hexdigest()
    spelled = json.dumps(facts, sort_keys=True, separators=(",", ":")).encode()
    assert hashlib.sha256(b"veil tiles\0" + spelled).hexdigest() == version


def test_whatever_changes_is_another_version() -> None:
    made = manifest()
    counts = made.sketches.counts.copy()
    counts[0, 0] ^= 1
    others = [
        replace(made, root=bytes(32)),
        replace(made, asked=made.asked - 1),
        replace(made, place=None),
        replace(made, low=made.low - 1e-9),
        replace(made, sketches=replace(made.sketches, counts=counts)),
        replace(made, coding=replace(made.coding, step=made.coding.step * (1 + 1e-15))),
    ]
    assert len({made.version, *(other.version for other in others)}) == 1 + len(others)


def signed(facts: dict[str, Any], binary: bytes) -> tuple[bytes, bytes]:
    """A manifest whose sums are right, whatever it says."""
    facts = {**facts, "binary_sha256": hashlib.sha256(binary).hexdigest()}
    facts.pop("version", None)
    spelled = json.dumps(facts, sort_keys=True, separators=(",", ":")).encode()
    return json.dumps({**facts, "version": hashlib.sha256(b"veil tiles\0" + spelled).hexdigest()}).encode(), binary


@pytest.mark.parametrize(
    "change",
    [
        {"veil_tiles": 2},
        {"tiles": 0},
        {"tiles": 10**12},
        {"tiles": True},
        {"tiles": 2.0},
        {"axes": 128},
        {"axes": 63},
        {"bits": 7},
        {"words": -1},
        {"tile_bytes": 10},
        {"asked": 10**6},
        {"record_bytes": 1},
        {"merkle_root": "ab"},
        {"merkle_root": 7},
        {"step": 0},
        {"step": None},
        {"descriptor": {"kind": "sift", "normalization": "L3", "dim": 128}},
        {"descriptor": []},
        {"place": {"place": 1}},
    ],
)
def test_numbers_that_cannot_be_are_refused(change: dict[str, Any]) -> None:
    text, binary, _ = encode_manifest(manifest())
    with pytest.raises(FileFormatError, match="no manifest of tiles"):
        decode_manifest(*signed({**json.loads(text), **change}, binary))


def test_damaged_parts_are_refused() -> None:
    text, binary, _ = encode_manifest(manifest())
    nan = np.float64(np.nan).tobytes() + binary[8:]
    for bad in (
        (text[:-5], binary),
        (text.replace(b'"asked": 4', b'"asked": 3'), binary),
        (text, binary[:-1]),
        (text, b"\1" + binary[1:]),
        (b"[" * 100_000, binary),
        (b"\xff", binary),
        (b"[]", binary),
        signed(json.loads(text), binary[:-1]),
        signed(json.loads(text), nan),
        signed({key: value for key, value in json.loads(text).items() if key != "words"}, binary),
    ):
        with pytest.raises(FileFormatError):
            decode_manifest(*bad)
    decode_manifest(*signed(json.loads(text), binary))
