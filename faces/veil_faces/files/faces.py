"""Descriptors of faces on disk: .npz or HDF5 files of N x d numbers with names and labels."""

from __future__ import annotations

import struct
import tokenize
import zipfile
import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from veil.errors import FileFormatError, InputError
from veil.features import unit_length
from veil.files.atomic import replacing
from veil.files.containers import own_dataset, require_filled
from veil.files.features import HDF5_SUFFIXES
from veil.files.tables import once, read_table
from veil.space import Space
from veil_faces.collection import IDENTITY, Faces

_DAMAGE = (
    *(OSError, EOFError, zipfile.BadZipFile, zlib.error, struct.error, NotImplementedError, RuntimeError, MemoryError),
    *(ValueError, LookupError, TypeError, AttributeError, tokenize.TokenError),
)
LARGEST_MODEL = 2**31  # a protocol buffer is smaller
VECTORS, NAMES, DESCRIPTOR = "vectors", "names", "descriptor"


def holds_faces(path: Path) -> bool:
    """Whether a path names a file of face descriptors: it ends in .npz, .h5 or .hdf5, in any case."""
    return path.suffix.lower() in (".npz", *HDF5_SUFFIXES)


def write_faces(path: Path, faces: Faces) -> None:
    """Write an .npz of `vectors`, `names`, `descriptor` and one array of strings for each label, at once or not at all.

    Only its owner can read the file, as raw descriptors tell who a person is. Raises InputError if it cannot be written.
    """
    arrays = {VECTORS: faces.vectors, NAMES: np.array(faces.names), DESCRIPTOR: np.array(faces.space.descriptor)}
    with replacing(path, private=True) as temporary, temporary.open("wb") as file:
        np.savez(file, **arrays, **{name: np.array(values) for name, values in faces.labels.items()})  # type: ignore[arg-type]


def read_faces(path: Path, *, descriptor: str = "face") -> Faces:
    """Faces of an .npz or HDF5 file, with vectors scaled to unit length; `descriptor` names them where the file does not.

    Raises FileFormatError if the file is damaged or has no `vectors` of (N, d).
    """
    import h5py

    try:
        arrays = _hdf5(path) if h5py.is_hdf5(path) else _npz(path)
        vectors = arrays.pop(VECTORS)
        if vectors.ndim != 2 or vectors.dtype.kind != "f" or 0 in vectors.shape:
            raise FileFormatError(f"{path}: `{VECTORS}` must be floats of shape (N, d), got {vectors.dtype} {vectors.shape}")
        count = len(vectors)
        names = _texts(arrays.pop(NAMES)) if NAMES in arrays else tuple(str(k) for k in range(count))
        named = _texts(np.atleast_1d(arrays.pop(DESCRIPTOR)))[0] if DESCRIPTOR in arrays else descriptor
        labels = {name: _texts(values) for name, values in arrays.items() if values.shape == (count,)}
        lengths = np.linalg.norm(vectors.astype(np.float64), axis=1)
        if not (np.isfinite(lengths) & (lengths > 0)).all():
            raise FileFormatError(f"{path}: a descriptor is zero, NaN or infinite; drop those faces")
        unit = unit_length(vectors.astype(np.float64)).astype(np.float32)
        space = Space(descriptor=named, normalization="L2", dim=vectors.shape[1])
        return Faces(vectors=unit, names=names, space=space, labels=labels)
    except FileFormatError:
        raise
    except InputError as error:
        raise FileFormatError(f"{path}: {error}") from None
    except _DAMAGE as error:
        raise FileFormatError(f"{path} holds no faces, or is damaged ({error}); it needs `{VECTORS}` of (N, d)") from None


def _npz(path: Path) -> dict[str, np.ndarray]:
    require_filled(path)
    with np.load(path, allow_pickle=False) as file:
        return {name: file[name] for name in file.files}


def _hdf5(path: Path) -> dict[str, np.ndarray]:
    import h5py

    with h5py.File(path, "r") as file:
        return {name: np.asarray(own_dataset(file, name)) for name, item in file.items() if isinstance(item, h5py.Dataset)}


def _texts(values: np.ndarray) -> tuple[str, ...]:
    return tuple(item.decode() if isinstance(item, bytes) else str(item) for item in values.tolist())


def read_model(path: Path) -> bytes:
    """The bytes of an ONNX network. Raises FileFormatError if there is no such file, or it is larger than ONNX files can be."""
    try:
        if path.is_file() and path.stat().st_size < LARGEST_MODEL:
            return path.read_bytes()
    except OSError as error:
        raise FileFormatError(f"{path} cannot be read ({error})") from None
    raise FileFormatError(f"{path} is no file, or larger than a network in one file can be (2 GiB)")


def read_labels(path: Path, labels: Sequence[str] = ()) -> list[dict[str, str]]:
    """The rows of a CSV with a column `file` and one for each of `labels`. Raises FileFormatError for another table, and for a
    column or a file that is there twice."""
    people = read_table(path, ("file", *labels))
    return list(once(path, ((f"line {number}", person["file"], person) for number, person in people)).values())


def identities(faces: Faces) -> Faces:
    """The faces with the label `identity`; where they have none, it is the folder of each picture, as in LFW."""
    if IDENTITY in faces.labels:
        return faces
    folders = tuple(Path(name).parent.name or name for name in faces.names)
    labels: Mapping[str, tuple[str, ...]] = {**faces.labels, IDENTITY: folders}
    return Faces(vectors=faces.vectors, names=faces.names, space=faces.space, labels=labels)
