"""Queries in words with keypoints and gravity: planted poses at small epsilons, and everything that must be refused."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from scipy.spatial.transform import Rotation

from veil.errors import InputError, RangeError
from veil.forms import Subsets
from veil.geometry.camera import as_colmap
from veil.geometry.free_calibration import FreeCamera, calibrated
from veil.geometry.rigid import Rigid, rotation_angle_deg
from veil.geometry.robust.upright_search import Kept, search_pairs
from veil.matching.inverted_index import index_map, unshared_log_odds, vocabulary_candidates
from veil.places.poses.answer import Localization, NoPose
from veil.places.poses.by_words import localize_words
from veil.places.poses.evidence import WEIGHED_DOUBT, contradicts_calibration
from veil.places.poses.judge import AMBIGUOUS
from veil.places.poses.matches import Estimate
from veil.places.poses.options import UprightOptions, WordOptions
from veil.places.poses.upright import UprightWeighing, pairs_around
from veil.places.poses.upright_problem import UprightProblem
from worlds import generator, world
from worlds.word_uploads import random_ids
from worlds.word_worlds import dictionary_of, scene_of, subsets, with_down, words_of

PLACE = world("upright words", points=600)
DICTIONARY = dictionary_of(PLACE, others=3000)
DOWN = np.array([0, 1.0, 0])
SCENE = with_down(scene_of(PLACE, without="02"), DOWN)
VOCABULARY = index_map(SCENE, DICTIONARY)
KEYPOINTS, TRUTH = PLACE.keypoints["02"], PLACE.poses["02"]
GRAVITY = TRUTH.rotation @ DOWN
BRIEF = WordOptions(
    max_iterations=4000,
    upright=UprightOptions(samples=60_000, kept=40, refined=8, compared=3),
    threads=1,
)


def query(epsilon: float) -> Subsets:
    return words_of(PLACE.form("02"), DICTIONARY, epsilon=epsilon)


def unmet(form: Subsets) -> Subsets:
    """Planted: the same number of features, with words of no point of the map."""
    pairs = np.arange(len(DICTIONARY) // 2 * 2).reshape(-1, 2)
    called = vocabulary_candidates(subsets(pairs, form.mechanism, DICTIONARY.digest), VOCABULARY).keypoint_rows
    ids = np.repeat(np.delete(pairs, called, axis=0)[:1], len(form), axis=0)
    return subsets(ids, form.mechanism, DICTIONARY.digest)


def asked(
    form: Subsets,
    keypoints: np.ndarray = KEYPOINTS,
    gravity: np.ndarray | None = GRAVITY,
    *,
    near: list[str] | None = None,
    options: WordOptions = BRIEF,
) -> Localization | NoPose:
    return localize_words(PLACE.camera, keypoints, form, SCENE, VOCABULARY, gravity=gravity, near=near, options=options)


def check(answer: Localization | NoPose) -> Localization:
    """Planted truth: the pose, and right points for nearly all inliers, each once."""
    assert isinstance(answer, Localization), answer
    assert np.linalg.norm(answer.cam_from_world.center - TRUTH.center) < 0.02
    assert rotation_angle_deg(answer.cam_from_world.rotation @ TRUTH.rotation.T) < 0.2
    assert len(np.unique(answer.keypoint_rows)) == len(np.unique(answer.point_rows)) == answer.inliers
    assert (PLACE.visible["02"][answer.keypoint_rows] == answer.point_rows).mean() > 0.8
    return answer


@pytest.mark.slow
def test_guesses_by_place_localize_where_no_two_words_make_a_pair() -> None:
    """Planted: one feature keeps its words, the others' are of no point of the map. Control: words alone make no pair."""
    ids = unmet(query(3.0)).ids.copy()
    ids[0] = query(20.0).ids[0]
    form = subsets(ids, query(3.0).mechanism, DICTIONARY.digest)
    guessed = replace(BRIEF, upright=replace(BRIEF.upright, samples=350_000, reach=0.25))
    check(asked(form, near=["01", "03"], options=guessed))
    alone = replace(guessed, upright=replace(guessed.upright, reach=0.0))
    assert isinstance(asked(form, near=["01", "03"], options=alone), NoPose)


