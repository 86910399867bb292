"""Verdict of an audit in plain words. It can say that a release is broken or leaks; it never says that one is safe.

Notes of findings are sentences on the order of features, and on poses without any descriptor.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from veil.attacks.claims import OrderEvidence
from veil.attacks.on_lines import ORDER_FALSE_ALARMS, ORDER_POWER
from veil.audit.finding import RECOVERED_WITHIN, RECOVERED_WITHIN_PX, Finding
from veil.errors import Remedy
from veil.ldp.rounding import outward
from veil.one_line import one_line

Grade = Literal["broken", "leaks", "nothing found"]
# Least share of recovered features from which a release is called broken, or leaking.
NOTABLE = 0.05
# Families of attacks that need nothing but releases, which the server has anyway.
NEED_RELEASES_ALONE = ("structural", "repeat", "views")

NOT_TESTED = (
    "larger networks, and ones that read positions, neighbors and subspaces jointly",
    "lattice reduction stronger than the one that was run",
    "photographs of the same place that an attacker may find elsewhere",
    "without a map, what features that match one give away to whoever matches them: that is by design",
)


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """Verdict of an audit: a `grade`, its reason in a sentence (`headline`), further `sentences`, and a `remedy` for more."""

    grade: Grade
    headline: str
    sentences: tuple[str, ...]
    remedy: tuple[Remedy, ...] = ()

    __repr__ = one_line

    def __str__(self) -> str:
        return f"{self.grade.upper()}: {self.headline}"


def judge(findings: Sequence[Finding], epsilons: Mapping[str, float], delta: float, *, remarks: Sequence[str] = ()) -> Verdict:
    """Verdict on the releases that `findings` are about; the worst finding decides (audit.md#the-verdict).

    Oracles are left out, since they only bound what other attacks could do. `epsilons` (by unit, at `delta`) has no entry
    "feature" where the releases carry no epsilon. `remarks` are further sentences.
    """
    tried = [finding for finding in findings if not finding.skipped and not finding.hypothetical]
    ran = [(finding, share) for finding in tried if (share := finding.recovered) is not None]
    sentences = [_promise(epsilons, delta), *remarks]
    if not ran:
        return Verdict(
            grade="nothing found",
            headline="no attack could be scored",
            sentences=tuple(sentences),
            remedy=(Remedy("give", "run_audit.originals"),),
        )
    alone = [pair for pair in ran if pair[0].family in NEED_RELEASES_ALONE]
    worst, most = max(alone or ran, key=lambda pair: pair[1].value)
    if alone and most.value >= NOTABLE:
        grade: Grade = "broken"
        headline = (
            f"the server computes {_recovered_part(worst)} for {most} of the features from what was uploaded alone "
            f"({worst.attack} attack)"
        )
    else:
        worst, most = max(ran, key=lambda pair: pair[1].value)
        if most.value >= NOTABLE:
            grade = "leaks"
            headline = (
                f"an attacker who has {worst.assumes} computes {_recovered_part(worst)} for {most} of the {worst.unit}s "
                f"({worst.attack} attack)"
            )
        else:
            grade = "nothing found"
            headline = f"no attack that was run recovered more than {most} of the {worst.unit}s ({worst.attack} attack)"
    sentences.append(
        "Every number is what a known attack reached on this release: a lower bound of what leaks, and no proof beyond."
    )
    wrong = sum(finding.score.false_certificates for finding, _ in ran if finding.score is not None)
    if wrong:
        sentences.append(f"{wrong} recoveries that an attack had certified were wrong: please report this as a bug of veil.")
    return Verdict(grade=grade, headline=headline, sentences=tuple(sentences))


def _recovered_part(finding: Finding) -> str:
    """Words for what the finding's recovered share counts."""
    if finding.unit == "release":
        return "where the camera was, and knows it,"
    if finding.score is None:
        return "the descriptor, and knows it,"
    match finding.score.unit:
        case "descriptor":
            return f"the descriptor to within {RECOVERED_WITHIN:g}"
        case "px":
            return f"the position to within {RECOVERED_WITHIN_PX:g} px"
        case "word":
            return "the word"


def _promise(epsilons: Mapping[str, float], delta: float) -> str:
    """Sentence on the epsilon that the release carries."""
    if "feature" not in epsilons:  # an entry "session" may be there: what other releases spent covers nothing of this one
        return "The release carries no epsilon: lifting and lines are obfuscations without proof."
    image = f", {outward(epsilons['image'])} for the whole image at delta {delta:g}" if "image" in epsilons else ""
    return (
        f"The release carries epsilon {outward(epsilons['feature'], 6)} for each feature{image}. It covers the descriptors, "
        "not positions, their number, or repeats under another secret."
    )


def order_note(evidence: Sequence[OrderEvidence]) -> str:
    """Sentence on whether the order of any release leaks (Bonferroni-corrected), and on the correlation that is detectable."""
    values = np.array([test.p_value for test in evidence])
    corrected = np.minimum(1.0, values * len(values))
    leaks = int((corrected <= ORDER_FALSE_ALARMS).sum())
    after = f" after correction for {len(values)} tests" if len(values) > 1 else ""
    if leaks:
        which = f"in {leaks} of {len(values)} releases" if len(values) > 1 else ""
        claim = f"the order of the features is told from a random one {which}".strip()
        return f"{claim}: it leaks (p = {corrected.min():.2g}{after})"
    detectable = max(test.detectable for test in evidence)
    if detectable >= 1:
        return f"too few features for the order to be told from a random one (p = {corrected.min():.2g}{after})"
    return (
        f"tested: whether positions have a trend along the order of the features, or neighbors in it are alike. Not told from "
        f"a random order (p = {corrected.min():.2g}{after}; {ORDER_FALSE_ALARMS:g} would tell it); a rank correlation of "
        f"{detectable:.2f} would have been seen with {100 * ORDER_POWER:.0f} %, smaller ones may be there"
    )


def pose_note(localized: int, releases: int, details: Mapping[str, float]) -> str:
    """Sentence on how many releases were localized from positions and gravity alone, and how much of the map was tried.

    `details` hold the mean numbers of "groups" of images and of "groups_tried".
    """
    tried = f"{details['groups_tried']:g} of {details['groups']:g} groups of images were tried"
    if localized:
        return f"localized {localized} of {releases} releases from positions and gravity alone, without any descriptor; {tried}"
    return f"localized none of {releases} releases from positions alone; {tried}, and more time, or a rough place, finds more"
