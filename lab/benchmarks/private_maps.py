"""Do maps of releases hold the photographs that a map of raw features holds, as exactly, and do they serve queries?

    VEIL_DATA=... python lab/benchmarks/private_maps.py untuned/et untuned/kermit strecha/fountain-P11 --held-out 4

Scenes are folders with `images/`, also below VEIL_DATA. No camera is given, features are those of `veil extract` by its
defaults, and all settings are the usual ones. Each scene is mapped from raw features, from releases by the usual selection
(`one-by-one`), and from releases for a map (`for-map`, docs/theory/release.md#features-for-a-map). The secret of a repeat is a
hash of the scene's name and its number. A row gives

- features of a photograph that the map was made of, mean;
- images registered, of all;
- distance of camera centers from those of the raw map after similarity alignment, median and largest, in percent of the
  diagonal of the box about the raw map's centers, and the largest turn of a camera relative to another in degrees;
- the same against reference cameras, where the scene has them, for the raw map too;
- with `--held-out K`: every K-th photograph is in no map, and is a query in the map's own form, by the usual selection. Poses
  found, of all, and their median and largest distance from the centers of a raw map of all photographs;
- the same where the queries left together, for a map of their own, which some of them have;
- processor seconds of matching and mapping, children included; for `for-map` the device's own map is the raw row's.

`--decoy-photographs FOLDER` maps releases for a map with decoys from whole photographs, too (`photographs`): eight of those in
the folder for each image, each once. `--width-px` shrinks scenes to the size that these have.

`--truth` tells instead, of each photograph that a map of releases leaves out, how many of its matches with that of the map with
which it has most are right, by the raw map's geometry, and with how many it is beyond chance (right_matches.py). With one alone
its distance is fixed by the points that both share with others, of which a map asks for twenty. No search does better.

`--foreign` verifies all pairs of photographs of two scenes instead, and counts those that are accepted: none should be.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import pickle
import tempfile
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import TypeVar

import cv2
import numpy as np
from right_matches import TruePairs

from veil.cli.common import quiet_colmap
from veil.codebooks.decoys import in_runs
from veil.device.doors import localize, map_images, published, selected_by_map
from veil.device.protection import HideInSubspaces, Protection, make
from veil.errors import InputError
from veil.extraction.picture import Picture
from veil.extraction.sift import SiftOptions, extract_sift
from veil.features import Features
from veil.files.codebooks import bundled_codebook, bundled_decoys
from veil.files.photographs.pictures import read_picture
from veil.geometry.rigid import Rigid, rotation_angle_deg
from veil.geometry.similarity import align_centers
from veil.matching import match_pairs
from veil.matching.pairs import all_pairs
from veil.mechanisms.decoy_photographs import DecoyPhotographs
from veil.mechanisms.profile import Profile
from veil.mechanisms.release import HideInLines, privatize
from veil.mechanisms.selection import ChosenFeatures, Selection
from veil.places.built_maps import BuiltMap, MappingOptions
from veil.places.images_on_demand import map_image
from veil.places.maps import MapImage, MapOptions, NoMap, StageLimits
from veil.places.maps.colmap import Colmap
from veil.places.maps.verification import Verification
from veil.places.poses.answer import NoPose
from veil.randomness import Secret, memoized
from veil.wire import decode, encode
from veil.wire.message import Message
from veil_lab.files.scenes import read_scene
from veil_lab.studies.board.split import map_errors, poses_of, processor_seconds
from veil_lab.studies.localization.answer_counts import extent_of

# Least number of features of a decoy photograph.
LEAST_DECOYS = 1200
# Number of decoys of a usual release: of 1,000 features, four each.
DECOYS = 4000
COLUMNS = ("scene", "map of", "features", "registered", "to raw, %", "deg", "to reference, %", "queries", "for a map", "s")
WAYS = ("raw", "one-by-one", "for-map")
PHOTOGRAPHS = "photographs"
Sent = Mapping[str, Message | Features]
Kept = TypeVar("Kept")


def main() -> None:
    """Print one table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("scenes", nargs="+", help="folders, also below VEIL_DATA")
    parser.add_argument("--ways", nargs="+", choices=WAYS, default=WAYS, help="what is mapped (default: all)")
    parser.add_argument("--repeats", type=int, default=1, help="number of secrets (default %(default)s)")
    parser.add_argument("--held-out", type=int, default=0, metavar="K", help="keep every K-th photograph as a query")
    parser.add_argument("--foreign", action="store_true", help="count accepted pairs of photographs of two scenes")
    parser.add_argument("--max-features", type=int, default=8192, help="per image (default %(default)s)")
    parser.add_argument("--decoy-photographs", type=Path, metavar="FOLDER", help="photographs of other places, below VEIL_DATA")
    parser.add_argument("--width-px", type=int, metavar="PX", help="shrink photographs whose longer side is above this")
    parser.add_argument("--cache", type=Path, help="a folder that keeps raw features and raw maps between runs")
    parser.add_argument("--truth", action="store_true", help="right matches of photographs that maps leave out")
    arguments = parser.parse_args()
    quiet_colmap()
    folders = [Path(name) if Path(name).is_dir() else Path(os.environ["VEIL_DATA"]) / name for name in arguments.scenes]
    if arguments.foreign:
        for way in arguments.ways:
            print(foreign(folders, way, arguments), flush=True)
        return
    if arguments.truth:
        for folder in folders:
            print("\n".join(left_out(folder, arguments)), flush=True)
        return
    print(f"| {' | '.join(COLUMNS)} |")
    print(f"|{' --- |' * len(COLUMNS)}", flush=True)
    decoys = decoy_photographs(arguments)
    for folder in folders:
        for row in rows(folder, arguments, decoys):
            print(f"| {' | '.join(row)} |", flush=True)


