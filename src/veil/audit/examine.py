"""All attacks on all releases, and what they come to against the originals."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from veil.attacks.attack import Estimates, joined, undecided
from veil.attacks.word_pairs import NeighborModel
from veil.audit import lifted, lined, worded
from veil.audit.attempt import Attempt, Effort, Knowledge, Progress
from veil.audit.finding import WITHIN, Finding
from veil.audit.score import oracle_pick, score_descriptors, score_positions, score_words, share
from veil.audit.time_budget import TimeBudget
from veil.audit.truth import Truth
from veil.codebook import Codebook
from veil.composition import account
from veil.errors import InputError
from veil.forms import Subsets
from veil.wire.message import LineUpload, Message


@dataclass(frozen=True, kw_only=True, eq=False)
class Examined:
    """One release, every attempt on it, and its originals if they were given."""

    name: str
    message: Message
    attempts: tuple[Attempt, ...]
    truth: Truth | None


def examine(
    releases: Mapping[str, Message],
    truths: Mapping[str, Truth],
    knowledge: Knowledge,
    *,
    effort: Effort | None = None,
    model: NeighborModel | None = None,
    time: TimeBudget | None = None,
    progress: Progress = lambda step: None,
) -> list[Examined]:
    """Try every attack on each release; of each an equal part of `effort.features`, and what is cheap on all features.

    The other releases count among those that the attacker has seen. `model` is what the attacker knows of neighboring words.
    `time` is shared out among releases and attacks, and has a turn for each release; without it every attack takes its time.
    Raises InputError if there is no release.
    """
    if not releases:
        raise InputError("there is no release to audit")
    effort = effort or Effort()
    each = replace(
        effort, features=math.ceil(effort.features / len(releases)), structural=math.ceil(effort.structural / len(releases))
    )
    found = []
    for name, message in releases.items():
        others = {other: item for other, item in releases.items() if other != name} | dict(knowledge.others)
        known = replace(knowledge, others=others)
        tried = _attempts(message, name, known, each, model, partial(_named, progress, name), time, tests=len(releases))
        found.append(Examined(name=name, message=message, attempts=tuple(tried), truth=truths.get(name)))
    return found


def _named(progress: Progress, name: str, step: str) -> None:
    progress(f"{name} {step}")


def _attempts(
    message: Message,
    name: str,
    knowledge: Knowledge,
    effort: Effort,
    model: NeighborModel | None,
    progress: Progress,
    time: TimeBudget | None,
    *,
    tests: int,
) -> Iterable[Attempt]:
    tried = []
    if isinstance(message.form, Subsets):
        tried += list(worded.attempts(message, name, knowledge, model, progress))
    else:
        rows = effort.rows(len(message), name)
        tried += list(lifted.attempts(message, rows, knowledge, effort, progress, time=time))
    if isinstance(message, LineUpload):
        tried += list(
            lined.attempts(
                message, _best_descriptors(message, tried), lifted.pca_of(message.form, knowledge), knowledge.others, progress
            )
        )
    return [*tried, lined.order_attempt(message, effort, tests=tests)]


def _best_descriptors(message: Message, tried: Sequence[Attempt]) -> Estimates | None:
    """What the surest attack knows of descriptors, for all features (NaN for those that were not attacked)."""
    for name in ("lattice", "vertex", "nearest, projected"):
        for attempt in tried:
            if attempt.attack == name and attempt.estimates is not None and attempt.estimates.decided.any():
                points = undecided(len(message), message.form.space.dim).points
                points[attempt.rows] = attempt.estimates.points
                decided = np.isfinite(points).all(axis=1)
                return Estimates(points=points, confidence=decided * 1.0, certified=np.zeros(len(points), dtype=bool))
    return None


def findings(examined: Sequence[Examined], dictionary: Codebook | None = None) -> list[Finding]:
    """One finding for each attack over all releases. Scores need the originals of every release it was tried on."""
    names = list(dict.fromkeys(attempt.attack for item in examined for attempt in item.attempts))
    return [
        _finding(
            [(item, attempt) for item in examined for attempt in item.attempts if attempt.attack == name], examined, dictionary
        )
        for name in names
    ]


def _finding(tried: Sequence[tuple[Examined, Attempt]], examined: Sequence[Examined], dictionary: Codebook | None) -> Finding:
    ran = [(item, attempt) for item, attempt in tried if not attempt.skipped]
    first = (ran or list(tried))[0][1]
    if not ran:
        return Finding(
            attack=first.attack,
            family=first.family,
            assumes=first.assumes,
            skipped=first.skipped,
            wanted=sum(attempt.left_out for _, attempt in tried),
        )
    total = sum(len(attempt.rows) for _, attempt in ran)
    finding = Finding(
        attack=first.attack,
        family=first.family,
        assumes=first.assumes,
        hypothetical=first.lists is not None,
        features=total,
        wanted=total + sum(attempt.left_out for _, attempt in tried),
        seconds=sum(attempt.seconds for _, attempt in ran),
        notes=_notes([attempt for _, attempt in ran]),
        details=_details([attempt for _, attempt in ran]),
    )
    if first.unit == "order":
        return replace(finding, notes=(lined.order_note([attempt for _, attempt in ran]),))
    truth_is_known = all(item.truth is not None for item, _ in ran)
    if first.lists is not None and not truth_is_known:
        return replace(finding, skipped="an oracle needs the originals (--images)")
    estimates = joined([_estimates(item, attempt) for item, attempt in ran])
    certified = int(estimates.certified.sum())
    finding = replace(finding, undecided=int((~estimates.decided).sum()), certified=share(certified, total))
    if not truth_is_known:
        return finding
    truths = [item.truth.take(attempt.rows) for item, attempt in ran if item.truth is not None]
    if first.unit == "px":
        return replace(finding, score=score_positions(estimates, np.concatenate([truth.keypoints for truth in truths])))
    target = np.concatenate([truth.descriptors for truth in truths])
    if first.unit == "word":
        assert dictionary is not None
        named = np.concatenate([attempt.named for _, attempt in ran if attempt.named is not None])
        words = dictionary.nearest(target.astype(np.float32))
        return replace(finding, score=score_words(estimates, named, words, target))
    originals = np.concatenate([item.truth.descriptors for item in examined if item.truth is not None])
    certain = WITHIN[1] if any(item.message.form.space.dither_steps for item, _ in ran) else WITHIN[0]
    return replace(finding, score=score_descriptors(estimates, target, originals, certain_within=certain))


def _estimates(item: Examined, attempt: Attempt) -> Estimates:
    if attempt.estimates is not None:
        return attempt.estimates
    assert attempt.lists is not None and item.truth is not None
    return oracle_pick(attempt.lists, item.truth.descriptors[attempt.rows])


def _notes(attempts: Sequence[Attempt]) -> tuple[str, ...]:
    """Of several releases the first one's notes: they differ in counts only, and the means stand in the details."""
    said = attempts[0].notes
    return said if len(attempts) == 1 else tuple(f"{note} (first of {len(attempts)} releases)" for note in said)


def _details(attempts: Sequence[Attempt]) -> dict[str, float]:
    """Means over the releases; of p-values the least, times their number (Bonferroni); of what is seen the largest."""
    found = {}
    for key in attempts[0].details:
        values = [attempt.details[key] for attempt in attempts if key in attempt.details]
        if key == "p_value":
            found[key] = min(1.0, min(values) * len(values))
        else:
            found[key] = max(values) if key == "detectable" else float(np.mean(values))
    return found


def epsilons(releases: Iterable[Message], delta: float) -> dict[str, float]:
    """Epsilon of the feature, an object of 50 features, and the image that is worst; empty where there is none at all."""
    spoken = [message for message in releases if isinstance(message.form, Subsets)]
    found: dict[str, float] = {}
    for message in spoken:
        form = message.form
        assert isinstance(form, Subsets)
        if math.isinf(form.mechanism.epsilon):
            return {"feature": math.inf, "object": math.inf, "image": math.inf}
        spent = account(form.mechanism, len(form), delta=delta)
        for unit, value in (
            ("feature", form.mechanism.epsilon),
            ("object", spent.object_epsilon),
            ("image", spent.total_epsilon),
        ):
            found[unit] = max(found.get(unit, 0.0), value)
    return found
