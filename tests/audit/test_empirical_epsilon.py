"""The empirical epsilon: its confidence by enumeration, honest mechanisms that it accepts, and broken ones that it refutes."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.stats import binom

from veil.audit.epsilon import EpsilonBound, bound, distinguish, play, release_of_descriptors, release_of_words, word_symbols
from veil.errors import InputError, RangeError
from veil.features import Features
from veil.files.codebooks import bundled_codebook
from veil.ldp.mechanism import SubsetMechanism
from veil.randomness import seeded
from worlds import generator

WORDS = (3, 7)


def game(mechanism: SubsetMechanism, name: str, draws: int = 20_000, confidence: float = 0.95) -> EpsilonBound:
    return play(release_of_words(mechanism, WORDS, seeded(name)), WORDS, draws=draws, confidence=confidence)


@pytest.mark.slow
@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize("epsilon, delta", [(0.0, 0.0), (0.7, 0.0), (2.0, 0.0), (0.5, 0.1)])
@pytest.mark.parametrize("confidence", [0.8, 0.95])
def test_no_fixed_region_exceeds_epsilon_more_often_than_said(epsilon: float, delta: float, confidence: float) -> None:
    # All outcomes of 40 trials a side, at the worst case that (epsilon, delta) allows: p = e^epsilon q + delta.
    trials = 40
    exceeded = np.array(
        [
            [bound(hits, misses, trials, confidence=confidence, delta=delta) > epsilon + 1e-12 for misses in range(trials + 1)]
            for hits in range(trials + 1)
        ]
    )
    for q in np.linspace(0.01, (1 - delta) * math.exp(-epsilon), 15):
        p = min(math.exp(epsilon) * q + delta, 1.0)
        joint = np.outer(binom.pmf(np.arange(trials + 1), trials, p), binom.pmf(np.arange(trials + 1), trials, q))
        assert joint[exceeded].sum() <= 1 - confidence + 1e-12


@pytest.mark.slow
@pytest.mark.parametrize("words, epsilon, m", [(9, 0.5, 2), (9, 1.5, 4), (50, 3.0, 3)])
def test_an_honest_mechanism_is_spared_and_its_epsilon_nearly_found(words: int, epsilon: float, m: int) -> None:
    bound = game(SubsetMechanism(dictionary_size=words, epsilon=epsilon, m=m), f"honest {words}")
    assert not bound.refutes(epsilon)
    assert bound.low > 0.75 * epsilon
    assert bound.low < bound.ceiling and bound.trials == 10_000


@pytest.mark.slow
@pytest.mark.usefixtures("unchecked")
def test_over_many_games_the_confidence_holds() -> None:
    """Statistics: the bound may exceed epsilon in at most a fifth of the games; in half of them would be noticed."""
    mechanism, exceeded, lows, games = SubsetMechanism(dictionary_size=9, epsilon=1.0, m=2), 0, [], 150
    for index in range(games):
        bound = game(mechanism, f"many {index}", draws=1000, confidence=0.8)
        exceeded += bound.refutes(1.0)
        lows.append(bound.low)
    most = binom.isf(1e-6, games, 0.2)
    assert exceeded <= most and binom.cdf(most, games, 0.5) < 1e-3
    assert 0.4 < np.median(lows) < 1.0


@pytest.mark.slow
def test_null_of_nothing_to_tell_is_near_zero() -> None:
    nothing = game(SubsetMechanism(dictionary_size=9, epsilon=0.0, m=2), "nothing")
    assert 0 <= nothing.low < 0.02
    # The same word on both sides: however large epsilon, there is nothing to tell apart.
    same = play(
        release_of_words(SubsetMechanism(dictionary_size=9, epsilon=3.0, m=2), (3, 3), seeded("same")), (3, 3), draws=20_000
    )
    assert 0 <= same.low < 0.02


def test_a_mechanism_that_always_sends_the_true_word_is_caught() -> None:
    mechanism = SubsetMechanism(dictionary_size=9, epsilon=1.0, m=2)
    random = generator("always")

    def always(which: int, draws: int) -> np.ndarray:
        others = random.integers(0, 8, draws)
        others += others >= WORDS[which]
        return np.sort(np.stack([np.full(draws, WORDS[which]), others], axis=1), axis=1)

    bound = play(always, WORDS, draws=4000)
    assert bound.refutes(mechanism.epsilon) and bound.low > 5 and bound.misses == 0


@pytest.mark.slow
def test_an_unsorted_output_is_caught() -> None:
    # The broken twin (words.md#the-sampler-in-integers): the right words, and the true one last.
    mechanism, words = SubsetMechanism(dictionary_size=50, epsilon=1.0, m=4), (20, 30)
    honest = release_of_words(mechanism, words, seeded("order"))

    def unsorted(which: int, draws: int) -> np.ndarray:
        rows = honest(which, draws)
        return np.take_along_axis(rows, np.argsort(rows == words[which], axis=1, kind="stable"), axis=1)

    assert not play(honest, words, draws=40_000).refutes(1.0)
    shuffled = play(unsorted, words, draws=40_000)
    assert shuffled.refutes(1.0) and shuffled.low > 1.5


@pytest.mark.slow
def test_a_law_of_a_larger_epsilon_than_claimed_is_caught() -> None:
    assert game(SubsetMechanism(dictionary_size=9, epsilon=1.3, m=2), "larger", draws=40_000).refutes(1.0)


def test_a_rare_failure_counts_unless_delta_allows_it() -> None:
    random = generator("rare")

    def leaks(which: int, draws: int) -> np.ndarray:
        # Says which input it was with probability 0.05, else nothing.
        return np.where(random.random(draws) < 0.05, which + 1, 0)

    first, second = leaks(0, 40_000), leaks(1, 40_000)
    assert distinguish(first, second).low > 4
    assert distinguish(first, second, delta=0.06).low == 0
    assert distinguish(first, second, delta=0.04).low > 2


def test_too_few_trials_show_little_and_say_so() -> None:
    bound = game(SubsetMechanism(dictionary_size=4096, epsilon=12.0, m=2), "few", draws=200)
    assert not bound.refutes(12.0)
    assert 2 < bound.low <= bound.ceiling < 4
    # All of n, against none of n, at a tail of 2.5 % on either side.
    assert bound.ceiling == pytest.approx(math.log(0.025 ** (1 / 100) / (1 - 0.025 ** (1 / 100))))


def test_a_whole_release_from_descriptor_to_subset_keeps_its_promise(elsewhere: Features) -> None:
    book = bundled_codebook()
    mechanism = SubsetMechanism(dictionary_size=len(book), epsilon=9.0, m=4)
    release, words = release_of_descriptors(elsewhere, (0, 5), mechanism, book, seeded("whole"))
    assert words[0] != words[1]
    bound = play(release, words, draws=400)
    assert not bound.refutes(9.0)
    assert bound.low > 2  # far from 9: the ceiling of so few trials
    # Each trial is a draw of its own.
    assert len(np.unique(release(0, 50), axis=0)) > 40


def test_symbols_are_the_places_of_both_words() -> None:
    rows = np.array([[1, 2, 3], [3, 7, 9], [7, 8, 9], [3, 4, 5], [7, 3, 1]])
    assert word_symbols(rows, (3, 7)).tolist() == [3 * 4, 1 * 4 + 2, 1, 4, 2 * 4 + 1]


def test_bad_input_is_refused() -> None:
    symbols = np.arange(8)
    with pytest.raises(InputError, match="at least four"):
        distinguish(symbols[:3], symbols[:3])
    with pytest.raises(InputError, match="as many"):
        distinguish(symbols, symbols[:6])
    for confidence in (0.0, 1.0, math.nan):
        with pytest.raises(RangeError, match="confidence"):
            distinguish(symbols, symbols, confidence=confidence)
    for delta in (-0.1, 1.0, math.nan):
        with pytest.raises(RangeError, match="delta"):
            distinguish(symbols, symbols, delta=delta)
    with pytest.raises(InputError, match="four draws"):
        play(release_of_words(SubsetMechanism(dictionary_size=9, epsilon=1.0, m=2), WORDS, seeded("none")), WORDS, draws=1)
    with pytest.raises(InputError, match="rows of word ids"):
        play(lambda which, draws: np.zeros((2, 2), dtype=np.int64), WORDS, draws=10)
