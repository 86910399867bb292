"""COLMAP databases that other tools filled: raw features, and gravity from pose priors.

Features are SIFT in 8 bits, and since COLMAP 4 also learned descriptors.
"""

from __future__ import annotations

import shutil
import sqlite3
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float32, Int64, UInt8

from veil.errors import FileFormatError, InputError, Remedy, VeilError
from veil.extraction.sift import likely_normalization, sift_space
from veil.features import Features
from veil.files.features import DAMAGE, features_digest, inside, tell_converted
from veil.geometry.camera import FROM_DATABASE, GUESS, Camera, checked_camera
from veil.geometry.gravity import Gravity, NoGravity
from veil.space import Space, known_space

# `FeatureExtractorType` of COLMAP 4, the column `type` of its table `descriptors`. Older databases have no such column, and
# COLMAP takes what they hold for SIFT.
_UNDEFINED, _SIFT = -1, 0
_LEARNED = {1: "aliked-n16rot", 2: "aliked-n32", 3: "loma-b", 4: "loma-b128"}


@dataclass(frozen=True, kw_only=True, eq=False)
class StoredImage:
    """Image of a COLMAP database, as it is stored.

    - `name`, `camera`: of the image; whether the focal length is known is what the database says.
    - `table`, float32 (N, 2, 4 or 6): x, y, then scale and orientation, or the affine shape a11 a12 a21 a22.
    - `kind`: COLMAP's type of its descriptors.
    - `descriptors`, uint8 (N, bytes): SIFT, or the bytes of float32 numbers; None where the database has none of the image.
    """

    name: str
    camera: Camera
    table: Float32[np.ndarray, "_ _"]
    kind: int
    descriptors: UInt8[np.ndarray, "_ _"] | None

    @property
    def scales_and_orientations(self) -> tuple[Float32[np.ndarray, "_"], Float32[np.ndarray, "_"]] | None:
        """Scales in pixels and orientations in radians of the keypoints; None where the database has positions alone."""
        table = self.table
        if table.shape[1] == 4:
            return table[:, 2].copy(), table[:, 3].copy()
        if table.shape[1] == 6:
            scales = 0.5 * (np.hypot(table[:, 2], table[:, 4]) + np.hypot(table[:, 3], table[:, 5]))
            return scales, np.arctan2(table[:, 4], table[:, 2])
        return None


def read_colmap_database(path: Path, *, space: Space | None = None) -> Iterator[tuple[str, Features]]:
    """Iterate over the images of a COLMAP database that have keypoints, as pairs of a name and its raw features.

    - `path`: the database, which is read only, also where another program has locked it.
    - `space`: of SIFT; None: as its numbers show, as the database does not say how it was normalized. What learned descriptors
      are it does say, since COLMAP 4.

    RootSIFT (L1_ROOT, COLMAP's default) becomes SIFT in L2, squared, normalized and rounded to 8 bits; a `VeilWarning` says so.
    Features whose descriptor is all zero are left out.

    Raises FileFormatError if the file is no such database, descriptors are of a type that veil does not know or do not have
    its length, or no image has keypoints; InputError for SIFT too rare to show its normalization without `space`, and for
    images of different types.
    """
    sift = measured_space(path) if space is None else space
    before: Space | None = None
    for stored in stored_images(path):
        try:
            features, _ = features_of(stored, sift)
            if before not in (None, features.space):
                raise InputError(f"descriptors of [{features.space}] beside others of [{before}]; make a database of each")
        except VeilError as error:
            raise error.at(f"{path}, image {stored.name!r}") from None
        if before is None and sift is not None:
            tell_converted(path, sift, features)
        before = features.space
        yield stored.name, features
    if before is None:
        raise FileFormatError(f"{path} holds no image with keypoints; run COLMAP's feature extraction first")


def measured_space(path: Path) -> Space | None:
    """The space of a database's SIFT, by the first of its images that shows it; None if none does.

    Raises FileFormatError as `read_colmap_database` does.
    """
    for stored in stored_images(path):
        if stored.kind in (_UNDEFINED, _SIFT) and stored.descriptors is not None:
            normalization = likely_normalization(stored.descriptors[stored.descriptors.any(axis=1)])
            if normalization is not None:
                return sift_space(normalization)
    return None


def stored_images(path: Path) -> Iterator[StoredImage]:
    """Iterate over the images of a COLMAP database that have keypoints, in the order of their ids.

    Raises FileFormatError if the file is no such database, or an image is damaged or of a camera that veil does not read.
    """
    require_colmap(path)
    try:
        with _opened(path) as connection:
            typed = "type" in {row[1] for row in connection.execute("PRAGMA table_info(descriptors)")}
            for name, camera, keypoints, descriptors in _rows(connection, typed=typed):
                try:
                    yield _stored(str(name), camera, keypoints, descriptors)
                except VeilError as error:
                    raise error.at(f"{path}, image {name!r}") from None
    except VeilError:
        raise
    except (sqlite3.Error, UnicodeDecodeError, *DAMAGE) as error:
        raise FileFormatError(f"{path} is damaged ({error}); run COLMAP's feature extraction again") from None


def _rows(connection: sqlite3.Connection, *, typed: bool) -> Iterator[tuple[Any, tuple, tuple, tuple]]:
    """Name, camera, keypoints and descriptors of each image with keypoints, as their tables hold them."""
    query = (
        "SELECT name, model, width, height, params, prior_focal_length, k.rows, k.cols, k.data, d.rows, d.cols, d.data, "
        + ("d.type " if typed else f"{_UNDEFINED} ")
        + "FROM images LEFT JOIN cameras USING (camera_id) JOIN keypoints AS k USING (image_id) "
        "LEFT JOIN descriptors AS d USING (image_id) WHERE k.rows > 0 ORDER BY image_id"
    )
    for row in connection.execute(query):
        yield row[0], row[1:6], row[6:9], row[9:]


