"""Wrong cameras: are maps and poses right, refused, or wrong without a warning, where a focal length or a motion misleads?

    VEIL_DATA=... python lab/benchmarks/wrong_cameras.py maps lund_door fox untuned/temple untuned/reichstag
    VEIL_DATA=... python lab/benchmarks/wrong_cameras.py queries lund_door --factors 0.5 0.7 0.85 1.2 1.5 2
    VEIL_DATA=... python lab/benchmarks/wrong_cameras.py motions lund_door

- `maps`: photographs with the EXIF of their true focal length, in whole millimeters; their middle 70 and 50 % a side, and the
  largest square, with that EXIF kept, as galleries keep it; and cameras given with a wrong focal length. At most 13
  photographs of a scene, at even steps.
- `queries`: every third photograph asked on the map of the others, its focal length off by each factor, in every form.
- `motions`: a photograph's features as a camera that turns, or stands still, would see them, and two photographs alone.

A map is right if the median image is within 2 % of the extent of the reference and 2 degrees, after alignment. So is a query's
pose. Else a map is "covered" if `veil map` notes how badly its positions or focal lengths are known, and the median position is
right or within twice what it says of positions. Turns count as wrong unless the focal lengths are noted. A query is if the
answer's 95 % region holds the reference (pose_coverage.py). The rest is wrong. Columns of maps: median and largest position
error in shares of the extent, turn in degrees, cameras whose focal length the map contradicts, and how well it says that it
knows positions and focal lengths. Seconds are of the processor.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

import numpy as np
from PIL import Image

sys.path.insert(0, str(Path(__file__).parents[2] / "tests"))

from mirrored import mean_down, message
from pose_coverage import EPSILON, FORMS, outcome

import veil
from veil.cli.common import quiet_colmap
from veil.geometry.camera import GIVEN, FocalPrior, guessed
from veil.geometry.rigid import Rigid
from veil.geometry.similarity import Similarity, align_centers, align_poses, pose_error
from veil.threads import settle
from veil_lab.files.scenes import ReferenceScene, read_scene

MOST_IMAGES, NEAR_SHARE, NEAR_DEG = 13, 0.02, 2.0
CROPS = {"whole": 1.0, "crop to 70 %": 0.7, "crop to 50 %": 0.5}
SQUARE = "square"
FACTORS = (0.7, 0.85, 1.2, 1.5)
DIAGONAL_MM = 43.267  # of full frame
Verdict = Literal["right", "covered", "wrong", "refused"]
COLUMNS = ("scene", "case", "verdict", "images", "position", "turn", "contradicted", "positions told", "focal told", "s")


@dataclass(frozen=True, kw_only=True)
class MapErrors:
    """Errors of a map's images after alignment: shares of the reference's extent, and degrees."""

    images: int
    shares: tuple[float, ...]
    degrees: tuple[float, ...]

    def verdict(self, check: object) -> Verdict:
        """Whether the median image is near the reference, or else as near as the check says that warns of more."""
        position, turned = float(np.median(self.shares)), float(np.median(self.degrees)) > NEAR_DEG
        if position <= NEAR_SHARE and not turned:
            return "right"
        if not isinstance(check, veil.MapCheck) or check.vague is None:
            return "wrong"
        if turned and "focal lengths" not in check.vague:
            return "wrong"
        return "covered" if position <= max(NEAR_SHARE, 2 * (check.uncertainty or 0.0)) else "wrong"

    @property
    def cells(self) -> tuple[str, str, str]:
        """Images, position and turn, of the median image and the worst one."""
        return (
            f"{self.images}",
            f"{np.median(self.shares):.1%}, {max(self.shares):.1%}".replace("%", " %"),
            f"{np.median(self.degrees):.2f}, {max(self.degrees):.2f}",
        )


def extent(poses: Mapping[str, Rigid]) -> float:
    """Length of the diagonal of the box around camera centers."""
    return float(np.linalg.norm(np.ptp([pose.center for pose in poses.values()], axis=0)))


def map_errors(poses: Mapping[str, Rigid], truth: Mapping[str, Rigid]) -> MapErrors | None:
    """Errors of a map's poses against the reference, after the similarity that fits the poses; None if none does."""
    names = sorted(set(poses) & set(truth))
    try:
        similarity = align_poses([poses[name] for name in names], [truth[name] for name in names])
    except veil.InputError:  # centers are reversed: a map turned inside out
        return None
    errors = [pose_error(poses[name], truth[name], similarity) for name in names]
    size = extent({name: truth[name] for name in names})
    return MapErrors(
        images=len(names),
        shares=tuple(position / size for position, _ in errors),
        degrees=tuple(turn for _, turn in errors),
    )


