"""A simulated city of any number of images: features, gravity and truth as files, and what they are like beside real ones.

    python lab/benchmarks/city.py OUT --images 1000 --seed 1
    python lab/benchmarks/city.py OUT --images 1000 --first 9000        the last of 10,000, as another worker would make them
    python lab/benchmarks/city.py OUT --images 200 --foreign            of another city, from photographs that are kept apart
    python lab/benchmarks/city.py OUT --images 200 --mirrored           of the same city, as a mirror shows it
    python lab/benchmarks/city.py --compare --figure docs/figures/city.png
    veil privatize OUT/features.h5 -o up --for map --decoys pool.npz --json up.json && veil map up -o map
    python lab/benchmarks/city.py OUT --check map --messages up.json    positions of a map against the truth

OUT gets features.h5 (as `veil extract` writes; 0.65 MB an image), gravity.csv (as `veil gravity` writes) and truth.npz:
names, cam_from_world (N, 3, 4), `starts` (N + 1) and `landmarks` (features of image i are starts[i] to starts[i + 1]; -1 is
clutter), `ids` and `points` of all landmarks that have a feature, and `left`, `right`, `shared`: how many landmarks two images
have features of, for each pair that shares any. Image i is a function of seed and i alone, so parts of a city can be made
apart; more than 10,000 at once are refused, and --first makes the next. Other benchmarks call `simulated` and need no file.

The first use measures what cities are made of, on VEIL_DATA (docs/theory/city.md), and keeps it in --material.
"""

from __future__ import annotations

import argparse
import json
import resource
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[2] / "tests"))

from city_material import DEFAULT, material
from tqdm import tqdm

from veil.cli.common import quiet_colmap
from veil.features import Features
from veil.files.features import write_features
from veil.files.maps.format import read_map
from veil.files.photographs.gravity import write_gravity
from veil.geometry.rigid import Rigid
from veil.geometry.similarity import align_poses, pose_error
from veil_lab.city.images import City, CityImage, CityOptions, mirrored, shared_landmarks

MOST_AT_ONCE = 10_000
FOREIGN_SEED = 1 << 19  # added to the seed of a foreign city, which shares no landmark's id with the others


def simulated(seed: int = 1, *, foreign: bool = False, path: Path = DEFAULT, **options: float) -> City:
    """The city of a seed, or a foreign one, from other photographs; `options` are those of `CityOptions`."""
    made = material(path)
    return City(
        looks=made.foreign if foreign else made.looks,
        statistics=made.statistics,
        options=CityOptions(seed=seed + FOREIGN_SEED if foreign else seed, **options),
    )


def write_city(folder: Path, city: City, images: Iterator[CityImage], count: int) -> dict:
    """Write features.h5, gravity.csv and truth.npz of images of a city, one in memory at a time; returns counts and seconds."""
    folder.mkdir(parents=True, exist_ok=True)
    names: list[str] = []
    poses, landmarks, readings = [], [], {}

    def noted() -> Iterator[tuple[str, Features]]:
        for image in tqdm(images, total=count, unit="image"):
            names.append(image.name)
            poses.append(np.hstack([image.cam_from_world.rotation, image.cam_from_world.translation[:, None]]))
            landmarks.append(image.landmarks)
            readings[image.name] = image.gravity
            yield image.name, image.features

    start, processor = time.perf_counter(), time.process_time()
    write_features(folder / "features.h5", noted())
    write_gravity(folder / "gravity.csv", readings)
    pairs = shared_landmarks(landmarks).tocoo()
    upper = pairs.row < pairs.col
    ids = np.unique(np.concatenate(landmarks))
    ids = ids[ids >= 0]
    np.savez(
        folder / "truth.npz",
        names=np.array(names),
        cam_from_world=np.array(poses),
        starts=np.cumsum([0, *(len(own) for own in landmarks)]),
        landmarks=np.concatenate(landmarks),
        ids=ids,
        points=city.points(ids),
        left=pairs.row[upper].astype(np.int32),
        right=pairs.col[upper].astype(np.int32),
        shared=pairs.data[upper],
    )
    return {
        "images": len(names),
        "features": int(sum(len(own) for own in landmarks)),
        "landmarks": len(ids),
        "pairs_sharing_30": int((pairs.data[upper] >= 30).sum()),
        "seconds": round(time.perf_counter() - start, 1),
        "processor_s": round(time.process_time() - processor, 1),
        "peak_memory_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024,
    }


