"""Names of people: one spelling, seen as it is."""

from __future__ import annotations

import pytest

from veil.errors import InputError
from veil_faces.naming import checked_name


def test_what_looks_alike_is_one_name() -> None:
    """Oracle: Unicode's own examples of canonical equivalence (UAX #15, Fig. 3 and 4)."""
    for given, expected in (
        ("Jose\u0301", "Jos\u00e9"),
        ("\u212b", "\u00c5"),
        ("\u1100\u1161", "\uac00"),
        ("s\u0323\u0307", "\u1e69"),
    ):
        assert checked_name(given, "person") == checked_name(expected, "person") == expected
    joined = "\u0645\u06cc\u200c\u062e\u0648\u0627\u0647\u0645"
    assert checked_name(joined, "person") == joined, "a joiner is part of how a word is written"


@pytest.mark.parametrize(
    "name", ["", "  ", "\t", " bob", "bob\u00a0", "bo\u200bb", "bob\n", "\x1b[2Jbob", "\u202eebob", "\ud800", "b" * 300]
)
def test_what_is_not_seen_is_no_name(name: str) -> None:
    with pytest.raises(InputError, match="person"):
        checked_name(name, "person")
