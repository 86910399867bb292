"""An empirical lower bound on epsilon, with its confidence (docs/theory/word_attacks.md, Eq. 14-16).

The distinguishing game: a release mechanism is run many times on each of two inputs, and whoever sees an output guesses which
it was. A mechanism with epsilon bounds how well any rule can do, so a rule that does better refutes the promise. The bound can
convict and never acquit: a mechanism that this game does not break may be broken by another.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from jaxtyping import Float64, Int64

from veil.codebooks.codebook import Codebook
from veil.errors import InputError, RangeError
from veil.features import Features
from veil.ldp.mechanism import SubsetMechanism
from veil.mechanisms.public import publish
from veil.mechanisms.words import randomized, to_words
from veil.randomness import Randomness, seeded
from veil.statistics import clopper_pearson, clopper_pearson_ends

# Word ids as they would be sent, in their order: so many independent releases of the input 0 or 1.
Release = Callable[[int, int], Int64[np.ndarray, "draws m"]]

# Of each input in an audit: two seconds, and enough to show an epsilon of about 9.
AUDIT_DRAWS = 60_000


@dataclass(frozen=True, kw_only=True)
class EpsilonBound:
    """With at least `confidence` the mechanism has no epsilon below `low` (at `delta`).

    Of `trials` held-out outputs of one input `hits` fell into the rejection region, of as many of the other input `misses`.
    `ceiling` is the largest bound that so many trials can show: a `low` near it says only that there were too few of them.
    """

    low: float
    confidence: float
    delta: float
    trials: int
    hits: int
    misses: int
    ceiling: float

    def refutes(self, epsilon: float) -> bool:
        """Whether a claimed epsilon is wrong, at this confidence."""
        return self.low > epsilon

    def as_json(self) -> dict[str, object]:
        """The stable record of docs/reference/json.md."""
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
    first: Int64[np.ndarray, "ours"], second: Int64[np.ndarray, "theirs"], *, confidence: float = 0.95, delta: float = 0.0
) -> EpsilonBound:
    """The bound from outputs of two inputs, as symbols: any function of an output, equal for equal views (Eq. 14-16).

    The rejection region and its direction are chosen on the first half of the draws and tested on the second, so the choice
    costs no confidence. Raises InputError for fewer than four draws or unequal numbers, RangeError for shares out of range.
    """
    if len(first) != len(second) or len(first) < 4:
        raise InputError(f"the game needs as many outputs of both inputs, at least four, got {len(first)} and {len(second)}")
    if not 0 < confidence < 1:
        raise RangeError(f"confidence must be between 0 and 1, got {confidence!r}")
    if not 0 <= delta < 1:
        raise RangeError(f"delta must be at least 0 and below 1, got {delta!r}")
    half = len(first) // 2
    choices = [
        (_region(ours[:half], theirs[:half], confidence, delta), ours, theirs)
        for ours, theirs in ((first, second), (second, first))
    ]
    (_, region), ours, theirs = max(choices, key=lambda choice: choice[0][0])
    trials = len(first) - half
    hits, misses = (int(np.isin(side[half:], region).sum()) for side in (ours, theirs))
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
    """max(0, log((p_low - delta) / q_high)) with Clopper-Pearson ends that both hold with at least `confidence` (Eq. 15)."""
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
    """The game on a release of words: `words` are the true words of the inputs 0 and 1, and what the guess looks at.

    It looks at where in the output either word stands, if at all: order counts, so that an output that is not sorted is seen.
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
    """Where in each row the two words stand (0: nowhere), as one number."""
    places = []
    for word in words:
        held = rows == word
        places.append(np.where(held.any(axis=1), held.argmax(axis=1) + 1, 0))
    return places[0] * (rows.shape[1] + 1) + places[1]


def of_words(mechanism: SubsetMechanism, words: tuple[int, int], randomness: Randomness) -> Release:
    """veil's own mechanism on two given true words."""

    def release(which: int, draws: int) -> Int64[np.ndarray, "draws m"]:
        contexts = [b"game %d|%d" % (which, trial) for trial in range(draws)]
        return randomized(np.full(draws, words[which], dtype=np.int64), mechanism, randomness, contexts)

    return release


def measured(mechanism: SubsetMechanism, *, draws: int = AUDIT_DRAWS, confidence: float = 0.95) -> EpsilonBound:
    """The game on this veil's mechanism with the parameters of a release: whoever sent it with another veil is not measured.

    By symmetry all pairs of words are alike, so that two of them are enough.
    """
    words = (0, 1)
    return play(of_words(mechanism, words, seeded(f"audit {mechanism}")), words, draws=draws, confidence=confidence)


def of_descriptors(
    features: Features, rows: tuple[int, int], mechanism: SubsetMechanism, dictionary: Codebook, randomness: Randomness
) -> tuple[Release, tuple[int, int]]:
    """All of a release in words, from descriptor to subset, of two features of an image; and their true words for `play`.

    Each trial is one more copy of the feature in one image: alike features draw apart.
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
        )
        return to_words(image, mechanism=mechanism, dictionary=dictionary, randomness=randomness).form.ids.astype(np.int64)

    return release, (int(nearest[0]), int(nearest[1]))


def _region(
    ours: Int64[np.ndarray, "half"], theirs: Int64[np.ndarray, "half"], confidence: float, delta: float
) -> tuple[float, Int64[np.ndarray, "symbols"]]:
    """The symbols that tell `ours` from `theirs` best on these draws, and the bound that they would give (Eq. 16).

    By the lemma of Neyman and Pearson the best regions hold the symbols of the largest likelihood ratios.
    """
    symbols, place = np.unique(np.concatenate([ours, theirs]), return_inverse=True)
    hits = np.bincount(place[: len(ours)], minlength=len(symbols))
    misses = np.bincount(place[len(ours) :], minlength=len(symbols))
    order = np.argsort(-(hits + 0.5) / (misses + 0.5), kind="stable")
    value = _bounds(np.cumsum(hits[order]), np.cumsum(misses[order]), len(ours), confidence, delta)
    best = int(value.argmax())
    return float(value[best]), symbols[order[: best + 1]]


def _bounds(
    hits: Int64[np.ndarray, "regions"], misses: Int64[np.ndarray, "regions"], trials: int, confidence: float, delta: float
) -> Float64[np.ndarray, "regions"]:
    """`bound` of many regions at once."""
    low, _ = clopper_pearson_ends(hits, trials, confidence=confidence)
    _, high = clopper_pearson_ends(misses, trials, confidence=confidence)
    return np.where(low > delta, np.log(np.maximum(low - delta, 1e-300) / high), -np.inf)
