"""Pages of results are filled from records, and every record stands on a page. Theory has none, and others quote them."""

from __future__ import annotations

import re
from collections.abc import Mapping
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
DOCUMENTS = [FOLDER.parents[1] / "README.md", *sorted((FOLDER.parents[1] / "docs").rglob("*.md"))]
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


def unquoted(text: str, pages: Mapping[str, str]) -> list[str]:
    """Shares in percent in paragraphs that lead to pages of results, given by name as they are filled, and not there."""
    missing = []
    for part in re.split(r"\n\n|\n(?=[-*] )", text):
        cited = re.findall(r"lab/results/(\w+)\.md", part)
        held = {number for name in cited for number in re.findall(r"(?<![\w.])\d+(?:\.\d+)?(?!\w|\.\d)", pages[name])}
        shares = re.findall(r"(?<![\w.])\d+(?:\.\d+)?(?=(?: and \d+(?:\.\d+)?)* %)", part) if cited else []
        missing += [share for share in shares if share not in held]
    return missing


def test_documents_quote_pages_of_results_as_they_are() -> None:
    """Second place: the pages, filled from records."""
    pages = {page.stem: rendered(page.read_text(), RECORDS) for page in PAGES}
    texts = {document: document.read_text() for document in DOCUMENTS if document.name != "gravity.md"}
    assert sum(len(re.findall(r"lab/results/\w+\.md", text)) for text in texts.values()) > 30
    assert {document.name: shares for document, text in texts.items() if (shares := unquoted(text, pages))} == {}


def test_old_quotes_are_seen() -> None:
    """Broken twin: a share of an older record, a rounded one, and shares of paragraphs that quote nothing."""
    text = "It is 45.7 and 62 % ([a](../lab/results/a.md)).\n\nAt 1 % it is refused.\n- Here 5.7 %, see lab/results/a.md"
    assert unquoted(text, {"a": "| 45.7 (42.9-49.1) | 62.5 |"}) == ["62", "5.7"]
