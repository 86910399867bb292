"""Strangers before a gallery: what thresholds calibrated on some people do to others, by size of the gallery.

People are parted at random, again and again: half of them calibrate (`veil.faces.galleries`), the others are enrolled and come
as strangers, in all galleries of a size at once. Beside it the threshold of one comparison, which knows nothing of the size.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float64, Int64

from veil.errors import InputError
from veil.faces.collection import IDENTITY, Faces
from veil.faces.comparisons import compared, first_and_last
from veil.faces.galleries import Impostors, bounded_mean, calibrate_open_set, first_alone
from veil.faces.identification import OpenSet, gallery_sizes
from veil.faces.template import Client, TemplateScheme, decoys_digest
from veil.mechanisms.profile import Strategy
from veil.randomness import Secret
from veil.studies.faces.verification import require_others

PURPOSE = "study"
# Strangers who must be left where a gallery of held-out people is largest.
FEWEST_STRANGERS = 20


@dataclass(frozen=True, kw_only=True)
class IdentificationRow:
    """One size of the gallery, over all splits: mean threshold and what it does to held-out people, with 95 % intervals of as
    many strangers as one split has; `exceeded` is the share of splits in which more strangers were accepted than asked.
    `single_` is the threshold of one comparison. Thresholds are None where a split has too few people for the size.
    """

    templates: int
    strangers: int
    threshold: float | None
    fpir: float | None
    fpir_low: float | None
    fpir_high: float | None
    exceeded: float | None
    fnir: float | None
    single_threshold: float
    single_fpir: float
    single_fpir_low: float
    single_fpir_high: float
    single_fnir: float | None

    def as_json(self) -> dict[str, object]:
        """The stable record of docs/reference/json.md."""
        return {
            "templates": self.templates,
            "strangers": self.strangers,
            "threshold": self.threshold,
            "fpir": self.fpir,
            "fpir_low": self.fpir_low,
            "fpir_high": self.fpir_high,
            "exceeded": self.exceeded,
            "fnir": self.fnir,
            "single_threshold": self.single_threshold,
            "single_fpir": self.single_fpir,
            "single_fpir_low": self.single_fpir_low,
            "single_fpir_high": self.single_fpir_high,
            "single_fnir": self.single_fnir,
        }


@dataclass(frozen=True, kw_only=True, eq=False)
class _Half:
    """Some people among all: their comparisons, and the distances of those who came twice from themselves."""

    distance: Float64[np.ndarray, "people people"]
    mated: Float64[np.ndarray, "people"]

    @property
    def people(self) -> Int64[np.ndarray, "people"]:
        return np.arange(len(self.mated))

    @property
    def impostors(self) -> Impostors:
        return Impostors.of(self.distance, self.people, self.people)

    def take(self, rows: Int64[np.ndarray, "some"]) -> _Half:
        return _Half(distance=self.distance[np.ix_(rows, rows)], mated=self.mated[rows])

    def calibrated(self, fpir: float, sizes: Sequence[int]) -> OpenSet:
        return calibrate_open_set(self.distance, self.people, self.people, mated=self.mated, fpir=fpir, wanted=sizes)


def identification_study(
    faces: Faces,
    decoys: Faces,
    *,
    lifting: Strategy = "hybrid",
    m: int = 4,
    centered: bool = False,
    fpir: float = 0.01,
    splits: int = 20,
    seed: int = 0,
    sizes: Sequence[int] = (),
    progress: Callable[[int, int], None] | None = None,
) -> list[IdentificationRow]:
    """A row for each size of a gallery, probes compared by p2s. `sizes` are those of interest, by default 1, 2, 3, 5, ...

    Raises InputError for too few people, a face among the decoys, or an impossible scheme.
    """
    require_others(faces, decoys)
    everybody = _everybody(faces, decoys, lifting, m, centered, seed)
    half = len(everybody.mated) // 2
    largest = half - FEWEST_STRANGERS
    if largest < 1:
        raise InputError(f"{len(everybody.mated)} people are too few to part; give {2 * (FEWEST_STRANGERS + 1)} or more")
    tried = [size for size in (sizes or gallery_sizes(largest)) if size <= largest]
    random, found = np.random.default_rng(seed), []
    for split in range(splits):
        order = random.permutation(len(everybody.mated))
        ours, others = everybody.take(np.sort(order[:half])), everybody.take(np.sort(order[half:]))
        found.append(_tried(ours.calibrated(fpir, tried), _single(ours, fpir), others, tried))
        if progress is not None:
            progress(split + 1, splits)
    strangers = len(everybody.mated) - half
    return [_row(size, strangers, fpir, np.array([one[k] for one in found])) for k, size in enumerate(tried)]


def _everybody(faces: Faces, decoys: Faces, lifting: Strategy, m: int, centered: bool, seed: int) -> _Half:
    scheme = TemplateScheme(
        strategy=lifting, m=m, comparison="p2s", space=faces.space, decoys=decoys_digest(decoys), centered=centered
    )
    secret = Secret(hashlib.sha256(b"veil identification study %d" % seed).digest())
    client = Client(scheme=scheme, decoys=decoys, secret=secret)
    people, _ = faces.classes(IDENTITY)
    first, last = first_and_last(people)
    distance = compared(client, faces, last, first, PURPOSE)
    return _Half(distance=distance, mated=np.where(first == last, np.nan, np.diagonal(distance)))


def _single(half: _Half, fpir: float) -> float:
    """The threshold that accepts a share `fpir` of single comparisons of two people: what one would take without a gallery."""
    return float(np.quantile(half.impostors.ranked, fpir))


def _tried(found: OpenSet, single: float, others: _Half, sizes: Sequence[int]) -> list[list[float]]:
    """For each size: threshold, FPIR and FNIR of held-out people, and the same of the single comparison's threshold."""
    impostors, rows = others.impostors, []
    for size in sizes:
        fitted = found.at(size).threshold if size <= found.largest else np.nan
        rows.append([value for threshold in (fitted, single) for value in _held_out(others, impostors, threshold, size)])
    return rows


def _held_out(others: _Half, impostors: Impostors, threshold: float, size: int) -> tuple[float, float, float]:
    if np.isnan(threshold):
        return np.nan, np.nan, np.nan
    twice = np.isfinite(others.mated)
    named = (others.mated[twice] <= threshold) * first_alone(impostors, others.mated, size)[twice]
    return threshold, impostors.fpir(size, threshold)[0], float(1 - named.mean()) if twice.any() else np.nan


def _row(size: int, strangers: int, fpir: float, values: Float64[np.ndarray, "splits 6"]) -> IdentificationRow:
    means = [None if np.isnan(column).any() else float(column.mean()) for column in values.T]
    low, high = (None, None) if means[1] is None else bounded_mean(means[1], strangers)
    assert means[3] is not None and means[4] is not None
    single_low, single_high = bounded_mean(means[4], strangers)
    return IdentificationRow(
        templates=size,
        strangers=strangers,
        threshold=means[0],
        fpir=means[1],
        fpir_low=low,
        fpir_high=high,
        exceeded=None if means[1] is None else float((values[:, 1] > fpir).mean()),
        fnir=means[2],
        single_threshold=means[3],
        single_fpir=means[4],
        single_fpir_low=single_low,
        single_fpir_high=single_high,
        single_fnir=means[5],
    )
