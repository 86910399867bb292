"""How large are pages of `veil view`, how long do they take to make and to open, and how many frames a second do they draw?

For the demo's map with a query in subspaces, for castle-P19 (VEIL_DATA/strecha) from hardened messages and from lines alone,
and for a street of 10^6 points that is made here: prints the size, the largest error of a point, the seconds until the page is
written and until Chromium has drawn it, and the milliseconds of a frame, of all points when the eye rests and of as many as are
drawn in time while it moves. `--output` writes the pictures of docs/reference/view.md. Chromium without a GPU draws by the
processor (SwiftShader); the renderer is printed.
"""

from __future__ import annotations

import argparse
import io
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from PIL import Image

sys.path.insert(0, str(Path(__file__).parents[2] / "tests"))
from veil.demo import demo_features, write_demo_map
from veil.device.device import Device
from veil.device.doors import map_images
from veil.device.protection import HideInSubspaces, Protection
from veil.device.viewing import view_map, view_of
from veil.errors import VeilError
from veil.extraction.sift import SiftOptions, extract_sift
from veil.features import Features
from veil.files.features import write_features
from veil.files.photographs.examples import HELD_OUT, lund_door
from veil.files.photographs.pictures import read_picture
from veil.geometry.camera import Camera
from veil.geometry.rigid import Rigid
from veil.mechanisms.release import HideInLines
from veil.places.held_map import Map
from veil.places.maps import NoMap
from veil.report.viewer.content import ShownImage, View
from veil.report.viewer.page import page
from veil.wire import decode
from veil_lab.files.scenes import ReferenceScene, read_scene
from worlds.browser import SOFTWARE_GL, Browser, browsing, chromium

DESKTOP, PHONE = (1280, 800), (390, 844)
STREET_POINTS, STREET_CAMERAS, STREET_SEEN = 1_000_000, 400, 4_000
FRAMES = 12


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", type=Path, help="a folder for the pictures of the documentation")
    parser.add_argument("--keep", type=Path, help="a folder for the pages")
    arguments = parser.parse_args()
    if (reason := chromium()) is not None:
        raise SystemExit(reason)
    shots: Shots = {}
    with tempfile.TemporaryDirectory(prefix="veil-viewer-") as temporary, browsing(SOFTWARE_GL) as browser:
        folder = arguments.keep or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        for name, view in _views(Path(temporary)):
            begun = time.perf_counter()
            made = page(view)
            path = folder / f"{name}.html"
            path.write_text(made.html)
            print(
                f"{name}: {made.points:,} points within {made.error:.1g} units, {made.images} images, {made.sightings:,} "
                f"sightings, {made.photographs + made.recovered} pictures; {path.stat().st_size / 1e6:.1f} MB, made in "
                f"{time.perf_counter() - begun:.1f} s"
            )
            _measure(browser, path)
            if arguments.output is not None:
                shots |= _shots(browser, name)
    if arguments.output is not None:
        _write(shots, arguments.output)


def _views(folder: Path) -> Iterator[tuple[str, View]]:
    """The views that are measured, by name."""
    yield "demo", _demo(folder)
    root = os.environ.get("VEIL_DATA")
    if root is None:
        print("castle-P19 is left out: VEIL_DATA does not name the folder of evaluation photographs")
    else:
        yield from _castle(Path(root) / "strecha" / "castle-P19", folder)
    yield "street", street(STREET_POINTS, STREET_CAMERAS, STREET_SEEN)


def _demo(folder: Path) -> View:
    """The demo's public map, with a held-out photograph as a hardened query, photographs, and what descriptors give away."""
    where = write_demo_map(demo_features(), folder / "demo")
    with lund_door() as example:
        picture = read_picture(example.folder / HELD_OUT[0], camera=example.camera)
        features = extract_sift(picture, SiftOptions(max_features=1536))
        released = Device(folder / "home").release(features, name=HELD_OUT[0], purpose="map")
        (folder / "DSC_0003.veil").write_bytes(released.message)
        write_features(folder / "query.h5", [(HELD_OUT[0], features)])
        own = [folder / "query.h5", example.folder]
        queries, images = [folder / "DSC_0003.veil"], len(where.scene.images)
        return view_of(view_map(where, title="Door, Lund", queries=queries, device=own, invert=images))


