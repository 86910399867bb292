"""`veil privatize` where the client's secret is new, lost or replaced, and where the ledger is not what it was."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from veil.cli import main
from veil.files.device.home import home
from veil.files.features import write_features
from worlds import features, generator

ONE = features(generator("client secret"), 20)
TWO = replace(ONE, image_digest=b"2" * 32)


@pytest.fixture
def released(tmp_path: Path, capsys) -> Path:
    """A client that released one photograph, and what it has of two."""
    write_features(tmp_path / "one.h5", [("one.jpg", ONE)])
    write_features(tmp_path / "two.h5", [("two.jpg", TWO)])
    assert privatize(tmp_path, "one", "up") == 0
    return tmp_path


def privatize(folder: Path, name: str, to: str, *more: str) -> int:
    return main(["privatize", str(folder / f"{name}.h5"), "-o", str(folder / to), "--for", "map", *more])


def messages(folder: Path) -> list[str]:
    return [path.name for path in folder.glob("*")]


def test_who_makes_a_secret_is_told_and_nobody_else(released: Path, capsys, monkeypatch: pytest.MonkeyPatch) -> None:
    """The whole folder gone, as in another container: the same photograph is released otherwise, and that is said."""
    assert "note: a new client secret was made: " + str(home() / "secret") in capsys.readouterr().err
    assert privatize(released, "one", "again") == 0
    assert "secret was made" not in capsys.readouterr().err
    monkeypatch.setenv("VEIL_HOME", str(released / "elsewhere"))
    assert privatize(released, "one", "elsewhere-up", "--json", "-") == 0
    shown = capsys.readouterr()
    assert "secret was made" in shown.err and "must not be released again" in shown.err and shown.out.startswith("{")
    assert messages(released / "up") == messages(released / "again") != messages(released / "elsewhere-up")


@pytest.mark.slow
def test_no_secret_is_made_beside_a_ledger_with_releases(released: Path, capsys) -> None:
    """Neither the photograph of the ledger nor a new one is released, and nothing is written."""
    (home() / "secret").rename(released / "kept")
    for name in ("one", "two"):
        assert privatize(released, name, "lost") == 1
        error = capsys.readouterr().err
        assert "is gone" in error and "backup" in error and "--new-secret" in error
    assert not (released / "lost").exists() and not (home() / "secret").exists()
    # Given up for good: what the ledger lists stays refused, other photographs go on.
    assert privatize(released, "two", "new", "--new-secret") == 0
    assert "secret was made" in capsys.readouterr().err
    assert privatize(released, "one", "new one", "--new-secret") == 1
    assert "another client secret" in capsys.readouterr().err
    assert privatize(released, "two", "new again") == 0
    # The old one comes back: the ledger knows both.
    (released / "kept").replace(home() / "secret")
    assert privatize(released, "one", "back") == 0
    assert messages(released / "back") == messages(released / "up")


def test_another_secret_does_not_fit_the_ledger(released: Path, capsys) -> None:
    (home() / "secret").write_bytes(b"another secret".ljust(32, b"."))
    capsys.readouterr()
    assert privatize(released, "two", "other") == 1
    assert "restore the right one, or pass --new-secret" in capsys.readouterr().err
    assert not (released / "other").exists()


@pytest.mark.slow
def test_a_ledger_that_is_gone_or_empty_is_said(released: Path, capsys) -> None:
    """A file of no bytes is a whole database to SQLite, in which nothing was ever released."""
    ledger = home() / "ledger.sqlite"
    data = ledger.read_bytes()
    ledger.write_bytes(b"")
    assert privatize(released, "two", "cut") == 1
    assert "is empty" in capsys.readouterr().err and not (released / "cut").exists()
    ledger.unlink()
    assert privatize(released, "two", "gone") == 0
    assert "a new ledger was made beside an older secret" in capsys.readouterr().err
    ledger.write_bytes(data)


def test_a_name_in_the_ledger_writes_nothing_elsewhere(released: Path, capsys) -> None:
    """The name under which a message was entered is that under which it is written again."""
    with closing(sqlite3.connect(home() / "ledger.sqlite")) as connection, connection:
        connection.execute("UPDATE releases SET released_as = '../../ESCAPE'")
    assert privatize(released, "one", "deep/er") == 1
    assert "digits 0-9, a-f" in capsys.readouterr().err
    assert not list(released.rglob("ESCAPE*"))
