"""Releases of one photograph, or of one place, against each other: where their subspaces meet."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

import numpy as np
from jaxtyping import Float64, Int64

from veil.attacks.attack import Estimates, undecided
from veil.attacks.repeat import RepeatOptions, pair_with_each, repeat_descriptors
from veil.audit.attempt import Attempt, timed
from veil.forms import Subspaces
from veil.wire.message import Message, Upload

REPEATS = "a second release of the same photograph"
VIEWS = "releases of other photographs of the same place"
NONE_GIVEN = "no other release of this kind was given (--against)"
# Of one photograph, releases have nearly all features in common; of two views, less than half, and next to no position.
SAME_PHOTOGRAPH, SAME_PLACE_PX = 0.5, 1e-3
# Another release, and the rows of both whose subspaces meet.
_Met = tuple[Subspaces, Int64[np.ndarray, "_ 2"]]


def repeat_attempts(
    message: Message,
    rows: Int64[np.ndarray, "attacked"],
    others: Iterable[Message],
    *,
    meet: float,
    decoys: Float64[np.ndarray, "words dim"] | None,
    threads: int = 1,
) -> Iterator[Attempt]:
    """Two attempts on the features `rows`: with further releases of this photograph, and with those of other views.

    Positions tell which is which; where lines hide them, whether most features of one have a partner in the other.
    """
    form = message.form
    assert isinstance(form, Subspaces)
    part, options = form.take(rows), RepeatOptions(meet=meet)
    kin = same_kind(form, others)
    with timed() as pairing:
        pairs = pair_with_each(part, [its_form for _, its_form in kin], options=options, decoys=decoys, threads=threads)
    again: list[_Met] = []
    views: list[_Met] = []
    for (other, its_form), meeting in zip(kin, pairs, strict=True):
        if isinstance(message, Upload) and isinstance(other, Upload):
            same = _same_positions(message, other)
        else:
            same = len(meeting) > SAME_PHOTOGRAPH * len(part)
        (again if same else views).append((its_form, meeting))
    for attack, assumes, met in (("repeat", REPEATS, again), ("views", VIEWS, views)):
        family = "repeat" if attack == "repeat" else "views"
        if not met:
            yield Attempt(attack=attack, family=family, assumes=assumes, skipped=NONE_GIVEN)  # type: ignore[arg-type]
            continue
        with timed() as clock:
            found = _surest(part, met, options)
        if attack == "views":  # two views of a point have two descriptors, which nearly meet: that is no certificate
            found = replace(found, certified=np.zeros(len(part), dtype=bool))
        yield Attempt(
            attack=attack,
            family=family,  # type: ignore[arg-type]
            assumes=assumes,
            rows=rows,
            estimates=found,
            seconds=clock.seconds + pairing.seconds * len(met) / len(kin),
            notes=() if attack == "repeat" else ("whoever matches features learns what they have in common: by design",),
        )


def same_kind(form: Subspaces, others: Iterable[Message]) -> list[tuple[Message, Subspaces]]:
    """Other releases in the same space and of the same dimension, with their forms."""
    return [
        (other, other.form)
        for other in others
        if isinstance(other.form, Subspaces) and other.form.space == form.space and other.form.m == form.m
    ]


def _surest(part: Subspaces, met: Sequence[_Met], options: RepeatOptions) -> Estimates:
    """For each feature the surest of what the others tell."""
    best = undecided(len(part), part.space.dim)
    for other, pairs in met:
        if len(pairs):
            found = repeat_descriptors([part.take(pairs[:, 0]), other.take(pairs[:, 1])], options=options)
            best = _more_confident(best, found, pairs[:, 0])
    return best


def _more_confident(best: Estimates, found: Estimates, rows: np.ndarray) -> Estimates:
    """`best`, with the estimates `found` of `rows` where these are surer."""
    points, confidence, certified = best.points.copy(), best.confidence.copy(), best.certified.copy()
    surer = found.confidence > confidence[rows]
    into = rows[surer]
    points[into], confidence[into], certified[into] = found.points[surer], found.confidence[surer], found.certified[surer]
    return Estimates(points=points, confidence=confidence, certified=certified)


def _same_positions(message: Upload, other: Upload) -> bool:
    if message.camera != other.camera:
        return False
    from scipy.spatial import cKDTree

    near, _ = cKDTree(other.keypoints).query(message.keypoints, distance_upper_bound=SAME_PLACE_PX)
    return bool(np.isfinite(near).mean() > SAME_PHOTOGRAPH)
