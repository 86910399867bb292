"""Records of contributions: messages that were given to maps, and what became of them."""

from __future__ import annotations

import json
import secrets
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, cast

from veil.server.answers.of_maps import ContributionJson, GivenMessageJson, MessageContentJson
from veil.server.store.blob_use import fasten
from veil.server.store.schema import Row, Statements

if TYPE_CHECKING:
    from veil.server.maps.records import MapRecord

State = Literal["pending", "mapped", "left out", "leaving"]
DAY_S = 86400.0


@dataclass(frozen=True, kw_only=True)
class Contribution:
    """A message that was given to a map.

    - `id`: the server's name of it, and that of its image in the map.
    - `token`: id of the token that gave it, whose holder may see and delete it.
    - `digest`, `size_bytes`: SHA-256 (hex) and length of the message.
    - `facts`: what the message contains, as `veil.server.jobs.tasks.examine` says it; and "evidence", what the map says of it,
      which is for administrators alone, as it also tells of what others contributed; and "removed", for its receipt.
    - `state`: "pending" before it was mapped, "mapped", "left out" with a `reason`, or "leaving" while it is taken out.
    - `expires`: when it is deleted (seconds since 1970); None: when its owner says so.
    """

    id: str
    map_id: str
    token: str
    digest: str
    size_bytes: int
    facts: Mapping[str, Any]
    state: State
    reason: str
    received: float
    expires: float | None

    def as_json(self) -> ContributionJson:
        """The contribution as JSON values."""
        return {**self.message_json(), "state": self.state}

    def message_json(self) -> GivenMessageJson:
        """The message as JSON values, without its state."""
        content = {name: value for name, value in self.facts.items() if name not in ("kind", "evidence", "removed")}
        return {
            "contribution": self.id,
            "map": self.map_id,
            "message_sha256": self.digest,
            "bytes": self.size_bytes,
            "reason": self.reason,
            "received": self.received,
            "expires": self.expires,
            **cast(MessageContentJson, content),
        }


def add_contribution(
    statements: Statements, record: MapRecord, *, token: str, digest: str, size_bytes: int, facts: Mapping[str, Any]
) -> Contribution:
    """Enter a message, or find it: the same message of the same token is one contribution."""
    row = statements.one(
        "SELECT * FROM contributions WHERE map = :map AND token = :token AND digest = :digest",
        map=record.id,
        token=token,
        digest=digest,
    )
    if row is not None:
        return contribution_of(row)
    now = time.time()
    contribution = Contribution(
        id="c" + secrets.token_hex(8),
        map_id=record.id,
        token=token,
        digest=digest,
        size_bytes=size_bytes,
        facts=facts,
        state="pending",
        reason="",
        received=now,
        expires=None if record.policy.keep_days is None else now + DAY_S * record.policy.keep_days,
    )
    statements.run(
        "INSERT INTO contributions (id, map, token, digest, bytes, facts, state, reason, received, expires) "
        "VALUES (:id, :map, :token, :digest, :bytes, :facts, :state, '', :received, :expires)",
        id=contribution.id,
        map=record.id,
        token=token,
        digest=digest,
        bytes=size_bytes,
        facts=json.dumps(facts),
        state=contribution.state,
        received=now,
        expires=contribution.expires,
    )
    fasten(statements, [digest])
    return contribution


def contributions_in(statements: Statements, map_id: str | None = None) -> list[Contribution]:
    """Contributions to a map, or to any, oldest first."""
    if map_id is None:
        rows = statements.all("SELECT * FROM contributions ORDER BY received, id")
    else:
        rows = statements.all("SELECT * FROM contributions WHERE map = :map ORDER BY received, id", map=map_id)
    return [contribution_of(row) for row in rows]


def leaving_in(statements: Statements) -> list[Contribution]:
    """Contributions that are being deleted, oldest first."""
    return [
        contribution_of(row)
        for row in statements.all("SELECT * FROM contributions WHERE state = 'leaving' ORDER BY received, id")
    ]


def set_state(statements: Statements, contribution: str, state: State, reason: str = "") -> None:
    """Set the state of a contribution."""
    statements.run(
        "UPDATE contributions SET state = :state, reason = :reason WHERE id = :id",
        state=state,
        reason=reason,
        id=contribution,
    )


def add_facts(statements: Statements, contribution: str, name: str, values: Mapping[str, Any]) -> None:
    """Add values to the facts of a name that a contribution has, if there still is one."""
    row = statements.one("SELECT facts FROM contributions WHERE id = :id", id=contribution)
    if row is not None:
        facts = json.loads(row["facts"])
        facts[name] = {**facts.get(name, {}), **values}
        statements.run("UPDATE contributions SET facts = :facts WHERE id = :id", facts=json.dumps(facts), id=contribution)


def contribution_of(row: Row) -> Contribution:
    """The contribution of a row."""
    return Contribution(
        id=row["id"],
        map_id=row["map"],
        token=row["token"],
        digest=row["digest"],
        size_bytes=row["bytes"],
        facts=json.loads(row["facts"]),
        state=row["state"],
        reason=row["reason"],
        received=row["received"],
        expires=row["expires"],
    )
