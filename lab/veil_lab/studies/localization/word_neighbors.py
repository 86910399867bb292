"""Matching of words like descriptors, the baseline of Pittaluga and Zhuang 2023, Table 3."""

from __future__ import annotations

import numpy as np

from veil.codebooks.codebook import Codebook
from veil.errors import InputError
from veil.forms import Points, Subsets
from veil.matching.inverted_index import Candidates
from veil.matching.neighbors import match
from veil.scene import Scene
from veil.space import require_same


def neighbor_candidates(form: Subsets, scene: Scene, dictionary: Codebook) -> Candidates:
    """Candidates of a query in words: mutual nearest neighbors of its words' vectors and each map image's descriptors.

    Each of a feature's m words has a vector in the dictionary. Features that send the same word are equally near; the first of
    them is the neighbor. `log_odds` is minus the distance: only its order is used. Raises InputError unless the map holds
    descriptors and the dictionary is the query's, SpaceError if these descriptors are of another space.
    """
    if form.dictionary != dictionary.digest:
        raise InputError(f"the query's words are of dictionary {form.dictionary[:12]}, this one is {dictionary.digest[:12]}")
    require_same(scene.space, dictionary.raw_space)
    used, first_sent = np.unique(form.ids.ravel(), return_index=True)
    words = Points(vectors=dictionary.vectors[used], space=scene.space)
    keys, distances = [], []
    for image in scene.images.values():
        if not isinstance(image.form, Points):
            raise InputError("nearest neighbors of words need a map of descriptors; match words with words instead")
        matches = match(words, image.form)
        keypoint = first_sent[matches.indices[:, 0]] // form.m
        keys.append(keypoint * len(scene.points) + image.point_rows[matches.indices[:, 1]])
        distances.append(matches.distances)
    key, distance = np.concatenate(keys), np.concatenate(distances)
    best = np.argsort(distance, kind="stable")
    _, first = np.unique(key[best], return_index=True)
    rows = best[np.sort(first)]
    keypoint_rows, point_rows = np.divmod(key[rows], len(scene.points))
    return Candidates(
        keypoint_rows=keypoint_rows.astype(np.int64), point_rows=point_rows.astype(np.int64), log_odds=-distance[rows]
    )
