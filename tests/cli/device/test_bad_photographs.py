"""One bad photograph takes nothing from the others: it is skipped and named, and --strict refuses."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from PIL import Image

from veil.cli import main
from veil.files.features import read_features
from worlds import generator


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Two with texture, one that is blank, one that was cut off, and one that is text."""
    path = tmp_path / "photos"
    path.mkdir()
    for name in ("a.png", "b.png"):
        pixels = generator(f"bad photographs {name}").integers(0, 256, (12, 16, 3), dtype="uint8")
        Image.fromarray(pixels).resize((160, 120), Image.Resampling.BICUBIC).save(path / name)
    Image.new("RGB", (160, 120), "white").save(path / "blank.png")
    (path / "cut.png").write_bytes((path / "a.png").read_bytes()[:2000])
    (path / "text\x1b[2J.jpg").write_text("no picture")
    return path


def test_extraction_skips_and_names_them(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    output, record = tmp_path / "f.h5", tmp_path / "f.json"
    assert main(["extract", str(folder), "-o", str(output), "--json", str(record)]) == 0
    assert [name for name, _ in read_features(output)] == ["a.png", "b.png"]
    told = json.loads(record.read_text())["skipped"]
    assert set(told) == {"blank.png", "cut.png", "text\x1b[2J.jpg"}
    said = capsys.readouterr().err
    assert "skipped cut.png: " in said and "skipped text\\x1b[2J.jpg: " in said and "\x1b" not in said
    assert "cannot be decoded as a photograph" in told["cut.png"]


def test_strict_refuses_before_anything_is_written(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    output = tmp_path / "f.h5"
    assert main(["extract", str(folder), "-o", str(output), "--strict"]) == 1
    assert "blank.png" in capsys.readouterr().err and not output.exists()


def test_nothing_is_left_to_extract(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A single photograph is all that was asked for; of several bad ones the first says why."""
    output = tmp_path / "f.h5"
    assert main(["extract", str(folder / "cut.png"), "-o", str(output)]) == 1
    assert "cut.png cannot be decoded" in capsys.readouterr().err
    assert main(["extract", str(folder / "cut.png"), str(folder / "blank.png"), "-o", str(output)]) == 1
    assert "none of the 2 images can be used; cut.png" in capsys.readouterr().err
    assert not output.exists()


def test_a_camera_that_is_none_is_no_fault_of_the_photographs(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["extract", str(folder), "-o", str(tmp_path / "f.h5"), "--camera", "PINHOLE,1"]) == 1
    said = capsys.readouterr().err
    assert "takes 4 parameters" in said and "skipped" not in said
