"""The demo page's second way: a photograph is found in private tiles, nothing of it is sent, and it works without a network."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from veil.demo import demo_features, write_demo_map
from veil.extraction.sift import SiftOptions, extract_sift
from veil.files.photographs.examples import HELD_OUT, lund_door
from veil.files.photographs.pictures import read_picture
from veil.files.service.served_tiles import add_served
from veil.files.tiles import write_tiles
from veil.geometry.rigid import rotation_angle_deg
from veil.places.held_map import Map
from veil.places.poses.answer import Localization
from veil.server.maps.policy import MapPolicy
from veil.server.service import Service
from veil.server.settings import ServerSettings
from veil.server.store.identity import TILES
from veil.tiles.cutting import CutMap, CutOptions, cut
from veil.tiles.device import localize_in_tiles
from veil.tiles.fetching import proved_tile
from worlds.browser import Browser, browsing, chromium
from worlds.servers import Running, running

QUERY, ELSEWHERE = HELD_OUT[0], "berlin.jpg"
NAME = "door 1"


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[Map, CutMap]:
    """The demo's map, and its tiles: so small that there are several."""
    where = write_demo_map(demo_features(max_features=800), tmp_path_factory.mktemp("map") / "map")
    return where, cut(where.scene, CutOptions(tile_bytes=60_000))


@contextmanager
def serving(made: tuple[Map, CutMap], folder: Path) -> Iterator[Running]:
    """A server with the page, the map and its tiles."""
    door_map, tiles = made
    service = Service(folder / "store", ServerSettings(workers=1, demo_page=True))
    assert door_map.folder is not None
    service.import_map(NAME, door_map.folder, MapPolicy(forms=("words",)))
    write_tiles(folder / "tiles", tiles)
    add_served(folder / "store" / TILES, "door-1", folder / "tiles", localizations=None)
    with running(service, jobs=False) as server:
        yield server


@pytest.fixture
def server(made: tuple[Map, CutMap], tmp_path: Path) -> Iterator[Running]:
    with serving(made, tmp_path) as server:
        yield server


def opened(browser: Browser, server: Running) -> str:
    """The page with its map; returns the token that it was opened with."""
    (record,) = server.service.records.all()
    secret = server.service.tokens.make("page", ["localize"], maps=[record.id])[1]
    browser.devtools("Emulation.setEmulatedMedia", features=[{"name": "prefers-reduced-motion", "value": "reduce"}])
    browser.open(f"{server.url}/#token={secret}")
    ready(browser)
    return secret


def ready(browser: Browser) -> None:
    browser.wait("return document.querySelectorAll('.photograph img[src]').length == 4")
    browser.wait("return !document.getElementById('map-note').hidden")


def found(browser: Browser, name: str) -> dict[str, Any]:
    """The answer that the page finds for a bundled photograph."""
    browser.run("document.getElementById('answer').hidden = true")
    browser.click(f"[data-name='{name}']")
    browser.wait("return !document.getElementById('alone').hidden")
    browser.click("#find")
    browser.wait(
        "return !document.getElementById('answer').hidden || document.getElementById('find-trouble').textContent", seconds=120
    )
    assert browser.run("return document.getElementById('find-trouble').textContent") == ""
    return browser.run("return JSON.parse(document.getElementById('answer').dataset.answer)")


def requested(browser: Browser) -> list[tuple[str, str, bool]]:
    """Method, address and whether there was a body, of each request since the last call."""
    events = [event["params"]["request"] for event in browser.log() if event["method"] == "Network.requestWillBeSent"]
    return [(item["method"], item["url"], bool(item.get("hasPostData"))) for item in events if item["url"].startswith("http")]


@pytest.mark.slow
@pytest.mark.skipif(chromium() is not None, reason=chromium() or "")
def test_nothing_but_requests_for_tiles_is_sent(server: Running, made: tuple[Map, CutMap]) -> None:
    """Oracles: Python's pose in the same tiles, and the browser's log. A photograph of elsewhere sends no more."""
    with browsing() as browser:
        secret = opened(browser, server)
        browser.wait("return navigator.serviceWorker.controller !== null")
        views = []
        for name in (QUERY, ELSEWHERE):
            browser.click(f"[data-name='{name}']")
            browser.wait("return !document.getElementById('alone').hidden")
            requested(browser)
            answer = found(browser, name)
            views.append([item for item in requested(browser) if "/static/client/" not in item[1]])
            assert answer["status"] == ("localized" if name == QUERY else "no pose")
            shown = browser.run("return document.getElementById('request-bytes').textContent")
            rows = browser.run("return [...document.querySelectorAll('#requests tr')].map((row) => row.innerText)")
            if name == QUERY:
                require_pose(answer, made)
                assert len(rows) == 4 and [row.split()[1] for row in rows] == [
                    "exits.json",
                    "manifest.json",
                    "manifest.bin",
                    "tiles.bin",
                ]
                assert [line.split(" ")[0] for line in shown.splitlines()] == ["GET"] * 4
            else:
                assert rows == [] and "Nothing was sent" in shown
        assert browser.complaints() == []
    for method, address, has_body in [*views[0], *views[1]]:
        assert method == "GET" and not has_body and secret not in address
        assert address.startswith(f"{server.url}/v1/tiles/door-1/")
    assert len({address for _, address, _ in views[0]}) == 4 and views[1] == []


@pytest.mark.slow
@pytest.mark.skipif(chromium() is not None, reason=chromium() or "")
def test_the_page_works_without_its_server(made: tuple[Map, CutMap], tmp_path: Path) -> None:
    """The server is ended after one photograph. Broken twin: a browser that never saw the page has nothing."""
    with browsing() as browser:
        with serving(made, tmp_path) as server:
            opened(browser, server)
            browser.wait("return navigator.serviceWorker.controller !== null", seconds=120)
            found(browser, QUERY)
        browser.open(f"{server.url}/")
        ready(browser)
        assert "is kept in this browser" in browser.run("return document.getElementById('map-note').textContent")
        require_pose(found(browser, QUERY), made)
        assert browser.run("return document.getElementById('protect').hidden")
    with browsing() as another, pytest.raises(AssertionError, match="ERR_CONNECTION_REFUSED"):
        another.open(f"{server.url}/")


@pytest.mark.slow
@pytest.mark.skipif(chromium() is not None, reason=chromium() or "")
@pytest.mark.parametrize("width", [390, 1280])
def test_nothing_is_wider_than_the_screen(server: Running, width: int) -> None:
    with browsing() as browser:
        opened(browser, server)
        found(browser, QUERY)
        browser.screenshot(width=width)
        assert browser.run("return document.documentElement.scrollWidth") <= width


def require_pose(answer: dict[str, Any], made: tuple[Map, CutMap]) -> None:
    """The pose is Python's from the same photograph in all tiles, but for what a browser decodes otherwise."""
    door_map, tiles = made
    with lund_door() as example:
        picture = read_picture(example.folder / QUERY, camera=example.camera)
    all_tiles = [proved_tile(tiles.manifest, index, tiles.records[index].tobytes()) for index in range(len(tiles.manifest))][
        : tiles.manifest.asked
    ]
    pose = localize_in_tiles(extract_sift(picture, SiftOptions(max_features=1536)), tiles.manifest, all_tiles)
    assert isinstance(pose, Localization)
    away = float(np.linalg.norm(np.array(answer["camera_center"]) - pose.center))
    assert away < 2e-3 * door_map.scene.extent
    turn = np.array(answer["cam_from_world"]["rotation"]) @ pose.rotation.T
    assert rotation_angle_deg(turn) < 0.1
