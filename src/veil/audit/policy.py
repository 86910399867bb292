"""Rules that make a build fail: `structural>5%`, `lattice.exact>0`, `words.identified>30%`, `epsilon.image>100`.

A share is measured on the features that were attacked. A rule is kept if the share's whole interval keeps it, so that few
features cannot pass a rule that many would break (audit.md#policies). No sample shows that a limit of 0 is kept in general:
such a rule asks that not one of the attacked features is recovered.
"""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from veil.attacks.attack import FAMILIES
from veil.audit.finding import CONFIDENCE, Finding, Share
from veil.errors import InputError
from veil.ldp.rounding import interval_ends, outward
from veil.one_line import one_line

_RULE = re.compile(r"^\s*([a-z][a-z0-9 _-]*?)(?:\.([a-z][a-z0-9_.]*))?\s*(>=|>)\s*([0-9.eE+-]+)\s*(%?)\s*$")
METRICS = (
    "recovered",
    "certified",
    "exact",
    "identified",
    "within_0.02",
    "within_0.1",
    "within_0.2",
    "within_0.4",
    "within_0.6",
)
METRICS_PX = ("within_1px", "within_5px", "within_20px")
EPSILONS = ("feature", "object", "image")
HELP = (
    "a rule is NAME[.METRIC] > NUMBER, for example structural>5%, lattice.exact>0, positions.within_5px>10% or "
    f"epsilon.image>100; NAME is an attack or one of {', '.join(FAMILIES)}, METRIC one of {', '.join((*METRICS, *METRICS_PX))}"
)


@dataclass(frozen=True, kw_only=True)
class Rule:
    """Rule that is broken if `metric` of an attack may exceed `limit`, or reach it if `inclusive`.

    `name` is that of the attack or of its family; for "epsilon", `metric` is the unit, and no attack counts. `text` is the rule
    as it was written.
    """

    text: str
    name: str
    metric: str
    limit: float
    inclusive: bool

    __repr__ = one_line

    def __str__(self) -> str:
        return self.text

    @staticmethod
    def parse(text: str) -> Rule:
        """Rule that `text` states. Raises InputError, with the grammar, for any other text."""
        parsed = _RULE.match(text)
        if not parsed:
            raise InputError(f"{text!r} is not a rule: {HELP}")
        name, metric, sign, number, percent = parsed.groups()
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

    def exceeded(self, value: float) -> bool:
        """Whether a value is above the limit, or equal to it if `inclusive`."""
        return value >= self.limit if self.inclusive else value > self.limit

    def breaks(self, share: Share) -> bool:
        """Whether a share may break the rule: the upper end of its interval exceeds the limit; its value, for a limit of 0."""
        return self.exceeded(share.value) or (self.limit > 0 and self.exceeded(share.high))

    @property
    def least_features(self) -> int:
        """Number of features that must be attacked for the rule to be kept if nothing at all is recovered.

        Theory: docs/theory/audit.md, Eq. 3 (Clopper and Pearson 1934).
        """
        if self.name == "epsilon" or not 0 < self.limit < 1:
            return 1
        # 0 of n have the upper end 1 - ((1 - confidence) / 2)^(1 / n).
        return math.floor(math.log((1 - CONFIDENCE) / 2) / math.log1p(-self.limit)) + 1


def least_features(rules: Sequence[Rule], names: Collection[str]) -> int:
    """Number of features that attacks of these names or families need for all of `rules` on them to be kept.

    It is 1 if there is no such rule.
    """
    return max((rule.least_features for rule in rules if rule.name in names), default=1)


def parse_policy(text: str) -> list[Rule]:
    """Rules of a policy with one rule on each line; `#` begins a comment. Raises InputError for a line that is no rule."""
    lines = (line.split("#", 1)[0].strip() for line in text.splitlines())
    return [Rule.parse(line) for line in lines if line]


def breaches(rules: Sequence[Rule], findings: Sequence[Finding], epsilons: Mapping[str, float]) -> dict[Rule, str]:
    """The `rules` that the findings or the `epsilons` break, each with the reason.

    `epsilons` are by unit: feature, object, image, and the ledger's session. A rule that could not be judged counts as broken,
    too, or a policy could pass by running nothing.
    """
    return {rule: why for rule in rules if (why := _breach(rule, findings, epsilons)) is not None}


def _breach(rule: Rule, findings: Sequence[Finding], epsilons: Mapping[str, float]) -> str | None:
    """Reason why a rule is broken; None if it is kept."""
    if rule.name == "epsilon":
        if rule.metric not in epsilons:
            return "the release has no epsilon at all"
        value = epsilons[rule.metric]
        return f"epsilon is {outward(value, 6)}" if rule.exceeded(value) else None
    named = [finding for finding in findings if rule.name in (finding.attack, finding.family)]
    judged = [(finding, share) for finding in named if (share := _share(finding, rule.metric)) is not None]
    if not judged:
        known = sorted({finding.attack for finding in findings} | {finding.family for finding in findings})
        reasons = "; ".join(f"{f.attack}: {f.skipped or 'needs the originals'}" for f in named)
        return f"not judged ({reasons or 'there are only ' + ', '.join(known)})"
    broken = [(finding, share) for finding, share in judged if rule.breaks(share)]
    if not broken:
        return None
    surely = [pair for pair in broken if rule.exceeded(pair[1].value)]
    if surely:
        worst, share = max(surely, key=lambda pair: pair[1].value)
        return f"{worst.attack}: {share}"
    worst, share = max(broken, key=lambda pair: pair[1].high)
    return f"{worst.attack}: {share}, so it may be {_most(share)}; {_enough(rule, share)}"


def _most(share: Share) -> str:
    return f"{interval_ends(share.low, share.high)[1]} %"


def _enough(rule: Rule, share: Share) -> str:
    if share.count:
        return f"attack more features than {share.total} to tell"
    return f"attack {rule.least_features} features to tell, not {share.total}"


def _share(finding: Finding, metric: str) -> Share | None:
    """Share of a finding that a rule names `metric`; None if the attack was skipped or this was not measured."""
    if finding.skipped:
        return None
    if metric == "recovered":
        return finding.recovered
    if metric == "certified":
        return finding.certified
    return None if finding.score is None else finding.score.shares.get(metric)
