"""Codebooks on disk: what is read is what was written, or nothing is."""

from __future__ import annotations

import io
import json
import pickle
import zipfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from veil.codebooks.codebook import Codebook
from veil.errors import FileFormatError
from veil.files.codebooks import bundled_codebook, bundled_decoys, read_codebook, write_codebook
from worlds import codebook, generator
from worlds.edges import flipped, outcome, truncated

BOOK = codebook(generator("disk"), 60, 3)


def parts(path: Path) -> dict[str, np.ndarray]:
    with np.load(path) as arrays:
        return dict(arrays)


def saved(path: Path, arrays: dict[str, np.ndarray]) -> Path:
    np.savez(path, **arrays)  # type: ignore[arg-type]
    return path


def with_header(arrays: dict[str, np.ndarray], text: str) -> dict[str, np.ndarray]:
    return arrays | {"header": np.frombuffer(text.encode(), dtype=np.uint8)}


@pytest.fixture
def good(tmp_path: Path) -> dict[str, np.ndarray]:
    provenance = replace(BOOK.provenance, image_digests=("0123456789abcdef",))
    write_codebook(tmp_path / "good.npz", replace(BOOK, provenance=provenance))
    return parts(tmp_path / "good.npz")


def test_everything_comes_back(tmp_path: Path) -> None:
    """Inverse pair, with provenance; a codebook of floats too."""
    provenance = replace(BOOK.provenance, source="Münster ✓", license="CC0-1.0", image_digests=("00" * 8, "0123456789abcdef"))
    floats = (BOOK.vectors * np.float32(3)).astype(np.float32)
    for book in (replace(BOOK, provenance=provenance), replace(BOOK, stored=floats, descriptor="hardtfeat")):
        write_codebook(tmp_path / "b.npz", book)
        got = read_codebook(tmp_path / "b.npz")
        assert got.provenance == book.provenance and got.digest == book.digest
        assert got.compression.hardened_space == book.compression.hardened_space and got.raw_space == book.raw_space
        np.testing.assert_array_equal(got.stored, book.stored)
        assert got.stored.dtype == book.stored.dtype


def test_compressed_books_of_before_are_read_and_each_array_once(
    tmp_path: Path, good: dict, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Planted file in the old writer's form, whose every access inflates: the words of a large book take seconds."""
    np.savez_compressed(tmp_path / "old.npz", **good)
    assert (tmp_path / "old.npz").stat().st_size < (tmp_path / "good.npz").stat().st_size
    seen: list[str] = []
    access = np.lib.npyio.NpzFile.__getitem__

    def watched(archive: np.lib.npyio.NpzFile, key: str) -> np.ndarray:
        seen.append(key)
        return access(archive, key)

    monkeypatch.setattr(np.lib.npyio.NpzFile, "__getitem__", watched)
    books = [read_codebook(tmp_path / f"{name}.npz") for name in ("old", "good")]
    assert books[0].digest == books[1].digest
    assert sorted(seen) == sorted(2 * list(good))


@pytest.mark.parametrize("key", ["kind", "descriptor", "normalization", "slices", "dither_steps", "source", "license"])
def test_a_changed_header_is_seen(tmp_path: Path, good: dict, key: str) -> None:
    """Every field that changes results or provenance stands under the hash."""
    other = {
        "kind": "descriptors",
        "descriptor": "surf",
        "normalization": "L1_ROOT",
        "slices": 4,
        "dither_steps": 2.0,
        "source": "elsewhere",
        "license": "MIT",
    }
    header = json.loads(good["header"].tobytes())
    assert header[key] != other[key]
    bad = saved(tmp_path / "bad.npz", with_header(good, json.dumps(header | {key: other[key]})))
    with pytest.raises(FileFormatError, match="hash does not match"):
        read_codebook(bad)


@pytest.mark.parametrize("place", [0, 7, -1])
@pytest.mark.parametrize("key", ["words", "pca_mean", "pca_axes", "image_digests"])
def test_a_changed_number_is_seen(tmp_path: Path, good: dict, key: str, place: int) -> None:
    changed = good[key].copy()
    changed.reshape(-1)[place] += 1
    with pytest.raises(FileFormatError, match="hash does not match"):
        read_codebook(saved(tmp_path / "bad.npz", good | {key: changed}))


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        (lambda a: with_header(a, "[1, 2]"), "not a veil codebook"),
        (lambda a: with_header(a, '"text"'), "not a veil codebook"),
        (lambda a: with_header(a, '{"format": 3}'), "format 3, this veil reads 1 and 2"),
        (lambda a: with_header(a, a["header"].tobytes().decode().replace('"slices": 3', '"slices": Infinity')), "damaged"),
        (lambda a: with_header(a, a["header"].tobytes().decode().replace('"slices": 3', '"slices": 31')), "between 1 and half"),
        (lambda a: with_header(a, a["header"].tobytes().decode().replace('"sift"', "7")), "damaged"),
        (lambda a: with_header(a, "[" * 100_000), "damaged"),
        (lambda a: {k: v for k, v in a.items() if k != "words"}, "words"),
        (lambda a: a | {"words": a["words"][0]}, "damaged"),
        (lambda a: a | {"words": a["words"] * 0}, "none of them zero"),
        (lambda a: a | {"pca_mean": a["pca_mean"][:5]}, "does not fit words"),
        (lambda a: a | {"pca_axes": a["pca_axes"][:, :5]}, "does not fit words"),
        (lambda a: a | {"pca_axes": np.eye(128, dtype=np.float32)}, "does not fit words"),
        (lambda a: a | {"pca_axes": a["pca_axes"] * np.float32(np.nan)}, "NaN"),
    ],
)
def test_what_cannot_be_a_codebook(tmp_path: Path, good: dict, spoil: Callable, words: str) -> None:
    with pytest.raises(FileFormatError, match=words):
        read_codebook(saved(tmp_path / "bad.npz", spoil(good)))


