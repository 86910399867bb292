"""The posterior attack: against Bayes' rule by enumeration, the mechanism's own probabilities, and repeated draws."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest
from scipy.stats import binom

from veil.attacks.words.posterior import Beliefs, descriptors, posterior, repeated, word_frequencies
from veil.codebooks.codebook import Codebook, Provenance
from veil.codebooks.dictionary import Dictionary
from veil.errors import InputError, RangeError, SpaceError
from veil.forms import Subsets
from veil.ldp.mechanism import SubsetMechanism
from veil.mechanisms.words import randomized
from veil.randomness import seeded
from worlds import generator, sift_like, unit
from worlds.power import require_share
from worlds.word_worlds import subsets

DIGEST = "0f" * 32


def released(true_words: np.ndarray, mechanism: SubsetMechanism, name: str) -> Subsets:
    """One draw of the mechanism for each word."""
    contexts = [b"%d" % row for row in range(len(true_words))]
    return subsets(randomized(true_words, mechanism, seeded(name), contexts), mechanism, DIGEST)


def by_enumeration(rows: list[tuple[SubsetMechanism, set[int]]], prior: list[Fraction]) -> list[float]:
    """Bayes' rule in rationals: the probability of every word of the dictionary."""
    joint = list(prior)
    for mechanism, subset in rows:
        joint = [share * mechanism.pmf(contains=word in subset) for word, share in enumerate(joint)]
    return [float(share / sum(joint)) for share in joint]


def seven(seed: str) -> list[Fraction]:
    weights = generator(seed).integers(1, 40, 7).tolist()
    return [Fraction(weight, sum(weights)) for weight in weights]


@pytest.mark.parametrize("epsilon", [0.0, 0.4, 3.0])
@pytest.mark.parametrize("m", [1, 3])
def test_the_posterior_is_bayes_rule(epsilon: float, m: int) -> None:
    mechanism = SubsetMechanism(dictionary_size=7, epsilon=epsilon, m=m)
    every = np.array(list(itertools.combinations(range(7), m)))
    prior = seven(f"prior {epsilon} {m}")
    beliefs = posterior(subsets(every, mechanism, DIGEST), prior=np.array([float(share) for share in prior]))
    for row, subset in enumerate(every):
        expected = by_enumeration([(mechanism, set(subset.tolist()))], prior)
        for word, share in zip(beliefs.words[row], beliefs.probability[row], strict=True):
            assert share == pytest.approx(expected[word], rel=1e-12)
        # The best word of the whole dictionary, not only of the subset.
        assert beliefs.confidence[row] == pytest.approx(max(expected), rel=1e-12)


def test_several_releases_under_different_mechanisms_are_bayes_rule() -> None:
    mechanisms = [SubsetMechanism(dictionary_size=7, epsilon=epsilon, m=m) for epsilon, m in ((1.0, 2), (0.3, 3), (2.0, 2))]
    prior = seven("repeats")
    truth = generator("repeated truth").integers(0, 7, 60)
    forms = [released(truth, mechanism, f"repeat {index}") for index, mechanism in enumerate(mechanisms)]
    beliefs = repeated(forms, prior=np.array([float(share) for share in prior]))
    for row in range(60):
        drawn = [(form.mechanism, set(form.ids[row].tolist())) for form in forms]
        expected = by_enumeration(drawn, prior)
        for word in range(7):
            got = beliefs.probability_of(np.full(60, word))[row]
            assert got == pytest.approx(expected[word], rel=1e-12) or (got == 0 and word not in beliefs.words[row])
        assert expected[beliefs.best[row]] == pytest.approx(max(expected), rel=1e-12)


