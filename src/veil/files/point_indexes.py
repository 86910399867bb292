"""Indexes of maps for queries by distance, on disk: arrays in `MAP/indexes/points/` that are mapped into memory when used."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from veil.errors import FileFormatError, Remedy, VeilError
from veil.files.array_folders import mapped_array, read_header, write_arrays
from veil.matching.point_index import PointIndex
from veil.space import Space

FOLDER = Path("indexes") / "points"
# Types and numbers of dimensions of the arrays of an index by the names of their files, which are protocol.
_ARRAYS = {
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
    target = map_folder / FOLDER
    header = {"space": asdict(index.space), "hardened": index.hardened, "image_names": list(index.image_names)}
    arrays = {name: np.asarray(getattr(index, name), dtype=dtype) for name, (dtype, _) in _ARRAYS.items()}
    write_arrays(target, header, arrays, map_folder=map_folder)
    return target


def read_point_index(map_folder: Path) -> PointIndex | None:
    """The index of a map for queries by distance, with arrays mapped into memory; None if the map has none.

    Raises FileFormatError if the index is damaged or was made from another state of the map.
    """
    folder = map_folder / FOLDER
    if not folder.is_dir():
        return None
    try:
        return _assembled(folder, read_header(folder, map_folder=map_folder))
    except (OSError, ValueError, LookupError, TypeError, EOFError, AttributeError, VeilError) as error:
        if isinstance(error, FileFormatError):
            raise
        raise FileFormatError(f"{folder} is damaged ({error})", remedy=Remedy("renew", "index")) from None


def _assembled(folder: Path, header: dict[str, Any]) -> PointIndex:
    """The index of the arrays in `folder`. Raises ValueError if they do not fit together."""
    arrays = {name: mapped_array(folder, name, *kind) for name, kind in _ARRAYS.items()}
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
