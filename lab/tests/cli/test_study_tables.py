"""Every table that studies print fits into 80 columns, and none is aligned by hand."""

from __future__ import annotations

from pathlib import Path

import pytest

from lab_worlds.planted_study_tables import TABLES
from worlds.table_checks import by_hand, made_in, require_fits

PACKAGE = Path(__file__).parents[2] / "veil_lab"


@pytest.mark.parametrize("name", TABLES)
def test_tables_fit(unchecked: None, name: str) -> None:
    """Of the longest results that there may be no line is too long, no number is cut, and no cell reads None or nan."""
    require_fits(TABLES[name]())


def test_every_table_is_looked_at() -> None:
    """A function that gives a table, in a command or a report, is in the list above."""
    made = made_in(PACKAGE)
    assert len(made) > 25 and made == {name.split(" ")[0].split(".")[-1] for name in TABLES}


def test_no_command_aligns_a_table_by_hand() -> None:
    assert by_hand(PACKAGE) == []
