"""Indexes of maps on disk: folders of plain arrays with a header, written at once and mapped into memory when they are used.

- By words: `MAP/vocabularies/DIGEST/` holds one .npy file an array and `header.json`, which names the map and the dictionary
  that they were made from. DIGEST are the first 16 hex digits of the dictionary's hash.
- For queries by distance: `MAP/indexes/points/`.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from veil.errors import FileFormatError, Remedy, VeilError
from veil.files.atomic import read_bytes, replacing_folder, writing
from veil.files.maps.format import map_fingerprint
from veil.matching.inverted_index import InvertedIndex
from veil.matching.point_index import PointIndex
from veil.space import Space

FORMAT = 1


def write_arrays(target: Path, header: Mapping[str, Any], arrays: Mapping[str, np.ndarray], *, map_folder: Path) -> None:
    """Write arrays of a map's index and their header to a folder, at once or not at all; an older folder is replaced.

    The header is completed by the format and by the state of the map. Raises InputError if it cannot be written.
    """
    whole = {"format": FORMAT, "map": map_fingerprint(map_folder), **header}
    with writing(target), replacing_folder(target) as temporary:
        for name, array in arrays.items():
            np.save(temporary / f"{name}.npy", array)
        (temporary / "header.json").write_text(json.dumps(whole, indent=1))
        temporary.chmod(0o755)
        if target.exists():
            shutil.rmtree(target)
        temporary.rename(target)


def read_header(folder: Path, *, map_folder: Path) -> dict[str, Any]:
    """The header of an index of a map.

    Raises FileFormatError for another format or another state of the map, and what reading and parsing raise.
    """
    header = json.loads(read_bytes(folder / "header.json"))
    if header["format"] != FORMAT:
        raise FileFormatError(f"{folder} is an index of another format", remedy=Remedy("renew", "index"))
    if header["map"] != map_fingerprint(map_folder):
        raise FileFormatError(f"{folder} was made from another state of the map", remedy=Remedy("renew", "index"))
    return header


def mapped_array(folder: Path, name: str, dtype: str, dimensions: int = 1) -> np.ndarray:
    """The array of a folder, mapped into memory. Raises ValueError if it is of another type or number of dimensions."""
    array = np.load(folder / f"{name}.npy", mmap_mode="r", allow_pickle=False)
    if array.ndim != dimensions or array.dtype != np.dtype(dtype):
        raise ValueError(f"{name}.npy holds {array.dtype} of {array.ndim} dimensions")
    return array


# The arrays of an index by the names of their files, which are protocol.
_ARRAYS = {"offsets": "offsets", "point_rows": "point_rows", "chance": "probability", "frequency": "frequency"}
_IMAGE_ARRAYS = ("data", "indices", "indptr")
_DTYPES = {
    "offsets": "i8",
    "point_rows": "i4",
    "chance": "f4",
    "frequency": "f4",
    "data": "f4",
    "indices": "i4",
    "indptr": "i4",
}


def vocabulary_folder(map_folder: Path, dictionary: str) -> Path:
    """The folder of a map's index for a dictionary (SHA-256 in hex)."""
    return map_folder / "vocabularies" / dictionary[:16]


def write_vocabulary(map_folder: Path, vocabulary: InvertedIndex) -> Path:
    """Write an index into the map's folder, at once or not at all, and return its folder.

    An older index for the same dictionary is replaced. Raises InputError if it cannot be written.
    """
    target = vocabulary_folder(map_folder, vocabulary.dictionary)
    header = {"dictionary": vocabulary.dictionary, "image_names": list(vocabulary.image_names)}
    arrays = {name: getattr(vocabulary, attribute).astype(_DTYPES[name]) for name, attribute in _ARRAYS.items()}
    for name in _IMAGE_ARRAYS:
        arrays[f"image_{name}"] = getattr(vocabulary.image_words, name).astype(_DTYPES[name])
    write_arrays(target, header, arrays, map_folder=map_folder)
    return target


def read_vocabulary(map_folder: Path, dictionary: str) -> InvertedIndex | None:
    """The index of a map for a dictionary, with arrays mapped into memory; None if the map has none for it.

    Raises FileFormatError if the index is damaged or was made from another state of the map.
    """
    folder = vocabulary_folder(map_folder, dictionary)
    if not folder.is_dir():
        return None
    try:
        header = read_header(folder, map_folder=map_folder)
        if header["dictionary"] != dictionary:
            raise FileFormatError(f"{folder} is an index of another dictionary", remedy=Remedy("renew", "index"))
        return _word_index(folder, header)
    except (OSError, ValueError, LookupError, TypeError, EOFError, AttributeError) as error:
        if isinstance(error, FileFormatError):
            raise
        raise FileFormatError(f"{folder} is damaged ({error})", remedy=Remedy("renew", "index")) from None


def indexed_dictionaries(map_folder: Path) -> list[str]:
    """The dictionaries (SHA-256 in hex) that a map is indexed for, sorted. Raises FileFormatError for a damaged index."""
    folders = sorted(map_folder.glob("vocabularies/*"))
    try:
        return sorted(str(read_header(folder, map_folder=map_folder)["dictionary"]) for folder in folders if folder.is_dir())
    except (OSError, ValueError, LookupError, TypeError) as error:
        raise FileFormatError(f"an index in {map_folder} is damaged ({error})", remedy=Remedy("renew", "index")) from None


