"""Planar copies: how many photographs of screens and posters that show the place get a pose, in each form?

    VEIL_DATA=... python lab/benchmarks/planar_copies.py lund_door strecha/entry-P10 strecha/Herz-Jesus-P8
    VEIL_DATA=... python lab/benchmarks/planar_copies.py lund_door --forms lines --draws 4 --show /tmp/screens

Maps are those of mirrored.py: three of each scene, each without every third photograph. Each of these is laid into another
picture as a plane seen by the same camera would be: it fills 35 to 80 % of the width, is turned by up to 35 degrees, tilted by
15 and rolled by 8. A poster hangs before another photograph (BSDS500). A screen has a dark frame and a grid of pixels that
beats with the camera's (moire), and is brighter. Both are blurred and get noise. The device's gravity is that of a level
camera. No answer is right, as the camera is not at the place. A row gives poses of asked queries, and what the refusals say,
most frequent first.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from collections import Counter, defaultdict
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
from jaxtyping import Float64
from PIL import Image, ImageFilter
from scipy.spatial.transform import Rotation

sys.path.insert(0, str(Path(__file__).parents[2] / "tests"))

from mirrored import mean_down, message

import veil
from veil.cli.common import quiet_colmap
from veil.extraction.picture import Picture
from veil.files.photographs.pictures import find_pictures, read_rgb
from veil.geometry.camera import Camera
from veil.threads import settle
from veil_lab.files.scenes import ReferenceScene, read_scene

FORMS = ("raw", "subspaces", "lines", "words", "words with gravity", "words with lines")
Kind = Literal["screen", "poster"]
KINDS: tuple[Kind, ...] = ("screen", "poster")
EPSILON, BEZEL = 10.0, 0.03


@dataclass(frozen=True, kw_only=True, eq=False)
class Plane:
    """A picture on a plane before a camera; `homography` takes its pixels to those of the camera, `down` is level gravity."""

    homography: Float64[np.ndarray, "3 3"]
    down: Float64[np.ndarray, "3"]


def drawn_plane(width: int, height: int, camera: Camera, random: np.random.Generator) -> Plane:
    """A random plane with a picture of `width` x `height` pixels, wholly in view of a pinhole camera."""
    focal, center = camera.focal_px, np.array(camera.params[camera.focal_count :][:2])
    share = random.uniform(0.35, 0.8)
    turn = Rotation.from_euler("yxz", random.uniform([-35, -15, -8], [35, 15, 8]), degrees=True).as_matrix()
    half = np.array([width, height]) / 2
    corners = np.array([[-1, -1], [1, -1], [1, 1], [-1, 1]]) * half
    # In units of the picture's pixels: at this distance its width takes `share` of the camera's.
    distance = focal * width / (share * camera.width_px)
    calibration = np.array([[focal, 0, center[0]], [0, focal, center[1]], [0, 0, 1.0]])
    while True:
        shift = np.array([*(random.uniform(-0.3, 0.3, 2) * distance * [camera.width_px, camera.height_px] / focal), distance])
        seen = (np.column_stack([corners, np.zeros(4)]) @ turn.T + shift) @ calibration.T
        xy = seen[:, :2] / seen[:, 2:]
        if (xy > 0).all() and (xy < [camera.width_px, camera.height_px]).all():
            break
        distance *= 1.02
    homography = (
        calibration
        @ np.column_stack([turn[:, 0], turn[:, 1], shift])
        @ np.array([[1, 0, -half[0]], [0, 1, -half[1]], [0, 0, 1]])
    )
    pitch = np.radians(random.normal(0, 10))
    return Plane(homography=homography, down=np.array([0.0, np.cos(pitch), np.sin(pitch)]))


def laid(
    shown: np.ndarray, behind: np.ndarray, plane: Plane, camera: Camera, kind: Kind, random: np.random.Generator
) -> np.ndarray:
    """The photograph, uint8 (height, width, 3), that the camera takes of the picture `shown` on a plane before `behind`."""
    size = (camera.width_px, camera.height_px)
    picture = Image.fromarray(shown)
    if kind == "screen":
        rows, columns = np.indices(shown.shape[:2])
        grid = 1 - 0.12 * (np.sin(2 * np.pi * columns / 3.1) > 0.3) - 0.12 * (np.sin(2 * np.pi * rows / 3.1) > 0.3)
        picture = Image.fromarray(np.clip(1.15 * shown * grid[:, :, None], 0, 255).astype(np.uint8))
    back = np.linalg.inv(plane.homography)
    back = (back / back[2, 2]).ravel()[:8].tolist()
    warped = np.asarray(picture.transform(size, Image.Transform.PERSPECTIVE, back, Image.Resampling.BICUBIC), dtype=np.float64)
    ys, xs = np.indices((size[1], size[0])) + 0.5
    at = np.stack([xs.ravel(), ys.ravel(), np.ones(xs.size)]).T @ np.linalg.inv(plane.homography).T
    place = (at[:, :2] / at[:, 2:]).reshape(size[1], size[0], 2) / [shown.shape[1], shown.shape[0]]
    inside = ((place > 0) & (place < 1)).all(axis=2)
    framed = ((place > -BEZEL) & (place < 1 + BEZEL)).all(axis=2)
    wall = np.asarray(Image.fromarray(behind).resize(size, Image.Resampling.BICUBIC), dtype=np.float64)
    if kind == "screen":
        wall = np.where(framed[:, :, None], 20.0, 0.6 * wall)
    mixed = np.where(inside[:, :, None], warped, wall)
    blurred = Image.fromarray(np.clip(mixed, 0, 255).astype(np.uint8)).filter(ImageFilter.GaussianBlur(0.7))
    return np.clip(np.asarray(blurred) + random.normal(0, 3, mixed.shape), 0, 255).astype(np.uint8)


def ask(
    scene: ReferenceScene,
    given: argparse.Namespace,
    device: veil.Device,
    answers: dict[tuple[str, Kind], list[tuple[object, float]]],
) -> None:
    """Ask copies of each photograph of a scene in all forms, on maps of others."""
    options = veil.SiftOptions(max_features=given.max_features)
    down = scene.down if scene.down is not None else mean_down(scene)
    names = sorted(scene.pictures)
    walls = find_pictures(Path(os.environ["VEIL_DATA"]) / "photos/bsds500")
    pictures = {name: veil.read_picture(scene.pictures[name], camera=scene.cameras[name]) for name in names}
    features = {name: veil.extract(picture, options=options) for name, picture in pictures.items()}
    for first in range(3):
        held_out = names[first::3]
        others = {name: features[name] for name in names if name not in held_out}
        built = veil.map_images(others, gravity={name: scene.cam_from_world[name].rotation @ down for name in others})
        if isinstance(built, veil.NoMap):
            continue
        for name in held_out:
            for draw in range(given.draws):
                for kind in KINDS:
                    random = np.random.default_rng([names.index(name), draw, KINDS.index(kind)])
                    shown, camera = pictures[name].rgb, pictures[name].camera
                    assert shown is not None
                    plane = drawn_plane(shown.shape[1], shown.shape[0], camera, random)
                    copy = laid(shown, read_rgb(walls[random.integers(len(walls))]), plane, camera, kind, random)
                    if given.show:
                        Image.fromarray(copy).save(given.show / f"{scene.name}-{name}-{draw}-{kind}.png")
                    query = veil.extract(Picture.of(copy, camera=camera), options=options)
                    for form in given.forms:
                        sent = query if form == "raw" else message(device, query, form, plane.down, EPSILON)
                        begun = time.process_time()
                        answer = veil.localize(sent, built.map)
                        answers[form, kind].append((answer, time.process_time() - begun))
                        if isinstance(answer, veil.Localization):
                            print("accepted:", scene.name, name, draw, kind, form, answer, file=sys.stderr, flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("scenes", nargs="+", help="folders, below VEIL_DATA")
    parser.add_argument("--forms", nargs="+", choices=FORMS, default=list(FORMS))
    parser.add_argument("--draws", type=int, default=1, help="planes of each photograph and kind (default %(default)s)")
    parser.add_argument("--max-features", type=int, default=1500)
    parser.add_argument("--show", type=Path, metavar="FOLDER", help="write the pictures there")
    given = parser.parse_args()
    settle()
    quiet_colmap()
    answers: dict[tuple[str, Kind], list[tuple[object, float]]] = defaultdict(list)
    if given.show:
        given.show.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        device = veil.Device(Path(folder) / "home")
        for name in given.scenes:
            ask(read_scene(Path(os.environ["VEIL_DATA"]) / name), given, device, answers)
    print("form", "kind", "poses of asked", "s", "refusals", sep=" | ")
    print(*["---"] * 5, sep=" | ")
    for (form, kind), own in sorted(answers.items()):
        poses = sum(isinstance(answer, veil.Localization) for answer, _ in own)
        reasons = Counter(" ".join(answer.reason.split()[:5]) for answer, _ in own if isinstance(answer, veil.NoPose))
        named = "; ".join(f"{count} {reason!r}" for reason, count in reasons.most_common(3))
        print(form, kind, f"{poses} of {len(own)}", f"{sum(s for _, s in own) / len(own):.2f}", named, sep=" | ")


if __name__ == "__main__":
    main()
