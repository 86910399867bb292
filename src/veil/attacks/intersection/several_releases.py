"""Repeat attack on one release: its subspaces meet those of other releases of the same photograph."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from jaxtyping import Int64

from veil.attacks.attack import Attempt
from veil.attacks.claims import Estimates, no_release, undecided
from veil.attacks.intersection.repeat import SAME_PLACE_PX, PairGaps, pair_with_each, repeat_descriptors
from veil.attacks.target import ReleasedImage, Target
from veil.forms import Subspaces

REPEATS = "a second release of the same photograph"
# Two releases of one photograph share nearly all features; two views share less than half of them, and next to no position.
SAME_PHOTOGRAPH = 0.5


@dataclass(frozen=True, kw_only=True, eq=False)
class Repeat:
    """Another release of the attacked photograph, with the pairs (attacked row, row of the other release) that meet.

    `seconds` is the processor time that pairing took. `is_sure` says whether positions show that it is one photograph. Without
    them a pair may meet in a decoy that both releases drew, and proves nothing unless the pool is known.
    """

    form: Subspaces
    pairs: Int64[np.ndarray, "_ 2"]
    seconds: float
    is_sure: bool


def repeat_attack(target: Target) -> Attempt:
    """Estimates of the descriptors from further releases of this photograph. Raises CannotRun if there is none."""
    releases = repeats(target)
    if not releases:
        raise no_release(len(target.knowledge.others), "of this photograph, in this space and dimension")
    with target.timer() as clock:
        estimates = _surest(target.attacked_subspaces, list(releases.values()), pool_is_known=target.pool is not None)
    seconds = clock.seconds + sum(item.seconds for item in releases.values())
    return Attempt(label="repeat", rows=target.rows, claim=estimates, seconds=seconds)


def repeats(target: Target) -> dict[int, Repeat]:
    """Releases of the attacked photograph, by their place among `target.comparable_releases`; computed once for a target.

    Positions tell them from other views. Where lines hide positions, a release counts as one of this photograph if most of the
    attacked features have a partner in it.
    """
    if "repeats" not in target.cache:
        target.cache["repeats"] = _repeats(target)
    return target.cache["repeats"]


def _repeats(target: Target) -> dict[int, Repeat]:
    releases, pool = dict(enumerate(target.comparable_releases)), target.pool
    placed = {place: _by_positions(target.image, other) for place, (other, _) in releases.items()}
    likely = [place for place, same in placed.items() if same is not False]
    if not likely:
        return {}
    with target.timer() as clock:
        pairs = pair_with_each(
            target.attacked_subspaces,
            [releases[place][1] for place in likely],
            decoys=None if pool is None else pool.vectors.astype(np.float64),
            gaps_px=[_gaps(target, releases[place][0]) for place in likely],
            threads=target.effort.threads,
        )
    return {
        place: Repeat(form=releases[place][1], pairs=rows, seconds=clock.seconds / len(likely), is_sure=bool(placed[place]))
        for place, rows in zip(likely, pairs, strict=True)
        if placed[place] or len(rows) > SAME_PHOTOGRAPH * len(target.rows)
    }


def _gaps(target: Target, other: ReleasedImage) -> PairGaps | None:
    """Function that gives the distance in pixels between both features of each pair; None where lines hide positions."""
    own = target.image.keypoints
    if own is None or other.keypoints is None:
        return None
    left, right = own[target.rows].astype(np.float64), other.keypoints.astype(np.float64)
    return lambda pairs: np.linalg.norm(left[pairs[:, 0]] - right[pairs[:, 1]], axis=1)


def _surest(form: Subspaces, releases: Sequence[Repeat], *, pool_is_known: bool) -> Estimates:
    """Estimates of the attacked features, each from the other release that gives the highest confidence.

    Certificates hold where positions pair the features, or where the pool tells which meetings are those of decoys.
    """
    best = undecided(len(form), form.space.dim)
    for item in releases:
        if len(item.pairs):
            estimates = repeat_descriptors([form.take(item.pairs[:, 0]), item.form.take(item.pairs[:, 1])])
            proved = estimates.certified & (item.is_sure or pool_is_known)
            estimates = replace(estimates, certified=proved)
            best = _more_confident(best, estimates, item.pairs[:, 0])
    return best


def _more_confident(best: Estimates, new: Estimates, rows: np.ndarray) -> Estimates:
    """Copy of `best` in which the estimates `new` of the features `rows` replace less confident ones."""
    points, confidence, certified = best.points.copy(), best.confidence.copy(), best.certified.copy()
    surer = new.confidence > confidence[rows]
    into = rows[surer]
    points[into], confidence[into], certified[into] = new.points[surer], new.confidence[surer], new.certified[surer]
    return Estimates(points=points, confidence=confidence, certified=certified)


def _by_positions(image: ReleasedImage, other: ReleasedImage) -> bool | None:
    """Whether positions say that two releases are of one photograph; None where lines hide those of either."""
    if image.keypoints is None or other.keypoints is None:
        return None
    if image.camera != other.camera:
        return False
    from scipy.spatial import cKDTree

    near, _ = cKDTree(other.keypoints).query(image.keypoints, distance_upper_bound=SAME_PLACE_PX)
    return bool(np.isfinite(near).mean() > SAME_PHOTOGRAPH)
