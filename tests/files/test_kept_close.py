"""Files on the client's disk: readable by their owner alone, of their owner, never replaced or lost without an error."""

from __future__ import annotations

import os
import sqlite3
import stat
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from veil.errors import FileFormatError, InputError, ReleaseRefused
from veil.files.atomic import replacing
from veil.files.codebooks import write_codebook
from veil.files.device import ledger as ledger_file
from veil.files.device.home import require_own
from veil.files.device.ledger import Ledger, read_ledger, released_under, require_secret
from veil.files.device.secret import MadeUnder, load_secret
from veil.files.features import write_features
from veil.mechanisms.selection import ChosenFeatures
from veil.randomness import KEY_BYTES, Secret
from worlds import codebook, features, generator
from worlds.ledgers import ENTRY

posix = pytest.mark.skipif(os.name != "posix", reason="file modes are POSIX")


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def execute(path: Path, *statements: str) -> None:
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.executescript("".join(statements))


def lost(folder: Path) -> Secret:
    """A client that released something; its secret, which is then gone."""
    secret, ledger = load_secret(folder), Ledger(folder)
    require_secret(ledger, secret)
    ledger.record(ENTRY)
    (folder / "secret").unlink()
    return secret


def test_a_new_secret_is_said(tmp_path: Path) -> None:
    """A new secret is announced before anything is released under it; nothing is said where the secret is the old one."""
    said: list[str] = []
    secret = load_secret(tmp_path / "home", on_new=said.append)
    assert len(said) == 1 and "a new client secret was made" in said[0]
    assert str(tmp_path / "home" / "secret") in said[0] and secret.fingerprint in said[0]
    load_secret(tmp_path / "home", on_new=said.append)
    assert len(said) == 1


def test_none_is_made_where_the_ledger_holds_releases(tmp_path: Path) -> None:
    secret = lost(tmp_path)
    with pytest.raises(ReleaseRefused, match=rf"is gone.*{secret.fingerprint}.*backup"):
        load_secret(tmp_path)
    assert not (tmp_path / "secret").exists()
    (tmp_path / "secret").write_bytes(secret.key)
    (tmp_path / "secret").chmod(0o600)
    assert load_secret(tmp_path) == secret


def test_a_ledger_without_releases_needs_no_secret(tmp_path: Path) -> None:
    """`veil budget set` may come first, and a refused release leaves an empty ledger."""
    ledger = Ledger(tmp_path)
    require_secret(ledger, Secret(b"1" * KEY_BYTES))
    secret = load_secret(tmp_path)
    require_secret(ledger, secret)
    ledger.record(ENTRY)
    assert released_under(ledger.path)[-1] == secret.fingerprint


def test_a_lost_secret_can_be_given_up(tmp_path: Path) -> None:
    """The ledger stays, so that what was released under the lost one is still known."""
    old = lost(tmp_path)
    said: list[str] = []
    new = load_secret(tmp_path, replace_lost=True, on_new=said.append)
    assert new != old and said
    with pytest.raises(ReleaseRefused, match=rf"client secret {old.fingerprint}.*{new.fingerprint}.*replace_lost=True"):
        require_secret(Ledger(tmp_path), new)
    require_secret(Ledger(tmp_path), new, replace_lost=True)
    require_secret(Ledger(tmp_path), new)  # once is enough
    assert released_under(tmp_path / "ledger.sqlite") == [old.fingerprint, new.fingerprint]
    with pytest.raises(ReleaseRefused, match="already released"):
        Ledger(tmp_path).record(replace(ENTRY, parameters="paper m=4 under another secret", message_digest="dd" * 32))


def test_what_needs_the_secret_keeps_a_new_one_from_being_made(tmp_path: Path) -> None:
    """Templates of a store, say; a store that compares its fingerprint itself needs some secret all the same."""
    for fingerprint in ("01234567", None):
        with pytest.raises(ReleaseRefused, match=r"is gone.*the store faces\.db"):
            load_secret(tmp_path / "home", needed_by=[MadeUnder(what="the store faces.db", fingerprint=fingerprint)])
        assert not (tmp_path / "home").exists()
    secret = load_secret(tmp_path / "home")
    for right in (secret.fingerprint, None):
        assert load_secret(tmp_path / "home", needed_by=[MadeUnder(what="the store", fingerprint=right)]) == secret
    with pytest.raises(ReleaseRefused, match=f"01234567.*{secret.fingerprint}"):
        load_secret(tmp_path / "home", needed_by=[MadeUnder(what="the store", fingerprint="01234567")])


def test_a_ledger_without_its_secrets_knows_them_by_its_releases(tmp_path: Path) -> None:
    """Releases name their secret among their parameters, also where the table of secrets lost its rows."""
    secret = load_secret(tmp_path)
    ledger = Ledger(tmp_path)
    ledger.record(replace(ENTRY, parameters=f"paper m=4 secret={secret.fingerprint} positions"))
    require_secret(ledger, secret)
    with pytest.raises(ReleaseRefused, match=secret.fingerprint):
        require_secret(ledger, Secret(b"2" * KEY_BYTES))
    (tmp_path / "secret").unlink()
    with pytest.raises(ReleaseRefused, match=secret.fingerprint):
        load_secret(tmp_path)


