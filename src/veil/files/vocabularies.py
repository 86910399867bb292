"""Indexes of maps by words, on disk: plain arrays in the map's folder, mapped into memory when they are used.

`MAP/vocabularies/DIGEST/` holds one .npy file an array and `header.json`, which names the map and the dictionary that they were
made from. DIGEST are the first 16 hex digits of the dictionary's hash.
"""

from __future__ import annotations

import json
import shutil
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from veil.errors import FileFormatError
from veil.files.atomic import read_bytes, writing
from veil.files.maps import map_fingerprint
from veil.matching.inverted_index import InvertedIndex

FORMAT = 1
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
    header = {
        "format": FORMAT,
        "dictionary": vocabulary.dictionary,
        "map": map_fingerprint(map_folder),
        "image_names": list(vocabulary.image_names),
    }
    with writing(target):
        target.parent.mkdir(parents=True, exist_ok=True)
        temporary = Path(tempfile.mkdtemp(dir=target.parent, prefix=f".{target.name}."))
        try:
            for name, attribute in _ARRAYS.items():
                np.save(temporary / f"{name}.npy", getattr(vocabulary, attribute).astype(_DTYPES[name]))
            for name in _IMAGE_ARRAYS:
                np.save(temporary / f"image_{name}.npy", getattr(vocabulary.image_words, name).astype(_DTYPES[name]))
            (temporary / "header.json").write_text(json.dumps(header, indent=1))
            temporary.chmod(0o755)
            if target.exists():
                shutil.rmtree(target)
            temporary.rename(target)
        finally:
            shutil.rmtree(temporary, ignore_errors=True)
    return target


def read_vocabulary(map_folder: Path, dictionary: str) -> InvertedIndex | None:
    """The index of a map for a dictionary, with arrays mapped into memory; None if the map has none for it.

    Raises FileFormatError if the index is damaged or was made from another state of the map.
    """
    folder = vocabulary_folder(map_folder, dictionary)
    if not folder.is_dir():
        return None
    try:
        header = json.loads(read_bytes(folder / "header.json"))
        if header["format"] != FORMAT or header["dictionary"] != dictionary:
            raise FileFormatError(f"{folder} is an index of another format or dictionary; run `veil index` again")
        if header["map"] != map_fingerprint(map_folder):
            raise FileFormatError(f"{folder} was made from another state of the map; run `veil index` again")
        return _assemble(folder, header)
    except (OSError, ValueError, LookupError, TypeError, EOFError, AttributeError) as error:
        if isinstance(error, FileFormatError):
            raise
        raise FileFormatError(f"{folder} is damaged ({error}); run `veil index` again") from None


def _assemble(folder: Path, header: dict[str, Any]) -> InvertedIndex:
    """The index of the arrays in `folder`. Raises ValueError if they do not fit together."""
    from scipy.sparse import csr_array

    arrays = {name: _mapped(folder, name, name) for name in _ARRAYS}
    data, indices, indptr = (_mapped(folder, f"image_{name}", name) for name in _IMAGE_ARRAYS)
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


def _mapped(folder: Path, file: str, name: str) -> np.ndarray:
    """An array mapped into memory. Raises ValueError if it is not one-dimensional, or of another type than `name` has."""
    array = np.load(folder / f"{file}.npy", mmap_mode="r", allow_pickle=False)
    if array.ndim != 1 or array.dtype != np.dtype(_DTYPES[name]):
        raise ValueError(f"{file}.npy holds {array.dtype} of {array.ndim} dimensions")
    return array
