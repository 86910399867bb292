"""Files named by what they hold: equal bytes are one, damage is seen, and no name leads elsewhere."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from veil.errors import FileFormatError, InputError
from veil.files.service.blobs import FolderBlobs


def test_bytes_come_back_by_their_digest(tmp_path: Path) -> None:
    """Inverse pair; the names are those of hashlib."""
    blobs = FolderBlobs(tmp_path / "blobs")
    values = [b"", b"one", b"two" * 1000]
    names = [blobs.put(value) for value in values]
    assert names == [hashlib.sha256(value).hexdigest() for value in values]
    assert [blobs.get(name) for name in names] == values
    assert blobs.put(b"one") == names[1]
    assert sorted(blobs.names()) == sorted(names)
    blobs.delete(names[1])
    blobs.delete(names[1])
    assert sorted(blobs.names()) == sorted([names[0], names[2]])
    assert all(path.stat().st_mode & 0o077 == 0 for path in (tmp_path / "blobs").glob("*/*"))


def test_damage_and_other_names_are_refused(tmp_path: Path) -> None:
    blobs = FolderBlobs(tmp_path)
    name = blobs.put(b"right")
    blobs.path(name).write_bytes(b"wrong")
    with pytest.raises(FileFormatError, match="damaged"):
        blobs.get(name)
    with pytest.raises(FileFormatError, match="cannot read"):
        blobs.get("0" * 64)
    for wrong in ("", "../../etc/passwd", name.upper(), name + "0", "g" * 64):
        with pytest.raises(InputError):
            blobs.path(wrong)
