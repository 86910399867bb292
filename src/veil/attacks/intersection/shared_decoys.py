"""Intersection attack: subspaces that meet share a decoy, and meet in exactly that decoy; no database is needed.

Words are drawn again and again, also within one image (docs/theory/lifting.md, Eq. 8), and every word drawn twice is found.
Known decoys then serve as in the database attack.

Theory: distribution_attacks.md#the-intersection-attack; docs/theory/distribution_attacks.md, Eq. 7-10.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from jaxtyping import Bool, Float64, Int64

from veil.attacks.claims import Estimates, Lists
from veil.attacks.distribution.database import AwayOptions, away_from
from veil.attacks.distribution.nearest import nearby
from veil.distances import pairwise
from veil.errors import InputError, RangeError
from veil.forms import Points, Subspaces
from veil.progress import Progress
from veil.space import Space, require_same

# Features and members of the pool whose distances are held at a time, and pairs that are solved at a time.
FEATURES, POOL, PAIRS = 256, 2048, 4096
# A certificate rests on this: unrelated subspaces come this near with a probability of the order CERTIFIED_TOL^SPARE.
CERTIFIED_TOL, SPARE = 5e-3, 16


@dataclass(frozen=True, kw_only=True)
class MeetingOptions:
    """Tolerances that decide when two subspaces meet, and when their meeting point is known.

    `tol` is the largest distance that counts as 0: above the wire's rounding for exact decoys, the dither's length for decoys
    that are dithered anew for each use (`for_space`), which then have no certificate. Subspaces whose smallest angle has a sine
    below `min_sine` share more than a point, or nearly so, and give no point. Points of one feature within `merge` of each
    other are one decoy.
    """

    tol: float = 2e-3
    min_sine: float = 1e-2
    merge: float = 1e-2

    def __post_init__(self) -> None:
        for name, value in (("tol", self.tol), ("merge", self.merge)):
            if not 0 < value < math.inf:
                raise RangeError(f"{name} must be positive and finite, got {value!r}")
        if not 0 < self.min_sine < 1:
            raise RangeError(f"min_sine must be between 0 and 1, got {self.min_sine!r}")

    @staticmethod
    def for_space(space: Space) -> MeetingOptions:
        """Tolerances that fit the dither of `space` (docs/theory/distribution_attacks.md, Eq. 9)."""
        plain = MeetingOptions()
        return MeetingOptions(tol=max(plain.tol, space.decoy_distance), merge=max(plain.merge, 3 * space.decoy_distance))


@dataclass(frozen=True, kw_only=True, eq=False)
class Meetings:
    """Pairs of a feature and a member of the pool whose subspaces meet, ordered by feature, with their float64 distances."""

    feature: Int64[np.ndarray, "pairs"]
    other: Int64[np.ndarray, "pairs"]
    distance: Float64[np.ndarray, "pairs"]

    def members_by_feature(self, features: int) -> list[Int64[np.ndarray, "_"]]:
        """Rows of the pool that each feature meets, for a form of `features` features."""
        return np.split(self.other, np.searchsorted(self.feature, np.arange(1, features)))


def pooled(form: Subspaces, others: Sequence[Subspaces], *, within: bool) -> Subspaces:
    """Subspaces that the features of `form` are compared with: all of `others`, then `form` itself if `within`.

    Raises InputError if there is nothing to compare with or the dimensions m differ, SpaceError for another space.
    """
    members = [*others, form] if within else list(others)
    if not members:
        raise InputError("there is nothing to intersect with; give other releases, or compare within this one")
    for member in members:
        require_same(form.space, member.space)
        if member.m != form.m:
            raise InputError(f"subspaces of m = {member.m} and m = {form.m} are not pooled; attack them in two runs")
    return replace(
        form,
        origin=np.concatenate([member.origin for member in members]),
        basis=np.concatenate([member.basis for member in members]),
    )


def meetings(
    form: Subspaces, others: Sequence[Subspaces] = (), *, within: bool = True, tol: float, progress: Progress | None = None
) -> Meetings:
    """Pairs of a feature of `form` and a member of `pooled(form, others, within)` at a distance of at most `tol`.

    No feature is paired with itself.
    """
    pool = pooled(form, others, within=within)
    own_start = len(pool) - len(form) if within else len(pool)
    parts: list[tuple[np.ndarray, np.ndarray, np.ndarray]] = []
    for begin in range(0, len(form), FEATURES):
        left = (form.origin[begin : begin + FEATURES], form.basis[begin : begin + FEATURES])
        tiles: list[tuple[np.ndarray, np.ndarray, np.ndarray]] = []
        for start in range(0, len(pool), POOL):
            tile = pairwise(left, (pool.origin[start : start + POOL], pool.basis[start : start + POOL]))
            row, column = np.nonzero(tile <= tol)
            tiles.append((row + begin, column + start, tile[row, column]))
        feature, other, distance = (np.concatenate([part[k] for part in tiles]) for k in range(3))
        order = np.lexsort((other, feature))
        order = order[other[order] != own_start + feature[order]]
        parts.append((feature[order], other[order], distance[order]))
        if progress is not None:
            progress(min(begin + FEATURES, len(form)), len(form))
    if not parts:
        return Meetings(feature=np.zeros(0, dtype=np.int64), other=np.zeros(0, dtype=np.int64), distance=np.zeros(0))
    return Meetings(
        feature=np.concatenate([part[0] for part in parts]),
        other=np.concatenate([part[1] for part in parts]),
        distance=np.concatenate([part[2] for part in parts]),
    )


def meeting_points(
    form: Subspaces, pool: Subspaces, pairs: Meetings, *, min_sine: float
) -> tuple[Float64[np.ndarray, "pairs dim"], Bool[np.ndarray, "pairs"]]:
    """Points of the features' subspaces nearest to the subspaces that they meet, and whether each is the only nearest one.

    They solve (I - C C^T) alpha = u + C v (docs/theory/distances.md, Eq. 3). The eigenvalues of I - C C^T are the squared sines
    of the angles between the subspaces. Where the smallest sine is below `min_sine` they count as sharing a direction, and a
    whole line is nearest (distances.md#what-n-is-and-when-it-is-singular).
    """
    points = np.empty((len(pairs.feature), form.space.dim))
    unique = np.empty(len(pairs.feature), dtype=bool)
    for begin in range(0, len(points), PAIRS):
        part = slice(begin, begin + PAIRS)
        origin, basis = (array[pairs.feature[part]].astype(np.float64) for array in (form.origin, form.basis))
        far, wide = (array[pairs.other[part]].astype(np.float64) for array in (pool.origin, pool.basis))
        offset = (far - origin)[:, :, None]
        cross = basis @ np.swapaxes(wide, 1, 2)
        w = basis @ offset - cross @ (wide @ offset)
        sines, axes = np.linalg.eigh(np.eye(form.m) - cross @ np.swapaxes(cross, 1, 2))
        unique[part] = sines[:, 0] >= min_sine**2
        kept = np.where(sines >= min_sine**2, 1 / np.maximum(sines, min_sine**2), 0)
        alpha = axes @ (kept[:, :, None] * (np.swapaxes(axes, 1, 2) @ w))
        points[part] = origin + (np.swapaxes(basis, 1, 2) @ alpha)[:, :, 0]
    return points, unique


def shared_decoys(
    form: Subspaces,
    others: Sequence[Subspaces] = (),
    *,
    within: bool = True,
    options: MeetingOptions | None = None,
    progress: Progress | None = None,
) -> Lists:
    """Lists of the decoys that each feature shares with others, the most often shared first; empty where there are none.

    A feature is compared with those of `others`, and with those of `form` if `within`. Certified lists hold points that two
    subspaces were made from: their common decoy, or, for two different releases of one descriptor, that descriptor itself
    (release.md#memoized-draws). They are certified where `tol` is at most `CERTIFIED_TOL` and the space has at least `SPARE`
    dimensions more than two subspaces fill.
    """
    options = options or MeetingOptions.for_space(form.space)
    pairs = meetings(form, others, within=within, tol=options.tol, progress=progress)
    points, unique = meeting_points(form, pooled(form, others, within=within), pairs, min_sine=options.min_sine)
    rows = np.split(np.arange(len(points)), np.searchsorted(pairs.feature, np.arange(1, len(form)))) if len(form) else []
    candidates = tuple(_merged(points[row[unique[row]]], options.merge) for row in rows)
    provable = options.tol <= CERTIFIED_TOL and form.space.dim - 2 * form.m >= SPARE
    return Lists(candidates=candidates, certified=np.array([provable and len(decoys) > 0 for decoys in candidates], dtype=bool))


def _merged(points: Float64[np.ndarray, "points dim"], radius: float) -> Float64[np.ndarray, "decoys dim"]:
    """Means of groups of points, largest group first; a group's points lie within `radius` of its first one."""
    groups: list[np.ndarray] = []
    rest = points
    while len(rest):
        near = np.linalg.norm(rest - rest[0], axis=1) <= radius
        groups.append(rest[near])
        rest = rest[~near]
    groups.sort(key=len, reverse=True)
    return np.array([group.mean(axis=0) for group in groups]).reshape(-1, points.shape[1])


def intersection_attack(
    form: Subspaces,
    database: Points,
    others: Sequence[Subspaces] = (),
    *,
    within: bool = True,
    least: int | None = None,
    options: MeetingOptions | None = None,
    away: AwayOptions | None = None,
    progress: Progress | None = None,
) -> tuple[Estimates, Lists]:
    """Estimates from any public `database`, away from the decoys that intersections give, and lists of those decoys.

    This is the database attack with exact decoys, but without the words that they were drawn from. Features with fewer than
    `least` known decoys are undecided: what lies far from the known decoys may lie at an unknown one. None stands for m // 2,
    all decoys of hybrid lifting; adversarial lifting has m. Raises RangeError for a `least` below 1.

    Theory: distribution_attacks.md#the-intersection-attack.
    """
    least = max(1, form.m // 2) if least is None else least
    if least < 1:
        raise RangeError(f"least must be at least 1 decoy, got {least!r}")
    away = away or AwayOptions()
    known = shared_decoys(form, others, within=within, options=options, progress=progress)
    points, confidence = np.full(form.origin.shape, np.nan), np.zeros(len(form))
    rows = np.flatnonzero([len(decoys) >= least for decoys in known.candidates])
    if rows.size:
        subset = form.take(rows)
        nearest = nearby(subset, database, count=min(away.neighbors, len(database)))
        decoys = np.full((len(rows), max(len(known.candidates[row]) for row in rows), form.space.dim), np.nan)
        for index, row in enumerate(rows):
            decoys[index, : len(known.candidates[row])] = known.candidates[row]
        points[rows], confidence[rows] = away_from(subset, database, nearest, decoys, options=away)
    return Estimates(points=points, confidence=confidence, certified=np.zeros(len(form), dtype=bool)), known
