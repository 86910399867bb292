"""Study of direct inversion from words at equal posterior ([P23] Table 4).

One network reads the m words of each keypoint. What an epsilon hides depends on the number of words, so that epsilons are those
at which this dictionary sends the true word as often as another one (docs/theory/words.md, Eq. 2). Three rows bound the others:
raw descriptors, true words, and random words, which leave the positions of keypoints alone. [P23]: Pittaluga and Zhuang 2023.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, TypedDict

from veil.codebooks.codebook import Codebook
from veil.device.protection import DELTA
from veil.errors import InputError, RangeError
from veil.inversion.maps import Inverts, points_map, words_map
from veil.ldp.composition import composed_epsilon
from veil.ldp.mechanism import SubsetMechanism
from veil.ldp.rounding import outward
from veil.mechanisms.public import publish
from veil.mechanisms.words import to_words
from veil.progress import Progress
from veil.randomness import seeded
from veil_lab.studies.pictures.inversion import RAW, InversionRow, Inverted, UntrainedPhotograph, inverted, mean_row

Source = Literal["raw descriptors", "true words", "words", "random words"]


class WordInversionJson(TypedDict):
    """Pictures from words by one law; an infinite epsilon, and what raw descriptors have not, is null."""

    source: Source
    m: int
    epsilon: float | None
    true_word: float | None
    epsilon_of_image: float | None
    pictures: int
    mae: float
    ssim: float
    psnr: float
    interval: tuple[float, float]


@dataclass(frozen=True, kw_only=True)
class WordInversion:
    """Mean errors of pictures from words that `law` drew; None: from raw descriptors.

    `epsilon_of_image` is that of all features of the photograph that has most, at a delta of 1e-6.
    """

    law: SubsetMechanism | None
    row: InversionRow
    epsilon_of_image: float

    @property
    def source(self) -> Source:
        """What the pictures are drawn from."""
        if self.law is None:
            return "raw descriptors"
        if self.law.epsilon == 0:
            return "random words"
        return "true words" if math.isinf(self.law.epsilon) else "words"

    def as_json(self) -> WordInversionJson:
        """The stable record of lab/reference/json.md."""
        finite = self.law is not None and not math.isinf(self.law.epsilon)
        return {
            "source": self.source,
            "m": self.row.m,
            "epsilon": self.law.epsilon if self.law is not None and finite else None,
            "true_word": None if self.law is None else float(self.law.truth),
            "epsilon_of_image": self.epsilon_of_image if finite else None,
            "pictures": self.row.pictures,
            "mae": self.row.mae,
            "ssim": self.row.ssim,
            "psnr": self.row.psnr,
            "interval": self.row.interval,
        }


def equal_epsilon(epsilon: float, *, m: int, words: int, of: int) -> float:
    """Epsilon at which a dictionary of `words` words sends the true word as often as one of `of` words at `epsilon`.

    docs/theory/words.md#what-epsilon-means-for-one-feature. Raises RangeError if that is below 0.
    """
    if not 1 <= m < min(words, of):
        raise RangeError(f"m must lie between 1 and the number of words, {min(words, of)}, less 1; got {m!r}")
    equal = epsilon + math.log((words - m) / (of - m))
    if not equal >= 0:
        raise RangeError(
            f"{words} words send the true one more often than {of} at epsilon {epsilon:g}, whatever theirs is; "
            f"use an epsilon of at least {outward(epsilon - equal, 3)}"
        )
    return equal


def word_inversion_study(
    photographs: Sequence[UntrainedPhotograph],
    laws: Sequence[SubsetMechanism],
    *,
    network: Inverts,
    raw: Inverts,
    dictionary: Codebook,
    case: str,
    progress: Progress | None = None,
) -> list[WordInversion]:
    """Errors of pictures from raw descriptors, from true words, from words by each of `laws`, and from random words.

    `network` reads words of `dictionary`, `raw` raw descriptors. Both have seen none of the photographs. `case` seeds words.
    Raises InputError for networks of another kind, or no photographs.
    """
    if not photographs or network.kind != "words" or raw.kind != "raw":
        raise InputError("the study needs photographs, a network for words, and one for raw descriptors")
    bounds = [SubsetMechanism(dictionary_size=len(dictionary), epsilon=epsilon, m=1) for epsilon in (math.inf, 0.0)]
    every = [None, bounds[0], *laws, bounds[1]]
    most = max(len(item.features) for item in photographs)
    rows = []
    for turn, law in enumerate(every):
        pictures = []
        for place, photograph in enumerate(photographs):
            pictures.append(
                _from_raw(photograph, raw) if law is None else _from_words(photograph, law, network, dictionary, case)
            )
            if progress is not None:
                progress(turn * len(photographs) + place + 1, len(every) * len(photographs))
        epsilon = math.inf if law is None else composed_epsilon({law: most}, DELTA)
        rows.append(WordInversion(law=law, row=mean_row(pictures), epsilon_of_image=epsilon))
    return rows


def _from_raw(photograph: UntrainedPhotograph, raw: Inverts) -> Inverted:
    sparse = points_map(photograph.frame, photograph.features.keypoints, publish(photograph.features).vectors)
    return inverted(photograph, raw, sparse, attack=RAW, distance=0.0)


def _from_words(
    photograph: UntrainedPhotograph, law: SubsetMechanism, network: Inverts, dictionary: Codebook, case: str
) -> Inverted:
    randomness = seeded(f"{case} {photograph.name} {law.m} {law.epsilon!r}")
    drawn = to_words(photograph.features, mechanism=law, dictionary=dictionary, randomness=randomness)
    sparse = words_map(photograph.frame, photograph.features.keypoints, drawn.form, dictionary)
    return inverted(photograph, network, sparse, attack="words", m=law.m)
