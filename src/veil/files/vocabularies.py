"""Indexes of maps by words, on disk: plain arrays in the map's folder, mapped into memory when they are used.

`MAP/vocabularies/DIGEST/` holds one .npy file an array and `header.json`, which names the map and the dictionary that they were
made from. DIGEST are the first 16 hex digits of the dictionary's hash.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from veil.errors import FileFormatError, Remedy
from veil.files.array_folders import mapped_array, read_header, write_arrays
from veil.matching.inverted_index import InvertedIndex

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
        return _assemble(folder, header)
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


def _assemble(folder: Path, header: dict[str, Any]) -> InvertedIndex:
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
    return InvertedIndex(
        dictionary=header["dictionary"],
        image_names=names,
        image_words=image_words,
        **{_ARRAYS[name]: array for name, array in arrays.items()},
    )
