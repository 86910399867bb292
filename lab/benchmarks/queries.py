"""What do queries cost on maps of 100 to 10,000 images of the simulated city, and are they answered as exhaustive search does?

    python lab/benchmarks/queries.py --decoys pool.npz --images 100 300 1000 --exhaustive 100
    python lab/benchmarks/queries.py --decoys pool.npz --images 100 300 1000 3000 10000 --queries 1000 --foreign 1000 --lines F
    python lab/benchmarks/queries.py --decoys pool.npz --images --lines FILE --figure query_times.png

Every tenth image of a city is a query, the first N of the others are the map, at their true poses, with the points that two of
them or more see; foreign queries are of another city. All features are released by the hardened default. Kinds: "private" (map
and queries in subspaces), "public" (a map of raw features) and "words" (a public map; queries in words of the bundled
dictionary, epsilon 9, m 2). One line a size tells

- the share of points listed under the word of one of their raw features, by the number of images that see them;
- recall at 20 of images that share thirty points with the query, by the map's index and by TF-IDF of raw words;
- poses within 0.5 m and 2 degrees, other poses, and no pose, by the index; of each other pose its error, how far off it says
  that it may be, and how many of its inliers are true matches;
- the same for `--exhaustive` of the queries matched with all images (in words: with the candidates of all), how many of these
  poses the index finds too, and the time that both take for the same queries, in one run;
- in words, the same for `--neighbors` of the queries without any index: mutual nearest neighbors of the words in every image of
  the map, as descriptors are matched (Pittaluga and Zhuang 2023, Table 3);
- poses of foreign queries, all of which are wrong.

Numbers are of one thread each. --keep keeps the released images of cities in a folder, for the next run.
"""

from __future__ import annotations

import argparse
import json
import resource
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any, Literal

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[2] / "tests"))

from city import simulated
from city_material import DEFAULT
from city_releases import BOOK, Released, made, read
from tqdm import tqdm

from veil.device.doors import localize
from veil.features import Features
from veil.forms import Form, Points, Subsets
from veil.geometry.rigid import Rigid, center_covariance
from veil.ldp.mechanism import SubsetMechanism
from veil.mechanisms.words import to_words
from veil.places.held_map import Map, index_for, make_point_index, point_index_of, ranked_images
from veil.places.localization import WORD_SECONDS
from veil.places.pairs.images import LoadedImage
from veil.places.poses.answer import Localization
from veil.places.poses.by_words import localize_candidates
from veil.places.poses.options import LocalizeOptions, WordOptions
from veil.randomness import seeded
from veil.report.figures import drawn, series
from veil.scene import MappedImage, Scene
from veil.threads import settle
from veil_lab.city.images import PHONE
from veil_lab.studies.localization.word_localization import neighbor_candidates

PART, LEAST_SHARED = 1000, 30
NEAR_M, NEAR_DEG = 0.5, 2.0
Search = Literal["index", "all", "neighbors"]
EPSILON, WORDS_SENT = 9.0, 2
_NEAREST: dict[int, np.ndarray] = {}


def mapped(
    city: Released, images: np.ndarray, kind: str, material: Path, seed: int = 1, **options: Any
) -> tuple[Scene, np.ndarray]:
    """The map of some images at their true poses, and the landmark of each of its points; `options` are those of the city."""
    rows = np.concatenate([city.rows(image) for image in images])
    seen, counts = np.unique(city.landmarks[rows], return_counts=True)
    known = seen[(counts >= 2) & (seen >= 0)]
    points = simulated(seed, features=1000, path=material, **options).points(known)
    images_of = {}
    for image in images:
        own = city.rows(image)
        place = np.searchsorted(known, city.landmarks[own])
        held = own[(place < len(known)) & (known[np.minimum(place, len(known) - 1)] == city.landmarks[own])]
        # An image has one feature of a point.
        held = held[np.unique(city.landmarks[held], return_index=True)[1]]
        images_of[str(image)] = MappedImage(
            name=str(image),
            camera=PHONE,
            cam_from_world=city.pose(image),
            keypoints=city.keypoints[held].astype(np.float32),
            point_rows=np.searchsorted(known, city.landmarks[held]).astype(np.int64),
            form=city.form(held, kind),
        )
    return Scene(images=images_of, points=points, mean_reprojection_error_px=1.0), known


def query(city: Released, image: int, kind: str) -> LoadedImage:
    """An image as it is sent."""
    rows = city.rows(image)
    form: Form = city.form(rows, "private")
    if kind == "words":
        features = Features(
            keypoints=city.keypoints[rows].astype(np.float32),
            descriptors=city.raw[rows],
            space=BOOK.raw_space,
            camera=PHONE,
            image_digest=image.to_bytes(32, "big"),
        )
        mechanism = SubsetMechanism(dictionary_size=len(BOOK), epsilon=EPSILON, m=WORDS_SENT)
        form = to_words(features, mechanism=mechanism, dictionary=BOOK, randomness=seeded("words")).form
    return LoadedImage(camera=PHONE, positions=city.keypoints[rows].astype(np.float32), form=form)


