"""RootSIFT of other tools becomes SIFT in L2 at the import, and a database is read without a change."""

from __future__ import annotations

import sqlite3
import warnings
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import h5py
import numpy as np
import pytest

from veil.cli import main
from veil.cli.remedies import advised
from veil.device.device import Device
from veil.errors import InputError, SpaceError, VeilWarning
from veil.extraction.sift import SiftOptions, extract_sift, likely_normalization
from veil.features import Features
from veil.files.colmap_databases import count_colmap_images, read_colmap_database, read_colmap_gravity
from veil.files.features import read_features, write_features
from veil.files.photographs.examples import lund_door
from veil.files.photographs.pictures import read_picture
from veil.space import known_space, require_same
from worlds import generator, sift_like
from worlds.edges import colmap_database

ROOT = known_space("sift", normalization="L1_ROOT")


def planted(count: int) -> tuple[np.ndarray, np.ndarray]:
    """Histograms of unit length with SIFT's clamp, and their RootSIFT by its definition."""
    unit = sift_like(generator("root"), count).astype(np.float64)
    for _ in range(20):
        unit /= np.linalg.norm(unit, axis=1, keepdims=True)
        unit = np.minimum(unit, 0.2)
    unit /= np.linalg.norm(unit, axis=1, keepdims=True)
    return unit, np.sqrt(unit / unit.sum(axis=1, keepdims=True))


def hloc(path: Path, rows: np.ndarray) -> Path:
    with h5py.File(path, "w") as file:
        file["a.jpg/keypoints"] = np.full((len(rows), 2), 7, np.float32)
        file["a.jpg/descriptors"] = rows.T.astype(np.float32)
        file["a.jpg/image_size"] = np.array([64, 48])
    return path


def photographed() -> Features:
    """RootSIFT of a photograph, as veil extracts it."""
    with lund_door() as example:
        picture = read_picture(example.folder / "DSC_0001.jpg")
    return extract_sift(picture, SiftOptions(max_features=90, normalization="L1_ROOT"))


def test_floats_are_inverted_exactly(tmp_path: Path) -> None:
    """Planted truth: the histograms, in 8 bits as COLMAP stores them; it does not matter who names the normalization."""
    unit, root = planted(60)
    path = hloc(tmp_path / "root.h5", root)
    for space, measured in ((ROOT, False), (known_space("sift"), True)):
        with pytest.warns(VeilWarning, match=r"RootSIFT \(L1_ROOT\); it was converted to L2"):
            ((_, got),) = read_features(path, space=space, measured=measured)
        np.testing.assert_array_equal(got.descriptors, np.clip(np.round(512 * unit), 0, 255))
        assert got.space == known_space("sift") and got.is_quantized
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # nothing is converted here
        ((_, plain),) = read_features(hloc(tmp_path / "plain.h5", unit), space=known_space("sift"), measured=True)
    np.testing.assert_array_equal(plain.descriptors, got.descriptors)


def test_stored_bytes_are_inverted_within_their_grain(tmp_path: Path) -> None:
    """Oracle: the derivative of the square. Half a step of the root is x sqrt(|d|_1) / (512 |d|) of the histogram."""
    unit, root = planted(60)
    stored = np.round(512 * root).astype(np.uint8)
    path = colmap_database(tmp_path / "c.db", {"a.jpg": (np.full((60, 2), 7, np.float32), stored)})
    with pytest.warns(VeilWarning, match="converted to L2"):
        ((_, got),) = read_colmap_database(path)
    grain = stored / np.linalg.norm(stored.astype(np.float64) ** 2, axis=1, keepdims=True) * 512
    assert (np.abs(got.descriptors - 512 * unit) <= 0.5 + 1.15 * grain + 0.3).all()
    assert np.abs(got.descriptors - 512 * unit).mean() < 1, "one step of SIFT in 8 bits"


