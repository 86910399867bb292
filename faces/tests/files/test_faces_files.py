"""Faces and pairs on disk: what is written comes back, what others write is read, and damage is named."""

from __future__ import annotations

from pathlib import Path

import h5py
import numpy as np
import pytest

from veil.errors import FileFormatError
from veil.space import Space
from veil_faces.collection import IDENTITY, Faces
from veil_faces.files.face_pairs import read_pairs
from veil_faces.files.faces import identities, read_faces, read_labels, write_faces
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
    faces = read_faces(tmp_path / "f.npz")
    np.testing.assert_allclose(faces.vectors, some().vectors, atol=1e-7)
    assert (faces.names, faces.space, dict(faces.labels)) == (some().names, SPACE, dict(some().labels))
    assert identities(faces).label(IDENTITY) == ("Ann_Lee", "Ann_Lee", "Bo", "Bo")


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


def test_pairs_of_annotated_lists(tmp_path: Path) -> None:
    """Lines `same a b` and `a b same`, as AgeDB-30 is passed on; a picture is known by the end of its path."""
    for lines in (
        "1 agedb/Bo/Bo_0001.jpg agedb/Bo/Bo_0002.jpg\n0 agedb/Bo/Bo_0001.jpg agedb/Ann_Lee/Ann_Lee_0001.jpg\n\n",
        "Bo_0001.jpg Bo_0002.jpg 1\nBo_0001.jpg Ann_Lee_0001.jpg 0\n",
    ):
        (tmp_path / "ann.txt").write_text(lines)
        pairs = read_pairs(tmp_path / "ann.txt", some())
        assert (pairs.left.tolist(), pairs.right.tolist(), pairs.same.tolist()) == ([2, 2], [3, 0], [True, False])
    (tmp_path / "ann.txt").write_text("1 a.jpg b.jpg\nmaybe a.jpg b.jpg\n")
    with pytest.raises(FileFormatError, match="line 2: a pair is"):
        read_pairs(tmp_path / "ann.txt", some())


def cfp(folder: Path) -> Faces:
    """Two people of CFP, with two frontal pictures and one profile each, and one fold of both splits."""
    names = [f"{who:03d}/{kind}/{k:02d}.jpg" for who in (1, 2) for kind, k in (("frontal", 1), ("frontal", 2), ("profile", 1))]
    lists = {"F": [name for name in names if "frontal" in name], "P": [name for name in names if "profile" in name]}
    for kind, own in lists.items():
        lines = [f"{k} ../Data/Images/{name}" for k, name in enumerate(own, start=1)]
        (folder / f"Pair_list_{kind}.txt").write_text("\n".join(lines))
    for split, same, diff in (("FF", "1,2\n3,4\n", "1,3\n"), ("FP", "1,1\n4,2\n", "2,2\n")):
        (folder / "Split" / split / "01").mkdir(parents=True)
        (folder / "Split" / split / "01" / "same.txt").write_text(same)
        (folder / "Split" / split / "01" / "diff.txt").write_text(diff)
    vectors = unit(generator("cfp").normal(size=(6, 8))).astype(np.float32)
    return Faces(vectors=vectors, names=tuple(names), space=SPACE)


def test_pairs_of_cfp(tmp_path: Path) -> None:
    """Numbers point into the lists of frontal and of profile pictures; 01.jpg alone would be four people's."""
    faces = cfp(tmp_path)
    frontal, profile = (read_pairs(tmp_path / "Split" / split, faces) for split in ("FF", "FP"))
    assert (frontal.left.tolist(), frontal.right.tolist(), frontal.same.tolist()) == ([0, 3, 0], [1, 4, 3], [True, True, False])
    assert (profile.left.tolist(), profile.right.tolist()) == ([0, 4, 1], [2, 5, 5])
    (tmp_path / "pairs.csv").write_text(
        "image_a,image_b,same\n001/frontal/01.jpg,frontal/01.jpg,0\n001/frontal/01.jpg,002/frontal/02.jpg,0"
    )
    assert read_pairs(tmp_path / "pairs.csv", faces).missing == 1
    for split, damage, match in (("FF", "1,9\n", "is no pair"), ("FF", "1\n", "is no pair"), ("FF", "a,b\n", "is no pair")):
        (tmp_path / "Split" / split / "01" / "same.txt").write_text(damage)
        with pytest.raises(FileFormatError, match=match):
            read_pairs(tmp_path / "Split" / split, faces)
    with pytest.raises(FileFormatError, match="no split of CFP"):
        read_pairs(tmp_path, faces)
    (tmp_path / "Pair_list_P.txt").write_text("one path\n")
    with pytest.raises(FileFormatError, match=r"Pair_list_P\.txt, line 1"):
        read_pairs(tmp_path / "Split" / "FP", faces)


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


def test_arrays_that_shrank_to_nothing_are_not_made(tmp_path: Path) -> None:
    """A file of zeros that declares far more than it holds."""
    zeros = np.zeros((1 << 12, 1 << 12), dtype=np.float32)
    np.savez_compressed(tmp_path / "bomb.npz", vectors=zeros, header=zeros)
    with pytest.raises(FileFormatError, match="declares 1342"):
        read_faces(tmp_path / "bomb.npz")


def test_a_picture_that_has_two_rows_of_labels_is_refused(tmp_path: Path) -> None:
    """Which of the two holds cannot be told; a byte-order mark is no part of the first column."""
    (tmp_path / "l.csv").write_text("file,age\na.jpg,1\nb.jpg,2\n", encoding="utf-8-sig")
    assert read_labels(tmp_path / "l.csv", ("age",)) == [{"file": "a.jpg", "age": "1"}, {"file": "b.jpg", "age": "2"}]
    (tmp_path / "l.csv").write_text("file,age\na.jpg,1\nb.jpg,2\na.jpg,3\n")
    with pytest.raises(FileFormatError, match=r"line 4: 'a\.jpg' is there twice, first in line 2"):
        read_labels(tmp_path / "l.csv", ("age",))


def test_tables_of_labels_and_pairs_are_read_by_their_columns(tmp_path: Path) -> None:
    """Planted truth in any encoding. Broken twin: of a column that stands twice the last one won, in silence."""
    labels, pairs = tmp_path / "l.csv", tmp_path / "pairs.csv"
    for encoding in ("utf-8", "utf-8-sig", "utf-16"):
        labels.write_bytes("age,file\n1,é.jpg\n".encode(encoding))
        assert read_labels(labels, ("age",)) == [{"file": "é.jpg", "age": "1"}]
        pairs.write_bytes("same,image_b,image_a\n1,Bo/Bo_0001.jpg,Bo/Bo_0002.jpg\n".encode(encoding))
        assert read_pairs(pairs, some()).same.tolist() == [True]
    labels.write_text("file,age,age\na.jpg,1,2\n")
    with pytest.raises(FileFormatError, match="the column 'age' twice"):
        read_labels(labels, ("age",))
    pairs.write_text("image_a,image_b,same,same\nBo/Bo_0001.jpg,Bo/Bo_0002.jpg,1,0\n")
    with pytest.raises(FileFormatError, match="the column 'same' twice"):
        read_pairs(pairs, some())
    labels.write_text("file,age\na.jpg\n")
    with pytest.raises(FileFormatError, match="line 2: expected 2 cells, got 1"):
        read_labels(labels, ("age",))
