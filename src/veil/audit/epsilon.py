"""Empirical lower bound on epsilon, with its confidence (docs/theory/word_attacks.md, Eq. 14-16).

The distinguishing game: a release mechanism is run many times on each of two inputs, and whoever sees an output guesses which
input it came from. Epsilon bounds how well any rule can guess, so a rule that does better refutes the promise. The bound can
refute a claim and never confirm it: a mechanism that this game does not break may be broken by another game.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TypedDict

import numpy as np
from jaxtyping import Float64, Int64

from veil.audit.statistics import clopper_pearson, clopper_pearson_ends
from veil.codebooks.codebook import Codebook
from veil.errors import InputError, RangeError
from veil.features import Features
from veil.ldp.mechanism import SubsetMechanism
from veil.mechanisms.public import publish
from veil.mechanisms.words import randomized, to_words
from veil.one_line import in_full, one_line
from veil.randomness import Randomness, seeded

# Release mechanism in the game: called with an input (0 or 1) and a number of draws, it returns the word ids of as many
# independent releases of that input, each as it would be sent and in that order.
Release = Callable[[int, int], Int64[np.ndarray, "draws m"]]

# Draws of each input in an audit: they take two seconds, and are enough to show an epsilon of about 9.
AUDIT_DRAWS = 60_000


class EpsilonBoundJson(TypedDict):
    """A lower bound on epsilon, and the trials that show it."""

    low: float
    confidence: float
    delta: float
    trials: int
    hits: int
    misses: int
    ceiling: float


@dataclass(frozen=True, kw_only=True)
class EpsilonBound:
    """Lower bound `low` on the epsilon of a mechanism (at `delta`), which holds with at least `confidence`.

    `trials` held-out outputs of each of two inputs were tested: `hits` of the one and `misses` of the other fell into the
    rejection region. `ceiling` is the largest bound that these trials can show: a `low` near it says only that there were too
    few of them.
    """

    low: float
    confidence: float
    delta: float
    trials: int
    hits: int
    misses: int
    ceiling: float

    __repr__ = one_line

    def refutes(self, epsilon: float) -> bool:
        """Whether the bound refutes a claimed epsilon, at this confidence."""
        return self.low > epsilon

    def as_json(self) -> EpsilonBoundJson:
        """Stable JSON record, as docs/reference/json.md describes it."""
        return {
            "low": self.low,
            "confidence": self.confidence,
            "delta": self.delta,
            "trials": self.trials,
            "hits": self.hits,
            "misses": self.misses,
            "ceiling": self.ceiling,
        }


def distinguish(
    first: Int64[np.ndarray, "first"], second: Int64[np.ndarray, "second"], *, confidence: float = 0.95, delta: float = 0.0
) -> EpsilonBound:
    """Lower bound on epsilon from outputs of two inputs (docs/theory/word_attacks.md, Eq. 14-16).

    Outputs are given as symbols: any function of an output, equal for equal views. The rejection region and its direction are
    chosen on the first half of the draws and tested on the second, so the choice costs no confidence. Raises InputError for
    fewer than four draws or unequal numbers, RangeError for a `confidence` or `delta` out of range.
    """
    if len(first) != len(second) or len(first) < 4:
        raise InputError(f"the game needs as many outputs of both inputs, at least four, got {len(first)} and {len(second)}")
    if not 0 < confidence < 1:
        raise RangeError(f"confidence must be between 0 and 1, got {confidence!r}")
    if not 0 <= delta < 1:
        raise RangeError(f"delta must be at least 0 and below 1, got {delta!r}")
    half = len(first) // 2
    choices = [
        (_region(likely[:half], unlikely[:half], confidence, delta), likely, unlikely)
        for likely, unlikely in ((first, second), (second, first))
    ]
    (_, region), likely, unlikely = max(choices, key=lambda choice: choice[0][0])
    trials = len(first) - half
    hits, misses = (int(np.isin(outputs[half:], region).sum()) for outputs in (likely, unlikely))
    return EpsilonBound(
        low=bound(hits, misses, trials, confidence=confidence, delta=delta),
        confidence=confidence,
        delta=delta,
        trials=trials,
        hits=hits,
        misses=misses,
        ceiling=bound(trials, 0, trials, confidence=confidence, delta=delta),
    )


def bound(hits: int, misses: int, trials: int, *, confidence: float, delta: float = 0.0) -> float:
    """Lower bound max(0, log((p_low - delta) / q_high)) on epsilon (docs/theory/word_attacks.md, Eq. 15).

    p_low and q_high are Clopper-Pearson ends of the shares of `hits` and of `misses` in `trials`; both hold together with at
    least `confidence`. Raises RangeError for impossible counts.
    """
    # Each end fails with probability (1 - confidence) / 2, so that together they fail with at most 1 - confidence.
    low, _ = clopper_pearson(hits, trials, confidence=confidence)
    _, high = clopper_pearson(misses, trials, confidence=confidence)
    return max(0.0, math.log((low - delta) / high)) if low > delta else 0.0


def play(
    release: Release,
    words: tuple[int, int],
    *,
    draws: int,
    confidence: float = 0.95,
    delta: float = 0.0,
) -> EpsilonBound:
    """Lower bound on epsilon from `draws` rounds of the distinguishing game on each of two inputs.

    `words` are the true words of the inputs 0 and 1. The guess looks at where in the output each of them stands, if at all: the
    place counts, so that an output that is not sorted is noticed. Raises InputError for fewer than four draws, or if `release`
    returns another number of rows.
    """
    if draws < 4:
        raise InputError(f"the game needs at least four draws of each input, got {draws!r}")
    outputs = [release(which, draws) for which in (0, 1)]
    for rows in outputs:
        if rows.ndim != 2 or len(rows) != draws:
            raise InputError(f"the release must return {draws} rows of word ids, got {rows.shape}")
    first, second = (word_symbols(rows, words) for rows in outputs)
    return distinguish(first, second, confidence=confidence, delta=delta)


def word_symbols(rows: Int64[np.ndarray, "draws m"], words: tuple[int, int]) -> Int64[np.ndarray, "draws"]:
    """Symbol of each row: the places of the two words in it (0: absent), as one number."""
    places = []
    for word in words:
        is_word = rows == word
        places.append(np.where(is_word.any(axis=1), is_word.argmax(axis=1) + 1, 0))
    return places[0] * (rows.shape[1] + 1) + places[1]


def release_of_words(mechanism: SubsetMechanism, words: tuple[int, int], randomness: Randomness) -> Release:
    """Release function of veil's own mechanism on two given true words, for `play`."""

    def release(which: int, draws: int) -> Int64[np.ndarray, "draws m"]:
        contexts = [b"game %d|%d" % (which, trial) for trial in range(draws)]
        return randomized(np.full(draws, words[which], dtype=np.int64), mechanism, randomness, contexts)

    return release


