"""Faces and pairs on disk: what is written comes back, what others write is read, and damage is named."""

from __future__ import annotations

from pathlib import Path

import h5py
import numpy as np
import pytest

from veil.errors import FileFormatError
from veil.faces.collection import IDENTITY, Faces
from veil.files.faces import identities, read_faces, read_pairs, write_faces
from veil.space import Space
from worlds import generator, unit

SPACE = Space(descriptor="planted-face", normalization="L2", dim=8)
BAD_PAIRS = {
    "empty": "",
    "no same": "image_a,image_b\nBo/Bo_0001.jpg,Bo/Bo_0002.jpg\n",
    "same is a word": "image_a,image_b,same\na,b,yes\n",
    "two words": "Bo 1\n",
    "strangers": "X 1 2\n",
}


def some() -> Faces:
    names = tuple(f"{who}/{who}_{k:04d}.jpg" for who in ("Ann_Lee", "Bo") for k in (1, 2))
    vectors = unit(generator("faces").normal(size=(4, 8))).astype(np.float32)
    return Faces(vectors=vectors, names=names, space=SPACE, labels={"sex": ("a", "a", "b", "b")})


def test_what_is_written_comes_back(tmp_path: Path) -> None:
    write_faces(tmp_path / "f.npz", some())
    found = read_faces(tmp_path / "f.npz")
    np.testing.assert_allclose(found.vectors, some().vectors, atol=1e-7)
    assert (found.names, found.space, dict(found.labels)) == (some().names, SPACE, dict(some().labels))
    assert identities(found).label(IDENTITY) == ("Ann_Lee", "Ann_Lee", "Bo", "Bo")


def test_what_others_write_is_read(tmp_path: Path) -> None:
    """HDF5 and .npz of any length and dimension; strings as bytes; nothing but `vectors` is needed."""
    vectors = 3 * generator("others").normal(size=(5, 512))
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file["vectors"], file["identity"] = vectors, [b"x"] * 5
    np.savez(tmp_path / "b.npz", vectors=vectors.astype(np.float32))
    first, second = read_faces(tmp_path / "a.h5", descriptor="arcface"), read_faces(tmp_path / "b.npz")
    assert first.space.descriptor == "arcface" and first.label("identity") == ("x",) * 5
    assert second.names == ("0", "1", "2", "3", "4")
    np.testing.assert_allclose(first.vectors, unit(vectors), atol=1e-6)


def test_pairs_are_read_in_both_ways(tmp_path: Path) -> None:
    table, lfw = tmp_path / "pairs.csv", tmp_path / "pairs.txt"
    rows = ["3,1,Bo/Bo_0001.jpg,Bo/Bo_0002.jpg", "4,0,Bo_0001.jpg,Ann_Lee_0002.jpg", "4,0,Bo,None"]
    table.write_text("\n".join(["fold,same,image_a,image_b", *rows]))
    lfw.write_text("1\t1\nBo\t1\t2\nAnn_Lee\t2\tBo\t1\n")
    for path in (table, lfw):
        pairs = read_pairs(path, some())
        assert pairs.same.tolist() == [True, False]
        assert {tuple(sorted(pair)) for pair in zip(pairs.left.tolist(), pairs.right.tolist(), strict=True)} == {(2, 3), (1, 2)}
    assert read_pairs(table, some()).fold.tolist() == [3, 4] and read_pairs(table, some()).missing == 1


@pytest.mark.parametrize("damage", ["text", "empty", "half", "no vectors", "integers", "flat", "nan", "zero", "twice", "short"])
def test_damage_is_named(damage: str, tmp_path: Path) -> None:
    path, good = tmp_path / "f.npz", some().vectors
    write_faces(path, some())
    arrays: dict[str, dict[str, np.ndarray]] = {
        "no vectors": {"names": np.array(["a"])},
        "integers": {"vectors": np.ones((2, 8), dtype=int)},
        "flat": {"vectors": good[0]},
        "nan": {"vectors": np.full((2, 8), np.nan)},
        "zero": {"vectors": np.zeros((2, 8))},
        "twice": {"vectors": good[:2], "names": np.array(["a", "a"])},
        "short": {"vectors": good[:2], "names": np.array(["a"])},
    }
    if damage in arrays:
        np.savez(path, **arrays[damage])  # type: ignore[arg-type]
    else:
        path.write_bytes({"text": b"vectors", "empty": b"", "half": path.read_bytes()[:200]}[damage])
    with pytest.raises(FileFormatError, match=r"f\.npz"):
        read_faces(path)


@pytest.mark.parametrize("kind", sorted(BAD_PAIRS))
def test_bad_pairs_are_named(kind: str, tmp_path: Path) -> None:
    (tmp_path / "p").write_text(BAD_PAIRS[kind])
    with pytest.raises(FileFormatError):
        read_pairs(tmp_path / "p", some())
    with pytest.raises(FileFormatError):
        read_pairs(tmp_path / "none", some())
