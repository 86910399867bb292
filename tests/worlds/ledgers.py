"""A line of a ledger, for the tests of files."""

from __future__ import annotations

from veil.files.device.ledger import Entry

ENTRY = Entry(
    image_digest="aa" * 32,
    released_as="0123456789abcdef",
    name="x.jpg",
    parameters="paper m=4",
    features=7,
    message_digest="bb" * 32,
    fresh=False,
)