def off(pose: Rigid, truth: Rigid) -> tuple[float, float]:
    """How far a pose is from the truth, in meters and in degrees."""
    turn = np.degrees(np.arccos(np.clip((np.trace(pose.rotation @ truth.rotation.T) - 1) / 2, -1, 1)))
    return float(np.linalg.norm(pose.center - truth.center)), float(turn)


def verdict(answer: object, truth: Rigid) -> str:
    """Verdict on an answer to a query: "right", "wrong" or "none"."""
    if not isinstance(answer, Localization):
        return "none"
    meters, degrees = off(answer.cam_from_world, truth)
    return "right" if meters <= NEAR_M and degrees <= NEAR_DEG else "wrong"


def explained(city: Released, image: int, known: np.ndarray, answer: Localization) -> dict:
    """Facts of a wrong pose: its error, its own evidence, and the number of its inliers that are true matches."""
    meters, degrees = off(answer.cam_from_world, city.pose(image))
    deviation = None
    if answer.covariance is not None:
        deviation = float(np.sqrt(np.trace(center_covariance(answer.cam_from_world, answer.covariance))))
    true = city.landmarks[city.rows(image)[answer.keypoint_rows]] == known[answer.point_rows]
    return {
        "query": image,
        "meters": round(meters, 2),
        "degrees": round(degrees, 2),
        "told_meters": None if deviation is None else round(deviation, 3),
        "inliers": answer.inliers,
        "true_inliers": int(true.sum()),
        "correspondences": answer.correspondences,
        "near_images": [int(name) for name in neighbors_of(city, answer.cam_from_world)],
    }


def neighbors_of(city: Released, pose: Rigid) -> np.ndarray:
    """The three images of the city that stand nearest to a pose."""
    centers = np.array([city.pose(image).center for image in range(len(city.poses))])
    return np.argsort(np.linalg.norm(centers - pose.center, axis=1))[:3]


def asked(where: Map, queries: Iterator[LoadedImage], search: Search, count: int, label: str) -> tuple[list, list[float]]:
    """Answers and seconds of queries."""
    options = LocalizeOptions(workers=1)
    word_options = WordOptions(max_seconds=WORD_SECONDS, threads=1)
    names = list(where.scene.images)
    answers, seconds = [], []
    for image in tqdm(queries, label, total=count, leave=False):
        start = time.perf_counter()
        if search == "neighbors":
            assert isinstance(image.form, Subsets) and isinstance(image.positions, np.ndarray)
            neighbors = neighbor_candidates(image.form, where.scene, BOOK)
            answer = localize_candidates(image.camera, image.positions, neighbors, where.scene, names, options=word_options)
        else:
            near = names if isinstance(image.form, Subsets) and search == "all" else None
            answer = localize(image, where, options=options, word_options=word_options, near=near, search=search)
        seconds.append(time.perf_counter() - start)
        answers.append(answer)
    return answers, seconds


def recalls(city: Released, where: Map, known: np.ndarray, images: np.ndarray, queries: np.ndarray) -> dict:
    """Recall at 20 of images that share thirty points with a query, in percent, by the index and by raw words."""
    from scipy.sparse import csr_array

    names = [str(image) for image in images]
    seen = [where.scene.images[name].point_rows for name in names]
    sees = csr_array(
        (np.ones(sum(map(len, seen))), np.concatenate(seen), np.cumsum([0, *map(len, seen)])), shape=(len(names), len(known))
    )
    counts = np.array([_words(city, image) for image in images], dtype=np.float32)
    inverse = np.log((1 + len(names)) / (1 + (counts > 0).sum(axis=0))).astype(np.float32)
    counts *= inverse
    counts /= np.linalg.norm(counts, axis=1, keepdims=True)
    shares: dict[str, list[float]] = {"index": [], "raw": []}
    for image in tqdm(queries, "recall", leave=False):
        landmarks = np.intersect1d(city.landmarks[city.rows(image)], known)
        asks = np.zeros(len(known))
        asks[np.searchsorted(known, landmarks)] = 1
        right = {names[row] for row in np.flatnonzero(sees @ asks >= LEAST_SHARED)}
        if not right:
            continue
        ranked = ranked_images(where, city.form(city.rows(image), "private"), threads=1)
        scores = counts @ (_words(city, image) * inverse)
        raw = [names[row] for row in np.argsort(-scores, kind="stable")[:20]]
        for label, best in (("index", ranked.names[:20] if ranked else []), ("raw", raw)):
            shares[label].append(len(right & set(best)) / min(20, len(right)))
    return {"asked": len(shares["raw"]), **{label: round(100 * float(np.mean(v)), 1) for label, v in shares.items() if v}}


