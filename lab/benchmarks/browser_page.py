"""How does the demo page look, and how long does each of its steps take in Chromium?

Serves the public map of the bundled photographs, opens the page, localizes a photograph by words, prints the seconds of each
step, and writes browser.png (1280 px wide) and browser_phone.png (390 px wide, dark) into a folder: the figures of
docs/reference/browser.md.
"""

from __future__ import annotations

import argparse
import io
import sys
import tempfile
import time
from pathlib import Path

from PIL import Image

sys.path.insert(0, str(Path(__file__).parents[2] / "tests"))
from veil.demo import demo_features, write_demo_map
from veil.files.photographs.examples import HELD_OUT
from veil.server.maps.policy import MapPolicy
from veil.server.service import Service
from veil.server.settings import ServerSettings
from worlds.browser import Browser, browsing, chromium
from worlds.servers import running

STEPS = (
    ("the page with its map and photographs", "", "!map-choice", "return document.querySelectorAll('.photograph img').length"),
    ("the features of the photograph", f"[data-name='{HELD_OUT[0]}']", "!protect", ""),
    ("the release in words", "#release", "!message", ""),
    ("the answer", "#send", "!answer", ""),
)
PHONE = (390, 844)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("output", type=Path, help="a folder for the pictures")
    arguments = parser.parse_args()
    if (reason := chromium()) is not None:
        raise SystemExit(reason)
    arguments.output.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="veil-browser-page-") as folder:
        write_demo_map(demo_features(), Path(folder) / "map")
        service = Service(Path(folder) / "store", ServerSettings(workers=1, demo_page=True))
        record = service.import_map("demo in words", Path(folder) / "map", MapPolicy(forms=("words",)))
        _, secret = service.tokens.make("page", ["localize"], maps=[record.id])
        with running(service, jobs=False) as server, browsing() as browser:
            _walk(browser, f"{server.url}/#token={secret}")
            _desktop(browser, arguments.output / "browser.png")
            _phone(browser, arguments.output / "browser_phone.png")


def _walk(browser: Browser, address: str) -> None:
    """Localize a photograph, and print the seconds of each step."""
    for step, button, shown, also in STEPS:
        begun = time.perf_counter()
        if button:
            browser.click(button)
        else:
            browser.open(address)
        browser.wait(f"return !document.getElementById('{shown[1:]}').hidden")
        if also:
            browser.wait(also)
        print(f"{step}: {time.perf_counter() - begun:.1f} s")
    print(browser.run("return document.getElementById('verdict').textContent"))


def _desktop(browser: Browser, path: Path) -> None:
    picture = Image.open(io.BytesIO(browser.screenshot(width=1280)))
    _write(picture, path)


def _phone(browser: Browser, path: Path) -> None:
    """Three parts of the page on a phone, side by side."""
    width, height = PHONE
    sheet = Image.new("RGB", (3 * width + 2 * 24, height), (128, 128, 128))
    for place, part in enumerate(("choose", "message", "answer")):
        browser.screenshot(width=width, height=height, dark=True)
        browser.run(f"document.getElementById('{part}').scrollIntoView({{behavior: 'instant'}}); window.scrollBy(0, -12)")
        shot = Image.open(io.BytesIO(browser.screenshot(width=width, height=height, dark=True)))
        sheet.paste(shot.convert("RGB"), (place * (width + 24), 0))
    _write(sheet, path)


def _write(picture: Image.Image, path: Path) -> None:
    """A picture of 256 colors that cover those of the page, not of its photographs alone."""
    picture.convert("RGB").quantize(256, method=Image.Quantize.FASTOCTREE).save(path, optimize=True)
    print(f"{path}: {picture.width} x {picture.height} px, {path.stat().st_size / 1000:.0f} kB")


if __name__ == "__main__":
    main()
