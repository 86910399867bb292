"""Does the localizer in TypeScript find the poses that Python finds in the same tiles, refuse what it refuses, and how fast?

    VEIL_DATA=... python lab/benchmarks/browser_localizer.py lund_door strecha/castle-P19 fox untuned/kermit

Scenes are folders with photographs below VEIL_DATA. Three maps are made of each, each without every third photograph, and cut
into tiles. The photographs that are left out are localized in tiles that sketches choose. Python takes SIFT of COLMAP and
`localize_in_tiles`, TypeScript its own SIFT and localizer, each from the same gray pixels, in turn on one processor. Cameras
are those of the scene, or guessed where it has none. The same photographs after their pixels were mirrored, and photographs of
the other scenes, are asked as well. A row gives for each scene

- photographs, poses that Python finds, and poses of TypeScript among them (found);
- the median and the largest distance between both positions, in percent of the extent, which is the largest distance between
  two cameras of the map, and the median and the largest angle between both rotations, in degrees;
- the share of Python's poses that TypeScript has within 0.1 percent and 0.1 degrees (near), and poses of TypeScript where
  Python finds none (more);
- mirrored and foreign photographs, poses that Python gives them, and poses of TypeScript where Python gives none (more false);
- processor seconds of a photograph by Python and by TypeScript (medians), and the median of their ratio.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[2] / "tests"))

import veil
from veil.cli.common import quiet_colmap
from veil.extraction.picture import Picture
from veil.extraction.sift import SiftOptions, extract_sift
from veil.files.tiles import write_tiles
from veil.geometry.rigid import Rigid, rotation_angle_deg
from veil.places.poses.answer import Localization
from veil.tiles.cutting import CutMap, CutOptions, cut
from veil.tiles.device import localize_in_tiles, wanted_tiles
from veil.tiles.tile_format import decode_tile
from veil_lab.files.scenes import ReferenceScene, read_scene
from worlds.node_localizer import NodeLocalizer
from worlds.node_sift import no_node

NEAR_PERCENT, NEAR_DEG = 0.1, 0.1
FOLDS = 3


@dataclass(kw_only=True)
class Row:
    """Counts and differences of one scene, or of all."""

    asked: int = 0
    poses: int = 0
    both: int = 0
    more: int = 0
    near: int = 0
    false: dict[str, int] = field(default_factory=dict)
    false_poses: int = 0
    false_more: int = 0
    percent: list[float] = field(default_factory=list)
    degrees: list[float] = field(default_factory=list)
    seconds: list[tuple[float, float]] = field(default_factory=list)

    def add(self, other: Row) -> None:
        """Add the counts of another scene."""
        for name in ("asked", "poses", "both", "more", "near", "false_poses", "false_more"):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        for kind, count in other.false.items():
            self.false[kind] = self.false.get(kind, 0) + count
        self.percent += other.percent
        self.degrees += other.degrees
        self.seconds += other.seconds

    def told(self, name: str) -> str:
        """The row of a table."""
        percent, degrees = self.percent or [np.nan], self.degrees or [np.nan]
        python, node = np.median(self.seconds, axis=0)
        ratio = np.median([own / its for its, own in self.seconds])
        cells = [
            name,
            self.asked,
            self.poses,
            self.both,
            f"{100 * self.both / max(self.poses, 1):.1f}",
            f"{np.median(percent):.4f}",
            f"{np.max(percent):.4f}",
            f"{np.median(degrees):.4f}",
            f"{np.max(degrees):.4f}",
            f"{100 * self.near / max(self.poses, 1):.1f}",
            self.more,
            self.false.get("mirrored", 0),
            self.false.get("foreign", 0),
            self.false_poses,
            self.false_more,
            f"{python:.2f}",
            f"{node:.2f}",
            f"{ratio:.2f}",
        ]
        return " | ".join(str(cell) for cell in cells)


HEADS = (
    "scene | photographs | Python's poses | found | found, % | apart, % | most, % | apart, degrees | most, degrees | near, % | "
    "more | mirrored | foreign | Python's false | more false | Python, s | TypeScript, s | ratio"
)


def main() -> None:
    """Print one row for each scene, and one for all."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("scenes", nargs="+", help="folders, below VEIL_DATA")
    parser.add_argument("--max-features", type=int, default=2000)
    parser.add_argument("--foreign", type=int, default=4, help="photographs of other scenes that each map is asked for")
    given = parser.parse_args()
    if (reason := no_node()) is not None:
        raise SystemExit(reason)
    quiet_colmap()
    options = SiftOptions(max_features=given.max_features, first_octave=None)
    scenes = [read_scene(Path(os.environ["VEIL_DATA"]) / name) for name in given.scenes]
    pictures = {scene.name: pictures_of(scene) for scene in scenes}
    total = Row()
    print(HEADS)
    print(" | ".join(["---"] * len(HEADS.split(" | "))), flush=True)
    with NodeLocalizer() as node:
        for scene in scenes:
            strangers = [picture for name, own in pictures.items() if name != scene.name for picture in own.values()]
            row = Row()
            for number, (made, held_out, extent) in enumerate(maps(pictures[scene.name], options)):
                own = {name: pictures[scene.name][name] for name in held_out}
                drawn = np.random.default_rng(number).permutation(len(strangers))[: given.foreign]
                compare(made, own, [strangers[index] for index in drawn], extent, options, node, row)
            print(row.told(scene.name), flush=True)
            total.add(row)
    print(total.told("all"))


