"""Room on a disk: how much there is, and a file that holds some of it until it is needed."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from veil.files.atomic import FULL, remove, replacing

# With fewer bytes that are free a disk counts as full.
LEAST = 1 << 19
_BLOCK = bytes(1 << 20)


@dataclass(frozen=True, kw_only=True)
class Disk:
    """Bytes of a file system: `free` are those that this user may write, `total` are all."""

    free: int
    total: int


def disk_of(folder: Path) -> Disk:
    """The file system of a folder, as it is now."""
    stats = os.statvfs(folder)
    return Disk(free=stats.f_bavail * stats.f_frsize, total=stats.f_blocks * stats.f_frsize)


def hold(path: Path, size: int) -> None:
    """Have a file of `size` bytes hold room on the disk. Raises NoRoom or CannotWrite where there is not so much."""
    with replacing(path, suffix="", private=True) as temporary, temporary.open("wb") as stream:
        try:
            os.posix_fallocate(stream.fileno(), 0, size)
        except (AttributeError, OSError) as error:  # a system or file system that cannot
            if isinstance(error, OSError) and error.errno in FULL:
                raise
            for start in range(0, size, len(_BLOCK)):
                stream.write(_BLOCK[: size - start])
        stream.flush()
        os.fsync(stream.fileno())


def held(path: Path) -> int:
    """Bytes that such a file holds, 0 without one."""
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0


def let_go(path: Path) -> bool:
    """Give up the room that a file holds; returns whether there was one."""
    there = held(path) > 0
    remove(path)
    return there
