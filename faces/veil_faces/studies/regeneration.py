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
from veil_faces.attempts import AttemptLimit
from veil_faces.studies.linkage import FALSE_MATCHES, LinkageMaterial
from veil_faces.studies.linked_systems import LiftedSystem, LinkedSystem, Unprotected
from veil_faces.studies.score_attacks import (
    FaceLaw,
    SolvedSubspace,
    bordering_subspace,
    central_descriptor,
    climbed,
    is_decoy,
    low_rank_descriptor,
    solved_subspace,
)
from veil_faces.studies.template_estimates import ingredients, mixed

AnswerKind = Literal["distance", "band", "decision"]
ANSWERS: tuple[AnswerKind, ...] = get_args(AnswerKind)
YEAR_DAYS = 365
# Years of asking within the limit of failed attempts, and number of decoys that the attack in low rank looks for.
YEARS, DECOYS = (1, 2, 3), 2
# Bisections of a quarter turn, and steps of it where questions that are accepted cost nothing; steps computed together.
BISECTIONS, SMALL_STEPS, TOGETHER = 12, 1000, 250


@dataclass(frozen=True, kw_only=True)
class RegenerationRow:
    """Success of one attack on one system by one kind of answer.

    `attack` is "climbing", "equations", "border" (equations from accepts and rejects), "low rank" (fewer of them, with the law
    of faces), or "none", which shows a face of the attacker's own. `years` is how long it asked within the default limit of
    failed attempts, None without a limit. `questions` is the largest number that it asked of one of `people` systems, and
    `failed` that of rejected ones. `first_accepted` is the median number after which a probe was accepted, None if for fewer
    than half of the systems. `cosine` is the mean of the descriptor's with the enrolled one, both seen from the mean face.
    `same` is the share accepted by the attacked system, `other` by a verifier of raw descriptors, with 95 % intervals.
    """

    system: str
    answer: str
    attack: str
    years: int | None
    people: int
    questions: int
    failed: int
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
            "years": self.years,
            "people": self.people,
            "questions": self.questions,
            "failed": self.failed,
            "first_accepted": self.first_accepted,
            "cosine": self.cosine,
            "same": self.same,
            "other": self.other,
            "other_low": self.other_low,
            "other_high": self.other_high,
        }


