"""Raw features on the client's disk: HDF5 files in hloc's layout, and COLMAP databases that other tools filled."""

from __future__ import annotations

import hashlib
import sqlite3
from collections.abc import Iterable, Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from veil.errors import FileFormatError, InputError, VeilError
from veil.features import Features
from veil.files.atomic import replacing
from veil.files.containers import own_dataset
from veil.geometry.camera import Camera, from_colmap, guessed
from veil.geometry.intrinsics import checked_camera, require_inside
from veil.space import NORMALIZATIONS, U8_STEP, Space

HDF5_SUFFIXES = (".h5", ".hdf5")
# hloc puts pixel centers at integers, COLMAP and veil at halves.
_HLOC_ORIGIN = np.float32(0.5)
# Errors that h5py and NumPy raise when a file's bytes or shapes are not what its layout promises.
_DAMAGE = (OSError, LookupError, TypeError, ValueError, RuntimeError, MemoryError)
_ATTRIBUTES = ("veil_descriptor", "veil_normalization", "veil_camera_model")


def holds_features(path: Path) -> bool:
    """Whether a path names a file of features: it ends in .h5 or .hdf5, in any case."""
    return path.suffix.lower() in HDF5_SUFFIXES


def write_features(path: Path, features: Iterable[tuple[str, Features]]) -> None:
    """Write raw features to an HDF5 file in hloc's layout, at once or not at all, readable by its owner only.

    - `path`: the file (.h5).
    - `features`: pairs of an image's name and its features, taken one by one.

    Each image is a group with keypoints (N, 2), descriptors (dim, N) and image_size as hloc writes them, and veil's own facts
    beside. Descriptors are written as unit-length float32 for other tools, and as the original 8 bits in `descriptors_u8`.
    Nobody but the owner can read the file, as raw features show what was in the picture. Raises InputError if it cannot be
    written.
    """
    import h5py

    with replacing(path, private=True) as temporary, h5py.File(temporary, "w") as file:
        for name, item in features:
            group = file.create_group(name)
            group["keypoints"] = item.keypoints - _HLOC_ORIGIN
            group["image_size"] = np.array([item.camera.width_px, item.camera.height_px])
            if item.is_quantized:
                group["descriptors_u8"] = item.descriptors
                unit = item.descriptors.astype(np.float32)
                unit /= np.linalg.norm(unit, axis=1, keepdims=True)
                group["descriptors"] = unit.T
            else:
                group["descriptors"] = item.descriptors.T
            for key, values in (("scales", item.scales), ("orientations", item.orientations)):
                if values is not None:
                    group[key] = values
            group.attrs["veil_descriptor"] = item.space.descriptor
            group.attrs["veil_normalization"] = item.space.normalization
            group.attrs["veil_camera_model"] = item.camera.model
            group.attrs["veil_camera_params"] = np.array(item.camera.params)
            group.attrs["veil_focal_is_known"] = item.camera.focal_is_known
            group.attrs["veil_image_digest"] = item.image_digest.hex()


def read_features(
    path: Path, *, space: Space | None = None, cameras: dict[str, Camera] | None = None
) -> Iterator[tuple[str, Features]]:
    """Iterate over the images of an HDF5 file in hloc's layout, as pairs of a name and its raw features, sorted by name.

    - `path`: a file that `write_features`, `veil extract` or hloc wrote.
    - `space`: what the descriptors are, where the file does not say it (files of other tools).
    - `cameras`: intrinsics by image name, where the file does not hold them; otherwise they are guessed from the image size.

    Errors are raised while iterating: FileFormatError for a missing or damaged file or another layout, InputError for features
    that do not fit together, lie outside their image, or are of an unknown kind.
    """
    import h5py

    if not path.is_file():
        raise FileFormatError(f"there is no file {path}; `veil extract` makes files of features")
    try:
        file = h5py.File(path, "r")
    except OSError as error:
        raise FileFormatError(f"{path} is not an HDF5 file of features ({error})") from None
    with file:
        try:
            names = _image_names(file)
        except _DAMAGE as error:
            raise FileFormatError(f"{path} is damaged ({error}); get or extract it again") from None
        if not names:
            raise FileFormatError(f"{path} holds no group with `keypoints` and `descriptors`; is it hloc's layout?")
        for name in names:
            try:
                yield name, _read_group(name, file[name], space, cameras or {})
            except VeilError as error:
                raise type(error)(f"{path}, image {name!r}: {error}") from None
            except _DAMAGE as error:
                raise FileFormatError(f"{path}, image {name!r}: damaged or not hloc's layout ({error})") from None