@pytest.mark.parametrize("words, epsilon, m", [(256_000, 12.0, 2), (256_000, 14.0, 2), (4_096, 8.0, 4), (50, 1.0, 3)])
def test_without_a_prior_the_attack_is_right_as_often_as_theory_says(words: int, epsilon: float, m: int) -> None:
    mechanism = SubsetMechanism(dictionary_size=words, epsilon=epsilon, m=m)
    truth = generator(f"truth {words} {m}").integers(0, words, 12_000)
    beliefs = posterior(released(truth, mechanism, f"theory {words} {m}"))
    hits = int((beliefs.best == truth).sum())
    assert beliefs.confidence == pytest.approx(mechanism.posterior, rel=1e-12)
    require_share(hits, 12_000, mechanism.posterior, sees=0.04)


def test_null_of_random_words_is_at_chance() -> None:
    # Epsilon 0: the subset is independent of the truth, so each guess is right with probability 1 / K.
    mechanism = SubsetMechanism(dictionary_size=50, epsilon=0.0, m=3)
    truth = generator("null truth").integers(0, 50, 20_000)
    hits = int((posterior(released(truth, mechanism, "null")).best == truth).sum())
    require_share(hits, 20_000, 1 / 50, sees=0.01)


def test_the_broken_defense_of_plain_words_is_read_off() -> None:
    mechanism = SubsetMechanism(dictionary_size=1000, epsilon=math.inf, m=1)
    truth = generator("quantized").integers(0, 1000, 500)
    beliefs = posterior(released(truth, mechanism, "quantized"), prior=word_frequencies(truth[:100], dictionary_words=1000))
    assert (beliefs.best == truth).all() and (beliefs.confidence == 1).all()


def test_a_prior_of_ones_own_photographs_helps_and_is_calibrated() -> None:
    random = generator("zipf")
    shares = random.permutation(1 / np.arange(1, 2001))
    shares /= shares.sum()
    own, truth = random.choice(2000, 30_000, p=shares), random.choice(2000, 12_000, p=shares)
    mechanism = SubsetMechanism(dictionary_size=2000, epsilon=7.0, m=4)
    form = released(truth, mechanism, "zipf")
    plain, informed = posterior(form), posterior(form, prior=word_frequencies(own, dictionary_words=2000))
    hits = (informed.best == truth).mean()
    assert hits > (plain.best == truth).mean() + 0.1
    # Claimed and true rates agree, on both sides; the prior itself was estimated.
    assert abs(hits - informed.confidence.mean()) < 0.02


@pytest.mark.slow
@pytest.mark.parametrize("uploads", [2, 5, 10, 20])
def test_fresh_draws_give_the_word_away_as_often_as_it_is_seen_twice(uploads: int) -> None:
    # The true word is seen C times, C binomial (N, p). Seen twice it stands out; seen once it is one of about N m.
    mechanism = SubsetMechanism(dictionary_size=256_000, epsilon=10.0, m=2)
    truth = generator(f"uploads {uploads}").integers(0, 256_000, 3000)
    beliefs = repeated([released(truth, mechanism, f"upload {index}") for index in range(uploads)])
    hits = int((beliefs.best == truth).sum())
    seen = binom(uploads, float(mechanism.truth))
    twice, once = 1 - seen.cdf(1), seen.pmf(1) / (2 * uploads)
    # Two of the other words coincide at most so often, and outdo a word that was seen once or twice.
    coincide = (2 * uploads) ** 2 / (2 * 256_000)
    assert binom.ppf(1e-6, 3000, max(twice + once - coincide, 0)) <= hits <= binom.ppf(1 - 1e-6, 3000, twice + once + coincide)
    assert {2: 0.02, 5: 0.16, 10: 0.44, 20: 0.81}[uploads] == pytest.approx(twice, abs=0.01)


def test_enough_fresh_draws_win_and_memoized_ones_add_nothing() -> None:
    mechanism = SubsetMechanism(dictionary_size=256_000, epsilon=10.0, m=2)
    truth = generator("forty").integers(0, 256_000, 300)
    fresh = repeated([released(truth, mechanism, f"fresh {index}") for index in range(60)])
    assert (fresh.best == truth).mean() >= 0.99
    once = released(truth, mechanism, "memoized")
    again = repeated([once] * 60)
    assert np.array_equal(again.words, posterior(once).words)
    assert np.array_equal(again.probability, posterior(once).probability)