@posix
@pytest.mark.parametrize("rights", [0o666, 0o644, 0o640, 0o602, 0o604])
def test_a_secret_that_others_could_read_or_write_is_refused(tmp_path: Path, rights: int) -> None:
    key = load_secret(tmp_path).key
    (tmp_path / "secret").chmod(rights)
    with pytest.raises(FileFormatError, match=rf"mode {rights:04o}.*chmod 600"):
        load_secret(tmp_path)
    (tmp_path / "secret").chmod(0o600)
    assert load_secret(tmp_path).key == key


@posix
def test_a_link_is_judged_by_where_it_leads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One's own file elsewhere serves; another user's does not, nor a device, whoever made the link."""
    key = load_secret(tmp_path / "vault").key
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "secret").symlink_to(tmp_path / "vault" / "secret")
    assert load_secret(tmp_path / "home").key == key
    owner = os.geteuid()
    with monkeypatch.context() as patch:
        patch.setattr(os, "geteuid", lambda: owner + 1)
        for read in (lambda: load_secret(tmp_path / "home"), lambda: load_secret(tmp_path / "vault")):
            with pytest.raises(FileFormatError, match=f"belongs to user {owner}, not to you"):
                read()
    (tmp_path / "home" / "secret").unlink()
    (tmp_path / "home" / "secret").symlink_to("/dev/zero")
    with pytest.raises(FileFormatError):
        load_secret(tmp_path / "home")


def test_a_file_of_zeros_is_no_secret(tmp_path: Path) -> None:
    (tmp_path / "secret").write_bytes(bytes(KEY_BYTES))
    (tmp_path / "secret").chmod(0o600)
    with pytest.raises(FileFormatError, match=r"zeros only.*restore it from a backup"):
        load_secret(tmp_path)


@posix
@pytest.mark.parametrize("mask", [0o000, 0o022, 0o077])
def test_the_ledger_is_for_its_owner_whatever_the_umask_and_the_folder(tmp_path: Path, mask: int) -> None:
    """The ledger links photographs to pseudonyms, so it is private even in a VEIL_HOME that others may enter."""
    tmp_path.chmod(0o755)
    before, seen = os.umask(mask), []
    try:
        ledger = Ledger(tmp_path)
        with closing(sqlite3.connect(ledger.path)) as connection:
            connection.execute("BEGIN IMMEDIATE")
            connection.execute("INSERT INTO budgets VALUES ('image', 1, 0, 0)")
            seen = [mode(path) for path in tmp_path.iterdir()]  # the journal is there now
    finally:
        os.umask(before)
    assert seen == [0o600, 0o600]


@posix
def test_a_ledger_that_others_may_read_is_closed_to_them_when_it_is_next_opened(tmp_path: Path) -> None:
    Ledger(tmp_path)
    (tmp_path / "ledger.sqlite").chmod(0o644)
    read_ledger(tmp_path / "ledger.sqlite")
    assert mode(tmp_path / "ledger.sqlite") == 0o644  # a look changes nothing
    Ledger(tmp_path)
    assert mode(tmp_path / "ledger.sqlite") == 0o600


@posix
def test_a_ledger_of_another_user_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    Ledger(tmp_path)
    owner = os.geteuid()
    monkeypatch.setattr(os, "geteuid", lambda: owner + 1)
    with pytest.raises(FileFormatError, match=f"belongs to user {owner}"):
        Ledger(tmp_path)


@posix
@pytest.mark.parametrize(("private", "expected"), [(True, 0o600), (False, 0o644)])
def test_what_must_not_leave_is_written_for_its_owner(tmp_path: Path, private: bool, expected: int) -> None:
    """Also where a library makes the file anew inside, and over an older file that others could read."""
    before = os.umask(0o022)
    try:
        for make in (lambda path: path.write_text("new"), lambda path: (path.unlink(), path.write_text("new"))):
            target = tmp_path / "file"
            target.write_text("old")
            with replacing(target, private=private) as temporary:
                make(temporary)
            assert (target.read_text(), mode(target)) == ("new", expected)
    finally:
        os.umask(before)


def test_a_ledger_that_was_cut_off_is_not_taken_for_a_new_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ledger_file.time, "sleep", lambda seconds: None)
    ledger = Ledger(tmp_path)
    ledger.record(ENTRY)
    assert ledger.is_new and not Ledger(tmp_path).is_new
    ledger.path.write_bytes(b"")
    for use in (lambda: Ledger(tmp_path), lambda: read_ledger(ledger.path)):
        with pytest.raises(FileFormatError, match="backup"):
            use()
    assert ledger.path.read_bytes() == b""
    ledger.path.unlink()
    execute(ledger.path, "CREATE TABLE t (x); DROP TABLE t;")  # a whole database with nothing in it
    with pytest.raises(FileFormatError, match=r"no table of releases.*backup"):
        Ledger(tmp_path)


def test_one_ledger_where_there_are_no_hard_links(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(source: object, target: object) -> None:
        raise PermissionError("this file system has no hard links")

    monkeypatch.setattr(os, "link", refused)
    assert Ledger(tmp_path).record(ENTRY)
    assert [path.name for path in tmp_path.iterdir()] == ["ledger.sqlite"]
    assert Ledger(tmp_path).entries()[0].name == ENTRY.name


def test_a_ledger_without_chosen_features_gets_a_place_for_them(tmp_path: Path) -> None:
    """As an earlier veil made it. Opened again, it keeps the features that left."""
    ledger = Ledger(tmp_path)
    execute(ledger.path, "DROP TABLE chosen;")
    chosen = ChosenFeatures(rows=np.array([2, 3, 70_000]))
    again = Ledger(tmp_path)
    assert again.chosen("ab") is None
    again.record(replace(ENTRY, image_digest="ab", chosen=chosen))
    found = again.chosen("ab")
    assert found is not None and found.rows.tolist() == chosen.rows.tolist() and again.chosen("cd") is None


def test_the_layout_of_a_ledger_has_a_version(tmp_path: Path) -> None:
    """Any other one is refused with its remedy, a column more is no damage."""
    ledger = Ledger(tmp_path)
    ledger.record(ENTRY)
    with closing(sqlite3.connect(ledger.path)) as connection:
        assert connection.execute("PRAGMA user_version").fetchone() == (ledger_file.LAYOUT,)
    execute(ledger.path, "ALTER TABLE releases ADD COLUMN more TEXT; ALTER TABLE spending ADD COLUMN more TEXT;")
    assert Ledger(tmp_path).record(replace(ENTRY, message_digest="ee" * 32))
    assert len(Ledger(tmp_path).entries()) == 2
    for layout in (99, 0):
        execute(ledger.path, f"PRAGMA user_version = {layout};")
        before = ledger.path.read_bytes()
        for use in (lambda: Ledger(tmp_path), lambda: read_ledger(ledger.path)):
            with pytest.raises(FileFormatError, match=rf"layout {layout}, .*install the veil that wrote it"):
                use()
        assert ledger.path.read_bytes() == before


@pytest.mark.parametrize("when", ["a new ledger", "an entry"])
def test_a_full_disk_is_no_damage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, when: str) -> None:
    """SQLite's own error, from a limit of pages that is reached at once; nothing has to be restored."""
    connect = sqlite3.connect

    def limited(*arguments, **options):
        connection = connect(*arguments, **options)
        connection.execute("PRAGMA max_page_count = 1")  # SQLite takes the present size where that is more
        return connection

    if when == "an entry":
        Ledger(tmp_path)
    monkeypatch.setattr(sqlite3, "connect", limited)
    with pytest.raises(InputError, match=r"no room.*free some space"):
        Ledger(tmp_path).record(replace(ENTRY, name="x" * 100_000))
    monkeypatch.setattr(sqlite3, "connect", connect)
    assert Ledger(tmp_path).record(ENTRY)  # with room again, the same command does it


