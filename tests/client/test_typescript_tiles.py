"""The exits of tiles in TypeScript, in Node.js and in a page in Chromium, from two real servers of other origins."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any, get_args

import numpy as np
import pytest

from veil.client.tile_access import TileExit, open_tiles
from veil.files.service.served_tiles import add_served
from veil.files.tiles import write_tiles
from veil.ldp.guarantee import NoProof
from veil.server.service import Service
from veil.server.settings import ServerSettings
from veil.server.store.identity import TILES
from veil.tiles.cutting import CutMap, CutOptions, cut
from veil.tiles.device import wanted_tiles
from worlds.browser import browsing, chromium
from worlds.servers import running
from worlds.tile_streets import street
from worlds.typescript_package import COPY, package, ran

__all__ = ["package"]
PLACE = [12.0, 0.0, 0.0]


@pytest.fixture(scope="module")
def tiles(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[CutMap, list[str]]]:
    """Tiles, and the addresses of two servers that have them. The first one offers all exits."""
    folder = tmp_path_factory.mktemp("tiles")
    made = cut(street("typescript", cameras=24).scene, CutOptions(tile_bytes=1800, words=8, asked=3))
    write_tiles(folder / "tiles", made)
    add_served(folder / "first" / TILES, "street", folder / "tiles", localizations=2, hintless=True)
    add_served(folder / "second" / TILES, "street", folder / "tiles", localizations=None)
    settings = ServerSettings(workers=1)
    with (
        running(Service(folder / "first", settings), jobs=False) as first,
        running(Service(folder / "second", settings), jobs=False) as second,
    ):
        yield made, [f"{server.url}/v1/tiles/street" for server in (first, second)]


def digests(made: CutMap) -> dict[str, str]:
    records = enumerate(made.records[:, : made.manifest.tile_bytes])
    return {str(index): hashlib.sha256(record.tobytes()).hexdigest() for index, record in records}


@pytest.mark.slow
def test_every_tile_arrives_in_node(package: Path, tiles: tuple[CutMap, list[str]], tmp_path: Path) -> None:
    """Oracles: the records as they were cut, and Python's promise of each exit and its tiles nearest to a place."""
    made, urls = tiles
    described = {"urls": urls, "version": made.manifest.version, "place": PLACE}
    (tmp_path / "tiles.json").write_text(json.dumps(described))
    ran(package, "tile_servers.test.js", VEIL_TILES=tmp_path / "tiles.json", VEIL_FOUND=tmp_path / "found.json")
    fetched = json.loads((tmp_path / "found.json").read_text())
    assert list(fetched["exits"]) == list(get_args(TileExit))
    for exit, got in fetched["exits"].items():
        assert got["tiles"] == digests(made), exit
        promise = open_tiles(urls if exit == "two-servers" else urls[:1], exit=exit).guarantee
        assert not isinstance(promise, NoProof) and got["guarantee"] == promise.sentence
    assert fetched["near"] == wanted_tiles(made.manifest, near=np.array(PLACE))


class _Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *_: Any) -> None:
        pass


@pytest.mark.slow
@pytest.mark.parametrize("exit", ["two-servers", "hintless"])
def test_a_page_fetches_from_other_origins(tiles: tuple[CutMap, list[str]], exit: str, tmp_path: Path) -> None:
    """Oracles: the records, and the browser's own log: the same requests and headers for all tiles."""
    if (missing := chromium()) is not None:
        pytest.skip(missing)
    made, urls = tiles
    asked = urls if exit == "two-servers" else urls[:1]
    (tmp_path / "page.html").write_text("<!doctype html><title>tiles</title>")
    (tmp_path / "client").symlink_to(COPY)
    pages = ThreadingHTTPServer(("127.0.0.1", 0), partial(_Quiet, directory=str(tmp_path)))
    Thread(target=pages.serve_forever, daemon=True).start()
    script = """
        window.fetched = null;
        const [urls, exit, wanted] = arguments;
        import("/client/tiles.js").then(async ({ TileServers }) => {
          const { hex } = await import("/client/bytes.js"), { sha256 } = await import("/client/digests.js");
          const { tiles, refused } = await (await TileServers.open(urls, { exit })).fetch(wanted);
          window.fetched = [[...tiles].map(([index, bytes]) => [index, hex(sha256(bytes))]), refused.size];
        }).catch((error) => { window.fetched = String(error); });
    """
    views = []
    try:
        with browsing() as browser:
            browser.open(f"http://127.0.0.1:{pages.server_address[1]}/page.html")
            for wanted in ([0], [7, 4, 2]):
                browser.log()
                browser.run(script, asked, exit, wanted)
                fetched = browser.wait("return window.fetched")
                assert fetched == [
                    [[index, digests(made)[str(index)]] for index in sorted(wanted, key=lambda i: order(fetched, i))],
                    0,
                ]
                views.append(sorted(posts(browser.log())))
    finally:
        pages.shutdown()
        pages.server_close()
    assert views[0] == views[1] and len(views[0]) == len(asked)


def order(fetched: Any, index: int) -> int:
    """The position of a tile among those that a page fetched; they come in random order."""
    return [item[0] for item in fetched[0]].index(index)


def posts(events: list[dict[str, Any]]) -> list[str]:
    """Address and headers of each request with a body, but for its length, which Node.js's test compares."""
    told = []
    for event in events:
        request = event["params"].get("request", {})
        if event["method"] == "Network.requestWillBeSent" and request.get("method") == "POST":
            headers = {name: value for name, value in request["headers"].items() if name != "Content-Length"}
            told.append(f"{request['url']} {sorted(headers.items())}")
    return told
