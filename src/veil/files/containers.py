"""HDF5 and .npz: limits of memory for files from others, names of images as groups of HDF5, and new files on full disks.

Such files declare how large their arrays are, and two megabytes of zeros can stand for gigabytes. So the declared size is
compared with what the file holds, before it is read.
"""

from __future__ import annotations

import io
import zipfile
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from veil.errors import FileFormatError, InputError

# Descriptors and positions hardly compress; a hundredfold is far from any honest file. Small arrays may be of any size.
MOST_TIMES, ALWAYS_BYTES = 100, 1 << 20


# Attribute of a file in which names of groups are escaped; in others they are the names of the images.
ESCAPED = "veil_escaped_names"


def group_of(name: str, members: Collection[str]) -> str:
    """The name of the group of an image, which no other image's is; `unquote` gives the image's again.

    HDF5 takes `a//b`, `/a/b` and `a/./b` for `a/b`, and the group `a` has `members`, which `a/keypoints` would be. So parts of
    a path that are empty, a dot or the name of a member begin with a percent sign, as in URLs, and those with one are escaped.
    """
    parts = [part.replace("%", "%25").replace("\0", "%00") for part in name.split("/")]
    return "/".join(f"%{ord(part[0]):02X}{part[1:]}" if part in (".", *members) else part or "%" for part in parts)


def name_of(group: str) -> str:
    """The name of the image whose group `group_of` named so."""
    return "/".join("" if part == "%" else unquote(part, errors="strict") for part in group.split("/"))


class _Disk(io.RawIOBase):
    """A file for HDF5 that keeps its first `failure` for later: a write that fails as HDF5 closes can end the process."""

    def __init__(self, path: Path) -> None:
        self.stream = path.open("w+b", buffering=0)
        self.failure: OSError | None = None

    def write(self, data: Any) -> int:
        """Write all bytes, or none any more after a failure."""
        rest = memoryview(data).cast("B")
        total = len(rest)
        try:
            while rest and self.failure is None:
                rest = rest[self.stream.write(rest) :]
        except OSError as error:
            self.failure = error
        return total

    def truncate(self, size: int | None = None, /) -> int:
        """Set the length in bytes."""
        try:
            return self.stream.truncate(size)
        except OSError as error:
            self.failure = self.failure or error
            return 0

    def seek(self, offset: int, whence: int = 0, /) -> int:
        """Go to a byte."""
        return self.stream.seek(offset, whence)

    def readinto(self, buffer: Any, /) -> int | None:
        """Read bytes that were written."""
        return self.stream.readinto(buffer)

    def close(self) -> None:
        """Close the file."""
        self.stream.close()
        super().close()


@contextmanager
def new_hdf5(path: Path) -> Iterator[Any]:
    """A new HDF5 file. Raises OSError, as the operating system does, where it cannot be written, as on a full disk."""
    import h5py

    with _Disk(path) as disk:
        try:
            with h5py.File(disk, "w") as file:
                yield file
        finally:
            if disk.failure is not None:
                raise disk.failure


def new_group(file: Any, name: str, members: Collection[str]) -> Any:
    """A new group of an HDF5 file for an image of any name. Raises InputError if it has one of this name, or the name is empty.

    The file is marked where the group has another name than the image.
    """
    if not name:
        raise InputError("an image has no name; give it one")
    place = group_of(name, members)
    if place != name:
        file.attrs[ESCAPED] = True
    group = file.require_group(place)  # which may be there for images below it
    if any(member in group for member in members):
        raise InputError(f"two images are called {name!r}; rename one of them")
    return group


def group_in(file: Any, name: str, members: Collection[str]) -> Any:
    """The group of an image in an HDF5 file. Raises KeyError if there is none."""
    return file[group_of(name, members) if file.attrs.get(ESCAPED) else name]


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
