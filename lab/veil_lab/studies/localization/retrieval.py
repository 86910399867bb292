"""Recall of image retrieval by the words of a query, without any global descriptor.

The database holds the mapped photographs of all scenes. One of them overlaps a query if both see enough of the same points,
by the inliers of the query's pose from raw descriptors.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from veil.codebooks.codebook import Codebook
from veil.ldp.mechanism import SubsetMechanism
from veil.matching.inverted_index import InvertedIndex, index_map
from veil.matching.retrieval import most_similar
from veil.mechanisms.public import publish
from veil.mechanisms.words import to_words
from veil.places.poses.answer import Localization
from veil.places.poses.by_distance import localize
from veil.randomness import fresh
from veil.scene import MappedImage, Scene
from veil_lab.studies.localization.false_acceptance import Fold
from veil_lab.studies.localization.map_dictionaries import dictionary_of, mapped

SHARED_POINTS = 20  # least number of points that an overlapping photograph and the query both see
BEST = 10  # number of retrieved photographs that count


@dataclass(frozen=True, kw_only=True)
class Recall:
    """Mean recall at 10 of one mechanism: the share of a query's overlapping photographs among the ten most similar ones.

    Where more than ten overlap, ten count. `queries` are those that any photograph overlaps, `images` the photographs of the
    database. With an infinite epsilon every descriptor's own word is sent, as a server with raw descriptors would find it.
    """

    words: int
    epsilon: float
    m: int
    recall_at_10: float
    queries: int
    images: int

    def as_json(self) -> dict:
        """The stable record of docs/reference/json.md."""
        return {
            "words": self.words,
            "epsilon": self.epsilon,
            "m": self.m,
            "recall_at_10": self.recall_at_10,
            "queries": self.queries,
            "images": self.images,
        }


def joint_scene(scenes: Mapping[str, Scene]) -> Scene:
    """One scene with the images and points of all `scenes`; an image is named "scene/image".

    Each scene's points keep their coordinates, so that those of different scenes have nothing to do with each other.
    """
    images: dict[str, MappedImage] = {}
    points, start = [], 0
    for name, scene in scenes.items():
        for own, image in scene.images.items():
            images[f"{name}/{own}"] = MappedImage(
                name=f"{name}/{own}",
                camera=image.camera,
                cam_from_world=image.cam_from_world,
                keypoints=image.keypoints,
                point_rows=image.point_rows + start,
                form=image.form,
            )
        points.append(scene.points)
        start += len(scene.points)
    return Scene(images=images, points=np.concatenate(points), mean_reprojection_error_px=0.0)


def overlapping(fold: Fold, query: str) -> set[str]:
    """Names ("place/image") of the photographs in the fold's map that see `SHARED_POINTS` or more of the query's inliers.

    The inliers are those of localization from raw features; without a pose no photograph overlaps.
    """
    features = fold.place.features[query]
    result = localize(features.camera, features.keypoints, publish(features), fold.scene)
    if not isinstance(result, Localization):
        return set()
    seen = np.zeros(len(fold.scene.points), dtype=bool)
    seen[result.point_rows] = True
    names = {name for name, image in fold.scene.images.items() if seen[image.point_rows].sum() >= SHARED_POINTS}
    return {f"{fold.place.name}/{name}" for name in names}


def recalls(folds: Sequence[Fold], words: int, laws: Sequence[tuple[float, int]]) -> list[Recall]:
    """Recall for each pair (epsilon, m) of `laws`, with a joint dictionary of `words` words made from all maps.

    `folds` holds one fold of each scene. An infinite epsilon (with m = 1) is retrieval from raw descriptors.
    """
    scene = joint_scene({fold.place.name: fold.scene for fold in folds})
    images = [item for fold in folds for item in mapped(fold)]
    book = dictionary_of(images, words, source="the maps of all scenes")
    vocabulary = index_map(scene, book)
    truth = {(fold.place.name, name): overlapping(fold, name) for fold in folds for name in fold.held_out}
    return [_recall(folds, book, vocabulary, truth, epsilon, m) for epsilon, m in laws]


def _recall(
    folds: Sequence[Fold],
    book: Codebook,
    vocabulary: InvertedIndex,
    truth: Mapping[tuple[str, str], set[str]],
    epsilon: float,
    m: int,
) -> Recall:
    mechanism = SubsetMechanism(dictionary_size=len(book), epsilon=epsilon, m=m)
    shares = []
    for fold in folds:
        for name in fold.held_out:
            right = truth[fold.place.name, name]
            if not right:
                continue  # nothing overlaps, or raw descriptors do not tell
            form = to_words(fold.place.features[name], mechanism=mechanism, dictionary=book, randomness=fresh()).form
            best = {vocabulary.image_names[index] for index in most_similar(form, vocabulary, BEST)}
            shares.append(len(best & right) / min(BEST, len(right)))
    return Recall(
        words=len(book),
        epsilon=epsilon,
        m=m,
        recall_at_10=float(np.mean(shares)) if shares else math.nan,
        queries=len(shares),
        images=len(vocabulary.image_names),
    )
