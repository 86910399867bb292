"""Records of `veil evaluate queries`: answers of localization to queries, and how many queries of a kind were accepted."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, get_args

from veil.audit.statistics import clopper_pearson

# True queries are held-out photographs of the mapped place; the other three kinds are false and must be refused.
QueryKind = Literal["true", "other place", "random", "shuffled"]
# What the server sees of the keypoints: their positions, lines of random direction, or lines of which some are along gravity.
ObservationKind = Literal["points", "random lines", "aligned lines", "convergent lines", "parallel lines"]
OBSERVATION_KINDS: tuple[ObservationKind, ...] = get_args(ObservationKind)
RIGHT_DEG = 5.0  # an accepted pose of a true query with a larger rotation error is a wrong one


@dataclass(frozen=True, kw_only=True)
class QueryAnswer:
    """Answer of localization to one query, observed as points or as one draw of lines.

    `matches` counts the 2D-3D matches that were given, `inliers` those of the best pose, whose evidence against chance is
    `log10_nfa` (the lower, the stronger). Errors are in units of the reference and in degrees; None without a pose or for a
    false query. The JSON key of `observation` is "sight".
    """

    place: str
    query: str
    kind: QueryKind
    observation: ObservationKind
    draw: int
    accepted: bool
    matches: int
    inliers: int
    log10_nfa: float
    position_error: float | None
    rotation_error_deg: float | None

    def as_json(self) -> dict:
        """The stable record of docs/reference/json.md."""
        return {
            "place": self.place,
            "query": self.query,
            "kind": self.kind,
            "sight": self.observation,
            "draw": self.draw,
            "accepted": self.accepted,
            "matches": self.matches,
            "inliers": self.inliers,
            "log10_nfa": self.log10_nfa,
            "position_error": self.position_error,
            "rotation_error_deg": self.rotation_error_deg,
        }


@dataclass(frozen=True, kw_only=True)
class AcceptanceCount:
    """How many queries of one kind, observed in one way, were accepted, with an exact (Clopper-Pearson) 95 % interval.

    `margin` is the -log10 NFA nearest to the threshold: the least one of true queries, the greatest one of false queries.
    `astray` counts accepted true queries whose rotation error is more than `RIGHT_DEG`.
    """

    kind: QueryKind
    observation: ObservationKind
    total: int
    accepted: int
    low: float
    high: float
    margin: float
    astray: int

    def as_json(self) -> dict:
        """The stable record of docs/reference/json.md."""
        return {
            "kind": self.kind,
            "sight": self.observation,
            "total": self.total,
            "accepted": self.accepted,
            "low": self.low,
            "high": self.high,
            "margin": self.margin,
            "astray": self.astray,
        }


def acceptance_counts(answers: Sequence[QueryAnswer]) -> list[AcceptanceCount]:
    """One count for each pair of a kind and an observation that occurs, in the order of first occurrence."""
    counts = []
    for kind, observation in dict.fromkeys((answer.kind, answer.observation) for answer in answers):
        group = [answer for answer in answers if (answer.kind, answer.observation) == (kind, observation)]
        accepted = sum(answer.accepted for answer in group)
        low, high = clopper_pearson(accepted, len(group), confidence=0.95)
        strengths = [-answer.log10_nfa for answer in group]
        astray = sum(answer.rotation_error_deg is not None and answer.rotation_error_deg > RIGHT_DEG for answer in group)
        counts.append(
            AcceptanceCount(
                kind=kind,
                observation=observation,
                total=len(group),
                accepted=accepted,
                low=low,
                high=high,
                margin=min(strengths) if kind == "true" else max(strengths),
                astray=astray,
            )
        )
    return counts
