"""COLMAP databases that other tools filled: raw features, and gravity from pose priors.

Features are SIFT in 8 bits, and since COLMAP 4 also learned descriptors.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float32, Int64, UInt8

from veil.errors import FileFormatError, InputError, Remedy, VeilError
from veil.extraction.sift import likely_normalization, sift_space
from veil.features import Features
from veil.files.features import DAMAGE, KindUnknown, features_digest, inside, tell_converted, warn_of_zeros
from veil.files.sqlite import untouched
from veil.files.tables import once
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


def read_colmap_database(
    path: Path, *, space: Space | None = None, skipped: dict[str, VeilError] | None = None
) -> Iterator[tuple[str, Features]]:
    """Iterate over the images of a COLMAP database that have keypoints, as pairs of a name and its raw features.

    - `path`: the database, which may be locked or lie where nothing can be written; neither it nor its folder is changed.
    - `space`: of SIFT; None: as its numbers show, as the database does not say how it was normalized. What learned descriptors
      are it does say, since COLMAP 4.
    - `skipped`: takes the error of each image that cannot be used, by name; without it, such an error is raised.

    RootSIFT (L1_ROOT, COLMAP's default) becomes SIFT in L2, squared, normalized and rounded to 8 bits; a `VeilWarning` says so.
    Features whose descriptor is all zero are left out, and another `VeilWarning` gives their number.

    Raises FileFormatError if the file is no such database, descriptors are of a type that veil does not know or do not have
    its length, or no image has keypoints; InputError for SIFT too rare to show its normalization without `space`, and for
    images of different types.
    """
    sift = measured_space(path) if space is None else space
    before: Space | None = None
    zeros: dict[str, int] = {}
    for stored in stored_images(path, skipped=skipped):
        place = f"{path}, image {stored.name!r}"
        try:
            features, rows = features_of(stored, sift)
        except KindUnknown as error:
            raise error.at(place) from None
        except VeilError as error:
            if skipped is None:
                raise error.at(place) from None
            skipped[stored.name] = error
            continue
        if before not in (None, features.space):
            mixed = f"descriptors of [{features.space}] beside others of [{before}]; make a database of each"
            raise InputError(f"{place}: {mixed}")
        if before is None and sift is not None:
            tell_converted(path, sift, features)
        before = features.space
        zeros[stored.name] = len(stored.table) - len(rows)
        yield stored.name, features
    warn_of_zeros(path, zeros)
    if before is None and not skipped:
        raise FileFormatError(f"{path} holds no image with keypoints; run COLMAP's feature extraction first")


def measured_space(path: Path) -> Space | None:
    """The space of a database's SIFT, by the first of its images that shows it; None if none does.

    Raises FileFormatError if the file is no COLMAP database.
    """
    for stored in stored_images(path, skipped={}):
        if stored.kind in (_UNDEFINED, _SIFT) and stored.descriptors is not None:
            normalization = likely_normalization(stored.descriptors[stored.descriptors.any(axis=1)])
            if normalization is not None:
                return sift_space(normalization)
    return None


_IMAGES = """
SELECT i.image_id, i.name, i.camera_id, c.model, c.width, c.height, c.params, c.prior_focal_length,
k.rows, k.cols, k.data, d.rows, d.cols, d.data, {kind} FROM images AS i LEFT JOIN cameras AS c ON c.camera_id = i.camera_id
LEFT JOIN keypoints AS k ON k.image_id = i.image_id LEFT JOIN descriptors AS d ON d.image_id = i.image_id ORDER BY i.image_id
"""


def stored_images(path: Path, *, skipped: dict[str, VeilError] | None = None) -> Iterator[StoredImage]:
    """Iterate over the images of a COLMAP database that have keypoints, in the order of their ids.

    `skipped` takes the error of each image that is damaged, has no keypoints or is of a camera that veil does not read, by
    name; without it, such an error is raised, except for images without keypoints. Raises FileFormatError if the file is no
    such database, or has an image twice.
    """
    seen: set[str] = set()
    with _opened(path) as connection:
        typed = b"type" in {row[1] for row in connection.execute("PRAGMA table_info(descriptors)")}
        for number, stored_name, *row in connection.execute(_IMAGES.format(kind="d.type" if typed else _UNDEFINED)):
            name = f"(image {number})"
            try:
                name = _name(stored_name)
                stored = _stored(name, row)
            except (VeilError, *DAMAGE) as error:
                fault = error if isinstance(error, VeilError) else FileFormatError(f"it is damaged ({error}); extract it again")
                if skipped is None:
                    raise fault.at(f"{path}, image {name!r}") from None
                skipped[name] = fault
                continue
            if name in seen:
                raise FileFormatError(f"{path}: image {name!r} is there twice; remove one of them")
            seen.add(name)
            if stored is not None:
                yield stored
            elif skipped is not None:
                skipped[name] = FileFormatError("it has no keypoints")


def _stored(name: str, row: list[Any]) -> StoredImage | None:
    """The image of a row of `_IMAGES`; None if it has no keypoints."""
    table = _table("keypoints", row[6:9])
    if table is None:
        return None
    if table.shape[1] not in (2, 4, 6):
        raise FileFormatError(f"its keypoints have {table.shape[1]} columns, where COLMAP has 2, 4 or 6; extract it again")
    return StoredImage(
        name=name,
        camera=_camera(*row[:6]),
        table=table,
        kind=_UNDEFINED if row[12] is None else int(row[12]),
        descriptors=_table("descriptors", row[9:12]),
    )


_KIND_OF: dict[str, np.dtype[Any]] = {"keypoints": np.dtype("<f4"), "descriptors": np.dtype("u1")}


def _table(what: str, stored: list[Any]) -> np.ndarray | None:
    """The matrix of an image's keypoints or descriptors, from its number of rows and columns and its bytes; None if it has
    none. Raises FileFormatError for other bytes."""
    rows, columns, data = stored
    kind = _KIND_OF[what]
    if not rows and isinstance(rows, int | None):
        return None
    size = len(data) if isinstance(data, bytes) else 0
    if not all(isinstance(value, int) and value > 0 for value in (rows, columns)) or size != rows * columns * kind.itemsize:
        raise FileFormatError(
            f"its {what} are to be {rows} x {columns}, and the database holds {size} bytes of them; run COLMAP's feature "
            "extraction again"
        )
    return np.frombuffer(data, dtype=kind).reshape(rows, columns).astype(kind.newbyteorder("="))


def _camera(camera_id: object, model: Any, width: Any, height: Any, params: Any, known: Any) -> Camera:
    """The camera of a row. Raises FileFormatError if it is missing or damaged, RangeError for a model that is not read."""
    from veil.colmap import pycolmap

    if model is None:
        raise FileFormatError(f"its camera {camera_id} is not in the database; run COLMAP's feature extraction again")
    if not isinstance(params, bytes) or len(params) % 8:
        raise FileFormatError(f"the parameters of its camera {camera_id} are damaged; run COLMAP's feature extraction again")
    names = {int(value): name for name, value in pycolmap.CameraModelId.__members__.items()}
    return Camera(
        model=names.get(model, str(model)),
        width_px=int(width),
        height_px=int(height),
        params=tuple(np.frombuffer(params, dtype="<f8").tolist()),
        focal=FROM_DATABASE if known else GUESS,
    )


def count_colmap_images(path: Path) -> int | None:
    """Number of images that `read_colmap_database` reads; None where the file cannot be read, and that function says why."""
    try:
        with _opened(path) as connection:
            with_keypoints = "SELECT count(*) FROM images JOIN keypoints USING (image_id) WHERE rows > 0"
            return int(connection.execute(with_keypoints).fetchone()[0])
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


def _name(stored: object) -> str:
    """The name of an image. Raises FileFormatError for one that is empty or no text."""
    try:
        name = stored.decode() if isinstance(stored, bytes) else ""
    except UnicodeDecodeError:
        raise FileFormatError(f"its name {stored!r} is not UTF-8; rename it in the database") from None
    if not name:
        raise FileFormatError("it has no name; give it one in the database")
    return name


def features_of(stored: StoredImage, sift: Space | None) -> tuple[Features, Int64[np.ndarray, "_"]]:
    """Raw features of an image, and the row of each in the image's table. RootSIFT becomes SIFT in L2.

    `sift` is the space of SIFT. Features whose descriptor is all zero are left out. Raises FileFormatError for descriptors that
    are missing, or that veil does not know or do not have its length, InputError for SIFT without `sift`.
    """
    if stored.descriptors is None:
        raise FileFormatError("it has keypoints and no descriptors; run COLMAP's feature extraction again")
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
        raise KindUnknown(
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
    The file stays as it is, as in `read_colmap_database`; pycolmap would create and migrate tables in it.
    Raises FileFormatError if the file is no COLMAP database, or one without this column, or an image has two readings.
    """
    with _opened(path) as connection:
        columns = {row[1] for row in connection.execute("PRAGMA table_info(pose_priors)")}
        if not {b"gravity", b"corr_data_id", b"corr_sensor_type"} <= columns:
            raise FileFormatError(f"{path} has no gravity in its pose priors; COLMAP stores it since version 4.0")
        rows = connection.execute(
            "SELECT name, prior.gravity FROM images LEFT JOIN pose_priors AS prior "
            "ON prior.corr_data_id = images.image_id AND prior.corr_sensor_type = ? ORDER BY name",
            (_CAMERA,),
        ).fetchall()
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
        return NoGravity(reason=error.cause, remedy=error.remedy)