@pytest.mark.slow
def test_words_that_speak_against_a_pose_refuse_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Planted: right positions with words of other features, as of a mirrored symmetric place. Control: without the rule."""
    form = query(6.0)
    ids = form.ids[np.random.default_rng(1).permutation(len(form))]
    form = subsets(ids, form.mechanism, DICTIONARY.digest)
    guessed = replace(BRIEF, upright=replace(BRIEF.upright, samples=350_000, reach=0.25))
    answer = asked(form, near=["01", "03"], options=guessed)
    assert isinstance(answer, NoPose) and "their words speak against it" in answer.reason
    monkeypatch.setattr("veil.places.poses.upright.AGAINST", -math.inf)
    check(asked(form, near=["01", "03"], options=guessed))


def test_a_search_that_shows_no_pose_goes_on_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Planted: a pose that the first samples miss. Controls: no more are drawn where not allowed, nor needed."""
    drawn: list[int] = []

    def counted(kept: Kept, *rest: Any, samples: int, seed: int) -> None:
        drawn.append(samples)
        search_pairs(kept, *rest, samples=samples, seed=seed)

    monkeypatch.setattr("veil.places.poses.upright_problem.search_pairs", counted)
    form, missed = query(20.0), UprightOptions(samples=1, longer=60_000, kept=40, refined=8, compared=3)

    def among(upright: UprightOptions) -> Localization | NoPose:
        drawn.clear()
        return asked(form, options=replace(BRIEF, upright=upright))

    assert isinstance(among(replace(missed, longer=1)), NoPose) and drawn == [1]
    check(among(missed))
    assert drawn == [1, 59_999, 60_000]  # the last for the query turned over, which is searched with all samples at once
    check(among(replace(missed, samples=60_000, longer=4)))
    assert drawn == [60_000, 240_000]


@pytest.mark.slow
def test_a_right_pose_may_share_no_word_with_its_points(monkeypatch: pytest.MonkeyPatch) -> None:
    """Planted: words of no point, at an epsilon where a right pose has three on average. Control: the limit of before, -2."""
    form = unmet(query(10.4))
    weighing = problem_of(form)[1]
    silent = weighing.log_odds_of_words(weighing.weighed(Estimate(pose=TRUTH, camera=PLACE.camera)))
    assert -4 < silent < -2, silent
    guessed = replace(BRIEF, upright=replace(BRIEF.upright, samples=350_000, reach=0.25))
    check(asked(form, near=["01", "03"], options=guessed))
    monkeypatch.setattr("veil.places.poses.upright.AGAINST", -2.0)
    assert isinstance(asked(form, near=["01", "03"], options=guessed), NoPose)


def test_words_speak_for_right_pairs_and_against_exchanged_ones() -> None:
    """Slow reference: the mixture of Eq. 12 with the share of pairs beyond chance, term by term."""
    for form, sign in ((query(6.0), 1), (subsets(query(6.0).ids[::-1].copy(), query(6.0).mechanism, DICTIONARY.digest), -1)):
        problem, weighing = problem_of(form)
        evidence = weighing.weighed(Estimate(pose=TRUTH, camera=PLACE.camera))
        share = 1 - evidence.expected / len(evidence)
        rows = dict(
            zip(
                zip(problem.candidates.keypoint_rows.tolist(), problem.candidates.point_rows.tolist(), strict=True),
                problem.candidates.log_odds.tolist(),
                strict=True,
            )
        )
        expected = 0.0
        for keypoint, point in zip(evidence.keypoint_rows.tolist(), evidence.point_rows.tolist(), strict=True):
            odds = rows.get((keypoint, point), float(weighing.unshared[keypoint]))
            expected += math.log(1 - share + share * math.exp(odds))
        assert weighing.log_odds_of_words(evidence) == pytest.approx(expected)
        assert sign * expected > 2


def test_half_of_the_draws_are_guesses() -> None:
    """Slow reference: words by their gains and guesses evenly, each half of the draws; without a reach words alone."""
    form = query(3.0)
    sampled = replace(problem_of(form)[0], options=UprightOptions(reach=0.12)).sampled
    words = replace(problem_of(form)[0], options=UprightOptions(reach=0.0)).sampled
    assert (words.worded == words.starts[1:]).all()
    for v in range(len(sampled.worded)):
        start, worded, end = sampled.starts[v], sampled.worded[v], sampled.starts[v + 1]
        weights = np.diff(sampled.cumulative[start:end], prepend=0.0)
        gains = words.gain[words.starts[v] : words.starts[v + 1]]
        np.testing.assert_array_equal(sampled.gain[start:worded], gains)
        np.testing.assert_allclose(weights[: worded - start], gains / gains.sum() / 2, atol=1e-12)
        np.testing.assert_allclose(weights[worded - start :], 0.5 / (end - worded), atol=1e-12)
        assert not sampled.gain[worded:end].any() and end - worded > 100