def query_verdict(answer: object, truth: Rigid, size: float) -> Verdict:
    """Verdict on the answer to a query whose true pose in the map is known; `size` is the extent of the map."""
    if not isinstance(answer, veil.Localization):
        return "refused"
    one = outcome("", "", 0, answer, truth)
    assert one.error_m is not None and one.error_deg is not None
    if one.error_m <= NEAR_SHARE * size and one.error_deg <= NEAR_DEG:
        return "right"
    outside = one.turn is None or one.turn > 1 or one.position is None or one.position > 1
    return "wrong" if outside else "covered"


def posed(name: str) -> ReferenceScene:
    """A scene below VEIL_DATA with reference cameras; those of its folder `untuned` are known as well as a user's are."""
    folder = Path(os.environ["VEIL_DATA"]) / name
    scene = read_scene(folder)
    if not any((folder / table).is_file() for table in ("cameras.json", "templeR_par.txt")):
        return scene
    cameras = {}
    for key, camera in scene.cameras.items():
        focal_px, _, *middle = camera.params
        known = replace(guessed(camera.width_px, camera.height_px, focal_px=focal_px), focal=GIVEN)
        cameras[key] = replace(known, params=(focal_px, *middle, 0.0))
    return replace(scene, cameras=cameras)


def some(names: Sequence[str]) -> list[str]:
    """At most `MOST_IMAGES` names at even steps."""
    return [names[row] for row in np.unique(np.linspace(0, len(names) - 1, min(MOST_IMAGES, len(names))).astype(int))]


def cut(path: Path, focal_px: float, kind: str, target: Path) -> None:
    """Write a part of a photograph with the EXIF of the whole one: its focal length in full-frame millimeters, and its size."""
    picture = Image.open(path).convert("RGB")
    width, height = picture.size
    sides = (min(width, height),) * 2 if kind == SQUARE else (round(width * CROPS[kind]), round(height * CROPS[kind]))
    left, top = (width - sides[0]) // 2, (height - sides[1]) // 2
    exif = Image.Exif()
    tags = exif.get_ifd(0x8769)
    tags[0xA405] = max(1, round(focal_px * DIAGONAL_MM / float(np.hypot(width, height))))
    tags[0xA002], tags[0xA003] = width, height
    picture.crop((left, top, left + sides[0], top + sides[1])).save(target, exif=exif, quality=95)


def print_heads(columns: Sequence[str]) -> None:
    """Begin a table."""
    print(*columns, sep=" | ")
    print(*["---"] * len(columns), sep=" | ", flush=True)


def report(scene: str, case: str, truth: Mapping[str, Rigid], answer: object, seconds: float) -> Verdict:
    """Print the row of one map (`COLUMNS`), and return its verdict."""
    took = f"{seconds:.0f}"
    if not isinstance(answer, veil.BuiltMap):
        print("refused:", scene, case, getattr(answer, "reason", answer), file=sys.stderr, flush=True)
        print(scene, case, "refused", *["-"] * (len(COLUMNS) - 4), took, sep=" | ", flush=True)
        return "refused"
    check = answer.check
    errors = map_errors({name: image.cam_from_world for name, image in answer.map.scene.images.items()}, truth)
    verdict: Verdict = "wrong" if errors is None else errors.verdict(check)
    told = ["-"] * 3
    if isinstance(check, veil.MapCheck):
        known = (check.uncertainty, check.focal_deviation)
        told = [f"{len(check.contradicted_focals)}", *("-" if share is None else f"{100 * share:.1f} %" for share in known)]
    print(scene, case, verdict, *(errors.cells if errors else "---"), *told, took, sep=" | ", flush=True)
    return verdict


