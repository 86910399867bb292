"""The client's secret and ledger: made once, kept close, and one winner among conflicting releases."""

from __future__ import annotations

import multiprocessing
import os
import sqlite3
import stat
import threading
from dataclasses import replace
from pathlib import Path

import pytest

from veil.errors import FileFormatError, InputError, ReleaseRefused
from veil.files.device import ledger as ledger_file
from veil.files.device.home import home
from veil.files.device.ledger import Ledger, read_ledger
from veil.files.device.secret import load_secret
from veil.randomness import KEY_BYTES
from worlds import generator
from worlds.edges import flipped, other_database, outcome, truncated
from worlds.ledgers import ENTRY as ONE

OTHER = replace(ONE, parameters="paper m=8", message_digest="cc" * 32)


def in_threads(work, count: int) -> list:
    """Results of `work(index)` in threads that start at one moment."""
    barrier, results = threading.Barrier(count), [None] * count

    def one(index: int) -> None:
        barrier.wait()
        results[index] = work(index)

    threads = [threading.Thread(target=one, args=(index,)) for index in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return results


def test_eight_threads_make_one_secret(tmp_path: Path) -> None:
    """In ten fresh folders: whoever comes second waits for the first's bytes and gets them."""
    for attempt in range(10):
        folder = tmp_path / str(attempt)
        keys = {secret.key for secret in in_threads(lambda _, folder=folder: load_secret(folder), 8)}
        assert keys == {(folder / "secret").read_bytes()}
    assert len({(tmp_path / str(attempt) / "secret").read_bytes() for attempt in range(10)}) == 10


def test_one_secret_where_there_are_no_hard_links(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(source: object, target: object) -> None:
        raise PermissionError("this file system has no hard links")

    monkeypatch.setattr(os, "link", refused)
    keys = {secret.key for secret in in_threads(lambda _: load_secret(tmp_path), 8)}
    assert keys == {(tmp_path / "secret").read_bytes()} and len(next(iter(keys))) == KEY_BYTES
    assert [path.name for path in tmp_path.iterdir()] == ["secret"]


def test_without_entropy_there_is_no_half_secret(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An empty file in its place would be refused for ever after."""
    with monkeypatch.context() as patch:
        patch.setattr(os, "urandom", lambda count: b"")
        with pytest.raises(ReleaseRefused, match="gave 0 of 32 random bytes"):
            load_secret(tmp_path / "home")
    assert not (tmp_path / "home").exists()
    assert load_secret(tmp_path / "home").key == (tmp_path / "home" / "secret").read_bytes()


@pytest.mark.skipif(os.name != "posix", reason="file modes are POSIX")
@pytest.mark.parametrize("mask", [0o000, 0o022, 0o077])
def test_the_secret_is_for_its_owner_whatever_the_umask(tmp_path: Path, mask: int) -> None:
    before = os.umask(mask)
    try:
        load_secret(tmp_path / "home")
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "home" / "secret").stat().st_mode) == 0o600
    assert stat.S_IMODE((tmp_path / "home").stat().st_mode) == 0o700


@pytest.mark.slow
@pytest.mark.parametrize("length", [1, KEY_BYTES - 1, KEY_BYTES + 1, 0])
def test_a_damaged_secret_is_refused_and_kept(tmp_path: Path, length: int) -> None:
    """A new secret in its place would release every image a second time."""
    (tmp_path / "secret").write_bytes(b"k" * length)
    with pytest.raises(FileFormatError, match=r"32 bytes, got .*restore it from a backup"):
        load_secret(tmp_path)
    assert (tmp_path / "secret").read_bytes() == b"k" * length


def test_homes_that_cannot_be(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    (tmp_path / "folder" / "secret").mkdir(parents=True)
    with pytest.raises(InputError, match="choose another place"):
        load_secret(tmp_path / "file" / "home")
    with pytest.raises(InputError, match="choose another place"):
        Ledger(tmp_path / "file" / "home")
    with pytest.raises(FileFormatError, match="cannot read"):
        load_secret(tmp_path / "folder")


def test_the_home_is_where_the_environment_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VEIL_HOME", str(tmp_path / "there"))
    assert home() == tmp_path / "there"
    monkeypatch.delenv("VEIL_HOME")
    assert home().name == "veil"


def test_a_refused_release_leaves_no_trace(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path)
    ledger.record(ONE)
    for second in (OTHER, replace(OTHER, parameters=ONE.parameters, fresh=True)):
        with pytest.raises(ReleaseRefused, match=r"x\.jpg was already released.*paper m=4"):
            ledger.record(second)
    (entry,) = Ledger(tmp_path).entries()
    assert replace(entry, released_at=0.0) == ONE and entry.released_at > 1.7e9
    assert ledger.record(OTHER, allow_second=True)
    assert not ledger.record(OTHER)  # it stands in the ledger now, so repeating it reveals nothing new
    assert [e.parameters for e in ledger.entries()] == [ONE.parameters, OTHER.parameters]


def _compete(folder: str, number: int, barrier, queue) -> None:
    ledger, won = Ledger(Path(folder)), []
    for image in range(40):
        barrier.wait()
        mine = replace(ONE, image_digest=f"{image:064x}", parameters=f"m={number}", message_digest=f"{image} {number}")
        try:
            ledger.record(mine)
            won.append(image)
        except ReleaseRefused:
            pass
    queue.put((number, won))


@pytest.mark.slow
def test_among_four_processes_one_wins_each_image(tmp_path: Path) -> None:
    """Check and entry are one transaction: without it two could both find the ledger empty and both release."""
    context = multiprocessing.get_context("spawn")
    queue, barrier = context.Queue(), context.Barrier(4, timeout=60)
    processes = [context.Process(target=_compete, args=(str(tmp_path), number, barrier, queue)) for number in range(4)]
    for process in processes:
        process.start()
    won = dict(queue.get(timeout=60) for _ in processes)
    for process in processes:
        process.join()
    assert sorted(image for images in won.values() for image in images) == list(range(40))
    entries = {int(e.image_digest, 16): e.parameters for e in Ledger(tmp_path).entries()}
    assert entries == {image: f"m={number}" for number, images in won.items() for image in images}


@pytest.mark.slow
def test_damage_raises_only_veils_errors(tmp_path: Path) -> None:
    """`outcome` lets any other exception through, which fails this test."""
    ledger = Ledger(tmp_path)
    for number in range(30):
        ledger.record(replace(ONE, image_digest=f"{number:064x}", message_digest=str(number)))
    data = ledger.path.read_bytes()
    for bad in (*truncated(data, 40), *flipped(generator("ledger"), data, 100, most=400)):
        ledger.path.write_bytes(bad)
        outcome(lambda: Ledger(tmp_path).record(OTHER))
        outcome(lambda: read_ledger(ledger.path))
    ledger.path.write_bytes(data[:5000])
    with pytest.raises(FileFormatError, match="restore it from a backup"):
        Ledger(tmp_path).record(OTHER)


def test_reading_a_ledger_never_writes(tmp_path: Path) -> None:
    """`veil inspect` looks at any .sqlite file: one of another program stays as it is, and none is made."""
    path = other_database(tmp_path / "notes.sqlite")
    before = path.read_bytes()
    for name in ("notes.sqlite", "none.sqlite"):
        with pytest.raises(FileFormatError, match="cannot be used"):
            read_ledger(tmp_path / name)
    assert path.read_bytes() == before
    assert not (tmp_path / "none.sqlite").exists() and not (tmp_path / "ledger.sqlite").exists()


def test_a_crash_between_check_and_entry_leaves_the_ledger_free(tmp_path: Path) -> None:
    """A writer that died holds no lock and left no half line."""
    ledger = Ledger(tmp_path)
    connection = sqlite3.connect(ledger.path)
    connection.execute("BEGIN IMMEDIATE")
    connection.execute("INSERT INTO releases VALUES ('aa', 'b', 'c', 'd', 1, 'e', 0, 0)")
    connection.close()  # without a commit
    assert ledger.entries() == []
    assert ledger.record(ONE)


def test_a_release_does_not_read_all_that_were_made_before(tmp_path: Path) -> None:
    """Enumeration of the lines that are read: of fifty releases of other images none, but where all are asked for."""
    ledger = Ledger(tmp_path)
    for number in range(50):
        ledger.record(replace(ONE, image_digest=f"{number:064x}", message_digest=f"{number:064x}"))
    ledger.record(ONE)
    read: list[object] = []

    def counted(row: sqlite3.Row | tuple) -> object:
        read.append(row)
        return entry_of(row)

    entry_of = ledger_file._entry
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ledger_file, "_entry", counted)
        assert not ledger.record(ONE) and ledger.entries_of(ONE.image_digest) == [ledger.entries()[-1]]
        with pytest.raises(ReleaseRefused):
            ledger.record(OTHER)
    assert len(read) == 1 + 1 + 51 + 1
