"""Errors of `veil gravity` on photographs whose down is known in some other way, and on photographs without verticals.

    VEIL_DATA=... python lab/benchmarks/gravity.py [--phone] [--drone]

Truth: for Strecha's scenes the world's z-axis, which is down to a fraction of a degree; for the phone its accelerometer; for
the portal nothing. "spread" asks no truth: answers turned into the world by the reference poses, each against their mean.
"refused" are photographs without an answer. --phone also maps the phone's photographs with COLMAP (minutes) and measures the
spread of its accelerometer in the same way; --drone does this alone, with the gimbal's angles of untuned/brighton.
"""

from __future__ import annotations

import argparse
import csv
import math
import os
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from veil.extraction.segments import vertical_of
from veil.files.photographs.examples import lund_door
from veil.files.photographs.gravity import gravity_from_exif
from veil.files.photographs.pictures import find_pictures, read_picture
from veil.geometry.camera import GIVEN, Camera, guessed
from veil.geometry.gravity import Gravity
from veil.geometry.vanishing_point import Vertical

SCENES = ("fountain-P11", "Herz-Jesus-P8", "entry-P10", "castle-P19")
MAX_ROLL_DEG = 10.0  # people hold cameras level to this, so answers beyond it are almost surely wrong


@dataclass(frozen=True, kw_only=True)
class Case:
    """A photograph with its camera, and what is known: down in the camera, or the rotation from camera to world."""

    path: Path
    camera: Camera
    down: np.ndarray | None = None
    world_from_cam: np.ndarray | None = None


def main() -> int:
    """Print one line a set."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--phone", action="store_true", help="map the phone's photographs to measure its accelerometer")
    parser.add_argument("--drone", action="store_true", help="map a drone's photographs to measure its gimbal, and end")
    arguments = parser.parse_args()
    root = Path(os.environ.get("VEIL_DATA", ""))
    if arguments.drone:
        _print_sensor("gimbal", _drone(root / "untuned" / "brighton" / "images"), "of a drone")
        return 0
    if not (root / "strecha").is_dir():
        print("VEIL_DATA does not name the folder of evaluation photographs", file=sys.stderr)
        return 1
    print(f"{'set':34} {'images':>6} {'refused':>7} | {'error, degrees':^20} | {'spread':^13} | {'sigma':>5} {'<2sigma':>7}")
    print(f"{'':34} {'':>6} {'':>7} | {'median':>6} {'90 %':>6} {'max':>6} | {'median':>6} {'max':>6} | {'':>5}")
    strecha = {scene: list(_strecha(root / "strecha" / scene)) for scene in SCENES}
    for scene, cases in strecha.items():
        _print(scene, cases)
    every = [case for cases in strecha.values() for case in cases]
    _print("all four", every)
    _print("all four, focal length guessed", [_with_guessed_focal(case) for case in every])
    _print("lund_door", list(_portal()))
    _print("smartphone_monstree (rocks, tree)", list(_phone(root / "smartphone_monstree")))
    for name in ("bsds500", "imagenet_sample"):
        _print_unknown(name, find_pictures(root / "photos" / name))
    if arguments.phone:
        upright = [case for case in _phone(root / "smartphone_monstree") if case.camera.height_px > case.camera.width_px]
        readings = {case.path: case.down for case in upright if case.down is not None}
        _print_sensor("accelerometer", readings, "of the upright ones")
    return 0


def _strecha(folder: Path) -> Iterator[Case]:
    k = np.loadtxt(folder / "K.txt")
    camera = Camera(model="PINHOLE", width_px=1536, height_px=1024, params=(k[0, 0], k[1, 1], k[0, 2], k[1, 2]))
    for path in find_pictures(folder / "images"):
        numbers = (folder / "gt_dense_cameras" / f"{path.name}.camera").read_text().split()
        world_from_cam = np.array(numbers[12:21], dtype=np.float64).reshape(3, 3)
        yield Case(path=path, camera=camera, down=world_from_cam.T @ [0, 0, 1], world_from_cam=world_from_cam)


def _with_guessed_focal(case: Case) -> Case:
    return replace(case, camera=guessed(case.camera.width_px, case.camera.height_px))


def _portal() -> Iterator[Case]:
    with lund_door() as example:
        for name, pose in sorted(example.poses.items()):
            yield Case(path=example.folder / name, camera=example.camera, world_from_cam=pose.rotation.T)


def _phone(folder: Path) -> Iterator[Case]:
    """With the camera that COLMAP refined."""
    for row in csv.DictReader((folder / "sensors.csv").read_text().splitlines()):
        width, height = int(row["width"]), int(row["height"])
        camera = Camera(model="SIMPLE_RADIAL", width_px=width, height_px=height, params=(1254.6, width / 2, height / 2, 0.0027))
        down = np.array([float(row[f"gravity_{axis}"]) for axis in "xyz"])
        yield Case(path=folder / "images" / row["image"], camera=camera, down=down / np.linalg.norm(down))


def _apart_deg(left: np.ndarray, right: np.ndarray) -> float:
    return math.degrees(math.acos(min(1.0, float(left @ right))))


def _spread_deg(directions: Sequence[np.ndarray]) -> list[float]:
    mean = np.mean(directions, axis=0)
    return [_apart_deg(direction, mean / np.linalg.norm(mean)) for direction in directions]


def _print(name: str, cases: Sequence[Case]) -> None:
    errors, world, sigmas, within = [], [], [], []
    for case in cases:
        vertical = vertical_of(read_picture(case.path, camera=case.camera))
        if not isinstance(vertical, Vertical):
            continue
        direction, sigma = vertical.gravity.direction, vertical.gravity.sigma_deg or math.nan
        sigmas.append(sigma)
        if case.down is not None:
            errors.append(_apart_deg(direction, case.down))
            within.append(errors[-1] < 2 * sigma)
        if case.world_from_cam is not None:
            world.append(case.world_from_cam @ direction)
    spread = _spread_deg(world) if world else []
    print(
        f"{name:34} {len(cases):6d} {len(cases) - len(sigmas):7d} | "
        f"{_quantile(errors, 0.5)} {_quantile(errors, 0.9)} {_quantile(errors, 1)} | "
        f"{_quantile(spread, 0.5)} {_quantile(spread, 1)} | {_quantile(sigmas, 0.5):>5} "
        + (f"{np.mean(within):7.0%}" if within else f"{'-':>7}")
    )


def _quantile(values: Sequence[float], share: float) -> str:
    return f"{np.quantile(values, share):6.2f}" if len(values) else f"{'-':>6}"


def _print_unknown(name: str, paths: Sequence[Path]) -> None:
    """Photographs of all subjects with guessed focal lengths: how many are answered, and how many absurdly."""
    answered, absurd = 0, []
    for path in paths:
        picture = read_picture(path)
        vertical = vertical_of(replace(picture, camera=replace(picture.camera, focal=GIVEN)))
        if isinstance(vertical, Vertical):
            answered += 1
            x, y, _ = vertical.gravity.direction
            if abs(math.degrees(math.atan2(x, y))) > MAX_ROLL_DEG:
                absurd.append(path.name)
    print(f"{name}: {answered} of {len(paths)} answered, {len(absurd)} with a roll beyond {MAX_ROLL_DEG:g} degrees {absurd}")


def _drone(folder: Path) -> dict[Path, np.ndarray]:
    """Gravity by the gimbal's angles, by photograph."""
    readings = {path: gravity_from_exif(path) for path in find_pictures(folder)}
    return {path: reading.direction for path, reading in readings.items() if isinstance(reading, Gravity)}