def true_words(city: Released, where: Map, known: np.ndarray) -> dict:
    """Share of points, in percent, that stand under a word that is nearest to a raw feature of theirs, by number of views."""
    index = point_index_of(where)
    assert index is not None
    views = np.diff(index.seen_from)[index.entries]
    word = np.repeat(np.arange(len(index.words)), np.diff(index.offsets))
    shares = {}
    for least, most in ((3, 3), (5, 5), (8, 1 << 30)):
        chosen = np.flatnonzero((views >= least) & (views <= most))[::7][:2000]
        ids = known[index.entries[chosen]]
        rows = np.flatnonzero(np.isin(city.landmarks, ids))
        raw = city.form(rows, "words")
        vectors = BOOK.compression.into_space(raw, index.space).vectors  # type: ignore[arg-type]
        squares = (index.words**2).sum(axis=1)
        nearest = np.concatenate([(squares - 2 * part @ index.words.T).argmin(axis=1) for part in np.array_split(vectors, 50)])
        true = set(zip(city.landmarks[rows].tolist(), nearest.tolist(), strict=True))
        hits = [pair in true for pair in zip(ids.tolist(), word[chosen].tolist(), strict=True)]
        shares[str(least)] = round(100 * float(np.mean(hits)), 1) if hits else None
    return shares


def _words(city: Released, image: int) -> np.ndarray:
    """How many raw features of an image have each word."""
    if int(image) not in _NEAREST:
        form = city.form(city.rows(image), "words")
        assert isinstance(form, Points)
        _NEAREST[int(image)] = BOOK.nearest(form.vectors).astype(np.uint16)
    return np.bincount(_NEAREST[int(image)], minlength=len(BOOK)).astype(np.float32)


def measured(city: Released, foreign: Released, images: np.ndarray, queries: np.ndarray, arguments, kind: str) -> dict:
    """The line of one size and kind."""
    scene, known = mapped(city, images, kind, arguments.material)
    where = Map(scene=scene)
    start = time.perf_counter()
    if kind == "words":
        index_for(where, query(city, int(queries[0]), kind).form)  # type: ignore[arg-type]
    else:
        make_point_index(where, threads=1)
    facts = {
        "kind": kind,
        "images": len(images),
        "points": len(known),
        "descriptors": scene.observation_count,
        "index_s": round(time.perf_counter() - start, 1),
    }
    if kind != "words":
        facts["true_words_by_views"] = true_words(city, where, known)
        if arguments.recall:
            facts["recall_at_20"] = recalls(city, where, known, images, queries[: arguments.recall])
    truth = [city.pose(int(image)) for image in queries]
    answers, seconds = asked(where, (query(city, int(q), kind) for q in queries), "index", len(queries), "queries")
    verdicts = [verdict(answer, pose) for answer, pose in zip(answers, truth, strict=True)]
    facts |= {label: verdicts.count(label) for label in ("right", "wrong", "none")}
    facts["wrong_ones"] = [
        explained(city, int(image), known, answer)
        for image, answer, outcome in zip(queries, answers, verdicts, strict=True)
        if outcome == "wrong"
    ]
    facts |= {"median_s": round(float(np.median(seconds)), 3), "mean_s": round(float(np.mean(seconds)), 3)}
    slow: list[tuple[str, Search, int]] = [
        ("exhaustive", "all", arguments.exhaustive),
        ("neighbors", "neighbors", arguments.neighbors if kind == "words" else 0),
    ]
    for label, search, count in slow:
        some = np.unique(np.linspace(0, len(queries) - 1, min(count, len(queries))).astype(int))
        if not len(some):
            continue
        theirs, their_seconds = asked(where, (query(city, int(queries[i]), kind) for i in some), search, len(some), label)
        right = [verdict(answer, truth[i]) == "right" for i, answer in zip(some, theirs, strict=True)]
        facts[label] = {
            "queries": len(some),
            "right": sum(right),
            "wrong": sum(verdict(answer, truth[i]) == "wrong" for i, answer in zip(some, theirs, strict=True)),
            "right_by_index_too": sum(a and verdicts[i] == "right" for i, a in zip(some, right, strict=True)),
            "right_by_index": sum(verdicts[i] == "right" for i in some),
            "mean_s": round(float(np.mean(their_seconds)), 3),
            "times_as_long": round(float(np.sum(their_seconds) / np.sum([seconds[i] for i in some])), 1),
        }
    tqdm.write(json.dumps(facts), file=sys.stderr)  # foreign queries may take hours
    strangers = range(min(arguments.foreign, len(foreign.poses)))
    answers, seconds = asked(where, (query(foreign, q, kind) for q in strangers), "index", len(strangers), "foreign")
    facts["foreign"] = {
        "queries": len(strangers),
        "poses": sum(isinstance(answer, Localization) for answer in answers),
        "mean_s": round(float(np.mean(seconds)), 3) if seconds else None,
    }
    return facts | {"peak_memory_gb": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20, 1)}


