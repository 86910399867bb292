"""Study of identification: errors on held-out people of thresholds calibrated on others, by the size of the gallery.

People are split at random, again and again: half of them calibrate (`veil_faces.galleries`), the others are enrolled and come
as strangers, in all galleries of a size at once. Beside it stands the threshold of one comparison, which knows nothing of the
size. FPIR and FNIR are the error rates of ISO/IEC 19795-1: of strangers who are accepted, and of enrolled people who are not
named.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float64, Int64

from veil.errors import InputError
from veil.mechanisms.profile import Strategy
from veil.progress import Progress
from veil.randomness import Secret
from veil_faces.collection import IDENTITY, Faces
from veil_faces.comparisons import compared, first_and_last
from veil_faces.galleries import Impostors, bounded_mean, calibrate_open_set, first_alone
from veil_faces.identification import OpenSet, gallery_sizes
from veil_faces.studies.face_study import require_others
from veil_faces.template import FaceClient, TemplateScheme, decoys_digest

PURPOSE = "study"
# Least number of strangers that must be left beside the largest gallery of held-out people.
FEWEST_STRANGERS = 20


@dataclass(frozen=True, kw_only=True)
class IdentificationRow:
    """Mean thresholds for one size of the gallery (`templates`), and their error rates on held-out people, over all splits.

    `fpir_low` and `fpir_high` are the ends of a 95 % interval for as many strangers as one split has. `exceeded` is the share
    of splits in which more strangers were accepted than asked. `single_` marks the threshold of one comparison and its rates.
    The threshold for the size and its rates are None where a split has too few people for the size.
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
    """Distances between some of the people, from last face to first template.

    `mated` are those from each person to itself, NaN where there is one face only.
    """

    distance: Float64[np.ndarray, "people people"]
    mated: Float64[np.ndarray, "people"]

    @property
    def people(self) -> Int64[np.ndarray, "people"]:
        """Numbers of the people."""
        return np.arange(len(self.mated))

    @property
    def impostors(self) -> Impostors:
        """Distances of different people."""
        return Impostors.of(self.distance, self.people, self.people)

    def take(self, rows: Int64[np.ndarray, "some"]) -> _Half:
        """The distances between the people of these rows."""
        return _Half(distance=self.distance[np.ix_(rows, rows)], mated=self.mated[rows])

    def calibrated(self, fpir: float, sizes: Sequence[int]) -> OpenSet:
        """Thresholds for galleries of these sizes that accept at most the share `fpir` of strangers."""
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
    progress: Progress | None = None,
) -> list[IdentificationRow]:
    """Rows of error rates, one for each size of a gallery; probes are compared with templates by p2s.

    Templates are lifted by `lifting` to dimension `m` with decoys from `decoys`, as seen from the decoys' mean if `centered`.
    `fpir` is the share of strangers that may be accepted, `splits` the number of random splits. `sizes` are those of interest,
    by default 1, 2, 3, 5, ...; sizes that a half of the people cannot fill are left out. `progress` is called with the number
    of splits done and of all. Raises InputError for too few people, a face among the decoys, or an impossible scheme.
    """
    require_others(faces, decoys)
    everybody = _everybody(faces, decoys, lifting, m, centered, seed)
    half = len(everybody.mated) // 2
    largest = half - FEWEST_STRANGERS
    if largest < 1:
        raise InputError(f"{len(everybody.mated)} people are too few to part; give {2 * (FEWEST_STRANGERS + 1)} or more")
    tried = [size for size in (sizes or gallery_sizes(largest)) if size <= largest]
    random, results = np.random.default_rng(seed), []
    for split in range(splits):
        order = random.permutation(len(everybody.mated))
        calibrating, held_out = everybody.take(np.sort(order[:half])), everybody.take(np.sort(order[half:]))
        results.append(_rates(calibrating.calibrated(fpir, tried), _single(calibrating, fpir), held_out, tried))
        if progress is not None:
            progress(split + 1, splits)
    strangers = len(everybody.mated) - half
    return [_row(size, strangers, fpir, np.array([one[k] for one in results])) for k, size in enumerate(tried)]


def _everybody(faces: Faces, decoys: Faces, lifting: Strategy, m: int, centered: bool, seed: int) -> _Half:
    scheme = TemplateScheme(
        strategy=lifting, m=m, comparison="p2s", space=faces.space, decoys=decoys_digest(decoys), centered=centered
    )
    secret = Secret(hashlib.sha256(b"veil identification study %d" % seed).digest())
    client = FaceClient(scheme=scheme, decoys=decoys, secret=secret)
    people, _ = faces.classes(IDENTITY)
    first, last = first_and_last(people)
    distance = compared(client, faces, last, first, PURPOSE)
    return _Half(distance=distance, mated=np.where(first == last, np.nan, np.diagonal(distance)))


def _single(half: _Half, fpir: float) -> float:
    """The threshold that accepts the share `fpir` of single comparisons of two people, as if there were no gallery."""
    return float(np.quantile(half.impostors.ranked, fpir))


def _rates(calibration: OpenSet, single: float, held_out: _Half, sizes: Sequence[int]) -> list[list[float]]:
    """Threshold, FPIR and FNIR of held-out people for each size, and then those three of the threshold `single`."""
    impostors, rows = held_out.impostors, []
    for size in sizes:
        fitted = calibration.at(size).threshold if size <= calibration.largest else np.nan
        rows.append([value for threshold in (fitted, single) for value in _rates_at(held_out, impostors, threshold, size)])
    return rows


def _rates_at(held_out: _Half, impostors: Impostors, threshold: float, size: int) -> tuple[float, float, float]:
    """The threshold, and its FPIR and FNIR on held-out people; NaN without a threshold."""
    if np.isnan(threshold):
        return np.nan, np.nan, np.nan
    twice = np.isfinite(held_out.mated)
    named = (held_out.mated[twice] <= threshold) * first_alone(impostors, held_out.mated, size)[twice]
    return threshold, impostors.fpir(size, threshold)[0], float(1 - named.mean()) if twice.any() else np.nan


def _row(size: int, strangers: int, fpir: float, values: Float64[np.ndarray, "splits 6"]) -> IdentificationRow:
    """The row of one size; the columns of `values` are those of `_rates`."""
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