def test_colmap_twins_agree_and_show_their_normalization() -> None:
    """Oracle: COLMAP's own SIFT of one photograph in both normalizations, at the same keypoints."""
    with lund_door() as example:
        picture = read_picture(example.folder / "DSC_0001.jpg")
    plain, root = (extract_sift(picture, SiftOptions(max_features=500, normalization=n)) for n in ("L2", "L1_ROOT"))
    np.testing.assert_array_equal(plain.keypoints, root.keypoints)
    assert likely_normalization(plain.descriptors) == "L2" and likely_normalization(root.descriptors) == "L1_ROOT"
    assert likely_normalization(root.descriptors[:29]) is None
    made = root.in_l2()
    assert np.abs(made.descriptors.astype(int) - plain.descriptors).max() <= 2
    assert made.space == plain.space and made.image_digest == root.image_digest and plain.in_l2() is plain


def test_files_of_veils_own_are_converted_by_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with lund_door() as example:
        root = extract_sift(
            read_picture(example.folder / "DSC_0001.jpg"), SiftOptions(max_features=90, normalization="L1_ROOT")
        )
    write_features(tmp_path / "root.h5", [("a.jpg", root), ("b.jpg", root)])
    assert main(["extract", str(tmp_path / "root.h5"), "-o", str(tmp_path / "l2.h5")]) == 0
    assert capsys.readouterr().err.count("RootSIFT (L1_ROOT); it was converted to L2") == 1
    for _, got in read_features(tmp_path / "l2.h5"):
        np.testing.assert_array_equal(got.descriptors, root.in_l2().descriptors)


def test_a_zero_row_has_no_root() -> None:
    with lund_door() as example:
        root = extract_sift(
            read_picture(example.folder / "DSC_0001.jpg"), SiftOptions(max_features=50, normalization="L1_ROOT")
        )
    rows = root.descriptors.copy()
    rows[3] = 0
    with pytest.raises(InputError, match="all zero"):
        replace(root, descriptors=rows).in_l2()


@pytest.mark.parametrize("state", ["read only", "locked", "journal"])
def test_a_database_in_any_state_is_read_and_stays_as_it_is(tmp_path: Path, state: str) -> None:
    """COLMAP would bring the file up to date and needs its lock; the folder's files and their bytes are compared."""
    folder = tmp_path / "project"
    folder.mkdir()
    _, root = planted(40)
    rows = np.round(512 * root).astype(np.uint8)
    path = colmap_database(folder / "c.db", {"a.jpg": (np.full((40, 2), 7, np.float32), rows)})
    with closing(sqlite3.connect(path)) as old:
        old.execute("PRAGMA user_version = 3800")  # an older COLMAP's, which the newer one would change
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        if state == "journal":
            other.execute("PRAGMA journal_mode = WAL")
            other.execute("UPDATE images SET name = 'new.jpg'")
        elif state == "locked":
            other.execute("BEGIN EXCLUSIVE")
        else:
            path.chmod(0o444)
            folder.chmod(0o555)
        before = {item.name: item.read_bytes() for item in folder.iterdir()}
        with pytest.warns(VeilWarning):
            ((name, got),) = read_colmap_database(path)
        assert count_colmap_images(path) == 1 and list(read_colmap_gravity(path)) == [name]
        assert name == ("new.jpg" if state == "journal" else "a.jpg") and len(got) == 40
        assert {item.name: item.read_bytes() for item in folder.iterdir()} == before
        folder.chmod(0o755)


def test_what_needs_l2_says_how_to_convert(tmp_path: Path) -> None:
    """RootSIFT that was extracted so goes with books of its own; the bundled ones name the way to them."""
    device = Device(tmp_path / "home")
    with pytest.raises(SpaceError, match=r"L1_ROOT.*make the features in L2$") as caught:
        device.release(photographed(), purpose="map")
    assert advised(caught.value).endswith("`veil extract root.h5 -o features.h5` converts features in RootSIFT")
    with pytest.raises(SpaceError, match=r"make the features in L2$"):
        require_same(known_space("sift"), ROOT)
    with pytest.raises(SpaceError, match=r"both sides with the same descriptor$"):
        require_same(known_space("sift"), known_space("hardnet"))
    assert len(device.release(photographed().in_l2(), purpose="map").message) > 0