def read_one(path: Path, name: str) -> Features:
    """The raw features of one image of a file that `read_features` reads.

    Raises FileFormatError if the file or the image is missing or damaged, InputError for features that do not fit together.
    """
    import h5py

    try:
        with h5py.File(path, "r") as file:
            return _read_group(name, file[name], None, {})
    except VeilError as error:
        raise type(error)(f"{path}, image {name!r}: {error}") from None
    except _DAMAGE as error:
        raise FileFormatError(f"{path}, image {name!r}: missing, damaged or not hloc's layout ({error})") from None


def _image_names(file: Any) -> list[str]:
    """Names of the groups that hold `keypoints` and `descriptors`, sorted, from the names of all links.

    To open every object would take ten times as long, and in nested groups time that grows with the square of their depth.
    """
    links: list[str] = []
    file.visit_links(links.append)
    owners = ({link[: -len(part)] for link in links if link.endswith(part)} for part in ("/keypoints", "/descriptors"))
    return sorted(set.intersection(*owners))


def _read_group(name: str, group: Any, space: Space | None, cameras: dict[str, Camera]) -> Features:
    keypoints = np.ascontiguousarray(np.asarray(own_dataset(group, "keypoints"), dtype=np.float32)[:, :2] + _HLOC_ORIGIN)
    stored = np.asarray(own_dataset(group, "descriptors_u8" if "descriptors_u8" in group else "descriptors"))
    stored = stored if "descriptors_u8" in group else stored.T
    own = all(key in group.attrs for key in _ATTRIBUTES)
    if own:
        space = Space(
            descriptor=str(group.attrs["veil_descriptor"]),
            normalization=_normalization(str(group.attrs["veil_normalization"])),
            dim=stored.shape[1],
        )
    if space is None:
        raise InputError("the file does not say what its descriptors are; say it, for example with --imported superpoint:256")
    if stored.shape != (len(keypoints), space.dim):
        raise InputError(f"expected descriptors ({space.dim}, {len(keypoints)}), got {stored.T.shape}")
    descriptors = stored if stored.dtype == np.uint8 else _as_stored(stored.astype(np.float32), space)
    camera = checked_camera(_camera_from_attributes(group) if own else cameras.get(name) or _camera_from_size(group))
    return _inside(
        Features(
            keypoints=keypoints,
            descriptors=descriptors,
            space=space,
            camera=camera,
            image_digest=_stored_digest(group) or features_digest(keypoints, descriptors),
            scales=np.asarray(own_dataset(group, "scales"), dtype=np.float32) if "scales" in group else None,
            orientations=np.asarray(own_dataset(group, "orientations"), dtype=np.float32) if "orientations" in group else None,
        )
    )


def _inside(features: Features) -> Features:
    """The features themselves; raises InputError if keypoints lie outside the image."""
    require_inside(features.camera, features.keypoints)
    return features


def _as_stored(descriptors: np.ndarray, space: Space) -> np.ndarray:
    """Descriptors as veil stores them: SIFT that another tool stored as floats becomes uint8 again, and is treated as such."""
    if space.descriptor != "sift":
        return np.ascontiguousarray(descriptors)
    steps = descriptors / U8_STEP if descriptors.max(initial=0) <= 1.0 else descriptors
    if not np.isfinite(steps).all():
        raise InputError("descriptors contain NaN or infinity")
    lengths = np.linalg.norm(steps, axis=1)
    if not (lengths > 0).all():
        raise InputError("some SIFT descriptors are all zero; drop them before import")
    return np.clip(np.round(steps * (512.0 / lengths)[:, None]), 0, 255).astype(np.uint8)


