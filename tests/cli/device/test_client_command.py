"""`veil client` against a server: contribute, localize, status, delete and verify, and messages that wait."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from veil.cli import _parser, main
from veil.features import Features
from veil.files.features import write_features
from veil.forms import Subspaces
from veil.server.maps.policy import MapPolicy
from veil.server.service import Service
from veil.server.settings import ServerSettings
from veil.wire import decode
from worlds.edges import door_photographs
from worlds.releases import taken
from worlds.servers import Running, running


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    with running(Service(tmp_path_factory.mktemp("server"), ServerSettings(workers=1, map_workers=1))) as server:
        server.service.records.make("door", MapPolicy())
        yield server


def run(*arguments: object) -> int:
    return main(["client", *(str(argument) for argument in arguments)])


@pytest.mark.slow
def test_photographs_go_in_and_out(
    server: Running,
    door: dict[str, Features],
    elsewhere: Features,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The whole of it by commands; oracles: the states that the server tells, exit codes, and a forged receipt."""
    _, secret = server.service.tokens.make("robot", ["localize", "contribute"])
    monkeypatch.setenv("VEIL_SERVER", server.url)
    monkeypatch.setenv("VEIL_TOKEN", secret)
    few = {name: taken(item, np.arange(500)) for name, item in door.items()}
    names = list(few)
    write_features(tmp_path / "map.h5", [(name, few[name]) for name in names[:-1]])
    write_features(tmp_path / "query.h5", [(names[-1], few[names[-1]])])
    write_features(tmp_path / "other.h5", [("berlin.jpg", taken(elsewhere, np.arange(300)))])
    told = tmp_path / "told.json"
    assert run("contribute", tmp_path / "map.h5", "--map", "door", "--wait", "--json", told) == 0
    rows = json.loads(told.read_text())["contributions"]
    assert [row["name"] for row in rows] == names[:-1]
    mapped = [row for row in rows if row["state"] == "mapped"]
    assert len(mapped) >= 4
    capsys.readouterr()
    assert run("map", "list") == 0 and f"door: {len(mapped)} images" in capsys.readouterr().out
    poses = tmp_path / "poses.txt"
    assert run("localize", tmp_path / "query.h5", "--map", "door", "--obfuscate", "--json", told, "--write-poses", poses) == 0
    assert f"{names[-1]}: camera center" in capsys.readouterr().out
    (row,) = json.loads(told.read_text())["queries"]
    name, *numbers = poses.read_text().split()
    assert name == names[-1] and np.allclose([float(n) for n in numbers[4:]], row["cam_from_world"]["translation"], atol=1e-12)
    assert row["status"] == "localized" and row["covariance"] is None and row["inliers"] is None  # a guarded map's
    assert run("localize", tmp_path / "other.h5", "--map", "door", "--obfuscate") == 3
    assert run("status", "--json", told) == 0
    assert {row["name"] for row in json.loads(told.read_text())["contributions"]} == set(names[:-1])
    receipt = tmp_path / "gone.json"
    assert run("delete", mapped[0]["contribution"], "--receipt", receipt) == 0
    assert run("verify", receipt) == 0
    value = json.loads(receipt.read_text())
    value["receipts"][0]["content"]["points"] += 1
    (tmp_path / "forged.json").write_text(json.dumps(value))
    (tmp_path / "nonsense.json").write_text("3")
    capsys.readouterr()
    assert run("verify", receipt, tmp_path / "forged.json", tmp_path / "nonsense.json") == 1
    shown = capsys.readouterr()
    assert "receipt 1 of" in shown.out and "was changed" in shown.err and "no receipt" in shown.err
    capsys.readouterr()
    words = ("--words", "bundled", "--epsilon", "8", "--allow-second-release")
    assert run("localize", tmp_path / "query.h5", "--map", "door", *words) == 1
    shown = capsys.readouterr()
    assert "epsilon 8 for each feature" in shown.err and "allow-second-release" not in shown.err
    assert "words" in shown.err and "subspaces" in shown.err, "a private map answers no words"
    assert run("localize", tmp_path / "query.h5", "--map", "window") == 1
    assert "there is no map 'window'" in capsys.readouterr().err


