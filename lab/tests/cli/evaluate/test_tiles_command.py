"""`veil evaluate tiles`: the tables and the figure of planted rows, and the command on four photographs."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from veil.cli import main
from veil_lab.cli.evaluate.poses.tiles import enough, form_table, tile_table
from veil_lab.report.tiles import draw_tiles
from veil_lab.studies.localization.against_raw import AgainstRaw
from veil_lab.studies.localization.tile_localization import FormName, TileFormRow, TileRow, TileSetting
from worlds.schemas import validate


def beside(localized: int, ratio: float | None) -> AgainstRaw:
    return AgainstRaw(
        queries=20,
        raw_localized=20,
        localized=localized,
        low=0.8,
        high=1.0,
        gained=0,
        error_ratio=ratio,
        median_error=None,
        raw_median_error=None,
        astray=0,
        raw_astray=0,
    )


def tiles(bits: int, ratio: float, *, localized: int = 20, false: int = 0) -> TileRow:
    return TileRow(
        scene="all",
        setting=TileSetting(tile_bytes=1 << 16, axes=64, bits=bits, asked=4),
        tiles=5.0,
        manifest_bytes=90_000.0,
        all_bytes=900_000.0,
        fetched_bytes=50_000.0 * bits,
        up_bytes=8.0,
        down_bytes=100_000.0 * bits,
        beside=beside(localized, ratio),
        false_queries=44,
        false_poses=false,
        seconds=0.25,
    )


def form(name: FormName, upload_bytes: float, ratio: float | None) -> TileFormRow:
    return TileFormRow(
        scene="all",
        form=name,
        beside=beside(0 if ratio is None else 20, ratio),
        upload_bytes=upload_bytes,
        device_seconds=0.5,
        server_seconds=0.125,
    )


ROWS = [tiles(8, 1.08), tiles(4, 1.05, localized=19)]
FORMS = [form("raw", 393_400.0, 1.0), form("words", 33_400.0, 1.217), form("lines", 492_000.0, None)]


def test_tables_tell_what_was_found() -> None:
    """Numbers by hand. Broken twins: a setting with fewer bytes that localizes too few, or gives a false pose, is not told."""
    first, second = tile_table(ROWS).rows
    told = ["all", "65536", "64", "8", "4", "usual", "5.0", "90", "900", "400", "20/20", "1.080", "0/44", "0.25"]
    assert list(first) == ["1", *told] and list(second)[-4:-1] == ["19/20", "1.050", "0/44"]  # type: ignore[arg-type]
    assert "400 kB" in enough(ROWS) and "8 bits" in enough(ROWS)
    assert "no setting" in enough([tiles(8, 1.08, false=1)])
    rows = form_table(ROWS, FORMS).rows
    assert rows[0] == ("all", "raw", "393.4", "", "20/20", "1.000", "0.50", "0.12")
    assert rows[2] == ("all", "lines", "492.0", "", "0/20", "", "0.50", "0.12")
    assert rows[3] == ("all", "tiles 64 KiB, 8 bits, 4 asked", "0.008", "800", "20/20", "1.080", "0.25", "")


@pytest.mark.slow
@pytest.mark.parametrize("forms", [FORMS, []])
def test_the_figure_names_every_form_that_has_a_pose(
    forms: list[TileFormRow], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from veil.report import figures

    drawn: list = []
    monkeypatch.setattr(figures, "write_figure", lambda path, figure: drawn.append(figure))
    draw_tiles(tmp_path / "tiles.png", ROWS, forms)
    (figure,) = drawn
    assert len(figure.axes) == 3 + bool(forms)
    if forms:
        low, high = figure.axes[3].get_xlim()
        assert [text.get_text() for text in figure.axes[3].texts] == ["raw", "words"]
        assert all(low < text.xy[0] < high for text in figure.axes[3].texts)


@pytest.mark.slow
@pytest.mark.usefixtures("unchecked")
def test_photographs_are_asked_in_tiles_and_in_other_forms(
    veil_data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """All held-out photographs of a facade are localized by each way."""
    scene = tmp_path / "fountain"
    shutil.copytree(veil_data / "strecha" / "fountain-P11", scene)
    for path in sorted((scene / "images").iterdir())[4:]:
        path.unlink()
    words = ["--folds", "2", "--bytes", "60000", "--bits", "8", "--false", "0", "--noise", "0", "--max-features", "600"]
    forms = ["--forms", "raw", "subspaces", "--json", str(tmp_path / "t.json")]
    assert main(["evaluate", "tiles", str(scene), *words, *forms]) == 0
    record = json.loads((tmp_path / "t.json").read_text())
    validate("evaluate-tiles", record)
    (row,) = record["rows"]
    assert (row["queries"], row["localized"], row["false_poses"]) == (4, row["raw_localized"], 0)
    assert [item["form"] for item in record["forms"]] == ["raw", "subspaces"]
    raw = record["forms"][0]
    assert raw["localized"] == raw["raw_localized"] >= 2 and raw["error_ratio"] == pytest.approx(1, rel=0.2)
    assert "what was asked" in capsys.readouterr().out
