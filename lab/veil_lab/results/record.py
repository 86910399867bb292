"""Records of results: the tables that one command printed, with all that is needed to judge their age and to print them anew.

A cell is cited by its record, its row and its column. What a table says is text, as it was printed; numbers are read out of it
where two runs are compared.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, TypedDict

from veil.errors import InputError
from veil.one_line import one_line

_NUMBER = re.compile(r"(?<![\w.])-?\d[\d,]*(?:\.\d+)?(?:e[+-]?\d+)?")


class TableJson(TypedDict):
    """A table in a record's file."""

    columns: list[str]
    rows: list[list[str]]


class _VaryingJson(TypedDict, total=False):
    """The field of a record whose runs may differ."""

    varying: list[str]


class RecordJson(_VaryingJson):
    """A record's file. `digest` is over all of its other fields."""

    name: str
    question: str
    command: str
    date: str
    commit: str
    imported: bool
    machine: str
    versions: dict[str, str]
    processor_seconds: float | None
    settings: dict[str, str]
    modules: dict[str, str]
    tables: list[TableJson]
    digest: str


@dataclass(frozen=True, kw_only=True)
class ResultTable:
    """Rows of printed cells below the names of their columns. Raises InputError for rows of another length, or none."""

    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]

    __repr__ = one_line

    def __post_init__(self) -> None:
        if not self.columns or not self.rows:
            raise InputError("a table of a record needs columns and rows")
        for row in self.rows:
            if len(row) != len(self.columns):
                raise InputError(f"a row of {len(row)} cells stands below {len(self.columns)} columns: {' | '.join(row)}")

    @property
    def labels(self) -> int:
        """Number of the first columns that tell the rows apart; all columns if nothing does."""
        for count in range(1, len(self.columns)):
            if len({row[:count] for row in self.rows}) == len(self.rows):
                return count
        return len(self.columns)

    def keys(self) -> dict[str, tuple[str, ...]]:
        """The rows by their keys: the cells that tell them apart, with commas between; empty ones at the end are left out."""
        return {", ".join(row[: self.labels]).rstrip(", "): row for row in self.rows}

    def cell(self, row: str, column: str) -> str | None:
        """The cell of a row, by its key, and of a column, by its name; None if there is none."""
        cells = self.keys().get(row)
        return None if cells is None or column not in self.columns else cells[self.columns.index(column)]

    def markdown(self) -> str:
        """The table in Markdown."""
        lines = [self.columns, ("---",) * len(self.columns), *self.rows]
        return "\n".join(f"| {' | '.join(line)} |" for line in lines)


