"""Fits the weights of `veil.matching.rescoring` to sequences with known homographies, and counts right matches with them.

    VEIL_DATA=... python lab/benchmarks/rescoring.py --write src/veil/data/rescoring.json

Every image of `homography/` is released three times by the hardened profile: 600 features by the usual selection, and the 100
and 250 largest of a random part of those that two other images show, as a release for a map has them. A candidate is right if
the homography takes one keypoint within 3 px of the other. Pairs of images weigh alike. The mean, variance and length of
descriptors are those of all features of the sequences. The fit leaves each sequence out once, and prints of the sequence that
was left out the number of right matches among as many as pass the calibrated ratio, by the ratio and by log odds.
"""

from __future__ import annotations

import argparse
import json
import os
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from private_maps import released
from scipy.optimize import minimize
from scipy.spatial import cKDTree

from veil.cli.common import quiet_colmap
from veil.extraction.sift import SiftOptions, extract_sift
from veil.features import Features
from veil.files.codebooks import bundled_codebook
from veil.files.photographs.pictures import read_picture
from veil.forms import Subspaces
from veil.matching import match
from veil.matching.ratio import calibrated
from veil.matching.rescoring import SIGNS, Scoring, candidates, matches_by_odds
from veil.mechanisms.public import publish
from veil.mechanisms.selection import ChosenFeatures, Selection
from veil.wire.message import Upload

LIMIT_PX, APART_PX = 3.0, 10.0
KINDS = {"usual": 600, "few": 100, "more": 250}
RIDGE = 1e-5


@dataclass(frozen=True, kw_only=True, eq=False)
class LabeledPair:
    """Two releases of a sequence, and where the homography takes the left keypoints, float64 (features, 2) in pixels."""

    sequence: str
    left: Upload
    right: Upload
    expected: np.ndarray

    def right_ones(self, rows: np.ndarray, columns: np.ndarray) -> np.ndarray:
        """Mask of pairs of features that the homography takes to each other."""
        return np.hypot(*(self.expected[rows] - self.right.keypoints[columns]).T) < LIMIT_PX


