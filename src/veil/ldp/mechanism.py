"""The omega-subset mechanism: its law in exact numbers, and its guarantee (docs/theory/words.md, Eq. 1-7).

One object holds the mechanism's parameters and gives its guarantee. Only the device draws from it (`veil.mechanisms.words`); a
server needs the law alone, to weigh the words that it receives. Source: Pittaluga and Zhuang 2023, Sec. 5.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from decimal import Decimal, localcontext
from fractions import Fraction
from functools import cached_property

from veil.errors import RangeError
from veil.ldp.guarantee import Guarantee, LocalDP, NoProof
from veil.one_line import one_line

# e^epsilon is rounded down to a multiple of 1 / SCALE, so that every ratio of probabilities is at most e^epsilon.
SCALE = 1 << 64
QUANTIZED = NoProof(
    reason="Epsilon is infinite: each descriptor is replaced by its nearest word, which is sent for certain. That is vector "
    "quantization, not privacy; words can be inverted into images almost like descriptors."
)


@dataclass(frozen=True, kw_only=True)
class SubsetMechanism:
    """Law of random subsets of words in place of a feature's true word, with local differential privacy of each feature.

    - `dictionary_size`: number K of words in the dictionary, at least 2.
    - `epsilon`: privacy loss of one feature, >= 0. Epsilon 0 sends m words at random; an infinite one sends the true word for
      certain among m - 1 random ones, which is no privacy at all.
    - `m`: number of words in each subset, 1 to K - 1.

    Raises RangeError for parameters outside their range, and for an epsilon at which the probability of sending the true word
    rounds to 1 (words.md#the-sampler-in-integers).
    """

    dictionary_size: int
    epsilon: float
    m: int

    __repr__ = one_line

    def __post_init__(self) -> None:
        if self.dictionary_size < 2:
            raise RangeError(f"words must be at least 2, got {self.dictionary_size!r}; a single word says nothing")
        if not 1 <= self.m < self.dictionary_size:
            raise RangeError(f"m must be between 1 and words - 1 = {self.dictionary_size - 1}, got {self.m!r}")
        if not self.epsilon >= 0:  # also catches NaN
            raise RangeError(f"epsilon must be >= 0, got {self.epsilon!r}; infinity sends the nearest word for certain")
        # Log-odds first: the exact e^epsilon of a large epsilon has too many digits to be computed.
        log_odds = math.log(self.m) + self.epsilon - math.log(self.dictionary_size - self.m)
        if not math.isinf(self.epsilon) and (log_odds > 40 or float(self.truth) == 1.0):
            raise RangeError(
                f"with epsilon={self.epsilon:g}, m={self.m} and {self.dictionary_size} words the true word is sent with a "
                "probability that rounds to 1; use a smaller epsilon, or infinity if no privacy is wanted"
            )

    @cached_property
    def odds(self) -> Fraction:
        """e^epsilon rounded down (never up) to a multiple of 2^-64, as the sampler uses it; epsilon must be finite.

        Theory: docs/theory/words.md, Eq. 5.
        """
        with localcontext() as context:
            context.prec = 60 + int(self.epsilon / 2.3)
            # At least 1: below 1 the other direction's ratio, its inverse, would exceed e^epsilon.
            return Fraction(max(SCALE, int(Decimal(self.epsilon).exp().next_minus() * SCALE)), SCALE)

    @cached_property
    def truth(self) -> Fraction:
        """Probability p that the true word is sent: Pr(u = 1) of Pittaluga and Zhuang 2023, Eq. 5; words.md, Eq. 2."""
        if math.isinf(self.epsilon):
            return Fraction(1)
        return self.m * self.odds / (self.m * self.odds + self.dictionary_size - self.m)

    def pmf(self, *, contains: bool) -> Fraction:
        """Probability of one given subset that contains the true word, or of one that does not.

        It is Eq. 4 of Pittaluga and Zhuang 2023 with K in place of omega in its numerators: as printed it sums to m / K
        (words.md#the-mechanism).
        """
        if contains:
            return self.truth / math.comb(self.dictionary_size - 1, self.m - 1)
        return (1 - self.truth) / math.comb(self.dictionary_size - 1, self.m)

    def log_pmf(self, *, contains: bool) -> float:
        """Logarithm of `pmf`, for dictionaries whose probabilities underflow (words.md#the-mechanism)."""
        if math.isinf(self.epsilon):
            return -_log_comb(self.dictionary_size - 1, self.m - 1) if contains else -math.inf
        # log(K e^eps) or log K over log((m e^eps + K - m) C(K, m))
        ahead, behind = math.log(self.m) + self.epsilon, math.log(self.dictionary_size - self.m)
        total = max(ahead, behind) + math.log1p(math.exp(-abs(ahead - behind))) + _log_comb(self.dictionary_size, self.m)
        return math.log(self.dictionary_size) + (self.epsilon if contains else 0.0) - total

    @property
    def posterior(self) -> float:
        """Probability that a given word of a sent subset is the true one, if all words were equally likely before.

        Theory: words.md#what-epsilon-means-for-one-feature.
        """
        return float(self.truth) / self.m

    @property
    def other(self) -> Fraction:
        """Probability q that a given word other than the true one is sent (docs/theory/words.md, Eq. 3)."""
        return (self.m - self.truth) / (self.dictionary_size - 1)

    @property
    def bits(self) -> float:
        """Entropy of a subset whose true word is uniform: log2 C(K, m), the least that a feature takes on the wire."""
        return _log_comb(self.dictionary_size, self.m) / math.log(2)

    @property
    def loss(self) -> tuple[Fraction, Fraction]:
        """Probabilities that the privacy loss is +epsilon, and that it is -epsilon; else it is 0 (docs/theory/words.md, Eq. 7).

        Let v be the true word and v' another one. The loss is +epsilon if the subset holds v but not v', -epsilon if it holds
        v' but not v, and 0 if it holds both or neither.
        """
        ahead = self.truth * (1 - Fraction(self.m - 1, self.dictionary_size - 1))
        behind = (1 - self.truth) * Fraction(self.m, self.dictionary_size - 1)
        return ahead, behind

    @property
    def guarantee(self) -> Guarantee:
        """Guarantee for each feature by itself; over features it composes (`veil.ldp.composition`)."""
        return QUANTIZED if math.isinf(self.epsilon) else LocalDP(epsilon=self.epsilon, unit="feature")


def _log_comb(n: int, k: int) -> float:
    """log C(n, k) for an n of any size; its cost grows with the smaller one of k and n - k."""
    k = min(k, n - k)
    return math.fsum(math.log(n - i) for i in range(k)) - math.lgamma(k + 1)
