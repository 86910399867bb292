"""Plans: the largest epsilon that fits, the published dictionary, and the inliers that localization asks for."""

from __future__ import annotations

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from veil.errors import RangeError
from veil.geometry.robust.significance import pose_log10_nfa
from veil.ldp.composition import composed_epsilon
from veil.ldp.mechanism import SubsetMechanism
from veil.ldp.planning import STEP, PlannedPlace, candidates_by_chance, curve, most_telling, needed_inliers, plan_release
from veil.places.poses.options import LocalizeOptions


@pytest.mark.slow
@settings(max_examples=30, deadline=None)
@given(
    words=st.integers(3, 300_000),
    m=st.integers(1, 2),
    features=st.integers(1, 3000),
    image_epsilon=st.floats(0, 5000),
    exponent=st.floats(-9, -3),
)
def test_a_step_more_would_be_too_much(words: int, m: int, features: int, image_epsilon: float, exponent: float) -> None:
    """The printed epsilon fits and the next larger one does not; typed in again, it is the epsilon that was accounted."""
    delta = 10**exponent
    mechanism = most_telling(words, m, features, image_epsilon, delta)
    assert mechanism.epsilon == float(f"{mechanism.epsilon:.3f}")
    assert composed_epsilon({mechanism: features}, delta) <= image_epsilon
    if float(mechanism.truth) < 1 - 1e-8:
        more = SubsetMechanism(dictionary_size=words, epsilon=round(mechanism.epsilon + STEP, 3), m=m)
        assert composed_epsilon({more: features}, delta) > image_epsilon


def test_the_published_dictionary_is_found_back() -> None:
    # words.md#composition: 2000 features at epsilon 10 make 3,710; a word that is sent is the true one with 7.3 %.
    (plan,) = plan_release(image_epsilon=3710.0, delta=1e-6, features=[2000], words=[256_000], subset_sizes=[2])
    assert plan.mechanism.epsilon == pytest.approx(10.0, abs=0.01)
    assert plan.mechanism.posterior == pytest.approx(0.073, abs=1e-3)
    assert plan.true_words == pytest.approx(2000 * 2 * 0.073, rel=0.01)
    assert plan.image_epsilon == composed_epsilon({plan.mechanism: 2000}, 1e-6)


def test_possible_plans_come_first_and_the_best_of_them_leads() -> None:
    """Every possible combination of K, m and features has one plan; margins are expected true words less needed inliers."""
    plans = plan_release(
        image_epsilon=1000.0, delta=1e-6, features=[100, 1000], words=[8, 1000, 16384], subset_sizes=[1, 4, 16]
    )
    assert len({(p.features, p.mechanism.dictionary_size, p.mechanism.m) for p in plans}) == len(plans) == 2 * (3 * 3 - 1)
    possible = [p.possible for p in plans]
    assert possible == sorted(possible, reverse=True) and 0 < sum(possible) < len(plans)
    margins = [p.margin for p in plans if p.possible]
    assert margins == sorted(margins, reverse=True)
    for plan in plans:
        assert plan.margin == plan.features * float(plan.mechanism.truth) - plan.needed
        share = plan.true_words / (plan.true_words + plan.features * plan.candidates)
        assert plan.samples == pytest.approx(share**-3)


def test_more_epsilon_never_hurts() -> None:
    for words, m in ((1000, 2), (16384, 1), (256_000, 4)):
        epsilons = [most_telling(words, m, 500, epsilon, 1e-6).epsilon for epsilon in (1.0, 10.0, 100.0, 1000.0, 1e9)]
        assert epsilons == sorted(epsilons) and epsilons[0] < epsilons[-1] < math.log(words / m) + 21


def test_k_over_m_alone_decides_how_often_the_true_word_is_sent() -> None:
    one = SubsetMechanism(dictionary_size=1000, epsilon=4.0, m=2)
    other = SubsetMechanism(dictionary_size=8000, epsilon=4.0, m=16)
    assert one.truth == other.truth
    assert candidates_by_chance(one, PlannedPlace()) == candidates_by_chance(other, PlannedPlace()) == 2 * 10_000 / 1000


@pytest.mark.parametrize("epsilon", [1.0, 4.0, 8.0])
@pytest.mark.parametrize("m", [1, 4, 16])
@pytest.mark.parametrize("features", [20, 200, 2000])
def test_needed_is_what_localization_accepts(features: int, m: int, epsilon: float) -> None:
    """A pose is accepted with the needed number of inliers and not with one less, by the formula that localization uses."""
    mechanism, place, options = SubsetMechanism(dictionary_size=16384, epsilon=epsilon, m=m), PlannedPlace(), LocalizeOptions()
    candidates = candidates_by_chance(mechanism, place)
    needed = needed_inliers(features, mechanism, candidates, place)
    silent = math.exp(-candidates) * (1 - float(mechanism.truth))
    matched = max(round(features * (1 - silent)), options.min_inliers)
    each = max(1.0, candidates)
    agreement = 1 - (1 - math.pi * options.max_error_px**2 / (1024 * 768)) ** each

    def accepted(inliers: int) -> bool:
        log10_nfa = pose_log10_nfa(inliers, matched, agreement) + 3 * math.log10(each)
        return inliers >= options.min_inliers and log10_nfa <= options.max_log10_nfa

    if needed <= matched:
        assert accepted(needed)
    assert not accepted(min(needed, matched + 1) - 1)


def test_a_place_that_agrees_with_everything_needs_more_than_there_is() -> None:
    mechanism = SubsetMechanism(dictionary_size=100, epsilon=3.0, m=16)
    assert (
        needed_inliers(50, mechanism, candidates_by_chance(mechanism, PlannedPlace()), PlannedPlace(width_px=10, height_px=10))
        == 51
    )


def test_the_curve_is_the_account() -> None:
    points = curve(16384, 2, 300, 1e-6, [0.0, 2.0, 6.0])
    laws = [SubsetMechanism(dictionary_size=16384, epsilon=epsilon, m=2) for epsilon in (0.0, 2.0, 6.0)]
    assert points == [(composed_epsilon({law: 300}, 1e-6), 300 * float(law.truth)) for law in laws]
    assert points[0] == (0.0, pytest.approx(300 * 2 / 16384))


@pytest.mark.parametrize("epsilon", [math.nan, math.inf, -1.0])
def test_impossible_plans(epsilon: float) -> None:
    with pytest.raises(RangeError, match="finite and >= 0"):
        plan_release(image_epsilon=epsilon, delta=1e-6, features=[10], words=[100], subset_sizes=[2])
    with pytest.raises(RangeError, match="no subset size is less"):
        plan_release(image_epsilon=1.0, delta=1e-6, features=[10], words=[16], subset_sizes=[16, 32])
    with pytest.raises(RangeError, match="at least one map feature"):
        PlannedPlace(map_features=0)
