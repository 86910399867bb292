"""The page and the table of the board, of planted rows."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from veil.report.tables import Remark
from veil_lab.report.board import board_table, page, scene_facts
from veil_lab.studies.board.rows import BoardOptions, BoardRow, BoardScene, MapCounts, NotRun, RecoveredShare
from veil_lab.studies.localization.answer_counts import AnswerCounts

ONE = RecoveredShare(attack="context", share=0.613, features=40, photographs=2, uploads=1)
ROW = BoardRow(
    form="subspaces",
    built=MapCounts(registered=6, by_raw=7, median_error=0.0012, largest_error=0.02, seconds=12.34),
    answers=AnswerCounts(queries=4, localized=2, wrong=1, median_error=0.0105, regions=3, covered=2),
    one=ONE,
    five=replace(ONE, share=0.72, uploads=5),
    near=NotRun(reason="no near repeats"),
    upload_bytes=48_800.0,
    query_seconds=0.52,
)
SCENE = BoardScene(scene="arc", photographs=12, mapped=7, queries=4, unjudged=1, has_reference=True, rows=(ROW,))
BROKEN = BoardScene(scene="<b>broken</b>", reason="it needs a folder `images/` of photographs")
OPTIONS = BoardOptions(queries_every=3, features=40)


def cells(row: BoardRow) -> dict[str, str]:
    """The cells of a row by the heads of their columns."""
    table = board_table([replace(SCENE, rows=(row,))])
    (made,) = table.rows
    assert not isinstance(made, Remark)
    return dict(zip([column.head for column in table.columns], made, strict=True))


def test_a_row_has_every_number_once() -> None:
    """By hand: shares are percent, errors percent of the extent, bytes kB."""
    assert cells(ROW) == {
        "scene": "arc",
        "form": "subspaces",
        "registered / by raw": "6 / 7",
        "map off, %: median / largest": "0.12 / 2.00",
        "localized": "2 of 4",
        "wrong": "1",
        "median error, %": "1.05",
        "region holds": "2 of 3",
        "1 upload, %": "61.3",
        "5 uploads, %": "72.0",
        "near repeats, %": "no near repeats",
        "kB an image": "49",
        "map, s": "12.3",
        "query, s": "0.5",
        "note": "",
    }


@pytest.mark.parametrize(
    ("row", "shown"),
    [
        (replace(ROW, near=replace(ONE, uploads=3)), {"near repeats, %": "61.3 (3 uploads)"}),
        (replace(ROW, one=replace(ONE, named=0.451)), {"1 upload, %": "61.3; 45.1 named"}),
        (replace(ROW, five=replace(ONE, uploads=4)), {"5 uploads, %": "61.3 (4 uploads)"}),
        (
            replace(ROW, built=NotRun(reason="no map: too few")),
            {"registered / by raw": "-", "map, s": "-", "note": "no map: too few"},
        ),
        (
            replace(
                ROW, one=NotRun(reason="all are sent"), five=NotRun(reason="all are sent"), near=NotRun(reason="all are sent")
            ),
            {"1 upload, %": "-", "near repeats, %": "-", "note": "all are sent"},
        ),
    ],
)
def test_what_is_missing_says_why(row: BoardRow, shown: dict[str, str]) -> None:
    made = cells(row)
    assert {head: made[head] for head in shown} == shown


def test_the_page_is_complete_in_itself_and_says_what_is_wrong() -> None:
    """No address is fetched; the definition of wrong, the split and the reason for a scene without rows stand on the page."""
    text = page([SCENE, BROKEN], OPTIONS)
    assert not re.search(r"https?:|src=|href=|@import|url\(", text)
    assert "&lt;b&gt;broken" in text and "<b>broken" not in text and "it needs a folder `images/` of photographs" in text
    assert "one photograph in 3 is a query" in text and "more than 5 % of the extent" in text and "5 degrees" in text
    *columns, note = board_table([SCENE]).columns
    assert note.head == "note" and all(f">{column.head}</th>" in text for column in columns)
    assert text.count("<tr") == 1 + 1 + 2 and text.count(scene_facts(SCENE)) == 1
    assert page([], OPTIONS).count("<tr") == 1


def test_a_scene_says_what_its_reference_is() -> None:
    """Oracle: the two kinds of reference, and the photograph without a pose."""
    assert scene_facts(SCENE) == (
        "arc: 12 photographs, 7 of them mapped, 4 asked, and 1 without a reference pose. Reference: its own cameras are taken. "
        "Gravity is not known."
    )
    assert "it has none, so that the raw map of all photographs is taken" in scene_facts(replace(SCENE, has_reference=False))
    assert scene_facts(BROKEN) == "<b>broken</b>: nothing was measured."
