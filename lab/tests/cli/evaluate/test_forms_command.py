"""The study of forms by command, on the bundled photographs."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from veil.cli import main
from veil.files.photographs.examples import lund_door
from worlds.recorded_steps import RecordedSteps
from worlds.schemas import validate


@pytest.mark.slow
@pytest.mark.usefixtures("unchecked")
def test_the_tables_have_every_form_and_attack(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Bounded on both sides: raw features localize every photograph, and words at no epsilon worth the name are attacked."""
    steps = RecordedSteps()
    monkeypatch.setattr("veil_lab.cli.evaluate.attacks.forms.StepBar", steps.bar)
    forms = ("--forms", "raw", "subspaces", "words, epsilon 10, lines")
    few = ("--photographs", 1, "--others", 2, "--attacked-features", 12, "--max-seconds", 2, "--max-features", 800)
    files = ("--json", tmp_path / "f.json", "--markdown", tmp_path / "tables.markdown", "--record", tmp_path / "r.json")
    with lund_door() as example:
        place = tmp_path / "door"
        place.mkdir()
        (place / "images").symlink_to(example.folder)
        for name in ("cameras.txt", "images.txt", "points3D.txt"):
            (place / name).symlink_to(example.folder / name)
        arguments = ["evaluate", "forms", place, *forms, *few, *files]
        assert main([str(argument) for argument in arguments]) == 0
    assert [item[1:] for item in steps.told] == [(number, 7) for number in range(7)]  # raw 1, the others 3 each
    record = json.loads((tmp_path / "f.json").read_text())
    validate("evaluate-forms", record)
    raw, subspaces, words = record["rows"]
    assert raw["localized"] == raw["queries"] == 4 and raw["one_upload"] == []
    assert subspaces["localized"] >= 3 and subspaces["epsilon_image"] is None and words["epsilon_image"] > 100
    by_name = {item["attack"]: item for item in subspaces["several_uploads"]}
    assert by_name["matched views"]["details"]["views"] >= 1 and by_name["modes"]["features"] > 0
    written = json.loads((tmp_path / "r.json").read_text())
    validate("evaluate-forms-record", written)
    assert [item["form"] for item in written["forms"]] == [item["form"] for item in record["rows"]]
    table = (tmp_path / "tables.markdown").read_text()
    assert "| matched views | 3 |" in table and "words, epsilon 10, lines" in table