@dataclass(frozen=True, kw_only=True)
class ResultRecord:
    """Tables that one command printed, and how they came about.

    - `name`: key of the record, in small letters, digits and underscores.
    - `question`: the question that its tables answer.
    - `command`: words of the shell, with paths of data below `VEIL_DATA`, and programs below the repository's root.
    - `tables`: what it printed, in its order.
    - `settings`: settings that pages cite, by name.
    - `date`, `commit`: day (ISO 8601) of the run, and the commit that was checked out.
    - `is_imported`: the tables were copied from a page, as the run is long; `commit` is that of the copy.
    - `machine`, `versions`: processor and cores; versions of packages by name.
    - `processor_seconds`: of the run with its children; None if it was not measured.
    - `varying`: names of columns that two runs of the same code may fill otherwise, as seconds: they are not compared.
    - `modules`: digests of the code that ran (`code.digest_of`), by path below the root; empty if nobody knows.

    Raises InputError for a name or a date of another form, and for a record without tables.
    """

    name: str
    question: str
    command: str
    tables: tuple[ResultTable, ...]
    date: str
    commit: str
    is_imported: bool = False
    machine: str = ""
    versions: Mapping[str, str] = field(default_factory=dict)
    processor_seconds: float | None = None
    settings: Mapping[str, str] = field(default_factory=dict)
    modules: Mapping[str, str] = field(default_factory=dict)
    varying: tuple[str, ...] = ()

    __repr__ = one_line

    def __post_init__(self) -> None:
        if not re.fullmatch(r"[a-z][a-z0-9_]*", self.name):
            raise InputError(f"the name of a record has small letters, digits and underscores, not {self.name!r}")
        if not re.fullmatch(r"\d{4}-\d{2}-\d{2}", self.date):
            raise InputError(f"the date of a record is a day such as 2026-11-27, not {self.date!r}")
        if not self.tables:
            raise InputError(f"record {self.name} has no table; does {self.command!r} print one?")

    def cell(self, row: str, column: str, table: int = 0) -> str | None:
        """The cell of a table by the row's key and the column's name; None if there is none."""
        return self.tables[table].cell(row, column) if table < len(self.tables) else None

    def as_json(self) -> RecordJson:
        """The record as its file holds it, with its digest."""
        content: RecordJson = {
            "name": self.name,
            "question": self.question,
            "command": self.command,
            "date": self.date,
            "commit": self.commit,
            "imported": self.is_imported,
            "machine": self.machine,
            "versions": dict(sorted(self.versions.items())),
            "processor_seconds": self.processor_seconds,
            "settings": dict(sorted(self.settings.items())),
            "modules": dict(sorted(self.modules.items())),
            "tables": [{"columns": list(table.columns), "rows": [list(row) for row in table.rows]} for table in self.tables],
            "digest": "",
        }
        if self.varying:
            content["varying"] = list(self.varying)
        return {**content, "digest": _digest(content)}

    @classmethod
    def from_json(cls, content: Mapping[str, Any]) -> ResultRecord:
        """The record of a file. Raises InputError if a field is missing, or if it was changed by hand."""
        try:
            record = cls(
                name=content["name"],
                question=content["question"],
                command=content["command"],
                date=content["date"],
                commit=content["commit"],
                is_imported=content["imported"],
                machine=content["machine"],
                versions=dict(content["versions"]),
                processor_seconds=content["processor_seconds"],
                settings=dict(content["settings"]),
                modules=dict(content["modules"]),
                varying=tuple(content.get("varying", ())),
                tables=tuple(
                    ResultTable(columns=tuple(table["columns"]), rows=tuple(map(tuple, table["rows"])))
                    for table in content["tables"]
                ),
            )
            digest = content["digest"]
        except (KeyError, TypeError, AttributeError) as error:
            raise InputError(f"it is no record of results ({error!r})") from None
        if digest != record.as_json()["digest"]:
            raise InputError(f"record {record.name} was changed by hand: its digest is another; run its command again")
        return record


def _digest(content: object) -> str:
    text = json.dumps(content, ensure_ascii=False, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def numbers(cell: str) -> tuple[float, ...]:
    """The numbers in a printed cell, in their order."""
    return tuple(float(text.replace(",", "")) for text in _NUMBER.findall(cell))


def differences(old: ResultRecord, new: ResultRecord, tolerance: float) -> list[str]:
    """Sentences on cells of `old` that are missing in `new`, or whose numbers differ by more than a relative `tolerance`.

    A cell with an interval, "56 (52-60)", agrees with every number inside the interval. Columns that vary are not compared.
    """
    differing: list[str] = []
    if len(old.tables) != len(new.tables):
        return [f"{len(new.tables)} tables instead of {len(old.tables)}"]
    for before, after in zip(old.tables, new.tables, strict=True):
        for key, row in before.keys().items():
            for column, cell in zip(before.columns, row, strict=True):
                if column in old.varying:
                    continue
                now = after.cell(key, column)
                if now is None:
                    differing.append(f"{key}, {column}: is gone")
                elif not agree(cell, now, tolerance):
                    differing.append(f"{key}, {column}: {now} instead of {cell}")
    return differing


def agree(old: str, new: str, tolerance: float) -> bool:
    """Whether two printed cells say the same: equal words, and numbers within the interval of the old cell or a tolerance."""
    if old == new:
        return True
    before, after = numbers(old), numbers(new)
    if _NUMBER.sub("#", old) != _NUMBER.sub("#", new) or len(before) != len(after) or not before:
        return False
    interval = re.fullmatch(r"\s*\S+ \((\S+?)(?:-| to )(\S+?)\)\s*", old)
    if interval is not None and (ends := [numbers(end) for end in interval.groups()]) and all(ends):
        return ends[0][0] <= after[0] <= ends[1][0]
    return all(abs(a - b) <= tolerance * max(abs(a), abs(b)) for a, b in zip(before, after, strict=True))