def dictionary(words: int = 40) -> Codebook:
    return Dictionary(
        descriptor="sift",
        normalization="L2",
        stored=unit(sift_like(generator("words of the attack"), words)).astype(np.float32),
        slices=1,
        pca=None,
        dither_steps=0.0,
        provenance=Provenance(source="synthetic", license="none", image_count=1, descriptor_count=words),
    )


@pytest.mark.slow
def test_estimates_are_the_best_word_or_the_mean_over_all_words() -> None:
    book = dictionary()
    mechanism = SubsetMechanism(dictionary_size=40, epsilon=2.0, m=3)
    shares = generator("mean prior").uniform(0.2, 1, 40)
    prior = shares / shares.sum()
    truth = generator("mean").choice(40, 1000, p=prior)
    forms = [
        subsets(released(truth, mechanism, f"mean {index}").ids, mechanism, book.digest) for index in range(2)
    ]  # two releases, so that some columns repeat a word
    beliefs = repeated(forms, prior=prior)
    word, mean = descriptors(beliefs, book), descriptors(beliefs, book, kind="mean", prior=prior)
    assert np.array_equal(word.points, book.vectors[beliefs.best])
    # Second method: the posterior of every word of the dictionary.
    weight = np.tile(prior, (1000, 1))
    for form in forms:
        weight[np.arange(1000)[:, None], form.ids] *= math.exp(2.0)
    weight /= weight.sum(axis=1, keepdims=True)
    assert mean.points == pytest.approx(weight @ book.vectors.astype(np.float64), abs=1e-9)
    error = [np.square(estimates.points - book.vectors[truth]).sum(axis=1).mean() for estimates in (word, mean)]
    assert error[1] < error[0]
    assert not word.certified.any() and not mean.certified.any()


def test_where_the_attack_is_not_sure_enough_it_makes_no_claim() -> None:
    book, mechanism = dictionary(), SubsetMechanism(dictionary_size=40, epsilon=2.0, m=3)
    form = subsets(released(np.arange(40), mechanism, "unsure").ids, mechanism, book.digest)
    beliefs = posterior(form)
    assert descriptors(beliefs, book, min_confidence=mechanism.posterior - 0.01).decided.all()
    none = descriptors(beliefs, book, min_confidence=mechanism.posterior + 0.01)
    assert not none.decided.any() and (none.confidence == 0).all()


def test_bad_input_is_refused() -> None:
    book, mechanism = dictionary(), SubsetMechanism(dictionary_size=40, epsilon=2.0, m=3)
    form = released(np.arange(40), mechanism, "bad")
    with pytest.raises(InputError, match="at least one"):
        repeated([])
    with pytest.raises(InputError, match="same features"):
        repeated([form, form.take(np.arange(3))])
    with pytest.raises(SpaceError, match="cannot be combined"):
        repeated([form, subsets(form.ids, mechanism, book.digest)])
    for prior in (np.full(39, 1 / 39), np.full(40, np.nan), np.full(40, 1.0), np.eye(40)[0]):
        with pytest.raises(InputError, match="prior"):
            posterior(form, prior=prior)
    with pytest.raises(SpaceError, match="give the one"):
        descriptors(posterior(form), book)
    for confidence in (-0.1, 1.1, math.nan):
        with pytest.raises(RangeError, match="min_confidence"):
            descriptors(posterior(subsets(form.ids, mechanism, book.digest)), book, min_confidence=confidence)
    for smoothing in (0.0, math.nan, math.inf):
        with pytest.raises(RangeError, match="smoothing"):
            word_frequencies(np.arange(3), dictionary_words=5, smoothing=smoothing)
    with pytest.raises(InputError, match="outside"):
        word_frequencies(np.array([5]), dictionary_words=5)
    with pytest.raises(InputError, match="sum to at most 1"):
        Beliefs(words=np.zeros((1, 2), dtype=np.int64), probability=np.array([[0.7, 0.7]]), dictionary=DIGEST)
