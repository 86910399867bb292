"""Mirrored photographs in every form: how many get a pose, and how many photographs as they were taken keep theirs.

    VEIL_DATA=... python lab/benchmarks/mirrored.py lund_door strecha/castle-P19 --forms raw subspaces lines
    VEIL_DATA=... python lab/benchmarks/mirrored.py strecha/entry-P10 --forms words "words with gravity" "words with lines"

Scenes are folders as `veil evaluate reconstruction` takes them, with cameras and reference poses. Three maps are made of each,
each without every third photograph; those left out are asked, as they are and after their pixels were mirrored. `positions` are
asked near the two mapped photographs that are next by name. A row gives poses of asked queries of one kind, refusals that name
the mirror, and processor seconds of one query.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Mapping
from pathlib import Path

import numpy as np

import veil
from veil.cli.common import quiet_colmap
from veil.extraction.picture import Picture
from veil_lab.files.scenes import ReferenceScene, read_scene

POSITIONS = "positions"
FORMS = ("raw", "subspaces", "lines", "words", "words with gravity", "words with lines", POSITIONS)
KINDS = ("as taken", "mirrored")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("scenes", nargs="+", help="folders, below VEIL_DATA")
    parser.add_argument("--forms", nargs="+", choices=FORMS, default=list(FORMS[:-1]))
    parser.add_argument("--max-features", type=int, default=1500)
    parser.add_argument("--epsilon", type=float, default=10.0, help="of words; with gravity half of it")
    given = parser.parse_args()
    quiet_colmap()
    counts: Counter[tuple[str, str, str]] = Counter()
    seconds: dict[tuple[str, str], float] = defaultdict(float)
    with tempfile.TemporaryDirectory() as folder:
        device = veil.Device(Path(folder) / "home")
        for name in given.scenes:
            scene = read_scene(Path(os.environ["VEIL_DATA"]) / name)
            for form in given.forms:
                ask(scene, form, device, given, counts, seconds)
    print("form", "query", "poses of asked", "named a mirror", "s", sep=" | ")
    print(*["---"] * 5, sep=" | ")
    for form in given.forms:
        for kind in KINDS:
            asked, poses = counts[form, kind, "asked"], counts[form, kind, "poses"]
            took = seconds[form, kind] / max(1, asked)
            print(form, kind, f"{poses} of {asked}", counts[form, kind, "named"], f"{took:.2f}", sep=" | ", flush=True)


def ask(
    scene: ReferenceScene,
    form: str,
    device: veil.Device,
    given: argparse.Namespace,
    counts: Counter[tuple[str, str, str]],
    seconds: dict[tuple[str, str], float],
) -> None:
    """Ask each photograph of a scene in one form, as it is and mirrored, on a map of others."""
    options = veil.SiftOptions(max_features=given.max_features)
    down = scene.down if scene.down is not None else mean_down(scene)
    names = sorted(scene.pictures)
    gravity = {name: scene.cam_from_world[name].rotation @ down for name in names}
    pictures = {name: veil.read_picture(scene.pictures[name], camera=scene.cameras[name]) for name in names}
    features = {name: veil.extract(picture, options=options) for name, picture in pictures.items()}
    for held_out in (names[first::3] for first in range(3)):
        mapped = [name for name in names if name not in held_out]
        built = veil.map_images({name: features[name] for name in mapped}, gravity={name: gravity[name] for name in mapped})
        if isinstance(built, veil.NoMap):
            continue
        for name in held_out:
            near = sorted(built.map.scene.images, key=lambda other: abs(names.index(other) - names.index(name)))[:2]
            turned = veil.extract(mirrored(pictures[name]), options=options)
            for kind, query, down_here in zip(
                KINDS, (features[name], turned), (gravity[name], gravity[name] * [-1, 1, 1]), strict=True
            ):
                sent = query if form == "raw" else message(device, query, form, down_here, given.epsilon)
                begun = time.process_time()
                answer = veil.localize(sent, built.map, near=near if form == POSITIONS else None)
                seconds[form, kind] += time.process_time() - begun
                counts[form, kind, "asked"] += 1
                counts[form, kind, "poses"] += isinstance(answer, veil.Localization)
                counts[form, kind, "named"] += isinstance(answer, veil.NoPose) and "as in a mirror" in answer.reason


def mean_down(scene: ReferenceScene) -> np.ndarray:
    """The mean direction in which the photographs' lower borders lie, for scenes that do not define gravity."""
    total = np.sum([pose.rotation.T @ [0, 1, 0] for pose in scene.cam_from_world.values()], axis=0)
    return total / np.linalg.norm(total)


def mirrored(picture: veil.Picture) -> veil.Picture:
    """The photograph with its pixels turned over left to right, and the camera as it is."""
    assert picture.rgb is not None
    return Picture.of(np.ascontiguousarray(picture.rgb[:, ::-1]), camera=picture.camera)


def message(device: veil.Device, features: veil.Features, form: str, gravity: np.ndarray, epsilon: float) -> veil.Message:
    """The message of one photograph in a form."""
    words = veil.HideInWords(epsilon=epsilon / 2 if "gravity" in form else epsilon, m=2)
    choices: Mapping[str, veil.Protection] = {
        "subspaces": veil.Protection(descriptors=veil.HideInSubspaces()),
        "lines": veil.Protection(descriptors=veil.HideInSubspaces(), lines=veil.HideInLines(gravity=gravity)),
        "words": veil.Protection(descriptors=words),
        "words with gravity": veil.Protection(descriptors=words, gravity=gravity),
        "words with lines": veil.Protection(descriptors=words, lines=veil.HideInLines(gravity=gravity)),
        POSITIONS: veil.Protection(descriptors=veil.HideInWords.positions_alone(), gravity=gravity),
    }
    return veil.decode(device.release(features, choices[form], fresh=True, allow_second=True).message)


if __name__ == "__main__":
    main()
