"""Tables of plain text: nothing wider than asked, nothing lost, and cells that stand below their heads.

The oracle is planted: the letters of the tests are chosen, each with the columns that a terminal gives it, and every head ends
in a mark of its own, `q3%` for the column 3, that says where the cells of its column have to stand.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from veil.report import tables
from veil.report.tables import ELLIPSIS, Name, Number, Remark, Table, Words, display_width, facts, shortened, wrapped

# Letters, each with the columns that it takes: Latin, a mark that combines, half width, full width, Chinese, Hangul, emoji.
PLANTED = {"a": 1, "Z": 1, "-": 1, "é": 1, "e\u0301": 1, "\uff76": 1, "\uff37": 2, "漢": 2, "한": 2, "🦊": 2}
WORDS = st.lists(st.sampled_from(sorted(PLANTED)), min_size=1, max_size=30).map("".join)
SENTENCES = st.lists(WORDS, max_size=12).map(" ".join)
HEADS = st.lists(st.text("bcdfgh,", min_size=1, max_size=9), max_size=4).map(" ".join)
NUMBERS = st.one_of(st.integers(-(10**12), 10**12).map("{:,}".format), st.floats(-1e6, 1e6).map("{:.3f}".format), st.just(""))


def letters(text: str) -> Iterator[tuple[str, int]]:
    """The letters of a text with their planted widths; what is not planted takes one column."""
    longest_first = sorted(PLANTED, key=len, reverse=True)
    while text:
        letter = next((known for known in longest_first if text.startswith(known)), text[0])
        yield letter, PLANTED.get(letter, 1)
        text = text[len(letter) :]


def planted_width(text: str) -> int:
    return sum(width for _, width in letters(text))


def cut(line: str, place: int) -> tuple[str, str]:
    """A line before and after a column of the terminal."""
    before = ""
    for letter, width in letters(line):
        if planted_width(before) + width > place:
            break
        before += letter
    return before, line[len(before) :]


@st.composite
def drawn_tables(draw: st.DrawFn):
    """Columns, of which one or two are labels, and rows with whether each is a remark; labels begin with the row's number."""
    labels = draw(st.integers(1, 2))
    kinds = [Name] * labels + draw(st.lists(st.sampled_from([Number, Number, Number, Name, Words]), min_size=1, max_size=16))
    columns = [kind(f"{draw(HEADS)} q{index}%".strip()) for index, kind in enumerate(kinds)]
    drawn = {Name: WORDS, Number: NUMBERS, Words: SENTENCES}
    rows = []
    for number in range(draw(st.integers(0, 4))):
        row = [draw(drawn[kind]) for kind in kinds]
        row[:labels] = [f"{number}{label}" for label in row[:labels]]
        rows.append((row, draw(st.integers(0, 5)) == 0))
    return labels, columns, rows, draw(SENTENCES)


def is_shown(name: str, cell: str) -> bool:
    """Whether `cell` is a name, or its begin and end around an ellipsis."""
    begin, dots, end = cell.partition(ELLIPSIS)
    return cell == name or (bool(dots) and bool(begin) and name.startswith(begin) and name.endswith(end))


def misplaced(table: Table, heads: str, lines: Sequence[str], row: Sequence[str]) -> Iterator[str]:
    """The cells of a row that its lines do not show where the heads of the block say; `heads` is the last line of these."""
    for mark in re.finditer(r"q(\d+)%", heads):
        kind, cell = table.columns[int(mark[1])], row[int(mark[1])]
        if isinstance(kind, Number):
            before, after = cut(lines[0], mark.end())
            if before[mark.end() - len(cell) :] != cell and not before.endswith(f" {cell}" if cell else ""):
                yield f"{cell!r} does not end below {mark[0]}: {lines[0]!r}"
            if cell and after[:1] not in ("", " "):
                yield f"{cell!r} does not end at {mark[0]}: {lines[0]!r}"
            continue
        # The head of a column of words may have several words in its last line.
        start = next(m for m in re.finditer(r"\S+(?: \S+)*", heads) if m.start() <= mark.start() < m.end()).start()
        shown = [cut(line, start)[1].split("  ")[0] for line in lines]
        if isinstance(kind, Name) and not is_shown(cell, shown[0]):
            yield f"{cell!r} is shown as {shown[0]!r}"
        if isinstance(kind, Words) and "".join(shown).replace(" ", "") != cell.replace(" ", ""):
            yield f"{cell!r} is shown as {shown!r}"


