"""Pages of results are filled from records of this repository, and every record stands on a page."""

from __future__ import annotations

from pathlib import Path

import pytest

from test_commands_of_pages import commands
from veil.cli import _joined, _parser
from veil_lab.files.results import read_records
from veil_lab.results.pages import citations, rendered

FOLDER = Path(__file__).parents[2] / "results"
PAGES = sorted(FOLDER.glob("*.md"))
RECORDS = read_records(FOLDER / "records")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_a_page_is_filled(page: Path) -> None:
    """Every citation leads to a cell, and no other digit stands there."""
    assert "{{" not in rendered(page.read_text(), RECORDS)


def test_every_record_is_cited() -> None:
    assert set().union(*(citations(page.read_text()) for page in PAGES)) == set(RECORDS)


@pytest.mark.slow
@pytest.mark.parametrize("name", RECORDS)
def test_commands_of_records_are_commands(name: str) -> None:
    """Second method: the parsers, and for programs that they are there."""
    command = RECORDS[name].command
    for words in commands(f"```sh\n{command}\n```\n"):
        joined = _joined(words)
        _parser(joined).parse_args(joined)
    if command.startswith("python "):
        assert (FOLDER.parents[1] / command.split()[1]).is_file()
