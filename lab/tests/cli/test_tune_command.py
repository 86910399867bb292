"""`veil lab tune`: constants of attacks from folders of photographs, handed over with the networks."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from veil.attacks.distribution.same_photograph import PhotographModel
from veil.attacks.matches.view_weights import ViewWeights
from veil.cli import main
from veil.files.attack_networks import read_learned_model
from veil.files.photographs.examples import lund_door
from veil_lab.training.view_tuning import TuningOptions, attacked_photographs
from worlds.documents import documented, keys
from worlds.schemas import validate


def run(*arguments: object) -> int:
    return main([*map(str, arguments)])


def test_attacked_photographs_are_even_and_lie_beside_their_others() -> None:
    """By hand."""
    names = list("abcdefg")
    options = TuningOptions(photographs=3, others=2)
    assert attacked_photographs(names, options) == {"a": ["b", "c"], "d": ["c", "e"], "g": ["f", "e"]}
    assert attacked_photographs(["a", "b"], options) == {"a": ["b"], "b": ["a"]}


@pytest.mark.slow
def test_places_tune_a_model_that_an_audit_reads(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Two places are parts of one walk, so that the weights of one serve the other. Each has a pair of neighbors."""
    with lund_door() as example:
        photographs = sorted(example.folder.glob("*.jpg"))
        for place, part in (("left", photographs[:2]), ("right", photographs[-2:])):
            (tmp_path / place).mkdir()
            for path in part:
                shutil.copy(path, tmp_path / place)
    few = ("--photographs", 1, "--others", 1, "--attacked-features", 40, "--max-features", 600)
    files = ("-o", tmp_path / "tuned.npz", "--json", tmp_path / "t.json", "--figure", tmp_path / "t.png")
    assert run("lab", "tune", tmp_path / "left", tmp_path / "right", *files, *few) == 0
    record = json.loads((tmp_path / "t.json").read_text())
    validate("lab-tune", record)
    assert keys(record) <= documented("veil lab tune")
    model = read_learned_model(tmp_path / "tuned.npz")
    assert model.views.as_json() == record["weights"] and model.views != ViewWeights()
    assert model.photograph is not None
    assert model.photograph.sharpness == record["same_photograph"]["sharpness"] != PhotographModel.sharpness
    assert record["same_photograph"]["standard_error"] >= 0
    assert [place["photographs"] for place in record["places"]] == [1, 1]
    alone = [place["same_photograph"] for place in record["places"]]
    assert all(place["cross_entropy"] > 0 for place in alone)
    # What one place is tried with is fitted to the other: two lie on two sides of what both together make likeliest.
    least, most = sorted(place["sharpness"] for place in alone)
    assert least <= model.photograph.sharpness <= most
    assert all(place["positions"][2] > 0.3 for place in record["places"])
    printed = capsys.readouterr().out
    assert (tmp_path / "t.png").stat().st_size > 10_000
    assert all(word in printed for word in ("verified.slope", "same photograph", "nats"))


@pytest.mark.slow
def test_one_place_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with lund_door() as example:
        chosen = ("--photographs", 1, "--others", 1, "--max-features", 100)
        assert run("lab", "tune", example.folder, "-o", tmp_path / "t.npz", *chosen) == 1
    assert "two places or more" in capsys.readouterr().err and not (tmp_path / "t.npz").exists()