@pytest.mark.slow
def test_gravity_localizes_where_three_points_do_not() -> None:
    """The same words at epsilon 3 a feature: without gravity (the control) chance explains every pose."""
    steps: list[tuple[int, int]] = []
    form = query(3.0)
    assert isinstance(asked(form, gravity=None), NoPose)
    answer = localize_words(
        PLACE.camera,
        KEYPOINTS,
        form,
        SCENE,
        VOCABULARY,
        gravity=GRAVITY,
        options=BRIEF,
        progress=lambda *step: steps.append(step),
    )
    answer = check(answer)
    assert answer.covariance is not None and (np.linalg.eigvalsh(answer.covariance) > 0).all()
    assert steps == [(60_000, 60_000)]


@pytest.mark.slow
def test_gravity_off_by_a_degree_is_refined_away() -> None:
    """Planted truth; turns about the camera's y-axis, nearly that of gravity, would change little."""
    for axis in np.eye(3)[::2]:
        tilted = Rotation.from_rotvec(math.radians(1.0) * axis).as_matrix() @ GRAVITY
        check(asked(query(4.0), gravity=tilted))


@pytest.mark.slow
def test_the_same_query_gets_the_same_pose() -> None:
    first, second = check(asked(query(4.0))), check(asked(query(4.0)))
    np.testing.assert_array_equal(first.cam_from_world.rotation, second.cam_from_world.rotation)
    np.testing.assert_array_equal(first.point_rows, second.point_rows)


@pytest.mark.slow
def test_known_images_take_the_place_of_retrieval() -> None:
    check(asked(query(3.0), near=["01", "03"]))
    for names, said in ((["01", "99"], "99"), ([], "near")):
        with pytest.raises(InputError, match=said):
            asked(query(3.0), near=names)
    assert SCENE.nearest(TRUTH.center, 2) == ["03", "01"] or SCENE.nearest(TRUTH.center, 2) == ["01", "03"]


@pytest.mark.slow
def test_right_words_of_a_mirrored_picture_are_refused() -> None:
    """The broken twin of a test that trusts words: they are all right, and no camera sees the points so."""
    mirrored = KEYPOINTS.copy()
    mirrored[:, 0] = PLACE.camera.width_px - mirrored[:, 0]
    answer = asked(query(7.0), keypoints=mirrored)
    assert isinstance(answer, NoPose) and "chance also gives" in answer.reason and answer.log10_nfa > 0


@pytest.mark.slow
def test_random_words_at_random_places_are_refused() -> None:
    for index in range(3):
        random = generator(f"upright chance {index}")
        ids = random_ids(random, len(KEYPOINTS), 2, len(DICTIONARY))
        places = (random.random(KEYPOINTS.shape) * [640, 480]).astype(np.float32)
        answer = asked(subsets(ids, query(5.0).mechanism, DICTIONARY.digest), keypoints=places)
        assert isinstance(answer, NoPose) and answer.log10_nfa > 0


@pytest.mark.slow
def test_gravity_from_another_side_is_refused() -> None:
    answer = asked(query(4.0), gravity=Rotation.from_rotvec([0, 0, math.radians(60.0)]).as_matrix() @ GRAVITY)
    assert isinstance(answer, NoPose)


@pytest.mark.slow
def test_a_picture_of_two_views_is_ambiguous() -> None:
    """Half of the keypoints and words are those of one view, half those of another: nothing tells which camera it was."""
    other = words_of(PLACE.form("00"), DICTIONARY, epsilon=9.0, name="other")
    form = words_of(PLACE.form("02"), DICTIONARY, epsilon=9.0)
    count = min(len(form), len(other))
    keep = np.arange(count) % 2 == 0
    ids = np.where(keep[:, None], form.ids[:count], other.ids[:count])
    keypoints = np.where(keep[:, None], KEYPOINTS[:count], PLACE.keypoints["00"][:count])
    answer = asked(subsets(ids, form.mechanism, DICTIONARY.digest), keypoints=keypoints)
    assert isinstance(answer, NoPose) and answer.reason.split("explain")[0] == AMBIGUOUS.split("explain")[0]


