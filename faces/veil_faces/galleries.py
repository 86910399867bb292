"""False positives of whole galleries, over all galleries of a size, with intervals, from single impostor comparisons.

Every stranger is compared with all templates of others; of these, any N are a gallery. The share of galleries that accept the
stranger needs no sampling: if k of G templates are near enough, it is 1 - C(G - k, N) / C(G, N). The mean over strangers is the
FPIR. Its interval is that of a bootstrap which draws people again, as strangers and as templates at once: some are near to
everybody. It is believed only where 30 strangers, and 30 templates, were ever too near (the rule of 30 of ISO/IEC 19795-1):
with fewer, one template that nobody has seen, near to many, would spoil a large gallery, and nothing at hand could tell.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property

import numpy as np
from jaxtyping import Float64, Int64

from veil.errors import InputError, RangeError
from veil_faces.identification import TAIL, GallerySize, OpenSet, gallery_sizes, largest_gallery

RESAMPLES = 400
# Least number of errors, by different people, from which resampling can be believed.
ENOUGH = 30


@dataclass(frozen=True, kw_only=True, eq=False)
class Impostors:
    """Distances of strangers from templates of other people, G a row.

    - `ranked`, float64 (strangers, G): distances, ascending in each row.
    - `others`, int64 (strangers, G): the person of each of these templates.
    - `strangers`, int64 (strangers,): the person of each row.
    """

    ranked: Float64[np.ndarray, "strangers others"]
    others: Int64[np.ndarray, "strangers others"]
    strangers: Int64[np.ndarray, "strangers"]

    @staticmethod
    def of(
        distance: Float64[np.ndarray, "probes templates"],
        probe_person: Int64[np.ndarray, "probes"],
        template_person: Int64[np.ndarray, "templates"],
    ) -> Impostors:
        """The comparisons of different people among all `distance`; rows are cut to the shortest, the farthest dropped."""
        apart = np.where(probe_person[:, None] == template_person, np.inf, distance)
        length = int(np.isfinite(apart).sum(axis=1).min(initial=distance.shape[1]))
        order = np.argsort(apart, axis=1, kind="stable")[:, :length]
        ranked = np.take_along_axis(apart, order, axis=1)
        return Impostors(ranked=ranked, others=template_person[order], strangers=probe_person)

    @property
    def gallery(self) -> int:
        """Number G of templates that each stranger was compared with."""
        return self.ranked.shape[1]

    def parts(self, size: int) -> tuple[int, int]:
        """Number of parts that a gallery of `size` is split into, and the size of one; a single part if templates suffice."""
        parts = max(1, math.ceil(size / self.gallery))
        return parts, math.ceil(size / parts)

    def fpir(self, size: int, threshold: float) -> tuple[float, float, float, float]:
        """FPIR of galleries of `size` templates at a threshold, both ends of its 95 % interval, and a bound for any strangers.

        The bound is the one for means of independent values in [0, 1], one for each stranger (Hoeffding 1963, Theorem 1,
        Eq. 2.1). A gallery larger than the templates at hand is split into c parts: a stranger whom one part accepts with
        probability p is accepted by one of c with 1 - (1 - p)^c. This is concave in p, so that its mean over strangers is at
        most its value at the mean (Jensen).
        """
        parts, part = self.parts(size)
        mean = self._mean(part, threshold)
        again = np.quantile(self._resampled(part, threshold), [TAIL, 1 - TAIL])
        bound = bounded_mean(mean, len(self.ranked))[1]
        rates = [1 - (1 - float(value)) ** parts for value in (mean, min(again[0], mean), max(again[1], mean), bound)]
        return rates[0], rates[1], rates[2], rates[3]

    def threshold(self, size: int, fpir: float) -> float | None:
        """The largest distance at which the upper end of the FPIR's interval does not exceed `fpir`.

        None where fewer than 30 different strangers or templates would be too near at this distance, and nothing can be said.
        The upper end grows with the threshold, so bisection finds it, and it holds for the threshold that is chosen.
        """
        parts, part = self.parts(size)
        allowed = 1 - (1 - fpir) ** (1 / parts) + 1e-12
        last = self._last(lambda t: self._mean(part, t) <= allowed, len(self._steps) - 1)
        last = self._last(lambda t: float(np.quantile(self._resampled(part, t), 1 - TAIL)) <= allowed, last)
        return float(self._steps[last]) if last >= 0 and self._is_seen_often(float(self._steps[last])) else None

    def _mean(self, part: int, threshold: float) -> float:
        return float(accepting((self.ranked <= threshold).sum(axis=1), self.gallery, part).mean())

    def _is_seen_often(self, threshold: float) -> bool:
        """Whether resampling can be believed at a threshold: 30 different strangers and templates are too near (rule of 30)."""
        rows, columns = np.nonzero(self.ranked <= threshold)
        return min(len(np.unique(rows)), len(np.unique(self.others[rows, columns]))) >= ENOUGH

    def _last(self, allowed: Callable[[float], bool], high: int) -> int:
        """Number of the last allowed distance among `_steps` up to `high`, -1 if none is; allowed ones have no gaps."""
        if high < 0 or allowed(float(self._steps[high])):
            return high
        low = -1
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if allowed(float(self._steps[middle])) else (low, middle)
        return low

    @cached_property
    def _steps(self) -> Float64[np.ndarray, "steps"]:
        """All different distances, ascending: the possible thresholds."""
        return np.unique(self.ranked)

    @cached_property
    def _weights(self) -> Int64[np.ndarray, "people resamples"]:
        """Number of times that each person is drawn in every resample; rows are persons by number."""
        people = int(max(self.others.max(), self.strangers.max())) + 1
        known = np.union1d(self.strangers, np.unique(self.others))
        random = np.random.default_rng(0)
        weights = np.zeros((people, RESAMPLES), dtype=np.int64)
        weights[known] = random.multinomial(len(known), np.full(len(known), 1 / len(known)), size=RESAMPLES).T
        return weights

    def _resampled(self, size: int, threshold: float) -> Float64[np.ndarray, "resamples"]:
        """FPIR in every resample, where people are drawn again, as strangers and as templates alike."""
        from scipy.sparse import csr_array

        rows, columns = np.nonzero(self.ranked <= threshold)
        hit = csr_array(
            (np.ones(len(rows), dtype=np.int64), (rows, self.others[rows, columns])),
            shape=(len(self.strangers), len(self._weights)),
        )
        near, drawn = hit @ self._weights, self._weights[self.strangers]
        some, resample = np.nonzero((near > 0) & (drawn > 0))
        shares = accepting(np.minimum(near[some, resample], self.gallery), self.gallery, size)
        total = np.bincount(resample, weights=shares * drawn[some, resample], minlength=RESAMPLES)
        return total / drawn.sum(axis=0)


def accepting(near: Int64[np.ndarray, "rows"], gallery: int, size: int) -> Float64[np.ndarray, "rows"]:
    """Share of galleries, of `size` templates among `gallery`, that hold at least one of the `near` too near ones."""
    return 1 - _without(near, gallery, size)


def _without(near: Int64[np.ndarray, "rows"], gallery: int, size: int) -> Float64[np.ndarray, "rows"]:
    """Share of galleries of N = `size` templates that hold none of k = `near`: C(G - k, N) / C(G, N)."""
    from scipy.special import gammaln

    far = gallery - near
    possible = far >= size
    rest = np.maximum(far, size)
    share = np.exp(gammaln(rest + 1) - gammaln(rest - size + 1) - gammaln(gallery + 1) + gammaln(gallery - size + 1))
    return np.where(possible, np.minimum(share, 1.0), 0.0)


def first_alone(impostors: Impostors, mated: Float64[np.ndarray, "probes"], size: int) -> Float64[np.ndarray, "probes"]:
    """Share of galleries of `size` that hold the probe's person in which this person is nearest, for every probe.

    `mated` are the distances from the own templates; where one is NaN the share is 0.
    """
    nearer = (impostors.ranked < mated[:, None]).sum(axis=1)
    parts, _ = impostors.parts(max(1, size - 1))
    share = _without(nearer, impostors.gallery, math.ceil((size - 1) / parts)) ** parts
    return np.where(np.isfinite(mated), share, 0.0)


def bounded_mean(mean: float, count: int) -> tuple[float, float]:
    """The 95 % interval of the mean of `count` independent values in [0, 1], from their observed mean.

    Hoeffding 1963, Theorem 1: a mean as far from its expectation q as `mean` is has a probability of at most
    exp(-count KL(mean, q)), KL of two coins. At 0 or 1 this is the exact interval of a share.
    """
    limit = -math.log(TAIL) / count

    def excess(q: float) -> float:
        kept = 0.0 if mean <= 0 else mean * math.log(mean / q)
        lost = 0.0 if mean >= 1 else (1 - mean) * math.log((1 - mean) / (1 - q))
        return kept + lost - limit

    tiny = 1e-12
    low = 0.0 if mean <= tiny else _root(excess, mean, tiny)
    return low, 1.0 if mean >= 1 - tiny else _root(excess, mean, 1 - tiny)


def _root(excess: Callable[[float], float], inner: float, outer: float) -> float:
    """Point between `inner` and `outer` where the growing `excess` becomes positive, by bisection; `outer` if it never does."""
    if excess(outer) <= 0:
        return outer
    for _ in range(60):
        middle = (inner + outer) / 2
        inner, outer = (inner, middle) if excess(middle) > 0 else (middle, outer)
    return outer


def calibrate_open_set(
    distance: Float64[np.ndarray, "probes templates"],
    probe_person: Int64[np.ndarray, "probes"],
    template_person: Int64[np.ndarray, "templates"],
    *,
    mated: Float64[np.ndarray, "probes"],
    fpir: float,
    wanted: Sequence[int] = (),
) -> OpenSet:
    """Thresholds of identification for galleries of all sizes that these comparisons allow.

    - `distance`: of probes from templates, with one probe and one template of each person, in any order. Distances of a person
      from the own template are not used.
    - `probe_person`, `template_person`: number of the person of each probe and template.
    - `mated`: distance of each probe from a template of the same person by another picture, NaN where there is none.
    - `fpir`: largest share of strangers who may be accepted, in (0, 1).
    - `wanted`: sizes of galleries that get thresholds of their own.

    Raises RangeError for an impossible FPIR, InputError for two probes or templates of a person.
    """
    if not 0 < fpir < 1:
        raise RangeError(f"an FPIR lies between 0 and 1, got {fpir!r}; 0.01 is one stranger in a hundred")
    if len(np.unique(probe_person)) < len(probe_person) or len(np.unique(template_person)) < len(template_person):
        raise InputError("each person gives one probe and one template; more of one person are no more strangers")
    impostors = Impostors.of(distance, probe_person, template_person)
    people, twice = min(distance.shape), int(np.isfinite(mated).sum())
    fitted = []
    for size in gallery_sizes(largest_gallery(people, fpir), wanted):
        threshold = impostors.threshold(size, fpir)
        if threshold is None:
            break
        fitted.append(_with_fnir(impostors, mated, threshold, size))
    return OpenSet(asked=fpir, people=people, mated=twice, sizes=tuple(fitted))


def _with_fnir(impostors: Impostors, mated: Float64[np.ndarray, "probes"], threshold: float, size: int) -> GallerySize:
    """The record of one size with its FPIR and, where people came twice, its FNIR at rank 1."""
    fpir, low, high, bound = impostors.fpir(size, threshold)
    fitted = GallerySize(templates=size, threshold=threshold, fpir=fpir, fpir_low=low, fpir_high=high, fpir_bound=bound)
    twice = np.isfinite(mated)
    if not twice.any():
        return fitted
    missed = 1 - (mated[twice] <= threshold) * first_alone(impostors, mated, size)[twice]
    fnir_low, fnir_high = bounded_mean(float(missed.mean()), int(twice.sum()))
    return GallerySize(**{**asdict(fitted), "fnir": float(missed.mean()), "fnir_low": fnir_low, "fnir_high": fnir_high})
