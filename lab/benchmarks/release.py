"""Time of a release of words as a ratio to faiss's exact search of the nearest words alone, in the same run.

    python lab/benchmarks/release.py [--features 2000] [--words 256000] [--sizes 1 2 16 64 256] [--epsilon 10]

A release is `veil.mechanisms.words.to_words`: unit vectors, nearest words, and one exact draw of the omega-subset mechanism a
feature. The dictionary is of random SIFT-like words: an exact search takes as long among these as among centroids. Reading the
dictionary, its unit vectors and its hash are not part of a release; they are paid once and printed. So are the bytes of the
words on the wire, and their ratio to the entropy of uniformly random subsets. Words that are not the nearest, or a draw that
breaks the form or the law of the mechanism, are not timed.
"""

from __future__ import annotations

import argparse
import math
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import faiss
import numpy as np
from threadpoolctl import threadpool_limits

sys.path.insert(0, str(Path(__file__).parents[2] / "tests"))

from veil.codebooks.codebook import Codebook, Provenance
from veil.codebooks.dictionary import Dictionary
from veil.features import Features
from veil.files.codebooks import read_codebook, write_codebook
from veil.ldp.mechanism import SubsetMechanism
from veil.ldp.rounding import outward
from veil.mechanisms.words import DrawnSubsets, randomized, to_words
from veil.randomness import seeded
from veil.wire.packing import packed
from worlds import features, generator, sift_like, unit


def main() -> int:
    """Print one line for each number of words sent; exit code 1 if a release is red."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--features", type=int, default=2000)
    parser.add_argument("--words", type=int, default=256_000)
    parser.add_argument("--sizes", type=int, nargs="+", default=[1, 2, 16, 64, 256], help="words sent for each feature")
    parser.add_argument("--epsilon", type=float, default=10.0)
    parser.add_argument("--repeats", type=int, default=3)
    arguments = parser.parse_args()
    image = features(generator("release"), arguments.features)
    with threadpool_limits(1):
        dictionary = _dictionary(arguments.words)
        print(f"{len(image)} features, epsilon {arguments.epsilon:g}, one thread, best of {arguments.repeats}")
        print(
            f"{'sent':>5} {'search s':>9} {'release s':>10} {'ratio':>6} {'sampling s':>11} {'true word sent':>22} "
            f"{'bytes sent':>11} {'x entropy':>9}"
        )
        for size in arguments.sizes:
            mechanism = SubsetMechanism(dictionary_size=arguments.words, epsilon=arguments.epsilon, m=size)
            if not _run(image, dictionary, mechanism, arguments.repeats):
                return 1
    return 0


def _dictionary(words: int) -> Codebook:
    """As a user has it: from a file."""
    book = Dictionary(
        descriptor="sift",
        normalization="L2",
        stored=sift_like(generator("dictionary"), words),
        slices=1,
        pca=None,
        dither_steps=0.0,
        provenance=Provenance(source="synthetic", license="none", image_count=0, descriptor_count=words),
    )
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "dictionary.npz"
        write_codebook(path, book)
        start = time.process_time()
        read = read_codebook(path)
        loaded = time.process_time()
        read.vectors  # noqa: B018
    unit_vectors = time.process_time() - loaded
    print(f"dictionary of {words} words: {loaded - start:.2f} s to read, {unit_vectors:.2f} s to unit vectors, once")
    return read


def _run(image: Features, dictionary: Codebook, mechanism: SubsetMechanism, repeats: int) -> bool:
    vectors = unit(image.descriptors).astype(np.float32)
    made = to_words(image, mechanism=mechanism, dictionary=dictionary, randomness=seeded(f"benchmark {mechanism.m}"))
    reason = _red(made, vectors, dictionary, mechanism)
    if reason:
        print(f"{mechanism.m:5d} red: {reason}; not timed")
        return False
    contexts = [b"context of the usual length %d" % row + bytes(220) for row in range(len(image))]
    search, release, sampling = [], [], []
    for index in range(repeats):  # in turns, so that a busy machine slows both
        randomness = seeded(f"{index}")
        search.append(_time(lambda: faiss.knn(vectors, dictionary.vectors, 1, metric=faiss.METRIC_INNER_PRODUCT)))
        release.append(_time(lambda c=randomness: to_words(image, mechanism=mechanism, dictionary=dictionary, randomness=c)))
        sampling.append(_time(lambda c=randomness: randomized(made.true_words, mechanism, c, contexts)))
    share, size = float(_sends_truth(made).mean()), len(packed(made.form.ids, mechanism.dictionary_size))
    print(
        f"{mechanism.m:5d} {min(search):9.3f} {min(release):10.3f} {min(release) / min(search):6.3f} {min(sampling):11.3f} "
        f"{share:8.3f} (law {outward(float(mechanism.truth), 3)}) {size:11d} {size * 8 / (len(image) * mechanism.bits):9.3f}"
    )
    return True


def _red(made: DrawnSubsets, vectors: np.ndarray, dictionary: Codebook, mechanism: SubsetMechanism) -> str | None:
    """Fault of a release, if it has any."""
    few = slice(0, 50)
    products = vectors[few].astype(np.float64) @ dictionary.vectors.astype(np.float64).T
    if (products.max(axis=1) - products[np.arange(len(products)), made.true_words[few]] > 1e-6).any():
        return "the true words are not the nearest"
    sent = made.form.ids.astype(np.int64)
    if sent.shape != (len(vectors), mechanism.m) or not (np.diff(sent, axis=1) > 0).all():
        return "subsets are not sorted, or hold a word twice"
    if sent.min() < 0 or sent.max() >= len(dictionary):
        return "words out of range"
    truth, count = float(mechanism.truth), len(sent)
    if abs(_sends_truth(made).sum() - count * truth) > 5 * math.sqrt(count * truth * (1 - truth)) + 1:
        return f"the true word is sent {_sends_truth(made).mean():.3f} of the time, by law {outward(truth, 3)}"
    others = sent[sent != made.true_words[:, None]]
    if abs(others.mean() / (len(dictionary) - 1) - 0.5) > 5 / math.sqrt(12 * len(others)):
        return "the other words are not uniform"
    return None


def _sends_truth(made: DrawnSubsets) -> np.ndarray:
    return (made.form.ids == made.true_words[:, None]).any(axis=1)


def _time(work: Callable[[], object]) -> float:
    start = time.process_time()
    work()
    return time.process_time() - start


if __name__ == "__main__":
    sys.exit(main())
