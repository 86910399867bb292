"""Pages of the viewer in Chromium: drawn where the map says, turned by mouse and fingers, and silent."""

from __future__ import annotations

import base64
import io
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from veil.report.viewer.content import AttackPicture, Known, View, view_of_scene
from veil.report.viewer.page import page
from worlds.browser import FLAGS, SOFTWARE_GL, Browser, browsing, chromium
from worlds.map_scenes import planted_map

pytestmark = [pytest.mark.slow, pytest.mark.skipif(chromium() is not None, reason=chromium() or "")]
HOSTILE = "</script><script>hacked = 1</script><img src=x onerror='hacked = 1'>"
SIZE = (900, 700)


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with browsing(SOFTWARE_GL) as browser:
        yield browser


@pytest.fixture(scope="module")
def view() -> View:
    """A map from lines with a hostile name, a red photograph and a green picture of an attack."""
    scene, _ = planted_map("browser", "lines", images=5, points=120)
    made = view_of_scene(scene, "planted")
    first, second, *others = made.images
    images = [replace(first, name=HOSTILE, told=(HOSTILE,)), second, *others]
    colors = {"red": (220, 20, 20), "green": (20, 200, 20)}
    red, green = (np.full((96, 128, 3), color, dtype=np.uint8) for color in colors.values())
    return replace(
        made,
        images=images,
        known={second.name: Known(photograph=red, keypoints=np.array([[10.0, 10.0]]))},
        recovered={second.name: [AttackPicture(title="drawn by an attack", rgb=green)]},
    )


def opened(browser: Browser, html: str, folder: Path, name: str = "view.html") -> None:
    """The page on a screen of SIZE, drawn."""
    (folder / name).write_text(html)
    browser.screenshot(width=SIZE[0], height=SIZE[1])
    browser.log()
    browser.complaints()
    browser.open(f"file://{folder / name}")
    browser.wait("return !!globalThis.veilView")
    browser.run("if (!veilView.view.gallery) veilView.frame()")


def requested(browser: Browser) -> list[str]:
    """The addresses of all that a page asked for since it was opened."""
    events = [event for event in browser.log() if event["method"] == "Network.requestWillBeSent"]
    return [event["params"]["request"]["url"] for event in events]


def complaints(browser: Browser) -> list[str]:
    """The browser's messages about the page, without those about drawing by the processor."""
    return [text for text in browser.complaints() if "GL Driver Message" not in text and "software WebGL" not in text]


@contextmanager
def listening() -> Iterator[tuple[int, list[bytes]]]:
    """A port, and the first bytes of whatever comes to it."""
    heard: list[bytes] = []
    with socket.create_server(("127.0.0.1", 0)) as server:

        def accept() -> None:
            while True:
                try:
                    connection, _ = server.accept()
                except OSError:
                    return
                with connection:
                    connection.settimeout(2)
                    heard.append(connection.recv(100))

        thread = threading.Thread(target=accept, daemon=True)
        thread.start()
        yield server.getsockname()[1], heard
        server.shutdown(socket.SHUT_RDWR)
    thread.join(5)


ASK = """
const address = `http://127.0.0.1:${arguments[0]}/`;
fetch(address, { mode: "no-cors" }).catch(() => undefined);
new Image().src = `${address}picture`;
try { new Worker(`${address}worker`); } catch { undefined; }
const style = document.createElement("link");
Object.assign(style, { rel: "stylesheet", href: `${address}style` });
document.head.append(style);
"""


def test_no_request_leaves_the_page(browser: Browser, view: View, tmp_path: Path) -> None:
    """Oracles: Chromium's log of requests, and a port that listens, while the page itself is made to ask.

    Broken twin: the page without its policy, whose requests arrive.
    """
    html = page(view).html
    opened(browser, html, tmp_path)
    for mode in ("device", "attack", "server"):
        browser.run(
            "veilView.setMode(arguments[0]); for (const image of veilView.view.images) veilView.choose({ image })", mode
        )
        browser.run("veilView.frame()")
    addresses = requested(browser)
    assert [url for url in addresses if not url.startswith("data:")] == [f"file://{tmp_path / 'view.html'}"]
    assert browser.run("return globalThis.hacked === undefined") and complaints(browser) == []
    with listening() as (port, heard):
        browser.run(ASK, port)
        time.sleep(1)
        assert heard == [] and any("Content Security Policy" in text for text in browser.complaints())
        start = html.index('<meta http-equiv="Content-Security-Policy"')
        opened(browser, html[:start] + html[html.index(">", start) + 1 :], tmp_path, "twin.html")
        browser.run(ASK, port)
        deadline = time.monotonic() + 10
        while not heard and time.monotonic() < deadline:
            time.sleep(0.1)
        assert any(text.startswith(b"GET /") for text in heard)


def shot(browser: Browser) -> np.ndarray:
    """The screen's pixels, int (rows, columns, 3)."""
    data = browser.screenshot(width=SIZE[0], height=SIZE[1])
    return np.asarray(Image.open(io.BytesIO(data)).convert("RGB")).astype(int)


