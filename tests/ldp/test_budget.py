"""Budgets: sums against `veil.ldp.composition`, refusals with correct numbers, and rounding for people."""

from __future__ import annotations

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from veil.errors import RangeError, ReleaseRefused, Remedy
from veil.ldp.budget import Budget, Charge, total
from veil.ldp.composition import composed_epsilon
from veil.ldp.mechanism import SubsetMechanism
from veil.ldp.rounding import outward

ONE = SubsetMechanism(dictionary_size=8000, epsilon=4.0, m=2)
TWO = SubsetMechanism(dictionary_size=1000, epsilon=2.5, m=1)


def charge(mechanism: SubsetMechanism, features: int) -> Charge:
    return Charge(mechanism=mechanism, features=features)


def test_what_is_spent_is_the_composition_of_all_draws() -> None:
    budget = Budget(unit="session", epsilon=300.0, delta=1e-7)
    charges = [charge(ONE, 40), charge(TWO, 7), charge(ONE, 60)]
    assert total(charges) == {ONE: 100, TWO: 7}
    assert budget.spent(charges) == composed_epsilon({ONE: 100, TWO: 7}, 1e-7)
    assert budget.spent([]) == 0.0
    assert 0 < budget.epsilon - budget.spent(charges) - budget.left(charges) < 1e-9
    assert Budget(unit="image", epsilon=1.0, delta=1e-7).left(charges) == 0.0


def test_an_object_is_some_features_of_every_release() -> None:
    """Planted: of releases of 40, 7 and 60 features, an object of 50 features has 40, 7 and 50, a feature one of each."""
    charges = [charge(ONE, 40), charge(TWO, 7), charge(ONE, 60)]
    assert total(charges, of_each=50) == {ONE: 90, TWO: 7}
    assert total(charges, of_each=1) == {ONE: 2, TWO: 1}


@pytest.mark.slow
@settings(max_examples=60, deadline=None)
@given(
    epsilon=st.floats(0.5, 9),
    before=st.integers(0, 300),
    most=st.integers(1, 300),
    limit=st.floats(0, 400),
    exponent=st.floats(-9, -2),
)
def test_affordable_is_the_largest_number_that_fits(
    epsilon: float, before: int, most: int, limit: float, exponent: float
) -> None:
    """The affordable number of features fits, and one more does not; `require` lets through exactly this number."""
    mechanism = SubsetMechanism(dictionary_size=8000, epsilon=epsilon, m=2)
    budget = Budget(unit="image", epsilon=limit, delta=10**exponent)
    charges = [charge(ONE, before)] if before else []
    affordable = budget.affordable(mechanism, charges, most)
    if budget.spent(charges) > limit:
        assert affordable == 0
        return
    assert affordable == 0 or budget.spent([*charges, charge(mechanism, affordable)]) <= limit
    assert affordable == most or budget.spent([*charges, charge(mechanism, affordable + 1)]) > limit
    if affordable:
        budget.require(charges, charge(mechanism, affordable), "x.jpg")
    if affordable < most:
        with pytest.raises(ReleaseRefused):
            budget.require(charges, charge(mechanism, affordable + 1), "x.jpg")


def test_a_refusal_names_spent_total_left_and_remedy() -> None:
    """Every number of a refusal is one of `veil.ldp.composition`, rounded up; the advised number of features is let through."""
    budget = Budget(unit="image", epsilon=40.0, delta=1e-6)
    before, more = [charge(ONE, 50)], charge(ONE, 500)
    with pytest.raises(ReleaseRefused) as caught:
        budget.require(before, more, "x.jpg")
    said = str(caught.value)
    assert f"Spent on this one so far: {outward(composed_epsilon({ONE: 50}, 1e-6))}. " in said
    assert f"would be {outward(composed_epsilon({ONE: 550}, 1e-6))};" in said
    assert "epsilon 40 at delta 1e-06" in said and "nothing was released" in said
    fewer, smaller = caught.value.remedy
    assert smaller == Remedy("lower", "HideInWords.epsilon")
    assert fewer == Remedy("lower", "HideInWords.features_sent", fewer.value)
    assert int(fewer.value) == caught.value.facts["features_left"] and str(fewer) in said
    budget.require(before, charge(ONE, int(fewer.value)), "x.jpg")
    with pytest.raises(ReleaseRefused, match="Not one more fits"):
        budget.require([charge(ONE, 500)], charge(ONE, 1), "x.jpg")


def test_an_infinite_epsilon_exceeds_every_budget() -> None:
    plain = SubsetMechanism(dictionary_size=8000, epsilon=math.inf, m=1)
    budget = Budget(unit="session", epsilon=1e300, delta=0.5)
    with pytest.raises(ReleaseRefused, match="infinite epsilon exceeds every budget"):
        budget.require([], charge(plain, 1), "x.jpg")
    # And after one was released without a budget, nothing fits any more.
    with pytest.raises(ReleaseRefused, match=r"Spent in it so far: infinite.*Not one more fits"):
        budget.require([charge(plain, 1)], charge(ONE, 1), "x.jpg")
    assert budget.left([charge(plain, 1)]) == 0.0


@pytest.mark.parametrize(
    ("epsilon", "delta", "words"),
    [
        (math.nan, 1e-6, "finite and >= 0"),
        (math.inf, 1e-6, "finite and >= 0"),
        (-1.0, 1e-6, "finite and >= 0"),
        (1.0, 0.0, "between 1e-15 and 1"),
        (1.0, 1.0, "between 1e-15 and 1"),
        (1.0, 1e-16, "between 1e-15 and 1"),
        (1.0, math.nan, "between 1e-15 and 1"),
    ],
)
def test_impossible_budgets(epsilon: float, delta: float, words: str) -> None:
    with pytest.raises(RangeError, match=words):
        Budget(unit="image", epsilon=epsilon, delta=delta)
