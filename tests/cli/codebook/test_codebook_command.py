"""`veil codebook build`: from photographs or features, with some held out, and told to people and machines."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from veil.cli import main
from veil.cli.codebook import build
from veil.codebooks import kmeans
from veil.codebooks.kmeans import spherical_kmeans, unit_rows
from veil.files.codebooks import read_codebook, saved_shards
from veil.files.features import read_features, write_features
from worlds import features as made_up
from worlds import generator
from worlds.documents import documented, keys
from worlds.edges import door_photographs
from worlds.schemas import validate

IMAGES = 12


def run(*arguments: object) -> int:
    return main(["codebook", *map(str, arguments)])


@pytest.fixture(scope="module")
def reference(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Features of a dozen made-up images; the last is the first one once more."""
    path = tmp_path_factory.mktemp("reference") / "reference.h5"
    images = [(f"{i:02d}", made_up(generator(f"image {i % 11}"), 60, name=f"image {i % 11}")) for i in range(IMAGES)]
    write_features(path, images)
    return path


def digests(path: Path) -> list[str]:
    return [item.image_digest[:8].hex() for _, item in read_features(path)]


@pytest.mark.slow
def test_photographs_and_their_features_make_the_same_book(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Second method: extraction in between, written and read. The digests of the pictures are stored either way."""
    photographs = door_photographs(tmp_path / "photos", 2, 6)
    assert main(["extract", str(photographs), "-o", str(tmp_path / "f.h5")]) == 0
    monkeypatch.setattr(build, "ITERATIONS", 2)
    for method, flat in (("flat", 300), ("hierarchical", 299)):
        monkeypatch.setattr(kmeans, "FLAT_WORDS", flat)
        for name, source in (("photos", photographs), ("features", tmp_path / "f.h5")):
            assert run("build", source, "-o", tmp_path / f"{method}-{name}.npz", "--word-count", 300) == 0
        one, other = (read_codebook(tmp_path / f"{method}-{name}.npz") for name in ("photos", "features"))
        assert one.digest == other.digest and len(one) == len(np.unique(one.stored, axis=0)) == 300
        assert list(one.provenance.image_digests) == digests(tmp_path / "f.h5")


def test_old_commands_make_old_books(reference: Path, tmp_path: Path) -> None:
    """Second method: all descriptors clustered flat, scaled by their largest number, shuffled; no photograph held out."""
    assert run("build", reference, "-o", tmp_path / "b.npz", "--word-count", 64, "--seed", 5) == 0
    book = read_codebook(tmp_path / "b.npz")
    rows = np.concatenate([item.descriptors for _, item in read_features(reference)])
    random = np.random.default_rng(5)
    last = list(spherical_kmeans(unit_rows(rows[random.permutation(len(rows))]), 64, iterations=15, seed=5))[-1]
    expected = np.clip(np.round(last * (255.0 / last.max())), 0, 255).astype(np.uint8)
    np.testing.assert_array_equal(book.stored, expected[np.random.default_rng(5).permutation(64)])
    assert list(book.provenance.image_digests) == digests(reference) and book.provenance.descriptor_count == IMAGES * 60


def test_photographs_that_are_held_out_leave_no_trace(
    reference: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Planted truth: every fourth image, but not the twelfth, which is the first one once more."""
    monkeypatch.setattr(build, "HOLDOUT", 4)
    monkeypatch.setattr(kmeans, "FLAT_WORDS", 63)
    arguments = ("--word-count", 64, "--json", "-")
    assert run("build", reference, "-o", tmp_path / "b.npz", *arguments) == 0
    said = capsys.readouterr()
    record = json.loads(said.out)
    validate("codebook-build", record)
    assert keys(record) <= documented("veil codebook build") | documented("veil lab quality")
    assert (record["images"], record["held_out"], record["method"]) == (10, 2, "hierarchical")
    assert (record["quality"]["images"], record["quality"]["book_images"], record["quality"]["descriptors"]) == (2, 0, 120)
    every = digests(reference)
    assert every[11] == every[0]
    stored = read_codebook(tmp_path / "b.npz").provenance.image_digests
    assert list(stored) == [digest for index, digest in enumerate(every) if index not in (3, 7)]
    assert "to the nearest word" in said.err and "warning: the codebook tells of the photographs" in said.err
    assert "too small" not in said.err


def test_what_is_held_out(
    reference: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every tenth image for the hierarchical method; the flat one measures with its own photographs and says so."""
    for method, flat, held, own in (("hierarchical", 63, 1, 0), ("flat", 64, 0, 12)):
        monkeypatch.setattr(kmeans, "FLAT_WORDS", flat)
        arguments = ("-o", tmp_path / "b.npz", "--word-count", 64, "--json", tmp_path / "b.json")
        assert run("build", reference, *arguments) == 0
        record = json.loads((tmp_path / "b.json").read_text())
        validate("codebook-build", record)
        assert (record["method"], record["held_out"], record["quality"]["book_images"]) == (method, held, own)
        assert ("all of these photographs are among those" in capsys.readouterr().out) == (own > 0)
        assert record["sha256"] == read_codebook(tmp_path / "b.npz").digest


@pytest.mark.slow
@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        (["{h5}", "--word-count", "721"], "720 descriptors cannot give 721 words"),
        (["{h5}", "--decoy-pool", "--workers", "2"], "a decoy pool holds descriptors as they are"),
        (["{h5}", "--decoy-pool", "--engine", "dask"], "a decoy pool holds descriptors as they are"),
        (["{h5}", "--word-count", "64", "--normalization", "L1_ROOT"], "given where L1_ROOT was asked for"),
        (["{h5}", "--word-count", "64", "--descriptor", "hardtfeat"], "given where hardtfeat was asked for"),
        (["{tmp}/nowhere.h5", "--word-count", "64"], "there is no features file"),
        (["{h5}", "{tmp}/root.h5", "--word-count", "64"], "cannot make one codebook"),
    ],
)
def test_the_remedy_is_named(
    reference: Path, tmp_path: Path, wrong: list[str], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    import re
    from dataclasses import replace

    other = made_up(generator("root"), 60, name="root")
    write_features(tmp_path / "root.h5", [("0", replace(other, space=replace(other.space, normalization="L1_ROOT")))])
    assert run("build", *(part.format(h5=reference, tmp=tmp_path) for part in wrong), "-o", tmp_path / "b.npz") == 1
    assert re.search(words, capsys.readouterr().err)
    assert not (tmp_path / "b.npz").exists()


@pytest.mark.slow
def test_shards_on_two_processes_make_the_book_of_one(reference: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Second method: the same command in one process. Nothing but the books is left behind."""
    monkeypatch.setattr(build, "saved_shards", partial(saved_shards, rows=100))  # several, of this small sample
    monkeypatch.setattr(build, "ITERATIONS", 2)
    words = ("--word-count", 64)
    for workers in (1, 2):
        told = ("--json", tmp_path / "b.json", "--workers", workers)
        assert run("build", reference, "-o", tmp_path / f"{workers}.npz", *words, *told) == 0
    one, two = (read_codebook(tmp_path / f"{workers}.npz") for workers in (1, 2))
    assert one.digest == two.digest
    assert len(np.unique(one.stored, axis=0)) == 64
    record = json.loads((tmp_path / "b.json").read_text())
    validate("codebook-build", record)
    assert record["method"] == "sharded"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["1.npz", "2.npz", "b.json"]