def on_screen(browser: Browser, place: list[float]) -> tuple[float, float]:
    """Where a place of the page is on the screen, in CSS pixels."""
    x, y, w = browser.run("return veilView.project(arguments[0])", place)
    assert w > 0
    return (x / w + 1) / 2 * SIZE[0], (1 - y / w) / 2 * SIZE[1]


def press(browser: Browser, x: float, y: float) -> None:
    """A click of the mouse."""
    for kind in ("mousePressed", "mouseReleased"):
        browser.devtools("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", clickCount=1)


def test_points_are_drawn_where_they_are(browser: Browser, view: View, tmp_path: Path) -> None:
    """Oracle: the projection of each point by the page's own eye; broken twin: the same places mirrored are mostly empty."""
    opened(browser, page(view).html, tmp_path)
    browser.run("document.querySelector('[data-layer=cameras]').click()")
    time.sleep(0.5)
    pixels, background = shot(browser), shot(browser)[SIZE[1] // 2, SIZE[0] - 3]
    places = [browser.run("return veilView.placeOf(arguments[0])", row) for row in range(0, 120, 3) if row < len(view.points)]
    counts = {False: 0, True: 0}
    for place in places:
        x, y = on_screen(browser, place)
        for mirrored in counts:
            column = SIZE[0] - x if mirrored else x
            if 0 < column < SIZE[0] - 1 and 200 < y < SIZE[1] - 120:
                counts[mirrored] += int(np.abs(pixels[round(y), int(column)] - background).max() > 30)
    assert counts[False] > 0.9 * len(places) * 0.8 and counts[True] < 0.5 * counts[False]


def test_a_click_chooses_and_a_drag_turns(browser: Browser, view: View, tmp_path: Path) -> None:
    """Oracles: the names and places in the page's record; a hand that moves changes the eye, and only where it should."""
    opened(browser, page(view).html, tmp_path)
    images = browser.run("return veilView.view.images.map(({ name, pose }) => [name, pose.center])")
    name, center = images[1]
    press(browser, *on_screen(browser, center))
    assert browser.run("return veilView.state.image.name") == name
    assert browser.run("return document.getElementById('name').textContent") == name
    browser.click("#close")
    assert browser.run("return veilView.state.image === null && document.getElementById('panel').hidden")
    before = browser.run("return [...veilView.orbit.axes.eye, veilView.orbit.distance]")
    browser.devtools("Input.dispatchMouseEvent", type="mousePressed", x=600, y=500, button="left", clickCount=1)
    for x in (620, 660, 700):
        browser.devtools("Input.dispatchMouseEvent", type="mouseMoved", x=x, y=500, button="left", buttons=1)
    browser.devtools("Input.dispatchMouseEvent", type="mouseReleased", x=700, y=500, button="left", clickCount=1)
    turned = browser.run("return [...veilView.orbit.axes.eye, veilView.orbit.distance]")
    assert turned[3] == before[3] and max(abs(a - b) for a, b in zip(turned, before, strict=True)) > 0.1
    assert browser.run("return veilView.state.image === null")  # a drag is no click
    browser.devtools("Input.dispatchMouseEvent", type="mouseWheel", x=600, y=500, deltaX=0, deltaY=-120)
    browser.wait(f"return veilView.orbit.distance < {turned[3]}")


def touch(browser: Browser, kind: str, *fingers: tuple[float, float]) -> None:
    """Fingers that touch, move, or (none) are lifted."""
    points = [{"x": x, "y": y, "id": number} for number, (x, y) in enumerate(fingers)]
    browser.devtools("Input.dispatchTouchEvent", type=kind, touchPoints=points)


def test_two_fingers_zoom_and_pan(browser: Browser, view: View, tmp_path: Path) -> None:
    """Defining property: fingers that part bring the eye nearer by the ratio of their distances; those that go along pan."""
    opened(browser, page(view).html, tmp_path)
    distance = browser.run("return veilView.orbit.distance")
    touch(browser, "touchStart", (400, 500), (500, 500))
    for part in (10, 25, 50):
        touch(browser, "touchMove", (400 - part, 500), (500 + part, 500))
    touch(browser, "touchEnd")
    browser.wait(f"return veilView.orbit.distance < {0.7 * distance}")
    nearer = browser.run("return veilView.orbit.distance")
    assert 0.45 * distance < nearer < 0.6 * distance
    target = browser.run("return veilView.orbit.target")
    touch(browser, "touchStart", (400, 500), (500, 500))
    for part in (20, 60, 90):
        touch(browser, "touchMove", (400, 500 - part), (500, 500 - part))
    touch(browser, "touchEnd")
    browser.wait(f"return Math.hypot(...veilView.orbit.target.map((value, k) => value - {target}[k])) > 0.05")
    assert browser.run("return veilView.orbit.distance") == pytest.approx(nearer, rel=0.12)
    assert browser.run("return veilView.state.image === null && veilView.state.point === null")


def middle(browser: Browser) -> list[int]:
    """The color in the middle of the panel's picture."""
    return browser.run(
        "const canvas = document.getElementById('picture'); const context = canvas.getContext('2d');"
        "return [...context.getImageData(canvas.width / 2, canvas.height / 2, 1, 1).data]"
    )


def test_the_switch_shows_what_each_has(browser: Browser, view: View, tmp_path: Path) -> None:
    """Planted truth: a red photograph on the device, a green picture of an attack, and lines alone on the server."""
    opened(browser, page(view).html, tmp_path)
    browser.run("veilView.choose({ image: veilView.view.images[1] })")
    seen: dict[str, Any] = {}
    for mode in ("device", "attack", "server"):
        browser.click(f"[data-mode='{mode}']")
        browser.wait("return veilView.view.pictures.length === 2")
        time.sleep(0.3)
        caption = browser.run("return document.getElementById('caption').textContent")
        checked = browser.run("return document.querySelector('[aria-checked=true]').dataset.mode")
        seen[mode] = (middle(browser), caption)
        assert checked == mode
    assert seen["device"][0][0] > 180 > 80 > seen["device"][0][1] and "photograph" in seen["device"][1]
    assert seen["attack"][0][1] > 160 > 80 > seen["attack"][0][0] and seen["attack"][1] == "drawn by an attack"
    assert "A line through each keypoint" in seen["server"][1]
    browser.run("veilView.setMode('device'); veilView.choose({ image: veilView.view.images[2] })")
    assert "view_map(device" in browser.run("return document.getElementById('caption').textContent")


@pytest.mark.parametrize("kind", ["positions", "lines"])
def test_two_images_are_joined_by_the_points_that_both_see(kind: str, browser: Browser, tmp_path: Path) -> None:
    """Oracle: the intersection of the map's rows. Strokes join keypoints; of lines nothing is joined, as no place is known."""
    scene, _ = planted_map("pairs", kind, images=4, points=60)
    made = view_of_scene(scene, "pairs")
    opened(browser, page(made).html, tmp_path)
    first, second = made.images[0], made.images[2]
    rows = [item.point_rows[item.point_rows >= 0] for item in (first, second)]
    both = np.intersect1d(rows[0], rows[1])
    assert len(both) > 5
    browser.run("veilView.choose({ image: veilView.view.images[0] })")
    told = browser.run("return [...document.getElementById('other').options].map(({ value, text }) => [value, text])")
    assert ["2", f"{second.name} ({len(both)})"] in told and len(told) == 4  # "3 images ..." and these
    caption = "return document.getElementById('caption').textContent"
    alone = browser.run(caption)
    browser.run("veilView.compare(veilView.view.images[2])")
    assert f"{len(both)} points of the map are seen by both" in browser.run(caption)
    assert ("Lines of one color" in browser.run(caption)) == (kind == "lines")
    drawn = browser.run(
        "const canvas = document.getElementById('picture');"
        "const { data } = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height);"
        "const { images } = veilView.view; const factor = canvas.width / images[0].size[0];"
        "return veilView.shared(images[0], images[2]).map(([row]) => veilView.pixels(images[0], [row])[0]).map(([x, y]) =>"
        " data[4 * (Math.round(y * factor) * canvas.width + Math.round(x * factor)) + 3])"
    )
    share = np.mean(np.array(drawn) > 0)
    assert share == 1 if kind == "positions" else share < 1
    browser.run("document.dispatchEvent(new KeyboardEvent('keydown', { key: 'Escape' }))")
    browser.run("veilView.choose({ image: veilView.view.images[0] })")
    for count in (1, 2, 3):  # M: the next; after the last one none
        browser.run("document.dispatchEvent(new KeyboardEvent('keydown', { key: 'm' }))")
        assert browser.run("return document.getElementById('other').selectedIndex") == count
    browser.run("document.dispatchEvent(new KeyboardEvent('keydown', { key: 'm' }))")
    assert browser.run(caption) == alone and complaints(browser) == []


def test_an_audit_alone_is_a_gallery(browser: Browser, view: View, tmp_path: Path) -> None:
    """A page without points or poses draws no scene, and still switches."""
    bare = replace(view, points=np.zeros((0, 3)), images=[replace(image, cam_from_world=None) for image in view.images])
    bare = replace(bare, images=[replace(image, point_rows=np.full_like(image.point_rows, -1)) for image in bare.images])
    opened(browser, page(bare).html, tmp_path)
    browser.click("#next")
    browser.click("[data-mode='attack']")
    browser.wait("return document.getElementById('caption').textContent === 'drawn by an attack'")
    assert browser.run("return getComputedStyle(document.getElementById('scene')).display") == "none"
    assert complaints(browser) == []


def test_a_browser_without_webgl_is_told_what_to_do(view: View, tmp_path: Path) -> None:
    with browsing((*FLAGS, "--disable-3d-apis")) as browser:
        (tmp_path / "view.html").write_text(page(view).html)
        browser.open(f"file://{tmp_path / 'view.html'}")
        browser.wait("return !document.getElementById('trouble').hidden")
        assert "WebGL2" in browser.run("return document.getElementById('trouble').textContent")
        browser.run("veilView.choose({ image: veilView.view.images[0] })")
        assert browser.run("return document.getElementById('name').textContent") == HOSTILE
        assert base64.b64encode(browser.screenshot(width=390, height=844))