def _castle(scene_folder: Path, folder: Path) -> Iterator[tuple[str, View]]:
    """castle-P19 mapped from hardened messages, with its photographs, and from lines along and across its gravity."""
    scene = read_scene(scene_folder)
    features: dict[str, Features] = {}
    for name, path in scene.pictures.items():
        features[name] = extract_sift(read_picture(path, camera=scene.cameras[name]), SiftOptions(max_features=3000))
    device = Device(folder / "castle-home")
    messages = {name: device.release(item, name=name, purpose="map").message for name, item in features.items()}
    built = map_images({name: decode(message) for name, message in messages.items()})
    if isinstance(built, NoMap):
        raise VeilError(f"castle-P19 gives no map: {built.reason}")
    write_features(folder / "castle.h5", features.items())
    own = [folder / "castle.h5", scene_folder / "images"]
    yield "castle", view_of(view_map(built.map, title="castle-P19", device=own))
    yield "castle-lines", view_of(view_map(_from_lines(scene, features, folder), title="castle-P19 from lines", device=own))


def _from_lines(scene: ReferenceScene, features: dict[str, Features], folder: Path) -> Map:
    """The map of the scene from lines alone, with gravity from its reference cameras."""
    assert scene.down is not None
    device = Device(folder / "castle-lines-home")
    messages = {}
    for name, item in features.items():
        down = scene.cam_from_world[name].rotation @ scene.down
        released = device.release(item, Protection(descriptors=HideInSubspaces(), lines=HideInLines(gravity=down)), name=name)
        messages[name] = decode(released.message)
    built = map_images(messages)
    if isinstance(built, NoMap):
        raise VeilError(f"castle-P19 gives no map from lines: {built.reason}")
    return built.map


def street(points: int, cameras: int, seen: int) -> View:
    """A street with houses on both sides and their windows, `points` in all, and `cameras` that each see `seen` of them."""
    random = np.random.default_rng(0)
    along, side = random.uniform(0, 400, points), random.integers(0, 2, points) * 2.0 - 1
    height = 9 + 7 * np.sin(np.floor(along / 18) * 2.4 + side) ** 2
    up = random.uniform(0, 1, points) * height
    window = (np.abs((along % 3) - 1.5) < 0.7) & (np.abs((up % 3.2) - 1.7) < 0.9)
    x = side * (9 + 0.35 * window + 0.06 * random.standard_normal(points))
    ground = random.random(points) < 0.28
    x = np.where(ground, random.uniform(-9, 9, points), x)
    up = np.where(ground, 0.05 * random.standard_normal(points) + 0.12 * (np.abs(x) > 6), up)
    place = np.stack([x, -up, along], axis=1)
    camera = Camera(model="PINHOLE", width_px=1600, height_px=1200, params=(1300.0, 1300.0, 800.0, 600.0))
    images = []
    for number in range(cameras):
        turn = 0.35 * np.sin(number)
        rotation = np.array([[np.cos(turn), 0, -np.sin(turn)], [0, 1, 0], [np.sin(turn), 0, np.cos(turn)]])
        center = np.array([3.5 * np.sin(number * 0.7), -1.7, 390 * number / cameras])
        pose = Rigid(rotation=rotation, translation=-rotation @ center)
        images.append(_sees(f"{number:04d}.jpg", camera, pose, place, seen, random))
    return View(
        title="A street of a million points",
        kind="made by lab/benchmarks/viewer.py",
        points=place,
        images=images,
        of_server=[f"{points:,} points and {cameras:,} poses, made by a benchmark."],
        down=np.array([0.0, 1.0, 0.0]),
    )


def _sees(name: str, camera: Camera, pose: Rigid, place: np.ndarray, seen: int, random: np.random.Generator) -> ShownImage:
    """An image of `seen` points, or fewer where fewer are before it."""
    some = random.choice(len(place), 40 * seen)
    local = pose.apply(place[some])
    with np.errstate(divide="ignore", invalid="ignore"):
        pixels = local[:, :2] / local[:, 2:] * camera.params[:2] + camera.params[2:]
    inside = (local[:, 2] > 1) & (local[:, 2] < 60) & (pixels >= 0).all(axis=1) & (pixels < [1600, 1200]).all(axis=1)
    rows = np.flatnonzero(inside)[:seen]
    return ShownImage(
        name=name,
        camera=camera,
        cam_from_world=pose,
        keypoints=pixels[rows].astype(np.float32),
        point_rows=some[rows].astype(np.int64),
        told=(f"sees {len(rows):,} points",),
    )


def _measure(browser: Browser, path: Path) -> None:
    """Open a page, and print how long it takes to open and to draw, on a desktop and on a phone."""
    browser.screenshot(width=DESKTOP[0], height=DESKTOP[1])
    begun = time.perf_counter()
    browser.open(f"file://{path.resolve()}")
    browser.wait("return !!globalThis.veilView", seconds=120)
    browser.run("veilView.frame()")
    print(f"  drawn {time.perf_counter() - begun:.1f} s after it was asked for, by {browser.run('return veilView.renderer()')}")
    for (width, height), scale, what in ((DESKTOP, 1.0, "desktop"), (PHONE, 2.0, "phone")):
        browser.screenshot(width=width, height=height, scale=scale)
        resting, moving = _frames(browser)
        share = browser.run("return veilView.pace.share")
        print(
            f"  {what}, {width} x {height} at {scale:g}: all points {statistics.median(resting):.0f} ms a frame, while moving "
            f"{statistics.median(moving):.0f} ms with {share:.0%} of them"
        )


