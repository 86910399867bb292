"""Half-written files that kills leave: one kind of name, deleted by their owner, and no other file counts as one."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from veil.errors import CannotWrite
from veil.files import atomic
from veil.files.atomic import clear_leftovers, leftovers, remove, replacing, replacing_folder, write_bytes
from veil.files.service.served_tiles import FACTS, MATRIX, _locked, clear_served

OTHERS = (
    ".bashrc",
    "photo.jpg",
    ".photo.jpg.part",
    ".rsync.a1b2c3",
    ".file.h5.0000aaaa.part",
    ".x.ABCDEFGH.veil.part",
    "a.abcd1234.veil.part",
)


def planted(folder: Path, *, name: str = "file.h5") -> list[Path]:
    """Leftovers of a killed process: a file with its journal, and a folder."""
    paths = [folder / f".{name}.abcd123_.veil.part.h5", folder / f".{name}.abcd123_.veil.part.h5-journal"]
    paths += [folder / f".{name}.0000aaaa.veil.part"]
    for path in paths[:2]:
        path.write_bytes(b"planted")
    paths[2].mkdir()
    (paths[2] / "inside").write_bytes(b"planted")
    return sorted(paths)


def test_leftovers_are_known_by_name_and_age(tmp_path: Path) -> None:
    """Oracle: the names that were planted, those of other files and folders, and the ages that were set."""
    for name in OTHERS:
        (tmp_path / name).touch()
    mine, other = planted(tmp_path), planted(tmp_path, name="other")
    assert leftovers(tmp_path) == [], "somebody may be writing them"
    assert leftovers(tmp_path, older_than_s=0.0) == sorted(mine + other)
    assert leftovers(tmp_path, name="file.h5", older_than_s=0.0) == mine
    past = time.time() - 2 * atomic.STALE_S
    for path in mine:
        os.utime(path, (past, past))
    assert leftovers(tmp_path) == mine
    assert clear_leftovers(tmp_path) == len(mine)
    assert leftovers(tmp_path, older_than_s=0.0) == other
    assert all((tmp_path / name).exists() for name in OTHERS)
    assert leftovers(tmp_path / "missing") == []


@pytest.mark.parametrize("suffix", [None, ""])
def test_what_is_being_written_is_a_leftover_until_it_is_whole(tmp_path: Path, suffix: str | None) -> None:
    with replacing(tmp_path / "file.h5", suffix=suffix) as temporary:
        assert leftovers(tmp_path, name="file.h5", older_than_s=0.0) == [temporary]
        assert temporary.suffix == (".h5" if suffix is None else ".part")
        temporary.write_bytes(b"whole")
    assert leftovers(tmp_path, older_than_s=0.0) == [] and (tmp_path / "file.h5").read_bytes() == b"whole"
    with replacing_folder(tmp_path / "folder") as staging:
        assert leftovers(tmp_path, older_than_s=0.0) == [staging] and staging.stat().st_mode & 0o777 == 0o700
        staging.rename(tmp_path / "folder")
    assert leftovers(tmp_path, older_than_s=0.0) == [] and (tmp_path / "folder").is_dir()


def test_a_process_clears_what_was_abandoned_where_it_first_writes(tmp_path: Path) -> None:
    """An hour old, and veil's by name: a file of another program with a similar name stays."""
    mine = planted(tmp_path)
    past = time.time() - 2 * 3600
    for path in mine:
        os.utime(path, (past, past))
    young, others = tmp_path / ".file.h5.bbbbbbbb.veil.part", tmp_path / ".file.h5.0000aaaa.part"
    young.touch()
    others.touch()
    os.utime(others, (past, past))
    write_bytes(tmp_path / "anything", b"")
    assert sorted(tmp_path.iterdir()) == sorted([tmp_path / "anything", others, young])


def test_a_folder_is_whole_or_gone_and_what_cannot_be_deleted_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "folder"
    (folder / "deep").mkdir(parents=True)
    seen = []
    monkeypatch.setattr(atomic.shutil, "rmtree", lambda path: seen.append((Path(path), folder.exists())))
    remove(folder)
    (moved, still_there) = seen[0]
    assert not still_there and leftovers(tmp_path, name="folder", older_than_s=0.0) == [moved]
    remove(folder)
    remove(tmp_path / "missing")

    def refused(path: Path) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(atomic.shutil, "rmtree", refused)
    with pytest.raises(CannotWrite, match="Operation not permitted"):
        remove(moved)


def test_what_kills_left_of_served_tiles_goes_unless_somebody_adds_some(tmp_path: Path) -> None:
    """Beside the names, beside versions, within a version, and halves of what the exit by one server needs."""
    version = tmp_path / "station" / ("0" * 64)
    whole = tmp_path / "station" / ("1" * 64)
    for folder in (version, whole):
        folder.mkdir(parents=True)
        (folder / MATRIX).write_bytes(b"matrix")
    (whole / FACTS).write_text("{}")
    left = [folder / ".x.abcd1234.veil.part" for folder in (tmp_path, tmp_path / "station", version)]
    for path in left:
        path.mkdir()
        os.utime(path, (0.0, 0.0))
    with _locked(tmp_path / "station"):
        clear_served(tmp_path)
        assert [path.exists() for path in left] == [False, True, True] and (version / MATRIX).exists()
    clear_served(tmp_path)
    assert [path.exists() for path in left] == [False, False, False]
    assert not (version / MATRIX).exists() and (whole / MATRIX).exists()