def checked(folder: Path, model: Path, messages: Path | None = None) -> dict:
    """Position and rotation errors of a map's images against the truth of a city, after the similarity that fits the poses.

    Messages have names of their own; `messages` is what `veil privatize --json` wrote, which tells whose they are.
    """
    with np.load(folder / "truth.npz") as truth:
        true = {
            str(name): Rigid(rotation=pose[:, :3].copy(), translation=pose[:, 3].copy())
            for name, pose in zip(truth["names"], truth["cam_from_world"], strict=True)
        }
    released = json.loads(messages.read_text())["releases"] if messages else []
    photograph = {Path(release["file"]).stem: release["name"] for release in released}
    images = {photograph.get(Path(name).stem, name): image for name, image in read_map(model).images.items()}
    names = sorted(set(images) & set(true))
    if len(names) < 3:
        raise SystemExit(
            f"{model} and {folder} share {len(names)} images; name what `veil privatize --json` wrote by --messages"
        )
    similarity = align_poses([images[name].cam_from_world for name in names], [true[name] for name in names])
    errors = np.array([pose_error(images[name].cam_from_world, true[name], similarity) for name in names])
    return {
        "images": len(true),
        "registered": len(names),
        "position_m": {str(q): round(float(np.percentile(errors[:, 0], q)), 4) for q in (50, 90, 100)},
        "rotation_deg": {str(q): round(float(np.percentile(errors[:, 1], q)), 4) for q in (50, 90, 100)},
    }


def main() -> None:
    """Write a city, compare it with real tracks, or check a map of it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path, nargs="?", help="folder to write")
    parser.add_argument("--images", type=int, default=1000)
    parser.add_argument("--first", type=int, default=0, help="number of the first image (default %(default)s)")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--features", type=int, default=1000, help="of an image, at most (default %(default)s)")
    parser.add_argument("--gravity-sigma", type=float, default=0.5, metavar="DEG", help="default %(default)s")
    parser.add_argument("--copied-share", type=float, default=0.06, help="of facades (default %(default)s)")
    parser.add_argument("--foreign", action="store_true", help="another city, from other photographs")
    parser.add_argument("--mirrored", action="store_true", help="every image as a mirror shows it")
    parser.add_argument("--material", type=Path, default=DEFAULT, metavar="NPZ", help="default %(default)s")
    parser.add_argument("--compare", action="store_true", help="print a simulated city beside real tracks, and end")
    parser.add_argument("--figure", type=Path, help="with --compare: write this picture")
    parser.add_argument("--check", type=Path, metavar="MAP", help="compare a map with the truth in OUT, and end")
    parser.add_argument("--messages", type=Path, metavar="JSON", help="with --check, of a map of messages: `privatize --json`")
    arguments = parser.parse_args()
    quiet_colmap()
    if arguments.compare:
        from city_figure import compare

        compare(arguments.material, arguments.seed, arguments.figure)
        return
    if arguments.out is None:
        parser.error("name a folder to write")
    if arguments.check:
        print(json.dumps(checked(arguments.out, arguments.check, arguments.messages)))
        return
    if not 1 <= arguments.images <= MOST_AT_ONCE:
        parser.error(f"--images must be 1 to {MOST_AT_ONCE}; make the others with --first, into another folder")
    city = simulated(
        arguments.seed,
        foreign=arguments.foreign,
        path=arguments.material,
        features=arguments.features,
        gravity_sigma_deg=arguments.gravity_sigma,
        copied_share=arguments.copied_share,
    )
    images = city.images(arguments.images, first=arguments.first)
    if arguments.mirrored:
        images = map(mirrored, images)
    print(json.dumps(write_city(arguments.out, city, images, arguments.images)))


if __name__ == "__main__":
    main()
