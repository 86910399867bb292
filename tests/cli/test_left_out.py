"""Images that maps leave out are listed by reason: every name of a few, a single line for many."""

from __future__ import annotations

from argparse import Namespace

import pytest

from veil.cli.common import FEW_NAMED, MOST_NAMED, say_left_out


def told(left_out: dict[str, str], capsys: pytest.CaptureFixture[str]) -> list[str]:
    say_left_out(Namespace(json=None), left_out)
    return capsys.readouterr().out.splitlines()


def test_each_of_a_few_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    names = [f"{number:02}" for number in range(MOST_NAMED)]
    assert told(dict.fromkeys(reversed(names), "too few"), capsys) == [f"left out {name}: too few" for name in names]


def test_many_of_one_reason_take_a_line_and_hide_no_other(capsys: pytest.CaptureFixture[str]) -> None:
    names = [f"{number:02}" for number in range(MOST_NAMED + 1)]
    lines = told({**dict.fromkeys(names, "too few"), "odd": "its pairs contradict the map"}, capsys)
    assert len(lines) == 2 and f"{len(names)} images" in lines[0] and "--json" in lines[0]
    assert all(name in lines[0] for name in names[:FEW_NAMED]) and names[-1] not in lines[0]
    assert lines[1] == "left out odd: its pairs contradict the map"


def test_nothing_is_told_of_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    assert told({}, capsys) == []
