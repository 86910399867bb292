"""Repeat and views attacks on one release: its subspaces meet those of other releases of the photograph, or of the place."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from jaxtyping import Int64

from veil.attacks.attack import Attempt
from veil.attacks.claims import CannotRun, Estimates, undecided
from veil.attacks.intersection.repeat import RepeatOptions, pair_with_each, repeat_descriptors
from veil.attacks.target import ReleasedImage, Target
from veil.forms import Subspaces

REPEATS = "a second release of the same photograph"
VIEWS = "releases of other photographs of the same place"
NONE_GIVEN = "no other release of this kind was given (--against)"
# Two releases of one photograph share nearly all features; two views share less than half of them, and next to no position.
SAME_PHOTOGRAPH, SAME_PLACE_PX = 0.5, 1e-3


@dataclass(frozen=True, kw_only=True, eq=False)
class Meeting:
    """Another release, with the pairs (attacked row, row of the other release) whose subspaces meet.

    `seconds` is the processor time that pairing took.
    """

    form: Subspaces
    pairs: Int64[np.ndarray, "_ 2"]
    is_same_photograph: bool
    seconds: float


def repeat_attack(target: Target) -> Attempt:
    """Estimates of the descriptors from further releases of this photograph. Raises CannotRun if there is none."""
    return _attempt("repeat", target, [meeting for meeting in meetings(target) if meeting.is_same_photograph])


def views_attack(target: Target) -> Attempt:
    """Estimates of the descriptors from releases of other views of the place. Raises CannotRun if there is none.

    Nothing is certified: two views of a point have two descriptors, whose subspaces nearly meet.
    """
    attempt = _attempt("views", target, [meeting for meeting in meetings(target) if not meeting.is_same_photograph])
    assert isinstance(attempt.claim, Estimates)
    return replace(
        attempt,
        claim=replace(attempt.claim, certified=np.zeros(len(attempt.claim), dtype=bool)),
        notes=("whoever matches features learns what they have in common: by design",),
    )


def meetings(target: Target) -> list[Meeting]:
    """Meetings of the target's subspaces with those of each comparable release; computed once for a target.

    Positions tell further releases of this photograph from other views. Where lines hide positions, a release counts as one of
    this photograph if most of the attacked features have a partner in it.
    """
    if "meetings" not in target.cache:
        target.cache["meetings"] = _meetings(target)
    return target.cache["meetings"]


def _meetings(target: Target) -> list[Meeting]:
    releases, pool = target.comparable_releases, target.pool
    if not releases:
        return []
    with target.timer() as clock:
        pairs = pair_with_each(
            target.attacked_subspaces,
            [form for _, form in releases],
            options=_options(target),
            decoys=None if pool is None else pool.vectors.astype(np.float64),
            threads=target.effort.threads,
        )
    result = []
    for (other, form), rows in zip(releases, pairs, strict=True):
        if target.image.keypoints is not None and other.keypoints is not None:
            same = _same_positions(target.image, other)
        else:
            same = len(rows) > SAME_PHOTOGRAPH * len(target.rows)
        result.append(Meeting(form=form, pairs=rows, is_same_photograph=same, seconds=clock.seconds / len(releases)))
    return result


def _options(target: Target) -> RepeatOptions:
    return RepeatOptions(meet=target.meeting_distance)


def _attempt(label: str, target: Target, meetings_used: Sequence[Meeting]) -> Attempt:
    if not meetings_used:
        raise CannotRun(NONE_GIVEN)
    with target.timer() as clock:
        estimates = _surest(target.attacked_subspaces, meetings_used, _options(target))
    seconds = clock.seconds + sum(item.seconds for item in meetings_used)
    return Attempt(label=label, rows=target.rows, claim=estimates, seconds=seconds)


def _surest(form: Subspaces, meetings_used: Sequence[Meeting], options: RepeatOptions) -> Estimates:
    """Estimates of the attacked features, each from the other release that gives the highest confidence."""
    best = undecided(len(form), form.space.dim)
    for item in meetings_used:
        if len(item.pairs):
            estimates = repeat_descriptors([form.take(item.pairs[:, 0]), item.form.take(item.pairs[:, 1])], options=options)
            best = _more_confident(best, estimates, item.pairs[:, 0])
    return best


def _more_confident(best: Estimates, new: Estimates, rows: np.ndarray) -> Estimates:
    """Copy of `best` in which the estimates `new` of the features `rows` replace less confident ones."""
    points, confidence, certified = best.points.copy(), best.confidence.copy(), best.certified.copy()
    surer = new.confidence > confidence[rows]
    into = rows[surer]
    points[into], confidence[into], certified[into] = new.points[surer], new.confidence[surer], new.certified[surer]
    return Estimates(points=points, confidence=confidence, certified=certified)


def _same_positions(image: ReleasedImage, other: ReleasedImage) -> bool:
    if image.camera != other.camera:
        return False
    from scipy.spatial import cKDTree

    near, _ = cKDTree(other.keypoints).query(image.keypoints, distance_upper_bound=SAME_PLACE_PX)
    return bool(np.isfinite(near).mean() > SAME_PHOTOGRAPH)
