"""Receipts of deletions, as docs/reference/service.md has them."""

from __future__ import annotations

import hashlib
from typing import Any

from stranger.canonical import canonical

BEGIN = hashlib.sha256(b"veil receipts 1").hexdigest()


class Refused(ValueError):
    """A receipt that does not verify."""


def sha256(text: str) -> str:
    return hashlib.sha256(text.encode("ascii")).hexdigest()


def link(before: str, number: str, content: str) -> str:
    return sha256(f"veil receipt 1 {before} {number} {content}")


def require(receipt: dict[str, Any], links: list[list[str]], noted: list[str]) -> None:
    """Refuse a receipt that is not in the chain, and a chain that is broken or was rewritten.

    `receipt` and `links` are as `stranger.canonical.read` gives them; `noted` are ends of the chain that were told before.
    """
    if link(receipt["before"], receipt["number"], sha256(canonical(receipt["content"]))) != receipt["digest"]:
        raise Refused("the receipt was changed")
    ends, listed = [BEGIN], False
    for place, (number, content, digest) in enumerate(links, start=1):
        if number != str(place) or link(ends[-1], number, content) != digest:
            raise Refused("the chain is broken")
        listed = listed or (number, digest) == (receipt["number"], receipt["digest"])
        ends.append(digest)
    if not listed or not set(noted) <= set(ends):
        raise Refused("the chain does not hold what it should")
