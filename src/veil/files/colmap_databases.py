"""COLMAP databases that other tools filled: raw features, and gravity from pose priors.

Features are SIFT in 8 bits, and since COLMAP 4 also learned descriptors.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from veil.errors import FileFormatError, InputError, Remedy, VeilError
from veil.features import Features
from veil.files.features import KindUnknown, features_digest, inside, warn_of_zeros
from veil.files.sqlite import untouched
from veil.files.tables import once
from veil.geometry.camera import Camera, checked_camera
from veil.geometry.gravity import Gravity, NoGravity
from veil.space import Space, known_space

# `FeatureExtractorType` of COLMAP 4, the column `type` of its table `descriptors`. Older databases have no such column, and
# COLMAP takes what they hold for SIFT.
_UNDEFINED, _SIFT = -1, 0
_LEARNED = {1: "aliked-n16rot", 2: "aliked-n32", 3: "loma-b", 4: "loma-b128"}


def read_colmap_database(
    path: Path, *, space: Space | None = None, skipped: dict[str, VeilError] | None = None
) -> Iterator[tuple[str, Features]]:
    """Iterate over the images of a COLMAP database that have keypoints, as pairs of a name and its raw features.

    - `path`: the database, which may be locked or lie where nothing can be written; neither it nor its folder is changed.
    - `space`: of SIFT, as the database does not say how it was normalized (L1_ROOT by default). What learned descriptors are
      it does say, since COLMAP 4.
    - `skipped`: takes the error of each image that cannot be used, by name; without it, such an error is raised.

    Features whose descriptor is all zero are left out, and a warning (`veil.VeilWarning`) gives their number.

    Raises FileFormatError if the file is no such database, descriptors are of a type that veil does not know or do not have
    its length, or no image has keypoints; InputError for SIFT without `space`, and for images of different types.
    """
    before: Space | None = None
    zeros: dict[str, int] = {}
    with _opened(path) as connection:
        images = _rows(connection, "SELECT image_id, name, camera_id FROM images ORDER BY image_id")
        for number, stored_name, camera_id in images:
            name = f"(image {number})"
            try:
                name = _name(stored_name)
                features, zeros[name] = _read_image(connection, number, camera_id, space)
            except KindUnknown as error:
                raise error.at(f"{path}, image {name!r}") from None
            except VeilError as error:
                if skipped is None:
                    raise error.at(f"{path}, image {name!r}") from None
                skipped[name] = error
                continue
            if features is None:
                if skipped is not None:
                    skipped[name] = FileFormatError("it has no keypoints")
                continue
            if before not in (None, features.space):
                mixed = f"descriptors of [{features.space}] beside others of [{before}]; make a database of each"
                raise InputError(f"{path}, image {name!r}: {mixed}")
            before = features.space
            yield name, features
    warn_of_zeros(path, zeros)
    if before is None and not skipped:
        raise FileFormatError(f"{path} holds no image with keypoints; run COLMAP's feature extraction first")


def count_colmap_images(path: Path) -> int | None:
    """Number of images that `read_colmap_database` reads; None where the file cannot be read, and that function says why."""
    try:
        with _opened(path) as connection:
            with_keypoints = "SELECT count(*) FROM images JOIN keypoints USING (image_id) WHERE rows > 0"
            return int(_rows(connection, with_keypoints)[0][0])
    except VeilError:
        return None


@contextmanager
def _opened(path: Path) -> Iterator[sqlite3.Connection]:
    """A connection to a COLMAP database that cannot change it. Raises FileFormatError for another file, and for damage."""
    if not path.is_file():
        raise FileFormatError(f"there is no COLMAP database {path}")
    try:
        with untouched(path) as connection:
            try:
                tables = {row[0] for row in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
            except (sqlite3.DatabaseError, UnicodeDecodeError) as error:
                raise FileFormatError(
                    f"{path} is not a COLMAP database ({error}); give the one of feature extraction"
                ) from None
            if not {b"cameras", b"images", b"keypoints", b"descriptors"} <= tables:
                raise FileFormatError(f"{path} is a database, but not one of COLMAP; give the one of feature extraction")
            yield connection
    except (sqlite3.Error, OSError, UnicodeDecodeError) as error:
        raise FileFormatError(f"{path} is damaged or cannot be read ({error}); run COLMAP's feature extraction again") from None


def _rows(connection: sqlite3.Connection, query: str, *values: object) -> list[tuple[Any, ...]]:
    return connection.execute(query, values).fetchall()


def _name(stored: object) -> str:
    """The name of an image. Raises FileFormatError for one that is empty or no text."""
    try:
        name = stored.decode() if isinstance(stored, bytes) else ""
    except UnicodeDecodeError:
        raise FileFormatError(f"its name {stored!r} is not UTF-8; rename it in the database") from None
    if not name:
        raise FileFormatError("it has no name; give it one in the database")
    return name


def _read_image(connection: sqlite3.Connection, number: int, camera_id: int, sift: Space | None) -> tuple[Features | None, int]:
    """The features of the image of this number, and the number of those that were left out as their descriptors are all zero.

    None for an image without keypoints.
    """
    table = _table(connection, "keypoints", number)
    if table is None or not len(table):
        return None, 0
    camera = _camera(connection, camera_id)
    if table.shape[1] not in (2, 4, 6):
        raise FileFormatError(f"its keypoints have {table.shape[1]} columns, where COLMAP has 2, 4 or 6; extract it again")
    rows = _table(connection, "descriptors", number)
    if rows is None:
        raise FileFormatError("it has keypoints and no descriptors; run COLMAP's feature extraction again")
    space, stored = _typed(_kind(connection, number), rows, sift)
    if stored.shape != (len(table), space.dim):
        raise FileFormatError(
            f"expected descriptors ({len(table)}, {space.dim}) of {space.descriptor}, got {stored.dtype} {stored.shape}; "
            "run COLMAP's feature extraction again"
        )
    lively = stored.any(axis=1)
    features = _from_table(table[lively], np.ascontiguousarray(stored[lively]), space, camera)
    return features, int(np.count_nonzero(~lively))


_KIND_OF: dict[str, np.dtype[Any]] = {"keypoints": np.dtype("<f4"), "descriptors": np.dtype("u1")}


def _table(connection: sqlite3.Connection, what: str, number: int) -> np.ndarray | None:
    """The matrix of an image's keypoints or descriptors; None if it has none. Raises FileFormatError for other bytes."""
    stored = _rows(connection, f"SELECT rows, cols, data FROM {what} WHERE image_id = ?", number)
    if not stored:
        return None
    rows, columns, data = stored[0]
    kind = _KIND_OF[what]
    if rows == 0:
        return np.empty((0, 0), dtype=kind)
    size = len(data) if isinstance(data, bytes) else 0
    if not all(isinstance(value, int) and value > 0 for value in (rows, columns)) or size != rows * columns * kind.itemsize:
        raise FileFormatError(
            f"its {what} are to be {rows} x {columns}, and the database holds {size} bytes of them; run COLMAP's feature "
            "extraction again"
        )
    return np.frombuffer(data, dtype=kind).reshape(rows, columns).astype(kind.newbyteorder("="))


