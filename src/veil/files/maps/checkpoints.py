"""Folders of unfinished runs: checkpoints of long mapping on disk, from which a killed run continues."""

from __future__ import annotations

import hashlib
import shutil
import tempfile
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from veil.errors import InputError
from veil.files.atomic import replacing, require_vacant, write_text, writing
from veil.files.maps.format import map_fingerprint
from veil.places.maps.lines.reconstruction import Reconstruction

# What the folder of an unfinished run holds: results of clusters, the folder that the mapper works in, and, once the map is
# written, the run's key with the map's fingerprint.
CLUSTERS, WORK, WRITTEN = "clusters", "work", "written.txt"
_FIELDS = ("registered", "rotations", "translations", "points", "observed")


def run_key(parts: list[bytes]) -> str:
    """SHA-256 (hex) of the parts that a run depends on; their lengths count."""
    hasher = hashlib.sha256()
    for part in parts:
        hasher.update(len(part).to_bytes(8, "little") + part)
    return hasher.hexdigest()


def unfinished_folder(output: Path) -> Path:
    """The folder of the unfinished run that is to write the map `output`, beside it."""
    return output.with_name(output.name + ".unfinished")


def remove_unfinished(output: Path) -> None:
    """Remove the folder of a run that is finished, in one step as far as the next run can see."""
    folder, removed = unfinished_folder(output), _removed(output)
    if folder.is_dir():
        clear_removed(output)
        with writing(folder):
            folder.rename(removed)
    clear_removed(output)


def clear_removed(output: Path) -> None:
    """Remove what a run left that was killed while it removed its folder."""
    shutil.rmtree(_removed(output), ignore_errors=True)


def _removed(output: Path) -> Path:
    return output.with_name(f".{output.name}.finished")


@contextmanager
def working_folder(unfinished: Path | None) -> Iterator[Path]:
    """An empty folder for the mapper's files, removed in the end: in the folder of the run, or a temporary one.

    What a killed run left in the folder of the run is removed first. Workers of a cluster see that folder, but not this
    machine's temporary files. Raises InputError if it cannot be made.
    """
    if unfinished is None:
        with tempfile.TemporaryDirectory(prefix="veil-map-") as folder:
            yield Path(folder)
        return
    work = unfinished.resolve() / WORK
    with writing(work):
        if work.exists():
            shutil.rmtree(work)
        work.mkdir(parents=True)
    try:
        yield work
    finally:
        shutil.rmtree(work, ignore_errors=True)


def is_own_output(output: Path, key: str) -> bool:
    """Whether `output` is the whole map of the same run (`key`), which was killed after it wrote it.

    Raises InputError if it holds anything else.
    """
    note = unfinished_folder(output) / WRITTEN
    if note.is_file() and (output / "descriptors.h5").is_file() and note.read_text() == _note(output, key):
        return True
    require_vacant(output)
    return False


def note_written(output: Path, folder: Path, key: str) -> None:
    """Note that the map in `folder` is what the run of `key` is about to move to `output`."""
    write_text(unfinished_folder(output) / WRITTEN, _note(folder, key))


def _note(folder: Path, key: str) -> str:
    return f"{key} {map_fingerprint(folder)}\n"


class Checkpoints:
    """The folder of an unfinished run, beside its output.

    `key` (`run_key`) stands for the run's messages and options. Raises InputError if the folder holds the state of another run:
    nothing is overwritten.
    """

    def __init__(self, folder: Path, key: str) -> None:
        self._folder = folder
        # A run that was killed before it wrote its key left nothing but a part of that file.
        if folder.exists() and any(item.suffix != ".part" for item in folder.iterdir()):
            stored = folder / "run.txt"
            if not stored.is_file() or stored.read_text().strip() != key:
                raise InputError(
                    f"{folder} holds the unfinished run of other messages or options; finish that one with its own command, "
                    "or remove the folder"
                )
        else:
            write_text(folder / "run.txt", key + "\n")

    def model(self) -> Reconstruction | None:
        """The model that was saved last; None if there is none, or it is damaged."""
        path = self._folder / "model.npz"
        arrays = _load(path) if path.is_file() else None
        return None if arrays is None else Reconstruction(**{field: arrays[field] for field in _FIELDS})

    def save_model(self, model: Reconstruction) -> None:
        """Save the model in place of the one before."""
        _save(self._folder / "model.npz", {field: getattr(model, field) for field in _FIELDS})


def _save(path: Path, arrays: Mapping[str, np.ndarray]) -> None:
    with replacing(path) as temporary, temporary.open("wb") as stream:
        np.savez(stream, **arrays)  # type: ignore[arg-type]


def _load(path: Path) -> dict[str, np.ndarray] | None:
    """The arrays of an .npz by name; None if it is missing or damaged."""
    try:
        with np.load(path, allow_pickle=False) as stored:
            return {name: stored[name] for name in stored.files}
    except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile):
        return None
