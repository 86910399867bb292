"""The study of forms by command, on the bundled photographs."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from veil.cli import main
from veil.files.photographs.examples import lund_door
from worlds.edges import door_photographs
from worlds.recorded_steps import RecordedSteps
from worlds.schemas import validate


@pytest.mark.slow
@pytest.mark.usefixtures("unchecked")
def test_the_tables_have_every_form_and_attack(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Bounded on both sides: raw features localize every photograph, and words at no epsilon worth the name are attacked."""
    steps = RecordedSteps()
    monkeypatch.setattr("veil_lab.cli.evaluate.attacks.forms.StepBar", steps.bar)
    forms = ("--forms", "raw", "subspaces", "words, epsilon 10, lines")
    few = ("--photographs", 1, "--others", 2, "--attacked-features", 10, "--max-seconds", 1, "--max-features", 600)
    files = ("--json", tmp_path / "f.json", "--markdown", tmp_path / "tables.markdown", "--record", tmp_path / "r.json")
    place = tmp_path / "door"
    door_photographs(place / "images", 1, 2, 3, 4, 5, 6)
    with lund_door() as example:
        for name in ("cameras.txt", "images.txt"):
            shutil.copy(example.folder / name, place)
    assert main([str(argument) for argument in ("evaluate", "forms", place, *forms, *few, *files)]) == 0
    assert [item[1:] for item in steps.told] == [(number, 7) for number in range(7)]  # raw 1, the others 3 each
    record = json.loads((tmp_path / "f.json").read_text())
    validate("evaluate-forms", record)
    raw, subspaces, words = record["rows"]
    assert raw["localized"] == raw["queries"] == 2 and raw["one_upload"] == []
    assert subspaces["localized"] >= 1 and subspaces["epsilon_image"] is None and words["epsilon_image"] > 100
    by_name = {item["attack"]: item for item in subspaces["several_uploads"]}
    assert by_name["matched views"]["details"]["views"] >= 1 and by_name["modes"]["features"] > 0
    written = json.loads((tmp_path / "r.json").read_text())
    validate("evaluate-forms-record", written)
    assert [item["form"] for item in written["forms"]] == [item["form"] for item in record["rows"]]
    table = (tmp_path / "tables.markdown").read_text()
    assert "| matched views | 3 |" in table and "words, epsilon 10, lines" in table
