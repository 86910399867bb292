"""Features of COLMAP databases: SIFT, the learned descriptors of COLMAP 4, and what is neither."""

from __future__ import annotations

import re
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest

from veil.errors import FileFormatError, InputError, VeilError
from veil.files.colmap_databases import count_colmap_images, read_colmap_database
from veil.space import Space
from worlds import generator, sift_like, unit
from worlds.edges import colmap_database, flipped, other_database, outcome, truncated

SIFT = Space(descriptor="sift", normalization="L2", dim=128)


def similarities(random: np.random.Generator, count: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Random similarities as affine shapes (a11, a12, a21, a22), with their scales and angles."""
    scale, angle = random.uniform(1, 9, count), random.uniform(-3, 3, count)
    c, s = scale * np.cos(angle), scale * np.sin(angle)
    return np.stack([c, -s, s, c], axis=1), scale, angle


def test_colmap_keypoints_of_every_width(tmp_path: Path) -> None:
    """Planted truth: similarities as affine shapes give back the scale and angle that made them."""
    random = generator("colmap")
    affine, scale, angle = similarities(random, 7)
    xy = random.uniform(1, 400, (7, 2))
    tables = {
        "two.jpg": xy,
        "four.jpg": np.column_stack([xy, scale, angle]),
        "six.jpg": np.column_stack([xy, affine]),
    }
    stored = sift_like(random, 7)
    stored[3] = 0  # COLMAP may write descriptors that are all zero; they match everything
    path = colmap_database(tmp_path / "c.db", {n: (t.astype(np.float32), stored) for n, t in tables.items()})
    features = dict(read_colmap_database(path, space=SIFT))
    kept = np.arange(7) != 3
    assert set(features) == set(tables)
    for name, got in features.items():
        np.testing.assert_array_equal(got.keypoints, xy[kept].astype(np.float32))  # no half pixel: COLMAP's origin is ours
        np.testing.assert_array_equal(got.descriptors, stored[kept])
        assert got.space == SIFT and got.is_quantized
        assert got.camera.model == "SIMPLE_RADIAL" and got.camera.focal_px == 500 and got.camera.focal_is_known
        if name == "two.jpg":
            assert got.scales is None and got.orientations is None
        else:
            assert got.scales is not None and got.orientations is not None
            np.testing.assert_allclose(got.scales, scale[kept], rtol=1e-6)
            np.testing.assert_allclose(got.orientations, angle[kept], rtol=1e-5)


def test_an_image_without_keypoints_is_left_out(tmp_path: Path) -> None:
    random = generator("some")
    good = (random.uniform(1, 400, (3, 2)).astype(np.float32), sift_like(random, 3))
    none = (np.empty((0, 2), np.float32), np.empty((0, 128), np.uint8))
    path = colmap_database(tmp_path / "c.db", {"a.jpg": none, "b.jpg": good})
    assert [name for name, _ in read_colmap_database(path, space=SIFT)] == ["b.jpg"]
    assert count_colmap_images(path) == 1
    path = colmap_database(tmp_path / "e.db", {"a.jpg": none})
    with pytest.raises(FileFormatError, match="feature extraction first"):
        list(read_colmap_database(path, space=SIFT))


def test_databases_that_cannot_serve(tmp_path: Path) -> None:
    random = generator("cannot")
    keypoints = random.uniform(1, 400, (3, 2)).astype(np.float32)
    short = colmap_database(tmp_path / "s.db", {"a.jpg": (keypoints, sift_like(random, 2))})
    wide = colmap_database(tmp_path / "w.db", {"a.jpg": (keypoints, sift_like(random, 3, 256))})
    fisheye = colmap_database(tmp_path / "f.db", {"a.jpg": (keypoints, sift_like(random, 3))}, model="FOV")
    text = tmp_path / "t.db"
    text.write_text("hello " * 1000)
    for path, words in (
        (short, r"a\.jpg.*expected descriptors \(3, 128\) of sift"),
        (wide, r"got uint8 \(3, 256\)"),
        (fisheye, "camera model 'FOV' is not supported"),
        (text, "not a COLMAP database"),
        (tmp_path / "none.db", "there is no COLMAP database"),
    ):
        with pytest.raises((FileFormatError, InputError), match=words):
            list(read_colmap_database(path, space=SIFT))


def test_what_is_no_colmap_database_stays_untouched(tmp_path: Path) -> None:
    """COLMAP adds its tables to any SQLite file that it opens, and to an empty one; veil must look before."""
    (tmp_path / "empty.db").touch()
    for path in (other_database(tmp_path / "notes.db"), tmp_path / "empty.db"):
        before = path.read_bytes()
        with pytest.raises(FileFormatError, match="not one of COLMAP"):
            list(read_colmap_database(path, space=SIFT))
        assert count_colmap_images(path) is None
        assert path.read_bytes() == before


@pytest.mark.slow
def test_damaged_databases_raise_only_veils_errors(tmp_path: Path) -> None:
    random = generator("damage")
    tables = {f"{k}.jpg": (random.uniform(1, 400, (5, k)).astype(np.float32), sift_like(random, 5)) for k in (2, 4, 6)}
    path = colmap_database(tmp_path / "c.db", tables)
    data = path.read_bytes()
    errors = 0
    for bad in (*truncated(data, 60), *flipped(random, data, 200, most=60)):
        path.write_bytes(bad)
        errors += outcome(lambda: list(read_colmap_database(path, space=SIFT))) is not None
        assert count_colmap_images(path) in (None, *range(4))
    assert errors > 60


def learned(random: np.random.Generator, count: int, dim: int) -> np.ndarray:
    """Signed descriptors of unit length, float32."""
    return unit(random.normal(size=(count, dim))).astype(np.float32)


def table_types(path: Path) -> set[tuple[int, int]]:
    """Types and widths of the rows of `descriptors`, by SQLite alone."""
    with closing(sqlite3.connect(path)) as connection:
        return set(connection.execute("SELECT type, cols FROM descriptors WHERE rows > 0"))


@pytest.mark.parametrize(
    ("kind", "number", "name", "dim"), [("ALIKED_N16ROT", 1, "aliked-n16rot", 128), ("ALIKED_N32", 2, "aliked-n32", 128)]
)
def test_learned_descriptors_of_colmap_4(tmp_path: Path, kind: str, number: int, name: str, dim: int) -> None:
    """Planted truth: pycolmap's own conversion of floats to the table's bytes; SQLite tells that there are types and widths."""
    random = generator(kind)
    xy, values = random.uniform(1, 400, (9, 2)).astype(np.float32), learned(random, 9, dim)
    path = colmap_database(tmp_path / "c.db", {"a.jpg": (xy, values)}, kind=kind)
    assert table_types(path) == {(number, 4 * dim)}
    ((_, got),) = read_colmap_database(path)
    np.testing.assert_array_equal(got.descriptors, values)
    np.testing.assert_array_equal(got.keypoints, xy)
    assert got.space == Space(descriptor=name, normalization="L2", dim=dim) and not got.is_quantized


def test_types_that_cannot_be_read(tmp_path: Path) -> None:
    random = generator("types")
    xy, values = random.uniform(1, 400, (3, 2)).astype(np.float32), learned(random, 3, 128)
    aliked = {"a.jpg": (xy, values)}
    unknown = colmap_database(tmp_path / "u.db", aliked, kind="ALIKED_N32")
    odd = colmap_database(tmp_path / "o.db", aliked, kind="ALIKED_N32")
    both = colmap_database(tmp_path / "b.db", aliked | {"b.jpg": (xy, values)}, kind="ALIKED_N32")
    sift = colmap_database(tmp_path / "s.db", {"a.jpg": (xy, sift_like(random, 3))})
    for path, change in (
        (unknown, "UPDATE descriptors SET type = 99"),
        (odd, "UPDATE descriptors SET cols = 2, data = X'000102030405'"),
        (both, "UPDATE descriptors SET type = 1 WHERE image_id = 2"),
    ):
        with closing(sqlite3.connect(path)) as connection, connection:
            connection.execute(change)
    for path, words in (
        (unknown, r"a\.jpg.*type 99, which veil does not know.*aliked-n16rot"),
        (odd, "rows of 2 bytes are no float32 numbers"),
        (both, r"b\.jpg.*beside others of \[aliked-n32"),
        (sift, r"read_colmap_database\(space="),
    ):
        with pytest.raises((FileFormatError, InputError), match=words):
            list(read_colmap_database(path))


def tree(folder: Path) -> dict[str, bytes]:
    """All files of a folder with their bytes."""
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def three(random: np.random.Generator, path: Path) -> tuple[Path, dict[str, np.ndarray]]:
    """A database of three images, and their descriptors."""
    tables = {f"{k}.jpg": (random.uniform(1, 400, (5, 2)).astype(np.float32), sift_like(random, 5)) for k in range(3)}
    return colmap_database(path, tables), {name: descriptors for name, (_, descriptors) in tables.items()}


def changed(path: Path, statement: str, *values: object) -> None:
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute(statement, values)


@pytest.mark.parametrize("journal", ["wal", "delete"])
def test_an_imported_database_stays_as_it_is(tmp_path: Path, journal: str) -> None:
    """Bytes of all files in its folder, which may not be written to; of a COLMAP 3 database, pycolmap makes one of COLMAP 4."""
    folder = tmp_path / "read only"
    folder.mkdir()
    path, descriptors = three(generator("stays"), folder / "c.db")
    for table in ("rigs", "rig_sensors", "frames", "frame_data", "pose_priors"):
        changed(path, f"DROP TABLE IF EXISTS {table}")
    changed(path, "ALTER TABLE descriptors DROP COLUMN type")
    with closing(sqlite3.connect(path)) as connection:
        connection.execute(f"PRAGMA journal_mode = {journal}")
    before = tree(folder)
    folder.chmod(0o500)
    try:
        read = dict(read_colmap_database(path, space=SIFT))
        assert count_colmap_images(path) == 3
        assert tree(folder) == before
    finally:
        folder.chmod(0o700)
    for name, expected in descriptors.items():
        np.testing.assert_array_equal(read[name].descriptors, expected)


def test_a_database_that_another_program_holds_is_read(tmp_path: Path) -> None:
    """Planted truth: what was committed is read, under an exclusive lock, and from a log beside the file."""
    path, descriptors = three(generator("held"), tmp_path / "c.db")
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("PRAGMA journal_mode = wal")
        other.execute("UPDATE images SET name = 'later.jpg' WHERE image_id = 3")  # stands in the log alone
        assert (tmp_path / "c.db-wal").stat().st_size
        before = tree(tmp_path)
        assert [name for name, _ in read_colmap_database(path, space=SIFT)] == ["0.jpg", "1.jpg", "later.jpg"]
        assert tree(tmp_path) == before
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("PRAGMA journal_mode = delete")
        other.execute("BEGIN EXCLUSIVE")
        read = dict(read_colmap_database(path, space=SIFT))
    np.testing.assert_array_equal(read["later.jpg"].descriptors, descriptors["2.jpg"])


@pytest.mark.parametrize(
    ("statement", "words"),
    [
        (
            "UPDATE keypoints SET data = NULL WHERE image_id = 2",
            "its keypoints are to be 5 x 2, and the database holds 0 bytes",
        ),
        ("UPDATE keypoints SET data = X'00000000000000' WHERE image_id = 2", "holds 7 bytes"),
        ("UPDATE keypoints SET rows = 100000000 WHERE image_id = 2", "are to be 100000000 x 2"),
        ("UPDATE keypoints SET rows = 0 WHERE image_id = 2", "it has no keypoints"),
        ("DELETE FROM keypoints WHERE image_id = 2", "it has no keypoints"),
        ("UPDATE keypoints SET rows = 2, cols = 5 WHERE image_id = 2", "keypoints have 5 columns|holds 40 bytes"),
        ("UPDATE descriptors SET data = NULL WHERE image_id = 2", "its descriptors are to be 5 x 128"),
        ("DELETE FROM descriptors WHERE image_id = 2", "keypoints and no descriptors"),
        ("UPDATE images SET camera_id = 9 WHERE image_id = 2", "camera 9 is not in the database"),
    ],
)
def test_one_image_that_cannot_be_used_is_named_and_the_others_are_read(tmp_path: Path, statement: str, words: str) -> None:
    """Planted damage in the second of three images; without `skipped`, it is an error unless there is nothing to read."""
    path, descriptors = three(generator("one"), tmp_path / "c.db")
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("PRAGMA foreign_keys = OFF")
        connection.execute(statement)
    skipped: dict[str, VeilError] = {}
    read = dict(read_colmap_database(path, space=SIFT, skipped=skipped))
    assert list(read) == ["0.jpg", "2.jpg"] and list(skipped) == ["1.jpg"]
    assert re.search(words, str(skipped["1.jpg"]))
    np.testing.assert_array_equal(read["2.jpg"].descriptors, descriptors["2.jpg"])
    if "no keypoints" not in words:
        with pytest.raises(VeilError, match=f"1.jpg.*({words})"):
            list(read_colmap_database(path, space=SIFT))


def test_names_that_cannot_be_used_are_named_by_their_numbers(tmp_path: Path) -> None:
    path, _ = three(generator("names"), tmp_path / "c.db")
    changed(path, "UPDATE images SET name = '' WHERE image_id = 1")
    changed(path, "UPDATE images SET name = CAST(? AS TEXT) WHERE image_id = 2", b"caf\xe9.jpg")
    skipped: dict[str, VeilError] = {}
    assert [name for name, _ in read_colmap_database(path, space=SIFT, skipped=skipped)] == ["2.jpg"]
    assert {name: str(error).split(";")[0] for name, error in skipped.items()} == {
        "(image 1)": "it has no name",
        "(image 2)": "its name b'caf\\xe9.jpg' is not UTF-8",
    }


def test_an_image_that_is_there_twice_is_refused(tmp_path: Path) -> None:
    """Tables without COLMAP's constraints, as other programs make them: the last of two images of one name won."""
    path, _ = three(generator("twice"), tmp_path / "c.db")
    with closing(sqlite3.connect(path)) as connection, connection:
        for table in ("images", "keypoints"):
            connection.execute(f"CREATE TABLE free_{table} AS SELECT * FROM {table}")
            connection.execute(f"DROP TABLE {table}")
            connection.execute(f"ALTER TABLE free_{table} RENAME TO {table}")
    assert len(dict(read_colmap_database(path, space=SIFT))) == 3
    for statement in (
        "UPDATE images SET name = '0.jpg' WHERE name = '2.jpg'",
        "INSERT INTO keypoints SELECT * FROM keypoints WHERE image_id = 1",
    ):
        shutil.copy(path, tmp_path / "twice.db")
        changed(tmp_path / "twice.db", statement)
        with pytest.raises(FileFormatError, match=r"image '0\.jpg' is there twice"):
            dict(read_colmap_database(tmp_path / "twice.db", space=SIFT, skipped={}))
