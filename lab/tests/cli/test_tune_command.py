"""`veil lab tune`: constants of attacks from folders of photographs, handed over with the networks."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from veil.attacks.distribution.same_photograph import PhotographModel
from veil.attacks.matches.view_weights import ViewWeights
from veil.cli import main
from veil.errors import InputError
from veil.files.attack_networks import bundled_learned_model, read_learned_model, write_learned_model
from veil.files.photographs.examples import lund_door
from veil.files.photographs.pictures import read_picture
from veil_lab.training.view_tuning import TuningOptions, attacked_photographs, law_of
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


@pytest.mark.slow
def test_photographs_that_the_networks_have_seen_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Broken twin: the same networks, whose training names the digest of one of the photographs."""
    model = bundled_learned_model()
    with lund_door() as example:
        first = sorted(example.folder.glob("*.jpg"))[0]
        seen = replace(model.training, image_digests=(read_picture(first).digest[:8].hex(),))
        write_learned_model(tmp_path / "seen.npz", replace(model, training=seen))
        few = ("--photographs", 1, "--others", 1, "--max-features", 100)
        files = ("-o", tmp_path / "t.npz", "--attack-model", tmp_path / "seen.npz")
        assert run("lab", "tune", example.folder, example.folder, *files, *few) == 1
    error = capsys.readouterr().err
    assert "trained on" in error and first.name in error and not (tmp_path / "t.npz").exists()


def test_networks_without_a_law_of_photographs_are_refused() -> None:
    with pytest.raises(InputError, match="without a law of photographs; train them again"):
        law_of(replace(bundled_learned_model(), photograph=None))