@pytest.mark.parametrize("name", ["../../ESCAPE", "/tmp/x", "", "-rf", "..", "a/b", "a\nb", "ABC"])
def test_a_name_from_the_ledger_is_no_path(tmp_path: Path, name: str) -> None:
    """It becomes the name of a message: whoever can write the ledger must not choose where."""
    ledger = Ledger(tmp_path)
    ledger.record(ENTRY)
    with closing(sqlite3.connect(ledger.path)) as connection, connection:
        connection.execute("UPDATE releases SET released_as = ?", (name,))
    with pytest.raises(FileFormatError, match=r"digits 0-9, a-f.*restore it"):
        ledger.entries()
    with pytest.raises(InputError, match="digits 0-9, a-f"):
        replace(ENTRY, released_as=name)


def test_only_regular_files_are_ones_own(tmp_path: Path) -> None:
    with pytest.raises(FileFormatError, match="is no file"):
        require_own(tmp_path, tmp_path.stat())


@posix
def test_raw_features_and_decoys_are_for_their_owner(tmp_path: Path) -> None:
    """Both can be inverted into pictures; centroids are public."""
    random, before = generator("kept close"), os.umask(0)
    try:
        write_features(tmp_path / "f.h5", [("a.jpg", features(random, 5))])
        write_codebook(tmp_path / "pool.npz", codebook(random, kind="descriptors"))
        write_codebook(tmp_path / "centroids.npz", codebook(random))
    finally:
        os.umask(before)
    modes = {path.name: mode(path) for path in tmp_path.iterdir()}
    assert modes == {"f.h5": 0o600, "pool.npz": 0o600, "centroids.npz": 0o666}
