"""`veil lab quality`: codebooks measured with photographs, their own and others."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import veil
from veil.cli import main
from veil.device.descriptor_books import build_codebook
from veil.files.codebooks import write_codebook
from veil.files.features import read_features, write_features
from worlds import codebook, generator
from worlds import features as made_up
from worlds.documents import documented, keys
from worlds.schemas import validate

IMAGES = 12


def run(*arguments: object) -> int:
    return main([*map(str, arguments)])


@pytest.fixture(scope="module")
def reference(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Features of a dozen made-up images; the last is the first one once more."""
    path = tmp_path_factory.mktemp("reference") / "reference.h5"
    images = [(f"{i:02d}", made_up(generator(f"image {i % 11}"), 60, name=f"image {i % 11}")) for i in range(IMAGES)]
    write_features(path, images)
    return path


@pytest.mark.slow
def test_quality_knows_the_books_own_photographs(reference: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Planted truth: a book whose words are the descriptors of two images has no error there, and says whose they are."""
    images = [item for _, item in read_features(reference)][:2]
    for name, items in (("own", images), ("strange", [made_up(generator("stranger"), 60, name="stranger")])):
        write_features(tmp_path / f"{name}.h5", [(str(i), item) for i, item in enumerate(items)])
    write_codebook(tmp_path / "b.npz", build_codebook(images, 120, method="hierarchical"))
    capsys.readouterr()
    records = {}
    for name in ("own", "strange"):
        figure = tmp_path / f"{name}.png"
        assert run("lab", "quality", tmp_path / "b.npz", tmp_path / f"{name}.h5", "--json", "-", "--figure", figure) == 0
        records[name] = json.loads(capsys.readouterr().out)
        validate("lab-quality", records[name])
        assert keys(records[name]) <= documented("veil lab quality")
        assert figure.read_bytes().startswith(b"\x89PNG")
    assert records["own"]["book_images"] == 2 and records["own"]["to_nearest_word"]["p95"] < 0.03
    assert records["strange"]["book_images"] == 0 and records["strange"]["to_nearest_word"]["p5"] > 0.1


@pytest.mark.slow
def test_quality_prints_the_assumptions(reference: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A row for each dimension and part of the words; the table tells what the record does."""
    write_codebook(tmp_path / "b.npz", build_codebook([item for _, item in read_features(reference)], 600, method="flat"))
    capsys.readouterr()
    assert run("lab", "quality", tmp_path / "b.npz", reference, "--m", 2, 4, "--json", tmp_path / "q.json") == 0
    said, record = capsys.readouterr().out, json.loads((tmp_path / "q.json").read_text())
    validate("lab-quality", record)
    assert keys(record) <= documented("veil lab quality")
    rows = record["assumptions"]
    assert [(row["m"], row["words"]) for row in rows] == [(2, 600), (2, 150), (4, 600), (4, 150)]
    for row in rows:
        assert 0 <= row["apart"] <= row["judged"] <= row["subspaces"]
        assert [one["nearest"] for one in row["matched"]] == [50, 20, 10, 5]
        cells = [str(row["m"]), str(row["words"]), *(f"{100 * one['share']:.2f}" for one in row["matched"])]
        assert [*cells, str(row["judged"]), str(row["apart"])] in [line.split()[:8] for line in said.splitlines()]
    assert run("lab", "quality", tmp_path / "b.npz", reference, "--m", 3) == 1
    assert "m must be even" in capsys.readouterr().err


@pytest.mark.parametrize(("name", "file"), [("bundled", "codebook-sift-l2"), ("decoys", "decoys-sift-l2")])
@pytest.mark.slow
def test_quality_of_bundled_books(name: str, file: str, reference: Path, tmp_path: Path) -> None:
    """Second method: the bundled file, given by its path."""
    path = Path(veil.__file__).parent / "data" / f"{file}.npz"
    for number, book in enumerate((name, path)):
        assert run("lab", "quality", book, reference, "--json", tmp_path / f"{number}.json") == 0
    assert (tmp_path / "0.json").read_text() == (tmp_path / "1.json").read_text()


def test_quality_wants_the_books_own_kind(reference: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from dataclasses import replace

    book = codebook(generator("kinds"), 40, 2)
    write_codebook(tmp_path / "other.npz", replace(book, descriptor="superpoint", pca=None, dither_steps=0.0))
    assert run("lab", "quality", tmp_path / "other.npz", reference) == 1
    assert "given where superpoint was asked for" in capsys.readouterr().err
    assert run("lab", "quality", tmp_path / "other.npz", tmp_path) == 1
    assert "veil cannot extract superpoint" in capsys.readouterr().err
