"""Every table that a command prints fits into 80 columns, and none is aligned by hand."""

from __future__ import annotations

import argparse
import io
from pathlib import Path

import pytest

from veil.cli import DESCRIPTION, EXAMPLES, WELCOME, common
from veil.report.tables import Name, Number, Remark, Table
from worlds.planted_tables import LONG, TABLES
from worlds.table_checks import BY_HAND, COLUMNS, by_hand, made_in, require_fits

PACKAGE = Path(__file__).parents[2] / "src" / "veil"


class Terminal(io.StringIO):
    """A terminal that everything is written to."""

    def isatty(self) -> bool:
        return True


def test_what_veil_alone_prints_fits() -> None:
    lines = [*WELCOME.splitlines(), *DESCRIPTION.splitlines(), *EXAMPLES.splitlines()]
    assert [line for line in lines if len(line) > COLUMNS] == []


@pytest.mark.parametrize("name", TABLES)
def test_tables_of_commands_fit(unchecked: None, name: str) -> None:
    """Of the longest results that there may be no line is too long, no number is cut, and no cell reads None or nan."""
    require_fits(TABLES[name]())


def test_an_audit_and_a_plan_need_one_block(unchecked: None) -> None:
    """The tables that are read most."""
    for name in ("attack_table", "exit_table", "sent_table", "release_table"):
        table = TABLES[name]()
        lines = table.lines()
        names = [row[0] for row in table.rows if not isinstance(row, Remark)]
        assert "" not in lines and [name for name in names if name != LONG and name not in " ".join(lines)] == []


def test_every_table_is_looked_at() -> None:
    """A function that gives a table, in a command or a report, is in the list above."""
    made = made_in(PACKAGE)
    assert len(made) > 10 and made == {name.split(" ")[0].split(".")[-1] for name in TABLES}


def test_no_command_aligns_a_table_by_hand() -> None:
    assert by_hand(PACKAGE) == []
    assert BY_HAND.search("{row.name:28}") and BY_HAND.search("{value:>8.2f}") and not BY_HAND.search("{value:.2f}")


def test_a_wider_terminal_is_used_and_a_file_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    table = Table(
        columns=[Name("image"), *(Number(f"column {k}") for k in range(20))], rows=[(LONG, *("1234.5" for _ in range(20)))]
    )
    for stream, columns, width in ((Terminal(), "200", 200), (Terminal(), "60", 60), (io.StringIO(), "200", 80)):
        monkeypatch.setenv("COLUMNS", columns)
        monkeypatch.setattr("sys.stdout", stream)
        common.say_table(argparse.Namespace(json=None), table)
        assert stream.getvalue().splitlines() == table.lines(width)


def test_tables_leave_standard_output_to_machines(capsys: pytest.CaptureFixture[str]) -> None:
    """With --json - they stand on standard error."""
    common.say_table(argparse.Namespace(json=Path("-")), Table(columns=[Name("image")], rows=[("fox",)]))
    assert tuple(capsys.readouterr()) == ("", "image\nfox\n")


def test_letters_that_a_terminal_lacks_do_not_end_a_command(monkeypatch: pytest.MonkeyPatch) -> None:
    raw = io.BytesIO()
    monkeypatch.setattr("sys.stdout", io.TextIOWrapper(raw, encoding="ascii"))
    common.say(argparse.Namespace(json=None), "äöü…")
    __import__("sys").stdout.flush()
    assert raw.getvalue() == b"????\n"


def test_sentences_are_wrapped_on_a_terminal_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """In a file each is a line, so that programs find it."""
    monkeypatch.setenv("COLUMNS", "40")
    for stream, lines in ((Terminal(), 3), (io.StringIO(), 1)):
        monkeypatch.setattr("sys.stdout", stream)
        common.explain(argparse.Namespace(json=None), "a sentence that says something " * 3)
        assert len(stream.getvalue().rstrip().splitlines()) == lines
