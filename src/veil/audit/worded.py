"""Every attack on words, tried on one release."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import reduce

import numpy as np
from jaxtyping import Int64

from veil.attacks.neighbor_words import denoise
from veil.attacks.word_pairs import NeighborModel
from veil.attacks.words import Beliefs, descriptors, posterior, repeated
from veil.audit.attempt import Attempt, Knowledge, Progress, timed
from veil.audit.lifted import NOTHING
from veil.audit.repeats import REPEATS
from veil.codebook import Codebook
from veil.forms import Subsets
from veil.wire.message import Message, Upload

SAME_PLACE_PX = 1e-3


def attempts(
    message: Message, name: str, knowledge: Knowledge, model: NeighborModel | None, progress: Progress
) -> Iterator[Attempt]:
    """Attacks on the words of all features. `model` is what the attacker learned from its own photographs of neighboring
    words."""
    form, dictionary = message.form, knowledge.codebook
    assert isinstance(form, Subsets)
    if dictionary is None or dictionary.digest != form.dictionary:
        why = f"the release names the dictionary {form.dictionary[:12]}, which was not given (--codebook)"
        yield Attempt(attack="posterior", family="words", assumes=NOTHING, unit="word", skipped=why)
        return
    progress("posterior")
    with timed() as clock:
        beliefs = posterior(form)
    expected = form.mechanism.posterior
    yield _attempt(
        "posterior",
        NOTHING,
        beliefs,
        dictionary,
        clock.seconds,
        notes=(
            f"no attack on single features names the right word more often than {expected:.1%}, if all words are as likely",
        ),
        details={"posterior": expected},
    )
    progress("neighbors")
    assumes = "photographs of its own, from which it learned which words are neighbors"
    why = ""
    if model is None:
        why = "the attacker's photographs were not given (--attacker)"
    elif not isinstance(message, Upload):
        why = "lines hide who is whose neighbor"
    if model is None or not isinstance(message, Upload):
        yield Attempt(attack="neighbors", family="words", assumes=assumes, unit="word", skipped=why)
    else:
        with timed() as clock:
            beliefs = denoise(form, message.keypoints, model)
        yield _attempt("neighbors", assumes, beliefs, dictionary, clock.seconds)
    yield from _repeats(message, form, knowledge.others, dictionary, progress)


def _attempt(
    attack: str,
    assumes: str,
    beliefs: Beliefs,
    dictionary: Codebook,
    seconds: float,
    rows: Int64[np.ndarray, "rows"] | None = None,
    notes: tuple[str, ...] = (),
    details: Mapping[str, float] | None = None,
) -> Attempt:
    return Attempt(
        attack=attack,
        family="repeat" if attack == "repeat" else "words",
        assumes=assumes,
        unit="word",
        rows=np.arange(len(beliefs)) if rows is None else rows,
        estimates=descriptors(beliefs, dictionary),
        named=beliefs.best.astype(np.int64),
        seconds=seconds,
        notes=notes,
        details=details or {},
    )


def _repeats(
    message: Message, form: Subsets, others: Mapping[str, Message], dictionary: Codebook, progress: Progress
) -> Iterator[Attempt]:
    """Releases of one photograph have their positions in common, which pairs their features."""
    found = [
        (rows, other.form.take(theirs))
        for other in others.values()
        if isinstance(other, Upload) and isinstance(other.form, Subsets) and other.form.dictionary == form.dictionary
        for rows, theirs in [_same_places(message, other)]
        if len(rows)
    ]
    if not found:
        why = "no other release of this photograph in words was given (--against)"
        yield Attempt(attack="repeat", family="repeat", assumes=REPEATS, unit="word", skipped=why)
        return
    progress("repeat")
    rows = reduce(np.intersect1d, [ours for ours, _ in found])
    with timed() as clock:
        beliefs = repeated([form.take(rows), *(theirs.take(np.searchsorted(ours, rows)) for ours, theirs in found)])
    yield _attempt("repeat", REPEATS, beliefs, dictionary, clock.seconds, rows=rows)


def _same_places(message: Message, other: Upload) -> tuple[Int64[np.ndarray, "pairs"], Int64[np.ndarray, "pairs"]]:
    """Rows of both messages that share a position with nothing else, in ascending order of ours; none where lines hide them."""
    from scipy.spatial import cKDTree

    if not isinstance(message, Upload) or message.camera != other.camera:
        return np.arange(0), np.arange(0)
    ours, theirs = cKDTree(message.keypoints), cKDTree(other.keypoints)
    alone = np.array([len(rows) == 1 for rows in ours.query_ball_point(message.keypoints, SAME_PLACE_PX)])
    near = theirs.query_ball_point(message.keypoints, SAME_PLACE_PX)
    rows = np.array([row for row, found in enumerate(near) if alone[row] and len(found) == 1], dtype=np.int64)
    return rows, np.array([near[row][0] for row in rows], dtype=np.int64)
