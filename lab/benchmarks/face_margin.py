"""Accuracy of a network that two lifted templates keep, by how well its raw descriptors verify: a model.

    python lab/benchmarks/face_margin.py [--levels 0.976 0.99 0.998 0.9995] [--dims 24 128 512] [--m 2 4] [--seeds 3]

People are directions drawn uniformly in n dimensions, pictures are these plus Gaussian noise, of the size at which raw
descriptors still verify as many pairs as the level says. Printed is what hybrid lifting leaves of it: point to subspace, and
two subspaces with decoys of disjoint halves of 2,000 other people; 1,000 pairs of one person and 1,000 of two, the best
threshold on all of them. It tells what the shortfall of two templates comes from: the margin of the network, or the dimension
of its descriptors.
"""

from __future__ import annotations

import argparse

import numpy as np

from veil.distances.pairs import exact
from veil.features import unit_length
from veil.space import Space
from veil_faces.collection import Faces
from veil_faces.studies.verification import best_threshold, lifted_faces

PEOPLE, STEPS = 1000, 24


def main() -> None:
    """Print one line for each n and level."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--levels", type=float, nargs="+", default=[0.976, 0.99, 0.998, 0.9995], help="raw accuracies")
    parser.add_argument("--dims", type=int, nargs="+", default=[24, 128, 512])
    parser.add_argument("--m", type=int, nargs="+", default=[2, 4])
    parser.add_argument("--seeds", type=int, default=3, help="the mean over these is printed")
    arguments = parser.parse_args()
    heads = " ".join(f"{f'{by} m = {m}':>11}" for m in arguments.m for by in ("p2s", "s2s"))
    print(f"{'n':>5} {'noise':>6} {'raw':>7} {heads}")
    for dim in arguments.dims:
        for level in arguments.levels:
            means = np.mean([_model(dim, arguments.m, level, seed) for seed in range(arguments.seeds)], axis=0)
            values = " ".join(f"{100 * value:10.1f}%" for value in means[2:])
            print(f"{dim:5d} {means[0]:6.2f} {100 * means[1]:6.2f}% {values}", flush=True)


def _model(dim: int, ms: list[int], level: float, seed: int) -> list[float]:
    """The noise, the raw accuracy, and for each m that by p2s and by s2s."""
    random = np.random.default_rng(seed)
    people, decoys = (unit_length(random.normal(size=(count, dim))) for count in (PEOPLE, 2 * PEOPLE))
    noise = random.normal(size=(2, PEOPLE, dim)) / np.sqrt(dim)
    low, high = 0.0, 8.0
    for _ in range(STEPS):  # accuracy falls as noise grows
        middle = (low + high) / 2
        low, high = (middle, high) if _accuracy(*_pictures(people, noise, middle)) > level else (low, middle)
    first, second = _pictures(people, noise, low)
    sides = [_faces(first, "first"), _faces(second, "second")]
    pools = [_faces(part, f"pool {k}") for k, part in enumerate(np.split(decoys, 2))]
    measures = [low, _accuracy(first, second)]
    for m in ms:
        left, right = (
            lifted_faces(side, "hybrid", m, pool, f"{seed} {k}")
            for k, (side, pool) in enumerate(zip(sides, pools, strict=True))
        )
        measures.append(_lifted_accuracy((left.origin, left.basis), (sides[1].vectors, None)))
        measures.append(_lifted_accuracy((left.origin, left.basis), (right.origin, right.basis)))
    return measures


def _pictures(people: np.ndarray, noise: np.ndarray, size: float) -> tuple[np.ndarray, np.ndarray]:
    first, second = (unit_length(people + size * part) for part in noise)
    return first, second


def _faces(vectors: np.ndarray, name: str) -> Faces:
    space = Space(descriptor="model-face", normalization="L2", dim=vectors.shape[1])
    return Faces(vectors=vectors.astype(np.float32), names=tuple(f"{name} {k}" for k in range(len(vectors))), space=space)


def _accuracy(first: np.ndarray, second: np.ndarray) -> float:
    """Of pairs of one person, and of each person with the next."""
    return _share(np.linalg.norm(first - second, axis=1), np.linalg.norm(first - np.roll(second, 1, axis=0), axis=1))


def _lifted_accuracy(left, right) -> float:  # type: ignore[no-untyped-def]
    rows = np.arange(len(left[0]))
    return _share(exact(left, right, rows, rows), exact(left, right, rows, np.roll(rows, 1)))


def _share(same: np.ndarray, other: np.ndarray) -> float:
    distance = np.concatenate([same, other])
    truth = np.arange(len(distance)) < len(same)
    return float(((distance <= best_threshold(distance, truth)) == truth).mean())


if __name__ == "__main__":
    main()
