"""The report of durations: what is long comes first, and a mark that does not fit is told."""

from __future__ import annotations

from worlds.durations import report


def test_wrong_marks_are_told() -> None:
    """Planted: a quick test that takes long, a slow one that does not, and one of which only one case takes long."""
    quick = ["0.700 quick a::one", "0.100 quick b::four"]
    lines = [*quick, "0.010 slow a::two", "0.010 slow a::three[1]", "2.000 slow a::three[2]"]
    assert report(lines) == [
        "    2.00 s  a::three[2]",
        "    0.70 s  a::one",
        "    0.10 s  b::four",
        "    0.01 s  a::two",
        "    0.01 s  a::three[1]",
        "to be marked: 0.70 s  a::one",
        "marked: 0.01 s  a::two",
        "1 s without slow ones, 3 s in all, 5 tests",
    ]