def _frames(browser: Browser) -> tuple[list[float], list[float]]:
    """Milliseconds of frames of all points, each read back so that it is finished, and of frames while the eye turns."""
    resting = browser.run(
        "const took = []; for (let k = 0; k < arguments[0]; k += 1) { const begun = performance.now(); veilView.frame(); "
        "took.push(performance.now() - begun); } return took;",
        FRAMES,
    )
    browser.run(
        "globalThis.took = []; const most = arguments[0]; let last = 0; let count = 0; function step(now) { "
        "if (last > 0) took.push(now - last); last = now; veilView.turn(0.02); count += 1; "
        "if (count < most) requestAnimationFrame(step); } requestAnimationFrame(step);",
        5 * FRAMES,
    )
    browser.wait(f"return took.length >= {5 * FRAMES - 1}", seconds=120)
    return resting, browser.run("return took")[-2 * FRAMES :]


# What is shown of each page for its pictures, by the picture's name.
SHOTS = {
    "demo": {
        "device": "veilView.setMode('device'); veilView.choose({ image: veilView.view.images.at(-1) });",
        "server": "veilView.setMode('server'); veilView.choose({ image: veilView.view.images.at(-1) });",
        "attack": "veilView.setMode('attack'); veilView.choose({ image: veilView.view.images[4] });",
    },
    "castle": {"castle": "veilView.choose({ image: veilView.view.images[4] });"},
    "castle-lines": {"lines": "veilView.choose({ point: 100 });"},
    "street": {
        "street": "veilView.choose({ image: veilView.view.images[60] }); document.getElementById('stand').click();"
        "veilView.choose({}); Object.assign(veilView.orbit, { turn: veilView.orbit.turn + 0.5, tilt: 0.5, distance: 60 });"
        "veilView.turn(0);"
    },
}
AS_AT_FIRST = (
    "Object.assign(veilView.orbit, { turn: veilView.view.turn, tilt: veilView.view.tilt });veilView.choose({}); veilView.fit();"
)
Shots = dict[tuple[str, bool], Image.Image]


def _shots(browser: Browser, name: str) -> Shots:
    """Pictures of the open page by what they show, on a desktop in light colors and (True) on a phone in dark ones."""
    shots: Shots = {}
    for what, script in SHOTS[name].items():
        for phone, (width, height) in ((False, DESKTOP), (True, PHONE)):
            browser.screenshot(width=width, height=height, dark=phone)
            browser.run(AS_AT_FIRST + script)
            time.sleep(1.5)
            shots[what, phone] = Image.open(io.BytesIO(browser.screenshot(width=width, height=height, dark=phone)))
    return shots


def _write(shots: Shots, output: Path) -> None:
    """The pictures of the documentation: three modes side by side, a map of lines, a street, and three phones."""
    output.mkdir(parents=True, exist_ok=True)
    half = (DESKTOP[0] * 5 // 8, DESKTOP[1] * 5 // 8)
    modes = [shots[mode, False].resize(half, Image.Resampling.LANCZOS) for mode in ("device", "server", "attack")]
    sheets = {
        "view": _stacked(modes, across=False),
        "view_phone": _stacked([shots[n, True] for n in ("device", "castle", "lines") if (n, True) in shots], across=True),
        **{f"view_{name}": shots[name, False] for name in ("castle", "lines", "street") if (name, False) in shots},
    }
    for name, sheet in sheets.items():
        path = output / f"{name}.png"
        sheet.convert("RGB").quantize(256, method=Image.Quantize.FASTOCTREE).save(path, optimize=True)
        print(f"{path}: {sheet.width} x {sheet.height} px, {path.stat().st_size / 1000:.0f} kB")


def _stacked(pictures: list[Image.Image], *, across: bool, gap: int = 16) -> Image.Image:
    """Pictures of one size, beside each other or one below the other."""
    width, height = pictures[0].size
    step = (width + gap, 0) if across else (0, height + gap)
    last = len(pictures) - 1
    sheet = Image.new("RGB", (width + last * step[0], height + last * step[1]), (128, 128, 128))
    for number, picture in enumerate(pictures):
        sheet.paste(picture.convert("RGB"), (number * step[0], number * step[1]))
    return sheet


if __name__ == "__main__":
    main()
