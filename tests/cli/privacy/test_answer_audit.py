"""`veil audit MAP --answers`: an object that was planted in a map, and one that stands nowhere, on whole command lines."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from veil.cli import main
from veil.files.maps.format import write_map
from veil.files.photographs.examples import lund_door
from worlds.map_scenes import planted_map
from worlds.planted_objects import planted_door
from worlds.schemas import validate


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder, door = tmp_path_factory.mktemp("answers"), planted_door()
    write_map(folder / "map", door.scene)
    for name, gray in {"present.png": door.present, "absent.png": door.absent}.items():
        Image.fromarray(gray).save(folder / name)
    return folder


@pytest.mark.slow
def test_a_planted_object_is_told_and_placed_until_the_guard(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Oracle: where the object was planted. Broken twin: the same map without the guard, which the record shows beside."""
    asked = [str(folder / name) for name in ("present.png", "absent.png")]
    assert main(["audit", str(folder / "map"), "--answers", *asked, "--json", str(folder / "answers.json")]) == 0
    record, truth = json.loads((folder / "answers.json").read_text()), planted_door().map_from_object
    validate("audit-answers", record)
    present, absent = record["objects"]
    assert present["object"] == "present.png" and present["views"] == 10
    assert present["present"] and present["agreeing"] >= 3 and not absent["present"]
    assert np.linalg.norm(np.array(present["center"]) - truth.translation) < 0.1 * truth.scale
    assert present["size"] == pytest.approx(truth.scale, rel=0.1)
    assert present["guarded"] == {"answered": 0, "agreeing": 0, "present": False}
    printed = capsys.readouterr().out
    assert "in the map by its answers: present.png" in printed and "the map is public" in printed


def test_what_cannot_be_asked_says_why(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Oracle: the sentences. Nothing is asked before all is known to be of use."""
    where, picture = str(folder / "map"), str(folder / "present.png")
    (tmp_path / "two").mkdir()
    with lund_door() as place:
        for name in sorted(place.poses)[:2]:
            (tmp_path / "two" / name).write_bytes((place.folder / name).read_bytes())
    write_map(tmp_path / "words", planted_map("answers", "words")[0])
    for arguments, told in (
        ([where, "--answers", str(tmp_path / "nothing.jpg")], "there is no file or folder"),
        ([where, "--answers", str(tmp_path / "two")], "an object needs 3 photographs or more from several sides, got 2"),
        ([picture, "--answers", picture], "present.png"),
        ([where, "--answers", picture, "--fail-on", "structural>5%"], "leave out --fail-on"),
        ([str(tmp_path / "words"), "--answers", picture], "the map holds words"),
    ):
        assert main(["audit", *arguments]) != 0
        assert told in capsys.readouterr().err, arguments
