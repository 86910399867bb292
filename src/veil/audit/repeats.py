"""Releases of one photograph, or of one place, against each other: where their subspaces meet."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

import numpy as np
from jaxtyping import Float64, Int64

from veil.attacks.attack import Estimates, undecided
from veil.attacks.repeat import RepeatOptions, pair_releases, repeat_descriptors
from veil.audit.attempt import Attempt, timed
from veil.forms import Subspaces
from veil.wire.message import Message, Upload

REPEATS = "a second release of the same photograph"
VIEWS = "releases of other photographs of the same place"
NONE_GIVEN = "no other release of this kind was given (--against)"
# Of one photograph, releases have nearly all features in common; of two views, less than half, and next to no position.
SAME_PHOTOGRAPH, SAME_PLACE_PX = 0.5, 1e-3


def repeat_attempts(
    message: Message,
    rows: Int64[np.ndarray, "attacked"],
    others: Iterable[Message],
    *,
    meet: float,
    decoys: Float64[np.ndarray, "words dim"] | None,
) -> Iterator[Attempt]:
    """Two attempts on the features `rows`: with further releases of this photograph, and with those of other views.

    Positions tell which is which; where lines hide them, whether most features of one have a partner in the other.
    """
    form = message.form
    assert isinstance(form, Subspaces)
    again: list[Subspaces] = []
    views: list[Subspaces] = []
    part, options = form.take(rows), RepeatOptions(meet=meet)
    for other, its_form in same_kind(form, others):
        if isinstance(message, Upload) and isinstance(other, Upload):
            same = _same_positions(message, other)
        else:
            same = len(pair_releases(part, its_form, options=options, decoys=decoys)) > SAME_PHOTOGRAPH * len(part)
        (again if same else views).append(its_form)
    for attack, assumes, forms in (("repeat", REPEATS, again), ("views", VIEWS, views)):
        family = "repeat" if attack == "repeat" else "views"
        if not forms:
            yield Attempt(attack=attack, family=family, assumes=assumes, skipped=NONE_GIVEN)  # type: ignore[arg-type]
            continue
        with timed() as clock:
            found = _met(part, forms, options, decoys)
        if attack == "views":  # two views of a point have two descriptors, which nearly meet: that is no certificate
            found = replace(found, certified=np.zeros(len(part), dtype=bool))
        yield Attempt(
            attack=attack,
            family=family,  # type: ignore[arg-type]
            assumes=assumes,
            rows=rows,
            estimates=found,
            seconds=clock.seconds,
            notes=() if attack == "repeat" else ("whoever matches features learns what they have in common: by design",),
        )


def same_kind(form: Subspaces, others: Iterable[Message]) -> list[tuple[Message, Subspaces]]:
    """Other releases in the same space and of the same dimension, with their forms."""
    return [
        (other, other.form)
        for other in others
        if isinstance(other.form, Subspaces) and other.form.space == form.space and other.form.m == form.m
    ]


def _met(
    part: Subspaces, others: Sequence[Subspaces], options: RepeatOptions, decoys: Float64[np.ndarray, "words dim"] | None
) -> Estimates:
    """For each feature the surest of what the others tell."""
    best = undecided(len(part), part.space.dim)
    for other in others:
        pairs = pair_releases(part, other, options=options, decoys=decoys)
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