def lines(arguments: argparse.Namespace) -> list[dict]:
    """The lines of all sizes and kinds, printed as they are measured."""
    arguments.keep.mkdir(parents=True, exist_ok=True)
    whole = max(arguments.images) * 10 // 9 + 1
    jobs = [(first, min(PART, whole - first), False) for first in range(0, whole, PART)] + [(0, PART, True)]
    with ProcessPoolExecutor(arguments.workers) as pool:
        work = [(*job, arguments.keep, arguments.decoys, arguments.material) for job in jobs]
        paths = list(tqdm(pool.map(made, work), "cities", total=len(jobs)))
    city, foreign = read(paths[:-1]), read(paths[-1:])
    images = np.flatnonzero(np.arange(len(city.poses)) % 10 != 5)
    rows = []
    for count in arguments.images:
        near = np.arange(int(images[count - 1]) + 1)
        queries = near[near % 10 == 5]
        queries = queries[np.unique(np.linspace(0, len(queries) - 1, min(arguments.queries, len(queries))).astype(int))]
        for kind in arguments.kinds:
            rows.append(measured(city, foreign, images[:count], queries, arguments, kind))
            print(json.dumps(rows[-1]), flush=True)
            if arguments.lines:
                with arguments.lines.open("a") as file:
                    file.write(json.dumps(rows[-1]) + "\n")
    return rows


def draw(rows: list[dict], path: Path) -> None:
    """Seconds of a query against images of the map, by the index and by all images."""
    with drawn(path, size=(6.4, 4.0)) as (_, panels):
        axes = panels[0, 0]
        for kind, color in series([row["kind"] for row in rows]).items():
            own = sorted((row for row in rows if row["kind"] == kind), key=lambda row: row["images"])
            sizes = [row["images"] for row in own]
            axes.plot(sizes, [row["mean_s"] for row in own], "o-", color=color, label=f"{kind}, by the index")
            for label, style, meaning in (
                ("exhaustive", "s--", "all images"),
                ("neighbors", "^:", "all images, without an index"),
            ):
                slow = [(row["images"], row[label]["mean_s"]) for row in own if label in row]
                if slow:
                    axes.plot(*zip(*slow, strict=True), style, color=color, label=f"{kind}, {meaning}")
        axes.set(xscale="log", yscale="log", xlabel="images of the map", ylabel="seconds a query, one thread, mean")
        axes.legend()


def main() -> None:
    """Print one line a size and kind as JSON, and draw the figure if a path is given."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--images",
        type=int,
        nargs="*",
        default=[100, 300, 1000],
        help="sizes of the map (default %(default)s); none: only draw",
    )
    parser.add_argument("--kinds", nargs="+", choices=("private", "public", "words"), default=["private", "public", "words"])
    parser.add_argument("--queries", type=int, default=100, help="of the map's walks, at most (default %(default)s)")
    parser.add_argument("--foreign", type=int, default=100, help="of another city, at most 1,000 (default %(default)s)")
    parser.add_argument("--exhaustive", type=int, default=20, help="queries that all images answer too (default %(default)s)")
    parser.add_argument("--neighbors", type=int, default=0, help="queries in words without any index (default %(default)s)")
    parser.add_argument(
        "--recall", type=int, default=100, help="queries that recall is measured with; 0: it is not (default %(default)s)"
    )
    parser.add_argument("--decoys", type=Path, required=True, metavar="NPZ", help="pool of the devices' decoys")
    parser.add_argument("--keep", type=Path, default=Path("city-parts"), metavar="FOLDER", help="default %(default)s")
    parser.add_argument("--material", type=Path, default=DEFAULT, metavar="NPZ", help="default %(default)s")
    parser.add_argument("--workers", type=int, default=2, help="processes that make the city (default %(default)s)")
    parser.add_argument("--lines", type=Path, metavar="FILE", help="append the lines to this file, too")
    parser.add_argument("--figure", type=Path, help="write this picture, of all lines in --lines")
    arguments = parser.parse_args()
    settle()
    rows = lines(arguments) if arguments.images else []
    if arguments.figure:
        kept = arguments.lines.read_text().splitlines() if arguments.lines else []
        draw([json.loads(line) for line in kept] or rows, arguments.figure)


if __name__ == "__main__":
    main()
