"""Pages of results are filled from records of this repository, every record stands on a page, and theory has no results."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from test_commands_of_pages import commands
from veil.cli import _joined, _parser
from veil_lab.files.results import read_records
from veil_lab.results.pages import citations, rendered, stray_digits

FOLDER = Path(__file__).parents[2] / "results"
PAGES = sorted(FOLDER.glob("*.md"))
RECORDS = read_records(FOLDER / "records")
# Pages of theory that name the commands of their measurements, or quote a record that a test compares, are left out.
THEORY = [path for path in sorted((FOLDER.parents[1] / "docs" / "theory").glob("*.md")) if path.name != "gravity.md"]
SCENE = re.compile(
    r"castle|fountain-P|entry-P|Herz-Jesus|Strecha|lund_door|\bfox\b|sacre_coeur|smartphone_\w+|simulated city|BSDS500"
)


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


def measured(text: str) -> list[str]:
    """Sentences of a page that name a scene of the data and hold a digit, as results do."""
    sentences = (" ".join(words.split()) for words in re.split(r"(?<=[.!?:])\s+|\n\n|\|", text))
    return [words for words in sentences if SCENE.search(words) and any(stray_digits(words))]


@pytest.mark.parametrize("page", THEORY, ids=lambda page: page.stem)
def test_theory_has_no_results(page: Path) -> None:
    assert measured(page.read_text()) == []


def test_results_in_theory_are_seen() -> None:
    """Broken twin, and what may stay: a parameter beside a scene, and names with digits."""
    text = "The limit is 3 px. On castle-P19 it is met by\n71 of 478. Maps of castle-P19 need it ($k = 3$)."
    assert measured(text) == ["On castle-P19 it is met by 71 of 478."]
