"""`veil serve backup` and `veil serve restore`: what they print, and what they refuse."""

from __future__ import annotations

from pathlib import Path

import pytest

from veil.cli import main
from veil.server.maps.policy import MapPolicy
from veil.server.service import Service


def run(*arguments: object) -> int:
    return main([str(argument) for argument in arguments])


def test_a_server_is_backed_up_and_restored(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The restored folder has the map and the token that the first one had."""
    store, file, again = tmp_path / "store", tmp_path / "file.backup", tmp_path / "again"
    service = Service(store)
    made = service.records.make("lobby", MapPolicy())
    _, secret = service.tokens.make("robot", ["localize"])
    service.close()
    assert run("serve", "backup", store, "-o", file) == 0
    name, size = capsys.readouterr().out.split(f"  {file}: ")
    assert int(size.split()[0]) == file.stat().st_size
    assert run("serve", "backup", store, "--list") == 0
    listed = capsys.readouterr().out
    assert name in listed and "up to date" in listed and "missing" not in listed
    assert run("serve", "restore", file, again, "--newer", store / "veil.sqlite") == 0
    assert capsys.readouterr().out == f"1 maps, 0 contributions, 1 tokens in {again}\n"
    restored = Service(again)
    assert restored.records.all() == [made] and restored.tokens.admit(secret, "localize").name == "robot"
    restored.close()
    file.unlink()
    assert run("serve", "backup", store, "--list") == 0
    assert "missing" in capsys.readouterr().out
    assert run("serve", "backup", store, "--forget", name) == 0
    assert run("serve", "backup", store, "--forget", name) == 1
    assert "there is no backup" in capsys.readouterr().err


def test_slips_are_named_and_change_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Service(tmp_path / "store").close()
    (tmp_path / "text").write_text("no backup")
    (tmp_path / "bad.toml").write_text('database = "mysql://veil:a-secret@host/x"')
    before = sorted(tmp_path.rglob("*"))
    for arguments, told in (
        (("backup", tmp_path / "store"), "give -o FILE"),
        (("backup", tmp_path / "typo", "-o", tmp_path / "x"), "no folder of a server"),
        (("backup", tmp_path / "store", "-o", tmp_path / "text"), "exists"),
        (("backup", tmp_path / "store", "--list", "--config", tmp_path / "bad.toml"), "postgresql://"),
        (("restore", tmp_path / "text", tmp_path / "again"), "no backup"),
        (("restore", tmp_path / "text", tmp_path / "store"), "in use"),
    ):
        assert run("serve", *arguments) == 1
        shown = capsys.readouterr().err
        assert told in shown and "a-secret" not in shown
    assert sorted(tmp_path.rglob("*")) == before


def test_commands_of_a_server_read_its_settings(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A token that is made without the settings would be one of another database."""
    (tmp_path / "store").mkdir()
    (tmp_path / "store" / "storage.json").write_text('{"database": "postgresql", "blobs": "folder"}')
    assert run("serve", "token", tmp_path / "store", "--list") == 1
    assert "was used with blobs = folder, database = postgresql" in capsys.readouterr().err
    (tmp_path / "serve.toml").write_text('database = "postgresql://veil:a-secret@127.0.0.1:1/veil"')
    assert run("serve", "token", tmp_path / "store", "--list", "--config", tmp_path / "serve.toml") == 1
    shown = capsys.readouterr().err
    assert ("cannot be used now" in shown or "veil[grown]" in shown) and "a-secret" not in shown
