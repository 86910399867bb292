"""The attack through answers: places of planted objects, and answers that agree on none."""

from __future__ import annotations

import numpy as np
import pytest

from veil.attacks.answered_objects import AgreementOptions, agreeing_views, object_place, presence_score
from veil.errors import InputError, RangeError
from veil.geometry.rigid import Rigid
from veil.geometry.similarity import Similarity, align_poses


def turned(random: np.random.Generator) -> np.ndarray:
    """A random rotation: QR of Gaussian numbers, with positive determinant."""
    q, r = np.linalg.qr(random.normal(size=(3, 3)))
    q = q * np.sign(np.diag(r))
    return q if np.linalg.det(q) > 0 else -q


def pose(random: np.random.Generator, spread: float) -> Rigid:
    rotation = turned(random)
    return Rigid(rotation=rotation, translation=-rotation @ (random.normal(size=3) * spread))


def looking(random: np.random.Generator) -> Rigid:
    """A camera two widths away that looks at the object."""
    rotation = turned(random)
    return Rigid(rotation=rotation, translation=np.array([0.0, 0.0, 2.0]))


def planted(seed: int, views: int) -> tuple[Similarity, list[Rigid], list[Rigid]]:
    """A place, views beside the object, and their exact poses in the map."""
    random = np.random.default_rng(seed)
    where = Similarity(scale=0.37, rotation=turned(random), translation=random.normal(size=3) * 5)
    own = [looking(random) for _ in range(views)]
    return where, own, [where.moved(view) for view in own]


def test_exact_answers_give_the_exact_place() -> None:
    """Oracle: planted truth."""
    where, own, answers = planted(0, 5)
    place = object_place(own, answers)
    assert place is not None and place.views.tolist() == [0, 1, 2, 3, 4]
    assert place.map_from_object.scale == pytest.approx(where.scale, rel=1e-9)
    np.testing.assert_allclose(place.map_from_object.rotation, where.rotation, atol=1e-9)
    np.testing.assert_allclose(place.map_from_object.translation, where.translation, atol=1e-9)


def test_wrong_answers_and_refusals_are_left_out() -> None:
    """Oracle: planted truth among random poses. Broken twin: one fit to all answers is far from it."""
    where, own, answers = planted(1, 7)
    random = np.random.default_rng(5)
    given: list[Rigid | None] = [*answers[:4], pose(random, 5.0), pose(random, 5.0), None]
    place = object_place(own, given)
    assert place is not None and place.views.tolist() == [0, 1, 2, 3]
    np.testing.assert_allclose(place.map_from_object.translation, where.translation, atol=1e-9)
    twin = align_poses(own[:5], [*answers[:4], pose(np.random.default_rng(6), 5.0)])
    assert np.linalg.norm(twin.translation - where.translation) > 0.1


def test_random_answers_agree_on_no_place() -> None:
    """Oracle: random rotations lie within 20 degrees of each other with probability (t - sin t) / pi = 0.0023, t in radians.
    Four answers have six pairs: at most 1.4 % of objects have a place. Broken twin: without the limit of the turn most have.
    """
    found, twin = 0, 0
    for seed in range(300):
        random = np.random.default_rng([9, seed])
        own = [looking(random) for _ in range(4)]
        answers = [pose(random, 3.0) for _ in range(4)]
        found += object_place(own, answers) is not None
        twin += object_place(own, answers, AgreementOptions(max_turn_deg=179.9, max_shift=10.0)) is not None
    assert found <= 0.03 * 300 and twin > 0.5 * 300


def test_an_answer_agrees_up_to_the_limits_and_no_further() -> None:
    """Oracle: views moved and turned by hand, just below and above each limit."""
    where, own, answers = planted(3, 4)
    options, reach = AgreementOptions(), where.scale * 2.0

    def moved(answer: Rigid, by: float) -> Rigid:
        return Rigid(rotation=answer.rotation, translation=answer.translation + np.array([by, 0.0, 0.0]))

    def tilted(answer: Rigid, degrees: float) -> Rigid:
        c, s = np.cos(np.radians(degrees)), np.sin(np.radians(degrees))
        about = np.array([[c, -s, 0.0], [s, c, 0.0], [0.0, 0.0, 1.0]])
        return Rigid(rotation=about @ answer.rotation, translation=-about @ answer.rotation @ answer.center)

    given = [
        moved(answers[0], 0.249 * reach),
        moved(answers[1], 0.251 * reach),
        tilted(answers[2], 9.9),
        tilted(answers[3], 10.1),
    ]
    assert agreeing_views(where, own, given, options).tolist() == [0, 2]


def test_a_single_pose_counts_less_than_two_that_agree() -> None:
    """Oracle: the definition."""
    _, own, answers = planted(4, 3)
    for given, score in (([None] * 3, 0), ([answers[0], None, None], 1), ([*answers[:2], None], 2), (answers, 3)):
        assert presence_score(given, object_place(own, given)) == score


def test_what_cannot_be_placed_is_refused() -> None:
    _, own, answers = planted(5, 3)
    with pytest.raises(InputError, match="two views or more, got 1"):
        object_place(own[:1], answers[:1])
    with pytest.raises(InputError, match="3 views have 2 answers"):
        object_place(own, answers[:2])
    for wrong in ({"max_turn_deg": 0.0}, {"max_turn_deg": float("nan")}, {"max_shift": -1.0}, {"max_shift": float("inf")}):
        with pytest.raises(RangeError, match=next(iter(wrong))):
            AgreementOptions(**wrong)