def main() -> None:
    """Print a row for each sequence that was left out, and write the weights of all."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", type=Path, metavar="JSON", help="write the model here")
    arguments = parser.parse_args()
    quiet_colmap()
    folders = sorted(path for path in (Path(os.environ["VEIL_DATA"]) / "homography").iterdir() if path.is_dir())
    sequences = {folder.name: sequence(folder) for folder in folders}
    descriptors = np.concatenate([vectors_of(item) for features, _ in sequences.values() for item in features])
    moments = Scoring(
        mean=descriptors.mean(axis=0),
        variance=descriptors.var(axis=0),
        length=float(np.linalg.norm(descriptors, axis=1).mean()),
        weights=np.zeros(len(SIGNS)),
        bias=0.0,
    )
    pairs = [pair for name, (features, maps) in sequences.items() for pair in labeled(name, features, maps)]
    tables = [(pair, *signs_of(pair, moments)) for pair in pairs]
    print("| left out | matches | right by ratio | right by log odds |\n| --- | --- | --- | --- |")
    for name in sequences:
        model = fitted(moments, [(x, y) for pair, x, y in tables if pair.sequence != name])
        print(
            f"| {name} | {' | '.join(map(str, counted([pair for pair in pairs if pair.sequence == name], model)))} |",
            flush=True,
        )
    model = fitted(moments, [(x, y) for _, x, y in tables])
    print({name: round(float(weight), 3) for name, weight in zip(SIGNS, model.weights, strict=True)}, round(model.bias, 3))
    if arguments.write:
        arguments.write.write_text(json.dumps({str(bundled_codebook().compression.codebook): as_json(model)}, indent=1) + "\n")


def sequence(folder: Path) -> tuple[list[Features], list[np.ndarray]]:
    """Features of six images, and homographies that take pixels of the first to each, pixel centers at integers."""
    pictures = [next(folder.glob(f"{number}.*")) for number in range(1, 7)]
    maps = [np.eye(3)] + [np.loadtxt(folder / f"H_1_{number}") for number in range(2, 7)]
    return [extract_sift(read_picture(path), SiftOptions(first_octave=None)) for path in pictures], maps


def vectors_of(features: Features) -> np.ndarray:
    """Descriptors in the hardened space."""
    compression = bundled_codebook().compression
    return compression.into_space(publish(features), compression.hardened_space).vectors


def taken(homography: np.ndarray, points: np.ndarray) -> np.ndarray:
    """Keypoints in another image; pixel centers of keypoints are at halves."""
    moved = np.c_[points.astype(np.float64) - 0.5, np.ones(len(points))] @ homography.T
    return moved[:, :2] / moved[:, 2:] + 0.5


def labeled(name: str, features: list[Features], maps: list[np.ndarray]) -> list[LabeledPair]:
    """All pairs of releases of one kind, for each kind."""
    made = []
    for kind, most in KINDS.items():
        uploads = []
        for number, item in enumerate(features):
            selection = Selection(features=most) if kind == "usual" else shared(features, maps, number, most)
            upload = released(item, selection, f"rescoring {name} {number}")
            assert isinstance(upload, Upload)
            uploads.append(upload)
        for a in range(6):
            for b in range(a + 1, 6):
                expected = taken(maps[b] @ np.linalg.inv(maps[a]), uploads[a].keypoints)
                made.append(LabeledPair(sequence=name, left=uploads[a], right=uploads[b], expected=expected))
    return made


def shared(features: list[Features], maps: list[np.ndarray], number: int, most: int) -> ChosenFeatures:
    """The largest of a random part of the features that two other images show, apart from each other."""
    own = features[number]
    views = np.zeros(len(own), dtype=np.int64)
    for other, homography in enumerate(maps):
        if other != number:
            moved = taken(homography @ np.linalg.inv(maps[number]), own.keypoints)
            gap, _ = cKDTree(features[other].keypoints).query(moved, distance_upper_bound=LIMIT_PX)
            views += np.isfinite(gap)
    scales = np.ones(len(own)) if own.scales is None else own.scales
    order = np.argsort(-scales * (np.random.default_rng(number).random(len(own)) < 0.6), kind="stable")
    kept: list[int] = []
    for row in order[views[order] > 1]:
        gaps = np.hypot(*(own.keypoints[kept] - own.keypoints[row]).T)
        if len(kept) < most and (gaps > APART_PX).all():
            kept.append(int(row))
    return ChosenFeatures(rows=np.sort(np.array(kept, dtype=np.int64)))


def forms(pair: LabeledPair) -> tuple[Subspaces, Subspaces]:
    """The forms of a pair."""
    left, right = pair.left.form, pair.right.form
    assert isinstance(left, Subspaces) and isinstance(right, Subspaces)
    return left, right


def signs_of(pair: LabeledPair, moments: Scoring) -> tuple[np.ndarray, np.ndarray]:
    """Signs of the candidates of a pair, and which are right."""
    listed = candidates(*forms(pair), moments)
    return listed.signs, pair.right_ones(listed.left, listed.right)


def fitted(moments: Scoring, tables: list[tuple[np.ndarray, np.ndarray]]) -> Scoring:
    """The logistic model of least loss, in which pairs of images weigh alike."""
    tables = [(signs, labels) for signs, labels in tables if len(labels)]
    signs, labels = (np.concatenate([table[k] for table in tables]) for k in (0, 1))
    weights = np.concatenate([np.full(len(labels), 1 / len(labels) / len(tables)) for _, labels in tables])
    center, spread = signs.mean(axis=0), signs.std(axis=0)
    scaled = np.c_[(signs - center) / spread, np.ones(len(signs))]

    def loss(model: np.ndarray) -> tuple[float, np.ndarray]:
        odds = scaled @ model
        ridge = RIDGE * np.r_[model[:-1], 0.0]
        value = float((weights * (np.logaddexp(0, odds) - labels * odds)).sum() + ridge @ model)
        return value, scaled.T @ (weights * (1 / (1 + np.exp(-odds)) - labels)) + 2 * ridge

    best = minimize(loss, np.zeros(scaled.shape[1]), jac=True, method="L-BFGS-B").x
    return replace(moments, weights=best[:-1] / spread, bias=float(best[-1] - (best[:-1] / spread) @ center))


def counted(pairs: list[LabeledPair], model: Scoring) -> tuple[int, int, int]:
    """Number of matches that pass the calibrated ratio, how many of them are right, and of as many of the largest log odds."""
    total = by_ratio = by_odds = 0
    for pair in pairs:
        left, right = forms(pair)
        matches = match(left, right)
        indices = matches.indices[matches.ratios <= calibrated(left, right)]
        total += len(indices)
        by_ratio += int(pair.right_ones(*indices.T).sum())
        likely = matches_by_odds(left, right, model, least_log_odds=-np.inf)
        listed = candidates(left, right, model)
        odds = {
            (a, b): value
            for a, b, value in zip(listed.left, listed.right, listed.signs @ model.weights + model.bias, strict=True)
        }
        order = np.argsort([-odds[a, b] for a, b in likely.indices.tolist()], kind="stable")[: len(indices)]
        by_odds += int(pair.right_ones(*likely.indices[order].T).sum())
    return total, by_ratio, by_odds


def as_json(model: Scoring) -> dict[str, object]:
    """The model as it is stored, to six digits."""

    def digits(values: np.ndarray) -> list[float]:
        return [float(f"{value:.6g}") for value in values]

    return {
        "length": round(model.length, 6),
        "weights": digits(model.weights),
        "bias": round(model.bias, 6),
        "mean": digits(model.mean),
        "variance": digits(model.variance),
    }


if __name__ == "__main__":
    main()
