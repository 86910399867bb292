"""Training of what attacks learn, and the study of it, by command on bundled photographs."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import veil
from veil.cli import main
from veil.errors import FileFormatError
from veil.features import Features
from veil.files.attack_networks import bundled_learned_model, read_learned_model, write_learned_model
from veil.files.codebooks import bundled_codebook
from veil.files.photographs.examples import lund_door
from veil_lab.files.trainings import read_training_state
from worlds import unit
from worlds.recorded_steps import RecordedSteps
from worlds.schemas import validate


def run(*arguments: object) -> int:
    return main([str(argument) for argument in arguments])


def with_torch() -> None:
    pytest.importorskip("torch", reason="context is trained in PyTorch, the extra veil-lab[training]")


def small(door: dict[str, Features], count: int) -> list[tuple[str, Features]]:
    """The first photographs with so few features that searching their modes takes no time."""
    random = np.random.default_rng(0)
    return [(name, item.drawn(40, random)) for name, item in list(door.items())[:count]]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory, door: dict[str, Features]) -> Path:
    """Networks of a training that is far too short."""
    with_torch()
    folder = tmp_path_factory.mktemp("model")
    veil.write_features(folder / "f.h5", small(door, 3))
    few = ("--steps", 2, "--context-steps", 2, "--context-releases", 2, "--whole-steps", 2)
    assert (
        run("lab", "train", "attacks", folder / "f.h5", "-o", folder / "model.npz", *few, "--json", folder / "train.json") == 0
    )
    record = json.loads((folder / "train.json").read_text())
    validate("lab-train-attacks", record)
    assert record["photographs"] == 3 and not (folder / "model.npz.part").exists()
    return folder / "model.npz"


@pytest.mark.slow
def test_networks_are_written_read_and_refused(model: Path, tmp_path: Path) -> None:
    """Inverse pair, up to half precision; then damage of several kinds."""
    learned = read_learned_model(model)
    assert learned.whole is not None and learned.whole.source.endswith("2 releases, 2 steps, seed 0")
    write_learned_model(tmp_path / "again.npz", learned)
    again = read_learned_model(tmp_path / "again.npz")
    assert all(np.array_equal(a, b) for a, b in zip(learned.density.weights, again.density.weights, strict=True))
    assert again.space == learned.space == bundled_learned_model().space
    whole = model.read_bytes()
    for name, data in (("cut", whole[: len(whole) // 2]), ("empty", b""), ("text", b"networks")):
        (tmp_path / name).write_bytes(data)
        with pytest.raises(FileFormatError):
            read_learned_model(tmp_path / name)
    with pytest.raises(FileFormatError, match="make the networks of attacks"):
        read_learned_model(tmp_path / "missing.npz")
    with np.load(model) as stored:
        arrays = dict(stored)
    for name in ("density_w0", "context_pair", "context_style_w1"):
        broken = arrays | {name: np.full_like(arrays[name], np.nan)}
        np.savez(tmp_path / "nan.npz", **broken)
        with pytest.raises(FileFormatError, match="finite"):
            read_learned_model(tmp_path / "nan.npz")


@pytest.mark.slow
def test_networks_are_trained_for_the_bundled_codebook_of_aliked(
    tmp_path: Path, door: dict[str, Features], capsys: pytest.CaptureFixture[str]
) -> None:
    """Signed descriptors, planted: the networks are for the space of ALIKED's default releases, and not for SIFT's."""
    with_torch()
    space = bundled_codebook("aliked-n16rot").raw_space
    images = {}
    for name, item in small(door, 3):
        descriptors = unit(item.descriptors - 40.0).astype(np.float32)
        images[name] = replace(item, descriptors=descriptors, space=space)
    veil.write_features(tmp_path / "a.h5", list(images.items()))
    few = ("--steps", 1, "--context-steps", 1, "--context-releases", 1)
    assert run("lab", "train", "attacks", tmp_path / "a.h5", "-o", tmp_path / "a.npz", *few) == 0
    hardened = bundled_codebook("aliked-n16rot").compression.hardened_space
    assert read_learned_model(tmp_path / "a.npz").space == hardened != bundled_learned_model().space
    veil.write_features(tmp_path / "s.h5", list(door.items())[:1])
    assert run("lab", "train", "attacks", tmp_path / "a.h5", tmp_path / "s.h5", "-o", tmp_path / "b.npz", *few) == 1
    assert "and a photograph has [sift L2 128-D]" in capsys.readouterr().err


@pytest.mark.slow
def test_an_audit_tells_that_networks_have_seen_the_photograph(model: Path, tmp_path: Path, door: dict[str, Features]) -> None:
    """The first photograph was in the training; the fourth was not."""
    for place, seen in ((0, True), (3, False)):
        veil.write_features(tmp_path / f"{place}.h5", list(door.items())[place : place + 1])
        assert run("privatize", tmp_path / f"{place}.h5", "-o", tmp_path / f"up{place}", "--for", "map") == 0
        options = (
            "--only",
            "modes",
            "--attacked-features",
            4,
            "--attack-model",
            model,
            "--pictures",
            0,
            "-o",
            tmp_path / "a.html",
        )
        record = tmp_path / "a.json"
        images = ("--images", tmp_path / f"{place}.h5")
        assert run("audit", tmp_path / f"up{place}", *images, *options, "--json", record) == 0
        said = json.loads(record.read_text())["verdict"]["sentences"]
        assert any("were trained on 1 of the photographs" in line for line in said) == seen


@pytest.mark.slow
def test_the_study_prints_a_table(
    model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Null: networks that learned nothing are no better than the nearest entry."""
    steps = RecordedSteps()
    monkeypatch.setattr("veil_lab.cli.evaluate.attacks.learned.StepBar", steps.bar)
    with lund_door() as example:
        chosen = (
            "--photographs",
            2,
            "--attacked-features",
            3,
            "--max-features",
            100,
            "--as-privatize",
            "--skip",
            5,
            "--every",
            2,
        )
        assert run("evaluate", "learned", example.folder, *chosen, "--attack-model", model, "--json", tmp_path / "l.json") == 0
        # Those that the networks were trained on are no test of them.
        assert (
            run("evaluate", "learned", example.folder, "--photographs", 1, "--max-features", 100, "--attack-model", model) == 1
        )
    assert [item[1:] for item in steps.told] == [(number, 4) for number in range(4)]
    told = capsys.readouterr()
    assert "the networks were trained on" in told.err and "context, subs" in told.out
    record = json.loads((tmp_path / "l.json").read_text())
    validate("evaluate-learned", record)
    by_name = {row["attack"]: row for row in record["rows"]}
    assert (
        by_name["modes"]["features"] == 6 and by_name["modes"]["shares"][0] <= by_name["nearest, projected"]["shares"][0] + 0.1
    )


