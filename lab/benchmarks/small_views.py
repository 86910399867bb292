"""Photographs at a half and a quarter of their size, as JPEG, in each form: how many get a pose, and how many a right one.

    VEIL_DATA=... python lab/benchmarks/small_views.py lund_door strecha/castle-P19 --forms raw lines
    VEIL_DATA=... python lab/benchmarks/small_views.py lund_door strecha/entry-P10 --forms lines --foreign strecha/fountain-P11

Scenes are folders as `veil evaluate reconstruction` takes them, with cameras and reference poses. Three maps are made of each,
each without every third photograph; those left out are asked at each size, and after their pixels were mirrored. Photographs of
the `foreign` scenes are asked of the first map of each scene. A pose is right if it is at most 2 % of the cameras' extent and 2
degrees from the reference, after the map is aligned with it. A row gives the numbers of right poses, of wrong ones, and of
queries.
"""

from __future__ import annotations

import argparse
import io
import os
import tempfile
from collections import Counter
from pathlib import Path

import numpy as np
from mirrored import FORMS, mean_down, message, mirrored
from PIL import Image

import veil
from veil.cli.common import quiet_colmap
from veil.extraction.picture import Picture
from veil.geometry.camera import resized
from veil.geometry.similarity import align_poses, pose_error
from veil_lab.files.scenes import ReferenceScene, read_scene

SIZES = (1, 2, 4)
QUALITY = 85
# A right pose: largest distance from the reference, in extents of the cameras, and largest rotation error in degrees.
RIGHT_SHARE, RIGHT_DEG = 0.02, 2.0
Counts = Counter[tuple[str, int, str]]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("scenes", nargs="+", help="folders, below VEIL_DATA")
    parser.add_argument("--foreign", nargs="+", default=[], help="folders of other places, below VEIL_DATA")
    parser.add_argument("--forms", nargs="+", choices=FORMS[:-1], default=["raw", "subspaces", "lines"])
    parser.add_argument("--max-features", type=int, default=1500)
    parser.add_argument("--epsilon", type=float, default=10.0, help="of words; with gravity half of it")
    given = parser.parse_args()
    quiet_colmap()
    counts: Counts = Counter()
    data = Path(os.environ["VEIL_DATA"])
    with tempfile.TemporaryDirectory() as folder:
        device = veil.Device(Path(folder) / "home")
        others = [read_scene(data / name) for name in given.foreign]
        for name in given.scenes:
            ask(read_scene(data / name), others, device, given, counts)
            show(counts, given.forms)


def show(counts: Counts, forms: list[str]) -> None:
    """Print the counts so far as a table."""
    print("form | size | right, wrong of asked | mirrored: poses of asked | foreign: poses of asked")
    for form in forms:
        for size in SIZES:
            right, wrong, asked, turned, turned_of, foreign, foreign_of = (
                counts[form, size, what]
                for what in ("right", "wrong", "asked", "mirrored", "mirrored asked", "foreign", "foreign asked")
            )
            cells = f"{right}, {wrong} of {asked} | {turned} of {turned_of} | {foreign} of {foreign_of}"
            print(f"{form} | 1/{size} | {cells}", flush=True)


def ask(
    scene: ReferenceScene, others: list[ReferenceScene], device: veil.Device, given: argparse.Namespace, counts: Counts
) -> None:
    """Ask each photograph of a scene at each size in each form, as it is and mirrored, on maps of the rest of them."""
    options = veil.SiftOptions(max_features=given.max_features)
    names = sorted(scene.pictures)
    gravity = gravity_of(scene)
    pictures = {name: veil.read_picture(scene.pictures[name], camera=scene.cameras[name]) for name in names}
    features = {name: veil.extract(picture, options=options) for name, picture in pictures.items()}
    for first in range(3):
        held_out = names[first::3]
        mapped = [name for name in names if name not in held_out]
        built = veil.map_images({name: features[name] for name in mapped}, gravity={name: gravity[name] for name in mapped})
        if isinstance(built, veil.NoMap):
            continue
        for size in SIZES:
            for name in held_out:
                picture = shrunk(pictures[name], size)
                for form in given.forms:
                    answer = asked(picture, gravity[name], form, built.map, device, given)
                    counts[form, size, "asked"] += 1
                    counts[form, size, verdict(answer, built.map, scene, name)] += 1
                    turned = asked(mirrored(picture), gravity[name] * [-1, 1, 1], form, built.map, device, given)
                    counts[form, size, "mirrored asked"] += 1
                    counts[form, size, "mirrored"] += isinstance(turned, veil.Localization)
            for other in others if first == 0 else []:
                down = gravity_of(other)
                for name, path in sorted(other.pictures.items()):
                    picture = shrunk(veil.read_picture(path, camera=other.cameras[name]), size)
                    for form in given.forms:
                        answer = asked(picture, down[name], form, built.map, device, given)
                        counts[form, size, "foreign asked"] += 1
                        counts[form, size, "foreign"] += isinstance(answer, veil.Localization)


def gravity_of(scene: ReferenceScene) -> dict[str, np.ndarray]:
    """Down in the frame of each photograph, by its reference pose."""
    down = scene.down if scene.down is not None else mean_down(scene)
    return {name: scene.cam_from_world[name].rotation @ down for name in scene.pictures}


def shrunk(picture: veil.Picture, size: int) -> veil.Picture:
    """The photograph at 1/size of its width and height, written and read as a JPEG, with a camera of that size."""
    assert picture.rgb is not None and picture.camera is not None
    camera = picture.camera
    image = Image.fromarray(picture.rgb)
    width, height = image.width // size, image.height // size
    written = io.BytesIO()
    image.resize((width, height), Image.Resampling.BOX).save(written, "JPEG", quality=QUALITY)
    rgb = np.asarray(Image.open(written).convert("RGB"))
    return Picture.of(np.ascontiguousarray(rgb), camera=resized(camera, width, height))


def asked(
    picture: veil.Picture, gravity: np.ndarray, form: str, where: veil.Map, device: veil.Device, given: argparse.Namespace
) -> veil.Localization | veil.NoPose:
    """The answer to one photograph in one form."""
    features = veil.extract(picture, options=veil.SiftOptions(max_features=given.max_features, first_octave=None))
    sent = features if form == "raw" else message(device, features, form, gravity, given.epsilon)
    return veil.localize(sent, where)


def verdict(answer: veil.Localization | veil.NoPose, where: veil.Map, scene: ReferenceScene, name: str) -> str:
    """Whether an answer is "right", "wrong", or "none"."""
    if isinstance(answer, veil.NoPose):
        return "none"
    poses = {other: image.cam_from_world for other, image in where.scene.images.items()}
    aligned = align_poses([poses[other] for other in poses], [scene.cam_from_world[other] for other in poses])
    centers = np.array([pose.center for pose in scene.cam_from_world.values()])
    extent = float(np.linalg.norm(centers.max(axis=0) - centers.min(axis=0)))
    position, rotation_deg = pose_error(answer.cam_from_world, scene.cam_from_world[name], aligned)
    return "right" if position <= RIGHT_SHARE * extent and rotation_deg <= RIGHT_DEG else "wrong"


if __name__ == "__main__":
    main()
