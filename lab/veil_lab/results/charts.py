"""Charts of pages of results: a page names columns of a record's table, and the lines of the chart are its cells.

    ```{chart} oracle
    :x: K = *
    :lines: descriptor | picked
    :y: distance to the descriptor
    ```

The argument is a record, with the number of its table unless that is the first. Options are

- `x`: a column; or the beginning of the names of several columns with a star, whose x is what the star stands for;
- `y`: the column of the values, or several with ` | ` between them, a line each; where `x` names columns, what their cells are;
- `label`: the name of the vertical axis (left out: `y`);
- `lines`: columns, with ` | ` between them, whose cells tell the lines apart (left out: one line);
- `rows`: which rows are drawn, as `column = value`, with `|` between values and `;` between columns (left out: all);
- `interval`: the column of the intervals, where they do not stand behind the values in brackets;
- `log`: axes that are logarithmic, `x`, `y` or both.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from veil.errors import InputError
from veil.one_line import one_line
from veil_lab.results.record import ResultRecord, ResultTable

CHART = re.compile(r"^```\{chart\} +(\w+)(?: +(\d+))?\n((?::\w+: .*\n)*)```$", re.MULTILINE)
OPTIONS = frozenset({"x", "y", "label", "lines", "rows", "interval", "log"})
MOST_LINES = 10
_NUMBER = re.compile(r"[-+]?\d[\d,]*(?:\.\d+)?(?:e[-+]?\d+)?")
_SHARE = re.compile(r"(\d[\d,]*)(?: of |/)(\d[\d,]*)")
_INTERVAL = re.compile(r"([-+]?[\d.]+) to ([-+]?[\d.]+)")


@dataclass(frozen=True, kw_only=True)
class ChartPoint:
    """A point of a line: its place on the horizontal axis as printed, its value, and the interval of that if it has one."""

    x: str
    y: float
    interval: tuple[float, float] | None = None


@dataclass(frozen=True, kw_only=True)
class RecordChart:
    """A chart: what its axes are and what tells its lines apart, logarithmic axes, and lines of points by name."""

    x: str
    y: str
    told_by: str
    log: frozenset[str]
    lines: Mapping[str, Sequence[ChartPoint]]

    __repr__ = one_line

    @property
    def places(self) -> list[str]:
        """The places of all points on the horizontal axis, in their order; each stands there once."""
        return list(dict.fromkeys(point.x for points in self.lines.values() for point in points))


def charts(text: str, records: Mapping[str, ResultRecord]) -> Iterator[tuple[re.Match[str], RecordChart]]:
    """The charts of a page, each with the block that asks for it.

    Raises InputError, with the line, for a block with an unknown option, for a record, column or row that is not there, and if
    no line is left or too many are.
    """
    for found in CHART.finditer(text):
        try:
            yield found, _chart(found, records)
        except InputError as error:
            raise error.at(f"line {text.count(chr(10), 0, found.start()) + 1}") from None


def _chart(block: re.Match[str], records: Mapping[str, ResultRecord]) -> RecordChart:
    name, number, lines = block[1], int(block[2] or 1), block[3]
    options = {key: value.strip() for key, value in re.findall(r"^:(\w+): (.*)$", lines, re.MULTILINE)}
    if not {"x", "y"} <= options.keys() <= OPTIONS:
        raise InputError(f"a chart has x and y, and may have {', '.join(sorted(OPTIONS - {'x', 'y'}))}, not {sorted(options)}")
    if name not in records or number > len(records[name].tables):
        raise InputError(f"there is no record {name!r} with {number} tables")
    table = _chosen(records[name].tables[number - 1], options.get("rows", ""))
    named = [part.strip() for part in options.get("lines", "").split(" | ") if part.strip()]
    drawn: dict[str, list[ChartPoint]] = {}
    for row in table.rows:
        own = [cell for cell in (row[_column(table, part)] for part in named) if cell]
        for line, point in _points(table, row, options):
            drawn.setdefault(", ".join([*own, *filter(None, [line])]), []).append(point)
    drawn = {line: points for line, points in drawn.items() if points}
    if not 1 <= len(drawn) <= MOST_LINES:
        raise InputError(f"the chart has {len(drawn)} lines, and shows 1 to {MOST_LINES}; name rows")
    return RecordChart(
        x=options["x"].removesuffix("*").rstrip(" =") or "columns",
        y=options.get("label", options["y"]),
        told_by=", ".join(named),
        log=frozenset(options.get("log", "").split()),
        lines=drawn,
    )


def _column(table: ResultTable, name: str) -> int:
    if name not in table.columns:
        raise InputError(f"the table has no column {name!r}, but {', '.join(table.columns)}")
    return table.columns.index(name)


def _chosen(table: ResultTable, rows: str) -> ResultTable:
    """The table with those of its rows that are asked for."""
    kept = table.rows
    for part in filter(None, (part.strip() for part in rows.split(";"))):
        name, _, values = part.partition("=")
        column, wanted = _column(table, name.strip()), {value.strip() for value in values.split("|")}
        missing = sorted(wanted - {row[column] for row in kept})
        if missing:
            raise InputError(f"no row has {name.strip()} = {missing[0]}")
        kept = tuple(row for row in kept if row[column] in wanted)
    return ResultTable(columns=table.columns, rows=kept)


def _points(table: ResultTable, row: Sequence[str], options: Mapping[str, str]) -> Iterator[tuple[str, ChartPoint]]:
    """The points of a row: one of each column, each with the column's name if several are drawn. Words have no place there."""
    x, interval, several = options["x"], options.get("interval"), options["y"].split(" | ")
    if x.endswith("*"):
        places = {name: name.removeprefix(x[:-1]) for name in table.columns if name.startswith(x[:-1])}
        if not places:
            raise InputError(f"no column begins with {x[:-1]!r}")
    else:
        places = {name.strip(): row[_column(table, x)] for name in several}
    for name, place in places.items():
        cell = row[_column(table, name)]
        value = _value(cell)
        if value is not None:
            beside = cell if interval is None else row[_column(table, interval)]
            line = "" if x.endswith("*") or len(several) == 1 else name
            yield line, ChartPoint(x=place, y=value, interval=_interval(beside))


def _value(cell: str) -> float | None:
    """The first number of a cell, None without one; of "a of b" and "a/b" the share in percent."""
    if (share := _SHARE.match(cell)) is not None:
        part, whole = (float(number.replace(",", "")) for number in share.groups())
        return 100 * part / whole if whole else None
    number = _NUMBER.search(cell)
    return None if number is None else float(number[0].replace(",", ""))


def _interval(cell: str) -> tuple[float, float] | None:
    if (ends := _INTERVAL.search(cell)) is None:
        return None
    return float(ends[1]), float(ends[2])
