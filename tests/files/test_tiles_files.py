"""Folders of tiles: an inverse pair, written at once or not at all, and damage that is noticed."""

from __future__ import annotations

import stat
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from veil.errors import FileFormatError, InputError
from veil.files import tiles
from veil.files.tiles import FolderCache, holds_tiles, read_manifest, read_records, write_tiles
from veil.tiles.cutting import CutMap, CutOptions, cut
from worlds.tile_streets import street


@cache
def made() -> CutMap:
    return cut(street("tile files", cameras=8).scene, CutOptions(tile_bytes=9000, words=8))


def test_tiles_come_back_as_they_were_written(tmp_path: Path) -> None:
    folder = tmp_path / "new" / "tiles"
    assert not holds_tiles(folder)
    write_tiles(folder, made())
    again = read_manifest(folder)
    assert holds_tiles(folder) and again.version == made().manifest.version
    np.testing.assert_array_equal(read_records(folder, again), made().records)
    assert sorted(path.name for path in folder.parent.iterdir()) == ["tiles"]
    with pytest.raises(InputError, match="not empty"):
        write_tiles(folder, made())


def test_a_failure_leaves_nothing_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The disk is full at the last file: neither the folder nor half of it is there."""

    def full(_: int) -> None:
        if any(tmp_path.rglob(tiles.RECORDS)):
            raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(InputError, match="No space left"):
        write_tiles(tmp_path / "tiles", made())
    assert list(tmp_path.iterdir()) == []


def test_damage_is_noticed(tmp_path: Path) -> None:
    folder = tmp_path / "tiles"
    write_tiles(folder, made())
    records = (folder / tiles.RECORDS).read_bytes()
    (folder / tiles.RECORDS).write_bytes(records[:-1])
    with pytest.raises(FileFormatError, match="get it again"):
        read_records(folder, made().manifest)
    (folder / tiles.RECORDS).unlink()
    with pytest.raises(FileFormatError, match="cannot read"):
        read_records(folder, made().manifest)
    binary = (folder / tiles.BINARY).read_bytes()
    (folder / tiles.BINARY).write_bytes(binary[:-1] + b"\xff")
    with pytest.raises(FileFormatError, match="not those that were written together"):
        read_manifest(folder)
    (folder / tiles.JSON).write_bytes(b" " * (tiles.MOST_JSON_BYTES + 1))
    with pytest.raises(FileFormatError, match="more than a manifest has"):
        read_manifest(folder)
    with pytest.raises(FileFormatError):
        read_manifest(tmp_path / "nowhere")


def test_what_a_device_keeps_is_for_its_owner_alone(tmp_path: Path) -> None:
    cache, version = FolderCache(folder=tmp_path / "kept"), "ab" * 32
    assert cache.get(version, 3) is None
    cache.put(version, 3, b"record")
    assert cache.get(version, 3) == b"record" and cache.get("cd" * 32, 3) is None and cache.get(version, 4) is None
    (path,) = (path for path in (tmp_path / "kept").rglob("*") if path.is_file())
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    for name in ("../../etc", "AB" * 32, ""):
        with pytest.raises(InputError, match="no version"):
            cache.put(name, 3, b"record")