def _stored(name: str, camera: tuple, keypoints: tuple, descriptors: tuple) -> StoredImage:
    rows, columns, data, kind = descriptors
    return StoredImage(
        name=name,
        camera=_camera(*camera),
        table=_array(keypoints, "<f4").astype(np.float32),
        kind=_UNDEFINED if kind is None else int(kind),
        descriptors=_array((rows, columns, data), "u1") if rows else None,
    )


def _camera(model: Any, width: Any, height: Any, params: Any, known: Any) -> Camera:
    from veil.colmap import pycolmap

    if model is None:
        raise FileFormatError("the database has no camera of the image; run COLMAP's feature extraction again")
    return Camera(
        model=pycolmap.CameraModelId(int(model)).name,
        width_px=int(width),
        height_px=int(height),
        params=tuple(np.frombuffer(params, dtype="<f8").tolist()),
        focal=FROM_DATABASE if known else GUESS,
    )


def _array(stored: tuple[Any, Any, Any], dtype: str) -> np.ndarray:
    """The matrix of a row: number of rows and columns, and bytes. Raises FileFormatError if they do not belong together."""
    rows, columns, data = stored
    values = np.frombuffer(data or b"", dtype=dtype)
    if len(values) != rows * columns or columns < 2:
        raise FileFormatError(f"{rows} rows of {columns} columns were stored in {len(data or b'')} bytes; it is damaged")
    return values.reshape(rows, columns)


def count_colmap_images(path: Path) -> int | None:
    """Number of images that `read_colmap_database` reads; None where the file cannot be read, and that function says why."""
    try:
        require_colmap(path)
        with _opened(path) as connection:
            with_keypoints = "SELECT count(*) FROM images JOIN keypoints USING (image_id) WHERE rows > 0"
            return int(connection.execute(with_keypoints).fetchone()[0])
    except (VeilError, sqlite3.Error):
        return None


def require_colmap(path: Path) -> None:
    """Raise FileFormatError unless the file is a COLMAP database; COLMAP itself would create its tables in any SQLite file."""
    if not path.is_file():
        raise FileFormatError(f"there is no COLMAP database {path}")
    try:
        with _opened(path) as connection:
            tables = {row[0] for row in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
    except (sqlite3.DatabaseError, UnicodeDecodeError) as error:
        raise FileFormatError(f"{path} is not a COLMAP database ({error}); give the one of feature extraction") from None
    if not {"cameras", "images", "keypoints", "descriptors"} <= tables:
        raise FileFormatError(f"{path} is a database, but not one of COLMAP; give the one of feature extraction")


@contextmanager
def _opened(path: Path) -> Iterator[sqlite3.Connection]:
    """A connection for reading, which writes nothing and needs no lock, so that a file in use or on a read-only disk serves.

    Where another program left a journal, the file and its journal are copied first, as only a writer may merge the two.
    """
    journals = [path.with_name(path.name + suffix) for suffix in ("-wal", "-journal")]
    with ExitStack() as stack:
        if any(journal.is_file() and journal.stat().st_size for journal in journals):
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="veil-database-")))
            for source in filter(Path.is_file, (path, *journals)):
                shutil.copyfile(source, folder / source.name)
            address = f"{(folder / path.name).as_uri()}?mode=rw"
        else:
            address = f"{path.resolve().as_uri()}?mode=ro&immutable=1"
        yield stack.enter_context(closing(sqlite3.connect(address, uri=True)))


def features_of(stored: StoredImage, sift: Space | None) -> tuple[Features, Int64[np.ndarray, "_"]]:
    """Raw features of an image, and the row of each in the image's table. RootSIFT becomes SIFT in L2.

    `sift` is the space of SIFT. Raises FileFormatError for descriptors that are missing, or that veil does not know or do not
    have its length, InputError for SIFT without `sift`.
    """
    if stored.descriptors is None:
        raise FileFormatError("the database has no descriptors of the image; run COLMAP's feature extraction again")
    space, values = _typed(stored.kind, stored.descriptors, sift)
    if values.shape != (len(stored.table), space.dim):
        raise FileFormatError(
            f"expected descriptors ({len(stored.table)}, {space.dim}) of {space.descriptor}, got {values.dtype} "
            f"{values.shape}; run COLMAP's feature extraction again"
        )
    rows = np.flatnonzero(values.any(axis=1))
    return _from_table(stored, values, space, rows).in_l2(), rows


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
            "its SIFT is too rare to show how it was normalized, and a COLMAP database does not say so",
            remedy=Remedy("give", "read_colmap_database.space"),
        )
    return sift, rows


def _from_table(stored: StoredImage, values: np.ndarray, space: Space, rows: np.ndarray) -> Features:
    """Features of the `rows` of an image's table, with the descriptors `values` of all of them."""
    kept = np.ascontiguousarray(values[rows])
    shape = stored.scales_and_orientations
    keypoints = np.ascontiguousarray(stored.table[rows, :2])
    return inside(
        Features(
            keypoints=keypoints,
            descriptors=kept,
            space=space,
            camera=checked_camera(stored.camera),
            image_digest=features_digest(keypoints, kept),
            scales=None if shape is None else shape[0][rows],
            orientations=None if shape is None else shape[1][rows],
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
        with _opened(path) as connection:
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
        return NoGravity(reason=error.cause, remedy=error.remedy)
