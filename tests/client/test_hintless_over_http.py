"""Tiles from one server without a hint, over HTTP: every tile, what the server receives, and what it refuses."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from veil.client import Client, TileUse
from veil.client.connection import Unreachable
from veil.client.tile_access import open_tiles
from veil.device.device import Device
from veil.errors import FileFormatError, InputError
from veil.files.service import hintless_tiles
from veil.files.service.hintless_tiles import HintlessFacts, hintless_facts, read_hintless, read_prepared
from veil.files.service.served_tiles import add_served, clear_served
from veil.files.tiles import BINARY, JSON, write_tiles
from veil.ldp.guarantee import ComputationalPrivacy
from veil.pir.hintless_layout import HintlessLayout
from veil.pir.ring import MODULUS
from veil.places.poses.answer import Localization
from veil.server.service import Service
from veil.server.settings import ServerSettings
from veil.server.store.identity import TILES
from veil.tiles.cutting import CutMap, CutOptions, cut
from veil.tiles.exits import Hintless
from veil.tiles.fetching import fetcher_of
from worlds.recorders import recording
from worlds.servers import Running, running
from worlds.tile_streets import street

NAME = "street"
ROUTE = f"/v1/tiles/{NAME}"


@cache
def made() -> CutMap:
    """Small tiles: a record is one polynomial, for which a server keeps 42 MB."""
    return cut(street("hintless", cameras=24).scene, CutOptions(tile_bytes=1800, words=8, asked=2))


@dataclass(frozen=True)
class Served:
    """A server with the tiles, and its folder of tiles."""

    server: Running
    root: Path

    @property
    def url(self) -> str:
        return f"{self.server.url}{ROUTE}"

    @property
    def folder(self) -> Path:
        return self.root / NAME / made().manifest.version


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    folder = tmp_path_factory.mktemp("hintless")
    write_tiles(folder / "tiles", made())
    root = folder / "store" / TILES
    add_served(root, NAME, folder / "tiles", localizations=None)
    with running(Service(folder / "store", ServerSettings(workers=1)), jobs=False) as server:
        url = f"{server.url}{ROUTE}"
        with pytest.raises(InputError, match="exit hintless takes one address, of a server that offers it"):
            open_tiles([url], exit="hintless")
        add_served(root, NAME, folder / "tiles", localizations=None, hintless=True)  # while it runs
        yield Served(server=server, root=root)


@pytest.mark.slow
def test_every_tile_arrives_byte_for_byte(served: Served) -> None:
    """Oracle: the records as they were cut."""
    fetcher = fetcher_of(open_tiles([served.url], exit="hintless"))
    assert isinstance(fetcher.exit, Hintless) and isinstance(fetcher.guarantee, ComputationalPrivacy)
    count = len(made().manifest)
    assert count >= 8 and made().records.shape[1] <= 2048
    for start in range(0, count, 2):
        indices = [(start + 1) % count, start]
        assert fetcher.exit.fetch(indices) == [made().records[index].tobytes() for index in indices]


@pytest.mark.slow
def test_a_client_localizes_itself(served: Served, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Oracle: the planted pose. The exit is taken where nobody names one and the map is not small."""
    monkeypatch.setattr("veil.client.tile_access.REGION_BYTES", 1000)
    assert isinstance(fetcher_of(open_tiles([served.url])).exit, Hintless)
    features, pose = street("hintless", cameras=24).query(9.3)
    with Client(served.server.url, served.server.admin, Device(tmp_path)) as client:
        answer = client.localize(NAME, features, tiles=TileUse())
    assert isinstance(answer.pose, Localization) and answer.asked == 2
    assert np.linalg.norm(answer.pose.cam_from_world.center - pose.center) < 0.05


@pytest.mark.slow
def test_requests_differ_in_random_bytes_alone(served: Served) -> None:
    """Oracle: what a server receives from devices that want different tiles, and whose answers are all wrong."""
    said = served.server.ask("GET", f"{ROUTE}/exits.json", token="")
    facts, version = said.value["exits"]["hintless"], made().manifest.version
    views: list[list[Any]] = []
    for wanted in ([0], [3, 1], [5]):
        with recording() as recorder:
            recorder.answers = {f"{ROUTE}/exits.json": said.data}
            for file in (JSON, BINARY):
                recorder.answers[f"{ROUTE}/{version}/{file}"] = (served.folder / file).read_bytes()
            recorder.answers[f"{ROUTE}/{version}/answers/hintless"] = bytes(2 * facts["parts"] * facts["answer_bytes"])
            fetched = fetcher_of(open_tiles([f"{recorder.url}{ROUTE}"], exit="hintless")).fetch(wanted)
            assert not fetched.tiles and set(fetched.refused) == set(wanted)
            views.append([(method, path, len(body)) for method, path, _, body in recorder.requests])
    assert views[0] == views[1] == views[2]
    assert views[0][-1] == ("POST", f"{ROUTE}/{version}/answers/hintless", 2 * facts["parts"] * facts["query_bytes"])


