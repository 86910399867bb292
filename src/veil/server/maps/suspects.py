"""Contributions that an administrator should look at, and how much of a map one token may give.

docs/theory/contributions.md says what each number and each reason means.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from veil.server.answers.of_maps import SuspectJson, SuspectsJson, TokenShareJson
from veil.server.maps.contributions import Contribution
from veil.server.maps.policy import Refused
from veil.server.maps.records import MapRecord
from veil.server.store.schema import Statements

# A contribution repeats another one if it shares so much of its features with it; other draws and views share a tenth of that.
REPEATS = 0.3
# It contradicts the map if so much of its features clearly match an image that it has no points in common with; decoys that
# two releases of different places share give half of that now and then.
UNEXPLAINED = 0.3
# What a map of fewer images leaves out says nothing.
LEAST_IMAGES = 3
# No token's share is judged below this number of contributions.
SHARE_FROM = 10
ReasonKind = Literal["degenerate", "left out", "unexplained", "alone", "repeats own", "repeats others"]


class TooMuch(Refused):
    """A contribution beyond what one token may give to a map."""


@dataclass(frozen=True, kw_only=True)
class Reason:
    """Why a contribution is suspect: a fixed phrase for machines, and a sentence."""

    kind: ReasonKind
    told: str


@dataclass(frozen=True, kw_only=True)
class Suspect:
    """A contribution that something speaks against; nothing is deleted for it.

    `weight` is the share of the points which it observes that images of other tokens observe, too; None where no other token
    has an image in the map.
    """

    contribution: Contribution
    weight: float | None
    reasons: tuple[Reason, ...]

    def as_json(self) -> SuspectJson:
        """The suspect as JSON values, for administrators."""
        state = self.contribution.state
        assert state != "leaving"  # what leaves is not judged
        return {
            **self.contribution.message_json(),
            "state": state,
            "token": self.contribution.token,
            "weight": self.weight,
            "evidence": self.contribution.facts.get("evidence", {}),
            "reasons": [{"reason": reason.kind, "told": reason.told} for reason in self.reasons],
        }


@dataclass(frozen=True, kw_only=True)
class TokenShare:
    """How much of a map one token gave: its contributions, those in the map, points that they observe, and suspects."""

    token: str
    contributions: int
    mapped: int
    observed: int
    suspects: int
    share: float

    def as_json(self) -> TokenShareJson:
        """The share as JSON values."""
        return {
            "token": self.token,
            "contributions": self.contributions,
            "mapped": self.mapped,
            "observed": self.observed,
            "suspects": self.suspects,
            "share": self.share,
        }


def weight_of(item: Contribution, items: Sequence[Contribution]) -> float | None:
    """The share of the points which a contribution observes that others confirm, as `Suspect` says."""
    others = any(other.state == "mapped" and other.token != item.token for other in items)
    evidence = item.facts.get("evidence")
    if not others or evidence is None:
        return None
    return evidence["confirmed"] / max(1, evidence["observed"])


def reasons_of(item: Contribution, images: int) -> tuple[Reason, ...]:
    """Reasons against a contribution to a map, by the number of contributions that the map holds."""
    reasons: list[Reason] = []
    evidence = item.facts.get("evidence", {})
    for text in item.facts.get("degenerate") or []:
        reasons.append(Reason(kind="degenerate", told=text))
    if item.state == "left out" and images >= LEAST_IMAGES:
        reasons.append(Reason(kind="left out", told=f"nothing in the map agrees with it: {item.reason}"))
    if evidence.get("unexplained", 0.0) >= UNEXPLAINED:
        text = f"{evidence['unexplained']:.0%} of its features match an image of the map whose geometry it contradicts"
        reasons.append(Reason(kind="unexplained", told=text))
    if evidence.get("alone"):
        reasons.append(
            Reason(kind="alone", told="only contributions of its own token see what it sees, and others made the map")
        )
    if evidence.get("repeats_own", 0.0) >= REPEATS:
        text = f"{evidence['repeats_own']:.0%} of its features repeat an earlier contribution of its token"
        reasons.append(Reason(kind="repeats own", told=text))
    if evidence.get("repeats_others", 0.0) >= REPEATS:
        text = f"{evidence['repeats_others']:.0%} of its features repeat an earlier contribution of another token"
        reasons.append(Reason(kind="repeats others", told=text))
    return tuple(reasons)


def suspects_of(items: Sequence[Contribution]) -> list[Suspect]:
    """The suspect contributions to a map, those that most speaks against first, then those that others confirm least."""
    images = sum(item.state == "mapped" for item in items)
    suspects = [
        Suspect(contribution=item, weight=weight_of(item, items), reasons=reasons)
        for item in items
        if item.state != "leaving" and (reasons := reasons_of(item, images))
    ]
    return sorted(suspects, key=lambda each: (-len(each.reasons), each.weight or 0.0, each.contribution.received))


def doubted(items: Sequence[Contribution]) -> list[str]:
    """Ids of contributions that a map which is made anew should not take its cameras from."""
    return [item.id for item in items if any(reason.kind != "left out" for reason in reasons_of(item, len(items)))]


def shares_of(items: Sequence[Contribution]) -> list[TokenShare]:
    """How much of a map each token gave, the largest share first."""
    suspects = {each.contribution.id for each in suspects_of(items)}
    shares = []
    for token in sorted({item.token for item in items}):
        own = [item for item in items if item.token == token]
        shares.append(
            TokenShare(
                token=token,
                contributions=len(own),
                mapped=sum(item.state == "mapped" for item in own),
                observed=sum(int(item.facts.get("evidence", {}).get("observed", 0)) for item in own if item.state == "mapped"),
                suspects=sum(item.id in suspects for item in own),
                share=len(own) / len(items),
            )
        )
    return sorted(shares, key=lambda each: (-each.contributions, each.token))


def suspects_record(record: MapRecord, items: Sequence[Contribution]) -> SuspectsJson:
    """Contributions to a map with the reasons against each, as JSON values for the administrator."""
    return {
        "map": record.id,
        "contributions": len(items),
        "tokens": [share.as_json() for share in shares_of(items)],
        "suspects": [suspect.as_json() for suspect in suspects_of(items)],
    }


def require_share(statements: Statements, record: MapRecord, token: str, digest: str) -> None:
    """Raise TooMuch if a token may not give one more message to a map; a message that it gave before is none."""
    most, share = record.policy.max_contributions_of_token, record.policy.max_share_of_token
    if most is None and share is None:
        return
    where = {"map": record.id, "token": token}
    known = statements.one(
        "SELECT id FROM contributions WHERE map = :map AND token = :token AND digest = :digest", digest=digest, **where
    )
    if known is not None:
        return
    own = _count(statements, "SELECT count(*) AS number FROM contributions WHERE map = :map AND token = :token", **where)
    everybody = _count(statements, "SELECT count(*) AS number FROM contributions WHERE map = :map", map=record.id)
    if most is not None and own + 1 > most:
        raise TooMuch(f"the token gave {own} contributions to this map, which takes {most} of one token; delete some first")
    if share is not None and own + 1 > share * max(everybody + 1, SHARE_FROM):
        raise TooMuch(
            f"the token gave {own} of {everybody} contributions to this map, which takes a share of {share:g} of one token; "
            "delete some, or wait until others have given more"
        )


def _count(statements: Statements, sql: str, **values: object) -> int:
    row = statements.one(sql, **values)
    return 0 if row is None else int(row["number"])
