"""Plans of releases in words: dictionary size, subset size and number of features for an epsilon of the image.

A plan is arithmetic on the mechanism's law alone. It does not know how often two views of one point fall on one word, nor what
the map shows: only a trial with the dictionary in question tells (`veil evaluate`).

Theory: release.md#what-an-epsilon-of-the-image-can-buy.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import product

from veil.errors import RangeError, Remedy
from veil.geometry.robust.acceptance import Acceptance
from veil.geometry.robust.significance import pose_log10_nfa
from veil.ldp.composition import composed_epsilon
from veil.ldp.mechanism import SubsetMechanism
from veil.one_line import one_line

# Epsilons of features are plan_release on this grid, so that the printed epsilon is the one that was accounted.
STEP = 1e-3
# Samples of three candidates that localization by words may take (Pittaluga and Zhuang 2023 draw ten million,
# words.md#search-among-groups).
MAX_SAMPLES = 1e7
# Map and picture for which a release is planned unless others are named.
MAP_FEATURES, WIDTH_PX, HEIGHT_PX = 10_000, 1024, 768
# Log-odds of the true word beyond which it is missing but once in 10^9 times: more epsilon would buy nothing.
_CERTAIN = 20.0


@dataclass(frozen=True, kw_only=True)
class PlannedPlace:
    """Map and picture that a release is matched with.

    - `map_features`: number of descriptors in the map, taken as spread evenly over the words.
    - `width_px`, `height_px`: size of the query's picture in pixels.

    Raises RangeError if one of them is less than 1.
    """

    map_features: int = MAP_FEATURES
    width_px: int = WIDTH_PX
    height_px: int = HEIGHT_PX

    __repr__ = one_line

    def __post_init__(self) -> None:
        if min(self.map_features, self.width_px, self.height_px) < 1:
            raise RangeError("a place needs at least one map feature and one pixel")


@dataclass(frozen=True, kw_only=True)
class ReleasePlan:
    """Plan of a release in words: its cost in epsilon, and what it can be worth for localization.

    - `mechanism`: the law of the subsets.
    - `features`: number of features of the image that are sent.
    - `delta`, `image_epsilon`: the promise for the whole image.
    - `candidates`: map features that a sent feature's words call up by chance.
    - `needed`: least number of inliers of an accepted pose.
    """

    mechanism: SubsetMechanism
    features: int
    delta: float
    image_epsilon: float
    candidates: float
    needed: int

    __repr__ = one_line

    @property
    def truth(self) -> float:
        """Probability p that a feature's true word is sent."""
        return float(self.mechanism.truth)

    @property
    def true_words(self) -> float:
        """Expected number of features whose true word is sent, N p: the most inliers to hope for (release.md, Eq. 8)."""
        return self.features * self.truth

    @property
    def margin(self) -> float:
        """Score of the plan: expected true words less the least number of inliers of an accepted pose (release.md, Eq. 9)."""
        return self.true_words - self.needed

    @property
    def samples(self) -> float:
        """Mean number of samples of three candidates until one holds true words only."""
        return (1 + self.features * self.candidates / self.true_words) ** 3

    @property
    def possible(self) -> bool:
        """Whether a pose can be expected at all, supposing that the map confirms every true word."""
        return self.margin > 0 and self.samples <= MAX_SAMPLES


