"""Every figure of studies in veil's style: nothing lies over anything else, and no module has a style of its own."""

from __future__ import annotations

from pathlib import Path

import pytest

from lab_worlds.study_figure_rows import FIGURES
from worlds.figure_checks import own_styles, require_legible

REPORT = Path(__file__).parents[2] / "veil_lab" / "report"
BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


@pytest.mark.slow
@pytest.mark.parametrize("name", FIGURES)
def test_nothing_written_lies_over_anything_else(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With planted rows of as many curves and as long names as studies have. Oracle: the boxes that the renderer gives them."""
    require_legible(FIGURES[name], tmp_path, monkeypatch, also_writes="veil_lab.report.localization.write_figure")


def test_no_module_has_a_style_of_its_own() -> None:
    assert own_styles([*REPORT.glob("*.py"), *BENCHMARKS.glob("*.py")]) == {}
