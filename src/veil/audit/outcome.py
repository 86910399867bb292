"""What an audit comes to: the record that its page, its JSON and its printed lines tell."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass

from veil.audit.epsilon import EpsilonBound
from veil.audit.finding import Finding
from veil.audit.pictured import Reconstruction
from veil.audit.policy import Breach, Rule
from veil.audit.verdict import NOT_TESTED, Verdict


@dataclass(frozen=True, kw_only=True, eq=False)
class Outcome:
    """`facts` tell of the release, `epsilons` (by unit, at `delta`) what words carry, `measured` what runs of them show."""

    messages: Sequence[str]
    facts: Mapping[str, object]
    findings: Sequence[Finding]
    pictures: Sequence[Reconstruction]
    epsilons: Mapping[str, float]
    delta: float
    measured: EpsilonBound | None
    verdict: Verdict
    rules: Sequence[Rule]
    breaches: Sequence[Breach]
    have_originals: bool

    def why(self, rule: Rule) -> str | None:
        """Why a rule is broken, None if it is kept."""
        return next((breach.why for breach in self.breaches if breach.rule == rule.text), None)

    def as_json(self) -> dict:
        """The stable record of docs/reference/json.md."""
        measured = None if self.measured is None else asdict(self.measured)
        return {
            "release": {"messages": list(self.messages), **self.facts},
            "attacks": [finding.as_json() for finding in self.findings],
            "epsilon": {"delta": self.delta, **self.epsilons, "measured": measured},
            "images": [picture.as_json() for picture in self.pictures],
            "verdict": {
                "grade": self.verdict.grade,
                "headline": self.verdict.headline,
                "sentences": list(self.verdict.sentences),
            },
            "policy": [{"rule": rule.text, "broken": self.why(rule)} for rule in self.rules],
            "not_tested": list(NOT_TESTED),
        }