def maps(given: argparse.Namespace) -> Counter[Verdict]:
    """Maps of all scenes and cases."""
    verdicts: Counter[Verdict] = Counter()
    print_heads(COLUMNS)
    for name in given.scenes:
        scene = posed(name)
        names = some(sorted(scene.pictures))
        truth = {key: scene.cam_from_world[key] for key in names}
        for case, features in map_cases(scene, names, given):
            begun = time.process_time()
            answer = veil.map_images(features)
            verdicts[report(name, case, truth, answer, time.process_time() - begun)] += 1
    return verdicts


def map_cases(
    scene: ReferenceScene, names: Sequence[str], given: argparse.Namespace
) -> Iterator[tuple[str, dict[str, veil.Features]]]:
    """Names of cases, and the features of a scene's photographs in them."""
    options = veil.SiftOptions(max_features=given.max_features)
    with tempfile.TemporaryDirectory() as folder:
        for kind in (*CROPS, SQUARE):
            features: dict[str, veil.Features] = {}
            for key in names:
                target = Path(folder) / f"{len(features)}.jpg"
                cut(scene.pictures[key], scene.cameras[key].focal_px, kind, target)
                features[key] = veil.extract(veil.read_picture(target), options=options)
            yield f"{kind}, EXIF kept", features
    pictures = {key: veil.read_picture(scene.pictures[key], camera=scene.cameras[key]) for key in names}
    right = {key: veil.extract(picture, options=options) for key, picture in pictures.items()}
    for factor in given.factors:
        yield f"camera x {factor:g}", {key: off_by(one, factor) for key, one in right.items()}


def off_by(features: veil.Features, factor: float) -> veil.Features:
    """Features whose device states a focal length times `factor`, with the deviation of a given one."""
    camera = features.camera
    count = camera.focal_count
    params = (*(value * factor for value in camera.params[:count]), *camera.params[count:])
    return replace(features, camera=replace(camera, params=params, focal=FocalPrior(origin="given", deviation=GIVEN.deviation)))


def queries(given: argparse.Namespace) -> Counter[Verdict]:
    """Queries of all scenes, forms and factors."""
    options = veil.SiftOptions(max_features=given.max_features)
    counts: dict[tuple[str, float], Counter[Verdict]] = {}
    with tempfile.TemporaryDirectory() as home:
        device = veil.Device(Path(home) / "home")
        for name in given.scenes:
            scene = posed(name)
            names = some(sorted(scene.pictures))
            down = scene.down if scene.down is not None else mean_down(scene)
            gravity = {key: scene.cam_from_world[key].rotation @ down for key in names}
            pictures = {key: veil.read_picture(scene.pictures[key], camera=scene.cameras[key]) for key in names}
            features = {key: veil.extract(picture, options=options) for key, picture in pictures.items()}
            for first in range(3):
                held_out = names[first::3]
                others = {key: one for key, one in features.items() if key not in held_out}
                built = veil.map_images(others, gravity={key: gravity[key] for key in others})
                if isinstance(built, veil.BuiltMap):
                    ask(given, scene, device, built.map, {key: features[key] for key in held_out}, gravity, counts)
    print_heads(("form", "factor", "right", "covered", "wrong", "refused"))
    for (form, factor), own in counts.items():
        print(form, f"{factor:g}", own["right"], own["covered"], own["wrong"], own["refused"], sep=" | ")
    return sum(counts.values(), Counter())


def ask(
    given: argparse.Namespace,
    scene: ReferenceScene,
    device: veil.Device,
    where: veil.Map,
    held_out: Mapping[str, veil.Features],
    gravity: Mapping[str, np.ndarray],
    counts: dict[tuple[str, float], Counter[Verdict]],
) -> None:
    """Ask the held-out photographs on a map in every form, with each factor."""
    images = {key: image.cam_from_world for key, image in where.scene.images.items()}
    names = sorted(images)
    map_from_world: Similarity = align_centers([scene.cam_from_world[key] for key in names], [images[key] for key in names])
    for form in given.forms:
        for factor in given.factors:
            for key, features in held_out.items():
                wrong = off_by(features, factor)
                sent = wrong if form == "raw" else message(device, wrong, form, gravity[key], EPSILON)
                truth = map_from_world.moved(scene.cam_from_world[key])
                verdict = query_verdict(veil.localize(sent, where), truth, extent(images))
                counts.setdefault((form, factor), Counter())[verdict] += 1


