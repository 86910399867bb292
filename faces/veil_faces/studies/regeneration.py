"""Study of regeneration by returned scores, of our templates and of published schemes (ISO/IEC 30136).

An attacker claims to be somebody, and asks with descriptors of his own making. The product of the attack is one descriptor. It
is shown to the system that was attacked, and to another one: a verifier of raw descriptors that knows another photograph.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Literal, get_args

import numpy as np
from jaxtyping import Float64

from veil.audit.statistics import clopper_pearson
from veil.features import unit_length
from veil_faces.answers import BANDS, band_of
from veil_faces.studies.linkage import FALSE_MATCHES, LinkageMaterial
from veil_faces.studies.linked_systems import LiftedSystem, LinkedSystem, Unprotected
from veil_faces.studies.score_attacks import SolvedSubspace, bordering_subspace, climbed, solved_subspace
from veil_faces.studies.template_estimates import ingredients, mixed

AnswerKind = Literal["distance", "band", "decision"]
ANSWERS: tuple[AnswerKind, ...] = get_args(AnswerKind)


@dataclass(frozen=True, kw_only=True)
class RegenerationRow:
    """Success of one attack on one system by one kind of answer.

    `attack` is "climbing", "equations", "border" (equations from accepts and rejects), or "none", which shows a face of the
    attacker's own. `questions` is the number that it asked of each
    of `people` systems, `first_accepted` the median number after which a probe was accepted, None if for fewer than half of
    them. `cosine` is the mean of the descriptor's with the enrolled one, both seen from the mean face. `same` is the share
    accepted by the attacked system, `other` by a verifier of raw descriptors, with 95 % intervals.
    """

    system: str
    answer: str
    attack: str
    people: int
    questions: int
    first_accepted: int | None
    cosine: float
    same: float
    other: float
    other_low: float
    other_high: float

    def as_json(self) -> dict[str, object]:
        """The stable record of docs/reference/json.md."""
        return {
            "system": self.system,
            "answer": self.answer,
            "attack": self.attack,
            "people": self.people,
            "questions": self.questions,
            "first_accepted": self.first_accepted,
            "cosine": self.cosine,
            "same": self.same,
            "other": self.other,
            "other_low": self.other_low,
            "other_high": self.other_high,
        }


@dataclass(kw_only=True)
class AskedSystem:
    """One person's template that answers, and counts the questions and the number after which one was accepted."""

    system: LinkedSystem
    key: int
    template: Float64[np.ndarray, "_"]
    threshold: float
    answer: AnswerKind
    questions: int = 0
    first_accepted: int | None = field(default=None)

    def __call__(self, probes: np.ndarray) -> Float64[np.ndarray, "probes"]:
        """Answers to probes as numbers, smaller for nearer ones."""
        apart = self.system.distances(probes, self.key, self.template)
        accepted = np.flatnonzero(apart <= self.threshold)
        if self.first_accepted is None and len(accepted):
            self.first_accepted = self.questions + int(accepted[0]) + 1
        self.questions += len(probes)
        if self.answer == "distance":
            return apart
        if self.answer == "decision":
            return (apart > self.threshold).astype(np.float64)
        return np.array([BANDS.index(band_of(float(value), self.threshold)) for value in apart], dtype=np.float64)


def match_limit(system: LinkedSystem, material: LinkageMaterial) -> float:
    """The largest distance at which at most 1 in 1,000 probes of other people match, of the training people."""
    first, last = material.two_pictures(material.trained)
    keys = np.arange(len(first))
    templates = system.templates(first, keys, f"limit {material.seed}")
    apart = np.stack([system.distances(last, int(key), row) for key, row in zip(keys, templates, strict=True)], axis=1)
    others = np.sort(apart[~np.eye(len(first), dtype=bool)])
    below = others[max(0, int(FALSE_MATCHES * len(others)) - 1)]
    return float(below)


def regeneration_rows(
    system: LinkedSystem,
    material: LinkageMaterial,
    *,
    people: int,
    questions: int,
    answers: Sequence[AnswerKind] = ANSWERS,
) -> Iterator[RegenerationRow]:
    """Rows of one system: no attack, then hill climbing by each answer, and linear equations where distances are Euclidean."""
    first, last = (part[:people] for part in material.two_pictures(material.attacked))
    keys = 9_000_000 + np.arange(len(first))
    templates = system.templates(first, keys, f"asked {material.seed}")
    threshold, raw_threshold = match_limit(system, material), match_limit(Unprotected(), material)
    attacks = [("none", "decision"), *(("climbing", answer) for answer in answers)]
    if isinstance(system, LiftedSystem | Unprotected):
        attacks += [("equations", answer) for answer in answers if answer != "decision"] + [("border", "decision")]
    middle = material.own.mean(axis=0)
    for attack, answer in attacks:
        asked = [
            AskedSystem(system=system, key=int(key), template=row, threshold=threshold, answer=answer)
            for key, row in zip(keys, templates, strict=True)
        ]
        results = np.stack([_attacked(attack, item, material, questions, seed) for seed, item in enumerate(asked)])
        same = sum(
            bool(item.system.distances(x[None], item.key, item.template)[0] <= threshold)
            for item, x in zip(asked, results, strict=True)
        )
        other = int((np.linalg.norm(results - last, axis=1) <= raw_threshold).sum())
        low, high = clopper_pearson(other, len(last), confidence=0.95)
        accepted = sorted(item.first_accepted or questions**2 for item in asked)
        median = accepted[(len(accepted) - 1) // 2]
        yield RegenerationRow(
            system=system.name,
            answer="none" if attack == "none" else answer,
            attack=attack,
            people=len(first),
            questions=max(item.questions for item in asked),
            first_accepted=None if attack == "none" or median == questions**2 else median,
            cosine=float((unit_length(results - middle) * unit_length(first - middle)).sum(axis=1).mean()),
            same=same / len(first),
            other=other / len(last),
            other_low=low,
            other_high=high,
        )


def _attacked(attack: str, asked: AskedSystem, material: LinkageMaterial, questions: int, seed: int) -> np.ndarray:
    """The descriptor that an attack gives."""
    if attack == "none":
        return material.own[seed % len(material.own)]
    if attack == "climbing":
        return climbed(asked, material.own, questions=questions, seed=seed)
    solved: SolvedSubspace | None
    if attack == "equations":
        solved = solved_subspace(asked, material.own.shape[1])
    else:
        inside = climbed(asked, material.own, questions=questions, seed=seed)
        solved = bordering_subspace(asked, inside, material.own, seed=seed)
        if solved is None:
            return inside
    system = asked.system
    if isinstance(system, LiftedSystem):
        parts = ingredients(solved.origin[None], solved.basis[None], material.pool.vectors, system.decoys, system.crowd)
        return mixed(parts, system.mixture)[0]
    # Where all answers are alike the equations give no direction, and the mean face is left.
    length = np.linalg.norm(solved.origin)
    return unit_length(solved.origin if length > 1e-9 else material.own.mean(axis=0))
