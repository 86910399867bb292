"""Pages of results: what they cite of records is filled in, and their charts are drawn, when the site is built.

A file of its own: the rules are those of `veil_lab.results.pages`, which tests use as well.
"""

from __future__ import annotations

from pathlib import Path

from sphinx.application import Sphinx
from sphinx.errors import ExtensionError

from veil.errors import VeilError
from veil_lab.files.results import read_records
from veil_lab.report.record_charts import with_charts
from veil_lab.results.charts import CHART
from veil_lab.results.pages import citations, rendered

ROOT = Path(__file__).resolve().parents[2]
FOLDER, RECORDS = "lab/results/", ROOT / "lab" / "results" / "records"


def fill(app: Sphinx, docname: str, source: list[str]) -> None:
    """Fill in the cells and tables of a page of results (the event `source-read`)."""
    if not docname.startswith(FOLDER):
        return
    for name in citations(source[0]) | {block[1] for block in CHART.finditer(source[0])}:
        app.env.note_dependency(str(RECORDS / f"{name}.json"))
    try:
        records = read_records(RECORDS)
        source[0] = with_charts(rendered(source[0], records), records)
    except VeilError as error:
        raise ExtensionError(f"{docname}: {error}") from None


def setup(app: Sphinx) -> dict[str, bool]:
    """Register the event."""
    app.connect("source-read", fill)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
