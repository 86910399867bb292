"""Folders of plain arrays with a header, written at once and mapped into memory when they are used: indexes of maps."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from veil.errors import FileFormatError, Remedy
from veil.files.atomic import read_bytes, replacing_folder, writing
from veil.files.maps import map_fingerprint

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
