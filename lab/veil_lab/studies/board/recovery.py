"""Shares of descriptors that attacks recover on the board: from one upload, from several, and from near repeats.

Attacks on one upload are run once for all three. Beside other uploads those are run that compare uploads, with the candidates
that the attacks on one upload searched.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from veil.attacks.attack import Attack
from veil.attacks.learned import MODES, MODES_AROUND
from veil.attacks.registry import ATTACKS
from veil.audit.finding import Finding, Score, Share
from veil.audit.run import findings
from veil_lab.studies.attacks.aligned_repeats import Alignment, aligned_attacks, alignment_of
from veil_lab.studies.attacks.form_releases import FormScene, FormSetting
from veil_lab.studies.board.rows import NotRun, RecoveredShare
from veil_lab.studies.localization.false_acceptance import ReferencePlace

# Distance within which a descriptor counts as recovered, in parts of its length.
WITHIN = 0.2
LEFT_OUT = ("vertex", "oracle", "database", "matched photographs")
SCORED = tuple(attack for attack in ATTACKS if attack.units in ("descriptor", "word") and attack.name not in LEFT_OUT)
"""Attacks that may be the best one: those that estimate descriptors or name words.

Three others need what the attacker lacks: an oracle, the pool of decoys, or raw photographs of the place. The vertex attack
never recovered most (docs/choose.md), and searches long.
"""
# An attack is not the best if it had time for a smaller part of the features than this.
LEAST_PART = 0.1


def compares(attack: Attack) -> bool:
    """Whether an attack looks at other uploads. What the others find is the same with and without them."""
    return attack.family in ("intersection", "repeat", "views") or attack.name == "clustering"


def recovered_shares(released: FormScene, setting: FormSetting, attacks: Sequence[Attack]) -> Iterator[RecoveredShare | NotRun]:
    """Shares with one upload, with those of the nearest photographs, and with near repeats among these."""
    if setting.descriptors == "raw" or setting.epsilon == 0:
        reason = "all descriptors are sent" if setting.descriptors == "raw" else "no descriptors are sent"
        yield from [NotRun(reason=reason)] * 3
        return
    comparing = [attack for attack in attacks if compares(attack)]
    of_one = [attack for attack in attacks if attack.family not in ("repeat", "views")]
    targets = {name: released.target(setting, name) for name in released.victims}
    alone = {name: findings([released.attacked(setting, name, own, of_one)]) for name, own in targets.items()}
    yield best(list(alone.values()), 1)

    def beside(name: str, others: Sequence[str], more: Sequence[Attack] = ()) -> list[Finding]:
        target = released.target(setting, name, others)
        target.cache.update({key: made for key, made in targets[name].cache.items() if key in (MODES, MODES_AROUND)})
        compared = findings([released.attacked(setting, name, target, (*comparing, *more))])
        return list({one.attack: one for one in (*alone[name], *compared) if one.score is not None}.values())

    neighbors = {name: released.neighbors(name) for name in targets}
    yield best([beside(name, others) for name, others in neighbors.items()], 1 + max(map(len, neighbors.values())))
    repeats = {name: repeats_of(released.fold.place, name, others) for name, others in neighbors.items()}
    repeats = {name: aligned for name, aligned in repeats.items() if aligned}
    if not repeats:
        yield NotRun(reason="no near repeats")
        return
    examined = [beside(name, list(aligned), aligned_attacks(list(aligned.values()))) for name, aligned in repeats.items()]
    yield best(examined, 1 + max(map(len, repeats.values())))


def repeats_of(place: ReferencePlace, name: str, others: Sequence[str]) -> dict[str, Alignment]:
    """Those of `others` that are near repeats of a photograph, each with the map from its pixels to those of the photograph."""
    tried = {other: alignment_of(place.features[name], place.features[other]) for other in others}
    return {other: alignment for other, alignment in tried.items() if alignment is not None}


def best(by_photograph: Sequence[Sequence[Finding]], uploads: int) -> RecoveredShare | NotRun:
    """The attack that recovers most descriptors, by the findings on each photograph.

    Oracles do not count. An attack is not the best if it ran on fewer photographs than another, or on less than `LEAST_PART` of
    the features.
    """
    scores: dict[str, list[Score]] = {}
    for photograph in by_photograph:
        for finding in photograph:
            if finding.score is not None and finding.score.unit != "px" and not finding.hypothetical:
                scores.setdefault(finding.attack, []).append(finding.score)
    if not scores:
        return NotRun(reason="no attack could be run")
    most = max(map(len, scores.values()))
    attacked = {attack: sum(score.recovered.total for score in parts) for attack, parts in scores.items()}
    enough = LEAST_PART * max(attacked.values())
    whole = {attack: parts for attack, parts in scores.items() if len(parts) == most and attacked[attack] >= enough}
    shares = {attack: _pooled([score.within[WITHIN] for score in parts]) for attack, parts in whole.items()}
    named = [_pooled([score.recovered for score in parts]) for parts in whole.values() if parts[0].unit == "word"]
    attack = max(shares, key=lambda name: shares[name])
    return RecoveredShare(
        attack=attack,
        share=shares[attack],
        features=attacked[attack],
        photographs=most,
        uploads=uploads,
        named=max(named, default=None),
    )


def _pooled(shares: Sequence[Share]) -> float:
    """The share of the features of several photographs together."""
    return sum(share.count for share in shares) / sum(share.total for share in shares)