def _normalization(text: str):  # type: ignore[no-untyped-def]
    if text not in NORMALIZATIONS:
        raise InputError(f"normalization must be one of {NORMALIZATIONS}, got {text!r}")
    return text


def _camera_from_attributes(group: Any) -> Camera:
    width, height = (int(side) for side in own_dataset(group, "image_size"))
    return Camera(
        model=str(group.attrs["veil_camera_model"]),
        width_px=width,
        height_px=height,
        params=tuple(float(value) for value in group.attrs["veil_camera_params"]),
        focal_is_known=bool(group.attrs["veil_focal_is_known"]),
    )


def _camera_from_size(group: Any) -> Camera:
    if "image_size" not in group:
        raise InputError("the file has no `image_size`, so the camera is unknown; give the photographs or a camera")
    width, height = (int(side) for side in own_dataset(group, "image_size"))
    return guessed(width, height)


def _stored_digest(group: Any) -> bytes | None:
    text = group.attrs.get("veil_image_digest")
    try:
        return bytes.fromhex(str(text)) if text is not None else None
    except ValueError:
        raise InputError("the stored image digest is damaged; extract again") from None


def features_digest(keypoints: np.ndarray, descriptors: np.ndarray) -> bytes:
    """The digest (32 bytes) of an image of which only features are known; it does not depend on their order."""
    rows = sorted(hashlib.blake2b(k.tobytes() + d.tobytes()).digest() for k, d in zip(keypoints, descriptors, strict=True))
    return hashlib.blake2b(b"features|" + b"".join(rows), digest_size=32).digest()


def read_colmap_database(path: Path, *, space: Space) -> Iterator[tuple[str, Features]]:
    """Iterate over the images of a COLMAP database that have keypoints, as pairs of a name and its raw features.

    COLMAP's database does not say how its SIFT was normalized (L1_ROOT by default): `space` does.
    Raises FileFormatError if the file is no such database, its descriptors do not have 8 bits, or no image has keypoints.
    """
    import pycolmap

    require_colmap(path)
    try:
        database = pycolmap.Database.open(path)
    except (RuntimeError, ValueError) as error:
        raise FileFormatError(f"{path} is not a COLMAP database ({error}); give the one of feature extraction") from None
    empty = True
    try:
        for image in database.read_all_images():
            if database.num_keypoints_for_image(image.image_id):
                empty = False
                yield image.name, _read_image(database, image, space)
    except VeilError as error:
        raise type(error)(f"{path}, image {image.name!r}: {error}") from None
    except _DAMAGE as error:
        raise FileFormatError(f"{path} is damaged ({error}); run COLMAP's feature extraction again") from None
    finally:
        database.close()
    if empty:
        raise FileFormatError(f"{path} holds no image with keypoints; run COLMAP's feature extraction first")


def require_colmap(path: Path) -> None:
    """Raise FileFormatError unless the file is a COLMAP database; COLMAP itself would create its tables in any SQLite file."""
    if not path.is_file():
        raise FileFormatError(f"there is no COLMAP database {path}")
    try:
        with closing(sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro", uri=True)) as connection:
            tables = {row[0] for row in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
    except (sqlite3.DatabaseError, UnicodeDecodeError) as error:
        raise FileFormatError(f"{path} is not a COLMAP database ({error}); give the one of feature extraction") from None
    if not {"cameras", "images", "keypoints", "descriptors"} <= tables:
        raise FileFormatError(f"{path} is a database, but not one of COLMAP; give the one of feature extraction")


def _read_image(database: Any, image: Any, space: Space) -> Features:
    stored_camera = database.read_camera(image.camera_id)
    camera = replace(from_colmap(stored_camera), focal_is_known=bool(stored_camera.has_prior_focal_length))
    table = np.asarray(database.read_keypoints(image.image_id), dtype=np.float32)
    stored = np.asarray(database.read_descriptors(image.image_id).data)
    if stored.dtype != np.uint8 or stored.shape != (len(table), space.dim):
        raise FileFormatError(
            f"expected 8-bit descriptors ({len(table)}, {space.dim}), got {stored.dtype} {stored.shape}; "
            "extract SIFT with COLMAP"
        )
    return _from_table(table, stored, space, camera)


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
    return _inside(
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
