"""Which dictionary size, subset size and number of features are best for an epsilon of the image (docs/theory/release.md).

The plan is arithmetic on the mechanism's law alone. It does not know how often two views of one point fall on one word, nor
what the map shows: only a trial with the dictionary in question tells (`veil evaluate`).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import product

from veil.errors import RangeError
from veil.geometry.robust.acceptance import Acceptance
from veil.geometry.robust.significance import pose_log10_nfa
from veil.ldp.composition import composed_epsilon
from veil.ldp.mechanism import SubsetMechanism

# Epsilons of features are planned on this grid, so that the one that is printed is the one that was accounted.
STEP = 1e-3
# Samples of three that localization by words is given (Pittaluga and Zhuang 2023 draw ten million,
# words.md#search-among-groups).
MAX_SAMPLES = 1e7
# Beyond it the true word is sent but once in 10^9 times not: more epsilon would buy nothing.
_CERTAIN = 20.0


@dataclass(frozen=True, kw_only=True)
class Place:
    """What a release is matched with: `map_features` descriptors, spread evenly over the words, and the picture's size."""

    map_features: int = 10_000
    width_px: int = 1024
    height_px: int = 768

    def __post_init__(self) -> None:
        if min(self.map_features, self.width_px, self.height_px) < 1:
            raise RangeError("a place needs at least one map feature and one pixel")


@dataclass(frozen=True, kw_only=True)
class Plan:
    """`features` features of an image under `mechanism`: what that costs at `delta`, and what it can be worth."""

    mechanism: SubsetMechanism
    features: int
    delta: float
    image_epsilon: float
    candidates: float
    needed: int

    @property
    def truth(self) -> float:
        """Probability p that a feature's true word is sent."""
        return float(self.mechanism.truth)

    @property
    def true_words(self) -> float:
        """Expected features of the image whose true word is sent: N p, the most inliers that one can hope for."""
        return self.features * self.truth

    @property
    def margin(self) -> float:
        """The score: expected true words less the inliers that a pose needs to be better than chance."""
        return self.true_words - self.needed

    @property
    def samples(self) -> float:
        """Samples of three candidates until one holds true words only, on average."""
        return (1 + self.features * self.candidates / self.true_words) ** 3

    @property
    def possible(self) -> bool:
        """Whether a pose can be expected at all, if every true word were confirmed by the map."""
        return self.margin > 0 and self.samples <= MAX_SAMPLES


def planned(
    *,
    image_epsilon: float,
    delta: float,
    features: Sequence[int],
    words: Sequence[int],
    subset_sizes: Sequence[int],
    place: Place | None = None,
) -> list[Plan]:
    """One plan for each number of features, K and m that go together: possible ones first, the best margin first.

    Raises RangeError for an epsilon that is negative or infinite, and if no m is less than a K.
    """
    if not 0 <= image_epsilon < math.inf:
        raise RangeError(f"the image's epsilon must be finite and >= 0, got {image_epsilon!r}; infinity limits nothing")
    triples = [(n, k, m) for n, k, m in product(features, words, subset_sizes) if m < k]
    if not triples:
        raise RangeError("no subset size is less than a number of words; give larger --words or smaller --m")
    plans = [_plan(n, k, m, image_epsilon, delta, place or Place()) for n, k, m in triples]
    # Equal margins: rather fewer features, then a smaller dictionary.
    return sorted(
        plans, key=lambda plan: (not plan.possible, -plan.margin, plan.features, plan.mechanism.words, plan.mechanism.m)
    )


def _plan(features: int, words: int, m: int, image_epsilon: float, delta: float, place: Place) -> Plan:
    mechanism = most_telling(words, m, features, image_epsilon, delta)
    candidates = candidates_by_chance(mechanism, place)
    return Plan(
        mechanism=mechanism,
        features=features,
        delta=delta,
        image_epsilon=composed_epsilon({mechanism: features}, delta),
        candidates=candidates,
        needed=needed_inliers(features, mechanism, candidates, place),
    )


def most_telling(words: int, m: int, features: int, image_epsilon: float, delta: float) -> SubsetMechanism:
    """The mechanism with the largest epsilon a feature, a multiple of 0.001, of which `features` compose to at most
    `image_epsilon`."""

    def at(steps: int) -> SubsetMechanism:
        return SubsetMechanism(words=words, epsilon=round(steps * STEP, 3), m=m)

    # Epsilon 0 costs nothing, and what is certain needs no more.
    low, high = 0, math.ceil((math.log(words / m) + _CERTAIN) / STEP)
    if composed_epsilon({at(high): features}, delta) <= image_epsilon:
        return at(high)
    while high - low > 1:
        middle = (low + high) // 2
        fits = composed_epsilon({at(middle): features}, delta) <= image_epsilon
        low, high = (middle, high) if fits else (low, middle)
    return at(low)


def candidates_by_chance(mechanism: SubsetMechanism, place: Place) -> float:
    """Map features that a sent feature's words call up by chance: m words, each of map_features / K features."""
    return mechanism.m * place.map_features / mechanism.words


def needed_inliers(features: int, mechanism: SubsetMechanism, candidates: float, place: Place) -> int:
    """The fewest inliers with which a pose is accepted (docs/theory/localization.md, Eq. 3, with c^3 ways to choose candidates
    for a sample), or more than there are matches.

    A feature is matched if its words call up something, by chance or because its true word was sent; it agrees with a wrong
    pose if one of its candidates does.
    """
    options = Acceptance()
    called = 1 - math.exp(-candidates) * (1 - float(mechanism.truth))
    matched = max(round(features * called), options.min_inliers)
    each = max(1.0, candidates)
    one = min(1.0, math.pi * options.max_error_px**2 / (place.width_px * place.height_px))
    agreement = -math.expm1(each * math.log1p(-one)) if one < 1 else 1.0
    for inliers in range(options.min_inliers, matched + 1):
        if pose_log10_nfa(inliers, matched, agreement) + 3 * math.log10(each) <= options.max_log10_nfa:
            return inliers
    return matched + 1


def curve(words: int, m: int, features: int, delta: float, epsilons: Iterable[float]) -> list[tuple[float, float]]:
    """Epsilon of the image and expected true words, for each epsilon of a feature: the trade that a figure shows."""
    points = []
    for epsilon in epsilons:
        mechanism = SubsetMechanism(words=words, epsilon=epsilon, m=m)
        points.append((composed_epsilon({mechanism: features}, delta), features * float(mechanism.truth)))
    return points
