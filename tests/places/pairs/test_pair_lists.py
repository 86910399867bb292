"""Lists of pairs as hloc writes them."""

from __future__ import annotations

from pathlib import Path

import pytest

from veil.errors import FileFormatError
from veil.places.pairs.store import read_pairs


def test_lists_are_read_as_hloc_writes_them(tmp_path: Path) -> None:
    """Golden value: hloc writes two names with a blank between."""
    pairs = [("a.jpg", "b.jpg"), ("day/c.jpg", "ü.jpg")]
    (tmp_path / "p.txt").write_text("a.jpg b.jpg\nday/c.jpg ü.jpg\n", encoding="utf-8")
    assert read_pairs(tmp_path / "p.txt") == pairs
    for encoding in ("utf-8-sig", "utf-16"):
        (tmp_path / "p.txt").write_text("a.jpg b.jpg\nday/c.jpg ü.jpg\n", encoding=encoding)
        assert read_pairs(tmp_path / "p.txt") == pairs
    (tmp_path / "q.txt").write_text("# a comment\n\n  a.jpg\tb.jpg \n")
    assert read_pairs(tmp_path / "q.txt") == pairs[:1]


@pytest.mark.parametrize("data", [b"a.jpg\n", b"a b c\n", b"\xff\xfe\n"])
def test_other_files_are_refused(tmp_path: Path, data: bytes) -> None:
    (tmp_path / "p.txt").write_bytes(data)
    with pytest.raises(FileFormatError, match=r"p\.txt"):
        read_pairs(tmp_path / "p.txt")
    with pytest.raises(FileFormatError):
        read_pairs(tmp_path / "missing.txt")
