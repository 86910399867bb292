"""The server's chain of receipts of deletions (`veil.wire.receipts`)."""

from __future__ import annotations

import json
import secrets
import time
from collections.abc import Mapping
from typing import Any

from veil.server.maps.contributions import Contribution
from veil.server.store.database import Database
from veil.server.store.schema import Row, Statements
from veil.wire.receipts import BEGIN, Receipt


def add_receipt(statements: Statements, *, contribution: str, token: str, content: Mapping[str, Any]) -> Receipt:
    """Append a receipt within the transaction that records the deletion; `token` is that of the contribution's owner."""
    last = statements.one("SELECT number, digest FROM receipts ORDER BY number DESC")
    number, before = (1, BEGIN) if last is None else (int(last["number"]) + 1, str(last["digest"]))
    receipt = Receipt(number=number, content={**content, "nonce": secrets.token_hex(16)}, before=before)
    statements.run(
        "INSERT INTO receipts (number, contribution, token, content, content_digest, digest) "
        "VALUES (:number, :contribution, :token, :content, :content_digest, :digest)",
        number=number,
        contribution=contribution,
        token=token,
        content=json.dumps(receipt.content),
        content_digest=receipt.content_digest,
        digest=receipt.digest,
    )
    return receipt


def deletion_receipt(statements: Statements, item: Contribution, *, by: str, why: str, more: Mapping[str, Any]) -> Receipt:
    """The receipt of a contribution, within the transaction that deletes it."""
    content = {
        "contribution": item.id,
        "map": item.map_id,
        "message_sha256": item.digest,
        "bytes": item.size_bytes,
        "received": item.received,
        "deleted": time.time(),
        "token": by,
        "why": why,
        **more,
    }
    return add_receipt(statements, contribution=item.id, token=item.token, content=content)


class Receipts:
    """Receipts in the order of deletion."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def of_contribution(self, contribution: str, token: str | None) -> Receipt | None:
        """The receipt of a contribution, if it belongs to a token (None: to any); None if there is none."""
        with self._database.transaction() as statements:
            row = statements.one("SELECT * FROM receipts WHERE contribution = :contribution", contribution=contribution)
            if row is None or (token is not None and row["token"] != token):
                return None
            before = statements.one("SELECT digest FROM receipts WHERE number = :number", number=int(row["number"]) - 1)
        return _receipt(row, before)

    def chain(self, *, after: int = 0, most: int = 100_000) -> list[tuple[int, str, str]]:
        """Number, digest of the content and digest of each receipt after a number; they tell nothing of what was deleted."""
        with self._database.transaction() as statements:
            rows = statements.all(
                "SELECT number, content_digest, digest FROM receipts WHERE number > :after ORDER BY number LIMIT :most",
                after=after,
                most=most,
            )
        return [(int(row["number"]), row["content_digest"], row["digest"]) for row in rows]

    def head(self) -> str:
        """Digest of the last receipt."""
        with self._database.transaction() as statements:
            last = statements.one("SELECT digest FROM receipts ORDER BY number DESC")
        return BEGIN if last is None else str(last["digest"])


def _receipt(row: Row, before: Row | None) -> Receipt:
    digest = BEGIN if before is None else str(before["digest"])
    return Receipt(number=int(row["number"]), content=json.loads(row["content"]), before=digest)
