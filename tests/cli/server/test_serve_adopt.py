"""`veil serve adopt`: what it prints of a database and blobs, and that it changes something only when it is told to."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from veil.cli import main
from veil.errors import FileFormatError
from veil.server.maps.policy import MapPolicy
from veil.server.service import Service
from worlds.schemas import validate


def test_blobs_whose_database_is_gone_are_adopted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The start is refused until --write, and nothing is deleted by it. Oracle: the names of what was kept."""
    store, record = tmp_path / "store", tmp_path / "adopted.json"
    service = Service(store)
    service.records.make("lobby", MapPolicy())
    names = sorted(service.records.keep(b"blob %d" % number) for number in range(12))
    owner = service.store
    service.close()
    for path in store.glob("veil.sqlite*"):
        path.unlink()
    with pytest.raises(FileFormatError, match="adopt the server's store"):
        Service(store)
    assert main(["serve", "adopt", str(store)]) == 1
    assert "is missing beside the blobs" in capsys.readouterr().err and not (store / "veil.sqlite").exists()
    assert main(["serve", "adopt", str(store), "--write", "--json", str(record)]) == 0
    shown = capsys.readouterr().out
    assert "names 0 blobs" in shown and names[0] in shown and "and 2 more" in shown and "one store from now on" in shown
    content = json.loads(record.read_text())
    validate("serve-adopt", content)
    assert (content["blobs_store"], content["unknown"]) == (owner, names)
    again = Service(store)
    assert again.store == content["store"] != owner and sorted(again.records.blobs.names()) == names
    again.close()
    assert main(["serve", "adopt", str(store)]) == 0
    shown = capsys.readouterr().out
    assert "the blobs say this store; 0 of them the database does not know" in shown and "nothing was changed" in shown
    assert main(["serve", "adopt", str(tmp_path / "typo")]) == 1
    assert "no folder of a server" in capsys.readouterr().err