def pictures_of(scene: ReferenceScene) -> dict[str, Picture]:
    """The photographs of a scene, with its cameras where it has some."""
    return {name: veil.read_picture(path, camera=scene.cameras.get(name)) for name, path in sorted(scene.pictures.items())}


def maps(pictures: dict[str, Picture], options: SiftOptions) -> Iterator[tuple[CutMap, list[str], float]]:
    """Maps without every third photograph as tiles, the photographs that are left out, and the extent of the map's cameras."""
    features = {name: extract_sift(picture, options) for name, picture in pictures.items()}
    names = list(features)
    for first in range(FOLDS):
        held_out = names[first::FOLDS]
        built = veil.map_images({name: features[name] for name in names if name not in held_out})
        if isinstance(built, veil.NoMap):
            continue
        scene = built.map.scene
        centers = np.array([image.cam_from_world.center for image in scene.images.values()])
        extent = float(np.linalg.norm(centers[:, None] - centers[None], axis=2).max())
        yield cut(scene, CutOptions()), held_out, extent


def compare(
    made: CutMap,
    own: dict[str, Picture],
    strangers: list[Picture],
    extent: float,
    options: SiftOptions,
    node: NodeLocalizer,
    row: Row,
) -> None:
    """Ask for photographs of the place, mirrored ones and others, and add what came of it."""
    kinds = [("true", picture) for picture in own.values()]
    kinds += [("mirrored", mirrored(picture)) for picture in own.values()] + [("foreign", picture) for picture in strangers]
    with tempfile.TemporaryDirectory(prefix="veil-browser-localizer-") as folder:
        write_tiles(Path(folder) / "tiles", made)
        node.open(Path(folder) / "tiles")
        for kind, picture in kinds:
            begun = time.process_time()
            python = by_python(made, picture, options)
            seconds = time.process_time() - begun
            answered = node.localize(picture, picture.camera, options)
            ours = pose_of(answered["answer"])
            if kind != "true":
                row.false[kind] = row.false.get(kind, 0) + 1
                row.false_poses += python is not None
                row.false_more += python is None and ours is not None
                continue
            row.asked += 1
            row.seconds.append((seconds, answered["seconds"]))
            row.poses += python is not None
            row.more += python is None and ours is not None
            if python is None or ours is None:
                if python is not None:
                    print(f"not found: {answered['answer'].get('reason')}", file=sys.stderr)
                continue
            row.both += 1
            row.percent.append(100 * float(np.linalg.norm(python.center - ours.center)) / extent)
            row.degrees.append(rotation_angle_deg(python.rotation @ ours.rotation.T))
            row.near += row.percent[-1] <= NEAR_PERCENT and row.degrees[-1] <= NEAR_DEG


def by_python(made: CutMap, picture: Picture, options: SiftOptions) -> Rigid | None:
    """The pose that Python finds, or None."""
    features, manifest = extract_sift(picture, options), made.manifest
    size, axes, bits = manifest.tile_bytes, manifest.coding.axes, manifest.coding.bits
    tiles = [
        decode_tile(made.records[index, :size].tobytes(), index=index, axes=axes, bits=bits)
        for index in wanted_tiles(manifest, features)
    ]
    answer = localize_in_tiles(features, manifest, tiles)
    return answer.cam_from_world if isinstance(answer, Localization) else None


def pose_of(answer: dict) -> Rigid | None:
    """The pose of the client's answer, or None."""
    if answer["status"] != "localized":
        return None
    pose = answer["camFromWorld"]
    return Rigid(rotation=np.array(pose["rotation"]), translation=np.array(pose["translation"]))


def mirrored(picture: Picture) -> Picture:
    """The photograph with its pixels turned over left to right, and the camera as it is."""
    assert picture.rgb is not None
    return Picture.of(np.ascontiguousarray(picture.rgb[:, ::-1]), camera=picture.camera)


if __name__ == "__main__":
    main()
