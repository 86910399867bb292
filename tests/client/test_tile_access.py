"""Tiles from a server of files: all of them or none, in four requests that are the same for all devices."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from veil.client.connection import Unreachable
from veil.client.tile_access import EXITS, open_tiles
from veil.errors import FileFormatError, InputError
from veil.files.tiles import BINARY, JSON, RECORDS, write_tiles
from veil.tiles.cutting import CutOptions, cut
from veil.tiles.fetching import fetcher_of
from worlds.tile_streets import street

ASKED: list[str] = []


class Files(SimpleHTTPRequestHandler):
    """A server of files that remembers the first line and the headers of what it is asked."""

    def log_error(self, format: str, *values: object) -> None:
        """Nothing: a file that does not exist gets the same line as every other."""

    def log_message(self, format: str, *values: object) -> None:
        headers = "".join(f" {name}" for name in sorted(self.headers))
        ASKED.append(f"{values[0]}{headers}")


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, Path]]:
    """The address of a folder of tiles, and the folder."""
    folder = tmp_path_factory.mktemp("web")
    write_tiles(folder / "tiles", cut(street("download", cameras=10).scene, CutOptions(tile_bytes=9000, words=8, asked=2)))
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Files, directory=str(folder)))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_address[1]}/tiles", folder / "tiles"
    server.shutdown()
    server.server_close()


def test_requests_are_the_same_whatever_is_wanted(served: tuple[str, Path]) -> None:
    """Oracle: what the server logs, for devices that want different tiles, several times."""
    views = []
    for wanted in ([0], [3, 1], [2]):
        ASKED.clear()
        fetcher = fetcher_of(open_tiles([served[0]]))
        for _ in range(3):
            fetched = fetcher.fetch(wanted)
            assert [tile.index for tile in fetched.tiles] == wanted and fetched.refused == {}
        views.append(list(ASKED))
    assert views[0] == views[1] == views[2]
    assert [line.split()[1] for line in views[0]] == [f"/tiles/{name}" for name in (EXITS, JSON, BINARY, RECORDS)]
    assert all("Authorization" not in line and "Cookie" not in line for line in views[0])


def test_what_is_not_there_or_too_much_is_told(served: tuple[str, Path]) -> None:
    url, folder = served
    with pytest.raises(Unreachable, match="status 404"):
        open_tiles([f"{url}/elsewhere"])
    with pytest.raises(InputError, match="more than 10000"):
        open_tiles([url], most_bytes=10_000)
    with pytest.raises(Unreachable, match="does not answer"):
        open_tiles(["http://127.0.0.1:9/tiles"], timeout_s=2.0)
    for wrong in ("ftp://a/b", "tiles", "https://user@a/b", "https://a/b?c=d"):
        with pytest.raises(InputError, match="no address"):
            open_tiles([wrong])
    with pytest.raises(InputError, match="use https"):
        open_tiles(["http://maps.example.org/tiles"])
    records = (folder / RECORDS).read_bytes()
    fetcher = fetcher_of(open_tiles([url]))
    for bad in (records[:-1], records + b"\0"):
        (folder / RECORDS).write_bytes(bad)
        with pytest.raises(Unreachable, match="does not have"):
            fetcher.fetch([1])
    (folder / RECORDS).write_bytes(records)
    assert len(fetcher.fetch([1]).tiles) == 1
    (folder / JSON).write_bytes((folder / JSON).read_bytes().replace(b'"asked": 2', b'"asked": 3'))
    with pytest.raises(FileFormatError):
        open_tiles([url])
