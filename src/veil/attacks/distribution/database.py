"""The database attack: who holds the words that decoys were drawn from finds the decoys, and the descriptor far from them.

[P23] 4.1; docs/theory/distribution_attacks.md. The words that lie on D are its decoys: their distances end in a gap. Of the
entries that come next, those far from every decoy lie around the descriptor.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float64, Int64

from veil.attacks.claims import Estimates
from veil.attacks.distribution.nearest import Nearby, at, coordinates, nearby
from veil.errors import RangeError
from veil.forms import Points, Subspaces
from veil.progress import Progress

# Features at a time: their nearest entries are held together, and the entries' descriptors a smaller block at a time.
FEATURES, GATHERED = 1024, 1 << 22


@dataclass(frozen=True, kw_only=True)
class AwayOptions:
    """How a descriptor is estimated once decoys are known ([P23] leaves the sizes open,
    distribution_attacks.md#the-database-attack).

    `neighbors` is |V|, the entries nearest to D that are looked at, and `kept` is |U|, those of them farthest from the decoys
    that are averaged. `within` measures "far" between projections on D; otherwise in the whole space, as [P23] does.
    `unit_length` moves the estimate to the nearest point of D of length 1 where descriptors have it (Eq. 6 of the theory page).
    Entries nearer than `tol` to D weigh no more than at `tol` (distribution_attacks.md#the-database-attack).
    Tuned on photographs of the ImageNet sample at m = 2, 4, 8, 16: there a larger |V| was better at every m.
    """

    neighbors: int = 2000
    kept: int = 3
    within: bool = True
    unit_length: bool = True
    tol: float = 1e-3

    def __post_init__(self) -> None:
        if not 1 <= self.kept <= self.neighbors:
            raise RangeError(f"kept must be between 1 and neighbors = {self.neighbors!r}, got {self.kept!r}")
        if not 0 < self.tol < math.inf:
            raise RangeError(f"tol must be positive and finite, got {self.tol!r}")


@dataclass(frozen=True, kw_only=True)
class GapOptions:
    """When the words nearest to D count as its decoys.

    `counts` are the numbers of decoys that a subspace may have; None stands for m // 2 (hybrid) and m (adversarial,
    lifting.md#why-m--1-is-not-used). The next word must be `min_ratio` times as far as the last decoy, and distances below
    `tol` count as `tol`: exact decoys lie at the rounding of the release, dithered ones within their dither, other words at a
    distance that grows smoothly. Words nearer than `tol` are certified: another word comes as near by chance with negligible
    probability.
    """

    counts: tuple[int, ...] | None = None
    min_ratio: float = 3.0
    tol: float = 1e-4

    def __post_init__(self) -> None:
        if self.counts is not None and (not self.counts or not all(count >= 1 for count in self.counts)):
            raise RangeError(f"counts must name one number of decoys or more, each at least 1, got {self.counts!r}")
        if not 1 < self.min_ratio < math.inf:
            raise RangeError(f"min_ratio must be above 1 and finite, got {self.min_ratio!r}")
        if not 0 < self.tol < math.inf:
            raise RangeError(f"tol must be positive and finite, got {self.tol!r}")

    def possible(self, m: int) -> tuple[int, ...]:
        """Numbers of decoys to look for, ascending."""
        return tuple(sorted({max(1, m // 2), m})) if self.counts is None else tuple(sorted(set(self.counts)))


@dataclass(frozen=True, kw_only=True, eq=False)
class Decoys:
    """The database rows taken for the decoys of each feature, nearest first, -1 where there is none.

    `count` is 0 where the distances show no gap (distribution_attacks.md#the-database-attack): the database is not the one that
    the decoys came from, or the gap is closed. `ratio` is the largest quotient of successive distances; `certified` marks
    decoys that lie on D exactly.
    """

    rows: Int64[np.ndarray, "features most"]
    count: Int64[np.ndarray, "features"]
    ratio: Float64[np.ndarray, "features"]
    certified: Bool[np.ndarray, "features"]


def decoys_by_gap(found: Nearby, *, m: int, options: GapOptions | None = None) -> Decoys:
    """Decoys from the gap in the distances of the nearest words. Raises RangeError if `found` is too short.

    Theory: distribution_attacks.md#the-database-attack.
    """
    options = options or GapOptions()
    possible = options.possible(m)
    if found.rows.shape[1] <= possible[-1]:
        raise RangeError(f"a gap after {possible[-1]} decoys needs more nearest words than that, got {found.rows.shape[1]}")
    distance = np.maximum(found.distance, options.tol)
    ratios = np.stack([distance[:, count] / distance[:, count - 1] for count in possible], axis=1)
    best = ratios.argmax(axis=1)
    ratio = np.take_along_axis(ratios, best[:, None], axis=1)[:, 0]
    count = np.where(ratio >= options.min_ratio, np.array(possible)[best], 0)
    last = np.take_along_axis(found.distance, np.maximum(count - 1, 0)[:, None], axis=1)[:, 0]
    rows = np.where(np.arange(possible[-1]) < count[:, None], found.rows[:, : possible[-1]], -1)
    return Decoys(rows=rows, count=count, ratio=ratio, certified=(count > 0) & (last <= options.tol))


def find_decoys(
    form: Subspaces, database: Points, *, options: GapOptions | None = None, progress: Progress | None = None
) -> Decoys:
    """The decoys of each subspace among the entries of `database`, which should be the words they were drawn from."""
    options = options or GapOptions()
    found = nearby(form, database, count=options.possible(form.m)[-1] + 1, progress=progress)
    return decoys_by_gap(found, m=form.m, options=options)


def database_attack(
    form: Subspaces,
    database: Points,
    *,
    gap: GapOptions | None = None,
    away: AwayOptions | None = None,
    threads: int = 1,
    progress: Progress | None = None,
) -> tuple[Estimates, Decoys]:
    """Estimates from the words that decoys were drawn from; undecided where the distances show no gap.

    |V| shrinks to what a small database holds. Nothing is certified but the decoys.
    Raises RangeError for a database that is no larger than the number of decoys.
    """
    gap, away = gap or GapOptions(), away or AwayOptions()
    most = gap.possible(form.m)[-1]
    count = max(most + 1, min(most + away.neighbors, len(database)))
    points, confidence = np.full(form.origin.shape, np.nan), np.zeros(len(form))
    parts = []
    for begin in range(0, len(form), FEATURES):
        rows = np.arange(begin, min(begin + FEATURES, len(form)))
        part = form.take(rows)
        found = nearby(part, database, count=count, threads=threads)
        parts.append(decoys_by_gap(found, m=form.m, options=gap))
        kept = np.flatnonzero(parts[-1].count)
        words = database.vectors[np.maximum(parts[-1].rows[kept], 0)].astype(np.float64)
        words[parts[-1].rows[kept] < 0] = np.nan
        points[rows[kept]], confidence[rows[kept]] = away_from(
            part.take(kept), database, _after(found, parts[-1].count, kept, away.neighbors), words, options=away
        )
        if progress is not None:
            progress(begin + len(rows), len(form))
    estimates = Estimates(points=points, confidence=confidence, certified=np.zeros(len(form), dtype=bool))
    return estimates, _joined(parts, most)


def _after(found: Nearby, count: np.ndarray, kept: np.ndarray, neighbors: int) -> Nearby:
    """The entries after the decoys of each feature that is `kept`."""
    width = min(neighbors, found.rows.shape[1] - int(count.max(initial=0)))
    columns = count[kept, None] + np.arange(width)
    return Nearby(
        rows=np.take_along_axis(found.rows[kept], columns, axis=1),
        distance=np.take_along_axis(found.distance[kept], columns, axis=1),
    )


def _joined(parts: list[Decoys], most: int) -> Decoys:
    if not parts:
        none = np.zeros(0)
        return Decoys(
            rows=np.zeros((0, most), dtype=np.int64), count=none.astype(np.int64), ratio=none, certified=none.astype(bool)
        )
    return Decoys(
        rows=np.concatenate([part.rows for part in parts]),
        count=np.concatenate([part.count for part in parts]),
        ratio=np.concatenate([part.ratio for part in parts]),
        certified=np.concatenate([part.certified for part in parts]),
    )


def away_from(
    form: Subspaces,
    database: Points,
    found: Nearby,
    decoys: Float64[np.ndarray, "features most dim"],
    *,
    options: AwayOptions,
) -> tuple[Float64[np.ndarray, "features dim"], Float64[np.ndarray, "features"]]:
    """The points of [P23] Eq. 1 and a confidence: of the entries `found`, the mean of those farthest from the known decoys.

    Rows of `decoys` that are NaN stand for none; without any the nearest entries are averaged.
    """
    points, confidence = np.empty(form.origin.shape), np.empty(len(form))
    step = max(1, GATHERED // max(1, found.rows.shape[1] * form.space.dim))
    for begin in range(0, len(form), step):
        part = slice(begin, begin + step)
        subset = form.take(np.arange(len(form))[part])
        inside = coordinates(subset, database.vectors[found.rows[part]])
        distance = found.distance[part]
        score = _scores(inside, distance, coordinates(subset, decoys[part]), within=options.within)
        best = np.argsort(-score, axis=1, kind="stable")[:, : options.kept]  # ties, as without decoys: the nearest first
        # distribution_attacks.md#the-database-attack
        weight = 1 / np.maximum(np.take_along_axis(distance, best, axis=1), options.tol)
        mean = (np.take_along_axis(inside, best[:, :, None], axis=1) * weight[:, :, None]).sum(axis=1)
        mean /= weight.sum(axis=1)[:, None]
        points[part] = at(subset, moved_to_unit_length(subset, mean)[:, None] if options.unit_length else mean[:, None])[:, 0]
        confidence[part] = 1 / (1 + np.take_along_axis(distance, best, axis=1).min(axis=1))
    return points, confidence


def _scores(inside: np.ndarray, distance: np.ndarray, decoys: np.ndarray, *, within: bool) -> Float64[np.ndarray, "f v"]:
    """Squared distance of each entry to the nearest decoy: on D, or in the whole space by Pythagoras (decoys lie on D)."""
    nearest = np.full(inside.shape[:2], np.inf)
    for column in range(decoys.shape[1]):
        squared = np.square(inside - decoys[:, column, None]).sum(axis=2)
        nearest = np.fmin(nearest, squared)  # NaN stands for no decoy
    return nearest if within else nearest + np.square(distance)


def moved_to_unit_length(form: Subspaces, inside: Float64[np.ndarray, "features m"]) -> Float64[np.ndarray, "features m"]:
    """Coordinates of the nearest point of D at length 1; unchanged behind a PCA, where no length is known.

    As |o + B^T c|^2 = |o|^2 + |c|^2, these points are a sphere of radius sqrt(1 - |o|^2) around c = 0.

    Theory: lifting.md#strategies.
    """
    if form.space.codebook:
        return inside
    radius = np.sqrt(np.maximum(1 - np.square(form.origin.astype(np.float64)).sum(axis=1), 0))
    return inside * (radius / np.maximum(np.linalg.norm(inside, axis=1), 1e-12))[:, None]
