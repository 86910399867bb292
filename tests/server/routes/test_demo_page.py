"""The demo page: its files and headers, what it shows of maps, and a photograph that Chromium localizes by words."""

from __future__ import annotations

import base64
import io
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from veil.demo import demo_features, rehearse_words, write_demo_map
from veil.device.doors import localize
from veil.extraction.sift import SiftOptions, extract_sift
from veil.files.codebooks import bundled_codebook, read_codebook
from veil.files.photographs.examples import HELD_OUT, lund_door
from veil.files.photographs.pictures import read_picture
from veil.forms import Subsets
from veil.places.held_map import Map
from veil.places.poses.answer import Localization
from veil.server.jobs.tasks import NOTHING_BESIDE, Beside
from veil.server.maps.policy import MapPolicy
from veil.server.service import Service
from veil.server.settings import ServerSettings
from veil.wire import decode
from veil.wire.message import Upload
from worlds import generator
from worlds.browser import Browser, browsing, chromium
from worlds.servers import MESSAGE_TYPE, Running, running

QUERY = HELD_OUT[0]


class Listening(Service):
    """A service that remembers the messages of queries as they arrived."""

    heard: list[bytes]

    def localize(self, token: Any, map_id: str, message: bytes, beside: Beside = NOTHING_BESIDE) -> dict[str, Any]:
        self.heard.append(message)
        return super().localize(token, map_id, message, beside)


@pytest.fixture(scope="module")
def door_map(tmp_path_factory: pytest.TempPathFactory) -> Map:
    """The demo's map; what queries in words compile is compiled before a server has to answer one within its deadline."""
    features = demo_features(max_features=800)
    where = write_demo_map(features, tmp_path_factory.mktemp("map") / "map")
    rehearse_words(next(iter(features.values())), where)
    return where


