"""Entries of the list of attacks for attacks on words: what each assumes, and how it is run on one release."""

from __future__ import annotations

from collections.abc import Mapping
from functools import reduce

import numpy as np
from jaxtyping import Int64

from veil.attacks.attack import RELEASE_ALONE, Attack, Attempt
from veil.attacks.claims import CannotRun, NamedWords, no_release
from veil.attacks.intersection.several_releases import REPEATS
from veil.attacks.target import ReleasedImage, Target
from veil.attacks.words.neighbors import denoise
from veil.attacks.words.posterior import Beliefs, descriptors, posterior, repeated
from veil.attacks.words.votes import UPLOADS, votes_attack
from veil.codebooks.codebook import Codebook
from veil.errors import Remedy
from veil.forms import Subsets
from veil.ldp.rounding import outward_percent

SAME_PLACE_PX = 1e-3


def _posterior(target: Target) -> Attempt:
    form, dictionary = target.words
    with target.timer() as clock:
        beliefs = posterior(form)
    expected = form.mechanism.posterior
    most = outward_percent(expected)
    note = f"no attack on single features names the right word more often than {most} %, if all words are as likely"
    return _attempt("posterior", beliefs, dictionary, clock.seconds, notes=(note,), details={"posterior": expected})


def _neighbors(target: Target) -> Attempt:
    form, dictionary = target.words
    model, keypoints = target.knowledge.neighbors, target.image.keypoints
    if model is None:
        raise CannotRun("the attacker's photographs were not given", remedy=Remedy("give", "Attacker.photographs"))
    if keypoints is None:
        raise CannotRun("lines hide who is whose neighbor")
    with target.timer() as clock:
        beliefs = denoise(form, keypoints, model)
    return _attempt("neighbors", beliefs, dictionary, clock.seconds)


def _repeat(target: Target) -> Attempt:
    """Posterior attack on several releases of one photograph, whose features are paired by their equal positions."""
    form, dictionary = target.words
    paired_releases = [
        (rows, other.form.take(other_rows))
        for other in target.knowledge.others.values()
        if isinstance(other.form, Subsets) and other.form.dictionary == form.dictionary
        for rows, other_rows in [_same_places(target.image, other)]
        if len(rows)
    ]
    if not paired_releases:
        raise no_release(len(target.knowledge.others), "of this photograph in words of this dictionary")
    common = reduce(np.intersect1d, [rows for rows, _ in paired_releases])
    with target.timer() as clock:
        others = [words.take(np.searchsorted(rows, common)) for rows, words in paired_releases]
        beliefs = repeated([form.take(common), *others])
    return _attempt("repeat", beliefs, dictionary, clock.seconds, rows=common)


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
    """Paired rows of both images at equal positions, ascending in `image`; none where lines hide positions or cameras differ.

    Positions that hold several features of one image are left out.
    """
    from scipy.spatial import cKDTree

    if image.keypoints is None or other.keypoints is None or image.camera != other.camera:
        return np.arange(0), np.arange(0)
    tree, other_tree = cKDTree(image.keypoints), cKDTree(other.keypoints)
    alone = np.array([len(rows) == 1 for rows in tree.query_ball_point(image.keypoints, SAME_PLACE_PX)])
    near = other_tree.query_ball_point(image.keypoints, SAME_PLACE_PX)
    rows = np.array([row for row, partners in enumerate(near) if alone[row] and len(partners) == 1], dtype=np.int64)
    return rows, np.array([near[row][0] for row in rows], dtype=np.int64)


WORD_ATTACKS = (
    Attack(
        name="posterior",
        surface="words",
        family="words",
        assumes=RELEASE_ALONE,
        units="word",
        modules=("words.posterior",),
        _run=_posterior,
    ),
    Attack(
        name="neighbors",
        surface="words",
        family="words",
        assumes="photographs of its own, from which it learned which words are neighbors",
        units="word",
        modules=("words.neighbors", "words.cooccurrence"),
        _run=_neighbors,
    ),
    Attack(
        name="repeat",
        surface="words",
        family="repeat",
        assumes=REPEATS,
        units="word",
        modules=("words.posterior",),
        _run=_repeat,
    ),
    Attack(
        name="votes",
        surface="words",
        family="views",
        assumes=UPLOADS,
        units="word",
        modules=("words.votes", "words.posterior"),
        _run=votes_attack,
    ),
)
