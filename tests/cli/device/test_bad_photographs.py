"""One bad photograph takes nothing from the others: it is skipped and named, and --strict refuses."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from PIL import Image

from veil.cli import main
from veil.client import Client
from veil.device.protection import Protection
from veil.features import Features
from veil.files.codebooks import read_codebook
from veil.files.features import read_features
from worlds import generator


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Two with texture, one that is blank, one that was cut off, and one that is text."""
    path = tmp_path / "photos"
    path.mkdir()
    for name in ("a.png", "b.png"):
        pixels = generator(f"bad photographs {name}").integers(0, 256, (12, 16, 3), dtype="uint8")
        Image.fromarray(pixels).resize((160, 120), Image.Resampling.BICUBIC).save(path / name)
    Image.new("RGB", (160, 120), "white").save(path / "blank.png")
    (path / "cut.png").write_bytes((path / "a.png").read_bytes()[:2000])
    (path / "text\x1b[2J.jpg").write_text("no picture")
    return path


def test_extraction_skips_and_names_them(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    output, record = tmp_path / "f.h5", tmp_path / "f.json"
    assert main(["extract", str(folder), "-o", str(output), "--json", str(record)]) == 0
    assert [name for name, _ in read_features(output)] == ["a.png", "b.png"]
    told = json.loads(record.read_text())["skipped"]
    assert set(told) == {"blank.png", "cut.png", "text\x1b[2J.jpg"}
    said = capsys.readouterr().err
    assert "skipped cut.png: " in said and "skipped text\\x1b[2J.jpg: " in said and "\x1b" not in said
    assert "cannot be decoded as a photograph" in told["cut.png"]


def test_strict_refuses_before_anything_is_written(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    output = tmp_path / "f.h5"
    assert main(["extract", str(folder), "-o", str(output), "--strict"]) == 1
    assert "blank.png" in capsys.readouterr().err and not output.exists()


def test_nothing_is_left_to_extract(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A single photograph is all that was asked for; of several bad ones the first says why."""
    output = tmp_path / "f.h5"
    assert main(["extract", str(folder / "cut.png"), "-o", str(output)]) == 1
    assert "cut.png cannot be decoded" in capsys.readouterr().err
    assert main(["extract", str(folder / "cut.png"), str(folder / "blank.png"), "-o", str(output)]) == 1
    assert "none of the 2 images can be used; cut.png" in capsys.readouterr().err
    assert not output.exists()


def test_a_camera_that_is_none_is_no_fault_of_the_photographs(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["extract", str(folder), "-o", str(tmp_path / "f.h5"), "--camera", "PINHOLE,1"]) == 1
    said = capsys.readouterr().err
    assert "takes 4 parameters" in said and "skipped" not in said


def test_words_are_made_of_the_others(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Oracle: the digest of the book that the usable photographs alone give."""
    (folder / "phone.heic").write_bytes(b"\0\0\0\x18ftypheic" + bytes(99))
    assert main(["codebook", "build", str(folder), "-o", str(tmp_path / "all.npz"), "--decoy-pool"]) == 0
    said = capsys.readouterr().err
    assert "cut.png: " in said and "passed over 1 file" in said and "HEIC" in said
    alone = [str(folder / name) for name in ("a.png", "b.png")]
    assert main(["codebook", "build", *alone, "-o", str(tmp_path / "alone.npz"), "--decoy-pool"]) == 0
    assert read_codebook(tmp_path / "all.npz").digest == read_codebook(tmp_path / "alone.npz").digest


def test_pictures_are_drawn_of_the_others(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Pictures are named by their paths, so that those of two folders do not replace each other."""
    (folder / "left").mkdir()
    (folder / "left" / "a.png").write_bytes((folder / "b.png").read_bytes())
    (folder / "video.mp4").write_bytes(bytes(99))
    output, record = tmp_path / "drawn", tmp_path / "drawn.json"
    assert main(["invert", str(folder), "-o", str(output), "--json", str(record)]) == 0
    assert {path.name for path in output.iterdir()} == {"a.png", "b.png", "left_a.png"}
    told = json.loads(record.read_text())
    assert {row["name"] for row in told["pictures"]} == {"a", "b", "left/a"}
    assert {Path(name).name for name in told["skipped"]} == {"blank.png", "cut.png", "text\x1b[2J.jpg"}
    said = capsys.readouterr().err
    assert "1 video" in said and "\x1b" not in said
    (folder / "a.jpg").write_bytes((folder / "a.png").read_bytes())
    assert main(["invert", str(folder), "-o", str(tmp_path / "two")]) == 1
    assert "two pictures would be written to" in capsys.readouterr().err


def test_the_others_are_sent(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Broken twin: an error after the photographs before it were sent, and none behind it."""
    sent: list[str] = []

    def contribute(self: Client, where: str, features: Features, protection: Protection, *, name: str, **_: object) -> None:
        sent.append(name)

    monkeypatch.setattr(Client, "contribute", contribute)
    monkeypatch.setenv("VEIL_SERVER", "http://127.0.0.1:9")
    monkeypatch.setenv("VEIL_TOKEN", "x")
    given = ["client", "contribute", str(folder), "--map", f"m{'0' * 16}", "--json", str(tmp_path / "sent.json")]
    assert main(given) == 0 and sent == ["a.png", "b.png"]
    told = json.loads((tmp_path / "sent.json").read_text())
    assert [row["name"] for row in told["contributions"]] == sent
    assert set(told["skipped"]) == {"blank.png", "cut.png", "text\x1b[2J.jpg"}
    assert "skipped cut.png" in capsys.readouterr().err
    assert main(["client", "contribute", str(folder / "cut.png"), "--map", f"m{'0' * 16}"]) == 1
    assert main([*given, "--camera", "PINHOLE,1"]) == 1 and sent == ["a.png", "b.png"]
