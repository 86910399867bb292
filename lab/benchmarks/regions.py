"""Regions: how often does the region that an answer claims hold the reference pose of a photograph, on maps that veil makes?

    VEIL_DATA=... python lab/benchmarks/regions.py lund_door strecha/entry-P10 strecha/Herz-Jesus-P8

Maps are those of mirrored.py: three of each scene, each without every third photograph, made by veil. Their cameras are
given; poses are compared with the reference after a similarity that aligns the map's own poses with theirs. A region of six
dimensions, of turn and place together, is that of the covariance that an answer tells. "Of the query alone" leaves out what the
map does not know of its own poses (docs/theory/localization.md, Eq. 11). The median error is that of the center, in percent of
the extent of the map's cameras. Intervals of 95 % are exact (Clopper and Pearson 1934); "holds" says that it contains 95 %. The
reference of these scenes is not exact, which counts as a miss.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[2] / "tests"))

from mirrored import mean_down, message
from pose_coverage import Rate

import veil
from veil.cli.common import quiet_colmap
from veil.geometry.rigid import pose_difference
from veil.geometry.similarity import align_poses
from veil.threads import settle
from veil_lab.files.scenes import ReferenceScene, read_scene
from veil_lab.studies.localization.answer_counts import extent_of, quantile, squared_distance

FORMS = ("raw", "subspaces", "lines")
COLUMNS = ("scene", "form", "poses of asked", "region holds", "of the query alone", "median error, %")
EPSILON = 10.0


@dataclass(frozen=True, kw_only=True)
class Found:
    """One query: whether the region that is told holds the reference, and that of the query alone; its error, or no pose."""

    told: bool = False
    alone: bool = False
    error: float | None = None


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("scenes", nargs="+", help="folders, below VEIL_DATA")
    parser.add_argument("--forms", nargs="+", choices=FORMS, default=list(FORMS))
    parser.add_argument("--max-features", type=int, default=2000)
    given = parser.parse_args()
    settle()
    quiet_colmap()
    print(*COLUMNS, sep=" | ")
    print(*["---"] * len(COLUMNS), sep=" | ", flush=True)
    pooled: dict[str, list[Found]] = defaultdict(list)
    with tempfile.TemporaryDirectory() as folder:
        device = veil.Device(Path(folder) / "home")
        for name in given.scenes:
            scene = read_scene(Path(os.environ["VEIL_DATA"]) / name)
            own: dict[str, list[Found]] = defaultdict(list)
            for form, found in asked(scene, given, device):
                own[form].append(found)
                pooled[form].append(found)
            for form in given.forms:
                print(*row(scene.name, form, own[form]), sep=" | ", flush=True)
    for form in given.forms:
        print(*row("all", form, pooled[form]), sep=" | ")


def asked(scene: ReferenceScene, given: argparse.Namespace, device: veil.Device) -> Iterator[tuple[str, Found]]:
    """Each photograph of a scene, asked in each form on a map of others."""
    options = veil.SiftOptions(max_features=given.max_features)
    down = scene.down if scene.down is not None else mean_down(scene)
    names = sorted(scene.pictures)
    gravity = {name: scene.cam_from_world[name].rotation @ down for name in names}
    features = {
        name: veil.extract(veil.read_picture(scene.pictures[name], camera=scene.cameras[name]), options=options)
        for name in names
    }
    for held_out in (names[first::3] for first in range(3)):
        mapped = [name for name in names if name not in held_out]
        built = veil.map_images({name: features[name] for name in mapped}, gravity={name: gravity[name] for name in mapped})
        if isinstance(built, veil.NoMap):
            continue
        images = built.map.scene.images
        poses = [image.cam_from_world for image in images.values()]
        reference = [scene.cam_from_world[name] for name in images]
        map_from_reference, extent = align_poses(reference, poses), extent_of(poses)
        exact = replace(built.map, scene=replace(built.map.scene, check=None))
        for name in held_out:
            truth = map_from_reference.moved(scene.cam_from_world[name])
            for form in given.forms:
                sent = features[name] if form == "raw" else message(device, features[name], form, gravity[name], EPSILON)
                told, alone = veil.localize(sent, built.map), veil.localize(sent, exact)
                if not isinstance(told, veil.Localization) or not isinstance(alone, veil.Localization):
                    yield form, Found()
                    continue
                error = float(np.linalg.norm(told.center - truth.center)) / extent
                yield form, Found(told=holds(told, truth), alone=holds(alone, truth), error=error)


def holds(answer: veil.Localization, truth: veil.Rigid) -> bool:
    """Whether the region of an answer holds a pose."""
    error = pose_difference(answer.cam_from_world, truth)
    return answer.covariance is not None and squared_distance(error, answer.covariance) <= quantile(len(error))


def row(scene: str, form: str, found: list[Found]) -> tuple[str, ...]:
    """Cells of the answers of one form."""
    posed = [one for one in found if one.error is not None]
    told, alone = (
        Rate(covered=sum(flags), count=len(posed)) for flags in zip(*((o.told, o.alone) for o in posed), strict=True)
    )
    error = 100 * float(np.median([one.error for one in posed]))
    return scene, form, f"{len(posed)} of {len(found)}", str(told), str(alone), f"{error:.3f}"


if __name__ == "__main__":
    main()
