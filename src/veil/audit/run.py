"""Runs of all attacks on all releases, and their findings against the originals."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from veil.attacks.attack import Attack, Attempt, Skipped, attempted
from veil.attacks.claims import Classes, Estimates, Lists, NamedWords, OrderEvidence, Pose, joined, undecided
from veil.attacks.registry import ATTACKS, TIME_SHARES, inapplicable
from veil.attacks.target import Effort, Knowledge, ReleasedImage, Target
from veil.attacks.time_budget import TimeBudget
from veil.audit.finding import WITHIN, Finding
from veil.audit.ground_truth import Truth
from veil.audit.score import oracle_pick, score_descriptors, score_positions, score_words, share
from veil.audit.verdict import order_note, pose_note
from veil.engine import Engine
from veil.errors import InputError, Remedy
from veil.forms import Form, Subsets
from veil.ldp.composition import account
from veil.progress import StepCount, StepProgress, ignore_steps
from veil.wire.message import Message

# Work of an attack without a share of the time, beside those that have one (`Attack.time_share`), for progress alone.
QUICK_WORK = 0.3


@dataclass(frozen=True, kw_only=True, eq=False)
class Tried:
    """Attack on one release with its outcome."""

    attack: Attack
    outcome: Attempt | Skipped


@dataclass(frozen=True, kw_only=True, eq=False)
class Examined:
    """Release with every attack that was tried on it, and its originals if they were given (`truth`)."""

    name: str
    message: Message
    tried: tuple[Tried, ...]
    truth: Truth | None

    @property
    def attempts(self) -> list[tuple[Attack, Attempt]]:
        """Attacks that were run, with their attempts; skipped ones are left out."""
        return [(item.attack, item.outcome) for item in self.tried if isinstance(item.outcome, Attempt)]


def examine(
    releases: Mapping[str, Message],
    truths: Mapping[str, Truth],
    knowledge: Knowledge,
    *,
    effort: Effort | None = None,
    attacks: Sequence[Attack] = ATTACKS,
    time: TimeBudget | None = None,
    engine: Engine | None = None,
    progress: StepProgress = ignore_steps,
) -> list[Examined]:
    """Outcomes of all `attacks` on each release that gives them something to look at, with the release's originals.

    `releases` and `truths` are by name. Each release gets an equal part of `effort.features`. The other releases count among
    those that the attacker has seen. `time` is shared out among releases and attacks, and needs a turn for each release;
    without it no attack is cut. `engine` attacks several releases at a time, each with an equal part of the time, none of which
    passes on to others. Raises InputError if there is no release.
    """
    if not releases:
        raise InputError("there is no release to audit", remedy=Remedy("give", "run_audit.releases"))
    effort = effort or Effort()
    each = replace(
        effort,
        features=math.ceil(effort.features / len(releases)),
        structural=math.ceil(effort.structural / len(releases)),
        releases=len(releases),
    )
    budget = time or TimeBudget(math.inf, turns=len(releases), shares=TIME_SHARES)
    images = {name: ReleasedImage.of(message) for name, message in releases.items()}
    sizes = {name: len(message) for name, message in releases.items()}
    work = _AttackInput(images=images, sizes=sizes, knowledge=knowledge, effort=each, attacks=attacks, seconds=budget.seconds)
    if engine is None or len(releases) < 2:
        sizes_of_work = {name: work_of(applicable_to(image, attacks)) for name, image in images.items()}
        count = StepCount(progress, sum(sizes_of_work.values()))
        tried = [
            try_attacks(work.target(name, budget), attacks, count.part(sizes_of_work[name], f"{name} ")) for name in releases
        ]
    else:
        tried = _tried_by(engine, work, budget, progress)
    return [
        Examined(name=name, message=message, tried=tuple(own), truth=truths.get(name))
        for (name, message), own in zip(releases.items(), tried, strict=True)
    ]


@dataclass(frozen=True, kw_only=True, eq=False)
class _AttackInput:
    """Input of the attacks on any of the releases: all released images and their numbers of features, by name."""

    images: Mapping[str, ReleasedImage]
    sizes: Mapping[str, int]
    knowledge: Knowledge
    effort: Effort
    attacks: Sequence[Attack]
    seconds: float

    def target(self, name: str, time: TimeBudget) -> Target:
        """Target of an attack: one release, and the others as those that the attacker has seen."""
        others = {other: image for other, image in self.images.items() if other != name} | dict(self.knowledge.others)
        return Target(
            image=self.images[name],
            rows=self.effort.rows(self.sizes[name], name),
            knowledge=replace(self.knowledge, others=others),
            effort=self.effort,
            time=time,
        )


def _tried_by(engine: Engine, work: _AttackInput, budget: TimeBudget, progress: StepProgress) -> list[list[Tried]]:
    """Attacks with their outcomes on each release, as the workers of an engine find them."""
    names = list(work.images)
    tried: dict[int, list[Tried]] = {}
    with engine.scatter(work) as shared:
        for position, (outcomes, spent) in engine.map(_outcomes, names, shared=(shared,)):
            applicable = applicable_to(work.images[names[position]], work.attacks)
            own = [Tried(attack=attack, outcome=outcome) for attack, outcome in zip(applicable, outcomes, strict=True)]
            tried[position] = own
            budget.add(spent)
            progress(names[position], float(len(tried)), float(len(names)))
    return [tried[position] for position in range(len(names))]


def _outcomes(name: str, work: _AttackInput) -> tuple[list[Attempt | Skipped], TimeBudget]:
    """Outcomes of the attacks on one release, in their order, and the time that they took. A task of an engine."""
    budget = TimeBudget(work.seconds / len(work.images), turns=1, shares=TIME_SHARES)
    return [item.outcome for item in try_attacks(work.target(name, budget), work.attacks)], budget


def applicable_to(image: ReleasedImage, attacks: Sequence[Attack]) -> list[Attack]:
    """Those of `attacks` that a release gives something to look at, in their order."""
    return [attack for attack in attacks if not inapplicable(attack, image)]


def work_of(attacks: Iterable[Attack]) -> float:
    """Work of `attacks` on one release, in shares of an audit's time, as far as that can be known before they run."""
    return sum((attack.time_share or QUICK_WORK for attack in attacks), 0.0)


