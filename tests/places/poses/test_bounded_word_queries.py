"""No query in words keeps a server busy: work is bounded for any number of words and candidates, and the answer says so."""

from __future__ import annotations

import time

import numpy as np
import pytest

from veil.forms import Subsets
from veil.geometry.robust.grouped import BATCH, STREAMS, candidates_searched
from veil.geometry.robust.grouped_search import FIRST_GROUPS, search
from veil.ldp.mechanism import SubsetMechanism
from veil.matching.inverted_index import Candidates, index_map, vocabulary_candidates
from veil.places.poses.answer import NoPose
from veil.places.poses.by_words import localize_candidates, localize_words
from veil.places.poses.options import WordOptions
from worlds import generator, world
from worlds.grouped_problems import LIMIT, planted_groups
from worlds.word_uploads import random_ids
from worlds.word_worlds import dictionary_of, lines_of, scene_of, subsets, with_down, words_of

PLACE = world("bounded words", points=3000)
DICTIONARY = dictionary_of(PLACE, others=2000)
SCENE = with_down(scene_of(PLACE, without="02"), np.array([0, 1.0, 0]))
VOCABULARY = index_map(SCENE, DICTIONARY)


def wrong_words() -> Subsets:
    """Two words at random for each feature of an ordinary query."""
    count = len(PLACE.keypoints["02"])
    mechanism = SubsetMechanism(dictionary_size=len(DICTIONARY), epsilon=5.0, m=2)
    return subsets(random_ids(generator("wrong words"), count, 2, len(DICTIONARY)), mechanism, DICTIONARY.digest)


def hostile(m: int, features: int = 300) -> Subsets:
    """Most words of the dictionary at once, so that each feature may be almost any point of the map."""
    mechanism = SubsetMechanism(dictionary_size=len(DICTIONARY), epsilon=5.0, m=m)
    ids = random_ids(generator("hostile words"), features, m, len(DICTIONARY))
    return subsets(ids, mechanism, DICTIONARY.digest)


ROUND = WordOptions(threads=1, min_iterations=1, max_iterations=STREAMS * BATCH)


def seconds(candidates: Candidates, features: int, as_lines: bool) -> float:
    """Processor time of one round of samples for the candidates of a query in words."""
    observations = lines_of(PLACE, "02").take(np.arange(features)) if as_lines else PLACE.keypoints["02"][:features]
    begun = time.process_time()
    localize_candidates(PLACE.camera, observations, candidates, SCENE, list(SCENE.images), options=ROUND)
    return time.process_time() - begun


@pytest.fixture(scope="module")
def candidates_of() -> list[tuple[Candidates, int]]:
    """Candidates and number of features of an ordinary query and of a hostile one."""
    return [(vocabulary_candidates(form, VOCABULARY), len(form)) for form in (wrong_words(), hostile(4000))]


@pytest.mark.slow
@pytest.mark.parametrize("as_lines", [False, True])
def test_features_that_may_be_any_point_take_little_longer(candidates_of: list[tuple[Candidates, int]], as_lines: bool) -> None:
    """A hundred times the usual number of candidates takes little longer; without bounds it took a hundred times as long."""
    plain, heavy = candidates_of
    assert candidates_searched(heavy[0].keypoint_rows) > 50 * candidates_searched(plain[0].keypoint_rows)
    seconds(*plain, as_lines)  # compiles
    assert seconds(*heavy, as_lines) < 25 * seconds(*plain, as_lines) + 1


@pytest.mark.slow
def test_a_refusal_says_that_the_search_was_cut_short() -> None:
    answer = localize_words(PLACE.camera, PLACE.keypoints["02"][:300], hostile(4000), SCENE, VOCABULARY, options=ROUND)
    assert isinstance(answer, NoPose)
    for words in ("features were not looked up", "fewer samples were drawn", "release fewer words a feature"):
        assert words in answer.reason


def test_ordinary_queries_meet_no_limit() -> None:
    """Counterexample: a query of two words a feature is searched in full, and its refusal names no limit."""
    form = words_of(PLACE.form("02"), DICTIONARY, epsilon=5.0)
    candidates = vocabulary_candidates(form, VOCABULARY)
    assert candidates.unread == 0 and candidates_searched(candidates.keypoint_rows) < 5000
    answer = localize_words(PLACE.camera, PLACE.keypoints["02"], wrong_words(), SCENE, VOCABULARY, options=ROUND)
    assert isinstance(answer, NoPose) and "fewer" not in answer.reason


def test_features_behind_the_last_entry_are_not_looked_up() -> None:
    """Enumeration: with room for the entries of the first k features, their candidates are listed, the rest is counted."""
    form = hostile(500, features=40)
    whole = vocabulary_candidates(form, VOCABULARY)
    sizes = np.diff(VOCABULARY.offsets)[form.ids.astype(np.int64)].sum(axis=1)
    for kept in (0, 1, 7, 40):
        some = vocabulary_candidates(form, VOCABULARY, max_entries=int(sizes[:kept].sum()))
        assert some.unread == 40 - kept and some.take(np.arange(len(some))).unread == 40 - kept
        expected = whole.take(whole.keypoint_rows < kept)
        assert set(zip(some.keypoint_rows, some.point_rows, strict=True)) == set(
            zip(expected.keypoint_rows, expected.point_rows, strict=True)
        )


def test_a_search_ends_with_its_comparisons() -> None:
    """One sample is always drawn; without room for a second one the result is that of one iteration, else that of all."""
    groups = planted_groups("comparisons", features=FIRST_GROUPS + 40, candidates=4, right=0.4).groups

    def run(iterations: int, most: int) -> float:
        return search(groups, limit=LIMIT, iterations=iterations, seed=5, floor=0.0, first_floor=0.0, max_comparisons=most)[2]

    one, all_of_them = run(1, 1 << 62), run(2000, 1 << 62)
    assert one < all_of_them == run(2000, 1 << 40)
    # The first sample that gives a pose ends the search.
    few = [run(iterations, 1 << 62) for iterations in range(1, 60)]
    assert run(2000, 0) in few and run(2000, 0) < all_of_them
