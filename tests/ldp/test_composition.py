"""Composition of the privacy loss: against exact rational arithmetic, an independent accountant, and words.md#composition."""

from __future__ import annotations

import math
from fractions import Fraction

import pytest
from dp_accounting.pld import privacy_loss_distribution as pld
from dp_accounting.pld.pld_pmf import SparsePLDPmf
from hypothesis import given, settings
from hypothesis import strategies as st

from veil.errors import RangeError
from veil.ldp.composition import account, composed_epsilon, privacy_loss
from veil.ldp.mechanism import SubsetMechanism


def exact_delta(mechanism: SubsetMechanism, features: int, excess: Fraction) -> Fraction:
    """Least delta at e^epsilon = `excess`, in rationals: the positive part of P - e^epsilon Q over the walk's positions."""
    ahead, behind = mechanism.loss
    zero = 1 - ahead - behind
    law = {0: Fraction(1)}
    for _ in range(features):
        grown: dict[int, Fraction] = {}
        for place, mass in law.items():
            for step, p in ((1, ahead), (0, zero), (-1, behind)):
                grown[place + step] = grown.get(place + step, Fraction(0)) + mass * p
        law = grown
    # Q is the distribution of the walk under the other input: P's mirror image.
    return sum((max(Fraction(0), mass - excess * law[-place]) for place, mass in law.items()), Fraction(0))


@pytest.mark.parametrize("features", [1, 2, 7, 25])
@pytest.mark.parametrize("words, m, epsilon", [(9, 2, 1.0), (50, 3, 4.0), (1000, 2, 7.0), (9, 1, 0.0)])
def test_delta_is_the_exact_one_or_a_little_above(words: int, m: int, epsilon: float, features: int) -> None:
    mechanism = SubsetMechanism(dictionary_size=words, epsilon=epsilon, m=m)
    loss = privacy_loss(mechanism, features)
    for share in (0.0, 0.13, 0.5, 0.87):
        target = share * features * epsilon
        exact = exact_delta(mechanism, features, Fraction(math.exp(target)))
        delta = loss.delta(target)
        # e^target was rounded by one unit, which moves the exact delta by as much.
        assert delta >= float(exact) * (1 - 1e-13)
        assert delta == pytest.approx(float(exact), rel=1e-9, abs=1e-25)


@settings(max_examples=40, deadline=None)
@given(
    words=st.integers(3, 5000),
    m=st.integers(1, 2),
    epsilon=st.floats(0.01, 12),
    features=st.integers(1, 12),
    exponent=st.floats(-9, -0.5),
)
def test_epsilon_at_delta_is_never_below_the_exact_one(
    words: int, m: int, epsilon: float, features: int, exponent: float
) -> None:
    mechanism = SubsetMechanism(dictionary_size=words, epsilon=epsilon, m=m)
    delta = 10**exponent
    composed = privacy_loss(mechanism, features).epsilon(delta)
    assert exact_delta(mechanism, features, Fraction(math.exp(composed)) * Fraction(10**15 + 1, 10**15)) <= Fraction(delta)
    if composed > 1e-6:  # and it is tight
        assert exact_delta(mechanism, features, Fraction(math.exp(composed * (1 - 1e-6)))) > Fraction(delta)


@pytest.mark.parametrize("epsilon, expected, tolerance", [(1.0, 2.9, 0.05), (10.0, 3710, 3.71), (16.0, 31887, 31.887)])
def test_the_published_dictionary_over_an_image(epsilon: float, expected: float, tolerance: float) -> None:
    # words.md#composition, to the digits that it states (0.1 % of the two with four digits).
    mechanism = SubsetMechanism(dictionary_size=256_000, epsilon=epsilon, m=2)
    assert composed_epsilon({mechanism: 2000}, 1e-6) == pytest.approx(expected, abs=tolerance)
    assert composed_epsilon({mechanism: 2000}) == pytest.approx(2000 * epsilon)


@pytest.mark.parametrize(
    "words, m, epsilon, expected",
    [
        (256_000, 2, 10.0, (80, 210, 657, 2020)),
        (256_000, 2, 12.0, (120, 526, 2121, 7607)),
        (256_000, 1, 8.0, (32, 55, 111, 247)),
        (8000, 2, 6.0, (42, 100, 282, 826)),
        (8000, 1, 4.0, (12, 22, 43, 88)),
    ],
)
def test_tabulated_compositions(words: int, m: int, epsilon: float, expected: tuple[int, ...]) -> None:
    mechanism = SubsetMechanism(dictionary_size=words, epsilon=epsilon, m=m)
    for features, value in zip((10, 50, 250, 1000), expected, strict=True):
        assert composed_epsilon({mechanism: features}, 1e-6) == pytest.approx(value, abs=0.51)


