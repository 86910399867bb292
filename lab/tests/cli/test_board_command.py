"""The board by command, on small copies of the bundled photographs."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from PIL import Image

from veil.cli import main
from veil.files.photographs.examples import lund_door
from veil_lab.cli.board import named, scene_folders
from worlds.recorded_steps import RecordedSteps
from worlds.schemas import validate


@pytest.mark.slow
@pytest.mark.usefixtures("unchecked")
def test_the_board_compares_forms_on_a_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Bounded on both sides: raw features localize the query; of words at epsilon 10 some are named, and not nearly all."""
    steps = RecordedSteps()
    monkeypatch.setattr("veil_lab.cli.board.StepBar", steps.bar)
    data = tmp_path / "data"
    (data / "door" / "images").mkdir(parents=True)
    (data / "empty" / "images").mkdir(parents=True)
    with lund_door() as example:
        for path in sorted(example.folder.glob("*.jpg"))[:7]:
            with Image.open(path) as picture:
                picture.resize((360, 360 * picture.height // picture.width)).save(data / "door" / "images" / path.name)
    asked = ("--forms", "raw", "words, epsilon 10", "--attacked-features", "10", "--queries-every", "3", "--photographs", "6")
    files = ("-o", tmp_path / "board.html", "--json", tmp_path / "board.json")
    assert main([str(argument) for argument in ("lab", "board", data, *asked, *files)]) == 0
    steps.require_time_left(last=0.5)
    record = json.loads((tmp_path / "board.json").read_text())
    validate("lab-board", record)
    door, empty = record["scenes"]
    assert (door["photographs"], door["mapped"], door["queries"], door["has_reference"]) == (6, 4, 2, False)
    assert empty["scene"] == "empty" and "no photographs" in empty["reason"] and not empty["rows"]
    colmap, raw, words = door["rows"]
    assert colmap["map"]["registered"] >= 3 and "not_run" in colmap["answers"]
    assert raw["map"]["registered"] == raw["map"]["by_raw"] >= 3 and raw["answers"]["localized"] >= 1
    assert raw["answers"]["wrong"] == 0 and raw["one_upload"] == {"not_run": "all descriptors are sent"}
    assert 0.05 < words["one_upload"]["named"] < 0.9 and words["upload_bytes"] < raw["upload_bytes"] / 5
    page, told = (tmp_path / "board.html").read_text(), capsys.readouterr().out
    for text in ("words, epsilon 10", "no photographs", "raw map of all photographs is taken"):
        assert text in page
    assert "door: 6 photographs, 4 of them mapped, 2 asked" in told


def test_scenes_of_a_folder_are_told_apart(tmp_path: Path) -> None:
    """Planted folders: one scene, a folder of two of which one has its name, and one that is nothing."""
    for name in ("one", "all/one", "all/two", "nothing"):
        (tmp_path / name / ("" if name == "nothing" else "images")).mkdir(parents=True)
    folders = scene_folders([tmp_path / "one", tmp_path / "all", tmp_path / "one", tmp_path / "nothing"])
    assert folders == [tmp_path / name for name in ("one", "all/one", "all/two", "nothing")]
    assert [name for name, _ in named(folders)] == [f"{tmp_path.name}/one", "all/one", "two", "nothing"]
