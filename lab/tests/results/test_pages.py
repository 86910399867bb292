"""Pages of results are filled from records, and every record stands on a page. Theory has none, and others quote them."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from pathlib import Path

import pytest

from test_commands_of_pages import commands
from veil.cli import _joined, _parser
from veil.files.measured_forms import bundled_measured_forms
from veil_lab.files.results import read_records
from veil_lab.report.measured_forms import cost_table, interval_table, recovery_table, summary_table
from veil_lab.results.pages import citations, rendered, stray_digits

ROOT = Path(__file__).parents[3]
FOLDER = ROOT / "lab" / "results"
PAGES = sorted(FOLDER.glob("*.md"))
RECORDS = read_records(FOLDER / "records")
# Pages of theory that name the commands of their measurements, or quote a record that a test compares, are left out.
THEORY = [path for path in sorted((ROOT / "docs" / "theory").glob("*.md")) if path.name != "gravity.md"]
DOCUMENTS = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md")), *sorted((ROOT / "faces").rglob("*.md"))]
NUMBER = r"\d+(?:,\d{3})*(?:\.\d+)?"
# Several numbers of one unit do not begin with the distance or the epsilon at which the first of them holds.
MEASURED = re.compile(
    rf"(?<![\w.])(?:(?<!within )(?<!at ){NUMBER}(?:(?:,|,? and| to| /)\s+{NUMBER})+|{NUMBER})"
    rf"\s+(?:(?:%|ms|s|kB|MB|GB|times)(?!\w)|of\s+{NUMBER})"
)
# Numbers of documents that stand on no page of results, with what vouches for them.
BY_LAW = "the law of words, in lab/tests/report/test_measured_forms.py"
ELSEWHERE: Mapping[str, Mapping[str, str]] = {
    "docs/choose.md": {**dict.fromkeys(("6.77", "2.6", "0.972", "91.5"), BY_LAW), "120": "a setting of the study"},
    "docs/style.md": {"2": "an example of a sentence"},
    "docs/theory/extraction.md": {"2.4": "bytes of two files that ship"},
    "docs/theory/scale.md": {"0.45": "a quarter and a fifth, added"},
}
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
        assert (ROOT / command.split()[1]).is_file()


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


def numbers(text: str) -> list[str]:
    """Numbers of a text, but those in names."""
    return re.findall(rf"(?<![\w.]){NUMBER}(?!\w|\.\d)", text)


def unquoted(text: str, pages: Mapping[str, str], tables: Collection[str] = (), *, everywhere: bool = False) -> list[str]:
    """Numbers with a unit of what is measured that stand on no page of results that their paragraph leads to.

    `pages` are those pages by name, as they are filled. Numbers may also stand in a line of `tables` that the text quotes.
    Paragraphs that lead to no page of results are looked at only with `everywhere`. Code, tables and levels of confidence are
    left out.
    """
    quoted = {number for line in text.split("\n") if line in tables for number in numbers(line)}
    prose = re.sub(r"```.*?```|^\|[^\n]*|`[^`]+`|95 % intervals?", " ", text, flags=re.S | re.M)
    missing = []
    for part in re.split(r"\n\n|\n(?=[-*] )", prose):
        cited = re.findall(r"lab/results/(\w+)\.md", part)
        held = quoted.union(*(numbers(pages[name]) for name in cited))
        if cited or everywhere:
            missing += [number for found in MEASURED.finditer(part) for number in numbers(found[0]) if number not in held]
    return missing


def test_documents_quote_pages_of_results_as_they_are() -> None:
    """Second place: the pages, filled from records, and the record of measured forms, whose tables another test compares."""
    pages = {page.stem: rendered(page.read_text(), RECORDS) for page in PAGES}
    forms = bundled_measured_forms()
    made = cost_table(forms), recovery_table(forms), interval_table(forms), summary_table(forms)
    tables = {line for table in made if table is not None for line in table.markdown()}
    texts = {document: document.read_text() for document in DOCUMENTS if document.name != "gravity.md"}
    assert sum(len(re.findall(r"lab/results/\w+\.md", text)) for text in texts.values()) > 30
    stray = {
        str(document.relative_to(ROOT)): shares
        for document, text in texts.items()
        if (shares := unquoted(text, pages, tables, everywhere=document.parent.name not in {"theory", "reference"}))
    }
    assert stray == {name: list(numbers) for name, numbers in ELSEWHERE.items()}


def test_old_quotes_are_seen() -> None:
    """Broken twin: a share of an older record, a rounded one, and shares of paragraphs that quote nothing."""
    text = "It is 45.7 and 62 % ([a](../lab/results/a.md)).\n\nAt 1 % it is refused.\n- Here 5.7 %, see lab/results/a.md"
    assert unquoted(text, {"a": "| 45.7 (42.9-49.1) | 62.5 |"}) == ["62", "5.7"]
    assert unquoted(text, {"a": "| 45.7 (42.9-49.1) | 62.5 |"}, everywhere=True) == ["62", "1", "5.7"]


@pytest.mark.parametrize(
    "text",
    ["It takes 71 ms.", "It is 71 times as large.", "On 71 of 478.", "71, 5 and 6 of 9 were found", "It is 1.5\nto 71 kB."],
)
def test_numbers_that_no_record_vouches_for_are_seen(text: str) -> None:
    """Broken twins, with a table that has all but one of the numbers; code and levels of confidence are no results."""
    table = "| 478 | 5 | 6 | 9 | 1.5 |"
    assert unquoted(f"{table}\n\n{text}", {}, {table}, everywhere=True) == ["71"]
    assert unquoted(f"`{text}` has 95 % intervals.\n```sh\n{text}\n```\n", {}, everywhere=True) == []