def faults(table: Table, lines: Sequence[str], width: int) -> list[str]:
    """Faults in the lines of a table: lines that are too wide, lost columns or rows, cells out of their place."""
    problems = [f"too wide: {line!r}" for line in lines if planted_width(line) > width]
    blocks = [block.split("\n") for block in "\n".join(lines).split("\n\n")]
    columns: list[int] = []
    for block in blocks:
        last = next(number for number, line in enumerate(block) if "q0%" in line)
        marks = [int(mark) for mark in re.findall(r"q(\d+)%", block[last])]
        columns += marks[table.labels :]
        begins = [number for number in range(last + 1, len(block)) if not block[number].startswith(" ")]
        groups = [block[a:b] for a, b in zip(begins, [*begins, len(block)][1:], strict=True)]
        rows = [row for row in table.rows if block is blocks[0] or not isinstance(row, Remark)]
        if len(groups) != len(rows) or marks[: table.labels] != list(range(table.labels)):
            problems.append(f"rows or labels are lost: {block}")
            continue
        for group, row in zip(groups, rows, strict=True):
            if isinstance(row, Remark):
                said = "".join(group).replace(" ", "")
                problems += [f"lost: {row.text!r}"] * (not said.endswith(row.text.replace(" ", "")))
            else:
                problems += misplaced(table, block[last], group, row)
    return problems + [f"columns {columns}"] * (columns != list(range(table.labels, len(table.columns))))


@pytest.mark.slow
@settings(max_examples=120, deadline=None)
@given(drawn=drawn_tables(), width=st.sampled_from([80, 80, 100, 140]))
def test_no_line_is_too_wide_and_every_cell_is_in_its_place(drawn: Any, width: int) -> None:
    labels, columns, drawn_rows, text = drawn
    rows = [Remark(labels=tuple(row[:labels]), text=text) if is_remark else row for row, is_remark in drawn_rows]
    table = Table(columns=columns, rows=rows, labels=labels)
    assert faults(table, table.lines(width), width) == []


WIDE = Table(
    columns=[Name("scene q0%"), *(Number(f"a long head q{index}%") for index in range(1, 12)), Words("why q12%")],
    rows=[
        ["0漢漢漢漢漢", *("1234567.5" for _ in range(11)), "a sentence that is too long for what is left of this line"],
        ["1e\u0301e\u0301", *("-2" for _ in range(11)), ""],
        Remark(labels=("2Z",), text="not run"),
    ],
)


def test_a_wide_table_becomes_blocks_below_the_same_labels() -> None:
    lines = WIDE.lines()
    assert faults(WIDE, lines, 80) == [] and sum("q0%" in line for line in lines) == 3
    assert len(WIDE.lines(400)) == 4  # one line a row, where there is room


@pytest.mark.parametrize(
    "twin",
    [
        lambda monkeypatch: monkeypatch.setattr(tables, "display_width", len),
        lambda monkeypatch: monkeypatch.setattr(tables, "_blocks", lambda columns, labels, width: [list(range(len(columns)))]),
        lambda monkeypatch: monkeypatch.setattr(tables._Prepared, "align", "<"),
        lambda monkeypatch: monkeypatch.setattr(tables, "_wrapped", lambda text, width: [text[:width]]),
    ],
    ids=["letters are counted", "nothing is split", "numbers to the left", "text is cut"],
)
def test_a_broken_table_is_seen(monkeypatch: pytest.MonkeyPatch, twin) -> None:
    twin(monkeypatch)
    assert faults(WIDE, WIDE.lines(), 80) != []


def test_a_name_keeps_its_begin_and_its_end() -> None:
    assert shortened("strecha/fountain-P11/images/0003.jpg", 20) == "strecha/fo…/0003.jpg"
    assert shortened("fox", 20) == "fox"
    assert shortened("漢漢漢漢漢", 6) == "漢…漢" and display_width("漢…漢") == 5
    assert shortened("aaae\u0301aaae\u0301", 5) == "aa…ae\u0301"  # no letter without its mark


def test_control_characters_of_names_do_not_reach_the_terminal() -> None:
    table = Table(columns=[Name("image"), Number("features")], rows=[["a\x1b[31m\nb", "3"], Remark(labels=("\t",), text="\a")])
    assert table.lines() == ["image         features", r"a\x1b[31m\nb         3", r"\t            \x07"]


def test_facts_and_sentences_are_wrapped_at_spaces() -> None:
    assert facts({"a": "one two three", "bcd": "four"}, 13) == ["a    one two", "     three", "bcd  four"]
    assert wrapped("one two three four", 9, indent="  ") == ["one two", "  three", "  four"]
    assert wrapped("", 9) == [""]