@pytest.fixture(scope="module")
def server(door_map: Map, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    service = Listening(tmp_path_factory.mktemp("server") / "store", ServerSettings(workers=1, demo_page=True))
    service.heard = []
    assert door_map.folder is not None
    service.import_map("door", door_map.folder, MapPolicy(forms=("words",)))
    with running(service, jobs=False) as server:
        yield server


@pytest.fixture(scope="module")
def secret(server: Running) -> str:
    """A token that may localize on the public map alone, as `veil serve --demo` makes it."""
    (record,) = server.service.records.all()
    return server.service.tokens.make("page", ["localize"], maps=[record.id])[1]


def test_a_server_has_no_page_unless_it_is_asked_for(tmp_path: Path) -> None:
    from veil.server.app import create_app

    paths = {}
    for shown in (False, True):
        service = Service(tmp_path / str(shown), ServerSettings(demo_page=shown))
        paths[shown] = set(create_app(service).openapi()["paths"])
        service.close()
    added = {"/", "/static/{path}", "/demo/photographs", "/demo/photographs/{name}", "/v1/maps/{map_id}/view"}
    assert paths[True] - paths[False] == added and paths[False] < paths[True]


@pytest.mark.slow
def test_files_have_types_and_no_page_may_load_from_elsewhere(server: Running) -> None:
    """The policy allows this origin alone; no file of the page names another one."""
    for path, kind in (
        ("/", "text/html; charset=utf-8"),
        ("/static/page.css", "text/css; charset=utf-8"),
        ("/static/page.js", "text/javascript; charset=utf-8"),
        ("/static/client/sift.js", "text/javascript; charset=utf-8"),
        ("/static/icon.svg", "image/svg+xml"),
        (f"/demo/photographs/{QUERY}", "image/jpeg"),
    ):
        answer = server.ask("GET", path, token="")
        assert answer.status == 200 and answer.headers["content-type"] == kind, (path, answer.headers)
        assert answer.headers["x-content-type-options"] == "nosniff" and answer.headers["referrer-policy"] == "no-referrer"
        text = answer.headers["content-security-policy"]
        policy = dict(part.strip().split(" ", 1) for part in text.split(";"))
        assert policy["default-src"] == "'none'" and policy["connect-src"] == "'self'"
        assert "http" not in text and "unsafe" not in text.replace("wasm-unsafe-eval", "")
        again = server.ask("GET", path, token="", headers={"If-None-Match": answer.headers["etag"]})
        assert again.status == 304 and again.data == b""
        if kind.startswith("text/"):
            links = answer.data.replace(b"http://www.w3.org/2000/svg", b"")
            assert b"http://" not in links and b"https://" not in links and b"onclick=" not in links and b"style=" not in links


@pytest.mark.slow
def test_no_path_leads_out_of_the_page(server: Running) -> None:
    for path in (
        "/static/../app.py",
        "/static/..%2fapp.py",
        "/static/client/../../app.py",
        "/static/%2e%2e/%2e%2e/app.py",
        "/static//etc/passwd",
        "/static/__init__.py",
        "/static/",
        "/static/client",
        "/static/page.js%00",
        "/demo/photographs/..%2f..%2fberlin.jpg",
        "/demo/photographs/DSC_0001.jpg",
    ):
        assert server.ask("GET", path, token="").status == 404, path


@pytest.mark.slow
def test_a_dictionary_is_handed_out_whole(server: Running, secret: str, tmp_path: Path) -> None:
    """Oracle: the reader of codebooks, which verifies the hash; the map says which dictionary it takes."""
    (described,) = server.ask("GET", "/v1/maps", token=secret).value["maps"]
    assert described["dictionaries"] == [bundled_codebook().digest] and described["words"] and described["public"]
    answer = server.ask("GET", f"/v1/dictionaries/{described['dictionaries'][0]}", token=secret)
    assert answer.status == 200 and "immutable" in answer.headers["cache-control"]
    (tmp_path / "book.npz").write_bytes(answer.data)
    assert read_codebook(tmp_path / "book.npz").digest == described["dictionaries"][0]
    assert server.ask("GET", "/v1/dictionaries/" + "0" * 64, token=secret).status == 404
    assert server.ask("GET", f"/v1/dictionaries/{described['dictionaries'][0]}", token="").status == 401


@pytest.mark.slow
def test_a_view_holds_places_and_nothing_else(server: Running, secret: str, door_map: Map) -> None:
    """Oracle: the map's own points, of which the view has each, rounded; numbers of any descriptor are not in it."""
    (described,) = server.ask("GET", "/v1/maps", token=secret).value["maps"]
    value = server.ask("GET", f"/v1/maps/{described['map']}/view", token=secret).value
    assert set(value) == {"map", "map_version", "points", "all_points", "cameras", "all_cameras"}
    scene = door_map.scene
    assert np.abs(np.array(value["points"]) - scene.points).max() <= 1e-3 * scene.extent
    assert {frozenset(camera) for camera in value["cameras"]} == {frozenset({"rotation", "translation"})}
    assert len(value["cameras"]) == value["all_cameras"] == len(scene.images)


def sent(events: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The requests of a browser's log."""
    return [event["params"]["request"] for event in events if event["method"] == "Network.requestWillBeSent"]


def leaks(requests: list[dict[str, Any]], shown: bytes, url: str, secret: str) -> list[str]:
    """Requests that break the page's promise: they go to its server only, and the one body is the bytes shown."""
    wrong = [item["url"] for item in requests if not item["url"].startswith((f"{url}/", f"blob:{url}/"))]
    # The address that the page was opened with has the token in its fragment, which is told apart and not sent.
    wrong += [item["url"] for item in requests if secret in item["url"]]
    bodies = [item for item in requests if item.get("hasPostData") or item["method"] != "GET"]
    if len(bodies) != 1:
        wrong.append(f"{len(bodies)} requests with a body")
    for item in bodies:
        parts = [base64.b64decode(part["bytes"]) for part in item.get("postDataEntries", []) if "bytes" in part]
        if b"".join(parts) != shown or item["headers"].get("Content-Type") != MESSAGE_TYPE:
            wrong.append("a body that is not what was shown")
    return wrong


def shown_bytes(browser: Browser) -> bytes:
    return bytes.fromhex(browser.run("return document.getElementById('bytes').textContent"))


def opened(browser: Browser, server: Running, secret: str) -> None:
    """The page with its map and photographs; it jumps to its parts, as a click must not meet one that moves."""
    browser.devtools("Emulation.setEmulatedMedia", features=[{"name": "prefers-reduced-motion", "value": "reduce"}])
    browser.open(f"{server.url}/#token={secret}")
    browser.wait(
        "return !document.getElementById('map-choice').hidden && document.querySelectorAll('.photograph img').length == 4"
    )
    assert browser.run("return location.href") == f"{server.url}/"


@pytest.mark.slow
@pytest.mark.skipif(chromium() is not None, reason=chromium() or "")
def test_a_photograph_is_localized_by_words_of_the_browser(server: Running, secret: str, door_map: Map) -> None:
    """Oracle of the pose: Python's from raw features of the same photograph; of the bytes: what arrived, and the browser's log.

    Broken twins: a body of which one bit differs, a second body, and a request to another place, are each told.
    """
    with browsing() as browser:
        opened(browser, server, secret)
        browser.click(f"[data-name='{QUERY}']")
        browser.wait("return !document.getElementById('protect').hidden")
        browser.click("#release")
        browser.wait("return !document.getElementById('message').hidden")
        shown = shown_bytes(browser)
        assert server.service.heard == []  # type: ignore[attr-defined]
        browser.click("#send")
        browser.wait("return !document.getElementById('answer').hidden")
        answer = browser.run("return JSON.parse(document.getElementById('answer').dataset.answer)")
        verdict = browser.run("return document.getElementById('verdict').textContent")
        requests = sent(browser.log())
        assert browser.complaints() == []
        _require_second_release_is_refused(browser, len(shown))
    assert server.service.heard == [shown]  # type: ignore[attr-defined]
    assert leaks(requests, shown, server.url, secret) == []
    assert leaks(requests, shown[:-1] + bytes([shown[-1] ^ 1]), server.url, secret) == ["a body that is not what was shown"]
    (posted,) = [item for item in requests if item["method"] == "POST"]
    assert leaks([*requests, posted], shown, server.url, secret) == ["2 requests with a body"]
    assert leaks([*requests, {"url": "https://elsewhere.example/", "method": "GET"}], shown, server.url, secret) != []
    upload = decode(shown)
    assert isinstance(upload, Upload) and isinstance(upload.form, Subsets) and upload.form.mechanism.epsilon == 7
    assert "Localized" in verdict and answer["status"] == "localized"
    _require_same_pose(answer, door_map)


def _require_second_release_is_refused(browser: Browser, length: int) -> None:
    """Another epsilon is another release: the page's ledger refuses it, and a click allows it."""
    browser.run("const e = document.getElementById('epsilon'); e.value = 5; e.dispatchEvent(new Event('input'))")
    browser.click("#release")
    browser.wait("return !document.getElementById('release-again').hidden")
    assert "second" in browser.run("return document.getElementById('release-trouble').textContent")
    first = shown_bytes(browser)
    assert len(first) == length
    browser.click("#release-again")
    browser.wait("return document.getElementById('message-facts').textContent.includes('epsilon 5 ')")
    assert shown_bytes(browser) != first


def _require_same_pose(answer: dict[str, Any], door_map: Map) -> None:
    """The pose by words is that by raw descriptors within five of its own standard deviations, and within a hundredth."""
    with lund_door() as example:
        picture = read_picture(example.folder / QUERY, camera=example.camera)
    pose = localize(extract_sift(picture, SiftOptions(max_features=1536)), door_map)
    assert isinstance(pose, Localization)
    away = np.array(answer["camera_center"]) - pose.cam_from_world.center
    spread = math.sqrt(np.trace(np.array(answer["covariance"])[3:, 3:]))
    assert np.linalg.norm(away) < 5 * spread and np.linalg.norm(away) < 0.02 * door_map.scene.extent
    turn = np.array(answer["cam_from_world"]["rotation"]) @ pose.cam_from_world.rotation.T
    assert math.degrees(math.acos(min(1.0, (np.trace(turn) - 1) / 2))) < 0.5


@pytest.mark.slow
@pytest.mark.skipif(chromium() is not None, reason=chromium() or "")
def test_a_second_frame_leaves_with_the_words_of_the_first(server: Running, secret: str, tmp_path: Path) -> None:
    """Two frames that differ by noise share their words, and the page says how many. Broken twin: the second one by itself."""
    from PIL import Image

    with lund_door() as example, Image.open(example.folder / QUERY) as whole:
        whole.thumbnail((480, 480))
        pixels = np.asarray(whole, dtype=np.float64)
    for number in (0, 1):
        frame = pixels + generator(f"page {number}").normal(scale=1.0, size=pixels.shape)
        Image.fromarray(np.clip(np.round(frame), 0, 255).astype(np.uint8)).save(tmp_path / f"{number}.png")

    def frames(*numbers: int) -> list[tuple[set[bytes], str]]:
        """The words and the facts that a new browser shows of some frames."""
        shown = []
        with browsing() as browser:
            opened(browser, server, secret)
            for number in numbers:
                browser.type("#file", str(tmp_path / f"{number}.png"))
                browser.wait("return !document.getElementById('protect').hidden")
                browser.click("#release")
                browser.wait("return !document.getElementById('message').hidden")
                form = decode(shown_bytes(browser)).form
                assert isinstance(form, Subsets)
                facts = browser.run("return document.getElementById('message-facts').textContent")
                shown.append(({row.tobytes() for row in form.ids}, facts))
        return shown

    (first, said), (second, again) = frames(0, 1)
    (twin, _), *_ = frames(1)
    assert len(first & second) > 0.5 * len(second) and "left before" not in said
    assert f" {len(first & second):,} features left before" in again
    assert len(first & twin) < 0.02 * len(twin)


@pytest.mark.slow
@pytest.mark.skipif(chromium() is not None, reason=chromium() or "")
def test_a_file_or_a_wrong_token_has_a_clear_answer(server: Running, secret: str, tmp_path: Path) -> None:
    """A file that is no photograph, one without features, and a token that the server does not know."""
    from PIL import Image

    blank = io.BytesIO()
    Image.new("RGB", (200, 150), (90, 90, 90)).save(blank, "PNG")
    (tmp_path / "blank.png").write_bytes(blank.getvalue())
    (tmp_path / "text.jpg").write_bytes(b"no photograph")
    with browsing() as browser:
        browser.open(f"{server.url}/#token=veil_wrong")
        browser.wait("return !document.getElementById('token-form').hidden")
        assert "token" in browser.run("return document.getElementById('connection-trouble').textContent")
        browser.type("#token", secret)
        browser.click("#token-form button")
        browser.wait("return !document.getElementById('map-choice').hidden")
        for name, told in (("text.jpg", "cannot read this file"), ("blank.png", "no features")):
            browser.type("#file", str(tmp_path / name))
            browser.wait(f"return document.getElementById('choose-trouble').textContent.includes('{told}')")
            assert browser.run("return document.getElementById('protect').hidden")
        reason = "the best pose has 8 of 1035 features as inliers; is the map of this place?"
        script = "return import('/static/answers.js').then((module) => module.verdictOf(arguments[0]))"
        verdict = browser.run(script, {"status": "no pose", "reason": reason})
        assert not verdict["found"] and verdict["text"].startswith(f"No pose: {reason}")
        browser.click("#camera")
        browser.wait("return document.getElementById('video').videoWidth > 0")
        browser.click("#take")
        browser.wait("return document.getElementById('camera-view').hidden && document.getElementById('choose-state').hidden")
        assert [item for item in sent(browser.log()) if item["method"] != "GET"] == []
