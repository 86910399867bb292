"""Tiles over HTTP: every tile by every exit, what servers receive, and what a device does when a server lies or is another."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from veil.client import Client, TileUse
from veil.client.connection import Unreachable
from veil.client.tile_access import TileExit, open_tiles
from veil.device.device import Device
from veil.errors import FileFormatError, InputError
from veil.files.service.served_tiles import FACTS, HINT, add_served, read_one_server, remove_served
from veil.files.tiles import BINARY, JSON, write_tiles
from veil.ldp.guarantee import ComputationalPrivacy, PerfectPrivacy
from veil.places.poses.answer import Localization
from veil.server.service import Service
from veil.server.settings import ServerSettings
from veil.server.store.identity import TILES
from veil.tiles.cutting import CutMap, CutOptions, cut
from veil.tiles.exits import OneServer, Region, TwoServers
from veil.tiles.fetching import fetcher_of
from worlds.recorders import Recorder, recording
from worlds.servers import Running, running
from worlds.tile_streets import street

EXITS: tuple[TileExit, ...] = ("region", "two-servers", "one-server")
NAME = "street"


@cache
def made() -> CutMap:
    return cut(street("http", cameras=40).scene, CutOptions(tile_bytes=4000, words=8, asked=3))


@dataclass(frozen=True)
class Pair:
    """Two servers with the same tiles, and the folder of the tiles."""

    first: Running
    second: Running
    folder: Path

    @property
    def urls(self) -> tuple[str, str]:
        return f"{self.first.url}/v1/tiles/{NAME}", f"{self.second.url}/v1/tiles/{NAME}"

    def of(self, exit: TileExit) -> list[str]:
        return list(self.urls if exit == "two-servers" else self.urls[:1])


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    folder = tmp_path_factory.mktemp("pair")
    write_tiles(folder / "tiles", made())
    settings = ServerSettings(workers=1)
    for name in ("first", "second"):
        add_served(folder / name / TILES, NAME, folder / "tiles", localizations=2)
    with (
        running(Service(folder / "first", settings), jobs=False) as first,
        running(Service(folder / "second", settings), jobs=False) as second,
    ):
        yield Pair(first=first, second=second, folder=folder)


@pytest.mark.slow
@pytest.mark.parametrize("exit", EXITS)
def test_every_tile_arrives_byte_for_byte(pair: Pair, exit: TileExit) -> None:
    """Oracle: the records as they were cut."""
    fetcher = fetcher_of(open_tiles(pair.of(exit), exit=exit))
    count = len(made().manifest)
    assert count >= 16
    for start in range(0, count, 3):
        indices = [index % count for index in (start, start + 1, start + 2)]
        records = fetcher.exit.fetch(indices)
        assert records == [made().records[index].tobytes() for index in indices]


@pytest.mark.slow
def test_the_exit_follows_from_the_map_and_the_addresses_alone(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    assert isinstance(fetcher_of(open_tiles(pair.urls)).exit, Region)
    monkeypatch.setattr("veil.client.tile_access.REGION_BYTES", 1000)
    two, one = (fetcher_of(open_tiles(urls)).exit for urls in (pair.urls, pair.urls[:1]))
    assert isinstance(two, TwoServers) and isinstance(two.guarantee, PerfectPrivacy)
    assert isinstance(one, OneServer) and isinstance(one.guarantee, ComputationalPrivacy)


@pytest.mark.slow
@pytest.mark.parametrize("exit", EXITS)
def test_a_client_localizes_itself(pair: Pair, tmp_path: Path, exit: TileExit) -> None:
    """Oracle: the planted pose. No message is released, and the ledger stays empty."""
    device = Device(tmp_path)
    also = pair.urls[1:] if exit == "two-servers" else ()
    features, pose = street("http", cameras=40).query(17.4)
    with Client(pair.first.url, pair.first.admin, device) as client:
        for _ in range(2):
            answer = client.localize(NAME, features, tiles=TileUse(also=also, exit=exit))
            assert isinstance(answer.pose, Localization) and answer.asked == 3
            assert np.linalg.norm(answer.pose.cam_from_world.center - pose.center) < 0.02
    assert not device.ledger.path.is_file() or device.ledger.entries() == []


def relayed(pair: Pair, recorder: Recorder, exit: TileExit) -> str:
    """Have a recorder give the manifest, the facts and the hint of the first server, and answers of zeros of their length."""
    version = made().manifest.version
    base = f"/v1/tiles/{NAME}"
    said = pair.first.ask("GET", f"{base}/exits.json", token="")
    recorder.answers = {f"{base}/exits.json": said.data}
    for file in (JSON, BINARY, HINT, "tiles.bin"):
        recorder.answers[f"{base}/{version}/{file}"] = pair.first.ask("GET", f"{base}/{version}/{file}", token="").data
    facts = said.value["exits"][exit]
    answers = 3 * facts.get("parts", 1) * facts.get("answer_bytes", 0)
    recorder.answers[f"{base}/{version}/answers/{exit}"] = bytes(answers)
    return f"{recorder.url}{base}"


@pytest.mark.slow
@pytest.mark.parametrize("exit", EXITS)
def test_requests_differ_in_random_bytes_alone(pair: Pair, exit: TileExit) -> None:
    """Oracle: what servers receive from devices that want different tiles, one after the other; all answers are wrong, too."""
    views: list[list[Any]] = []
    for wanted in ([0], [5, 1, 2], [7]):
        with recording() as first, recording() as second:
            urls = [relayed(pair, first, exit)] + ([relayed(pair, second, exit)] if exit == "two-servers" else [])
            fetcher = fetcher_of(open_tiles(urls, exit=exit))
            for _ in range(2):
                fetched = fetcher.fetch(wanted)
                assert exit == "region" or set(fetched.refused) == set(wanted)
            requests = [*first.requests, *second.requests]
            assert all("Authorization" not in headers and "Cookie" not in headers for _, _, headers, _ in requests)
            bodies = [body for _, _, _, body in requests if body]
            assert len(set(bodies)) == len(bodies)
            host = {first.url[7:]: "first", second.url[7:]: "second"}
            views.append(
                [(kind, path, {**headers, "Host": host[headers["Host"]]}, len(body)) for kind, path, headers, body in requests]
            )
    assert views[0] == views[1] == views[2]


@pytest.mark.slow
def test_servers_of_other_tiles_are_refused_before_anything_is_asked(pair: Pair, tmp_path: Path) -> None:
    other = cut(street("http", cameras=40).scene, CutOptions(tile_bytes=4000, words=8, asked=2))
    write_tiles(tmp_path / "tiles", other)
    add_served(pair.folder / "second" / TILES, "other", tmp_path / "tiles", localizations=None)
    elsewhere = f"{pair.second.url}/v1/tiles/other"
    for urls, exit, error, told in (
        ([pair.urls[0], elsewhere], "two-servers", FileFormatError, "servers must have the same tiles"),
        ([elsewhere], "one-server", InputError, "of a server that offers it"),
        ([pair.urls[0]], "two-servers", InputError, "two servers or more"),
        ([pair.urls[0], pair.urls[0]], "two-servers", InputError, "different ones"),
        ([], None, InputError, "give one address"),
    ):
        with pytest.raises(error, match=told):
            open_tiles(urls, exit=exit)  # type: ignore[arg-type]
    with pytest.raises(FileFormatError, match="do not use it"):
        open_tiles([elsewhere], version=made().manifest.version)
    assert fetcher_of(open_tiles([elsewhere], version=other.manifest.version)).manifest.asked == 2


@pytest.mark.slow
def test_a_version_that_goes_and_a_hint_that_is_cut_off_are_told(pair: Pair, tmp_path: Path) -> None:
    root = pair.folder / "first" / TILES
    add_served(root, "fleeting", pair.folder / "tiles", localizations=2)
    url = f"{pair.first.url}/v1/tiles/fleeting"
    cache = tmp_path / "cache"
    fetcher = fetcher_of(open_tiles([url], exit="one-server", cache=cache))
    hint = root / "fleeting" / made().manifest.version / HINT
    whole = hint.read_bytes()
    hint.write_bytes(whole[:-4])
    assert len(fetcher_of(open_tiles([url], exit="one-server", cache=cache)).fetch([1]).tiles) == 1
    with pytest.raises(Unreachable, match="does not have the"):
        open_tiles([url], exit="one-server")
    hint.write_bytes(whole[:-4] + bytes([whole[-4] ^ 1]) + whole[-3:])
    with pytest.raises(FileFormatError, match="not the one that it names"):
        open_tiles([url], exit="one-server")
    hint.write_bytes(whole)
    remove_served(root, "fleeting")
    with pytest.raises(Unreachable, match="has this version of the tiles no more"):
        fetcher.fetch([1])


def _broken(change: Callable[[dict[str, Any]], None]) -> Callable[[bytes], bytes]:
    def changed(data: bytes) -> bytes:
        value = json.loads(data)
        change(value)
        return json.dumps(value).encode()

    return changed


@pytest.mark.slow
@pytest.mark.parametrize(
    "change",
    [
        lambda data: b"{}",
        lambda data: b"[" * 100_000,
        _broken(lambda value: value.update(version="../../etc")),
        _broken(lambda value: value.update(version="0" * 64)),
        _broken(lambda value: value["exits"]["one-server"].update(parts=10**9)),
        _broken(lambda value: value["exits"]["one-server"].update(parts="2")),
        _broken(lambda value: value["exits"]["one-server"].update(seed="ab")),
        _broken(lambda value: value["exits"]["one-server"].update(hint_bytes=1 << 50)),
        _broken(lambda value: value["exits"].update({"one-server": []})),
    ],
)
def test_what_a_server_says_of_its_exits_may_be_anything(pair: Pair, change: Callable[[bytes], bytes]) -> None:
    with recording() as recorder:
        url = relayed(pair, recorder, "one-server")
        path = f"/v1/tiles/{NAME}/exits.json"
        recorder.answers[path] = change(recorder.answers[path])
        recorder.answer = (404, {}, b"")
        with pytest.raises((FileFormatError, Unreachable)):
            open_tiles([url], exit="one-server")
        assert all(not body for _, _, _, body in recorder.requests)


@pytest.mark.slow
def test_requests_that_no_device_sends_are_refused(pair: Pair) -> None:
    base = f"/v1/tiles/{NAME}/{made().manifest.version}"
    kind = "application/vnd.veil.tile-queries"
    due = pair.first.ask("GET", f"/v1/tiles/{NAME}/exits.json", token="").value["exits"]["two-servers"]["query_bytes"]
    route = f"{base}/answers/two-servers"

    def status(body: bytes, *, path: str = route, type: str = kind) -> int:
        return pair.first.ask("POST", path, token="", body=body, kind=type).status

    assert status(bytes(3 * due)) == 200
    assert status(bytes(2 * due)) == 422 and status(bytes(3 * due + 1)) == 413
    assert status(b"\xff" * 3 * due) == (200 if len(made().manifest) % 8 == 0 else 400)
    assert status(bytes(3 * due), type="text/plain") == 415
    for path in (f"{base}/answers/three-servers", f"{base[:-1]}0/answers/two-servers", "/v1/tiles/none/x/answers/two-servers"):
        assert status(bytes(3 * due), path=path) in (404, 422)
    for file in ("../../veil.sqlite", "..%2f..%2fveil.sqlite", FACTS, "matrix.bin", ".lock", "%2e%2e/versions.json"):
        assert pair.first.ask("GET", f"{base}/{file}", token="").status == 404
    whole = pair.first.ask("GET", f"{base}/tiles.bin", token="", headers={"Range": "bytes=0-9"})
    assert whole.status == 200 and whole.data == made().records.tobytes() and whole.headers["accept-ranges"] == "none"
    asked = pair.first.ask("OPTIONS", route, token="", headers={"Origin": "https://a.example.org"})
    assert asked.status == 204 and asked.headers["access-control-allow-origin"] == "*"


@pytest.mark.slow
def test_the_version_before_stays_and_older_ones_go(pair: Pair, tmp_path: Path) -> None:
    root, names = tmp_path / "served", []
    for asked in (1, 2, 3):
        folder = tmp_path / f"tiles {asked}"
        write_tiles(folder, cut(street("http", cameras=40).scene, CutOptions(tile_bytes=4000, words=8, asked=asked)))
        names.append(add_served(root, NAME, folder, localizations=None))
    kept = {item.name for item in (root / NAME).iterdir() if item.is_dir()}
    assert kept == set(names[1:])
    again = add_served(root, NAME, tmp_path / "tiles 2", localizations=2)
    assert again == names[1] and (root / NAME / again / HINT).is_file()
    with pytest.raises(InputError, match="no name"):
        add_served(root, "../up", tmp_path / "tiles 2", localizations=None)
    shutil.rmtree(root)
    with pytest.raises(InputError, match="no tiles are called"):
        remove_served(root, NAME)


def _without_dimension(path: Path, **other: int) -> None:
    facts = json.loads(path.read_text())
    facts.pop("dimension", None)
    path.write_text(json.dumps(facts | other))


@pytest.mark.slow
def test_an_exit_of_another_dimension_is_refused_until_the_tiles_are_added_again(pair: Pair) -> None:
    """Facts that name no dimension are of 1024, which is too small. Adding the same tiles again writes the exit anew."""
    root = pair.folder / "first" / TILES
    add_served(root, "earlier", pair.folder / "tiles", localizations=2)
    folder = root / "earlier" / made().manifest.version
    before = (folder / HINT).read_bytes()
    for other, dimension in (({}, "1024"), ({"dimension": 2048}, "2048")):
        _without_dimension(folder / FACTS, **other)
        with pytest.raises(FileFormatError, match=f"has dimension {dimension}, and this version of veil takes 1408 alone"):
            read_one_server(folder, records=len(made().manifest), size=made().manifest.record_bytes)
    add_served(root, "earlier", pair.folder / "tiles", localizations=2)
    assert len((folder / HINT).read_bytes()) == len(before) and (folder / HINT).read_bytes() != before
    fetcher = fetcher_of(open_tiles([f"{pair.first.url}/v1/tiles/earlier"], exit="one-server"))
    assert fetcher.exit.fetch([1, 0, 2]) == [made().records[index].tobytes() for index in (1, 0, 2)]
    remove_served(root, "earlier")


@pytest.mark.slow
def test_a_device_refuses_an_exit_of_another_dimension(pair: Pair) -> None:
    with recording() as recorder:
        url = relayed(pair, recorder, "one-server")
        path = f"/v1/tiles/{NAME}/exits.json"
        recorder.answers[path] = _broken(lambda value: value["exits"]["one-server"].pop("dimension"))(recorder.answers[path])
        with pytest.raises(FileFormatError, match="dimension 1024, and this version of veil takes 1408 alone"):
            open_tiles([url], exit="one-server")
        assert all(not body for _, _, _, body in recorder.requests)
