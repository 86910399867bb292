"""Limits of memory for files from others: HDF5 and .npz declare how large their arrays are.

Two megabytes of zeros can stand for gigabytes. So the declared size is compared with what the file holds, before it is read.
"""

from __future__ import annotations

import zipfile
from pathlib import Path
from typing import Any

from veil.errors import FileFormatError

# Descriptors and positions hardly compress; a hundredfold is far from any honest file. Small arrays may be of any size.
MOST_TIMES, ALWAYS_BYTES = 100, 1 << 20


def own_dataset(group: Any, name: str) -> Any:
    """The HDF5 dataset `name` of a group, whose data must lie in this file.

    HDF5 lets a dataset be stored in any other file of the machine (external storage, external links, virtual datasets): the
    bytes of that file would be read, and sent, as positions. Raises FileFormatError for such a dataset, and for one that
    declares far more bytes than the file holds.
    """
    import h5py

    item = group[name]
    if not isinstance(item, h5py.Dataset) or not isinstance(group.get(name, getlink=True), h5py.HardLink):
        raise FileFormatError(f"`{name}` is not a dataset of this file but a group or a link; copy the data into it")
    if item.external or item.is_virtual:
        raise FileFormatError(f"`{name}` is stored in another file; copy the data into this one")
    held = item.id.get_storage_size()
    if item.nbytes > MOST_TIMES * held + ALWAYS_BYTES:
        raise FileFormatError(f"`{name}` declares {item.nbytes} bytes, of which the file holds {held}; it is damaged or a trap")
    return item


def require_filled(path: Path) -> None:
    """Raise FileFormatError if the arrays of an .npz are far larger than the file; a file that is no archive passes."""
    try:
        with zipfile.ZipFile(path) as archive:
            declared = sum(item.file_size for item in archive.infolist())
    except (OSError, zipfile.BadZipFile, NotImplementedError, ValueError):
        return
    held = path.stat().st_size
    if declared > MOST_TIMES * held + ALWAYS_BYTES:
        raise FileFormatError(f"{path} declares {declared} bytes of arrays and holds {held}; it is damaged or a trap")
