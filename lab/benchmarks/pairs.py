"""How many pairs of overlapping images does `veil map` find by tracks and by features, and how much longer do all pairs take?

    python lab/benchmarks/pairs.py --decoys pool.npz --images 1000
    python lab/benchmarks/pairs.py --decoys pool.npz --images 300 1000 3000 --methods tracks --lines pairs.jsonl

Images of the simulated city, released by the hardened default; two overlap if they share thirty landmarks. One line for each
number of images and method tells

- pairs that were chosen and matched, those of them that overlap, and what part of all that overlap these are, in percent;
- the same for as many pairs of most similar images by TF-IDF of raw words (each image with the same number of others);
- images of which fewer than three overlapping pairs were matched, though they have as many;
- seconds of each step, and the time of all pairs, extrapolated from a sample of random pairs that were matched in the same run;
- how many times as long all pairs take.

--threads sets the threads of both. --keep keeps the released images of cities in a folder, as queries.py does.
"""

from __future__ import annotations

import argparse
import json
import resource
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[2] / "tests"))

from city_material import DEFAULT
from city_releases import BOOK, Released, made, read
from tqdm import tqdm

from veil.forms import Points
from veil.matching import match_pairs
from veil.matching.retrieval import words_in_common
from veil.places.pairs.candidates import similar_pairs
from veil.places.pairs.choice import pair_choice
from veil.places.pairs.matching import matched_as_chosen
from veil.progress import Progress
from veil.threads import settle

PART, LEAST_SHARED, SAMPLE = 1000, 30, 400


class Steps:
    """Seconds of the steps of a choice, with a bar for each."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}

    @contextmanager
    def __call__(self, what: str) -> Iterator[Progress]:
        begun = time.perf_counter()
        with tqdm(desc=what, leave=False) as bar:

            def show(done: int, total: int) -> None:
                bar.total = total
                bar.update(done - bar.n)

            yield show
        self.seconds[what] = round(self.seconds.get(what, 0.0) + time.perf_counter() - begun, 1)


def overlapping(city: Released, count: int) -> set[tuple[str, str]]:
    """Pairs of the first images that share thirty landmarks."""
    from scipy.sparse import csr_array, triu

    end = city.starts[count]
    image = np.repeat(np.arange(count), np.diff(city.starts[: count + 1]))
    known = city.landmarks[:end] >= 0
    _, landmark = np.unique(city.landmarks[:end][known], return_inverse=True)
    sees = csr_array((np.ones(len(landmark), dtype=np.int32), (image[known], landmark)), shape=(count, int(landmark.max()) + 1))
    sees.data[:] = 1
    shared = triu(sees @ sees.T, k=1).tocoo()
    enough = shared.data >= LEAST_SHARED
    return {(_name(a), _name(b)) for a, b in zip(shared.row[enough], shared.col[enough], strict=True)}


def raw_pairs(city: Released, count: int, pairs: int) -> set[tuple[str, str]]:
    """About as many pairs as `pairs` of the images that are most similar by TF-IDF of raw words."""
    bags = []
    for image in tqdm(range(count), "raw words", leave=False):
        form = city.form(city.rows(image), "words")
        assert isinstance(form, Points)
        bags.append(np.bincount(BOOK.nearest(form.vectors), minlength=len(BOOK)).astype(np.float64))
    similarity = words_in_common(bags)
    names = [_name(image) for image in range(count)]
    chosen: list[set[tuple[str, str]]] = [set()]
    while len(chosen[-1]) < pairs and len(chosen) < count:
        chosen.append(set(similar_pairs(names, similarity, count=len(chosen))))
    return min(chosen, key=lambda some: abs(len(some) - pairs))


def measured(city: Released, count: int, method: str, threads: int, raw: bool) -> dict:
    """The line of one number of images and method."""
    forms = {_name(image): city.form(city.rows(image), "private") for image in range(count)}
    right = overlapping(city, count)
    steps = Steps()
    selected = set(matched_as_chosen(forms, pair_choice(method, count), None, workers=threads, steps=steps))
    names = sorted(forms)
    chosen = np.random.default_rng(0).integers(0, count, (2 * SAMPLE, 2))
    sample = [(names[min(a, b)], names[max(a, b)]) for a, b in chosen if a != b][:SAMPLE]
    begun = time.perf_counter()
    match_pairs(forms, sample, workers=threads)
    all_s = (time.perf_counter() - begun) / len(sample) * count * (count - 1) / 2
    possible, got = (
        np.bincount([int(n) for pair in some for n in pair], minlength=count) for some in (right, selected & right)
    )
    facts = {
        "images": count,
        "method": method,
        "pairs": len(selected),
        "overlap": len(selected & right),
        "of_all_percent": round(100 * len(selected & right) / max(1, len(right)), 1),
        "images_with_few": int(((got < 3) & (possible >= 3)).sum()),
    }
    if raw:
        by_raw = raw_pairs(city, count, len(selected))
        facts["raw"] = {"pairs": len(by_raw), "of_all_percent": round(100 * len(by_raw & right) / max(1, len(right)), 1)}
    total = sum(steps.seconds.values())
    return facts | {
        "seconds": steps.seconds,
        "all_pairs_s": round(all_s),
        "times_as_long": round(all_s / total, 1),
        "threads": threads,
        "peak_memory_gb": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20, 1),
    }


def _name(image: int) -> str:
    return f"{image:06}"


def main() -> None:
    """Print one line a number of images and method as JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--images", type=int, nargs="+", default=[300, 1000], help="default %(default)s")
    parser.add_argument("--methods", nargs="+", choices=("tracks", "retrieval"), default=["tracks"], help="default tracks")
    parser.add_argument("--threads", type=int, default=2, help="default %(default)s")
    parser.add_argument("--no-raw", action="store_true", help="without the comparison with raw words")
    parser.add_argument("--decoys", type=Path, required=True, metavar="NPZ", help="pool of the devices' decoys")
    parser.add_argument("--keep", type=Path, default=Path("city-parts"), metavar="FOLDER", help="default %(default)s")
    parser.add_argument("--material", type=Path, default=DEFAULT, metavar="NPZ", help="default %(default)s")
    parser.add_argument("--lines", type=Path, metavar="FILE", help="append the lines to this file, too")
    arguments = parser.parse_args()
    settle()
    arguments.keep.mkdir(parents=True, exist_ok=True)
    jobs = [(first, PART, False) for first in range(0, max(arguments.images), PART)]
    with ProcessPoolExecutor(arguments.threads) as pool:
        work = [(*job, arguments.keep, arguments.decoys, arguments.material) for job in jobs]
        paths = list(tqdm(pool.map(made, work), "cities", total=len(jobs)))
    city = read(paths)
    for count in arguments.images:
        for method in arguments.methods:
            line = json.dumps(measured(city, count, method, arguments.threads, not arguments.no_raw))
            print(line, flush=True)
            if arguments.lines:
                with arguments.lines.open("a") as file:
                    file.write(line + "\n")


if __name__ == "__main__":
    main()
