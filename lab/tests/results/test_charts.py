"""Charts of pages of results: their points are the cells of records, and what is not there is named with its line."""

from __future__ import annotations

import base64
import re
from pathlib import Path

import pytest

from veil.errors import InputError
from veil_lab.files.results import read_records
from veil_lab.report.record_charts import with_charts
from veil_lab.results.charts import CHART, ChartPoint, charts
from veil_lab.results.record import ResultRecord, ResultTable

FOLDER = Path(__file__).parents[2] / "results"
TABLE = ResultTable(
    columns=("form", "m", "K = 1", "K = 10", "kept", "its interval", "seconds"),
    rows=(
        ("raw", "2", "0.5 (0.4 to 0.6)", "0.25", "9 of 10", "70 to 99", "1.5 / 2"),
        ("words", "4", "0.75", "-", "1/4", "2 to 60", "2,000 s"),
        ("words", "8", "none", "1e-3", "", "", "3"),
    ),
)
RECORDS = {"forms": ResultRecord(name="forms", question="?", command="veil x", tables=(TABLE,), date="2026-11-28", commit="0")}


def block(*options: str, name: str = "forms") -> str:
    return f"```{{chart}} {name}\n" + "".join(f":{option}\n" for option in options) + "```"


def lines(*options: str) -> dict[str, list[ChartPoint]]:
    ((_, chart),) = charts(f"A page.\n\n{block(*options)}\n", RECORDS)
    return {name: list(points) for name, points in chart.lines.items()}


def test_points_are_cells_by_hand() -> None:
    """Columns whose names begin alike, with intervals in brackets; cells without a number have no point."""
    assert lines("x: K = *", "y: error", "lines: form | m") == {
        "raw, 2": [ChartPoint(x="1", y=0.5, interval=(0.4, 0.6)), ChartPoint(x="10", y=0.25)],
        "words, 4": [ChartPoint(x="1", y=0.75)],
        "words, 8": [ChartPoint(x="10", y=0.001)],
    }
    assert lines("x: m", "y: kept", "interval: its interval") == {
        "": [ChartPoint(x="2", y=90.0, interval=(70.0, 99.0)), ChartPoint(x="4", y=25.0, interval=(2.0, 60.0))]
    }
    assert lines("x: m", "y: seconds | K = 1", "lines: form", "rows: form = words; m = 4") == {
        "words, seconds": [ChartPoint(x="4", y=2000.0)],
        "words, K = 1": [ChartPoint(x="4", y=0.75)],
    }


@pytest.mark.parametrize(
    ("options", "named"),
    [
        (("x: m",), "a chart has x and y"),
        (("x: m", "y: kept", "color: red"), "not \\['color', 'x', 'y'\\]"),
        (("x: m", "y: share"), "no column 'share', but form, m"),
        (("x: L = *", "y: share"), "no column begins with 'L = '"),
        (("x: m", "y: kept", "rows: form = lines"), "no row has form = lines"),
        (("x: m", "y: form"), "the chart has 0 lines"),
    ],
)
def test_what_is_not_there_is_named(options: tuple[str, ...], named: str) -> None:
    """Broken twins: each of a chart's parts is gone from the record, as after a run that prints another table."""
    with pytest.raises(InputError, match=f"line 3: .*{named}"):
        lines(*options)
    with pytest.raises(InputError, match="no record 'others'"):
        list(charts(block("x: m", "y: kept", name="others"), RECORDS))


def test_too_many_lines_are_refused() -> None:
    rows = tuple((str(number), "1") for number in range(11))
    many = {
        "forms": ResultRecord(
            name="forms",
            question="?",
            command="veil x",
            date="2026-11-28",
            commit="0",
            tables=(ResultTable(columns=("form", "m"), rows=rows),),
        )
    }
    with pytest.raises(InputError, match="11 lines"):
        list(charts(block("x: m", "y: m", "lines: form"), many))


def test_a_drawing_stands_in_place_of_the_block_and_shows_its_points() -> None:
    """Second method: the marks in the drawing, one for each point; the page around it stays."""
    page = with_charts(f"Before.\n\n{block('x: K = *', 'y: error', 'lines: form | m', 'log: x y')}\n\nBehind.\n", RECORDS)
    assert page.startswith("Before.\n\n<p") and page.endswith("</p>\n\nBehind.\n") and CHART.search(page) is None
    (encoded,) = re.findall(r'src="data:image/svg\+xml;base64,([^"]+)"', page)
    drawing = base64.b64decode(encoded).decode()
    assert 'alt="error by K: raw, 2; words, 4; words, 8"' in page and "<svg" in drawing
    colors = re.findall(r"<use [^>]*style=\"fill: (#\w+); stroke: \1\"", drawing)
    marks = {color: colors.count(color) for color in set(colors)}
    # One more stands in the legend. Of the line with an interval each has two ends beside it.
    assert sorted(marks.values()) == [2, 2, 3 * 3]


@pytest.mark.slow
def test_charts_of_pages_are_drawn() -> None:
    """Every chart of every page, of today's records; a block that is misspelt would stand in the page as it is."""
    records, count = read_records(FOLDER / "records"), 0
    for page in sorted(FOLDER.glob("*.md")):
        text = page.read_text()
        made = with_charts(text, records)
        count += len(CHART.findall(text))
        assert "{chart}" not in made and made.count('<p class="chart">') == len(CHART.findall(text))
    assert count > 10
