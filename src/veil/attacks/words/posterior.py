"""Posterior attack on words, from one release or several.

The mechanism's law is public, so whoever receives a subset weighs each word by its prior, times e^epsilon for the words of the
subset. No attack on single features is right more often; `veil.attacks.words.neighbors` weighs features together.

Theory: docs/theory/word_attacks.md, Eq. 1-5; words.md#what-epsilon-does-not-cover, words.md#what-epsilon-means-for-one-feature.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from jaxtyping import Float64, Int64

from veil.attacks.claims import Estimates
from veil.codebooks.codebook import Codebook
from veil.errors import InputError, RangeError, SpaceError
from veil.forms import Subsets
from veil.space import require_same

# Stand-in for an infinite epsilon: a word outside the subset is then impossible in double precision.
LARGEST_EPSILON = 700.0
# Comparisons of the features' words with the most expected ones that are held at a time.
CHUNK_COMPARISONS = 1 << 24


@dataclass(frozen=True, kw_only=True, eq=False)
class Beliefs:
    """Probabilities of some words of each feature; what is left to 1 falls on all words that the row does not name.

    `words[i, j]` is the true word of feature i with probability `probability[i, j]`; `dictionary` is the codebook's digest. A
    row of `words` may name fewer different words than it has columns: unused columns repeat a word with probability 0.
    """

    words: Int64[np.ndarray, "_ _"]
    probability: Float64[np.ndarray, "_ _"]
    dictionary: str

    def __post_init__(self) -> None:
        if self.words.shape != self.probability.shape or self.words.ndim != 2 or not self.words.shape[1]:
            raise InputError(f"beliefs need a probability for each word, got {self.words.shape} and {self.probability.shape}")
        totals = self.probability.sum(axis=1)
        if not ((self.probability >= 0).all() and (totals <= 1 + 1e-9).all()):
            raise InputError("probabilities of words must be at least 0 and sum to at most 1")

    def __len__(self) -> int:
        return len(self.words)

    @property
    def best(self) -> Int64[np.ndarray, "_"]:
        """Most probable word of each feature; the first one of equally probable words."""
        return self.words[np.arange(len(self)), self.probability.argmax(axis=1)]

    @property
    def confidence(self) -> Float64[np.ndarray, "_"]:
        """Probability of the most probable word of each feature."""
        return np.minimum(self.probability.max(axis=1), 1.0)

    def probability_of(self, words: Int64[np.ndarray, "_"]) -> Float64[np.ndarray, "_"]:
        """Probability of one given word for each feature; 0 where the row does not name it."""
        return np.where(self.words == words[:, None], self.probability, 0.0).sum(axis=1)


def word_frequencies(
    words: Int64[np.ndarray, "features"], *, dictionary_words: int, smoothing: float = 0.5
) -> Float64[np.ndarray, "words"]:
    """Prior of the attacker: how often each word is the nearest one of a feature in its own photographs (sums to 1).

    `words` are the nearest words of these features, `dictionary_words` is the size of the dictionary. `smoothing` is added to
    each count, so that no word is impossible (Krichevsky and Trofimov 1981 add one half). Raises InputError for a word outside
    the dictionary, RangeError for a `smoothing` that is not positive and finite.
    """
    if not 0 < smoothing < np.inf:
        raise RangeError(f"smoothing must be above 0 and finite, got {smoothing!r}; 0.5 is usual")
    if len(words) and not (words.min() >= 0 and words.max() < dictionary_words):
        raise InputError(f"a word id lies outside the dictionary of {dictionary_words} words")
    counts = np.bincount(words, minlength=dictionary_words) + smoothing
    return counts / counts.sum()


def posterior(form: Subsets, *, prior: Float64[np.ndarray, "words"] | None = None) -> Beliefs:
    """Posterior probabilities of the words of each subset, given what the mechanism sent (docs/theory/word_attacks.md, Eq. 1).

    `prior` holds the expected share of each word of the dictionary, None: uniform. With a prior, the most expected word outside
    the subset is named as well: at a small epsilon it can be the best guess. Raises InputError unless the prior is positive and
    sums to 1 over the dictionary.
    """
    return repeated([form], prior=prior)


def repeated(releases: Sequence[Subsets], *, prior: Float64[np.ndarray, "words"] | None = None) -> Beliefs:
    """Posterior probabilities of words, given several independent releases of the same features in the same order.

    `prior` is that of `posterior`. Releases that are equal in every row are one memoized draw and count once: they add nothing,
    and taking them for two would make the attack surer than it may be. Raises InputError for unequal counts, SpaceError for
    different dictionaries.

    Theory: docs/theory/word_attacks.md, Eq. 4; words.md#what-epsilon-does-not-cover.
    """
    forms = _independent_draws(releases)
    words = forms[0].mechanism.dictionary_size
    shares = _checked_prior(prior, words)
    expected = None if prior is None else np.argsort(-shares, kind="stable")[: 1 + sum(form.m for form in forms)]
    chunk = max(CHUNK_COMPARISONS // sum(form.m for form in forms) ** 2, 64)
    parts = [
        _weighed([form.take(np.arange(start, min(start + chunk, len(form)))) for form in forms], shares, expected)
        for start in range(0, max(len(forms[0]), 1), chunk)
    ]
    return Beliefs(
        words=np.concatenate([words for words, _ in parts]),
        probability=np.concatenate([probability for _, probability in parts]),
        dictionary=forms[0].dictionary,
    )


def descriptors(
    beliefs: Beliefs,
    dictionary: Codebook,
    *,
    kind: Literal["word", "mean"] = "word",
    prior: Float64[np.ndarray, "words"] | None = None,
    min_confidence: float = 0.0,
) -> Estimates:
    """Estimates of descriptors from beliefs: the vector of the most probable word, or the mean over all words.

    The mean (`kind` "mean"; docs/theory/word_attacks.md, Eq. 3) has the least expected squared error. It weighs the words that
    `beliefs` does not name by `prior` (None: uniform), and is not scaled to unit length. Features whose confidence is below
    `min_confidence` are undecided. Nothing is certified: even the true word gives the descriptor only up to the word's cell
    (words.md#what-epsilon-does-not-cover). Raises SpaceError for another dictionary than that of `beliefs`.
    """
    if beliefs.dictionary != dictionary.digest:
        raise SpaceError(
            f"the beliefs are of dictionary {beliefs.dictionary[:12]}, this one is {dictionary.digest[:12]}; give the one that "
            "the words were drawn from"
        )
    if not 0 <= min_confidence <= 1:
        raise RangeError(f"min_confidence must lie in [0, 1], got {min_confidence!r}")
    if kind not in ("word", "mean"):
        raise RangeError(f"kind must be 'word' or 'mean', got {kind!r}")
    decided = beliefs.confidence >= min_confidence
    points = np.full((len(beliefs), dictionary.dim), np.nan)
    if kind == "word":
        points[decided] = dictionary.vectors[beliefs.best[decided]]
    else:
        points[decided] = _means(beliefs, dictionary, _checked_prior(prior, len(dictionary)))[decided]
    return Estimates(
        points=points, confidence=np.where(decided, beliefs.confidence, 0.0), certified=np.zeros(len(beliefs), dtype=bool)
    )


def _independent_draws(releases: Sequence[Subsets]) -> list[Subsets]:
    """Releases without repetitions of a memoized draw."""
    if not releases:
        raise InputError("the posterior attack needs at least one release")
    first = releases[0]
    kept: list[Subsets] = []
    for form in releases:
        require_same(first.space, form.space)
        if form.dictionary != first.dictionary or form.mechanism.dictionary_size != first.mechanism.dictionary_size:
            raise SpaceError(f"releases of dictionaries {first.dictionary[:12]} and {form.dictionary[:12]} cannot be combined")
        if len(form) != len(first):
            raise InputError(f"releases hold {len(first)} and {len(form)} features; give the same features in the same order")
        if not any(form.mechanism == other.mechanism and np.array_equal(form.ids, other.ids) for other in kept):
            kept.append(form)
    return kept


def _checked_prior(prior: Float64[np.ndarray, "_"] | None, words: int) -> Float64[np.ndarray, "_"]:
    if prior is None:
        return np.full(words, 1.0 / words)
    if prior.shape != (words,) or not (prior > 0).all() or not abs(float(prior.sum()) - 1) < 1e-6:
        raise InputError(f"a prior needs a positive share for each of {words} words that sum to 1; see word_frequencies")
    return prior


def _weighed(
    forms: list[Subsets], prior: Float64[np.ndarray, "_"], expected: Int64[np.ndarray, "_"] | None
) -> tuple[Int64[np.ndarray, "_ _"], Float64[np.ndarray, "_ _"]]:
    """Candidate words of each feature and their probabilities (Eq. 4).

    `expected` lists the words of the largest prior, one more than were sent if the dictionary has as many; None: uniform prior.
    """
    words = np.concatenate([form.ids.astype(np.int64) for form in forms], axis=1)
    epsilons = np.repeat([min(form.mechanism.epsilon, LARGEST_EPSILON) for form in forms], [form.m for form in forms])
    order = np.argsort(words, axis=1, kind="stable")
    words = np.take_along_axis(words, order, axis=1)
    fresh = np.diff(words, axis=1, prepend=-1) != 0
    gain = np.zeros(words.shape)
    rows = np.broadcast_to(np.arange(len(words))[:, None], words.shape)
    np.add.at(gain, (rows, _first_of(fresh)), epsilons[order])
    named = np.where(fresh, prior[words], 0.0)
    if expected is not None:
        unsent = (words[:, :, None] != expected).all(axis=1)
        outside = expected[unsent.argmax(axis=1)]  # the most expected word that was never sent, unless all were
        words = np.concatenate([words, outside[:, None]], axis=1)
        gain = np.concatenate([gain, np.zeros((len(words), 1))], axis=1)
        named = np.concatenate([named, np.where(unsent.any(axis=1), prior[outside], 0.0)[:, None]], axis=1)
    # Divided by the largest gain, so that nothing overflows.
    largest = gain.max(axis=1, keepdims=True, initial=0.0)
    weight = named * np.exp(gain - largest)
    rest = np.maximum(1 - named.sum(axis=1, keepdims=True), 0.0) * np.exp(-largest)
    return words, weight / (weight.sum(axis=1, keepdims=True) + rest)


def _first_of(fresh: np.ndarray) -> Int64[np.ndarray, "_ _"]:
    """Column where the word of each column first stands, in sorted rows; `fresh` marks columns that begin a new word."""
    return np.maximum.accumulate(np.where(fresh, np.arange(fresh.shape[1]), 0), axis=1)


def _means(beliefs: Beliefs, dictionary: Codebook, prior: Float64[np.ndarray, "_"]) -> Float64[np.ndarray, "_ dim"]:
    """Mean descriptors (Eq. 3): named words are weighed by their probability, all others by the prior."""
    overall = prior @ dictionary.vectors.astype(np.float64)
    means = np.empty((len(beliefs), dictionary.dim))
    for start in range(0, len(means), 1 << 12):
        part = slice(start, start + (1 << 12))
        vectors = dictionary.vectors[beliefs.words[part]].astype(np.float64)
        # A column that repeats another one names nothing.
        share = np.where(np.diff(np.sort(beliefs.words[part], axis=1), axis=1, prepend=-1) != 0, 1.0, 0.0)
        order = np.argsort(beliefs.words[part], axis=1, kind="stable")
        named = np.empty(share.shape)
        np.put_along_axis(named, order, share, axis=1)
        named *= prior[beliefs.words[part]]
        others = overall - np.einsum("fc,fcd->fd", named, vectors)
        others /= np.maximum(1 - named.sum(axis=1, keepdims=True), 1e-12)
        rest = np.maximum(1 - beliefs.probability[part].sum(axis=1, keepdims=True), 0.0)
        means[part] = np.einsum("fc,fcd->fd", beliefs.probability[part], vectors) + rest * others
    return means