def measured(mechanism: SubsetMechanism, *, draws: int = AUDIT_DRAWS, confidence: float = 0.95) -> EpsilonBound:
    """Lower bound on the epsilon of this veil's implementation of `mechanism`, from `draws` releases of each of two words.

    A release that another version of veil sent is not measured, only the mechanism with its parameters. By symmetry all pairs
    of words are alike, so that two of them are enough.
    """
    words = (0, 1)
    return play(
        release_of_words(mechanism, words, seeded(f"audit {in_full(mechanism)}")), words, draws=draws, confidence=confidence
    )


def release_of_descriptors(
    features: Features, rows: tuple[int, int], mechanism: SubsetMechanism, dictionary: Codebook, randomness: Randomness
) -> tuple[Release, tuple[int, int]]:
    """Release function of two features of an image, from descriptor to subset, and their true words; both are for `play`.

    `rows` are the two features, the inputs 0 and 1. All draws of one call are copies of the feature in one image: features with
    equal descriptors draw independently.
    """
    nearest = dictionary.nearest(publish(features).vectors[list(rows)])

    def release(which: int, draws: int) -> Int64[np.ndarray, "draws m"]:
        copies = np.full(draws, rows[which])
        image = replace(
            features,
            keypoints=features.keypoints[copies],
            descriptors=features.descriptors[copies],
            scales=None,
            orientations=None,
            scores=None,
        )
        return to_words(image, mechanism=mechanism, dictionary=dictionary, randomness=randomness).form.ids.astype(np.int64)

    return release, (int(nearest[0]), int(nearest[1]))


def _region(
    likely: Int64[np.ndarray, "half"], unlikely: Int64[np.ndarray, "half"], confidence: float, delta: float
) -> tuple[float, Int64[np.ndarray, "symbols"]]:
    """Largest bound on these draws over all rejection regions, and the symbols of the region that gives it (Eq. 16).

    The region is to hold many outputs of `likely` and few of `unlikely`. By the lemma of Neyman and Pearson the best regions
    hold the symbols of the largest likelihood ratios.
    """
    symbols, place = np.unique(np.concatenate([likely, unlikely]), return_inverse=True)
    hits = np.bincount(place[: len(likely)], minlength=len(symbols))
    misses = np.bincount(place[len(likely) :], minlength=len(symbols))
    order = np.argsort(-(hits + 0.5) / (misses + 0.5), kind="stable")
    value = _bounds(np.cumsum(hits[order]), np.cumsum(misses[order]), len(likely), confidence, delta)
    best = int(value.argmax())
    return float(value[best]), symbols[order[: best + 1]]


def _bounds(
    hits: Int64[np.ndarray, "regions"], misses: Int64[np.ndarray, "regions"], trials: int, confidence: float, delta: float
) -> Float64[np.ndarray, "regions"]:
    """Bounds of many regions at once, as `bound` gives them, but -inf in place of 0 where nothing is shown."""
    low, _ = clopper_pearson_ends(hits, trials, confidence=confidence)
    _, high = clopper_pearson_ends(misses, trials, confidence=confidence)
    return np.where(low > delta, np.log(np.maximum(low - delta, 1e-300) / high), -np.inf)