def _print_sensor(name: str, readings: Mapping[Path, np.ndarray], which: str) -> None:
    """Readings of a sensor against COLMAP's rotations: all readings in one world, each against their mean."""
    import pycolmap

    pycolmap.logging.minloglevel = 3
    with tempfile.TemporaryDirectory() as folder:
        database, names = Path(folder) / "database.db", [path.name for path in readings]
        photographs = next(iter(readings)).parent
        pycolmap.Database.open(database).close()
        reader = pycolmap.ImageReaderOptions(camera_model="SIMPLE_RADIAL")
        extraction = pycolmap.FeatureExtractionOptions()
        extraction.sift.max_num_features = 4000
        single = pycolmap.CameraMode.SINGLE
        pycolmap.extract_features(database, photographs, names, single, reader_options=reader, extraction_options=extraction)
        pycolmap.match_exhaustive(database)
        models = pycolmap.incremental_mapping(database, photographs, folder)
    model = max(models.values(), key=lambda model: model.num_reg_images())
    rotation = {image.name: image.cam_from_world().rotation.matrix() for image in model.images.values()}
    spread = _spread_deg([rotation[path.name].T @ down for path, down in readings.items() if path.name in rotation])
    camera = next(iter(model.cameras.values()))
    print(
        f"{name}, {len(spread)} of {len(readings)} photographs {which} mapped (f {camera.params[0]:.1f}): spread "
        f"median {np.median(spread):.2f}, rms {np.sqrt(np.mean(np.square(spread))):.2f}, max {max(spread):.2f} degrees"
    )


if __name__ == "__main__":
    sys.exit(main())