@pytest.mark.slow
def test_messages_wait_and_are_sent_later(
    server: Running,
    door: dict[str, Features],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The map is named by its id while the server is away. What it had refused is not kept."""
    _, secret = server.service.tokens.make("robot", ["localize", "contribute"])
    record = server.service.records.make("later", MapPolicy())
    (tmp_path / "token").write_text(secret + "\n")
    write_features(tmp_path / "one.h5", [("a.jpg", taken(next(iter(door.values())), np.arange(100)))])
    given = ("--token-file", tmp_path / "token")
    assert run("contribute", tmp_path / "one.h5", "--map", record.id, "--server", "http://127.0.0.1:9", *given) == 0
    assert "waits for the server" in capsys.readouterr().out
    assert run("send", "--server", "http://127.0.0.1:9", *given) == 1
    assert "does not answer" in capsys.readouterr().err
    assert run("send", "--server", server.url, *given) == 0
    assert "sent 0 messages" in capsys.readouterr().out, "it was to go to another server"


@pytest.mark.slow
def test_photographs_give_learned_features(
    server: Running, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The contribution that the server keeps names its learned descriptor. Broken twin: SIFT, whichever descriptor is given."""
    _, secret = server.service.tokens.make("robot", ["contribute"])
    monkeypatch.setenv("VEIL_SERVER", server.url)
    monkeypatch.setenv("VEIL_TOKEN", secret)
    record = server.service.records.make("learned", MapPolicy())
    photographs = door_photographs(tmp_path / "photos", 1, 2)
    for path in photographs.iterdir():
        Image.open(path).reduce(3).save(path)
    first, second = sorted(photographs.iterdir())
    assert main(["extract", str(second), "-o", str(tmp_path / "pool.h5"), "--descriptor", "hardtfeat"]) == 0
    pool = [
        "codebook",
        "build",
        "--decoy-pool",
        str(tmp_path / "pool.h5"),
        "-o",
        str(tmp_path / "pool.npz"),
        "--word-count",
        "1000",
    ]
    assert main(pool) == 0
    given = ("--map", record.id, "--descriptor", "hardtfeat", "--features", 60)
    assert run("contribute", first, *given) == 1
    assert "build a codebook for these features" in capsys.readouterr().err, "the bundled decoys are of SIFT"
    before = set(server.service.records.blobs.names())
    assert run("contribute", first, *given, "--decoys", tmp_path / "pool.npz") == 0
    (added,) = set(server.service.records.blobs.names()) - before
    form = decode(server.service.records.blobs.get(added)).form
    assert isinstance(form, Subspaces) and str(form.space).startswith("hardtfeat")


@pytest.mark.parametrize(
    ("environment", "arguments", "told"),
    [
        ({}, ("map", "list"), "no server is named"),
        ({"VEIL_SERVER": "http://127.0.0.1:9"}, ("map", "list"), "no token is given"),
        ({"VEIL_SERVER": "http://example.org", "VEIL_TOKEN": "x"}, ("map", "list"), "without encryption"),
        ({"VEIL_SERVER": "http://127.0.0.1:9", "VEIL_TOKEN": "x"}, ("map", "list"), "does not answer"),
    ],
)
def test_what_is_missing_is_named(
    environment: dict[str, str],
    arguments: tuple[str, ...],
    told: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    for name in ("VEIL_SERVER", "VEIL_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert run(*arguments) == 1
    assert told in capsys.readouterr().err


@pytest.mark.parametrize("place", range(4))
def test_options_of_the_group_stand_anywhere(place: int) -> None:
    """Oracle: the same words in another order."""
    words = ["map", "create", "lobby"]
    given = [
        *words[:place],
        "--token-file",
        "admin.token",
        "--server=http://a",
        "--plain",
        *words[place:],
        "--accepts",
        "p.json",
    ]
    arguments = _parser().parse_args(["client", *given])
    assert (arguments.name, arguments.server, arguments.plain) == ("lobby", "http://a", True)
    assert (arguments.token_file, arguments.accepts, arguments.json) == (Path("admin.token"), Path("p.json"), None)
