"""Neighbors of words among the descriptors of a map, against brute force."""

from __future__ import annotations

import numpy as np
import pytest

from veil.errors import InputError
from veil_lab.studies.localization.word_localization import neighbor_candidates
from worlds import world
from worlds.word_worlds import dictionary_of, scene_of, words_of

PLACE = world("neighbors of words", images=4, points=100)


DICTIONARY = dictionary_of(PLACE, others=400)


def test_neighbors_of_words_are_the_brute_force_ones() -> None:
    """Mutual nearest neighbors of word vectors and each image's descriptors, by a distance table."""
    scene = scene_of(PLACE, without="02")
    form = words_of(PLACE.form("02"), DICTIONARY, epsilon=8.0)
    candidates = neighbor_candidates(form, scene, DICTIONARY)
    expected: dict[tuple[int, int], float] = {}
    used = sorted(set(form.ids.ravel().tolist()))
    first = {word: int(np.flatnonzero((form.ids == word).any(axis=1))[0]) for word in used}
    for name in scene.images:
        vectors = PLACE.form(name).vectors.astype(np.float64)
        table = np.linalg.norm(DICTIONARY.vectors[used][:, None] - vectors[None], axis=2)
        for i, word in enumerate(used):
            j = int(table[i].argmin())
            if table[:, j].argmin() == i:
                pair = first[word], int(PLACE.visible[name][j])
                expected[pair] = min(expected.get(pair, np.inf), table[i, j])
    pairs = list(zip(candidates.keypoint_rows.tolist(), candidates.point_rows.tolist(), strict=True))
    assert len(set(pairs)) == len(pairs) and set(pairs) == set(expected)
    np.testing.assert_allclose(-candidates.log_odds, [expected[pair] for pair in pairs], atol=2e-3)
    assert (np.diff(candidates.log_odds) <= 0).all()
    right = PLACE.visible["02"][candidates.keypoint_rows] == candidates.point_rows
    assert right[:40].mean() > 0.8


def test_neighbors_need_the_querys_dictionary_and_a_map_of_descriptors() -> None:
    form = words_of(PLACE.form("02"), DICTIONARY, epsilon=8.0)
    other = dictionary_of(PLACE, others=400, name="elsewhere")
    with pytest.raises(InputError, match="are of dictionary"):
        neighbor_candidates(form, scene_of(PLACE), other)
    worded = {name: words_of(PLACE.form(name), DICTIONARY, epsilon=8.0) for name in PLACE.poses}
    with pytest.raises(InputError, match="map of descriptors"):
        neighbor_candidates(form, scene_of(PLACE, forms=worded), DICTIONARY)
