"""Receipts of deletions as a chain of digests: each covers the one before, so that none can be changed or left out later.

A receipt proves that the server said it, in this order, not that the bytes are gone: a server that lies can keep a copy.
Whoever noted the head of the chain earlier sees that nothing before it was rewritten since
(docs/reference/service.md#receipts).
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from veil.errors import WireError
from veil.one_line import one_line

# The digest before the first receipt.
BEGIN = hashlib.sha256(b"veil receipts 1").hexdigest()
_DIGEST = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True, kw_only=True)
class Receipt:
    """One deletion in the chain.

    - `number`: 1 for the first receipt of a server.
    - `content`: what was deleted, when and by whose token, as JSON values; it holds a nonce, so that nobody who has the digest
      alone can guess it.
    - `before`: digest of the receipt before.
    """

    number: int
    content: Mapping[str, Any]
    before: str

    __repr__ = one_line

    @property
    def content_digest(self) -> str:
        """SHA-256 (hex) of the content's canonical JSON."""
        return content_digest(self.content)

    @property
    def digest(self) -> str:
        """SHA-256 (hex) that the next receipt covers."""
        return link(self.before, self.number, self.content_digest)

    def as_json(self) -> dict[str, Any]:
        """The receipt as JSON values; `receipt_of` reads it."""
        return {"number": self.number, "content": dict(self.content), "before": self.before, "digest": self.digest}


def content_digest(content: Mapping[str, Any]) -> str:
    """SHA-256 (hex) of canonical JSON: sorted keys, no blanks, ASCII."""
    text = json.dumps(content, sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()


def link(before: str, number: int, content: str) -> str:
    """Digest of a receipt from those of the receipt before and of its content."""
    return hashlib.sha256(f"veil receipt 1 {before} {number} {content}".encode()).hexdigest()


def receipt_of(value: object) -> Receipt:
    """The receipt that JSON values hold. Raises WireError for anything else, or if its digest is not that of its content."""
    if not isinstance(value, dict) or not isinstance(value.get("content"), dict):
        raise WireError("this is no receipt: it has no content; give the JSON that a veil server answered")
    number, before = value.get("number"), value.get("before")
    if not isinstance(number, int) or isinstance(number, bool) or number < 1 or not isinstance(before, str):
        raise WireError("this is no receipt: it lacks its number or the digest of the receipt before")
    if not _DIGEST.fullmatch(before):
        raise WireError("this is no receipt: the digest of the receipt before is no SHA-256")
    receipt = Receipt(number=number, content=value["content"], before=before)
    if value.get("digest") != receipt.digest:
        raise WireError(f"receipt {number} was changed: its digest is not that of what it says")
    return receipt


def require_in_chain(receipt: Receipt, links: Sequence[tuple[int, str, str]], head: str | None = None) -> None:
    """Raise WireError unless a receipt is in a server's chain, and the chain runs through a head that was noted earlier.

    - `links`: number, digest of the content and digest of each receipt of the server from the first on, as it lists them.
    - `head`: digest of the last receipt that was known earlier, `BEGIN` for none; None: nothing was noted.
    """
    before, is_there, known = BEGIN, False, head in (None, BEGIN)
    for expected, (number, content, digest) in enumerate(links, start=1):
        if number != expected or link(before, number, content) != digest:
            raise WireError(f"the server's chain of receipts is broken at {expected}: receipts were changed or left out")
        is_there = is_there or (number == receipt.number and digest == receipt.digest)
        before, known = digest, known or digest == head
    if not is_there:
        raise WireError(f"receipt {receipt.number} is not in the server's chain: it was forged, or the server took it back")
    if not known:
        raise WireError("the server's chain does not hold the receipt that was its last one before: it was rewritten")
