"""Chains of receipts: digests by hand, and every change of a receipt or of the chain is seen."""

from __future__ import annotations

import hashlib
import json
from typing import Any

import pytest

from veil.errors import WireError
from veil.wire.receipts import BEGIN, Receipt, receipt_of, require_in_chain


def chain(count: int) -> tuple[list[Receipt], list[tuple[int, str, str]]]:
    """Receipts one after another, and their links."""
    receipts: list[Receipt] = []
    for number in range(1, count + 1):
        before = receipts[-1].digest if receipts else BEGIN
        receipts.append(Receipt(number=number, content={"contribution": f"c{number}", "nonce": "n"}, before=before))
    return receipts, [(item.number, item.content_digest, item.digest) for item in receipts]


def test_digests_are_those_of_the_documented_text() -> None:
    """Golden value by the formula of docs/reference/service.md#receipts."""
    receipt = Receipt(number=3, content={"b": 1, "a": "ä"}, before="0" * 64)
    content = hashlib.sha256(b'{"a":"\\u00e4","b":1}').hexdigest()
    assert receipt.content_digest == content
    assert receipt.digest == hashlib.sha256(f"veil receipt 1 {'0' * 64} 3 {content}".encode()).hexdigest()
    assert hashlib.sha256(b"veil receipts 1").hexdigest() == BEGIN


def test_a_receipt_is_read_again_and_stands_in_its_chain() -> None:
    """Inverse pair through JSON; every earlier head is a head of the chain."""
    receipts, links = chain(4)
    for receipt in receipts:
        again = receipt_of(json.loads(json.dumps(receipt.as_json())))
        assert again == receipt
        for head in (None, BEGIN, *(item.digest for item in receipts)):
            require_in_chain(again, links, head)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("number", 3),
        ("number", True),
        ("before", "0" * 64),
        ("before", "x"),
        ("content", {"contribution": "c9"}),
        ("content", None),
    ],
)
def test_a_changed_receipt_is_refused(name: str, value: Any) -> None:
    """Broken twin: a check that compares the digest with nothing would let all of these pass."""
    receipts, _ = chain(2)
    with pytest.raises(WireError):
        receipt_of({**receipts[1].as_json(), name: value})
    with pytest.raises(WireError):
        receipt_of([receipts[1].as_json()])


def test_a_forged_receipt_is_in_no_chain() -> None:
    """A receipt whose digest is right for itself, but that the server never gave."""
    receipts, links = chain(3)
    forged = receipt_of(Receipt(number=2, content={"contribution": "c7"}, before=receipts[0].digest).as_json())
    with pytest.raises(WireError, match="forged"):
        require_in_chain(forged, links)


def test_a_rewritten_chain_is_seen_by_whoever_noted_its_head() -> None:
    """A consistent chain without the second receipt holds the third again, but not the head that was noted."""
    receipts, links = chain(3)
    noted = links[-1][2]
    others, rewritten = chain(2)
    assert rewritten == links[:2]
    with pytest.raises(WireError, match="rewritten"):
        require_in_chain(others[1], rewritten, noted)
    for broken in ([links[0], links[2]], [links[0], (2, links[1][1], links[2][2]), links[2]], links[1:]):
        with pytest.raises(WireError, match="broken"):
            require_in_chain(receipts[2], broken)