def try_attacks(target: Target, attacks: Sequence[Attack], progress: StepProgress = ignore_steps) -> list[Tried]:
    """Those of `attacks` that `target` gives something to look at, in their order; those on lines know what others found of the
    descriptors. Begins a turn of the target's time."""
    applicable = applicable_to(target.image, attacks)
    target.time.begin_turn(attack.name for attack in applicable)
    count = StepCount(progress, work_of(applicable))
    tried: list[Tried] = []
    for attack in applicable:
        count.begin(attack.name, work_of([attack]))
        if attack.surface == "lines" and target.knowledge.descriptors is None:
            known = _best_descriptors(target.image.form, tried)
            target = replace(target, knowledge=replace(target.knowledge, descriptors=known))
        outcome = attempted(attack, target)
        if isinstance(outcome, Attempt) and not attack.time_share and attack.surface == "subspaces":
            target.time.charge(outcome.seconds)
        tried.append(Tried(attack=attack, outcome=outcome))
    return tried


def not_looked_at(releases: Iterable[Message]) -> dict[str, str]:
    """Attacks that none of `releases` gives anything to look at, with the reason for the first release."""
    images = [ReleasedImage.of(message) for message in releases]
    reasons = {attack: [inapplicable(attack, image) for image in images] for attack in ATTACKS}
    return {f"{attack.name} ({attack.surface})": why[0] for attack, why in reasons.items() if all(why)}


def _best_descriptors(form: Form, tried: Sequence[Tried]) -> Estimates | None:
    """Estimates of the descriptors by the surest attack that decided any, for all features (NaN for those not attacked)."""
    outcomes = {item.attack.name: item.outcome for item in tried if item.attack.surface == "subspaces"}
    for name in ("lattice", "vertex", "nearest, projected"):
        attempt = outcomes.get(name)
        if isinstance(attempt, Attempt) and attempt.estimates is not None and attempt.estimates.decided.any():
            points = undecided(len(form), form.space.dim).points
            points[attempt.rows] = attempt.estimates.points
            decided = np.isfinite(points).all(axis=1)
            return Estimates(points=points, confidence=decided * 1.0, certified=np.zeros(len(points), dtype=bool))
    return None


def findings(examined: Sequence[Examined]) -> list[Finding]:
    """Findings of the attacks, one for each over all releases.

    A finding has a score if the originals of every release that the attack ran on are known, of words named in a dictionary
    the true words, too. Each release is weighed in its own dictionary, which its originals have.
    """
    attacks = list(dict.fromkeys(item.attack for release in examined for item in release.tried))
    return [_finding(attack, examined) for attack in attacks]


