"""One judge for every kind of query: the order of its doubts, and what queries in words owe to it."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from veil.forms import Lines, Points
from veil.matching.inverted_index import index_map
from veil.places.poses import by_words
from veil.places.poses.answer import Localization, NoPose
from veil.places.poses.by_words import localize_words
from veil.places.poses.evidence import PoseEvidence
from veil.places.poses.judge import (
    AMBIGUOUS,
    COIN,
    IMPOSSIBLE,
    VAGUE,
    Claim,
    PairContest,
    Rival,
    Rivals,
    WeighedPose,
    claim_of,
    coin,
    judge,
)
from veil.places.poses.matches import MatchedPoints
from veil.places.poses.options import LocalizeOptions, WordOptions
from veil.places.poses.word_lines import LineWords
from veil.scene import views_of
from worlds import generator, project, world
from worlds.word_worlds import dictionary_of, lines_of, scene_of, with_down, words_of

PLACE = world("forged", points=400)
DOWN = np.array([0.0, 1.0, 0.0])
SCENE = with_down(scene_of(PLACE, without="02"), DOWN)
OPTIONS = WordOptions(threads=1, retrieved=10, compared=0, min_iterations=500, max_iterations=20_000)


def claim() -> Claim:
    """The true claim of image 02 from its right matches."""
    rows = np.arange(len(PLACE.keypoints["02"]))
    matched = MatchedPoints(
        camera=PLACE.camera,
        observations=PLACE.keypoints["02"],
        keypoint_rows=rows,
        point_rows=PLACE.visible["02"],
        points=SCENE.points,
        max_error_px=8.0,
        seed=0,
    )
    true_claim = claim_of(matched, views_of(SCENE), LocalizeOptions())
    assert isinstance(true_claim, Claim)
    return true_claim


def no_rival() -> None:
    """No other pose."""


def equal(to: Claim) -> Rival:
    return Rival(estimate=to.estimate, evidence=to.evidence)


def test_the_judge_doubts_in_one_order() -> None:
    """By hand: a claim with every fault at once gets the first reason, and the next one as each fault is mended."""
    true, vague = claim(), LocalizeOptions(max_turn_deg=1e-9)
    chance = PoseEvidence(rows=true.evidence.rows, log10_nfa=0.0)
    faulty = replace(true, evidence=chance, unchecked=lambda: chance, against=lambda _: "its words speak against it")
    asked: list[int] = []

    def rival() -> Rival:
        asked.append(1)
        return equal(true)

    def reason(given: Claim, *, other: bool = True) -> str:
        answer = judge(given, rival if other else no_rival, vague)
        assert isinstance(answer, NoPose)
        return answer.reason

    assert "which chance also gives" in reason(faulty)
    # Chance does not explain the pose if inliers count that no camera could have seen.
    unseen = replace(faulty, unchecked=lambda: true.evidence)
    assert reason(unseen) == "its words speak against it"
    assert reason(replace(unseen, against=lambda _: None)) == IMPOSSIBLE
    assert not asked  # the search for other poses costs most
    count = true.evidence.rows.size
    assert reason(true) == AMBIGUOUS.format(count, count, true.count)
    assert reason(true, other=False) == VAGUE.format(count, true.count)
    told = judge(true, no_rival, LocalizeOptions())
    assert isinstance(told, Localization) and told.inliers == count
    np.testing.assert_array_equal(told.cam_from_world.rotation, true.estimate.pose.rotation)


def words(form: Points, keypoints: np.ndarray | Lines, *, epsilon: float = 10.0) -> Localization | NoPose:
    """The answer to words of image 02 at these positions, from all images at once."""
    dictionary = dictionary_of(PLACE, others=600)
    sent = words_of(form, dictionary, epsilon=epsilon)
    return localize_words(PLACE.camera, keypoints, sent, SCENE, index_map(SCENE, dictionary), options=OPTIONS)


def collage(share: float) -> np.ndarray:
    """Keypoints of which a share is as one camera sees them and the others as another."""
    points = PLACE.points[PLACE.visible["02"]]
    first, second = (project(PLACE.poses[name], points, PLACE.camera) for name in ("01", "04"))
    random = generator(f"collage in words {share}")
    mask = random.permutation(len(points)) < share * len(points)
    return (np.where(mask[:, None], first, second) + 0.3 * random.normal(size=first.shape)).astype(np.float32)


@pytest.mark.slow
def test_two_photographs_in_words_are_no_place(monkeypatch: pytest.MonkeyPatch) -> None:
    """Planted: three in five features are as one camera sees them. Nine in ten get its pose.

    Broken twin: what both poses explain counts for the first alone, as the rest in which the second is sought lacks it.
    """
    assert isinstance(words(PLACE.form("02"), collage(0.9)), Localization)
    refused = words(PLACE.form("02"), collage(0.6))
    assert isinstance(refused, NoPose) and "two poses explain" in refused.reason

    def of_the_rest(_: object, first: WeighedPose, second: WeighedPose) -> bool:
        alone = np.setdiff1d(second.evidence.rows, first.evidence.rows)
        return coin(len(first.evidence.rows), len(alone)) <= COIN

    monkeypatch.setattr(by_words._CandidateContest, "clearly_better", of_the_rest)
    assert isinstance(words(PLACE.form("02"), collage(0.6)), Localization)


def along_gravity(right: float) -> Lines:
    """Lines of image 02, four fifths along gravity; of the others a share passes through its keypoint, the rest anywhere."""
    pose, random = PLACE.poses["02"], generator(f"along gravity {right}")
    keypoints = PLACE.keypoints["02"].astype(np.float64)
    aligned = random.random(len(keypoints)) < 0.8
    moved = ~aligned & (random.random(len(keypoints)) >= right)
    shown = np.where(moved[:, None], random.uniform([0, 0], [640, 480], keypoints.shape), keypoints)
    lines = lines_of(replace(PLACE, keypoints={**PLACE.keypoints, "02": shown.astype(np.float32)}), "02")
    fx, fy, cx, cy = PLACE.camera.params
    normals = np.cross(np.hstack([(keypoints - [cx, cy]) / [fx, fy], np.ones((len(keypoints), 1))]), pose.rotation @ DOWN)
    normals /= np.linalg.norm(normals[:, :2], axis=1, keepdims=True)
    coefficients = np.where(aligned[:, None], normals, lines.coefficients).astype(np.float32)
    return replace(lines, coefficients=coefficients, aligned=aligned)


@pytest.mark.slow
@pytest.mark.usefixtures("unchecked")
def test_words_whose_lines_leave_the_height_open_get_no_pose(monkeypatch: pytest.MonkeyPatch) -> None:
    """Planted: no line beside gravity's is right. Broken twin: without the test nothing says that the height is open."""
    right = words(PLACE.form("02"), along_gravity(1.0))
    assert isinstance(right, Localization)
    assert np.linalg.norm(right.cam_from_world.center - PLACE.poses["02"].center) < 0.1
    refused = words(PLACE.form("02"), along_gravity(0.0))
    assert isinstance(refused, NoPose) and "lines through one point" in refused.reason
    monkeypatch.setattr(LineWords, "open_way", lambda *_: -math.inf)
    undoubted = words(PLACE.form("02"), along_gravity(0.0))
    assert isinstance(undoubted, Localization) or "lines through one point" not in undoubted.reason


def test_another_pose_in_words_is_weighed_as_the_best_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """Second method: taken for a rival, the best pose has the evidence that it is told with. The law of pairs differs."""
    seen: list[tuple[float, float, float]] = []

    def noted(contest: by_words._CandidateContest, pose: WeighedPose, limits: WordOptions) -> Rivals:
        one, other = contest.weighed(pose.estimate), PairContest.weighed(contest, pose.estimate)
        seen.append((pose.evidence.log10_nfa, one.log10_nfa, other.log10_nfa))
        return Rivals(equal=None, worse=[])

    monkeypatch.setattr(by_words, "rivals", noted)
    assert isinstance(words(PLACE.form("02"), PLACE.keypoints["02"], epsilon=5.0), Localization)
    told, weighed, of_pairs = seen[0]
    assert weighed == pytest.approx(told) and abs(of_pairs - told) > 1