def plan_release(
    *,
    image_epsilon: float,
    delta: float,
    features: Sequence[int],
    words: Sequence[int],
    subset_sizes: Sequence[int],
    map_features: int = MAP_FEATURES,
    width_px: int = WIDTH_PX,
    height_px: int = HEIGHT_PX,
) -> list[ReleasePlan]:
    """Plans for all combinations of a number of features, K and m, with possible plans first and the best margins first.

    - `image_epsilon`, `delta`: the promise for the whole image; each plan spends at most this.
    - `features`: numbers of features to try.
    - `words`: dictionary sizes K to try.
    - `subset_sizes`: numbers m of words in a subset to try; combinations with m >= K are left out.
    - `map_features`: number of descriptors in the map, taken as spread evenly over the words.
    - `width_px`, `height_px`: size of the query's picture in pixels.

    Raises RangeError for an epsilon that is negative or infinite, a map or picture without a feature or pixel, and
    if no m is less than a K.
    """
    if not 0 <= image_epsilon < math.inf:
        raise RangeError(f"the image's epsilon must be finite and >= 0, got {image_epsilon!r}; infinity limits nothing")
    triples = [(n, k, m) for n, k, m in product(features, words, subset_sizes) if m < k]
    if not triples:
        raise RangeError(
            "no subset size is less than a number of words",
            remedy=(Remedy("raise", "plan_release.words"), Remedy("lower", "plan_release.subset_sizes")),
        )
    place = PlannedPlace(map_features=map_features, width_px=width_px, height_px=height_px)
    plans = [_plan(n, k, m, image_epsilon, delta, place) for n, k, m in triples]
    # Of equal margins, fewer features come first, then a smaller dictionary.
    return sorted(
        plans,
        key=lambda plan: (not plan.possible, -plan.margin, plan.features, plan.mechanism.dictionary_size, plan.mechanism.m),
    )


def _plan(features: int, words: int, m: int, image_epsilon: float, delta: float, place: PlannedPlace) -> ReleasePlan:
    """Plan of one combination, with the largest epsilon of a feature that the image's epsilon allows."""
    mechanism = most_telling(words, m, features, image_epsilon, delta)
    candidates = candidates_by_chance(mechanism, place)
    return ReleasePlan(
        mechanism=mechanism,
        features=features,
        delta=delta,
        image_epsilon=composed_epsilon({mechanism: features}, delta),
        candidates=candidates,
        needed=needed_inliers(features, mechanism, candidates, place),
    )


def most_telling(words: int, m: int, features: int, image_epsilon: float, delta: float) -> SubsetMechanism:
    """Mechanism with the largest epsilon of a feature with which `features` features compose to at most `image_epsilon`.

    Its epsilon is a multiple of 0.001. `words` is the dictionary size K.
    """

    def at(steps: int) -> SubsetMechanism:
        return SubsetMechanism(dictionary_size=words, epsilon=round(steps * STEP, 3), m=m)

    # Epsilon 0 costs nothing, and at the upper end the true word is sent for certain.
    low, high = 0, math.ceil((math.log(words / m) + _CERTAIN) / STEP)
    if composed_epsilon({at(high): features}, delta) <= image_epsilon:
        return at(high)
    while high - low > 1:
        middle = (low + high) // 2
        fits = composed_epsilon({at(middle): features}, delta) <= image_epsilon
        low, high = (middle, high) if fits else (low, middle)
    return at(low)


def candidates_by_chance(mechanism: SubsetMechanism, place: PlannedPlace) -> float:
    """Mean number of map features that a feature's words call up by chance: m words of map_features / K features each."""
    return mechanism.m * place.map_features / mechanism.dictionary_size


def needed_inliers(features: int, mechanism: SubsetMechanism, candidates: float, place: PlannedPlace) -> int:
    """Least number of inliers with which a pose is accepted; one more than there are matches if none suffices.

    It follows docs/theory/localization.md, Eq. 3, with c^3 ways to choose the candidates of a sample, c being the `candidates`
    of a feature. A feature is matched if its words call up anything, by chance or because its true word was sent. It agrees
    with a wrong pose if one of its candidates does.
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
    """Pairs (epsilon of the image, expected true words) for each of the `epsilons` of a feature, for a figure of the trade-off.

    `words` is the dictionary size K, and `delta` that of the image's epsilon.
    """
    points = []
    for epsilon in epsilons:
        mechanism = SubsetMechanism(dictionary_size=words, epsilon=epsilon, m=m)
        points.append((composed_epsilon({mechanism: features}, delta), features * float(mechanism.truth)))
    return points
