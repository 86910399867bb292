"""Maps as whole folders: which files they have, and how one takes the place of another at once."""

from __future__ import annotations

import ctypes
import hashlib
import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from veil.errors import InputError
from veil.files.atomic import read_bytes, writing
from veil.files.maps.format import write_map
from veil.scene import Scene

# What a map's folder may hold beside `sparse/` and `descriptors.h5`: further models of a map from lines, and indexes, which are
# made from the map and can be made again.
MODELS = "models"
INDEXES = ("vocabularies", "indexes")
# A folder beside a map is named so while the map is replaced; FINISHED is what stands for it there once it is complete.
STAGING = ".{}.replacing-"
NEW, OLD, FINISHED = "new", "old", "finished"


def model_folders(folder: Path) -> list[Path]:
    """The folders of all models of a map: its own, and `models/2` and so on of a map from lines."""
    further = [path for path in (folder / MODELS).glob("*") if path.is_dir() and path.name.isdecimal()]
    return [folder, *sorted(further, key=lambda path: int(path.name))]


def foreign_files(folder: Path) -> list[str]:
    """Paths, relative to the folder of a map, of files in it that veil did not make, sorted."""
    models = [model.relative_to(folder).as_posix() for model in model_folders(folder)]
    known = [f"{model}/" if model != "." else "" for model in models]
    own = [*(f"{place}sparse/" for place in known), *(f"{place}{name}/" for place in known for name in INDEXES)]
    exact = {f"{place}descriptors.h5" for place in known}
    return [name for name in _files(folder) if name not in exact and not name.startswith(tuple(own))]


def index_folders(folder: Path) -> list[str]:
    """Paths, relative to the folder of a map, of the indexes in it, sorted."""
    places = [model / name for model in model_folders(folder) for name in INDEXES]
    return sorted(path.relative_to(folder).as_posix() for place in places if place.is_dir() for path in place.iterdir())


def file_digests(folder: Path) -> dict[str, str]:
    """SHA-256 (hex) of every file of a folder, by its path relative to it. Raises FileFormatError if one cannot be read."""
    return {name: hashlib.sha256(read_bytes(folder / name)).hexdigest() for name in _files(folder)}


def _files(folder: Path) -> list[str]:
    return sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if not path.is_dir())


def write_models(folder: Path, scenes: Sequence[Scene], complete: Callable[[Path], None] | None = None) -> None:
    """Write a map of one or more models to a new folder, at once or not at all.

    `complete` is called with the folder of the new map before that takes its place, to add indexes to it.

    Raises InputError if the folder already holds something, or cannot be written.
    """
    with _staged(folder, scenes, complete) as new, writing(folder):
        if folder.exists():
            folder.rmdir()
        new.rename(folder)


def replace_models(folder: Path, scenes: Sequence[Scene], complete: Callable[[Path], None] | None = None) -> None:
    """Write a map of one or more models in place of that in `folder`, at once: a crash leaves the old map or the new one.

    The old map's files are deleted. `complete` is as for `write_models`. Raises InputError if it cannot be
    replaced, or its files cannot be deleted.
    """
    with _staged(folder, scenes, complete) as new, writing(folder):
        if not _exchanged(new, folder):
            # Without an exchange by the system there is a moment without a map; `settle_folder` finds the new one then.
            old = new.parent / OLD
            folder.rename(old)
            try:
                new.rename(folder)
            except BaseException:
                old.rename(folder)
                raise
        shutil.rmtree(new.parent)  # the old map is in there: what keeps it from being deleted must be told


def settle_folder(folder: Path) -> None:
    """Finish what a killed `replace_models` left: delete the old map, or an unfinished new one, beside the folder.

    A map that is there whole but not in its place is put there. Raises InputError if a folder cannot be moved or deleted.
    """
    for staging in sorted(folder.parent.glob(STAGING.format(folder.name) + "*")):
        with writing(staging):
            if not folder.exists() and (staging / FINISHED).exists() and (staging / NEW).is_dir():
                (staging / NEW).rename(folder)
            shutil.rmtree(staging)


def clear_staging(folder: Path) -> None:
    """Remove what a killed `write_models` left beside `folder`; a map that stands in for a missing one there stays."""
    for staging in sorted(folder.parent.glob(STAGING.format(folder.name) + "*")):
        if folder.exists() or not (staging / OLD).exists():
            with writing(staging):
                shutil.rmtree(staging)


@contextmanager
def _staged(folder: Path, scenes: Sequence[Scene], complete: Callable[[Path], None] | None) -> Iterator[Path]:
    """The folder of the new map, complete and on the disk, in a folder beside `folder` that is deleted in the end."""
    with writing(folder):
        folder.parent.mkdir(parents=True, exist_ok=True)
        staging = Path(tempfile.mkdtemp(dir=folder.parent, prefix=STAGING.format(folder.name)))
    try:
        new = staging / NEW
        for number, scene in enumerate(scenes, start=1):
            write_map(new if number == 1 else new / MODELS / str(number), scene)
        if complete is not None:
            complete(new)
        with writing(folder):
            _synced(new)
            (staging / FINISHED).touch()
        yield new
    finally:
        shutil.rmtree(staging, ignore_errors=True)


def _synced(folder: Path) -> None:
    """Have the system put all files of a folder on the disk."""
    for name in _files(folder):
        with (folder / name).open("rb+") as stream:
            os.fsync(stream.fileno())


def _exchanged(first: Path, second: Path) -> bool:
    """Exchange two folders in one step of the system, and return whether it can do so; neither changes if not."""
    names = os.fsencode(first), os.fsencode(second)
    try:
        library = ctypes.CDLL(None, use_errno=True)
        if sys.platform == "darwin":
            return library.renamex_np(*names, 2) == 0  # RENAME_SWAP
        here = -100  # AT_FDCWD
        return library.renameat2(here, names[0], here, names[1], 2) == 0  # RENAME_EXCHANGE
    except (AttributeError, OSError, TypeError):
        return False


def require_outside(path: Path | None, folder: Path, what: str) -> None:
    """Raise InputError if the file `path`, which the message calls `what`, would lie in the folder of a map."""
    if path is not None and path.resolve().is_relative_to(folder.resolve()):
        raise InputError(f"{what} must not lie in the map, whose files know nothing of what was removed; got {path}")