def _word_index(folder: Path, header: dict[str, Any]) -> InvertedIndex:
    """The index of the arrays in `folder`. Raises ValueError if they do not fit together."""
    from scipy.sparse import csr_array

    arrays = {name: mapped_array(folder, name, _DTYPES[name]) for name in _ARRAYS}
    data, indices, indptr = (mapped_array(folder, f"image_{name}", _DTYPES[name]) for name in _IMAGE_ARRAYS)
    names = tuple(str(name) for name in header["image_names"])
    words = len(arrays["offsets"]) - 1
    offsets, entries = arrays["offsets"], len(arrays["point_rows"])
    if words < 2 or offsets[0] != 0 or offsets[-1] != entries or (np.diff(offsets) < 0).any():
        raise ValueError("the inverted lists do not fit together")
    if len(arrays["chance"]) != entries or len(arrays["frequency"]) != words or len(indptr) != len(names) + 1:
        raise ValueError("arrays have different lengths")
    if entries and int(arrays["point_rows"].min()) < 0:
        raise ValueError("an entry names no point")
    image_words = csr_array((data, indices, indptr), shape=(len(names), words))
    image_words.check_format(full_check=True)
    given: dict[str, Any] = {_ARRAYS[name]: array for name, array in arrays.items()}
    return InvertedIndex(dictionary=header["dictionary"], image_names=names, image_words=image_words, **given)


POINTS = Path("indexes") / "points"
# Types and numbers of dimensions of the arrays of an index by the names of their files, which are protocol.
_POINT_ARRAYS = {
    "words": ("f4", 2),
    "mean": ("f4", 1),
    "deviation": ("f4", 1),
    "offsets": ("i8", 1),
    "entries": ("i4", 1),
    "starts": ("i8", 1),
    "views": ("f2", 3),
    "seen_from": ("i8", 1),
    "images": ("i4", 1),
}


def write_point_index(map_folder: Path, index: PointIndex) -> Path:
    """Write an index into the map's folder, at once or not at all, and return its folder; an older one is replaced.

    Raises InputError if it cannot be written.
    """
    target = map_folder / POINTS
    header = {"space": asdict(index.space), "hardened": index.hardened, "image_names": list(index.image_names)}
    arrays = {name: np.asarray(getattr(index, name), dtype=dtype) for name, (dtype, _) in _POINT_ARRAYS.items()}
    write_arrays(target, header, arrays, map_folder=map_folder)
    return target


def read_point_index(map_folder: Path) -> PointIndex | None:
    """The index of a map for queries by distance, with arrays mapped into memory; None if the map has none.

    Raises FileFormatError if the index is damaged or was made from another state of the map.
    """
    folder = map_folder / POINTS
    if not folder.is_dir():
        return None
    try:
        return _point_index(folder, read_header(folder, map_folder=map_folder))
    except (OSError, ValueError, LookupError, TypeError, EOFError, AttributeError, VeilError) as error:
        if isinstance(error, FileFormatError):
            raise
        raise FileFormatError(f"{folder} is damaged ({error})", remedy=Remedy("renew", "index")) from None


def _point_index(folder: Path, header: dict[str, Any]) -> PointIndex:
    """The index of the arrays in `folder`. Raises ValueError if they do not fit together."""
    arrays = {name: mapped_array(folder, name, *kind) for name, kind in _POINT_ARRAYS.items()}
    names = tuple(str(name) for name in header["image_names"])
    space = Space(**header["space"])
    words, views = arrays["words"], arrays["views"]
    for bounds, listed in (("offsets", "entries"), ("starts", "views"), ("seen_from", "images")):
        ends = arrays[bounds]
        if not len(ends) or ends[0] != 0 or ends[-1] != len(arrays[listed]) or (np.diff(ends) < 0).any():
            raise ValueError(f"{bounds} and {listed} do not fit together")
    if words.shape[1] != space.dim or views.shape[2] != space.dim or not views.shape[1]:
        raise ValueError("arrays have different dimensions")
    if len(arrays["offsets"]) != len(words) + 1 or not len(words) == len(arrays["mean"]) == len(arrays["deviation"]):
        raise ValueError("arrays have different numbers of words")
    points = len(arrays["starts"]) - 1
    if len(arrays["seen_from"]) != points + 1 or not _below(arrays["entries"], points):
        raise ValueError("an entry names a point that is not there")
    if not _below(arrays["images"], len(names)):
        raise ValueError("an observation names an image that is not there")
    # Of the views, which may be gigabytes, none is read here; one that is no number gets no vote.
    if not np.isfinite(words).all():
        raise ValueError("the words hold NaN or infinity")
    return PointIndex(space=space, hardened=bool(header["hardened"]), image_names=names, **arrays)


def _below(numbers: np.ndarray, limit: int) -> bool:
    return not len(numbers) or (int(numbers.min()) >= 0 and int(numbers.max()) < limit)
