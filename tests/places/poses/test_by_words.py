"""Queries in words find planted poses, from points and from lines, and chance gets none."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace

import numpy as np
import pytest
from scipy.spatial.transform import Rotation

from veil.errors import InputError, RangeError, SpaceError
from veil.forms import Lines
from veil.geometry.camera import GUESS, UNDISCLOSED, FocalPrior, zoomed
from veil.geometry.rigid import rotation_angle_deg
from veil.geometry.robust.significance import P3P, UPRIGHT_LINES, line_agreement, point_agreement, pose_log10_nfa
from veil.ldp.mechanism import SubsetMechanism
from veil.matching.inverted_index import Candidates, index_map, vocabulary_candidates
from veil.places.poses.answer import Localization, NoPose
from veil.places.poses.by_words import _estimate, localize_candidates, localize_words
from veil.places.poses.options import WordOptions
from veil.places.poses.word_lines import word_problem
from veil.places.poses.word_points import WordProblem
from worlds import generator, world
from worlds.word_uploads import random_ids
from worlds.word_worlds import dictionary_of, lines_of, scene_of, subsets, with_down, words_of

PLACE = world("localize words")
DICTIONARY = dictionary_of(PLACE, others=2000)
SCENE = with_down(scene_of(PLACE, without="02"), np.array([0, 1.0, 0]))
VOCABULARY = index_map(SCENE, DICTIONARY)
QUERY = words_of(PLACE.form("02"), DICTIONARY, epsilon=7.0)
KEYPOINTS, LINES = PLACE.keypoints["02"], lines_of(PLACE, "02")
# Refusals need not search for long here.
BRIEF = WordOptions(max_iterations=8_000)


def check(answer: Localization | NoPose, *, center: float, degrees: float) -> Localization:
    assert isinstance(answer, Localization), answer
    truth = PLACE.poses["02"]
    assert np.linalg.norm(answer.cam_from_world.center - truth.center) < center
    assert rotation_angle_deg(answer.cam_from_world.rotation @ truth.rotation.T) < degrees
    assert len(np.unique(answer.keypoint_rows)) == len(np.unique(answer.point_rows)) == answer.inliers
    return answer


def test_words_with_points_localize() -> None:
    steps: list[tuple[int, int]] = []
    answer = localize_words(PLACE.camera, KEYPOINTS, QUERY, SCENE, VOCABULARY, progress=lambda *step: steps.append(step))
    answer = check(answer, center=0.02, degrees=0.2)
    right = PLACE.visible["02"][answer.keypoint_rows] == answer.point_rows
    sent = (QUERY.ids == DICTIONARY.nearest(PLACE.form("02").vectors)[:, None]).any(axis=1)
    assert right.mean() > 0.95 and right.sum() > 0.9 * sent.sum()
    assert answer.log10_nfa < -50 and answer.covariance is not None and (np.linalg.eigvalsh(answer.covariance) > 0).all()
    assert answer.correspondences <= len(QUERY) and steps[-1][0] == steps[-1][1]


@pytest.mark.slow
def test_words_with_lines_localize_upright() -> None:
    answer = check(localize_words(PLACE.camera, LINES, QUERY, SCENE, VOCABULARY), center=0.05, degrees=0.3)
    assert (PLACE.visible["02"][answer.keypoint_rows] == answer.point_rows).mean() > 0.7
    assert answer.covariance is not None and (np.linalg.eigvalsh(answer.covariance) > 0).all()


def test_words_with_lines_localize_in_a_small_picture() -> None:
    """A picture of a quarter of the size, where one feature in four has a right candidate, before nine wrong ones.

    By the bound for evenly spread lines more features agree by chance than with the right pose, so that no pose passed when
    that bound alone was asked.
    """
    random = generator("small picture")
    small = replace(PLACE.camera, width_px=160, height_px=120, params=tuple(value / 4 for value in PLACE.camera.params))
    count = len(KEYPOINTS)
    point_rows = random.integers(0, len(PLACE.points), (count, 10))
    right = random.random(count) < 0.25
    point_rows[right, 0] = PLACE.visible["02"][right]
    rows = np.repeat(np.arange(count), 10)
    candidates = Candidates(keypoint_rows=rows, point_rows=point_rows.ravel(), log_odds=np.zeros(len(rows)))
    loose = replace(BRIEF, max_turn_deg=2.0)  # a pixel is 0.4 degrees
    check(localize_candidates(small, LINES, candidates, SCENE, list(SCENE.images), options=loose), center=0.2, degrees=2.0)


def test_a_map_of_words_localizes_words() -> None:
    """Map and query in words: each sends the true word with probability p, so that p^2 of the pairs can be right."""
    forms = {name: words_of(PLACE.form(name), DICTIONARY, epsilon=9.0, name=name) for name in PLACE.poses}
    scene = scene_of(PLACE, without="02", forms=forms)
    answer = localize_words(PLACE.camera, KEYPOINTS, forms["02"], scene, index_map(scene, None))
    check(answer, center=0.02, degrees=0.2)


def test_the_same_query_gets_the_same_pose() -> None:
    results = [
        localize_words(PLACE.camera, KEYPOINTS, QUERY, SCENE, VOCABULARY, options=WordOptions(threads=threads))
        for threads in (1, 2)
    ]
    first, second = (check(answer, center=0.02, degrees=0.2) for answer in results)
    np.testing.assert_array_equal(first.cam_from_world.rotation, second.cam_from_world.rotation)
    np.testing.assert_array_equal(first.point_rows, second.point_rows)


@pytest.mark.slow
@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize("observations", [KEYPOINTS, LINES], ids=["points", "lines"])
def test_random_words_are_refused(observations: np.ndarray | Lines) -> None:
    for index in range(2):
        ids = random_ids(generator(f"random query {index}"), len(observations), 2, len(DICTIONARY))
        form = subsets(ids, QUERY.mechanism, DICTIONARY.digest)
        answer = localize_words(PLACE.camera, observations, form, SCENE, VOCABULARY, options=BRIEF)
        assert isinstance(answer, NoPose) and "features" in answer.reason


@pytest.mark.slow
@pytest.mark.parametrize("observations", [KEYPOINTS, LINES], ids=["points", "lines"])
def test_right_words_at_wrong_places_are_refused(observations: np.ndarray | Lines) -> None:
    """The broken twin of a check that counts shared words only: the candidates are right, the geometry is not."""
    order = generator("mixed").permutation(len(observations))
    mixed = observations.take(order) if isinstance(observations, Lines) else observations[order]
    answer = localize_words(PLACE.camera, mixed, QUERY, SCENE, VOCABULARY, options=BRIEF)
    assert isinstance(answer, NoPose) and ("chance also gives" in answer.reason or "no pose explains" in answer.reason)
    assert answer.log10_nfa > -6 and answer.correspondences > 100
    assert answer.inliers > 0 or "no pose explains" in answer.reason


def test_words_of_another_place_are_refused() -> None:
    """True words of other points, in the same dictionary."""
    other = world("another place")
    form = words_of(other.form("02"), DICTIONARY, epsilon=7.0)
    answer = localize_words(other.camera, other.keypoints["02"], form, SCENE, VOCABULARY, options=BRIEF)
    assert isinstance(answer, NoPose)


def test_epsilon_zero_gets_no_pose() -> None:
    form = words_of(PLACE.form("02"), DICTIONARY, epsilon=0.0)
    assert isinstance(localize_words(PLACE.camera, KEYPOINTS, form, SCENE, VOCABULARY, options=BRIEF), NoPose)


def test_few_shared_words_give_a_reason() -> None:
    few = np.arange(9)
    answer = localize_words(PLACE.camera, KEYPOINTS[few], QUERY.take(few), SCENE, VOCABULARY)
    assert isinstance(answer, NoPose) and "share words with the map" in answer.reason


def test_lines_need_gravity_of_query_and_map() -> None:
    blind = replace(LINES, gravity=None)
    with pytest.raises(InputError, match="the query has no gravity"):
        localize_words(PLACE.camera, blind, QUERY, SCENE, VOCABULARY)
    with pytest.raises(InputError, match="the map has no gravity"):
        localize_words(PLACE.camera, LINES, QUERY, scene_of(PLACE, without="02"), VOCABULARY)


def test_words_with_lines_of_two_halves_are_refused() -> None:
    """Samples of four such lines mostly leave a way open; the same query with random lines is localized (above)."""
    along = np.where(np.arange(len(LINES))[:, None] % 2, [0.0, 1.0, 0.1], [1.0, 0.0, 0.1]).astype(np.float32)
    halves = replace(LINES, coefficients=along, aligned=np.zeros(len(LINES), dtype=bool))
    with pytest.raises(InputError, match="convergent or parallel"):
        localize_words(PLACE.camera, halves, QUERY, SCENE, VOCABULARY)


@pytest.mark.slow
@pytest.mark.usefixtures("unchecked")
def test_a_wrong_gravity_gives_no_wrong_pose() -> None:
    """Gravity that is twelve degrees off in query or map gives no pose, or one that the refinement over inliers corrected."""
    turn = Rotation.from_rotvec(np.radians([12.0, 0, 0])).as_matrix()
    assert LINES.gravity is not None and SCENE.down is not None
    for lines, scene in (
        (replace(LINES, gravity=turn @ LINES.gravity), SCENE),
        (LINES, with_down(SCENE, turn @ SCENE.down)),
    ):
        answer = localize_words(PLACE.camera, lines, QUERY, scene, VOCABULARY, options=BRIEF)
        assert isinstance(answer, NoPose) or check(answer, center=0.05, degrees=0.3)


def test_another_dictionary_is_refused() -> None:
    form = replace(QUERY, dictionary="ab" * 32)
    with pytest.raises(SpaceError):
        localize_words(PLACE.camera, KEYPOINTS, form, SCENE, VOCABULARY)


@pytest.mark.parametrize(
    "bad",
    [
        {"max_error_px": 0.0},
        {"line_error_px": float("nan")},
        {"min_inliers": 5},
        {"retrieved": 0},
        {"gravity_sigma_deg": -1.0},
        {"gravity_sigma_deg": 45.0},
        {"gravity_sigma_deg": float("nan")},
    ],
)
def test_options_out_of_range(bad: dict) -> None:
    with pytest.raises(RangeError):
        WordOptions(**bad)


def problem_of(observations: np.ndarray | Lines, candidates: Candidates) -> WordProblem:
    return word_problem(PLACE.camera, observations, candidates, SCENE, list(SCENE.images), WordOptions())


def nested(problem: WordProblem, rows: np.ndarray) -> dict[tuple[int, int], float]:
    """Slow reference: log10 of the expected number of chance poses for each set of groups and candidates, in plain loops."""
    groups = problem.groups
    count = len(groups.starts) - 1
    single = (line_agreement if groups.as_lines else point_agreement)(PLACE.camera, problem.limit_px)
    sampling = UPRIGHT_LINES if groups.as_lines else P3P
    levels = {}
    for share, most in itertools.product((0.125, 0.25, 0.5, 1.0), (1, 2, 10**9)):
        first = max(1, int(share * count))
        sizes = [min(int(groups.starts[g + 1] - groups.starts[g]), most) for g in range(first)]
        kept = [r for r in rows.tolist() if groups.group[r] < first and r - groups.starts[groups.group[r]] < most]
        agreement = sum(min(1.0, size * single) for size in sizes) / first
        poses = pose_log10_nfa(len(kept), first, agreement, sampling)
        levels[first, most] = poses + sampling.size * math.log10(sum(sizes) / first)
    return levels


@pytest.mark.parametrize("observations", [KEYPOINTS, LINES], ids=["points", "lines"])
def test_chance_is_the_least_of_the_nested_sets_and_pays_for_their_number(observations: np.ndarray | Lines) -> None:
    """Equal to the slow reference for the most trusted, the least trusted and random inliers.

    It exceeds the plain formula by the number of sets at most.
    """
    problem = problem_of(observations, vocabulary_candidates(QUERY, VOCABULARY))
    starts = problem.groups.starts[:-1]
    random = generator("nested")
    last = problem.groups.starts[1:] - 1
    for rows in (starts[:40], last[-40:], np.sort(random.choice(starts, 30, replace=False))):
        sets = nested(problem, rows)
        plain = sets[len(starts), 10**9]
        log10_nfa = problem.log10_nfa(rows, problem.limit_px)
        assert log10_nfa == pytest.approx(min(sets.values()) + math.log10(len(sets)), abs=1e-9)
        assert log10_nfa <= plain + math.log10(12) + 1e-9
    # Trusted inliers are worth more than others; without nested sets they would not be.
    assert problem.log10_nfa(starts[:40], problem.limit_px) < problem.log10_nfa(last[-40:], problem.limit_px) - 10


def test_the_chance_of_grouped_poses_is_bounded_by_means() -> None:
    """Enumeration of all samples S and agreeing sets T of 6 groups: their sum is at most the formula of means (words.md)."""
    random = generator("association")
    for index in range(40):
        sizes = random.integers(1, 30 if index % 2 else 3, 6).astype(np.float64)
        agrees = np.minimum(1.0, sizes * random.choice([0.01, 0.05, 0.3]))
        for size, agreeing in ((1, 1), (1, 3), (2, 2), (3, 3), (2, 4)):
            total = sum(
                np.prod(sizes[list(sample)]) * np.prod(agrees[list(others)])
                for sample in itertools.combinations(range(6), size)
                for others in itertools.combinations(sorted(set(range(6)) - set(sample)), agreeing)
            )
            ways = math.comb(6, size) * math.comb(6 - size, agreeing)
            assert total <= ways * sizes.mean() ** size * agrees.mean() ** agreeing * (1 + 1e-12)


def test_the_bound_fails_for_agreement_that_falls_with_the_number_of_candidates() -> None:
    # The broken twin of its condition: both must grow together.
    sizes, agrees = np.array([1.0, 9.0]), np.array([0.9, 0.1])
    assert sizes[0] * agrees[1] + sizes[1] * agrees[0] > 2 * sizes.mean() * agrees.mean()


def test_more_candidates_or_less_inliers_are_more_chance() -> None:
    candidates = vocabulary_candidates(QUERY, VOCABULARY)
    problem = problem_of(KEYPOINTS, candidates)
    starts = problem.groups.starts[:-1]
    assert problem.log10_nfa(starts[:30], 8.0) < problem.log10_nfa(starts[:20], 8.0)
    doubled = Candidates(
        keypoint_rows=np.tile(candidates.keypoint_rows, 2),
        point_rows=np.concatenate([candidates.point_rows, generator("wrong").permutation(candidates.point_rows)]),
        log_odds=np.concatenate([candidates.log_odds, candidates.log_odds - 20]),
    )
    wider = problem_of(KEYPOINTS, doubled)
    rows = wider.groups.starts[1:-1] - 1  # the least trusted of each group
    assert wider.log10_nfa(rows[:30], 8.0) > problem.log10_nfa(starts[:30], 8.0)


def test_noise_reaches_no_small_chance() -> None:
    """Simulation with random candidates at random places: no best pose of a search has log10 NFA below -2."""
    random = generator("noise")
    for _ in range(4):
        count, points = 200, random.integers(0, len(PLACE.points), 600)
        candidates = Candidates(
            keypoint_rows=np.repeat(np.arange(count), 3), point_rows=points, log_odds=np.sort(random.random(600))[::-1]
        )
        keypoints = (random.random((count, 2)) * [640, 480]).astype(np.float32)
        answer = localize_candidates(PLACE.camera, keypoints, candidates, SCENE, [], options=BRIEF)
        assert isinstance(answer, NoPose) and answer.log10_nfa > -2


def test_the_mechanism_is_needed_to_weigh_words() -> None:
    """Candidates of the same words weigh less under a smaller epsilon."""
    plain = vocabulary_candidates(QUERY, VOCABULARY)
    mechanism = SubsetMechanism(dictionary_size=len(DICTIONARY), epsilon=2.0, m=2)
    weak = vocabulary_candidates(replace(QUERY, mechanism=mechanism), VOCABULARY)
    assert weak.log_odds.max() < 2.0 < plain.log_odds.max()


@pytest.mark.slow
@pytest.mark.parametrize("factor", [0.75, 1.0, 1.4])
def test_a_guessed_focal_length_is_found(factor: float) -> None:
    """Oracle: the planted pose. Counterexample: a query that takes the guess for exact has its camera at a wrong distance."""
    camera = PLACE.camera
    scaled = tuple(factor * value for value in camera.params[: camera.focal_count]) + camera.params[camera.focal_count :]
    guessed = replace(camera, params=scaled, focal=GUESS)
    answer = localize_words(guessed, KEYPOINTS, QUERY, SCENE, VOCABULARY, options=BRIEF)
    assert isinstance(answer, Localization)
    exact = localize_words(camera, KEYPOINTS, QUERY, SCENE, VOCABULARY, options=BRIEF)
    assert isinstance(exact, Localization)
    assert np.linalg.norm(answer.cam_from_world.center - exact.cam_from_world.center) < 0.15
    if factor != 1.0:
        twin = localize_words(replace(guessed, focal=UNDISCLOSED), KEYPOINTS, QUERY, SCENE, VOCABULARY, options=BRIEF)
        assert isinstance(twin, NoPose) or np.linalg.norm(twin.cam_from_world.center - exact.cam_from_world.center) > 0.5


@pytest.mark.slow
@pytest.mark.parametrize("hidden", [False, True], ids=["points", "lines"])
@pytest.mark.parametrize(("factor", "focal"), [(0.9, UNDISCLOSED), (1.12, UNDISCLOSED), (0.7, GUESS), (1.4, GUESS)])
def test_a_wrong_focal_length_is_put_right(factor: float, focal: FocalPrior, hidden: bool) -> None:
    """Planted truth, from two images and compared with two more: the pose itself is no other place that explains as much.

    Lines were drawn with the wrong focal length.
    """
    lens = replace(zoomed(PLACE.camera, factor), focal=focal)
    observations = lines_of(replace(PLACE, camera=lens), "02") if hidden else KEYPOINTS
    options = replace(BRIEF, retrieved=2, compared=2)
    answer = localize_words(lens, observations, QUERY, SCENE, VOCABULARY, options=options)
    answer = check(answer, center=0.15 if hidden else 0.05, degrees=0.5)
    assert answer.center_deviation is not None and answer.center_deviation < (0.15 if hidden else 0.06)
    in_words = _estimate(answer, lens, observations, SCENE)
    assert in_words.camera.focal_px == pytest.approx(500, rel=0.01)
