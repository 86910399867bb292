"""Random subsets of a public dictionary in place of descriptors (Pittaluga and Zhuang 2023, Sec. 5.2; docs/theory/words.md)."""

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
from veil.space import root_remedy


@dataclass(frozen=True, kw_only=True, eq=False)
class DrawnSubsets:
    """Random subsets of words for an image's features, in the order of the features, and what stays on the device.

    - `form`: the subsets.
    - `true_words`, int64 (features,): the word nearest to each descriptor.
    - `quantization_error`, float64 (features,): distance of each descriptor to its true word. Nothing else hides the descriptor
      from whoever knows the word (words.md#what-epsilon-does-not-cover).
    """

    form: Subsets
    true_words: Int64[np.ndarray, "features"]
    quantization_error: Float64[np.ndarray, "features"]


def to_words(features: Features, *, mechanism: SubsetMechanism, dictionary: Codebook, randomness: Randomness) -> DrawnSubsets:
    """Draw a random subset of the dictionary's words for each feature, memoized by `randomness`, image and feature.

    `mechanism` is the law of the subsets; it must be for as many words as the dictionary has. Raises InputError if there are no
    features, RangeError for another number of words, and SpaceError for other descriptors than the dictionary's.
    """
    if len(features) == 0:
        raise InputError("there are no features to privatize; the image may be blank")
    if features.space != dictionary.raw_space:
        raise SpaceError(
            f"the features are [{features.space}], the dictionary is of [{dictionary.raw_space}]; give one of the same kind",
            remedy=root_remedy(features.space, dictionary.raw_space),
        )
    if mechanism.dictionary_size != len(dictionary):
        raise RangeError(f"the mechanism is for {mechanism.dictionary_size} words, the dictionary has {len(dictionary)}")
    vectors = unit_length(features.descriptors.astype(np.float64)).astype(np.float32)
    true_words = dictionary.nearest(vectors)
    error = np.linalg.norm(vectors.astype(np.float64) - dictionary.vectors[true_words], axis=1)
    prefix = word_parameters(mechanism, dictionary=dictionary).draws + features.image_digest
    # Features that are equal in everything get different draws: equal subsets would tell that their descriptors are equal.
    repeats: Counter[bytes] = Counter()
    contexts = []
    for row in range(len(features)):
        context = prefix + features.keypoints[row].tobytes() + features.descriptors[row].tobytes()
        contexts.append(context + b"|%d" % repeats[context])
        repeats[context] += 1
    form = Subsets(
        ids=randomized(true_words, mechanism, randomness, contexts).astype(np.uint32),
        mechanism=mechanism,
        space=features.space,
        dictionary=dictionary.digest,
        releasable=randomness.releasable,
    )
    return DrawnSubsets(form=form, true_words=true_words, quantization_error=error)


def randomized(
    true_words: Int64[np.ndarray, "features"], mechanism: SubsetMechanism, randomness: Randomness, contexts: Sequence[bytes]
) -> Int64[np.ndarray, "features m"]:
    """Draw one subset for each true word, exactly by the mechanism's law and in integers only; each row is sorted.

    `contexts[i]` keys the draw of row i. Sources: Pittaluga and Zhuang 2023, Eq. 5; words.md#the-sampler-in-integers.
    """
    kept = bernoulli(randomness, [b"truth|" + context for context in contexts], mechanism.truth)
    drawn = np.empty((len(true_words), mechanism.m), dtype=np.int64)
    for keeps in (False, True):
        rows = np.flatnonzero(kept == keeps)
        row_contexts = [b"others|" + contexts[row] for row in rows.tolist()]
        others = subsets_below(randomness, row_contexts, mechanism.dictionary_size - 1, mechanism.m - keeps)
        # 0 .. K-2 stand for all words but the true one: those from the true word on are shifted by one.
        others += others >= true_words[rows, None]
        drawn[rows, : mechanism.m - keeps] = others
        if keeps:
            drawn[rows, -1] = true_words[rows]
    return np.sort(drawn, axis=1)