@pytest.mark.slow
def test_requests_that_no_device_sends_are_refused(served: Served) -> None:
    facts = served.server.ask("GET", f"{ROUTE}/exits.json", token="").value["exits"]["hintless"]
    due = 2 * facts["parts"] * facts["query_bytes"]

    def status(body: bytes) -> int:
        path = f"{ROUTE}/{made().manifest.version}/answers/hintless"
        return served.server.ask("POST", path, token="", body=body, kind="application/vnd.veil.tile-queries").status

    assert status(bytes(due)) == 200
    assert status(bytes(due - 4)) == 422 and status(bytes(due + 4)) == 413
    for value in (MODULUS, 2**32 - 1):
        assert status(bytes(due - 4) + value.to_bytes(4, "little")) == 400


FACTS = HintlessFacts(layout=HintlessLayout(records=9, size=5000, parts=2), seed=bytes(32))


@pytest.mark.parametrize(
    "change",
    [
        {"degree": 16},
        {"parts": 0},
        {"parts": True},
        {"parts": 10**9},
        {"parts": "2"},
        {"seed": "ab"},
        {"seed": None},
        {"query_bytes": 1},
        {"answer_bytes": 1 << 50},
    ],
)
def test_facts_may_be_anything(change: dict[str, Any]) -> None:
    assert hintless_facts(FACTS.as_json(), records=9, size=5000) == FACTS
    with pytest.raises(FileFormatError, match="hintless exit is damaged"):
        hintless_facts({**FACTS.as_json(), **change}, records=9, size=5000)
    for key in FACTS.as_json():
        with pytest.raises(FileFormatError, match="hintless exit is damaged"):
            hintless_facts({name: value for name, value in FACTS.as_json().items() if name != key}, records=9, size=5000)
    with pytest.raises(FileFormatError, match="hintless exit is damaged"):
        hintless_facts([], records=9, size=5000)


@pytest.mark.slow
def test_damaged_files_are_told_and_written_anew(served: Served, tmp_path: Path) -> None:
    """Files that a kill left without their facts are swept; damaged ones are refused until the tiles are added again."""
    write_tiles(tmp_path / "tiles", made())
    folder = tmp_path / "store" / NAME / made().manifest.version
    size = dict(records=len(made().manifest), size=made().manifest.record_bytes)

    def added() -> HintlessFacts:
        add_served(tmp_path / "store", NAME, tmp_path / "tiles", localizations=None, hintless=True)
        facts = read_hintless(folder, **size)
        assert facts is not None
        read_prepared(folder, facts)
        return facts

    first = added()
    assert added() == first  # nothing is written twice
    changes: list[Callable[[], object]] = [
        lambda: (folder / hintless_tiles.PREPARED).write_bytes(b"1234"),
        lambda: (folder / hintless_tiles.MATRIX).unlink(),
    ]
    for change in changes:
        change()
        with pytest.raises(FileFormatError, match="add the tiles again"):
            read_prepared(folder, first)
        again = added()
        assert again.seed != first.seed
        first = again
    (folder / hintless_tiles.FACTS).write_text(json.dumps({**first.as_json(), "degree": 1024}))
    assert added().seed != first.seed
    (folder / hintless_tiles.FACTS).unlink()
    clear_served(tmp_path / "store")
    assert not (folder / hintless_tiles.PREPARED).exists() and not (folder / hintless_tiles.MATRIX).exists()
    assert read_hintless(folder, **size) is None


@pytest.mark.slow
def test_an_exit_that_goes_while_the_server_runs_is_told(served: Served) -> None:
    fetcher = fetcher_of(open_tiles([served.url], exit="hintless"))
    path = served.folder / hintless_tiles.FACTS
    text = path.read_bytes()
    path.unlink()
    try:
        with pytest.raises(Unreachable, match="no more"):
            fetcher.exit.fetch([0, 1])
    finally:
        path.write_bytes(text)
