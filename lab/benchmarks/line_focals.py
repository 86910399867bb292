"""How well do maps from lines measure the focal length, where it is a guess or claimed wrongly?

    VEIL_DATA=... python lab/benchmarks/line_focals.py strecha/fountain-P11 strecha/entry-P10 --claims guess 0.85 1.0 1.2

Scenes are folders as `lab/benchmarks/private_maps.py` takes them, with gravity: exact where the scene defines down, else the
phone's own. Photographs leave for a map (docs/theory/release.md#features-for-a-map), in subspaces and behind lines. `guess` is
what `veil extract` makes of photographs without EXIF. A number claims so many times the focal length of the raw map, known to
5 %. A row gives

- images registered, of all, or why there is no map;
- the focal length over that of the raw map, minus one, in percent: as claimed, and as mapped, medians over images;
- distance of camera centers from those of the raw map, median and largest, in percent of its extent, and the largest turn of a
  camera relative to another in degrees;
- how many images the check names as contradicted.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
from private_maps import Subject, errors, poses_of, released

from veil.cli.common import quiet_colmap
from veil.device.doors import map_images, selected_by_map
from veil.features import Features
from veil.geometry.camera import FocalPrior
from veil.mechanisms.release import HideInLines
from veil.mechanisms.selection import Selection
from veil.places.built_maps import BuiltMap, MappingOptions
from veil.places.maps import NoMap
from veil.places.maps.focal import focal_of, scaled
from veil_lab.files.scenes import read_scene

COLUMNS = ("scene", "claim", "registered", "focal claimed, %", "mapped, %", "to raw, %", "deg", "contradicted")


def main() -> None:
    """Print one table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("scenes", nargs="+", help="folders, also below VEIL_DATA")
    parser.add_argument("--claims", nargs="+", default=["guess", "0.85", "1.0", "1.2"], help="(default: %(default)s)")
    parser.add_argument("--max-features", type=int, default=8192, help="per image (default %(default)s)")
    parser.add_argument("--cache", type=Path, help="a folder that keeps raw features and raw maps between runs")
    arguments = parser.parse_args()
    quiet_colmap()
    print(f"| {' | '.join(COLUMNS)} |")
    print(f"|{' --- |' * len(COLUMNS)}", flush=True)
    for name in arguments.scenes:
        folder = Path(name) if Path(name).is_dir() else Path(os.environ["VEIL_DATA"]) / name
        subject = Subject(folder, arguments, every=0)
        assert isinstance(subject.raw, BuiltMap), f"{name} gives no map of raw features"
        down, chosen = gravity_of(folder), selected_by_map(subject.raw, subject.mapped)
        for claim in arguments.claims:
            images = {key: claimed(item, subject.raw, key, claim) for key, item in subject.mapped.items() if key in down}
            sent = {
                key: released(item, chosen.get(key, Selection()), f"line focals {name}", lines=HideInLines(gravity=down[key]))
                for key, item in images.items()
            }
            built = map_images(sent, options=MappingOptions(workers=1))
            print(f"| {' | '.join([folder.name, claim, *row(built, subject.raw, images)])} |", flush=True)


def gravity_of(folder: Path) -> Mapping[str, np.ndarray]:
    """Down in the camera frame of each image that has it."""
    scene = read_scene(folder)
    if scene.down is None:
        return scene.gravity
    return {name: pose.rotation @ scene.down for name, pose in scene.cam_from_world.items()}


def claimed(features: Features, raw: BuiltMap, name: str, claim: str) -> Features:
    """The features of an image, with a focal length as claimed; an image that the raw map does not hold keeps its own."""
    mapped = raw.map.scene.images.get(name)
    if claim == "guess" or mapped is None:
        return features
    ratio = float(claim) * focal_of(mapped.camera) / focal_of(features.camera)
    known = FocalPrior(origin="given", deviation=0.05)
    return replace(features, camera=replace(features.camera, params=scaled(features.camera, ratio), focal=known))


def row(built: BuiltMap | NoMap, raw: BuiltMap, images: Mapping[str, Features]) -> list[str]:
    """The cells of a row behind scene and claim."""
    truth = {name: focal_of(image.camera) for name, image in raw.map.scene.images.items()}
    off = {name: focal_of(image.camera) / truth[name] - 1 for name, image in images.items() if name in truth}
    before = f"{100 * np.median(list(off.values())):+.1f}"
    if isinstance(built, NoMap):
        return [f"0 of {len(images)}: {built.reason}", before, "", "", "", ""]
    scene = built.map.scene
    now = [focal_of(image.camera) / truth[name] - 1 for name, image in scene.images.items() if name in truth]
    position, turn = errors(poses_of(built), poses_of(raw))
    told = sum(item.images for item in built.check.contradicted_focals) if built.check is not None else 0
    return [
        f"{len(scene.images)} of {len(images)}",
        before,
        f"{100 * np.median(now):+.1f}",
        position,
        turn,
        str(told),
    ]


if __name__ == "__main__":
    main()
