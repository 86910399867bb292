"""Gravity in COLMAP's databases, as COLMAP itself writes and reads it."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import ExifTags, Image

from veil.errors import FileFormatError
from veil.files.colmap_databases import read_colmap_gravity
from veil.geometry.gravity import Gravity, NoGravity
from worlds import generator
from worlds.edges import other_database, outcome, truncated


def database(path: Path, gravity: dict[str, Any]) -> Path:
    """Written by pycolmap alone; None: no pose prior at all."""
    import pycolmap

    opened = pycolmap.Database.open(path)
    camera_id = opened.write_camera(pycolmap.Camera.create_from_model_name(1, "PINHOLE", 500.0, 640, 480))
    for name, vector in gravity.items():
        opened.write_image(pycolmap.Image(name=name, camera_id=camera_id))
        if vector is not None:
            prior = pycolmap.PosePrior()
            image = opened.read_image_with_name(name)
            assert image is not None
            prior.corr_data_id = image.data_id
            prior.gravity = np.array(vector, dtype=np.float64)
            opened.write_pose_prior(prior)
    opened.close()
    return path


def test_measured_gravity_is_read_as_it_is(tmp_path: Path) -> None:
    """Inverse pair with pycolmap's writer; lengths are not kept."""
    vectors = {"b.jpg": [0.1, 0.99, -0.05], "a/a.jpg": [0.05, 9.7, 1.2], "z.jpg": None, "n.jpg": [np.nan] * 3}
    readings = read_colmap_gravity(database(tmp_path / "d.db", vectors))
    assert list(readings) == sorted(vectors)
    for name in ("b.jpg", "a/a.jpg"):
        reading, vector = readings[name], np.array(vectors[name])
        assert isinstance(reading, Gravity) and reading.sigma_deg is None
        np.testing.assert_allclose(reading.direction, vector / np.linalg.norm(vector), rtol=1e-12)
    for name in ("z.jpg", "n.jpg"):
        reading = readings[name]
        assert isinstance(reading, NoGravity) and "no gravity" in reading.reason


def test_colmaps_sign_and_axes_are_ours() -> None:
    """Second method: the quarter turns by which COLMAP makes a picture upright take its gravity to veil's down, (0, 1).

    A counterclockwise quarter turn of a picture (x right, y down) takes (x, y) to (y, -x).
    """
    import pycolmap

    for gravity in ([0.05, 0.99, 0.1], [0.99, 0.1, 0.1], [-0.1, -0.99, 0.1], [-0.99, 0.05, 0.1]):
        x, y, _ = gravity
        for _ in range(pycolmap.compute_rot90_from_gravity(np.array(gravity))):
            x, y = y, -x
        assert y > 0.9


def test_the_orientation_tag_is_no_measurement(tmp_path: Path) -> None:
    """COLMAP's own feature extraction of photographs with EXIF orientations stores vectors along axes: refused, all of them.

    Broken twin: without the refusal the upright one passes for a perfect measurement.
    """
    import pycolmap

    pixels = generator("pixels").integers(0, 256, (96, 128, 3)).astype(np.uint8)
    (tmp_path / "photos").mkdir()
    for orientation in (1, 3, 6, 8):
        picture = Image.fromarray(pixels)
        picture.getexif()[ExifTags.Base.Orientation] = orientation
        picture.save(tmp_path / "photos" / f"{orientation}.jpg", exif=picture.getexif())
    pycolmap.Database.open(tmp_path / "d.db").close()
    pycolmap.logging.minloglevel = 3
    pycolmap.extract_features(tmp_path / "d.db", tmp_path / "photos")
    readings = read_colmap_gravity(tmp_path / "d.db")
    assert len(readings) == 4
    for reading in readings.values():
        assert isinstance(reading, NoGravity) and "EXIF orientation" in reading.reason


def test_what_points_up_or_is_damaged_is_its_own_images_fault(tmp_path: Path) -> None:
    path = database(tmp_path / "d.db", {"up.jpg": [0.1, -0.99, 0.05], "cut.jpg": [0, 1, 0.1], "good.jpg": [0, 1, 0.1]})
    with closing(sqlite3.connect(path)) as connection:
        number = connection.execute("SELECT image_id FROM images WHERE name = 'cut.jpg'").fetchone()
        connection.execute("UPDATE pose_priors SET gravity = x'00112233' WHERE corr_data_id = ?", number)
        connection.commit()
    readings = read_colmap_gravity(path)
    assert [type(readings[name]) for name in ("up.jpg", "cut.jpg", "good.jpg")] == [NoGravity, NoGravity, Gravity]
    assert "points up" in getattr(readings["up.jpg"], "reason", "")
    assert "damaged" in getattr(readings["cut.jpg"], "reason", "")


def test_reading_leaves_the_database_as_it_was(tmp_path: Path) -> None:
    path = database(tmp_path / "d.db", {"a.jpg": [0, 1, 0.1]})
    before = path.read_bytes()
    read_colmap_gravity(path)
    assert path.read_bytes() == before


def test_databases_without_gravity(tmp_path: Path) -> None:
    old = database(tmp_path / "old.db", {"a.jpg": None})
    with closing(sqlite3.connect(old)) as connection:
        connection.execute("DROP TABLE pose_priors")
        connection.execute("CREATE TABLE pose_priors (image_id INTEGER PRIMARY KEY, position BLOB)")
        connection.commit()
    for path, words in (
        (old, "since version 4.0"),
        (database(tmp_path / "empty.db", {}), "holds no images"),
        (other_database(tmp_path / "other.db"), "not one of COLMAP"),
        (tmp_path / "none.db", "there is no COLMAP database"),
    ):
        with pytest.raises(FileFormatError, match=words):
            read_colmap_gravity(path)


def test_cut_databases_are_errors_or_still_tell_the_truth(tmp_path: Path) -> None:
    """The last pages may hold nothing that is asked for."""
    data = database(tmp_path / "d.db", {"a.jpg": [0, 1, 0.1]}).read_bytes()
    for broken in truncated(data, 25):
        path = tmp_path / "broken.db"
        path.write_bytes(broken)
        if outcome(partial(read_colmap_gravity, path)) is None:
            (reading,) = read_colmap_gravity(path).values()
            assert isinstance(reading, Gravity)
            np.testing.assert_allclose(reading.direction, np.array([0, 1, 0.1]) / np.hypot(1, 0.1))
