"""Tables of plain text for people: aligned by display width, and no wider than the terminal.

Every table that a command prints is a `Table`. Where it is too wide, its heads are wrapped, then names are shortened in their
middle, then the columns are split into blocks below the same row labels. Numbers are never cut.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from unicodedata import category, east_asian_width

from veil.ldp.rounding import interval_ends

WIDTH = 80  # columns of a terminal, where nothing else is known
GAP = "  "
ELLIPSIS = "…"
# What a label may be shortened to where a number beside it needs the room.
LEAST_LABEL = 4


@dataclass(frozen=True)
class Number:
    """A column of numbers, with the unit in its `head`: right-aligned, never shortened."""

    head: str


@dataclass(frozen=True)
class Name:
    """A column of names: left-aligned, shortened in the middle where room lacks, to `least` columns at least."""

    head: str
    least: int = 16


@dataclass(frozen=True)
class Words:
    """A column of text: left-aligned, wrapped into several lines where room lacks, to `least` columns at least."""

    head: str
    least: int = 24


Column = Number | Name | Words


def names(*heads: str) -> list[Column]:
    """Columns of names with these heads."""
    return [Name(head) for head in heads]


def numbers(*heads: str) -> list[Column]:
    """Columns of numbers with these heads."""
    return [Number(head) for head in heads]


@dataclass(frozen=True, kw_only=True)
class Remark:
    """A row without numbers: the cells of its labels, and a sentence in place of all other columns."""

    labels: tuple[str, ...]
    text: str


Row = Sequence[str] | Remark


@dataclass(frozen=True, kw_only=True)
class Table:
    """Rows of cells below the heads of their columns; the first `labels` columns say what a row is.

    A row has a cell for each column, or is a `Remark`.
    """

    columns: Sequence[Column]
    rows: Sequence[Row]
    labels: int = 1

    def __post_init__(self) -> None:
        for row in self.rows:
            assert len(row.labels) == self.labels if isinstance(row, Remark) else len(row) == len(self.columns), row

    def lines(self, width: int = WIDTH) -> list[str]:
        """The lines of the table, none wider than `width` terminal columns unless a single number is."""
        columns = [_Prepared.of(column, self._cells(index)) for index, column in enumerate(self.columns)]
        blocks = list(_blocks(columns, self.labels, width))
        lines: list[str] = []
        for number, block in enumerate(blocks):
            lines += [""] * (number > 0) + list(self._block(columns, block, width, first=number == 0))
        return lines

    def markdown(self) -> list[str]:
        """The lines of the table in Markdown, of any width, without remarks."""
        rows = [row for row in self.rows if not isinstance(row, Remark)]
        cells = [[column.head for column in self.columns], ["---"] * len(self.columns), *rows]
        return [f"| {' | '.join(row)} |" for row in cells]

    def _cells(self, index: int) -> list[str]:
        """The cells of one column; a remark has some for labels only."""
        rows = (row.labels if isinstance(row, Remark) else row for row in self.rows)
        return [escaped(row[index]) if index < len(row) else "" for row in rows]

    def _block(self, columns: Sequence[_Prepared], block: Sequence[int], width: int, *, first: bool) -> Iterator[str]:
        """Lines of the columns of one block; remarks stand in the first."""
        widths = _widths([columns[index] for index in block], self.labels, width)
        heads = [_wrapped(columns[index].column.head, size) for index, size in zip(block, widths, strict=True)]
        deepest = max(map(len, heads))
        heads = [[""] * (deepest - len(head)) + head for head in heads]
        aligned = [columns[index].align for index in block]
        yield from _joined(heads, widths, aligned)
        for number, row in enumerate(self.rows):
            some = block[: self.labels] if isinstance(row, Remark) else block
            cells = [columns[index].shown(number, size) for index, size in zip(some, widths, strict=False)]
            if isinstance(row, Remark):
                if not first:
                    continue
                room = max(width - sum(widths[: self.labels]) - len(GAP) * self.labels, 1)
                cells.append(_wrapped(escaped(row.text), room))
                yield from _joined(cells, [*widths[: self.labels], room], [*aligned[: self.labels], "<"])
            else:
                yield from _joined(cells, widths, aligned)


@dataclass(frozen=True, kw_only=True)
class _Prepared:
    """A column with its cells, and how wide they are."""

    column: Column
    cells: Sequence[str]
    widest: int

    @classmethod
    def of(cls, column: Column, cells: Sequence[str]) -> _Prepared:
        return cls(column=column, cells=cells, widest=max(map(display_width, cells), default=0))

    @property
    def align(self) -> str:
        return ">" if isinstance(self.column, Number) else "<"

    def full(self, head_lines: int) -> int:
        """The width that shows every cell in full, with a head of at most this number of lines."""
        return max(self.widest, _head_width(self.column.head, head_lines))

    @property
    def least(self) -> int:
        """The width below which nothing may be shortened any more."""
        head = _head_width(self.column.head, 99)
        return max(self.widest if isinstance(self.column, Number) else min(self.widest, self.column.least), head)

    def shown(self, row: int, width: int) -> list[str]:
        """The lines of a cell in a column of this width."""
        if isinstance(self.column, Words):
            return _wrapped(self.cells[row], width)
        return [self.cells[row] if isinstance(self.column, Number) else shortened(self.cells[row], width)]


def _blocks(columns: Sequence[_Prepared], labels: int, width: int) -> Iterator[list[int]]:
    """Indices of the columns that stand side by side: all labels, and as many others as there is room for."""
    names = list(range(labels))
    taken = names.copy()
    for index in range(labels, len(columns)):
        least = [columns[place].least for place in [*taken, index]]
        if len(taken) > labels and sum(least) + len(GAP) * (len(least) - 1) > width:
            yield taken
            taken = names.copy()
        taken.append(index)
    yield taken


def _widths(columns: Sequence[_Prepared], labels: int, width: int) -> list[int]:
    """Widths of columns side by side: all cells in full if there is room, with heads of as few lines as that allows."""
    room = width - len(GAP) * (len(columns) - 1)
    for head_lines in (1, 2, 3, 4):
        full = [column.full(head_lines) for column in columns]
        if sum(full) <= room:
            return full
    widths = [column.least for column in columns]
    while sum(widths) < room and any(size < most for size, most in zip(widths, full, strict=True)):
        missing = [most - size for size, most in zip(widths, full, strict=True)]
        widths[missing.index(max(missing))] += 1
    for index in range(labels):  # a number that is wide by itself takes the room of labels
        if isinstance(columns[index].column, Name):
            widths[index] = max(widths[index] - max(sum(widths) - room, 0), min(widths[index], LEAST_LABEL))
    return widths


def _joined(cells: Sequence[Sequence[str]], widths: Sequence[int], aligned: Sequence[str]) -> Iterator[str]:
    """The lines of one row, whose cells are lists of lines."""
    for line in range(max(map(len, cells))):
        parts = []
        for cell, size, align in zip(cells, widths, aligned, strict=True):
            text = cell[line] if line < len(cell) else ""
            space = " " * (size - display_width(text))
            parts.append(space + text if align == ">" else text + space)
        yield GAP.join(parts).rstrip()


def _head_width(head: str, lines: int) -> int:
    """The least width at which a head takes at most this number of lines, and no word of it is broken."""
    words = [display_width(word) for word in head.split()]
    width = max(words, default=0)
    while len(_wrapped(head, width)) > lines:
        width += 1
    return width


def _wrapped(text: str, width: int) -> list[str]:
    """Lines of at most `width` columns, broken at spaces, and within words that are wider than a line."""
    lines, line = [], ""
    for word in text.split(" "):
        if line and display_width(line) + 1 + display_width(word) <= width:
            line = f"{line} {word}"
            continue
        lines += [line] if line else []
        line = word
        while display_width(line) > width and len(_clusters(line)) > 1:
            head = _taken(_clusters(line), max(width, 1)) or _clusters(line)[0]
            lines.append(head)
            line = line[len(head) :]
    return [*lines, line]


def facts(pairs: Mapping[str, str], width: int = WIDTH) -> list[str]:
    """Lines of facts: names in a column, and beside each its text, wrapped."""
    size = max(map(display_width, pairs), default=0)
    lines: list[str] = []
    for key, text in pairs.items():
        parts = _wrapped(escaped(text), max(width - size - len(GAP), 1))
        lines += _joined([[key], parts], [size, max(map(display_width, parts))], "<<")
    return lines


def wrapped(text: str, width: int = WIDTH, *, indent: str = "") -> list[str]:
    """Lines of at most `width` terminal columns of a sentence; `indent` stands before all but the first."""
    first, *rest = _wrapped(escaped(text), width)
    if not rest:
        return [first]
    return [first, *(indent + line for line in _wrapped(" ".join(rest), width - len(indent)))]


def percent(share: float | None, digits: int = 1) -> str:
    """A share as a number of percent, for a column with the unit in its head; empty for None."""
    return "" if share is None else f"{100 * share:.{digits}f}"


def fixed(value: float | None, digits: int) -> str:
    """A number with `digits` digits behind the point; empty for None."""
    return "" if value is None else f"{value:,.{digits}f}"


def interval(low: float | None, high: float | None, digits: int = 1) -> str:
    """An interval of shares in percent, its ends rounded outward, for a column with the unit in its head; empty for None."""
    return "" if low is None or high is None else "-".join(interval_ends(low, high, digits))


def escaped(text: str, kept: str = "") -> str:
    """The text with control characters and unprintable ones escaped, except those in `kept`: names in it come from others."""
    return "".join(char if char.isprintable() or char in kept else char.encode("unicode_escape").decode() for char in text)


def display_width(text: str) -> int:
    """The columns of a terminal that a text takes: marks that combine with a letter take none, East Asian wide letters two."""
    if text.isascii():
        return len(text)
    return sum(map(_char_width, text))


def _char_width(char: str) -> int:
    if category(char) in ("Mn", "Me"):
        return 0
    return 2 if east_asian_width(char) in "WF" else 1


def _clusters(text: str) -> list[str]:
    """The letters of a text, each with the marks that combine with it."""
    clusters: list[str] = []
    for char in text:
        if clusters and not _char_width(char):
            clusters[-1] += char
        else:
            clusters.append(char)
    return clusters


def _taken(clusters: Sequence[str], width: int) -> str:
    """As many of the first letters as fit."""
    taken = ""
    for cluster in clusters:
        if display_width(taken) + display_width(cluster) > width:
            break
        taken += cluster
    return taken


def shortened(text: str, width: int) -> str:
    """The text in at most `width` terminal columns: a part of its middle may be left out, with an ellipsis in its place."""
    if display_width(text) <= width:
        return text
    clusters = _clusters(text)
    begin = _taken(clusters, width // 2)
    # The end takes its letters in reverse, so that none is split.
    end: list[str] = []
    for cluster in reversed(clusters[len(_clusters(begin)) :]):
        if display_width(begin) + len(ELLIPSIS) + sum(map(display_width, [cluster, *end])) > width:
            break
        end.insert(0, cluster)
    return begin + ELLIPSIS + "".join(end)
