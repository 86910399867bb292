"""Tables that people read every day fit into 80 columns, and their numbers stand below their heads."""

from __future__ import annotations

import re
from dataclasses import replace
from types import SimpleNamespace

import pytest

from veil.attacks.registry import ATTACKS
from veil.audit.finding import Finding, Share
from veil.cli import DESCRIPTION, EXAMPLES, WELCOME
from veil.cli.privacy import audit as audit_command
from veil.cli.server.tile_plan import described

COLUMNS = 80


def ends(head: str, row: str, name: str) -> bool:
    """Whether a number of a row ends where the head of its column ends."""
    end = head.index(name) + len(name)
    return row[end - 1] != " " and row[end : end + 1] in ("", " ")


def test_what_veil_alone_prints_fits() -> None:
    lines = [*WELCOME.splitlines(), *DESCRIPTION.splitlines(), *EXAMPLES.splitlines()]
    assert [line for line in lines if len(line) > COLUMNS] == []


def test_the_table_of_an_audit_fits(unchecked: None, capsys: pytest.CaptureFixture[str]) -> None:
    """The widest that each cell may be: the longest name of an attack, shares of 100 %, thousands of features and seconds."""
    name = max((attack.name for attack in ATTACKS), key=len)
    share = Share(count=4000, total=4000, low=0.999, high=1.0)
    score = SimpleNamespace(recovered=share, exact=share, median_distance=2.1e-08)
    finding = replace(
        Finding(attack=name, family="structural", assumes="nothing", features=4000, certified=share, seconds=1234.5),
        score=score,  # type: ignore[arg-type]
    )
    outcome = SimpleNamespace(
        findings=[finding], pictures=[], not_looked_at={}, epsilons={}, measured=None, breaches=[], rules=[], verdict=None
    )
    with pytest.raises(AttributeError):  # of the verdict, which stands below the table
        audit_command._print(outcome)  # type: ignore[arg-type]
    head, row = capsys.readouterr().out.splitlines()[:2]
    assert max(len(head), len(row)) <= COLUMNS
    assert all(ends(head, row, column) for column in head.split()[1:])
    assert re.search(r"4000 +100\.0 % \(99\.9 to 100\.0\) +100\.0 % +100\.0 % +2e-08 +1234$", row)


def test_the_table_of_tiles_fits(unchecked: None) -> None:
    plan = SimpleNamespace(
        exit="one server",
        once_bytes=999_900_000,
        up_bytes=999_900,
        down_bytes=999_900,
        total_bytes=999_900_000,
        link_s=12345.6,
        server_s=123.4567,
        prepare_s=1234.5,
        best_from=None,
    )
    numbers = SimpleNamespace(tiles=1, map_bytes=1, asked=4, record_bytes=1)
    _, head, row = list(described(numbers, 1, [plan]))[:3]  # type: ignore[arg-type,list-item]
    assert max(len(head), len(row)) <= COLUMNS
