"""Files with a secret, or with what stays on the device, are for their owner alone from the first byte on."""

from __future__ import annotations

import ast
import json
import os
import stat
from pathlib import Path

import pytest

from veil.cli import main
from veil.server.maps.policy import MapPolicy
from veil.server.service import Service

ROOT = Path(__file__).resolve().parents[2]
CLI, FACES = ROOT / "src" / "veil" / "cli", ROOT / "faces" / "veil_faces" / "cli"


def run(*arguments: object) -> int:
    return main([str(argument) for argument in arguments])


def open_records(source: str) -> list[int]:
    """Lines of calls of `write_json` that do not say that the file is private."""
    calls = [node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Call)]
    records = [node for node in calls if isinstance(node.func, ast.Name) and node.func.id == "write_json"]
    return [node.lineno for node in records if not any(word.arg == "private" for word in node.keywords)]


def test_records_of_the_device_are_private() -> None:
    """Commands of the device, and of faces, write of photographs, names, poses and receipts. Broken twin: a call without it."""
    paths = [*(CLI / "device").glob("*.py"), *FACES.glob("*.py")]
    assert len(paths) > 15
    assert {path.name: lines for path in paths if (lines := open_records(path.read_text()))} == {}
    assert open_records("write_json(path, value)\nwrite_json(path, value, private=True)") == [1]


def test_the_secret_of_a_token_is_in_files_of_its_owner_alone(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Under a mask that hides nothing, and over a file that everybody may read; its mode is looked at before each write."""
    store, record, secret = tmp_path / "store", tmp_path / "made.json", tmp_path / "phone.token"
    for path in (record, secret):
        path.touch(mode=0o644)
    modes: list[int] = []
    write = Path.write_bytes

    def watched(path: Path, data: bytes) -> int:
        modes.append(stat.S_IMODE(path.stat().st_mode) if path.exists() else 0o777)
        return write(path, data)

    mask = os.umask(0)
    try:
        with monkeypatch.context() as patch:
            patch.setattr(Path, "write_bytes", watched)
            assert run("serve", "token", store, "--name", "phone", "-o", secret, "--json", record) == 0
    finally:
        os.umask(mask)
    assert {stat.S_IMODE(path.stat().st_mode) for path in (record, secret)} == {0o600} and modes and set(modes) == {0o600}
    made = json.loads(record.read_text())
    shown = capsys.readouterr().out
    assert secret.read_text() == made["secret"] + "\n" and made["secret"] not in shown and str(secret) in shown
    assert run("serve", "token", store, "--list", "-o", secret) == 1
    assert "--output is for the secret of a new token" in capsys.readouterr().err


def test_maps_of_a_token_are_named_by_id_or_name(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A name that there is not makes no token: it would see nothing."""
    store = tmp_path / "store"
    service = Service(store)
    lobby, hall = (service.records.make(name, MapPolicy()) for name in ("lobby", "hall"))
    service.close()
    assert run("serve", "token", store, "--name", "phone", "--maps", "lobby", hall.id, "--json", tmp_path / "made.json") == 0
    assert json.loads((tmp_path / "made.json").read_text())["maps"] == [lobby.id, hall.id]
    capsys.readouterr()
    assert run("serve", "token", store, "--name", "tablet", "--maps", "loby") == 1
    assert "there is no map 'loby'; did you mean 'lobby'?" in capsys.readouterr().err
    service = Service(store)
    assert [item.name for item in service.tokens.all()] == ["phone"]
    service.close()
