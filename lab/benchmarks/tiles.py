"""Do devices find their tiles in maps of hundreds of images of the simulated city, and localize in them as in the whole map?

    VEIL_DATA=... python lab/benchmarks/tiles.py --images 300 1000 --queries 100 --foreign 100

Every tenth image of a city is a query, the first N of the others are the map, at their true poses, with the points that two
of them or more see; foreign queries are of another city. Maps are cut as `veil tiles cut` does, in tiles of `--bytes`, of
which a localization asks for each number of `--asked`, chosen by sketches; "placed" asks for the four nearest to a position
that is off by a normal error of `--gps` meters along each axis. Beside them "raw": the query matched with those 40 images of
the whole raw map that truly share most points with it, which is more than any retrieval knows. One line each tells

- poses within 0.5 m and 2 degrees, other poses, and how many of raw's right poses are among them;
- the median error of position in meters, and that of raw, of queries that both place right;
- bytes that are fetched, and seconds on one thread;
- poses of foreign queries, all of which are wrong.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[2] / "tests"))

from city import simulated
from city_material import DEFAULT
from tqdm import tqdm

from veil.forms import Points
from veil.geometry.rigid import Rigid, rotation_angle_deg
from veil.mechanisms.public import publish
from veil.places.poses.answer import Localization
from veil.places.poses.by_distance import localize
from veil.places.poses.options import LocalizeOptions
from veil.scene import MappedImage, Scene
from veil.threads import settle
from veil.tiles.cutting import CutMap, CutOptions, cut
from veil.tiles.device import localize_in_tiles, wanted_tiles
from veil.tiles.fetching import proved_tile
from veil_lab.city.images import PHONE, City, CityImage

NEAR_M, NEAR_DEG, RAW_IMAGES, PLACED = 0.5, 2.0, 40, 4


def mapped(city: City, images: list[CityImage]) -> tuple[Scene, dict[str, np.ndarray]]:
    """The map of some images at their true poses, and the landmarks that each of them observes, by name."""
    seen, counts = np.unique(np.concatenate([np.unique(image.landmarks) for image in images]), return_counts=True)
    known = seen[(counts >= 2) & (seen >= 0)]
    images_of, landmarks = {}, {}
    for image in images:
        own, rows = np.unique(image.landmarks, return_index=True)
        held = rows[np.isin(own, known)]
        landmarks[image.name] = image.landmarks[held]
        images_of[image.name] = MappedImage(
            name=image.name,
            camera=PHONE,
            cam_from_world=image.cam_from_world,
            keypoints=image.features.keypoints[held],
            point_rows=np.searchsorted(known, image.landmarks[held]).astype(np.int64),
            form=Points(vectors=publish(image.features).vectors[held], space=image.features.space),
        )
    return Scene(images=images_of, points=city.points(known), mean_reprojection_error_px=0.0), landmarks


@dataclass(frozen=True, kw_only=True)
class Answered:
    """The answers of one way to localize: errors in meters by query (None: none within bounds), other poses, seconds."""

    right: dict[int, float]
    wrong: int
    seconds: float


def judged(answers: list[tuple[CityImage, object, float]]) -> Answered:
    """The answers against the true poses."""
    right, wrong = {}, 0
    for image, answer, _ in answers:
        if isinstance(answer, Localization):
            error, turn = errors(answer.cam_from_world, image.cam_from_world)
            wrong += not (error <= NEAR_M and turn <= NEAR_DEG)
            if error <= NEAR_M and turn <= NEAR_DEG:
                right[image.number] = error
    return Answered(right=right, wrong=wrong, seconds=float(np.median([seconds for _, _, seconds in answers])))


def errors(pose: Rigid, truth: Rigid) -> tuple[float, float]:
    """Distance of the centers in meters, and angle of the rotation between them in degrees."""
    return float(np.linalg.norm(pose.center - truth.center)), rotation_angle_deg(pose.rotation @ truth.rotation.T)


def by_raw(scene: Scene, landmarks: dict[str, np.ndarray], queries: list[CityImage]) -> Answered:
    """Answers of the whole raw map, matched with the images that truly share most points."""
    answers = []
    for query in tqdm(queries, "raw"):
        shared = {name: np.isin(own, query.landmarks).sum() for name, own in landmarks.items()}
        ranked = sorted(shared, key=lambda name: -shared[name])[:RAW_IMAGES]
        start = time.perf_counter()
        options = LocalizeOptions(workers=1, retrieved=(RAW_IMAGES,))
        form = publish(query.features)
        answer = localize(PHONE, query.features.keypoints, form, scene, ranked=ranked, options=options)
        answers.append((query, answer, time.perf_counter() - start))
    return judged(answers)


def by_tiles(made: CutMap, queries: list[CityImage], asked: int, gps_m: float | None) -> Answered:
    """Answers of tiles, chosen by sketches, or by a position that is off by `gps_m` along each axis."""
    manifest, answers = replace(made.manifest, asked=min(asked, len(made.manifest))), []
    for query in tqdm(queries, f"{asked} tiles" if gps_m is None else "placed"):
        start = time.perf_counter()
        random = np.random.default_rng(query.number)
        near = None if gps_m is None else query.cam_from_world.center + gps_m * random.normal(size=3)
        wanted = wanted_tiles(manifest, query.features, near=near)
        tiles = [proved_tile(manifest, index, made.records[index].tobytes()) for index in wanted]
        answers.append((query, localize_in_tiles(query.features, manifest, tiles), time.perf_counter() - start))
    return judged(answers)


def lines(count: int, arguments: argparse.Namespace) -> list[dict]:
    """Records of one size of map."""
    city, other = (simulated(1, foreign=foreign, features=1000, path=arguments.material) for foreign in (False, True))
    numbers = np.arange(count * 10 // 9 + 10)
    images = [city.image(int(number)) for number in tqdm(numbers[numbers % 10 != 0][:count], "images")]
    places = numbers[(numbers % 10 == 0) & (numbers < images[-1].number)]
    queries = [city.image(int(number)) for number in places[:: max(1, len(places) // arguments.queries)][: arguments.queries]]
    foreign = [other.image(number) for number in range(0, 7 * arguments.foreign, 7)]
    scene, landmarks = mapped(city, images)
    start = time.perf_counter()
    made = cut(scene, CutOptions(tile_bytes=arguments.bytes, bits=arguments.bits, words=arguments.words))
    facts = {"images": count, "tiles": len(made.manifest), "map_bytes": made.records.size, "cut_s": time.perf_counter() - start}
    print(json.dumps({**facts, **made.report.as_json()}), flush=True)
    raw = by_raw(scene, landmarks, queries)
    records = [{"images": count, "way": "raw", "right": len(raw.right), "wrong": raw.wrong, "seconds": raw.seconds}]
    for asked, gps in [*((asked, None) for asked in arguments.asked), (PLACED, arguments.gps)]:
        own = by_tiles(made, queries, asked, gps)
        both = sorted(set(own.right) & set(raw.right))
        strange = by_tiles(made, foreign, asked, None) if gps is None and asked == max(arguments.asked) else None
        records.append(
            {
                "images": count,
                "way": f"{asked} tiles" if gps is None else f"placed within {gps:g} m",
                "fetched_bytes": min(asked, len(made.manifest)) * made.manifest.record_bytes,
                "queries": len(queries),
                "right": len(own.right),
                "wrong": own.wrong,
                "of_raw": f"{len(both)} of {len(raw.right)}",
                "error_m": float(np.median([own.right[key] for key in both])) if both else None,
                "raw_error_m": float(np.median([raw.right[key] for key in both])) if both else None,
                "seconds": own.seconds,
                "foreign_poses": None if strange is None else f"{strange.wrong + len(strange.right)} of {len(foreign)}",
            }
        )
    for record in records:
        print(json.dumps(record), flush=True)
    return records


def main() -> None:
    """Print one line for each size and way."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--images", type=int, nargs="+", default=[300])
    parser.add_argument("--queries", type=int, default=100)
    parser.add_argument("--foreign", type=int, default=100)
    parser.add_argument("--bytes", type=int, default=CutOptions().tile_bytes)
    parser.add_argument("--bits", type=int, default=8)
    parser.add_argument("--words", type=int, help="of the sketches (default: 64 a tile, 1024 to 4096)")
    parser.add_argument("--asked", type=int, nargs="+", default=[1, 2, 4, 8])
    parser.add_argument("--gps", type=float, default=10.0)
    parser.add_argument("--material", type=Path, default=DEFAULT)
    arguments = parser.parse_args()
    settle()
    for count in arguments.images:
        lines(count, arguments)


if __name__ == "__main__":
    main()
