"""Atomic writing: a reader sees the old file or the whole new one, never a half.

What is being written has one kind of name, `.NAME.RANDOM.veil.part`, by which the owner of a folder finds what a kill left.
"""

from __future__ import annotations

import errno
import os
import re
import secrets
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from veil.errors import CannotWrite, FileFormatError, InputError, NoRoom

# How the name of what is being written goes on after that of the file; SQLite puts a journal beside it.
PART = ".veil.part"
_LEFTOVER = re.compile(r"\.(?P<name>.+)\.[a-z0-9_]{8}\.veil\.part([.-].*)?")
# What the operating system says of a disk, or a user's share of it, that is full.
FULL = (errno.ENOSPC, errno.EDQUOT)
# What nobody has written to for so long was left by a kill.
STALE_S = 60.0
# A process that writes into a folder for the first time deletes what is older than this: libraries may write one for long.
_ABANDONED_S = 3600.0
_cleared: set[Path] = set()


def _umask() -> int:
    """The process's mask of file modes, which can only be read by setting it."""
    mask = os.umask(0)
    os.umask(mask)
    return mask


@contextmanager
def replacing(path: Path, *, suffix: str | None = None, private: bool = False) -> Iterator[Path]:
    """A temporary path beside `path` that is moved onto it when the block ends well, and removed when it raises.

    The temporary path ends like `path`, by which libraries choose a format, or in `suffix`, which may be empty. With `private`
    nobody but the owner can read the file (mode 0600), whatever the umask: for what must not leave the device. A kill leaves it
    to `clear_leftovers`. Raises InputError if nothing can be written there.
    """
    if path.exists() and not (path.is_file() or path.is_dir()):
        raise CannotWrite(f"cannot write {path}: it is no file, but a device or a pipe; choose another place")
    with writing(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        _clear_once(path.parent)
        ending = PART + (path.suffix if suffix is None else suffix)
        handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.", suffix=ending)
        os.close(handle)
        temporary = Path(name)
        try:
            yield temporary
            # mkstemp makes private files; a result should be as readable as any other. A library may have made the file anew.
            temporary.chmod(0o600 if private else 0o666 & ~_umask())
            os.replace(temporary, path)
        finally:
            temporary.unlink(missing_ok=True)


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """A block that writes `path`, in which errors of the operating system become CannotWrite (NoRoom), an InputError."""
    try:
        yield
    except OSError as error:
        kind = NoRoom if error.errno in FULL else CannotWrite
        raise kind(f"cannot write {path}: {error.strerror or error}; choose another place or free it") from None


def write_bytes(path: Path, data: bytes, *, private: bool = False) -> None:
    """Write `data` to `path` at once or not at all; `private` as for `replacing`. Raises InputError if it cannot be written."""
    # A kill leaves the temporary file behind; with the suffix of `path`, half a message would be taken for a message.
    with replacing(path, suffix="", private=private) as temporary:
        temporary.write_bytes(data)


def write_text(path: Path, text: str, *, private: bool = False) -> None:
    """Write `text` as UTF-8 to `path` as `write_bytes` does. Raises InputError if it cannot be written."""
    write_bytes(path, text.encode(), private=private)


def read_bytes(path: Path) -> bytes:
    """The bytes of a whole file. Raises FileFormatError if it is missing or cannot be read."""
    try:
        return path.read_bytes()
    except OSError as error:
        raise FileFormatError(f"cannot read {path}: {error.strerror or error}") from None


@contextmanager
def replacing_folder(folder: Path) -> Iterator[Path]:
    """A temporary folder (mode 0700) beside `folder` that is removed when the block ends, unless it was moved.

    A kill leaves it to `clear_leftovers`.
    """
    folder.parent.mkdir(parents=True, exist_ok=True)
    _clear_once(folder.parent)
    temporary = Path(tempfile.mkdtemp(dir=folder.parent, prefix=f".{folder.name}.", suffix=PART))
    try:
        yield temporary
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


@contextmanager
def new_folder(folder: Path) -> Iterator[Path]:
    """A temporary folder that takes the place of `folder` when the block ends well, and is removed when it raises."""
    with replacing_folder(folder) as temporary:
        yield temporary
        if folder.exists():
            folder.rmdir()
        temporary.chmod(0o755)
        temporary.rename(folder)


def require_vacant(folder: Path) -> None:
    """Raise InputError unless `folder` is empty or does not exist yet. Callers check before long work, not after."""
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise InputError(f"{folder} exists and is not empty; choose another name or remove it")


def sync_folder(folder: Path) -> None:
    """Have the names of a folder's files survive a power cut, where the system can do it."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    except OSError:  # a file system that cannot
        pass
    finally:
        os.close(handle)


def remove(path: Path) -> None:
    """Delete a file, or a folder with all in it, if it is there; for others a folder is whole, or gone.

    Raises InputError if it cannot be deleted.
    """
    with writing(path):
        if not path.is_dir() or path.is_symlink():
            path.unlink(missing_ok=True)
            return
        gone = path.with_name(f".{path.name.strip('.')[:100]}.{secrets.token_hex(4)}{PART}")
        with suppress(FileNotFoundError):  # another one is deleting it, or has moved it to its place
            path.rename(gone)
            shutil.rmtree(gone)


def leftovers(folder: Path, *, name: str | None = None, older_than_s: float = STALE_S) -> list[Path]:
    """Unfinished files in a folder, of one file or folder (None: of any), without a change for some seconds."""
    latest, paths = time.time() - older_than_s, []
    for path in sorted(folder.glob(".*")):
        match = _LEFTOVER.fullmatch(path.name)
        if match is not None and name in (None, match["name"]):
            with suppress(FileNotFoundError):
                if not older_than_s or path.lstat().st_mtime <= latest:
                    paths.append(path)
    return paths


def _clear_once(folder: Path) -> None:
    """Delete what was abandoned in a folder, the first time that this process writes there."""
    if folder not in _cleared:
        _cleared.add(folder)
        clear_leftovers(folder, older_than_s=_ABANDONED_S)


def clear_leftovers(folder: Path, *, name: str | None = None, older_than_s: float = STALE_S) -> int:
    """Delete what killed writers left in a folder, as `leftovers` finds it, and return its number.

    With `older_than_s` 0 nobody may be writing there, or must do it again if something of it goes. Raises InputError if
    something cannot be deleted.
    """
    paths = leftovers(folder, name=name, older_than_s=older_than_s)
    for path in paths:
        remove(path)
    return len(paths)
