"""Gravity from the pose priors of a COLMAP database."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import numpy as np

from veil.errors import FileFormatError, InputError
from veil.files.colmap_databases import require_colmap
from veil.geometry.gravity import Gravity, NoGravity

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
