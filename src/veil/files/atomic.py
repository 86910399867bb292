"""Atomic writing: a reader sees the old file or the whole new one, never a half."""

from __future__ import annotations

import os
import secrets
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from veil.errors import CannotWrite, FileFormatError


def _umask() -> int:
    """The process's mask of file modes, which can only be read by setting it."""
    mask = os.umask(0)
    os.umask(mask)
    return mask


@contextmanager
def replacing(path: Path, *, suffix: str | None = None, private: bool = False) -> Iterator[Path]:
    """A temporary path beside `path` that is moved onto it when the block ends well, and removed when it raises.

    The temporary path ends like `path`, by which libraries choose a format, or in `suffix`. With `private` nobody but the owner
    can read the file (mode 0600), whatever the umask: for what must not leave the device. Raises InputError if nothing can be
    written there.
    """
    with writing(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.", suffix=suffix or path.suffix)
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
    """A block that writes `path`, in which errors of the operating system become CannotWrite, an InputError."""
    try:
        yield
    except OSError as error:
        raise CannotWrite(f"cannot write {path}: {error.strerror or error}; choose another place or free it") from None


def write_bytes(path: Path, data: bytes, *, private: bool = False) -> None:
    """Write `data` to `path` at once or not at all; `private` as for `replacing`. Raises InputError if it cannot be written."""
    # A kill leaves the temporary file behind; with the suffix of `path`, half a message would be taken for a message.
    with replacing(path, suffix=".part", private=private) as temporary:
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


def remove_folder(folder: Path) -> None:
    """Delete a folder that others may be reading, if it is there: for them it is whole, or gone."""
    gone = folder.with_name(f".{folder.name}-{secrets.token_hex(4)}")
    try:
        folder.rename(gone)
    except OSError:
        gone = folder
    shutil.rmtree(gone, ignore_errors=True)