def problem_of(form: Subsets) -> tuple[UprightProblem, UprightWeighing]:
    problem = UprightProblem(
        camera=PLACE.camera,
        keypoints=KEYPOINTS,
        gravity=GRAVITY,
        candidates=vocabulary_candidates(form, VOCABULARY),
        scene=SCENE,
        names=list(SCENE.images),
        options=UprightOptions(),
    )
    return problem, UprightWeighing(problem=problem, unshared=unshared_log_odds(form, VOCABULARY))


def printed(offsets: np.ndarray) -> tuple[UprightWeighing, Estimate]:
    """A query whose keypoints a camera with such offsets saw, and the pose that explains it best for the declared camera."""
    problem, weighing = problem_of(query(6.0))
    directions = np.column_stack([calibrated(problem.seen, offsets), np.ones(len(problem.seen))])
    keypoints = np.asarray(as_colmap(PLACE.camera).img_from_cam(directions)).astype(np.float32)
    weighing = replace(weighing, problem=replace(problem, keypoints=keypoints))
    middle = SCENE.points.mean(axis=0)
    center = middle + math.exp(-offsets[0]) * (TRUTH.center - middle)  # from farther away the place is as small
    start = Estimate(pose=Rigid(rotation=TRUTH.rotation, translation=-TRUTH.rotation @ center), camera=PLACE.camera)
    return weighing, weighing.improved(weighing.weighed(weighing.fitted(start))).estimate


@pytest.mark.parametrize(("share", "is_print"), [(1.0, False), (0.96, False), (0.9, True), (0.85, True), (0.7, True)])
def test_a_print_is_told_by_the_keypoints_around_its_pose(share: float, is_print: bool) -> None:
    """Planted: a print that fills such a share. Twin: pairs that agree with the pose alone do not tell 0.9 and 0.85."""
    weighing, estimate = printed(np.array([math.log(share), 0.02, -0.03, 0.0, 0.0]) if share < 1 else np.zeros(5))
    best = weighing.weighed(estimate)
    rows = np.arange(len(best))
    assert contradicts_calibration(pairs_around(weighing, best), estimate, rows, weighing.doubt) == is_print
    near = weighing.matched(estimate, weighing.problem.options.match_px)
    assert contradicts_calibration(near, estimate, np.arange(len(near.keypoint_rows))) == (share == 0.7)


def test_another_camera_is_weighed_as_the_declared_one_is() -> None:
    """Second method: moving the keypoints back gives the declared camera the pairs that the other one has."""
    offsets = np.array([math.log(0.8), 0.02, -0.03, 0.01, 0.01])
    weighing, estimate = printed(offsets)
    truth = Estimate(pose=TRUTH, camera=PLACE.camera)
    free, plain = weighing.weighed(truth, offsets=offsets), problem_of(query(6.0))[1].weighed(truth)
    shared = np.isin(free.keypoint_rows * 10_000 + free.point_rows, plain.keypoint_rows * 10_000 + plain.point_rows)
    assert shared.mean() > 0.95 and len(free) > 0.95 * len(plain)
    zoom = math.log(estimate.camera.focal_px / PLACE.camera.focal_px)
    declared = FreeCamera(pose=estimate.pose, offsets=np.array([zoom, 0.0, 0.0, 0.0, 0.0]))
    other = FreeCamera(pose=TRUTH, offsets=offsets)
    ratio = 2 * math.log(10) * (weighing.weighed(estimate).log10_nfa - free.log10_nfa)
    assert weighing.doubt(other, declared) == pytest.approx(ratio) and ratio > 10 * WEIGHED_DOUBT
    behind = FreeCamera(pose=Rigid(rotation=np.diag([1.0, -1.0, -1.0]) @ TRUTH.rotation, translation=TRUTH.translation))
    assert weighing.doubt(behind, declared) == -math.inf


