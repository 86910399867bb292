"""Words with lines at smaller epsilons: beliefs, the search by mapped image, its refinement, and what must be refused."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from scipy.spatial.transform import Rotation

from veil.forms import Subsets
from veil.geometry.rigid import rotation_angle_deg
from veil.matching.inverted_index import index_map, vocabulary_candidates
from veil.places.poses.answer import Localization, NoPose
from veil.places.poses.by_words import localize_words
from veil.places.poses.options import WordOptions
from veil.places.poses.word_lines import MOST_BELIEF, SHARE_OF_FEATURES, LineSearch, LineWords, line_search
from worlds import generator, world
from worlds.word_uploads import random_ids
from worlds.word_worlds import dictionary_of, lines_of, scene_of, subsets, with_down, words_of

PLACE = world("line words", points=600)
DICTIONARY = dictionary_of(PLACE, others=3000)
DOWN = np.array([0, 1.0, 0])
SCENE = with_down(scene_of(PLACE, without="02"), DOWN)
VOCABULARY = index_map(SCENE, DICTIONARY)
LINES, TRUTH = lines_of(PLACE, "02"), PLACE.poses["02"]
OPTIONS = WordOptions(min_iterations=1000, max_iterations=2000, threads=1)


def query(epsilon: float) -> Subsets:
    return words_of(PLACE.form("02"), DICTIONARY, epsilon=epsilon)


def problem_of(form: Subsets) -> LineWords:
    return LineWords(PLACE.camera, LINES, vocabulary_candidates(form, VOCABULARY), SCENE, list(SCENE.images), OPTIONS)


def search_of(problem: LineWords) -> LineSearch:
    assert LINES.gravity is not None
    search = line_search(problem, problem.candidates, problem.names, LINES.gravity, DOWN, problem.weighted)
    assert search is not None
    return search


def check(answer: Localization | NoPose) -> None:
    assert isinstance(answer, Localization), answer
    assert np.linalg.norm(answer.cam_from_world.center - TRUTH.center) < 0.05
    assert rotation_angle_deg(answer.cam_from_world.rotation @ TRUTH.rotation.T) < 0.4
    assert len(np.unique(answer.keypoint_rows)) == len(np.unique(answer.point_rows)) == answer.inliers


@pytest.mark.slow
def test_a_planted_pose_is_found_and_the_search_ends_early() -> None:
    """A quarter of the words that are sent are right; 200,000 samples are allowed, and chance is out long before."""
    steps: list[tuple[int, int]] = []
    form = query(5.0)
    sent = (form.ids == DICTIONARY.nearest(PLACE.form("02").vectors)[:, None]).any(axis=1)
    assert sent.mean() < 0.25
    answer = localize_words(
        PLACE.camera, LINES, form, SCENE, VOCABULARY, options=OPTIONS, progress=lambda *step: steps.append(step)
    )
    check(answer)
    assert steps[-1][0] == steps[-1][1] < 200_000


@pytest.mark.slow
@pytest.mark.usefixtures("unchecked")
def test_gravity_off_by_a_degree_is_refined_away() -> None:
    """Planted truth; turns about the camera's y-axis, nearly that of gravity, would change little."""
    for axis in np.eye(3)[::2]:
        tilted = Rotation.from_rotvec(math.radians(1.0) * axis).as_matrix() @ LINES.gravity
        lines = replace(LINES, gravity=tilted)
        check(localize_words(PLACE.camera, lines, query(6.0), SCENE, VOCABULARY, options=OPTIONS))


@pytest.mark.slow
@pytest.mark.usefixtures("unchecked")
def test_random_words_and_right_words_of_other_lines_are_refused() -> None:
    form, random = query(6.0), generator("line words by chance 0")
    chance = subsets(random_ids(random, len(LINES), 2, len(DICTIONARY)), form.mechanism, DICTIONARY.digest)
    mixed = LINES.take(random.permutation(len(LINES)))
    for lines, words in ((LINES, chance), (mixed, form)):
        answer = localize_words(PLACE.camera, lines, words, SCENE, VOCABULARY, options=OPTIONS)
        assert isinstance(answer, NoPose) and answer.log10_nfa > 0


@pytest.mark.slow
@pytest.mark.usefixtures("unchecked")
def test_the_same_query_gets_the_same_pose() -> None:
    first, second = (localize_words(PLACE.camera, LINES, query(6.0), SCENE, VOCABULARY, options=OPTIONS) for _ in range(2))
    assert isinstance(first, Localization) and isinstance(second, Localization)
    np.testing.assert_array_equal(first.cam_from_world.rotation, second.cam_from_world.rotation)


def test_beliefs_are_those_of_the_formula_in_plain_loops() -> None:
    """Each candidate of each mapped image against docs/theory/words.md, Eq. 21; the beliefs of a feature sum to at most one."""
    problem = problem_of(query(5.0))
    search, candidates = search_of(problem), problem.candidates
    for v, name in enumerate(problem.names):
        first, last = search.sampled.starts[v], search.sampled.starts[v + 1]
        visible = set(SCENE.images[name].point_rows.tolist())
        rows = [
            row for row, point in enumerate(candidates.point_rows.tolist()) if point in visible and candidates.log_odds[row] > 0
        ]
        prior = SHARE_OF_FEATURES / len(visible)
        odds = {row: prior * math.exp(min(float(candidates.log_odds[row]), 12.0)) for row in rows}
        total: dict[int, float] = {}
        for row in rows:
            feature = int(candidates.keypoint_rows[row])
            total[feature] = total.get(feature, 0.0) + odds[row]
        assert {int(row) for row in search.taken[first:last]} <= set(rows) and last - first == min(len(rows), 2048)
        for row, belief in zip(search.taken[first:last].tolist(), search.sampled.belief[first:last].tolist(), strict=True):
            expected = odds[row] / (1 - SHARE_OF_FEATURES + total[int(candidates.keypoint_rows[row])])
            assert belief == pytest.approx(min(expected, MOST_BELIEF), rel=1e-9)
        assert (np.bincount(search.sampled.line_rows[first:last], weights=search.sampled.belief[first:last]) <= 1).all()
        assert (np.diff(search.sampled.belief[first:last]) <= 0).all()


def test_without_likely_candidates_samples_are_uniform() -> None:
    problem = problem_of(query(6.0))
    flat = replace(problem.candidates, log_odds=np.zeros(len(problem.candidates)))
    assert line_search(problem, flat, problem.names, LINES.gravity, DOWN, problem.weighted) is None  # type: ignore[arg-type]
