"""`veil evaluate retrieval` on bundled photographs."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from veil.cli import main
from veil.files.photographs.examples import lund_door, other_place
from worlds.schemas import validate


@pytest.mark.slow
def test_retrieval_is_evaluated_on_photographs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Planted: three photographs of a door overlap, and a photograph of another place is a stranger."""
    scene, strangers = tmp_path / "door", tmp_path / "strangers"
    for folder in (scene, strangers):
        folder.mkdir()
    with lund_door() as example:
        for name in sorted(example.poses)[:3]:
            shutil.copy(example.folder / name, scene)
    with other_place() as path:
        shutil.copy(path, strangers)
    out = tmp_path / "recall.json"
    command = ["evaluate", "retrieval", str(scene), "--strangers", str(strangers), "--max-features", "300", "--json", str(out)]
    assert main(command) == 0
    record = json.loads(out.read_text())
    validate("evaluate-retrieval", record)
    assert {(row["scene"], row["form"]) for row in record["rows"]} == {
        (s, f) for s in ("door", "") for f in ("raw", "subspaces", "tracks")
    }
    assert all(row["images"] == 4 and row["queries"] == 3 and row["recall"]["5"] == 1 for row in record["rows"])
    assert "subspaces" in capsys.readouterr().out


def test_scenes_of_one_name_or_one_photograph_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for folder in (tmp_path / "a" / "door", tmp_path / "b" / "door"):
        folder.mkdir(parents=True)
    assert main(["evaluate", "retrieval", str(tmp_path / "a" / "door"), str(tmp_path / "b" / "door")]) == 1
    assert "one name" in capsys.readouterr().err
