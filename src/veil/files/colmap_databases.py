"""COLMAP databases that other tools filled: raw features, and gravity from pose priors.

Features are SIFT in 8 bits, and since COLMAP 4 also learned descriptors.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from veil.errors import FileFormatError, InputError, Remedy, VeilError
from veil.features import Features
from veil.files.features import DAMAGE, features_digest, inside
from veil.geometry.camera import FROM_DATABASE, GUESS, Camera, checked_camera, from_colmap
from veil.geometry.gravity import Gravity, NoGravity
from veil.space import Space, known_space

# `FeatureExtractorType` of COLMAP 4, the column `type` of its table `descriptors`. Older databases have no such column, and
# COLMAP takes what they hold for SIFT.
_UNDEFINED, _SIFT = -1, 0
_LEARNED = {1: "aliked-n16rot", 2: "aliked-n32", 3: "loma-b", 4: "loma-b128"}


def read_colmap_database(path: Path, *, space: Space | None = None) -> Iterator[tuple[str, Features]]:
    """Iterate over the images of a COLMAP database that have keypoints, as pairs of a name and its raw features.

    - `path`: the database, which is not changed unless it is of an older COLMAP, which COLMAP itself brings up to date.
    - `space`: of SIFT, as the database does not say how it was normalized (L1_ROOT by default). What learned descriptors are
      it does say, since COLMAP 4.

    Raises FileFormatError if the file is no such database, descriptors are of a type that veil does not know or do not have
    its length, or no image has keypoints; InputError for SIFT without `space`, and for images of different types.
    """
    from veil.colmap import pycolmap

    require_colmap(path)
    try:
        database = pycolmap.Database.open(path)
    except (RuntimeError, ValueError) as error:
        raise FileFormatError(f"{path} is not a COLMAP database ({error}); give the one of feature extraction") from None
    before: Space | None = None
    try:
        for image in database.read_all_images():
            if database.num_keypoints_for_image(image.image_id):
                features = _read_image(database, image, space)
                if before not in (None, features.space):
                    raise InputError(f"descriptors of [{features.space}] beside others of [{before}]; make a database of each")
                before = features.space
                yield image.name, features
    except VeilError as error:
        raise error.at(f"{path}, image {image.name!r}") from None
    except DAMAGE as error:
        raise FileFormatError(f"{path} is damaged ({error}); run COLMAP's feature extraction again") from None
    finally:
        database.close()
    if before is None:
        raise FileFormatError(f"{path} holds no image with keypoints; run COLMAP's feature extraction first")


def count_colmap_images(path: Path) -> int | None:
    """Number of images that `read_colmap_database` reads; None where the file cannot be read, and that function says why."""
    try:
        require_colmap(path)
        with closing(_read_only(path)) as connection:
            with_keypoints = "SELECT count(*) FROM images JOIN keypoints USING (image_id) WHERE rows > 0"
            return int(connection.execute(with_keypoints).fetchone()[0])
    except (VeilError, sqlite3.Error):
        return None


def require_colmap(path: Path) -> None:
    """Raise FileFormatError unless the file is a COLMAP database; COLMAP itself would create its tables in any SQLite file."""
    if not path.is_file():
        raise FileFormatError(f"there is no COLMAP database {path}")
    try:
        with closing(_read_only(path)) as connection:
            tables = {row[0] for row in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
    except (sqlite3.DatabaseError, UnicodeDecodeError) as error:
        raise FileFormatError(f"{path} is not a COLMAP database ({error}); give the one of feature extraction") from None
    if not {"cameras", "images", "keypoints", "descriptors"} <= tables:
        raise FileFormatError(f"{path} is a database, but not one of COLMAP; give the one of feature extraction")


def _read_only(path: Path) -> sqlite3.Connection:
    return sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro", uri=True)


def _read_image(database: Any, image: Any, sift: Space | None) -> Features:
    stored_camera = database.read_camera(image.camera_id)
    camera = replace(from_colmap(stored_camera), focal=FROM_DATABASE if stored_camera.has_prior_focal_length else GUESS)
    table = np.asarray(database.read_keypoints(image.image_id), dtype=np.float32)
    descriptors = database.read_descriptors(image.image_id)
    space, stored = _typed(int(descriptors.type), np.asarray(descriptors.data), sift)
    if stored.shape != (len(table), space.dim):
        raise FileFormatError(
            f"expected descriptors ({len(table)}, {space.dim}) of {space.descriptor}, got {stored.dtype} {stored.shape}; "
            "run COLMAP's feature extraction again"
        )
    return _from_table(table, stored, space, camera)


def _typed(kind: int, rows: np.ndarray, sift: Space | None) -> tuple[Space, np.ndarray]:
    """The space of descriptors of a type of COLMAP, and they themselves: 8 bits, or the float32 whose bytes `data` is."""
    if kind in _LEARNED:
        if rows.dtype != np.uint8 or rows.shape[1] % 4:
            raise FileFormatError(
                f"rows of {rows.shape[1]} bytes are no float32 numbers; run COLMAP's feature extraction again"
            )
        return known_space(_LEARNED[kind]), np.ascontiguousarray(rows).view("<f4").astype(np.float32)
    if kind not in (_UNDEFINED, _SIFT):
        raise FileFormatError(
            f"descriptors of COLMAP's type {kind}, which veil does not know (but SIFT, {', '.join(_LEARNED.values())})",
            remedy=Remedy("make", "file in hloc's layout"),
        )
    if sift is None:
        raise InputError(
            "a COLMAP database does not say how its SIFT was normalized",
            remedy=Remedy("give", "read_colmap_database.space"),
        )
    return sift, rows


def _from_table(table: np.ndarray, stored: np.ndarray, space: Space, camera: Camera) -> Features:
    """Features from COLMAP's columns: x, y, then scale and orientation, or the affine shape a11 a12 a21 a22.

    Features whose descriptor is all zero are left out.
    """
    lively = stored.any(axis=1)
    table, stored = table[lively], np.ascontiguousarray(stored[lively])
    scales = orientations = None
    if table.shape[1] == 4:
        scales, orientations = table[:, 2].copy(), table[:, 3].copy()
    elif table.shape[1] == 6:
        scales = 0.5 * (np.hypot(table[:, 2], table[:, 4]) + np.hypot(table[:, 3], table[:, 5]))
        orientations = np.arctan2(table[:, 4], table[:, 2])
    keypoints = np.ascontiguousarray(table[:, :2])
    return inside(
        Features(
            keypoints=keypoints,
            descriptors=stored,
            space=space,
            camera=checked_camera(camera),
            image_digest=features_digest(keypoints, stored),
            scales=scales,
            orientations=orientations,
        )
    )


_VECTOR_BYTES = 24
_CAMERA = 0  # COLMAP's SensorType::CAMERA


def read_colmap_gravity(path: Path) -> dict[str, Gravity | NoGravity]:
    """Gravity in the camera frame by image name, for every image of the database, sorted by name; NoGravity says why not.

    COLMAP's frame is veil's (x right, y down, z forward) and its gravity points down, but in the picture as it is stored:
    COLMAP does not turn pictures by their EXIF orientation. So these readings belong to features that were imported from
    the same database. COLMAP's own feature extraction fills the column from the EXIF orientation alone, as exactly one of
    (0, 1, 0), (1, 0, 0), (0, -1, 0), (-1, 0, 0); that is no measurement, and it is refused as a value.
    The file is opened for reading only; pycolmap would create and migrate tables in it.
    Raises FileFormatError if the file is no COLMAP database, or one without this column.
    """
    require_colmap(path)
    try:
        with closing(sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro", uri=True)) as connection:
            columns = {row[1] for row in connection.execute("PRAGMA table_info(pose_priors)")}
            if not {"gravity", "corr_data_id", "corr_sensor_type"} <= columns:
                raise FileFormatError(f"{path} has no gravity in its pose priors; COLMAP stores it since version 4.0")
            rows = connection.execute(
                "SELECT name, prior.gravity FROM images LEFT JOIN pose_priors AS prior "
                "ON prior.corr_data_id = images.image_id AND prior.corr_sensor_type = ? ORDER BY name",
                (_CAMERA,),
            ).fetchall()
    except (sqlite3.Error, UnicodeDecodeError) as error:
        raise FileFormatError(f"{path} is damaged ({error}); run COLMAP's feature extraction again") from None
    if not rows:
        raise FileFormatError(f"{path} holds no images; run COLMAP's feature extraction first")
    return {str(name): _reading(stored) for name, stored in rows}


def _reading(stored: object) -> Gravity | NoGravity:
    """The gravity of a BLOB of three little-endian doubles; absent readings are NULL or NaN."""
    if stored is None:
        return NoGravity(reason="the database has no gravity for it; write pose priors with gravity, or use vanishing-point")
    if not isinstance(stored, bytes) or len(stored) != _VECTOR_BYTES:
        return NoGravity(reason="its gravity in the database is damaged; write its pose prior again")
    vector = np.frombuffer(stored, dtype="<f8").astype(np.float64)
    if np.isnan(vector).any():
        return NoGravity(reason="the database has no gravity for it; write pose priors with gravity, or use vanishing-point")
    if vector[2] == 0 and (vector[:2] == 0).sum() == 1:
        return NoGravity(
            reason=f"its gravity {vector.tolist()} is only its EXIF orientation, as COLMAP's feature extraction stores it, "
            "and no measurement; write measured pose priors, or use vanishing-point"
        )
    try:
        return Gravity(direction=vector)
    except InputError as error:
        return NoGravity(reason=str(error))
