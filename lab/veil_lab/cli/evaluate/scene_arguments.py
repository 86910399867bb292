"""Options that protocols on scenes share, and the features of their photographs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from jaxtyping import Float64

from veil.cli.common import at_least, progress
from veil.cli.records import Record, option, positional
from veil.errors import InputError
from veil.extraction import Extractor, extract
from veil.extraction.sift import SiftOptions, extract_sift
from veil.features import Features
from veil.files.photographs.pictures import find_pictures, read_picture
from veil.files.weights import load_network
from veil_lab.cli.evaluate.descriptors import extraction_options
from veil_lab.files.scenes import ReferenceScene
from veil_lab.studies.localization.false_acceptance import ReferencePlace


@dataclass(frozen=True, kw_only=True)
class AskedScenes(Record):
    """The scenes of a protocol."""

    scenes: tuple[Path, ...] = positional("scenes: folders with reference cameras", metavar="SCENE")


@dataclass(frozen=True, kw_only=True)
class AskedExtraction(Record):
    """Number of features of a photograph."""

    max_features: int = option("features per image at most (default %(default)s)", default=4096, parse=at_least(100))


@dataclass(frozen=True, kw_only=True)
class AskedFolds(Record):
    """Number of maps of a scene, each without some of its photographs."""

    folds: int = option(
        "turns in which photographs are held out, each in one of them (default %(default)s)", default=3, parse=at_least(2)
    )


@dataclass(frozen=True, kw_only=True)
class AskedSamePlaces(Record):
    """Scenes of one place."""

    same_place: tuple[tuple[str, ...], ...] = option(
        "scenes that show one place, which are not asked about each other (may be repeated)",
        default=(),
        metavar="NAME",
        repeated=True,
    )


def other_places(scenes: Sequence[ReferenceScene], groups: Sequence[Sequence[str]]) -> dict[str, list[str]]:
    """Names of the scenes that show another place than each scene, by its name; `groups` list scenes of one place.

    Raises InputError where two scenes have one name, a scene has no reference cameras or fewer than four photographs, or a
    group names an unknown scene.
    """
    names = [scene.name for scene in scenes]
    if len(set(names)) < len(names):
        raise InputError("two scenes have the same folder name, and results could not be told apart; rename one")
    for scene in scenes:
        if not scene.cam_from_world:
            raise InputError(f"{scene.name} has no reference cameras: it needs gt_dense_cameras/ or a COLMAP text model")
        if len(scene.pictures) < 4:
            raise InputError(f"{scene.name} has {len(scene.pictures)} photographs; leaving some out needs four or more")
    unknown = {name for group in groups for name in group} - set(names)
    if unknown:
        raise InputError(f"--same-place names {', '.join(sorted(unknown))}, but the scenes are {', '.join(names)}")
    together = {frozenset((a, b)) for group in groups for a in group for b in group}
    return {name: [other for other in names if other != name and frozenset((name, other)) not in together] for name in names}


def extracted_features(
    scene: ReferenceScene, descriptor: Extractor = "sift", *, max_features: int, first_octave: int = 0
) -> dict[str, Features]:
    """Features of all photographs of a scene, by name, `max_features` of each at most.

    Networks with keypoints of their own give as many features as SIFT may give, however small their scores are.
    """
    options = extraction_options(descriptor, max_features, first_octave)
    network, features = load_network(descriptor), {}
    for name, path in progress(sorted(scene.pictures.items()), f"{scene.name}: extracting {descriptor}"):
        features[name] = extract(read_picture(path, camera=scene.cameras[name]), descriptor, options, network)
    return features


def stranger_features(folder: Path | None, *, max_features: int, most: int | None = None) -> dict[str, Features]:
    """Features of a folder's photographs, by "strangers/file name": of `most` of them, evenly taken, or of all.

    Raises InputError for an empty folder.
    """
    if folder is None:
        return {}
    options = SiftOptions(max_features=max_features, first_octave=0)
    paths = find_pictures(folder)
    if not paths:
        raise InputError(f"{folder} holds no photographs")
    paths = paths[:: -(-len(paths) // most)] if most else paths
    return {
        f"strangers/{path.name}": extract_sift(read_picture(path), options) for path in progress(paths, "extracting strangers")
    }


def reference_place(scene: ReferenceScene, features: dict[str, Features]) -> ReferencePlace:
    """The scene as a place for an evaluation, with gravity where it was measured.

    Elsewhere gravity is the reference's vertical, or where the reference has none the mean of the cameras' y-axes.
    """
    down = vertical(scene)
    exact = {name: pose.rotation @ down for name, pose in scene.cam_from_world.items()}
    known = {**exact, **scene.gravity}
    return ReferencePlace(name=scene.name, features=features, cam_from_world=scene.cam_from_world, down=known)


def vertical(scene: ReferenceScene) -> Float64[np.ndarray, "3"]:
    """Down in the world of a scene with poses, of length 1: the reference's, or else the mean of the cameras' y-axes."""
    down = scene.down
    if down is None:
        down = np.mean([pose.rotation[1] for pose in scene.cam_from_world.values()], axis=0)
        down /= np.linalg.norm(down)
    return np.asarray(down, dtype=np.float64)