@dataclass(kw_only=True)
class AskedSystem:
    """One person's template that answers, and counts the questions and the number after which one was accepted.

    After `allowed` questions that failed (None: no limit) nothing is compared, and all probes are rejected uncounted.
    """

    system: LinkedSystem
    key: int
    template: Float64[np.ndarray, "_"]
    threshold: float
    answer: AnswerKind
    allowed: int | None = None
    questions: int = 0
    failed: int = 0
    first_accepted: int | None = field(default=None)

    def __call__(self, probes: np.ndarray) -> Float64[np.ndarray, "probes"]:
        """Answers to probes as numbers, smaller for nearer ones."""
        apart = self.system.distances(probes, self.key, self.template)
        if self.allowed is not None:
            rejected = (apart > self.threshold).astype(np.int64)
            before: np.ndarray = np.cumsum(rejected) - rejected
            apart = np.where(before < self.allowed - self.failed, apart, np.inf)
        asked, accepted = np.isfinite(apart), np.flatnonzero(apart <= self.threshold)
        if self.first_accepted is None and len(accepted):
            self.first_accepted = self.questions + int(accepted[0]) + 1
        self.questions += int(asked.sum())
        self.failed += int(asked.sum()) - len(accepted)
        if self.answer == "distance":
            return apart
        if self.answer == "decision":
            return (apart > self.threshold).astype(np.float64)
        return np.array([BANDS.index(band_of(float(value), self.threshold)) for value in apart], dtype=np.float64)

    def border(self, start: np.ndarray, aside: np.ndarray) -> Float64[np.ndarray, "directions"]:
        """Angles of the border (`Border`): by bisection, or by small steps, one of which fails, where failures are limited.

        Angles are the middles of the last two; pi / 2 stands for a border that is farther.
        """
        if self.allowed is None:
            low, high = np.zeros(len(aside)), np.full(len(aside), np.pi / 2)
            for _ in range(BISECTIONS):
                angle = (low + high) / 2
                taken = self(np.cos(angle)[:, None] * start + np.sin(angle)[:, None] * aside) == 0
                low, high = np.where(taken, angle, low), np.where(taken, high, angle)
            return np.where(high < np.pi / 2, (low + high) / 2, np.pi / 2)
        angles, step = [], np.pi / 2 / SMALL_STEPS
        grid = step * np.arange(1, SMALL_STEPS + 1)
        for direction in aside:
            if self.failed >= self.allowed:
                break
            beyond = np.zeros(0, dtype=bool)
            while not beyond.any() and len(beyond) < SMALL_STEPS:
                angle = grid[len(beyond) : len(beyond) + TOGETHER, None]
                probes = np.cos(angle) * start + np.sin(angle) * direction
                apart = self.system.distances(probes, self.key, self.template)
                beyond = np.concatenate([beyond, apart > self.threshold])
            answered = int(beyond.argmax()) + 1 if beyond.any() else SMALL_STEPS
            self.questions += answered
            self.failed += int(beyond.any())
            angles.append(float(grid[answered - 1]) - step / 2 if beyond.any() else np.pi / 2)
        return np.array(angles, dtype=np.float64)


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
    """Rows of one system: no attack, hill climbing by each answer, equations where distances are Euclidean, and low rank.

    Within the default limit of failed attempts, climbing asks for a year by decisions, and low rank for some years where
    equations are solved.
    """
    first, last = (part[:people] for part in material.two_pictures(material.attacked))
    keys = 9_000_000 + np.arange(len(first))
    templates = system.templates(first, keys, f"asked {material.seed}")
    threshold, raw_threshold = match_limit(system, material), match_limit(Unprotected(), material)
    attacks: list[tuple[str, AnswerKind, int | None]] = [("none", "decision", None)]
    attacks += [("climbing", answer, None) for answer in answers]
    if isinstance(system, LiftedSystem | Unprotected):
        attacks += [("equations", answer, None) for answer in answers if answer != "decision"] + [("border", "decision", None)]
    attacks += [("low rank", "decision", years) for years in (None, *YEARS)] + [
        ("climbing", "decision", years) for years in YEARS
    ]
    middle = material.own.mean(axis=0)
    for attack, answer, years in attacks:
        allowed = None if years is None else AttemptLimit().within(years * YEAR_DAYS)
        asked = [
            AskedSystem(system=system, key=int(key), template=row, threshold=threshold, answer=answer, allowed=allowed)
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
            years=years,
            people=len(first),
            questions=max(item.questions for item in asked),
            failed=max(item.failed for item in asked),
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
    if attack == "low rank":
        return _in_low_rank(asked, material, seed)
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


def _in_low_rank(asked: AskedSystem, material: LinkageMaterial, seed: int) -> np.ndarray:
    """The descriptor that the attack in low rank gives; else a face that is accepted, or a face of the attacker's own.

    It asks with the pool's decoys in any order until two of them lie in the template, or with them and faces of its own until
    one is accepted where templates hold no decoys.
    """
    law, random = FaceLaw.of(material.own), np.random.default_rng(seed)
    pool = random.permutation(material.pool.vectors.astype(np.float64))
    if not isinstance(asked.system, LiftedSystem):
        for face in np.concatenate([pool, random.permutation(material.own)]):
            if asked(face[None])[0] == 0:
                return central_descriptor(asked.border, face, law, seed=seed)
        return material.own[seed % len(material.own)]
    accepted, decoys = [], []
    for face in pool:
        if asked(face[None])[0] == 0:
            accepted.append(face)
            if is_decoy(asked.border, face, law, asked.threshold, seed=seed):
                decoys.append(face)
            if len(decoys) == DECOYS:
                descriptor = low_rank_descriptor(asked.border, np.stack(decoys), law, asked.threshold, seed=seed)
                return decoys[0] if descriptor is None else descriptor
    return accepted[0] if accepted else material.own[seed % len(material.own)]
