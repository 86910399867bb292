"""Lists of pairs as hloc writes them."""

from __future__ import annotations

from pathlib import Path

import pytest

from veil.errors import FileFormatError, InputError
from veil.places.pairs.store import read_pairs, write_pairs


def test_lists_are_read_as_they_were_written(tmp_path: Path) -> None:
    """Inverse pair, and a golden value: hloc writes two names with a blank between."""
    pairs = [("a.jpg", "b.jpg"), ("day/c.jpg", "ü.jpg")]
    write_pairs(tmp_path / "p.txt", pairs)
    assert (tmp_path / "p.txt").read_text() == "a.jpg b.jpg\nday/c.jpg ü.jpg\n" and read_pairs(tmp_path / "p.txt") == pairs
    (tmp_path / "q.txt").write_text("# a comment\n\n  a.jpg\tb.jpg \n")
    assert read_pairs(tmp_path / "q.txt") == pairs[:1]


@pytest.mark.parametrize("data", [b"a.jpg\n", b"a b c\n", b"\xff\xfe\n"])
def test_other_files_are_refused(tmp_path: Path, data: bytes) -> None:
    (tmp_path / "p.txt").write_bytes(data)
    with pytest.raises(FileFormatError, match=r"p\.txt"):
        read_pairs(tmp_path / "p.txt")
    with pytest.raises(FileFormatError):
        read_pairs(tmp_path / "missing.txt")


def test_names_with_blanks_cannot_be_listed(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="blanks"):
        write_pairs(tmp_path / "p.txt", [("a b.jpg", "c.jpg")])
    assert not (tmp_path / "p.txt").exists()