@pytest.mark.parametrize("words, m, epsilon, features", [(8000, 2, 6.0, 50), (1000, 4, 3.0, 200), (256_000, 2, 1.0, 500)])
def test_an_independent_accountant_agrees(words: int, m: int, epsilon: float, features: int) -> None:
    mechanism = SubsetMechanism(dictionary_size=words, epsilon=epsilon, m=m)
    interval = epsilon / 100
    ahead, behind = (float(p) for p in mechanism.loss)
    one = pld.PrivacyLossDistribution(
        SparsePLDPmf({100: ahead, 0: 1 - ahead - behind, -100: behind}, interval, 0.0, pessimistic_estimate=True)
    )
    theirs = one.self_compose(features).get_epsilon_for_delta(1e-6)
    assert composed_epsilon({mechanism: features}, 1e-6) == pytest.approx(theirs, rel=1e-4)


def test_basic_composition_is_taken_where_it_is_less() -> None:
    mechanism = SubsetMechanism(dictionary_size=256_000, epsilon=16.0, m=2)
    assert composed_epsilon({mechanism: 10}, 1e-12) <= composed_epsilon({mechanism: 10})


@given(st.lists(st.tuples(st.floats(0, 30), st.integers(0, 10**6)), max_size=5))
def test_the_basic_sum_is_the_exact_one_or_the_next_float(law: list[tuple[float, int]]) -> None:
    spent = {SubsetMechanism(dictionary_size=256_000, epsilon=epsilon, m=2): count for epsilon, count in law}
    exact = sum((Fraction(mechanism.epsilon) * count for mechanism, count in spent.items()), Fraction(0))
    composed = composed_epsilon(spent)
    assert math.nextafter(composed, 0.0) < exact <= composed or composed == exact == 0
    assert composed_epsilon({SubsetMechanism(dictionary_size=9, epsilon=6.0, m=2): 500}) == 3000.0
    assert composed_epsilon({SubsetMechanism(dictionary_size=9, epsilon=math.inf, m=2): 1}) == math.inf


def test_several_mechanisms_add_and_order_does_not_matter() -> None:
    a, b = (SubsetMechanism(dictionary_size=8000, epsilon=epsilon, m=2) for epsilon in (4.0, 6.0))
    both = composed_epsilon({a: 100, b: 50}, 1e-6)
    assert both == composed_epsilon({b: 50, a: 100}, 1e-6)
    assert both >= max(composed_epsilon({a: 100}, 1e-6), composed_epsilon({b: 50}, 1e-6))
    assert both <= composed_epsilon({a: 100, b: 50})
    assert composed_epsilon({}, 1e-6) == composed_epsilon({a: 0}, 1e-6) == 0


def test_a_long_session_stays_within_its_tails() -> None:
    # Mean and spread of the walk bound the account of a million features: mean + 5.2 sigma at delta = 1e-6.
    mechanism = SubsetMechanism(dictionary_size=256_000, epsilon=10.0, m=2)
    ahead, behind = (float(p) for p in mechanism.loss)
    mean, sigma = 1e6 * (ahead - behind), math.sqrt(1e6 * (ahead + behind - (ahead - behind) ** 2))
    composed = composed_epsilon({mechanism: 1_000_000}, 1e-6)
    assert 10 * (mean + 4.2 * sigma) < composed < 10 * (mean + 5.2 * sigma)


def test_an_account_names_its_units() -> None:
    mechanism = SubsetMechanism(dictionary_size=8000, epsilon=6.0, m=2)
    costs = account(mechanism, 250, delta=1e-6, object_features=10)
    assert costs.feature_epsilon == 6.0 and costs.object_features == 10
    assert costs.feature_epsilon < costs.object_epsilon < costs.total_epsilon < costs.basic_epsilon


def test_nothing_can_be_accounted_without_an_epsilon() -> None:
    mechanism = SubsetMechanism(dictionary_size=9, epsilon=math.inf, m=1)
    assert composed_epsilon({mechanism: 3}, 1e-6) == math.inf
    with pytest.raises(RangeError, match="infinite epsilon"):
        privacy_loss(mechanism, 3)


@pytest.mark.parametrize("delta", [1.0, -1e-6, math.nan])
def test_bad_deltas_are_refused(delta: float) -> None:
    with pytest.raises(RangeError, match="delta must lie between"):
        composed_epsilon({SubsetMechanism(dictionary_size=9, epsilon=1.0, m=1): 5}, delta)


def test_bad_counts_are_refused() -> None:
    with pytest.raises(RangeError, match="features must be at least 1"):
        privacy_loss(SubsetMechanism(dictionary_size=9, epsilon=1.0, m=1), 0)