def decoy_photographs(arguments: argparse.Namespace) -> DecoyPhotographs | None:
    """The photographs below `--decoy-photographs` that show enough features to serve; None without that option."""
    if arguments.decoy_photographs is None:
        return None
    found: dict[bytes, Features] = {}
    for path in sorted((Path(os.environ["VEIL_DATA"]) / arguments.decoy_photographs).rglob("*.jp*g")):
        try:
            features = of_picture(path, arguments)
        except InputError:  # it shows nothing
            continue
        if len(features) >= LEAST_DECOYS:
            found[features.image_digest] = features
    return DecoyPhotographs(photographs=tuple(found.values()))


def rows(folder: Path, arguments: argparse.Namespace, decoys: DecoyPhotographs | None) -> list[list[str]]:
    """The rows of a scene."""
    whole = Subject(folder, arguments, every=0)
    subject = Subject(folder, arguments, every=arguments.held_out) if arguments.held_out else whole
    if isinstance(whole.raw, NoMap) or isinstance(subject.raw, NoMap):
        return [[folder.name, "raw", "", f"0 of {len(subject.mapped)}", *[""] * 5, f"{subject.seconds:.0f}"]]
    truth = read_scene(folder).cam_from_world
    made = []
    for way in (*arguments.ways, *([] if decoys is None else [PHOTOGRAPHS])):
        for repeat in range(1 if way == "raw" else arguments.repeats):
            source = f"private maps {folder.name} {repeat}"
            sent = subject.sent(way, source, decoys)
            start = processor_seconds()
            built = subject.raw if way == "raw" else map_images(sent, options=MappingOptions(workers=1))
            seconds = subject.seconds if way == "raw" else processor_seconds() - start
            count = f"{np.mean([len(item) for item in sent.values()]):.0f}"
            answers = [""] * 3 if isinstance(built, NoMap) else compared(built, whole, truth)
            for chosen in (False, True):
                sendable = subject.queries if way == "raw" else subject.sent_queries(source, chosen=chosen)
                if isinstance(built, NoMap) or not sendable or (way == "raw" and chosen):
                    answers.append("")
                else:
                    answers.append(located(built, whole.raw, sendable))
            registered = 0 if isinstance(built, NoMap) else len(built.map.scene.images)
            made.append([folder.name, way, count, f"{registered} of {len(sent)}", *answers, f"{seconds:.1f}"])
    return made