@pytest.mark.slow
def test_an_interrupted_training_goes_on(tmp_path: Path, door: dict[str, Features], monkeypatch: pytest.MonkeyPatch) -> None:
    with_torch()
    from veil_lab.cli.train import attacks
    from veil_lab.training import context_training
    from veil_lab.training.density_training import DensityTraining

    monkeypatch.setattr(attacks, "KEPT_EVERY", 1)

    def stopped(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    veil.write_features(tmp_path / "f.h5", small(door, 3))
    steps = ("--steps", 3, "--context-steps", 1, "--context-releases", 1)
    with monkeypatch.context() as patch:
        patch.setattr(context_training, "train_context", stopped)
        with pytest.raises(KeyboardInterrupt):
            attacks_train = ["lab", "train", "attacks", str(tmp_path / "f.h5"), "-o", str(tmp_path / "m.npz"), *map(str, steps)]
            from veil.cli import _parser

            arguments = _parser(attacks_train).parse_args(attacks_train)
            arguments.run(arguments)
    state = read_training_state(tmp_path / "m.npz.part", DensityTraining(steps=3))
    assert state is not None and state.step == 3
    assert run("lab", "train", "attacks", tmp_path / "f.h5", "-o", tmp_path / "m.npz", *steps, "--resume") == 0
    assert (tmp_path / "m.npz").is_file() and not (tmp_path / "m.npz.part").exists()


def test_without_torch_it_says_what_to_install_before_any_work(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Planted: no torch, and photographs that are not there, which are asked for later."""
    import sys

    monkeypatch.setitem(sys.modules, "torch", None)
    for name in ("simulated_releases", "context_training"):
        monkeypatch.delitem(sys.modules, f"veil_lab.training.{name}", raising=False)
    assert run("lab", "train", "attacks", tmp_path / "missing", "-o", tmp_path / "m.npz") == 1
    assert "install veil-lab[training]" in capsys.readouterr().err
    own = ("evaluate", "attacks", tmp_path / "missing", "--attacker", tmp_path / "missing", "--descriptor", "sift")
    assert run(*own, "--learn", 3) == 1
    assert "install veil-lab[training]" in capsys.readouterr().err