def test_a_pose_that_few_keypoints_support_is_refused() -> None:
    """Planted: few keypoints of a right query are beyond chance, but a part of a print could give as many. Twin: no margin."""
    rows = np.arange(0, len(KEYPOINTS), 20)
    form = query(6.0)
    few, some = subsets(form.ids[rows], form.mechanism, DICTIONARY.digest), KEYPOINTS[rows]
    answer = asked(few, some)
    assert isinstance(answer, NoPose) and "better than chance" in answer.reason and -40 < answer.log10_nfa < -12
    accepted = asked(few, some, options=replace(BRIEF, upright=replace(BRIEF.upright, margin=0.0)))
    assert isinstance(accepted, Localization) and np.linalg.norm(accepted.cam_from_world.center - TRUTH.center) < 0.1


@pytest.mark.slow
def test_evidence_of_the_truth_and_of_chance() -> None:
    """Planted truth has most keypoints beside points and few by chance; poses nowhere near it have about what chance gives."""
    _, weighing = problem_of(query(3.0))
    best = weighing.weighed(Estimate(pose=TRUTH, camera=PLACE.camera))
    assert len(best) > 0.8 * len(KEYPOINTS) and best.expected < 0.3 * len(best) and best.log10_nfa < -200
    random = generator("poses of chance")
    scores = []
    for _ in range(40):
        turn = Rotation.from_rotvec(random.normal(size=3) * 0.3).as_matrix()
        pose = Rigid(rotation=turn @ TRUTH.rotation, translation=TRUTH.translation + random.normal(size=3))
        scores.append(weighing.weighed(Estimate(pose=pose, camera=PLACE.camera)))
    assert min(one.log10_nfa for one in scores) > 10
    crowded = [one for one in scores if len(one) > 10]
    assert len(crowded) > 5 and 0.7 < np.mean([len(one) / one.expected for one in crowded]) < 1.3


def test_words_are_worth_nothing_by_chance_on_average() -> None:
    """Defining equation of a likelihood ratio: over words that the mechanism draws for any feature, its mean is 1 at most.

    The mean over random words of e^S for single pairs; the broken twin counts pairs that share a word only, and gains.
    """
    form = query(3.0)
    random = generator("random words")
    ids = random_ids(random, 4000, 2, len(DICTIONARY))
    drawn = subsets(ids, form.mechanism, DICTIONARY.digest)
    candidates = vocabulary_candidates(drawn, VOCABULARY)
    unshared = unshared_log_odds(drawn, VOCABULARY)
    shared = {
        (k, p): odds for k, p, odds in zip(candidates.keypoint_rows, candidates.point_rows, candidates.log_odds, strict=True)
    }
    points = random.integers(0, len(PLACE.points), (4000, 50))
    ratios = [math.exp(shared.get((row, p), unshared[row])) for row in range(4000) for p in points[row]]
    gains = [math.exp(max(shared.get((row, p), 0.0), 0.0)) for row in range(4000) for p in points[row]]
    spread = float(np.std(ratios)) / len(ratios) ** 0.5
    assert np.mean(ratios) < 1 + 4 * spread and np.mean(ratios) > 0.9
    assert np.mean(gains) > np.mean(ratios)


def test_unshared_words_speak_against_a_point_and_less_than_shared_ones() -> None:
    form = query(5.0)
    unshared = unshared_log_odds(form, VOCABULARY)
    candidates = vocabulary_candidates(form, VOCABULARY)
    assert (unshared < 0).all() and (candidates.log_odds > unshared[candidates.keypoint_rows]).all()
    certain = subsets(form.ids, replace(form.mechanism, epsilon=math.inf), DICTIONARY.digest)
    assert (unshared_log_odds(certain, VOCABULARY) == -math.inf).all()


@pytest.mark.parametrize(
    "changed",
    [
        {"samples": 0},
        {"nearest": 0.0},
        {"nearest": 1.5},
        {"farthest": 0.5},
        {"max_turn_deg": 0.0},
        {"max_turn_deg": math.nan},
        {"compared": 60},
        {"longer": 0},
        {"samples": 1 << 38, "longer": 2},
        {"search_px": math.nan},
        {"match_px": 0.0},
        {"refine_px": ()},
        {"refine_px": (5.0, math.inf)},
    ],
    ids=str,
)
def test_options_outside_their_range_are_refused(changed: dict) -> None:
    with pytest.raises(RangeError):
        UprightOptions(**changed)
