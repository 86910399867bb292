"""Releases of one photograph, or of one place, against each other: where their subspaces meet."""

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
# Of one photograph, releases have nearly all features in common; of two views, less than half, and next to no position.
SAME_PHOTOGRAPH, SAME_PLACE_PX = 0.5, 1e-3


@dataclass(frozen=True, kw_only=True, eq=False)
class Meeting:
    """Another release, the rows of both whose subspaces meet, and what pairing them took of the processor."""

    form: Subspaces
    pairs: Int64[np.ndarray, "_ 2"]
    is_same_photograph: bool
    seconds: float


def repeat_attack(target: Target) -> Attempt:
    """What further releases of this photograph tell. Raises CannotRun if there is none."""
    return _attempt("repeat", target, [meeting for meeting in meetings(target) if meeting.is_same_photograph])


def views_attack(target: Target) -> Attempt:
    """What releases of other views tell. Raises CannotRun if there is none.

    Two views of a point have two descriptors, which nearly meet: that is no certificate.
    """
    found = _attempt("views", target, [meeting for meeting in meetings(target) if not meeting.is_same_photograph])
    assert isinstance(found.claim, Estimates)
    return replace(
        found,
        claim=replace(found.claim, certified=np.zeros(len(found.claim), dtype=bool)),
        notes=("whoever matches features learns what they have in common: by design",),
    )


def meetings(target: Target) -> list[Meeting]:
    """Where the target's subspaces meet those of other releases of its kind; made once for a target.

    Positions tell further releases of this photograph from other views; where lines hide them, whether most features of one
    have a partner in the other.
    """
    if "meetings" not in target.shared:
        target.shared["meetings"] = _meetings(target)
    return target.shared["meetings"]


def _meetings(target: Target) -> list[Meeting]:
    kin, pool = target.kin, target.pool
    if not kin:
        return []
    with target.timer() as clock:
        pairs = pair_with_each(
            target.part,
            [form for _, form in kin],
            options=_options(target),
            decoys=None if pool is None else pool.vectors.astype(np.float64),
            threads=target.effort.threads,
        )
    found = []
    for (other, form), meeting in zip(kin, pairs, strict=True):
        if target.image.keypoints is not None and other.keypoints is not None:
            same = _same_positions(target.image, other)
        else:
            same = len(meeting) > SAME_PHOTOGRAPH * len(target.rows)
        found.append(Meeting(form=form, pairs=meeting, is_same_photograph=same, seconds=clock.seconds / len(kin)))
    return found


def _options(target: Target) -> RepeatOptions:
    return RepeatOptions(meet=target.meet)


def _attempt(label: str, target: Target, met: Sequence[Meeting]) -> Attempt:
    if not met:
        raise CannotRun(NONE_GIVEN)
    with target.timer() as clock:
        found = _surest(target.part, met, _options(target))
    return Attempt(label=label, rows=target.rows, claim=found, seconds=clock.seconds + sum(item.seconds for item in met))


def _surest(part: Subspaces, met: Sequence[Meeting], options: RepeatOptions) -> Estimates:
    """For each feature the surest of what the others tell."""
    best = undecided(len(part), part.space.dim)
    for item in met:
        if len(item.pairs):
            found = repeat_descriptors([part.take(item.pairs[:, 0]), item.form.take(item.pairs[:, 1])], options=options)
            best = _more_confident(best, found, item.pairs[:, 0])
    return best


def _more_confident(best: Estimates, found: Estimates, rows: np.ndarray) -> Estimates:
    """`best`, with the estimates `found` of `rows` where these are surer."""
    points, confidence, certified = best.points.copy(), best.confidence.copy(), best.certified.copy()
    surer = found.confidence > confidence[rows]
    into = rows[surer]
    points[into], confidence[into], certified[into] = found.points[surer], found.confidence[surer], found.certified[surer]
    return Estimates(points=points, confidence=confidence, certified=certified)


def _same_positions(image: ReleasedImage, other: ReleasedImage) -> bool:
    if image.camera != other.camera:
        return False
    from scipy.spatial import cKDTree

    near, _ = cKDTree(other.keypoints).query(image.keypoints, distance_upper_bound=SAME_PLACE_PX)
    return bool(np.isfinite(near).mean() > SAME_PHOTOGRAPH)
