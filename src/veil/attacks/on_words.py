"""The attacks on words, as the list of attacks has them."""

from __future__ import annotations

from collections.abc import Mapping
from functools import reduce

import numpy as np
from jaxtyping import Int64

from veil.attacks.attack import NOTHING, Attack, Attempt
from veil.attacks.claims import CannotRun, NamedWords
from veil.attacks.intersection.several_releases import REPEATS
from veil.attacks.target import ReleasedImage, Target
from veil.attacks.words.neighbors import denoise
from veil.attacks.words.posterior import Beliefs, descriptors, posterior, repeated
from veil.codebooks.codebook import Codebook
from veil.forms import Subsets

SAME_PLACE_PX = 1e-3


def _posterior(target: Target) -> Attempt:
    form, dictionary = target.words
    with target.timer() as clock:
        beliefs = posterior(form)
    expected = form.mechanism.posterior
    note = f"no attack on single features names the right word more often than {expected:.1%}, if all words are as likely"
    return _attempt("posterior", beliefs, dictionary, clock.seconds, notes=(note,), details={"posterior": expected})


def _neighbors(target: Target) -> Attempt:
    form, dictionary = target.words
    model, keypoints = target.knowledge.neighbors, target.image.keypoints
    if model is None:
        raise CannotRun("the attacker's photographs were not given (--attacker)")
    if keypoints is None:
        raise CannotRun("lines hide who is whose neighbor")
    with target.timer() as clock:
        beliefs = denoise(form, keypoints, model)
    return _attempt("neighbors", beliefs, dictionary, clock.seconds)


def _repeat(target: Target) -> Attempt:
    """Releases of one photograph have their positions in common, which pairs their features."""
    form, dictionary = target.words
    found = [
        (rows, other.form.take(theirs))
        for other in target.knowledge.others.values()
        if isinstance(other.form, Subsets) and other.form.dictionary == form.dictionary
        for rows, theirs in [_same_places(target.image, other)]
        if len(rows)
    ]
    if not found:
        raise CannotRun("no other release of this photograph in words was given (--against)")
    rows = reduce(np.intersect1d, [ours for ours, _ in found])
    with target.timer() as clock:
        beliefs = repeated([form.take(rows), *(theirs.take(np.searchsorted(ours, rows)) for ours, theirs in found)])
    return _attempt("repeat", beliefs, dictionary, clock.seconds, rows=rows)


def _attempt(
    label: str,
    beliefs: Beliefs,
    dictionary: Codebook,
    seconds: float,
    *,
    rows: Int64[np.ndarray, "rows"] | None = None,
    notes: tuple[str, ...] = (),
    details: Mapping[str, float] | None = None,
) -> Attempt:
    return Attempt(
        label=label,
        rows=np.arange(len(beliefs)) if rows is None else rows,
        claim=NamedWords(ids=beliefs.best.astype(np.int64), estimates=descriptors(beliefs, dictionary)),
        seconds=seconds,
        notes=notes,
        details=details or {},
    )


def _same_places(image: ReleasedImage, other: ReleasedImage) -> tuple[Int64[np.ndarray, "pairs"], Int64[np.ndarray, "pairs"]]:
    """Rows of both images that share a position with nothing else, in ascending order of ours; none where lines hide them."""
    from scipy.spatial import cKDTree

    if image.keypoints is None or other.keypoints is None or image.camera != other.camera:
        return np.arange(0), np.arange(0)
    ours, theirs = cKDTree(image.keypoints), cKDTree(other.keypoints)
    alone = np.array([len(rows) == 1 for rows in ours.query_ball_point(image.keypoints, SAME_PLACE_PX)])
    near = theirs.query_ball_point(image.keypoints, SAME_PLACE_PX)
    rows = np.array([row for row, found in enumerate(near) if alone[row] and len(found) == 1], dtype=np.int64)
    return rows, np.array([near[row][0] for row in rows], dtype=np.int64)


WORD_ATTACKS = (
    Attack(
        name="posterior",
        surface="words",
        family="words",
        assumes=NOTHING,
        units="word",
        modules=("words.posterior",),
        run=_posterior,
    ),
    Attack(
        name="neighbors",
        surface="words",
        family="words",
        assumes="photographs of its own, from which it learned which words are neighbors",
        units="word",
        modules=("words.neighbors", "words.cooccurrence"),
        run=_neighbors,
    ),
    Attack(
        name="repeat",
        surface="words",
        family="repeat",
        assumes=REPEATS,
        units="word",
        modules=("words.posterior",),
        run=_repeat,
    ),
)