def left_out(folder: Path, arguments: argparse.Namespace) -> list[str]:
    """Sentences on the photographs that maps of releases for a map leave out, though the raw map has them."""
    subject = Subject(folder, arguments, every=0)
    if isinstance(subject.raw, NoMap):
        return [f"{folder.name}: no raw map"]
    raw, told = subject.raw.map.scene.images, []
    for repeat in range(arguments.repeats):
        sent = subject.sent("for-map", f"private maps {folder.name} {repeat}")
        built = map_images(sent, options=MappingOptions(workers=1))
        registered = set() if isinstance(built, NoMap) else {*built.map.scene.images}
        images = {name: map_image(published(item)) for name, item in sent.items() if name in raw}
        matches = match_pairs({name: image.form for name, image in images.items()}, all_pairs(sorted(images)))
        seen = {name: (raw[name].camera, image.keypoints) for name, image in images.items() if image.keypoints is not None}
        truth = TruePairs.of(poses_of(subject.raw), seen)
        told.append(f"{folder.name}, secret {repeat}: {len(registered)} of {len(raw)} registered")
        for name in sorted(set(images) - registered):
            best = truth.best(matches, name, set(images) - {name})
            told.append(f"- {name}: {best.right} (right, by chance, all) with {best.other}; {best.pairs} pairs beyond chance")
    return told


