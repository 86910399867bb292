"""Record of an audit's result, which its page, its JSON and its printed lines show."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, TypedDict, get_args

from veil.attacks.time_budget import AuditTime
from veil.audit.epsilon import EpsilonBound, EpsilonBoundJson
from veil.audit.finding import Finding, FindingJson
from veil.audit.on_pictures import DrawnPicture, DrawnPictureJson
from veil.audit.policy import Rule
from veil.audit.recovered import RecoveredFeatures
from veil.audit.verdict import NOT_TESTED, Grade, Verdict
from veil.errors import Remedy, Say
from veil.json_records.values import Reasons
from veil.one_line import one_line

Unit = Literal["feature", "object", "image", "session"]
UNITS: tuple[Unit, ...] = get_args(Unit)


class EpsilonOfUnitsJson(TypedDict, total=False):
    """Epsilon of words, by what it covers; infinite ones are None."""

    feature: float | None
    object: float | None
    image: float | None
    session: float | None


class EpsilonJson(EpsilonOfUnitsJson):
    """Epsilon at delta, and the bound that was measured."""

    delta: float
    measured: EpsilonBoundJson | None


class VerdictJson(TypedDict):
    """The verdict of an audit."""

    grade: Grade
    headline: str
    sentences: list[str]


class JudgedRuleJson(TypedDict):
    """A rule, and why it is broken."""

    rule: str
    broken: str | None


class AttackTimeJson(TypedDict):
    """Time and features of one attack."""

    attack: str
    share_seconds: float | None
    seconds: float
    wanted: int
    attacked: int


class AuditTimeJson(TypedDict):
    """Time of all attacks; None: no limit."""

    allowed_seconds: float | None
    used_seconds: float
    attacks: list[AttackTimeJson]


class AuditResultsJson(TypedDict):
    """Results of an audit, without the facts about the releases."""

    attacks: list[FindingJson]
    not_looked_at: Reasons
    epsilon: EpsilonJson
    images: list[DrawnPictureJson]
    verdict: VerdictJson
    policy: list[JudgedRuleJson]
    not_tested: list[str]
    time: AuditTimeJson


class AuditJson(AuditResultsJson):
    """Results of an audit; the release has `messages` and the facts that were given."""

    release: Mapping[str, object]


@dataclass(frozen=True, kw_only=True, eq=False)
class Audit:
    """Result of an audit of the releases in `messages`; `as_json` gives the record of docs/reference/json.md.

    `findings` are those of the attacks, `pictures` what was drawn of the releases, `verdict` sums both up, and `breaches` give
    the broken ones of the `rules`, each with the reason. `originals` gives the photograph of each release, and `recovered` the
    features of a release by how well they were recovered; both are empty where the originals were not given. Where they were,
    the record holds what did not leave the device.
    `facts` describe the releases. `not_looked_at` gives, by attack, why attacks on other kinds of release had nothing to look
    at. `epsilons` (by unit, at `delta`) are those that words carry, and that of the ledger's session; `measured` is the lower
    bound that runs of their mechanism show. `time` and `picture_time` hold what the attacks, and those behind the pictures,
    were allowed and took.
    """

    messages: Sequence[str]
    facts: Mapping[str, object]
    findings: Sequence[Finding]
    not_looked_at: Mapping[str, str]
    pictures: Sequence[DrawnPicture]
    epsilons: Mapping[str, float]
    delta: float
    measured: EpsilonBound | None
    verdict: Verdict
    rules: Sequence[Rule]
    breaches: Mapping[Rule, str]
    originals: Mapping[str, str]
    recovered: Mapping[str, RecoveredFeatures]
    time: AuditTime
    picture_time: AuditTime

    __repr__ = one_line

    def told_time(self, say: Say = str) -> tuple[str, ...]:
        """Sentences on the time that was allowed and used, and on the attacks that were cut short.

        `say` turns the remedy into a phrase.
        """
        if math.isinf(self.time.seconds):
            return (f"No time was set; the attacks took {self.time.used_seconds:.0f} s of the processor.",)
        sentences = [
            f"{self.time.seconds:.0f} s of the processor were allowed for the attacks on subspaces, and "
            f"{self.time.used_seconds:.0f} s were used. Each attack has a share; what one leaves passes on to the next."
        ]
        for name, item in self.picture_time.spent.items():
            if item.cut_short:
                sentences.append(f"Pictures by {name} show {item.attacked:,} of {item.wanted:,} features, for want of time.")
        for name, item in self.time.spent.items():
            if item.cut_short:
                sentences.append(
                    f"Cut short: {name} attacked {item.attacked:,} of {item.wanted:,} features in {item.seconds:.0f} s (its "
                    f"share is {item.share_seconds:.0f} s); its intervals are those of so few; "
                    f"{say(Remedy('raise', 'AuditOptions.seconds'))}."
                )
        return tuple(sentences)

    @property
    def told_not_looked_at(self) -> list[tuple[str, str]]:
        """Names of attacks that had nothing to look at, joined for each reason, beside the reason."""
        reasons: dict[str, list[str]] = {}
        for name, why in self.not_looked_at.items():
            reasons.setdefault(why, []).append(name)
        return [("; ".join(names), why) for why, names in reasons.items()]

    def why(self, rule: Rule) -> str | None:
        """Reason why a rule is broken, None if it is kept."""
        return self.breaches.get(rule)

    def as_json(self) -> AuditJson:
        """Stable JSON record, as docs/reference/json.md describes it."""
        return {"release": {"messages": list(self.messages), **self.facts}, **results_of(self)}


def results_of(audit: Audit) -> AuditResultsJson:
    """The record of an audit, without the facts about the releases."""
    spent: EpsilonOfUnitsJson = {}
    for unit in UNITS:
        if unit in audit.epsilons:
            spent[unit] = audit.epsilons[unit]
    return {
        "attacks": [finding.as_json() for finding in audit.findings],
        "not_looked_at": dict(audit.not_looked_at),
        "epsilon": {
            "delta": audit.delta,
            **spent,
            "measured": None if audit.measured is None else audit.measured.as_json(),
        },
        "images": [picture.as_json() for picture in audit.pictures],
        "verdict": {
            "grade": audit.verdict.grade,
            "headline": audit.verdict.headline,
            "sentences": list(audit.verdict.sentences),
        },
        "policy": [{"rule": rule.text, "broken": audit.why(rule)} for rule in audit.rules],
        "not_tested": list(NOT_TESTED),
        "time": {
            "allowed_seconds": None if math.isinf(audit.time.seconds) else audit.time.seconds,
            "used_seconds": audit.time.used_seconds,
            "attacks": [
                {
                    "attack": name,
                    "share_seconds": None if math.isinf(item.share_seconds) else item.share_seconds,
                    "seconds": item.seconds,
                    "wanted": item.wanted,
                    "attacked": item.attacked,
                }
                for name, item in audit.time.spent.items()
            ],
        },
    }
