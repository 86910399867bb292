"""`veil evaluate repeats` by command on a bundled photograph."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from veil.cli import main
from veil.files.photographs.examples import other_place
from veil.files.photographs.pictures import read_rgb
from worlds.recorded_steps import RecordedSteps
from worlds.schemas import validate


@pytest.mark.slow
def test_the_study_prints_a_table(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Oracle: two frames recover more than two shots, and words of epsilon 5 less than either."""
    steps = RecordedSteps()
    monkeypatch.setattr("veil_lab.cli.evaluate.attacks.repeats.StepBar", steps.bar)
    folder = tmp_path / "photos"
    folder.mkdir()
    with other_place() as path:
        rgb = np.ascontiguousarray(read_rgb(path)[:400, :500])
    for place in range(3):
        Image.fromarray(rgb[:, place:]).save(folder / f"{place}.png")
    few = ("--photographs", "2", "--max-features", "150", "--json", str(tmp_path / "r.json"))
    assert main(["evaluate", "repeats", str(folder), *few]) == 0
    told = capsys.readouterr().out
    assert "2 photographs" in told and "5 shots" in told and "subspaces, lines" in told
    record = json.loads((tmp_path / "r.json").read_text())
    validate("evaluate-repeats", record)
    rows = {(row["form"], row["kind"], row["uploads"], row["unit"]): row for row in record["rows"]}
    assert len(rows) == len(record["rows"]) == 20 and all(row["photographs"] == 2 for row in record["rows"])
    frames, shots = (rows["subspaces", kind, 2, "descriptor"]["shares"] for kind in ("frame", "shot"))
    assert frames[0] > shots[0] > rows["words, epsilon 5", "frame", 2, "word"]["shares"][0]
    assert [item[1:] for item in steps.told] == [(number, 16) for number in range(16)]
