"""Pages of results: templates whose numbers are cells of records.

`{{name}}` on a line of its own is the first table of a record, and `{{name | 2}}` its second. Sentences of a last column `note`
stand below the table, each once, as they would make its rows high. In a sentence,
`{{name | row | column}}` is a cell of the first table, `{{name | 2 | row | column}}` one of the second, and
`{{name | setting}}` a setting. Epsilons of words come with what they mean: tables have columns of it, and
`{{name | true word sent}}` computes it from settings (`laws`). Any other digit in a page fails, unless it stands in code, an
equation, a link, a version, or the name of a table, figure, equation or section.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace

from veil.errors import InputError
from veil_lab.results.laws import law_told, with_law
from veil_lab.results.record import ResultRecord, ResultTable

_CITED = re.compile(r"\{\{([^{}]*)\}\}")
# What may hold digits: code, equations, targets of links, numbered things of papers, citations, names and versions.
_FREE = re.compile(
    r"^ *```.*?^ *```$|`[^`\n]+`|\$\$.*?\$\$|\$[^$\n]+\$|\]\([^)\s]+\)|^\([\w-]+\)=$"
    r"|\b(?:Tables?|Figs?\.|Figures?|Eqs?\.|Secs?\.|Sections?)\s+[A-Z]?\d+[a-z]?(?:(?:-|, | and )[A-Z]?\d+[a-z]?)*"
    r"|\[[A-Z]+\d{2}\]|\bet al\.,? \d{4}|\band [A-Z]\w+ \d{4}"
    r"|\b[A-Za-z][A-Za-z_]*-?[A-Za-z_]*\d[\w-]*|\b[23]D\b"
    r"|\b(?:COLMAP|Python|NumPy|OpenCV|PyTorch|Dask|ISO/IEC|RFC) \d[\d.]*",
    re.MULTILINE | re.DOTALL,
)

# Characters of a number with its interval, at most: longer cells are sentences.
LONGEST_NUMBER = 32


def rendered(text: str, records: Mapping[str, ResultRecord]) -> str:
    """A page with the cells and tables that it cites of records by name.

    Raises InputError for what is cited and is not there, and for a digit that no record vouches for; both name the line.
    """
    if stray := list(stray_digits(text)):
        line, words = stray[0]
        raise InputError(f"line {line}: no record vouches for the digits in {words!r}; cite a cell, a table or a setting")

    def cited(found: re.Match[str]) -> str:
        line = text.count("\n", 0, found.start()) + 1
        try:
            return _cited([part.strip() for part in found[1].split("|")], records)
        except InputError as error:
            raise error.at(f"line {line}") from None

    return _CITED.sub(cited, text)


def _cited(parts: list[str], records: Mapping[str, ResultRecord]) -> str:
    """The table, setting or cell of one citation."""
    name, *rest = parts
    if name not in records:
        raise InputError(f"there is no record {name!r}")
    record, number = records[name], 1
    if rest and rest[0].isdigit():
        number, rest = int(rest[0]), rest[1:]
    if not 1 <= number <= len(record.tables):
        raise InputError(f"record {name} has {len(record.tables)} tables, and no table {number}")
    match rest:
        case []:
            return f"{_shown(with_law(record.tables[number - 1], record.settings))}\n\n{source(record)}"
        case [setting]:
            told = record.settings.get(setting) or law_told(record.settings, setting)
            if told is None:
                raise InputError(f"record {name} has no setting {setting!r}")
            return told
        case [row, column]:
            if (cell := record.cell(row, column, number - 1)) is None:
                raise InputError(f"table {number} of record {name} has no cell {row!r}, {column!r}")
            return cell
    raise InputError(f"a citation has a record, a table, a row and a column at most, not {' | '.join(parts)!r}")


def _shown(table: ResultTable) -> str:
    """The table in Markdown, with the sentences of a last column `note` numbered below it."""
    table = replace(table, rows=tuple(tuple(map(_unbroken, row)) for row in table.rows))
    if table.columns[-1] != "note":
        return table.markdown()
    notes = list(dict.fromkeys(row[-1] for row in table.rows if row[-1] not in ("", "-")))
    number = {note: str(place) for place, note in enumerate(notes, start=1)}
    numbered = replace(table, rows=tuple((*row[:-1], number.get(row[-1], "")) for row in table.rows))
    return "\n".join([numbered.markdown(), "", *(f"{place}. {note}" for note, place in number.items())])


def _unbroken(cell: str) -> str:
    """The cell with spaces at which no browser breaks the line, if it is a number with its interval or its total."""
    is_short_number = len(cell) <= LONGEST_NUMBER and cell.lstrip("+-(")[:1].isdigit()
    return cell.replace(" ", "\N{NO-BREAK SPACE}") if is_short_number else cell


def source(record: ResultRecord) -> str:
    """The line below a table that says where it comes from."""
    cost = "" if record.processor_seconds is None else f", {record.processor_seconds:,.0f} processor seconds"
    how = "copied at commit" if record.is_imported else "run at commit"
    return f"*From `{record.command}`: {how} {record.commit}, {record.date}{cost}.*"


def stray_digits(text: str) -> Iterator[tuple[int, str]]:
    """Line numbers and words around digits of a template that nothing vouches for."""

    def blanked(found: re.Match[str]) -> str:
        return re.sub(r"\S", " ", found[0])

    bare = _FREE.sub(blanked, _CITED.sub(blanked, text))
    for number, line in enumerate(bare.split("\n"), start=1):
        if (digit := re.search(r"\d", line)) is not None:
            start = max(0, digit.start() - 30)
            yield number, text.split("\n")[number - 1][start : digit.end() + 30].strip()


def citations(text: str) -> set[str]:
    """Names of the records that a page cites."""
    return {found.split("|")[0].strip() for found in _CITED.findall(text)}