def motions(given: argparse.Namespace) -> Counter[Verdict]:
    """Answers of maps to turns about one center, a tripod, and two images."""
    verdicts: Counter[Verdict] = Counter()
    print_heads(COLUMNS)
    for name in given.scenes:
        scene = posed(name)
        names = sorted(scene.pictures)
        options = veil.SiftOptions(max_features=given.max_features)
        first, second, last = (
            veil.extract(veil.read_picture(scene.pictures[key], camera=scene.cameras[key]), options=options)
            for key in (names[0], names[1], names[-1])
        )
        cases = {
            "turns of 3 degrees": {f"{row}": turned(second, angle, row) for row, angle in enumerate((-6, -3, 0, 3, 6))},
            "tripod": {f"{row}": turned(second, 0, row) for row in range(5)},
            "two neighbors": {names[0]: first, names[1]: second},
            "two far apart": {names[0]: first, names[-1]: last},
        }
        for case, features in cases.items():
            for guess in (False, True):
                asked = {
                    key: replace(one, camera=guessed(one.camera.width_px, one.camera.height_px)) if guess else one
                    for key, one in features.items()
                }
                begun = time.process_time()
                answer = veil.map_images(asked)
                label = f"{case}{', focal length guessed' if guess else ''}"
                truth = {key: scene.cam_from_world.get(key, scene.cam_from_world[names[1]]) for key in asked}
                if isinstance(answer, veil.BuiltMap):
                    row = [f"{len(answer.map.scene.images)}", *["-"] * (len(COLUMNS) - 4)]
                    print(name, label, "wrong", *row, sep=" | ")
                    verdicts["wrong"] += 1
                else:
                    verdicts[report(name, label, truth, answer, time.process_time() - begun)] += 1
    return verdicts


def turned(features: veil.Features, angle_deg: float, seed: int) -> veil.Features:
    """Features as the camera sees them after a turn about its vertical axis, and a third of it about the horizontal one.

    Keypoints get noise of 0.3 px, and descriptors of three units; distortion is left out.
    """
    random = np.random.default_rng(seed)
    width, height, params = features.camera.width_px, features.camera.height_px, features.camera.params
    focal, (x, y) = features.camera.focal_px, params[features.camera.focal_count :][:2]
    calibration = np.array([[focal, 0, x], [0, focal, y], [0, 0, 1.0]])
    about_x, about_y = np.radians(angle_deg) / 3, np.radians(angle_deg)
    tilt = np.array([[1, 0, 0], [0, np.cos(about_x), -np.sin(about_x)], [0, np.sin(about_x), np.cos(about_x)]])
    pan = np.array([[np.cos(about_y), 0, np.sin(about_y)], [0, 1, 0], [-np.sin(about_y), 0, np.cos(about_y)]])
    places = np.column_stack([features.keypoints, np.ones(len(features.keypoints))])
    seen = places @ (calibration @ tilt @ pan @ np.linalg.inv(calibration)).T
    xy = seen[:, :2] / seen[:, 2:] + random.normal(0, 0.3, (len(places), 2))
    inside = np.flatnonzero(((xy > 0) & (xy < [width, height])).all(axis=1))
    kept = features.take(inside)
    noise = random.integers(-3, 4, kept.descriptors.shape)
    return replace(
        kept,
        keypoints=xy[inside].astype(np.float32),
        descriptors=np.clip(kept.descriptors.astype(int) + noise, 0, 255).astype(np.uint8),
        camera=replace(guessed(width, height, focal_px=focal), focal=GIVEN),
        image_digest=seed.to_bytes(32, "big"),
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("maps", "queries", "motions"))
    parser.add_argument("scenes", nargs="+", help="folders, below VEIL_DATA")
    parser.add_argument("--forms", nargs="+", choices=FORMS[:-1], default=list(FORMS[:-1]))
    parser.add_argument("--factors", nargs="+", type=float, default=list(FACTORS), help="of focal lengths")
    parser.add_argument("--max-features", type=int, default=1500)
    given = parser.parse_args()
    settle()
    quiet_colmap()
    begun = time.process_time()
    verdicts = {"maps": maps, "queries": queries, "motions": motions}[given.what](given)
    print(*(f"{verdict}: {verdicts[verdict]}" for verdict in ("right", "covered", "wrong", "refused")), sep=", ")
    print(f"processor seconds: {time.process_time() - begun:.0f}")


if __name__ == "__main__":
    main()
