"""Rules that make a build fail: `structural>5%`, `lattice.exact>0`, `words.identified>30%`, `epsilon.image>100`."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from veil.audit.finding import FAMILIES, Finding, Share
from veil.errors import InputError

_RULE = re.compile(r"^\s*([a-z][a-z0-9 _-]*?)(?:\.([a-z][a-z0-9_.]*))?\s*(>=|>)\s*([0-9.eE+-]+)\s*(%?)\s*$")
METRICS = ("recovered", "certified", "exact", "identified", "within_0.02", "within_0.1", "within_0.4", "within_0.6")
METRICS_PX = ("within_1px", "within_5px", "within_20px")
EPSILONS = ("feature", "object", "image")
HELP = (
    "a rule is NAME[.METRIC] > NUMBER, for example structural>5%, lattice.exact>0, positions.within_5px>10% or "
    f"epsilon.image>100; NAME is an attack or one of {', '.join(FAMILIES)}, METRIC one of {', '.join((*METRICS, *METRICS_PX))}"
)


@dataclass(frozen=True, kw_only=True)
class Rule:
    """Fail if `metric` of any attack called `name` (or of that family) is above `limit` (at least it, if `inclusive`)."""

    text: str
    name: str
    metric: str
    limit: float
    inclusive: bool

    def exceeded(self, value: float) -> bool:
        """Whether a value breaks the rule."""
        return value >= self.limit if self.inclusive else value > self.limit


@dataclass(frozen=True, kw_only=True)
class Breach:
    """A broken rule, or one that could not be judged: that counts as broken, or a policy could pass by running nothing."""

    rule: str
    why: str


def parse_rule(text: str) -> Rule:
    """Raises InputError with the grammar."""
    found = _RULE.match(text)
    if not found:
        raise InputError(f"{text!r} is not a rule: {HELP}")
    name, metric, sign, number, percent = found.groups()
    try:
        limit = float(number) / (100 if percent else 1)
    except ValueError:
        raise InputError(f"{text!r}: {number!r} is not a number; {HELP}") from None
    is_epsilon = name == "epsilon"
    metric = metric or ("image" if is_epsilon else "recovered")
    if metric not in (EPSILONS if is_epsilon else (*METRICS, *METRICS_PX)):
        raise InputError(f"{text!r}: there is no {metric!r}; {HELP}")
    if not 0 <= limit < math.inf or (limit > 1 and not is_epsilon):
        raise InputError(f"{text!r}: a share lies between 0 and 1, or 0 % and 100 %; {HELP}")
    return Rule(text=text.strip(), name=name, metric=metric, limit=limit, inclusive=sign == ">=")


def parse_policy(text: str) -> list[Rule]:
    """One rule a line; `#` begins a comment."""
    lines = (line.split("#", 1)[0].strip() for line in text.splitlines())
    return [parse_rule(line) for line in lines if line]


def breaches(rules: Sequence[Rule], findings: Sequence[Finding], epsilons: Mapping[str, float]) -> list[Breach]:
    """What `findings` and the ledger's `epsilons` (by unit) break."""
    return [breach for rule in rules if (breach := _breach(rule, findings, epsilons)) is not None]


def _breach(rule: Rule, findings: Sequence[Finding], epsilons: Mapping[str, float]) -> Breach | None:
    if rule.name == "epsilon":
        if rule.metric not in epsilons:
            return Breach(rule=rule.text, why="the release has no epsilon at all")
        value = epsilons[rule.metric]
        return Breach(rule=rule.text, why=f"epsilon is {value:g}") if rule.exceeded(value) else None
    named = [finding for finding in findings if rule.name in (finding.attack, finding.family)]
    judged = [(finding, share) for finding in named if (share := _share(finding, rule.metric)) is not None]
    if not judged:
        known = sorted({finding.attack for finding in findings} | {finding.family for finding in findings})
        reasons = "; ".join(f"{f.attack}: {f.skipped or 'needs the originals (--images)'}" for f in named)
        return Breach(rule=rule.text, why=f"not judged ({reasons or 'there are only ' + ', '.join(known)})")
    worst, share = max(judged, key=lambda pair: pair[1].value)
    return Breach(rule=rule.text, why=f"{worst.attack}: {share}") if rule.exceeded(share.value) else None


def _share(finding: Finding, metric: str) -> Share | None:
    if finding.skipped:
        return None
    if metric == "recovered":
        return finding.recovered
    if metric == "certified":
        return finding.certified
    if finding.score is None:
        return None
    if metric.startswith("within_"):
        if metric.endswith("px") != (finding.score.unit == "px"):
            return None
        return finding.score.within.get(float(metric.removeprefix("within_").removesuffix("px")))
    return getattr(finding.score, metric)
