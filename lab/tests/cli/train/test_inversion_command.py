"""From photographs to weights to pictures by two commands, and the sentence of the first one without torch."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from veil.cli import main
from veil.files.attack_networks import read_weights
from veil.files.photographs.pictures import read_rgb
from veil.inversion.maps import Frame
from veil.inversion.quality import quality
from veil.threads import cores
from worlds.documents import documented, keys
from worlds.edges import door_photographs
from worlds.releases import as_published
from worlds.schemas import validate


def run(*arguments: object) -> int:
    return main([str(argument) for argument in arguments])


def small(folder: Path, *numbers: int) -> Path:
    """Some of the bundled photographs, a third in size."""
    for path in door_photographs(folder, *numbers).iterdir():
        Image.open(path).reduce(3).save(path)
    return folder


def train(photographs: Path, out: Path, *more: object) -> int:
    options = ("--steps", 2, "--seed", 1, "--batch", 1, "--variants", 1, "--precision", "float32")
    return run("lab", "train", "inversion", photographs, "--output", out, *options, *more)


def test_without_torch_the_extra_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    for module in ("veil.inversion.network", "veil.inversion.network", "veil_lab.training.inversion_training"):
        monkeypatch.delitem(sys.modules, module, raising=False)
    photographs = small(tmp_path / "photos", 1)
    assert train(photographs, tmp_path / "w.npz", "--input", "raw") == 1
    assert "install veil[inversion]" in capsys.readouterr().err
    assert not (tmp_path / "w.npz.unfinished").exists()


def test_photographs_become_weights_and_weights_pictures(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The record against the file, printed numbers against the written pictures, the run's folder against its promise."""
    pytest.importorskip("torch", reason="inversion runs in PyTorch, the extra veil[inversion]")
    photographs, out = small(tmp_path / "photos", 1, 2), tmp_path / "raw.npz"
    assert train(photographs, out, "--input", "raw", "--license", "BSD", "--json", tmp_path / "t.json") == 0
    record, weights = json.loads((tmp_path / "t.json").read_text()), read_weights(out)
    validate("lab-train-inversion", record)
    assert record["sha256"] == weights.digest and record["bytes"] == out.stat().st_size < 15_000_000
    assert weights.training.steps == 2 and weights.training.photographs == 2 and weights.training.license == "BSD"
    assert "--seed 1" in weights.training.command and str(tmp_path) not in json.dumps(weights.header)
    assert keys(record) <= documented("veil lab train inversion")
    more = tmp_path / "more.npz"
    assert train(photographs, more, "--input", "raw", "--start", out, "--json", tmp_path / "m.json") == 0
    validate("lab-train-inversion", json.loads((tmp_path / "m.json").read_text()))
    assert read_weights(more).training.start == weights.digest and "--start raw.npz" in read_weights(more).training.command
    assert not (tmp_path / "raw.npz.unfinished").exists()

    folder = tmp_path / "inverted"
    command = ("invert", photographs, "--inverter", out, "-o", folder, "--json", tmp_path / "i.json")
    assert run(*command) == 0
    content = json.loads((tmp_path / "i.json").read_text())
    validate("invert", content)
    assert keys(content) <= documented("veil invert")
    for row, path in zip(content["pictures"], sorted(photographs.iterdir()), strict=True):
        original, drawn = read_rgb(path), np.asarray(Image.open(folder / f"{path.stem}.png"))
        frame = Frame(width=original.shape[1], height=original.shape[0])
        assert row["ssim"] == quality(frame.crop(original), drawn).ssim and row["features"] > 40
    assert "ssim" in capsys.readouterr().out


def test_training_takes_all_cores(tmp_path: Path) -> None:
    """Broken twin: the one thread that `settle` gives to numerical libraries, PyTorch's among them."""
    torch = pytest.importorskip("torch", reason="inversion runs in PyTorch, the extra veil[inversion]")
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(1)
        assert train(small(tmp_path / "photos", 1), tmp_path / "raw.npz", "--input", "raw") == 0
        assert torch.get_num_threads() == cores()
    finally:
        torch.set_num_threads(before)


def test_messages_are_inverted_by_weights_for_subspaces(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("torch", reason="inversion runs in PyTorch, the extra veil[inversion]")
    photographs, out = small(tmp_path / "photos", 1), tmp_path / "direct.npz"
    assert train(photographs, out, "--input", "subspaces", "--m", 2, 4) == 0
    assert read_weights(out).training.dims == (2, 4)
    features, plain, hard = tmp_path / "f.h5", tmp_path / "plain", tmp_path / "hardened"
    assert run("extract", photographs, "-o", features, "--max-features", 200) == 0
    as_published(features, plain, m=2)
    assert run("invert", plain, "--inverter", out, "-o", tmp_path / "pictures") == 0
    assert [path.suffix for path in (tmp_path / "pictures").iterdir()] == [".png"]
    capsys.readouterr()
    assert run("invert", features, "--inverter", out, "-o", tmp_path / "pictures") == 1
    assert "these weights invert subspaces, not raw" in capsys.readouterr().err
    assert run("privatize", features, "-o", hard, "--for", "map", "--allow-second-release") == 0
    assert run("invert", hard, "--inverter", out, "-o", tmp_path / "pictures") == 1
    assert "attack the release first" in capsys.readouterr().err


def test_a_broken_photograph_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Two photographs, so that worker processes read them."""
    pytest.importorskip("torch", reason="inversion runs in PyTorch, the extra veil[inversion]")
    photographs, out = small(tmp_path / "photos", 1, 2), tmp_path / "raw.npz"
    broken = sorted(photographs.iterdir())[1]
    broken.write_bytes(broken.read_bytes()[:2000])
    assert train(photographs, out, "--input", "raw") == 1
    said = capsys.readouterr().err
    assert f"veil: {broken} cannot be decoded as a photograph" in said and "_varied" not in said
    assert not out.exists() and (tmp_path / "raw.npz.unfinished" / "run.txt").exists()


def test_an_unfinished_run_is_not_mixed_with_another(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Left over: a folder as an interrupted run leaves it."""
    pytest.importorskip("torch", reason="inversion runs in PyTorch, the extra veil[inversion]")
    photographs, out = small(tmp_path / "photos", 1), tmp_path / "raw.npz"
    left = tmp_path / "raw.npz.unfinished"
    left.mkdir()
    (left / "run.txt").write_text("another run\n")
    assert train(photographs, out, "--input", "raw", "--resume") == 1
    assert "other photographs or options" in capsys.readouterr().err
    assert not out.exists() and (left / "run.txt").read_text() == "another run\n"