def _finding(attack: Attack, examined: Sequence[Examined]) -> Finding:
    tried = [(release, item.outcome) for release in examined for item in release.tried if item.attack is attack]
    skipped = [outcome for _, outcome in tried if isinstance(outcome, Skipped)]
    ran = [(release, outcome) for release, outcome in tried if isinstance(outcome, Attempt)]
    if not ran:
        return Finding(
            attack=skipped[0].label,
            family=attack.family,
            assumes=attack.assumes,
            skipped=skipped[0].why,
            remedy=skipped[0].remedy,
            wanted=sum(item.left_out for item in skipped),
        )
    attempts = [attempt for _, attempt in ran]
    total = sum(len(attempt.rows) for attempt in attempts)
    is_oracle = isinstance(attempts[0].claim, Lists)
    finding = Finding(
        attack=attempts[0].label,
        family=attack.family,
        assumes=attempts[0].assumes or attack.assumes,
        hypothetical=is_oracle,
        features=total,
        wanted=total + sum(outcome.left_out for _, outcome in tried),
        seconds=sum(attempt.seconds for attempt in attempts),
        notes=_notes(attempts),
        details=_details(attempts),
    )
    if evidence := [attempt.claim for attempt in attempts if isinstance(attempt.claim, OrderEvidence)]:
        return replace(finding, notes=(order_note(evidence),))
    if poses := [attempt.claim for attempt in attempts if isinstance(attempt.claim, Pose)]:
        localized = sum(pose.cam_from_world is not None for pose in poses)
        note = pose_note(localized, len(poses), finding.details)
        return replace(
            finding,
            features=len(poses),
            wanted=len(poses),
            certified=share(localized, len(poses)),
            unit="release",
            notes=(note,),
        )
    if isinstance(attempts[0].claim, Classes):  # nothing here knows the right classes of faces
        return finding
    truth_is_known = all(release.truth is not None for release, _ in ran)
    if is_oracle and not truth_is_known:
        return replace(finding, skipped="an oracle needs the originals", remedy=(Remedy("give", "run_audit.originals"),))
    estimates = joined([_estimates(release, attempt) for release, attempt in ran])
    certified = int(estimates.certified.sum())
    finding = replace(finding, undecided=int((~estimates.decided).sum()), certified=share(certified, total))
    if not truth_is_known:
        return finding
    truths = [release.truth.take(attempt.rows) for release, attempt in ran if release.truth is not None]
    if attack.units == "px":
        return replace(finding, score=score_positions(estimates, np.concatenate([truth.keypoints for truth in truths])))
    target = np.concatenate([truth.descriptors for truth in truths])
    if named := [attempt.claim.ids for attempt in attempts if isinstance(attempt.claim, NamedWords)]:
        words = [truth.words for truth in truths if truth.words is not None]
        if len(words) < len(truths):
            return finding
        return replace(finding, score=score_words(estimates, np.concatenate(named), np.concatenate(words), target))
    originals = np.concatenate([release.truth.descriptors for release in examined if release.truth is not None])
    certain = WITHIN[1] if any(release.message.form.space.dither_steps for release, _ in ran) else WITHIN[0]
    return replace(finding, score=score_descriptors(estimates, target, originals, certain_within=certain))


def _estimates(release: Examined, attempt: Attempt) -> Estimates:
    """Point estimates of an attempt; an oracle picks them from its lists, with the truth."""
    if attempt.estimates is not None:
        return attempt.estimates
    assert isinstance(attempt.claim, Lists) and release.truth is not None
    return oracle_pick(attempt.claim, release.truth.descriptors[attempt.rows])


def _notes(attempts: Sequence[Attempt]) -> tuple[str, ...]:
    """Notes of the first release: those of others differ in counts only, and the means are in the details."""
    notes = attempts[0].notes
    return notes if len(attempts) == 1 else tuple(f"{note} (first of {len(attempts)} releases)" for note in notes)


def _details(attempts: Sequence[Attempt]) -> dict[str, float]:
    """Details over all releases: means, but the Bonferroni-corrected least "p_value", and the largest "detectable"."""
    details = {}
    for key in attempts[0].details:
        values = [attempt.details[key] for attempt in attempts if key in attempt.details]
        if key == "p_value":
            details[key] = min(1.0, min(values) * len(values))
        else:
            details[key] = max(values) if key == "detectable" else float(np.mean(values))
    return details


def epsilons(releases: Iterable[Message], delta: float) -> dict[str, float]:
    """Largest epsilon of a feature, an object of 50 features, and an image, over all releases in words (at `delta`).

    It is infinite for all three if one release has none. Empty if no release is in words.
    """
    in_words = [message for message in releases if isinstance(message.form, Subsets)]
    largest: dict[str, float] = {}
    for message in in_words:
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
            largest[unit] = max(largest.get(unit, 0.0), value)
    return largest
