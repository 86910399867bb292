"""`veil evaluate queries` on bundled photographs: its numbers, its figure, and what it says to wrong input."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import pytest

from veil.cli import main
from veil.files.photographs.examples import lund_door, other_place
from veil_lab.studies.localization.robustness import OutlierLevel
from worlds.documents import section
from worlds.edges import door_photographs
from worlds.schemas import validate


def run(*arguments: object) -> int:
    return main(["evaluate", "queries", *(str(argument) for argument in arguments)])


def door_scene(folder: Path, *numbers: int) -> Path:
    """Some of the bundled photographs as a scene with a COLMAP text model."""
    door_photographs(folder / "images", *numbers)
    with lund_door() as example:
        for name in ("cameras.txt", "images.txt"):
            shutil.copy(example.folder / name, folder)
    return folder


def keys(value: object) -> set[str]:
    if isinstance(value, dict):
        return set(value) | {key for item in value.values() for key in keys(item)}
    return {key for item in value for key in keys(item)} if isinstance(value, list) else set()


@pytest.mark.slow
@pytest.mark.usefixtures("unchecked")
def test_the_door_is_found_and_another_place_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Oracle: the bundled reference poses; the photograph of Berlin shows another place. Printed counts are the JSON's."""
    monkeypatch.setattr(
        "veil_lab.cli.evaluate.poses.queries.default_levels",
        lambda draws: (OutlierLevel(matches=60, wrong_share=0.25, draws=draws),),
    )
    scene = door_scene(tmp_path / "door", 3, 4, 5, 6)
    (tmp_path / "others").mkdir()
    with other_place() as path:
        shutil.copy(path, tmp_path / "others")
    small = ("--folds", 4, "--draws", 1, "--noise", 0, "--strain-draws", 1, "--max-features", 500, "--workers", 1)
    files = ("--json", tmp_path / "q.json", "--figure", tmp_path / "q.png")
    assert run(scene, "--strangers", tmp_path / "others", *small, *files) == 0
    written = json.loads((tmp_path / "q.json").read_text())
    validate("evaluate-queries", written)
    true = [item for item in written["verdicts"] if item["kind"] == "true"]
    assert len(true) == 4 * 5  # from points, and from four kinds of lines
    assert all(item["accepted"] and item["rotation_error_deg"] < 2 for item in true)
    false = [item for item in written["verdicts"] if item["kind"] != "true"]
    assert len(false) == 2 and not any(item["accepted"] for item in false)
    assert len(written["strained"]) == 4 * 5 and all(cell["count"] == 4 for cell in written["cells"])
    assert (tmp_path / "q.png").stat().st_size > 10_000
    printed = capsys.readouterr().out
    assert "true queries accepted from lines: 100.0 % of 16 (needed 99 %): met" in printed
    assert "false queries accepted from lines: 0 of 1" in printed and "too few to tell (needed 100)" in printed
    text = section("json.md", "veil evaluate queries")
    assert keys(written) <= set(re.findall(r'[`"]([a-z0-9_]+)[`"]', text))


@pytest.mark.slow
def test_wrong_input_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    scene = door_scene(tmp_path / "door", 3, 4, 5, 6)
    few = door_scene(tmp_path / "few", 3, 4, 5)
    door_photographs(tmp_path / "bare" / "images", 3, 4, 5, 6)
    (tmp_path / "empty").mkdir()
    for arguments, words in (
        ((scene, "--same-place", "door", "gate"), "--same-place names gate, but the scenes are door"),
        ((few,), "few has 3 photographs; leaving some out needs four or more"),
        ((tmp_path / "bare",), "bare has no reference cameras"),
        ((scene, scene), "same folder name"),
        ((tmp_path / "empty",), "is not a scene"),
        ((scene, "--strangers", tmp_path / "nowhere"), "nowhere"),
    ):
        assert run(*arguments) == 1, words
        said = capsys.readouterr().err
        assert said.startswith("veil: ") and words in said and "Traceback" not in said


@pytest.mark.slow
@pytest.mark.usefixtures("unchecked")
def test_forgeries_are_refused_and_their_true_counterparts_found(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Oracle: what each query was made of. Printed counts are the JSON's; the rest of the study is left out."""
    from functools import partial

    import veil_lab.cli.evaluate.poses.queries as module
    import veil_lab.studies.localization.forged_queries as pictures

    asked = {"poster of the place 0.5", "square 60 px", "true"}
    for name in ("_forged_pictures", "_true_pictures"):
        every = getattr(pictures, name)
        monkeypatch.setattr(pictures, name, lambda *given, of=every: (item for item in of(*given) if item[0] in asked))
    monkeypatch.setattr(pictures, "LAYOUTS", {kind: of for kind, of in pictures.LAYOUTS.items() if kind in asked})
    monkeypatch.setattr(module, "ForgedOptions", partial(module.ForgedOptions, iterations=2000, hold_out=4))
    scene = door_scene(tmp_path / "door", 3, 4, 5, 6)
    (tmp_path / "others").mkdir()
    with other_place() as path:
        shutil.copy(path, tmp_path / "others")
    small = ("--forged", 1, "--only-forged", "--max-features", 500, "--forged-features", 300)
    files = ("--json", tmp_path / "q.json", "--forged-figure", tmp_path / "q.png")
    assert run(scene, "--strangers", tmp_path / "others", *small, *files) == 0
    written = json.loads((tmp_path / "q.json").read_text())
    validate("evaluate-queries", written)
    false, true = ([item for item in written["forged"] if item["true"] == kind] for kind in (False, True))
    assert {item["kind"] for item in false} == {"poster of the place 0.5", "square 60 px"}
    assert not any(item["accepted"] for item in false) and all(item["reason"] for item in false)
    public = [item for item in true if item["form"] == "subspaces, public map"]
    assert len(public) == 1 and all(item["accepted"] and item["rotation_error_deg"] < 2 for item in public)
    assert (tmp_path / "q.png").stat().st_size > 10_000
    assert f"forged queries accepted 0 of {len(false)}" in capsys.readouterr().out
    text = section("json.md", "veil evaluate queries")
    assert keys(written) <= set(re.findall(r'[`"]([a-z0-9_]+)[`"]', text))


@pytest.mark.slow
def test_forgeries_need_strangers_and_a_number(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    scene = door_scene(tmp_path / "door", 3, 4, 5, 6)
    for arguments, words in (
        (("--only-forged",), "--only-forged needs --forged DRAWS"),
        (("--forged", 1, "--max-features", 100), "name a folder with --strangers"),
    ):
        assert run(scene, *arguments) == 1
        assert words in capsys.readouterr().err
