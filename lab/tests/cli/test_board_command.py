"""The board by command, on small copies of the bundled photographs."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from PIL import Image

from lab_worlds.planted_study_tables import planted_row
from veil.cli import main
from veil.files.photographs.examples import lund_door
from veil_lab.cli.board import named, scene_folders
from veil_lab.studies.board.rows import BoardScene, NotRun
from worlds.planted_tables import planted
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


def test_a_run_goes_on_where_it_stopped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Planted: a file of one measured scene and one that could not be. Only the second and a new one are tried again."""
    for name in ("door", "broken", "new"):
        (tmp_path / "data" / name / "images").mkdir(parents=True)
    asked = {"queries_every": 4, "forms": ["raw"], "attacked_features": 100, "photographs": 20, "seed": 0}
    door = planted(
        BoardScene, scene="door", reason="", rows=(planted_row(), replace(planted_row(), near=NotRun(reason="none")))
    )
    broken = BoardScene(scene="broken", reason="planted")
    stopped, whole = tmp_path / "stopped.json", tmp_path / "whole.json"
    stopped.write_text(json.dumps({**asked, "scenes": [door.as_json(), broken.as_json()]}))
    tried: list[str] = []

    def measured(study: object, name: str, *_: object) -> BoardScene:
        tried.append(name)
        return BoardScene(scene=name)

    monkeypatch.setattr("veil_lab.cli.board._scene", measured)
    command = ["lab", "board", str(tmp_path / "data"), "--forms", "raw", "--measured", str(stopped)]
    assert main([*command, "--json", str(whole)]) == 0
    assert tried == ["broken", "new"]
    assert [scene for scene in json.loads(whole.read_text())["scenes"] if scene["scene"] == "door"] == [door.as_json()]
    assert main([*command, "--seed", "1"]) != 0
    assert "seed: 0 in the file, 1 now" in capsys.readouterr().err
    stopped.write_text("{}")
    assert main(command) != 0
    assert "stopped.json is no JSON of `veil lab board`" in capsys.readouterr().err


def test_scenes_of_a_folder_are_told_apart(tmp_path: Path) -> None:
    """Planted folders: one scene, a folder of two of which one has its name, and one that is nothing."""
    for name in ("one", "all/one", "all/two", "nothing"):
        (tmp_path / name / ("" if name == "nothing" else "images")).mkdir(parents=True)
    folders = scene_folders([tmp_path / "one", tmp_path / "all", tmp_path / "one", tmp_path / "nothing"])
    assert folders == [tmp_path / name for name in ("one", "all/one", "all/two", "nothing")]
    assert [name for name, _ in named(folders)] == [f"{tmp_path.name}/one", "all/one", "two", "nothing"]