class Subject:
    """Photographs of a scene with raw features and their raw map; regularly some are queries, and in no map."""

    def __init__(self, folder: Path, arguments: argparse.Namespace, *, every: int) -> None:
        features = kept(arguments, f"{folder.name}-features", lambda: extracted(folder, arguments))
        names = sorted(features)
        held = set(names[every // 2 :: every]) if every else set()
        self.mapped = {name: item for name, item in features.items() if name not in held}
        self.queries = {name: features[name] for name in sorted(held)}
        self.raw, self.seconds = kept(arguments, f"{folder.name}-raw-{every}", self._raw_map)

    def _raw_map(self) -> tuple[BuiltMap | NoMap, float]:
        start = processor_seconds()
        built = map_images(self.mapped, options=MappingOptions(workers=1))
        return built, processor_seconds() - start

    def sent(self, way: str, source: str, decoys: DecoyPhotographs | None = None) -> Sent:
        """The images that a map is made of, released by draws named `source`; `photographs` takes whole ones of `decoys`."""
        if way == "raw":
            return self.mapped
        chosen: Mapping[str, ChosenFeatures] = {}
        if way in ("for-map", PHOTOGRAPHS) and isinstance(self.raw, BuiltMap):
            chosen = selected_by_map(self.raw, self.mapped)
        if way == PHOTOGRAPHS and decoys is not None:
            return with_photographs(self.mapped, chosen, decoys, source)
        return {name: released(item, chosen.get(name, Selection()), source) for name, item in self.mapped.items()}

    def sent_queries(self, source: str, *, chosen: bool) -> Sent:
        """Releases of the queries: usual ones, or those for a map, of the queries that a map of them all holds."""
        selections: Mapping[str, ChosenFeatures] = self._queries_for_map if chosen else {}
        return {
            name: released(item, selections.get(name, Selection()), source)
            for name, item in self.queries.items()
            if not chosen or name in selections
        }

    @cached_property
    def _queries_for_map(self) -> Mapping[str, ChosenFeatures]:
        built = map_images(self.queries, options=MappingOptions(workers=1)) if len(self.queries) > 1 else None
        return selected_by_map(built, self.queries) if isinstance(built, BuiltMap) else {}


def foreign(folders: Sequence[Path], way: str, arguments: argparse.Namespace) -> str:
    """A sentence on the pairs of photographs of different scenes that verification accepts."""
    images: dict[str, MapImage] = {}
    for folder in folders:
        sent = Subject(folder, arguments, every=0).sent(way, f"private maps {folder.name} foreign")
        images |= {f"{folder.name}/{name}": map_image(published(item)) for name, item in sent.items()}
    pairs = [pair for pair in all_pairs(sorted(images)) if Path(pair[0]).parent != Path(pair[1]).parent]
    matches = match_pairs({name: image.form for name, image in images.items()}, pairs, workers=1)
    with tempfile.TemporaryDirectory(prefix="veil-") as workdir, Colmap(StageLimits()) as colmap:
        verification = Verification(images, MapOptions(), Path(workdir), colmap)
        if (stopped := verification.run(matches)) is not None:
            return f"{way}: COLMAP was stopped: {stopped.reason}"
    return f"{way}: {len(verification.pairs)} of {len(pairs)} pairs of photographs of different scenes accepted"


def released(
    features: Features, selection: Selection | ChosenFeatures, source: str, *, lines: HideInLines | None = None
) -> Message:
    """The release of an image by the hardened profile with bundled files, as it arrives."""
    release = privatize(
        features,
        profile=Profile.hardened(quantized=True),
        compression=bundled_codebook().compression,
        decoys=in_runs(bundled_decoys(), DECOYS),
        randomness=memoized(secret_of(source)),
        selection=selection,
        lines=lines,
    )
    return decode(encode(release.upload, dtype="float16"))


def with_photographs(
    images: Mapping[str, Features], chosen: Mapping[str, ChosenFeatures], decoys: DecoyPhotographs, source: str
) -> Sent:
    """Releases with decoys from whole photographs, each used once, of the images that are in the raw map."""
    used, sent = set[bytes](), dict[str, Message]()
    for name, selection in chosen.items():
        protection = HideInSubspaces(decoys=decoys.without(used), selection=selection)
        made = make(Protection(descriptors=protection), images[name], memoized(secret_of(source)))
        used.update(made.decoy_photographs)
        sent[name] = decode(encode(made.upload, dtype=made.dtype))
    return sent


def secret_of(source: str) -> Secret:
    """The secret of draws that are named `source`."""
    return Secret(hashlib.sha256(source.encode()).digest())


def compared(built: BuiltMap, whole: Subject, truth: Mapping[str, Rigid]) -> list[str]:
    """Errors of a map to the raw map of all photographs and to the reference, as cells."""
    assert isinstance(whole.raw, BuiltMap)
    own, raw = poses_of(built), poses_of(whole.raw)
    position, turn = errors(own, raw)
    return [position, turn, errors(own, truth)[0] if truth else ""]


def errors(own: Mapping[str, Rigid], other: Mapping[str, Rigid]) -> tuple[str, str]:
    """Median and largest distance of centers in percent of the extent of `other`, and the largest turn in degrees."""
    names = sorted(own.keys() & other.keys())
    if len(names) < 3:
        return "too few", ""
    turns = [
        rotation_angle_deg((own[a].rotation @ own[b].rotation.T) @ (other[a].rotation @ other[b].rotation.T).T)
        for a in names
        for b in names
    ]
    return in_percent(map_errors(own, other), other), f"{max(turns):.2f}"


def located(built: BuiltMap, raw: BuiltMap | NoMap, queries: Sent) -> str:
    """Number of queries that get a pose, and the errors of those that the raw map of all photographs holds."""
    assert isinstance(raw, BuiltMap)
    own, all_poses = poses_of(built), poses_of(raw)
    names = sorted(own.keys() & all_poses.keys())
    to_raw = align_centers([own[name] for name in names], [all_poses[name] for name in names])
    answers = {name: localize(query, built.map) for name, query in queries.items()}
    poses = {name: answer.cam_from_world for name, answer in answers.items() if not isinstance(answer, NoPose)}
    off = [
        float(np.linalg.norm(to_raw.apply(pose.center) - all_poses[name].center))
        for name, pose in poses.items()
        if name in all_poses
    ]
    return f"{len(poses)} of {len(queries)}" + (f", {in_percent(off, all_poses)} %" if off else "")


def in_percent(distances: list[float], poses: Mapping[str, Rigid]) -> str:
    """Median and largest of distances in percent of the diagonal of the box about the centers of `poses`."""
    extent = extent_of(poses.values())
    return f"{100 * np.median(distances) / extent:.2f} / {100 * max(distances) / extent:.2f}"


def extracted(folder: Path, arguments: argparse.Namespace) -> dict[str, Features]:
    """Raw features by image name, as `veil extract` makes them; no camera is given."""
    return {name: of_picture(path, arguments) for name, path in sorted(read_scene(folder).pictures.items())}


def of_picture(path: Path, arguments: argparse.Namespace) -> Features:
    """Raw features of a photograph, shrunk first if it is to be."""
    picture = read_picture(path)
    height, width = picture.gray.shape
    share = 1.0 if arguments.width_px is None else arguments.width_px / max(width, height)
    if share < 1:
        assert picture.rgb is not None
        size = (round(width * share), round(height * share))
        picture = Picture.of(cv2.resize(picture.rgb, size, interpolation=cv2.INTER_AREA))
    return extract_sift(picture, SiftOptions(max_features=arguments.max_features, first_octave=None))


def kept(arguments: argparse.Namespace, name: str, make: Callable[[], Kept]) -> Kept:
    """The value of `make`, from the folder `--cache` if it holds it; this program alone reads and writes the folder."""
    if arguments.cache is None:
        return make()
    path = arguments.cache / f"{name}-{arguments.max_features}-{arguments.width_px}.pickle"
    if not path.exists():
        path.write_bytes(pickle.dumps(make()))
    return pickle.loads(path.read_bytes())


if __name__ == "__main__":
    main()
