"""`veil client map`: maps are made, listed and deleted on a server without any other program."""

from __future__ import annotations

import json
import stat
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from veil.cli import main
from veil.client import Client, ServerError
from veil.device.device import Device
from veil.errors import WireError
from veil.features import Features
from veil.server.service import Service
from veil.server.settings import ServerSettings
from worlds.releases import taken
from worlds.servers import Running, running


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    settings = ServerSettings(workers=1, map_workers=1)
    with running(Service(tmp_path_factory.mktemp("server") / "store", settings), jobs=False) as server:
        yield server


@pytest.fixture
def asked(server: Running, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Running:
    """The server, named by the environment, with an administrator's token in a file."""
    (tmp_path / "admin.token").write_text(server.admin + "\n")
    monkeypatch.setenv("VEIL_SERVER", server.url)
    monkeypatch.delenv("VEIL_TOKEN", raising=False)
    return server


def run(folder: Path, *arguments: object) -> int:
    return main(["client", "map", *map(str, arguments), "--token-file", str(folder / "admin.token")])


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


@pytest.mark.slow
def test_a_map_is_made_listed_and_deleted(asked: Running, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Oracle: the server's own records."""
    (tmp_path / "policy.json").write_text('{"forms": ["words"], "keep_days": 30.0}')
    assert run(tmp_path, "create", "lobby", "--accepts", tmp_path / "policy.json", "--json", tmp_path / "made.json") == 0
    made = json.loads((tmp_path / "made.json").read_text())
    record = asked.service.map_record(made["map"])
    assert (record.name, record.policy.forms, record.policy.keep_days) == ("lobby", ("words",), 30)
    assert run(tmp_path, "list", "--json", tmp_path / "maps.json") == 0
    assert f"{record.id}  lobby: no images yet" in capsys.readouterr().out
    assert record.id in [item["map"] for item in json.loads((tmp_path / "maps.json").read_text())["maps"]]
    assert run(tmp_path, "create", "lobby") == 1
    assert record.id in capsys.readouterr().err, "the name is taken, and whose it is is told"
    assert run(tmp_path, "delete", "loby") == 1
    assert "there is no map 'loby'; did you mean 'lobby'?" in capsys.readouterr().err
    assert run(tmp_path, "delete", "lobby", "--receipt", tmp_path / "gone.json") == 0
    assert "lobby: deleted, with 0 contributions" in capsys.readouterr().out
    assert asked.service.records.get(record.id) is None
    assert {mode(tmp_path / name) for name in ("made.json", "maps.json", "gone.json")} == {0o600}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("text", "told"),
    [
        ('{"form": ["words"]}', "no field of a policy 'form'; did you mean 'forms'?"),
        ("[1]", "must hold an object"),
        ("{", "is no JSON"),
    ],
)
def test_a_slip_in_a_policy_is_told(
    asked: Running, tmp_path: Path, text: str, told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "policy.json").write_text(text)
    assert run(tmp_path, "create", "hall", "--accepts", tmp_path / "policy.json") == 1
    assert told in capsys.readouterr().err and not [item for item in asked.service.records.all() if item.name == "hall"]


@pytest.mark.slow
def test_deleting_a_map_gives_verified_receipts(
    asked: Running, door: dict[str, Features], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each receipt is in the chain, and what waited here is dropped. Broken twin: a receipt that was changed on the way."""
    with Client(asked.url, asked.admin, Device(tmp_path / "device")) as client:
        made = client.create_map("given", {"max_features": 200})
        assert client.map("given") == client.map(made.id) and made.facts["policy"]["max_features"] == 200
        for name, features in list(door.items())[:2]:
            assert client.contribute(made.id, taken(features, np.arange(50)), name=name) is not None
        assert len(list(client.outbox.sent())) == 2
        receipts = client.delete_map(made.id)
        assert len(receipts) == 2 and list(client.outbox.sent()) == []
        with pytest.raises(ServerError) as gone:
            client.delete_map(made.id)
        assert gone.value.status == 404
        again = client.create_map("given")
        client.contribute(again.id, taken(next(iter(door.values())), np.arange(50)), name="again", allow_second=True)
        answer = client._connection.delete("v1", "maps", again.id)
        answer["receipts"][0]["content"]["points"] = 7
        monkeypatch.setattr(client._connection, "delete", lambda *path: answer)
        with pytest.raises(WireError):
            client.delete_map(again.id)
    with pytest.raises(ServerError) as refused:
        Client(asked.url, asked.service.tokens.make("phone", ["localize"])[1], Device(tmp_path / "device")).create_map("mine")
    assert refused.value.status == 403