def _kind(connection: sqlite3.Connection, number: int) -> int:
    """The type of an image's descriptors; databases before COLMAP 4 have SIFT alone."""
    if b"type" not in {row[1] for row in _rows(connection, "PRAGMA table_info(descriptors)")}:
        return _UNDEFINED
    return int(_rows(connection, "SELECT type FROM descriptors WHERE image_id = ?", number)[0][0])


def _camera(connection: sqlite3.Connection, camera_id: int) -> Camera:
    """The camera of this id. Raises FileFormatError if it is missing or damaged, RangeError for a model that is not read."""
    from veil.colmap import pycolmap

    query = "SELECT model, width, height, params, prior_focal_length FROM cameras WHERE camera_id = ?"
    stored = _rows(connection, query, camera_id)
    if not stored:
        raise FileFormatError(f"its camera {camera_id} is not in the database; run COLMAP's feature extraction again")
    model, width, height, params, prior = stored[0]
    if not isinstance(params, bytes) or len(params) % 8:
        raise FileFormatError(f"the parameters of its camera {camera_id} are damaged; run COLMAP's feature extraction again")
    names = {int(value): name for name, value in pycolmap.CameraModelId.__members__.items()}
    camera = Camera(
        model=names.get(model, str(model)),
        width_px=int(width),
        height_px=int(height),
        params=tuple(np.frombuffer(params, dtype="<f8").tolist()),
        focal_is_known=bool(prior),
    )
    return checked_camera(camera)


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
        raise KindUnknown(
            "a COLMAP database does not say how its SIFT was normalized",
            remedy=Remedy("give", "read_colmap_database.space"),
        )
    return sift, rows


def _from_table(table: np.ndarray, stored: np.ndarray, space: Space, camera: Camera) -> Features:
    """Features from COLMAP's columns: x, y, then scale and orientation, or the affine shape a11 a12 a21 a22."""
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
    The file stays as it is, as in `read_colmap_database`; pycolmap would create and migrate tables in it.
    Raises FileFormatError if the file is no COLMAP database, or one without this column, or an image has two readings.
    """
    with _opened(path) as connection:
        columns = {row[1] for row in _rows(connection, "PRAGMA table_info(pose_priors)")}
        if not {b"gravity", b"corr_data_id", b"corr_sensor_type"} <= columns:
            raise FileFormatError(f"{path} has no gravity in its pose priors; COLMAP stores it since version 4.0")
        rows = _rows(
            connection,
            "SELECT name, prior.gravity FROM images LEFT JOIN pose_priors AS prior "
            "ON prior.corr_data_id = images.image_id AND prior.corr_sensor_type = ? ORDER BY name",
            _CAMERA,
        )
    if not rows:
        raise FileFormatError(f"{path} holds no images; run COLMAP's feature extraction first")
    named = ((f"row {row}", _name(name), _reading(stored)) for row, (name, stored) in enumerate(rows, start=1))
    return once(path, named)


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
