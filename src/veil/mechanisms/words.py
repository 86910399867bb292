"""Descriptors become random subsets of a public dictionary (Pittaluga and Zhuang 2023, Sec. 5.2; docs/theory/words.md)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float64, Int64

from veil.codebooks.codebook import Codebook
from veil.errors import InputError, RangeError, SpaceError
from veil.features import Features, unit_length
from veil.forms import Subsets
from veil.ldp.mechanism import SubsetMechanism
from veil.mechanisms.parameters import word_parameters
from veil.randomness import Randomness, bernoulli, subsets_below


@dataclass(frozen=True, kw_only=True, eq=False)
class Worded:
    """Subsets of an image's features, in their order, and what stays on the device: the true words and how far they are.

    `quantization_error` is the distance of each descriptor to its word, which hides it from who knows the word
    (words.md#what-epsilon-does-not-cover).
    """

    form: Subsets
    true_words: Int64[np.ndarray, "features"]
    quantization_error: Float64[np.ndarray, "features"]


def to_words(features: Features, *, mechanism: SubsetMechanism, dictionary: Codebook, randomness: Randomness) -> Worded:
    """A random subset of the words of `dictionary` for each feature; memoized by (`randomness`, image, feature).

    Raises InputError if there are no features, RangeError if `mechanism` is for another number of words, SpaceError for other
    descriptors than the dictionary's.
    """
    if len(features) == 0:
        raise InputError("there are no features to privatize; the image may be blank")
    if features.space != dictionary.raw_space:
        raise SpaceError(
            f"the features are [{features.space}], the dictionary is of [{dictionary.raw_space}]; give one of the same kind"
        )
    if mechanism.dictionary_size != len(dictionary):
        raise RangeError(f"the mechanism is for {mechanism.dictionary_size} words, the dictionary has {len(dictionary)}")
    vectors = unit_length(features.descriptors.astype(np.float64)).astype(np.float32)
    true_words = dictionary.nearest(vectors)
    error = np.linalg.norm(vectors.astype(np.float64) - dictionary.vectors[true_words], axis=1)
    prefix = word_parameters(mechanism, dictionary=dictionary).draws + features.image_digest
    # Features that are alike in everything draw apart: equal subsets would tell that their descriptors are equal.
    alike: Counter[bytes] = Counter()
    contexts = []
    for row in range(len(features)):
        context = prefix + features.keypoints[row].tobytes() + features.descriptors[row].tobytes()
        contexts.append(context + b"|%d" % alike[context])
        alike[context] += 1
    form = Subsets(
        ids=randomized(true_words, mechanism, randomness, contexts).astype(np.uint32),
        mechanism=mechanism,
        space=features.space,
        dictionary=dictionary.digest,
        releasable=randomness.releasable,
    )
    return Worded(form=form, true_words=true_words, quantization_error=error)


def randomized(
    true_words: Int64[np.ndarray, "features"], mechanism: SubsetMechanism, randomness: Randomness, contexts: Sequence[bytes]
) -> Int64[np.ndarray, "features m"]:
    """One draw of the mechanism for each word, exactly by its law (Eq. 5) and in integers only; each row sorted.

    Theory: words.md#the-sampler-in-integers.
    """
    kept = bernoulli(randomness, [b"truth|" + context for context in contexts], mechanism.truth)
    drawn = np.empty((len(true_words), mechanism.m), dtype=np.int64)
    for keeps in (False, True):
        rows = np.flatnonzero(kept == keeps)
        theirs = [b"others|" + contexts[row] for row in rows.tolist()]
        others = subsets_below(randomness, theirs, mechanism.dictionary_size - 1, mechanism.m - keeps)
        # The true word is left out of those below: 0 .. K-2 stand for all words but it.
        others += others >= true_words[rows, None]
        drawn[rows, : mechanism.m - keeps] = others
        if keeps:
            drawn[rows, -1] = true_words[rows]
    return np.sort(drawn, axis=1)
