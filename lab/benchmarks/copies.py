"""Does localization tell a place from its copies elsewhere in the city, where the map shows the copies more often?

    python lab/benchmarks/copies.py --decoys pool.npz --images 1000 --queries 100

Half of the facades of this city are copies of one template of their width. Of every other block the map has all images, of the
blocks between one in four (`--every`); the queries are images of these. So a query's own facade is in the map, and copies of it
are in many more images. Poses within 0.5 m and 2 degrees are right. One line a kind of map tells how many answers are right,
wrong and none, of the queries of which most landmarks are on copied facades and of the others; of each wrong one, its error and
inliers; and seconds a query.

Kinds: "private" (map and queries in subspaces), "public" (a map of raw features) and "words" (a public map; queries in words).
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[2] / "tests"))

from city_material import DEFAULT
from city_releases import Released, made, read
from queries import asked, explained, mapped, query, verdict

from veil.places.held_map import Map, make_point_index
from veil.threads import settle
from veil_lab.city.plan import block_facades, spiral
from veil_lab.city.walks import BLOCK_WALKS, WALK_IMAGES

COPIES: dict[str, Any] = {"copied_share": 0.5, "templates": 1}
BLOCK = WALK_IMAGES * BLOCK_WALKS
RING = 6


def copied_facades(seed: int) -> np.ndarray:
    """Identities of the facades that are copies, of blocks near the origin of a city."""
    cells = [spiral(number) for number in range((2 * RING + 1) ** 2)]
    facades = [one for cell in cells for one in block_facades(seed, *cell, **COPIES)]
    return np.array([facade.identity for facade in facades if facade.is_copy])


def shows_copies(city: Released, image: int, copied: np.ndarray) -> bool:
    """Whether most landmarks of an image are on copied facades."""
    landmarks = city.landmarks[city.rows(image)]
    return bool(np.isin(landmarks[landmarks >= 0] >> 16, copied).mean() > 0.5)


def measured(city: Released, arguments: argparse.Namespace, kind: str) -> dict:
    """The line of one kind."""
    numbers = np.arange(len(city.poses))
    seldom = numbers // BLOCK % 2 == 1
    images = numbers[~seldom | (numbers % arguments.every == 0)]
    queries = numbers[seldom & (numbers % arguments.every == arguments.every // 2)]
    queries = queries[np.unique(np.linspace(0, len(queries) - 1, min(arguments.queries, len(queries))).astype(int))]
    copied = copied_facades(arguments.seed)
    scene, known = mapped(city, images, kind, arguments.material, arguments.seed, **COPIES)
    where = Map(scene=scene)
    if kind != "words":
        make_point_index(where, threads=1)
    answers, seconds = asked(where, (query(city, int(q), kind) for q in queries), "index", len(queries), kind)
    facts: dict = {"kind": kind, "seed": arguments.seed, "images": len(images), "points": len(known)}
    judged = [(int(q), a, verdict(a, city.pose(int(q)))) for q, a in zip(queries, answers, strict=True)]
    for label, wanted in (("copies", True), ("others", False)):
        own = [outcome for q, _, outcome in judged if shows_copies(city, q, copied) == wanted]
        facts[label] = {"queries": len(own), **{name: own.count(name) for name in ("right", "wrong", "none")}}
    facts["wrong_ones"] = [explained(city, q, known, a) for q, a, outcome in judged if outcome == "wrong"]
    return facts | {"mean_s": round(float(np.mean(seconds)), 3)}


def main() -> None:
    """Print one line a kind as JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--images", type=int, default=1000, help="of the city (default %(default)s)")
    parser.add_argument("--seed", type=int, default=1, help="of the city (default %(default)s)")
    parser.add_argument("--every", type=int, default=4, help="of the images that are mapped seldom (default %(default)s)")
    parser.add_argument("--kinds", nargs="+", choices=("private", "public", "words"), default=["private", "public", "words"])
    parser.add_argument("--queries", type=int, default=100, help="at most (default %(default)s)")
    parser.add_argument("--decoys", type=Path, required=True, metavar="NPZ", help="pool of the devices' decoys")
    parser.add_argument("--keep", type=Path, default=Path("copies-parts"), metavar="FOLDER", help="default %(default)s")
    parser.add_argument("--material", type=Path, default=DEFAULT, metavar="NPZ", help="default %(default)s")
    arguments = parser.parse_args()
    settle()
    arguments.keep.mkdir(parents=True, exist_ok=True)
    job = (0, arguments.images, False, arguments.keep, arguments.decoys, arguments.material)
    city = read([made(job, arguments.seed, **COPIES)])
    for kind in arguments.kinds:
        print(json.dumps(measured(city, arguments, kind)), flush=True)


if __name__ == "__main__":
    main()
