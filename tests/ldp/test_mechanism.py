"""The omega-subset mechanism: its law by enumeration of all subsets, and the sampler against the law."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest
from scipy.stats import chi2

from veil import randomness
from veil.errors import RangeError
from veil.ldp.guarantee import LocalDP, NoProof
from veil.ldp.mechanism import SubsetMechanism
from veil.mechanisms.words import randomized
from worlds.power import require_even, require_share

EPSILONS = (0.0, 0.1, 1.0, math.log(3), 5.0, 10.0)
SMALL = [
    SubsetMechanism(dictionary_size=words, epsilon=epsilon, m=m)
    for words in range(2, 10)
    for m in range(1, min(words, 5))
    for epsilon in EPSILONS
]
DRAWS = 600_000


def subsets(mechanism: SubsetMechanism) -> list[tuple[int, ...]]:
    return list(itertools.combinations(range(mechanism.dictionary_size), mechanism.m))


def law(mechanism: SubsetMechanism, true_word: int) -> list[Fraction]:
    return [mechanism.pmf(contains=true_word in subset) for subset in subsets(mechanism)]


def worst_log_ratio(laws: list[list[Fraction]]) -> float:
    """Largest log of P(Z | v) / P(Z | w) over all outputs Z and inputs v, w: the definition of epsilon."""
    ratios = [a / b for v, w in itertools.permutations(laws, 2) for a, b in zip(v, w, strict=True)]
    largest = max(ratios)
    return math.log(largest.numerator) - math.log(largest.denominator)


@pytest.mark.parametrize("mechanism", SMALL, ids=lambda m: f"K{m.dictionary_size}-m{m.m}-eps{m.epsilon:.3g}")
def test_the_enumerated_law_sums_to_one_and_its_worst_ratio_is_epsilon(mechanism: SubsetMechanism) -> None:
    laws = [law(mechanism, word) for word in range(mechanism.dictionary_size)]
    assert all(sum(row) == 1 for row in laws)
    worst = worst_log_ratio(laws)
    assert worst == pytest.approx(mechanism.epsilon, abs=1e-12)
    # Exactly, in rationals: e^epsilon was rounded down, never up.
    assert max(mechanism.pmf(contains=True) / mechanism.pmf(contains=False), 1) == max(mechanism.odds, 1)
    assert mechanism.odds <= Fraction(math.nextafter(math.exp(mechanism.epsilon), math.inf))


@pytest.mark.parametrize("mechanism", SMALL, ids=lambda m: f"K{m.dictionary_size}-m{m.m}-eps{m.epsilon:.3g}")
def test_truth_and_log_law_are_what_equation_5_and_the_law_say(mechanism: SubsetMechanism) -> None:
    ahead = mechanism.m * math.exp(mechanism.epsilon)
    assert float(mechanism.truth) == pytest.approx(ahead / (ahead + mechanism.dictionary_size - mechanism.m), rel=1e-14)
    for contains in (True, False):
        assert mechanism.log_pmf(contains=contains) == pytest.approx(math.log(mechanism.pmf(contains=contains)), abs=1e-12)


def test_the_printed_equation_4_does_not_sum_to_one() -> None:
    # The broken twin: omega in place of K in the numerators (words.md#the-mechanism). Its ratios are right, its sum is m / K.
    mechanism = SubsetMechanism(dictionary_size=7, epsilon=1.0, m=2)
    size = mechanism.dictionary_size
    below = (mechanism.m * mechanism.odds + size - mechanism.m) * math.comb(size, mechanism.m)
    printed = [
        (mechanism.m * mechanism.odds if 0 in subset else Fraction(mechanism.m)) / below for subset in subsets(mechanism)
    ]
    assert sum(printed) == Fraction(mechanism.m, mechanism.dictionary_size)
    assert sum(law(mechanism, 0)) == 1


def drawn(mechanism: SubsetMechanism, true_word: int, count: int, name: str) -> np.ndarray:
    contexts = [b"%d" % row for row in range(count)]
    return randomized(np.full(count, true_word), mechanism, randomness.seeded(name), contexts)


def chi_square(rows: np.ndarray, mechanism: SubsetMechanism, true_word: int) -> tuple[float, int]:
    """The statistic of the drawn subsets against the law, and its degrees of freedom."""
    codes = (1 << rows).sum(axis=1)
    observed = np.array([np.count_nonzero(codes == sum(1 << word for word in subset)) for subset in subsets(mechanism)])
    expected = len(rows) * np.array([float(p) for p in law(mechanism, true_word)])
    return float(((observed - expected) ** 2 / expected).sum()), len(observed) - 1


def fits(rows: np.ndarray, mechanism: SubsetMechanism, true_word: int) -> bool:
    """Whether a chi-square statistic is neither too far from the law nor too close to it."""
    statistic, freedom = chi_square(rows, mechanism, true_word)
    return chi2.ppf(1e-5, freedom) < statistic < chi2.ppf(1 - 1e-5, freedom)


@pytest.mark.slow
def test_many_draws_fit_the_law() -> None:
    """Statistics: 600,000 draws fit the law, and would miss an epsilon that is 3 % larger in less than one of 1,000 samples."""
    mechanism = SubsetMechanism(dictionary_size=7, epsilon=1.0, m=3)
    rows = drawn(mechanism, 4, DRAWS, "many")
    assert (np.diff(rows, axis=1) > 0).all()
    assert fits(rows, mechanism, 4)
    # The broken twin: the law of a slightly larger epsilon is told apart.
    assert not fits(rows, SubsetMechanism(dictionary_size=7, epsilon=1.03, m=3), 4)


@pytest.mark.slow
@pytest.mark.parametrize(
    "words, m, epsilon, true_word, other",
    [(2, 1, 0.5, 0, 0.6), (9, 4, 2.0, 8, 2.2), (5, 1, 0.0, 2, 0.2), (6, 5, 3.0, 0, 3.5)],
)
def test_draws_fit_the_law_elsewhere(words: int, m: int, epsilon: float, true_word: int, other: float) -> None:
    """60,000 draws fit the law. They do not fit the law of the other epsilon, which 60,000 draws tell apart."""
    mechanism = SubsetMechanism(dictionary_size=words, epsilon=epsilon, m=m)
    rows = drawn(mechanism, true_word, 60_000, f"fit {words} {m}")
    assert fits(rows, mechanism, true_word)
    assert not fits(rows, SubsetMechanism(dictionary_size=words, epsilon=other, m=m), true_word)


def test_draws_of_a_large_dictionary_hold_the_true_word_as_often_as_they_should() -> None:
    """Draws hold the true word as often as the law says: 0.03 off would be seen, as would parts of the dictionary 5 % off."""
    mechanism = SubsetMechanism(dictionary_size=256_000, epsilon=12.0, m=2)
    rows = drawn(mechanism, 131_071, 40_000, "large")
    assert (np.diff(rows, axis=1) > 0).all() and rows.min() >= 0 and rows.max() < mechanism.dictionary_size
    require_share(int((rows == 131_071).any(axis=1).sum()), 40_000, float(mechanism.truth), sees=0.03)
    # The others are uniform over the dictionary: 64 equal parts.
    others = rows[rows != 131_071]
    require_even(np.bincount(others * 64 // mechanism.dictionary_size, minlength=64), sees=0.05)


def position_gives_away(rows: np.ndarray, true_words: np.ndarray) -> float:
    """Largest gap between how often a column and its mirror image hold the true word, in standard deviations.

    The true word is the middle of the dictionary, so the shares of the columns of sorted rows are symmetric.
    """
    held = rows == true_words[:, None]
    counts = held.sum(axis=0).astype(float)
    return float(np.abs(counts - counts[::-1]).max() / math.sqrt(max(1.0, counts.sum())))


def test_order_says_nothing_and_append_order_does() -> None:
    mechanism = SubsetMechanism(dictionary_size=101, epsilon=6.0, m=4)
    rows = drawn(mechanism, 50, 20_000, "order")
    assert position_gives_away(rows, np.full(len(rows), 50)) < 5
    # The broken twin (words.md#the-sampler-in-integers): the true word last, as "Y union {d'}" is written.
    held = (rows == 50).any(axis=1)
    appended = rows.copy()
    appended[held] = np.hstack([rows[held][rows[held] != 50].reshape(-1, 3), np.full((held.sum(), 1), 50)])
    assert position_gives_away(appended, np.full(len(rows), 50)) > 50


def test_probabilities_near_one_are_exact_where_a_float_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    # P(false) = 2^-60: a float Bernoulli (u < p with p rounded to 1, the broken twin) never says it.
    probability = 1 - Fraction(1, 1 << 60)

    def top(key: bytes, contexts: list[bytes], count: int) -> np.ndarray:
        return np.full((len(contexts), count), (1 << 64) - 1, dtype=np.uint64)

    monkeypatch.setattr(randomness, "_bits64", top)
    study = randomness.seeded("top")
    assert not randomness.bernoulli(study, [b"x"], probability).any()
    assert float(probability) == 1.0 and randomness.uniform(study.bits64([b"x"], 1))[0, 0] < float(probability)


def test_the_mechanism_is_its_promise() -> None:
    assert SubsetMechanism(dictionary_size=9, epsilon=2.0, m=2).guarantee == LocalDP(epsilon=2.0, unit="feature")
    assert isinstance(SubsetMechanism(dictionary_size=9, epsilon=math.inf, m=2).guarantee, NoProof)


def test_infinite_epsilon_always_sends_the_nearest_word() -> None:
    rows = drawn(SubsetMechanism(dictionary_size=50, epsilon=math.inf, m=3), 7, 500, "infinite")
    assert (rows == 7).any(axis=1).all()


@pytest.mark.parametrize(
    "epsilon, m, expected",
    [(10.0, 2, 0.073), (12.0, 2, 0.28), (14.0, 2, 0.45), (16.0, 2, 0.49), (10.0, 1, 0.079), (16.0, 16, 0.998 / 16)],
)
def test_posterior_of_the_published_dictionary(epsilon: float, m: int, expected: float) -> None:
    # words.md#what-epsilon-means-for-one-feature and its table: K = 256,000.
    assert SubsetMechanism(dictionary_size=256_000, epsilon=epsilon, m=m).posterior == pytest.approx(expected, abs=6e-3)


def test_a_domain_that_underflows_keeps_its_law_in_logarithms() -> None:
    mechanism = SubsetMechanism(dictionary_size=2**1024, epsilon=10.0, m=2)
    assert 0 < float(mechanism.truth) < 1e-300
    contains, without = (mechanism.log_pmf(contains=c) for c in (True, False))
    assert contains - without == pytest.approx(10.0, abs=1e-9)
    assert without == pytest.approx(-2 * 1024 * math.log(2) + math.log(2), rel=1e-12)


@pytest.mark.parametrize("epsilon", [0.0, 5e-324, 1e-70, 1e-59, 1e-30, 2.0**-63])
def test_the_least_epsilons_hold_in_both_directions(epsilon: float) -> None:
    """Rounded odds r satisfy 1 <= r <= e^epsilon (at least 1 + epsilon): below 1, the inverse ratio would exceed e^epsilon."""
    assert 1 <= SubsetMechanism(dictionary_size=9, epsilon=epsilon, m=2).odds <= 1 + Fraction(epsilon)


@pytest.mark.parametrize(
    "values, said",
    [
        (dict(dictionary_size=1, epsilon=1.0, m=1), "words must be at least 2"),
        (dict(dictionary_size=9, epsilon=1.0, m=0), "m must be between 1"),
        (dict(dictionary_size=9, epsilon=1.0, m=9), "m must be between 1"),
        (dict(dictionary_size=9, epsilon=-0.1, m=2), "epsilon must be >= 0"),
        (dict(dictionary_size=9, epsilon=math.nan, m=2), "epsilon must be >= 0"),
        (dict(dictionary_size=9, epsilon=60.0, m=2), "rounds to 1"),
        (dict(dictionary_size=256_000, epsilon=1000.0, m=2), "rounds to 1"),
        (dict(dictionary_size=256_000, epsilon=1e300, m=2), "rounds to 1"),  # e^epsilon has more digits than there is memory
    ],
)
def test_bad_parameters_are_refused(values: dict, said: str) -> None:
    with pytest.raises(RangeError, match=said):
        SubsetMechanism(**values)