class _Trap:
    """A pickle that leaves a trace when it is loaded."""

    def __init__(self, trace: Path) -> None:
        self.trace = trace

    def __reduce__(self) -> tuple:
        return Path.touch, (self.trace,)


def test_a_pickle_is_refused_and_never_run(tmp_path: Path, good: dict) -> None:
    trap = np.empty(1, dtype=object)
    trap[0] = _Trap(tmp_path / "trace")
    (tmp_path / "plain.npz").write_bytes(pickle.dumps(_Trap(tmp_path / "trace")))
    np.save(tmp_path / "array.npy", trap, allow_pickle=True)
    for key in ("header", "words"):
        saved(tmp_path / f"{key}.npz", good | {key: trap})
    for name in ("plain.npz", "array.npy", "header.npz", "words.npz"):
        with pytest.raises(FileFormatError):
            read_codebook(tmp_path / name)
    assert not (tmp_path / "trace").exists()
    pickle.loads((tmp_path / "plain.npz").read_bytes())  # broken twin: the trap does spring where pickles are loaded
    assert (tmp_path / "trace").exists()


@pytest.mark.slow
def test_damage_raises_only_veils_errors(tmp_path: Path) -> None:
    """Truncated anywhere, or flipped: the zip's own checksums, zlib, NumPy's headers and json all fail differently."""
    path = tmp_path / "b.npz"
    write_codebook(path, BOOK)
    data = path.read_bytes()
    for bad in truncated(data, 100):
        path.write_bytes(bad)
        assert isinstance(outcome(lambda: read_codebook(path)), FileFormatError)
    silent = 0
    for bad in flipped(generator("flips"), data, 600):
        path.write_bytes(bad)
        error = outcome(lambda: read_codebook(path))
        assert error is None or isinstance(error, FileFormatError)
        silent += error is None
    assert silent < 60  # flips in file names, dates and other parts of the zip that hold nothing


def test_a_plain_array_and_a_huge_claim_are_refused(tmp_path: Path, good: dict) -> None:
    np.save(tmp_path / "array.npy", good["words"])
    stream = io.BytesIO()
    np.lib.format.write_array_header_1_0(stream, {"descr": "|u1", "fortran_order": False, "shape": (1 << 50, 128)})
    with zipfile.ZipFile(tmp_path / "good.npz") as old, zipfile.ZipFile(tmp_path / "huge.npz", "w") as new:
        for name in old.namelist():
            new.writestr(name, stream.getvalue() if name == "words.npy" else old.read(name))
    for name in ("array.npy", "huge.npz", "missing.npz"):
        with pytest.raises(FileFormatError):
            read_codebook(tmp_path / name)


@pytest.mark.parametrize("load", [bundled_codebook, bundled_decoys])
def test_sub_databases_are_disjoint_and_cover(load: Callable[[], Codebook]) -> None:
    """Enumeration of what `lift` draws from: S runs of equal size, each word in exactly one."""
    book = load()
    runs = [s * book.slice_size + np.arange(book.slice_size) for s in range(book.slices)]
    np.testing.assert_array_equal(np.bincount(np.concatenate(runs), minlength=len(book)), 1)
    # Runs are uniform draws: their means differ no more than chance allows (a sorted codebook fails this).
    words = book.vectors.astype(np.float64)
    spread = words.var(axis=0).sum() / book.slice_size
    gaps = [np.sum((words[run].mean(axis=0) - words.mean(axis=0)) ** 2) for run in runs]
    assert np.mean(gaps) < 2 * spread
    ordered = words[np.argsort(words[:, 0])]
    sorted_gaps = [np.sum((ordered[run].mean(axis=0) - words.mean(axis=0)) ** 2) for run in runs]
    assert np.mean(sorted_gaps) > 2 * spread  # the broken twin


def test_no_decoy_is_a_descriptor_of_the_bundled_photographs() -> None:
    """The demo's and the tests' photographs are not among those that the pool was made from."""
    from veil.files.photographs.examples import lund_door, other_place
    from veil.files.photographs.pictures import read_picture

    sources = set(bundled_decoys().provenance.image_digests)
    with lund_door() as example, other_place() as elsewhere:
        paths = [*(example.folder / name for name in example.poses), elsewhere]
        assert not sources & {read_picture(path).digest[:8].hex() for path in paths}
