"""Poses by voting (Zeisl, Sattler and Pollefeys 2015) against the search by pairs, for words with positions and gravity.

    python lab/benchmarks/voting.py strecha/fountain-P11 strecha/entry-P10 --epsilon 8 5 4 3

Photographs are held out of a map and asked as `veil evaluate upright` asks them, with true gravity. Each candidate (a
keypoint and a point that share a word) votes for all places of the camera from which it would be seen so: at every heading a
ray, cut where the distance to the point is 0.4 to 2.5 times that of a mapped image that sees it. Votes count logarithms of
likelihood ratios, once a candidate in a cell. Cells are as wide as the error of the heading's bin moves a ray. For each epsilon
a line tells how many candidates there are and how many are right (within 10 px of the true pose), in how many queries the true
cell (or a neighbor) has the most votes, is among the 10 and 1,000 best cells, and what rank it has in the median; and how many
queries the search by pairs localizes within 2 degrees and 5 % of the extent of the cameras.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
from tqdm import tqdm

from veil.cli.common import quiet_colmap
from veil.forms import Subsets
from veil.geometry.gravity import aligned_from_cam
from veil.geometry.rigid import Rigid
from veil.geometry.similarity import pose_error
from veil.matching.inverted_index import index_map, vocabulary_candidates
from veil.mechanisms.release import privatize_words
from veil.places.poses.answer import Localization
from veil.places.poses.by_words import localize_words
from veil.places.poses.options import WordOptions
from veil.places.poses.upright_problem import UprightProblem
from veil.randomness import seeded
from veil.scene import mean_down
from veil.wire.message import Upload
from veil_lab.cli.evaluate.poses.upright import extent_of, scene_folds
from veil_lab.files.scenes import read_scene
from veil_lab.studies.localization.false_acceptance import Fold
from veil_lab.studies.localization.map_dictionaries import dictionary_of, mapped
from veil_lab.studies.localization.upright_localization import UprightSetting

HEADINGS = 120  # bins of three degrees
NEAR, FAR = 0.4, 2.5
RIGHT_PX = 10.0
MARGIN = 0.5  # of the extent of the mapped cameras, around their box


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("scenes", type=Path, nargs="+")
    parser.add_argument("--epsilon", type=float, nargs="+", default=[8.0, 5.0, 4.0, 3.0])
    parser.add_argument("--folds", type=int, default=3)
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--max-features", type=int, default=4096)
    parser.add_argument("--first-octave", type=int, default=0)
    arguments = parser.parse_args()
    quiet_colmap()
    for folder in arguments.scenes:
        scene = read_scene(folder)
        folds = scene_folds(
            scene,
            folds=arguments.folds,
            workers=arguments.workers,
            max_features=arguments.max_features,
            first_octave=arguments.first_octave,
        )
        for epsilon in arguments.epsilon:
            rows = [
                row for fold in tqdm(folds, f"{scene.name}, epsilon {epsilon:g}", leave=False) for row in asked(fold, epsilon)
            ]
            ranks = np.array([row[0] for row in rows])
            candidates, right = np.median([row[1] for row in rows]), np.median([row[2] for row in rows])
            successes = sum(row[3] <= 0.05 * extent_of(scene) and row[4] <= 2 for row in rows)
            within = " / ".join(str(int((ranks <= most).sum())) for most in (1, 10, 1000))
            text = f"{scene.name:14} epsilon {epsilon:g}: {candidates:.0f} candidates, {right:.0f} right; true cell "
            text += f"first / in 10 / in 1,000: {within} of {len(rows)}, median rank {np.median(ranks):,.0f}"
            print(f"{text}; search by pairs {successes} of {len(rows)}")


def asked(fold: Fold, epsilon: float) -> Iterator[tuple[int, int, int, float, float]]:
    """Rank of the true cell, number of candidates and of right ones, and errors of the search, of each held-out photograph."""
    setting = UprightSetting(features=1000, epsilon=epsilon)
    scene = replace(fold.scene, measured_down=mean_down(dict(fold.place.down), fold.scene.images))
    book = dictionary_of(mapped(fold), setting.words, source="the map")
    vocabulary = index_map(scene, book)
    for name in fold.held_out:
        features, down = fold.place.features[name], fold.place.down[name]
        upload = privatize_words(
            features,
            mechanism=setting.mechanism,
            dictionary=book,
            randomness=seeded(f"vote {name} {epsilon}"),
            features_sent=1000,
        ).upload
        options = WordOptions(threads=1)
        assert isinstance(upload, Upload) and isinstance(upload.form, Subsets)
        problem = UprightProblem(
            camera=upload.camera,
            keypoints=upload.keypoints,
            gravity=down,
            candidates=vocabulary_candidates(upload.form, vocabulary),
            scene=scene,
            names=sorted(scene.images),
            options=options.upright,
        )
        back = fold.reference_from_map
        reference = fold.place.cam_from_world[name]
        center = back.rotation.T @ (reference.center - back.translation) / back.scale
        rotation = reference.rotation @ back.rotation
        truth = Rigid(rotation=rotation, translation=-rotation @ center)
        answer = localize_words(upload.camera, upload.keypoints, upload.form, scene, vocabulary, gravity=down, options=options)
        errors = (math.inf, math.inf)
        if isinstance(answer, Localization):
            errors = pose_error(answer.cam_from_world, reference, back)
        yield (true_rank(problem, truth), len(problem.candidates), right_candidates(problem, truth), *errors)


def right_candidates(problem: UprightProblem, truth: Rigid) -> int:
    """Number of candidates whose point the true pose shows at their keypoint."""
    seen = truth.apply(problem.scene.points[problem.candidates.point_rows])
    gap = np.linalg.norm(seen[:, :2] / seen[:, 2:] - problem.seen[problem.candidates.keypoint_rows], axis=1)
    return int(((gap < RIGHT_PX / problem.camera.focal_px) & (seen[:, 2] > 0)).sum())


def true_rank(problem: UprightProblem, truth: Rigid) -> int:
    """One more than the number of cells that have more votes than the true one and its neighbors."""
    rays, points, centers = problem.upright_frames
    assert problem.scene.down is not None
    world, camera = aligned_from_cam(problem.scene.down), aligned_from_cam(problem.gravity)
    turn = camera @ truth.rotation @ world.T
    true_heading = math.atan2(turn[0, 2] - turn[2, 0], turn[0, 0] + turn[2, 2])
    low, high = centers.min(axis=0), centers.max(axis=0)
    reach = MARGIN * float(np.linalg.norm(high - low))
    low, high = low - reach, high + reach
    distances = np.linalg.norm(points[:, None] - centers[None], axis=2)
    sees = np.zeros((len(points), len(centers)), dtype=bool)
    for column, name in enumerate(problem.names):
        sees[problem.scene.images[name].point_rows, column] = True
    nearest = np.where(sees, distances, np.inf).min(axis=1)
    farthest = np.where(sees, distances, 0.0).max(axis=1)
    cell = math.radians(360 / HEADINGS) * float(np.median(nearest[np.isfinite(nearest)]))
    shape = np.maximum(1, np.ceil((high - low) / cell).astype(int))
    candidates = problem.candidates
    likely = np.flatnonzero((candidates.log_odds > 0) & np.isfinite(nearest[candidates.point_rows]))
    x, u = points[candidates.point_rows[likely]], rays[candidates.keypoint_rows[likely]]
    weight = candidates.log_odds[likely]
    first, last = NEAR * nearest[candidates.point_rows[likely]], FAR * farthest[candidates.point_rows[likely]]
    steps = first[:, None] + cell * np.arange(int(np.ceil((last - first).max() / cell)) + 1)
    along = steps <= last[:, None]
    of_step = np.broadcast_to(np.arange(len(likely))[:, None], steps.shape)[along]
    lengths, size = steps[along], int(shape.prod())
    votes = np.zeros((HEADINGS, size), dtype=np.float32)
    for heading in range(HEADINGS):
        angle = 2 * math.pi * heading / HEADINGS
        cos, sin = math.cos(angle), math.sin(angle)
        # The camera stands at x - s Y(heading)^T u (words_upright.md, Eq. 1).
        toward = np.column_stack([u[:, 0] * cos - u[:, 2] * sin, u[:, 1], u[:, 0] * sin + u[:, 2] * cos])
        places = np.floor((x[of_step] - lengths[:, None] * toward[of_step] - low) / cell).astype(int)
        inside = ((places >= 0) & (places < shape)).all(axis=1)
        cells = np.ravel_multi_index(tuple(places[inside].T), tuple(shape))
        voted = np.unique(of_step[inside].astype(np.int64) * size + cells)  # once a candidate and cell
        votes[heading] = np.bincount(voted % size, weights=weight[voted // size], minlength=size)
    grid = votes.reshape(HEADINGS, *shape)
    place = np.floor((world @ truth.center - low) / cell).astype(int)
    if not ((place >= 0) & (place < shape)).all():
        return votes.size
    around = tuple(slice(max(p - 1, 0), p + 2) for p in place)
    bin_ = round(true_heading / (2 * math.pi) * HEADINGS)
    best = max(float(grid[(bin_ + step) % HEADINGS][around].max()) for step in (-1, 0, 1))
    return 1 + int((votes > best).sum())


if __name__ == "__main__":
    main()
