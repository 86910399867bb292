"""What localization said to the queries of `veil evaluate queries`, and how many of a kind it accepted."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from veil.statistics import clopper_pearson

Kind = Literal["true", "other place", "random", "shuffled"]
Sight = Literal["points", "random lines", "aligned lines"]
SIGHTS: tuple[Sight, ...] = ("points", "random lines", "aligned lines")
RIGHT_DEG = 5.0  # a true query's pose that is turned by more is a wrong one


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """One query in one draw: what localization said, and how strongly."""

    place: str
    query: str
    kind: Kind
    sight: Sight
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
            "sight": self.sight,
            "draw": self.draw,
            "accepted": self.accepted,
            "matches": self.matches,
            "inliers": self.inliers,
            "log10_nfa": self.log10_nfa,
            "position_error": self.position_error,
            "rotation_error_deg": self.rotation_error_deg,
        }


@dataclass(frozen=True, kw_only=True)
class Tally:
    """Verdicts of one kind and sight: how many were accepted, with an exact 95 % interval, and the nearest to the threshold.

    `margin` is the least -log10 NFA of true queries, the greatest of false ones; `astray` counts accepted true queries
    whose pose is turned by more than `RIGHT_DEG`.
    """

    kind: Kind
    sight: Sight
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
            "sight": self.sight,
            "total": self.total,
            "accepted": self.accepted,
            "low": self.low,
            "high": self.high,
            "margin": self.margin,
            "astray": self.astray,
        }


def tally(verdicts: Sequence[Verdict]) -> list[Tally]:
    """One tally for each kind and sight that occurs."""
    tallies = []
    for kind, sight in dict.fromkeys((verdict.kind, verdict.sight) for verdict in verdicts):
        group = [verdict for verdict in verdicts if (verdict.kind, verdict.sight) == (kind, sight)]
        accepted = sum(verdict.accepted for verdict in group)
        low, high = clopper_pearson(accepted, len(group), confidence=0.95)
        strengths = [-verdict.log10_nfa for verdict in group]
        astray = sum(verdict.rotation_error_deg is not None and verdict.rotation_error_deg > RIGHT_DEG for verdict in group)
        tallies.append(
            Tally(
                kind=kind,
                sight=sight,
                total=len(group),
                accepted=accepted,
                low=low,
                high=high,
                margin=min(strengths) if kind == "true" else max(strengths),
                astray=astray,
            )
        )
    return tallies
