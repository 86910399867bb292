"""Unfinished trainings on disk, which only the run that began them can use.

Of an inversion network a folder has the examples and the state of the optimizer; of networks of attacks a .npz has the state.
"""

from __future__ import annotations

import json
import shutil
import zipfile
import zlib
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path

import numpy as np

from veil.errors import FileFormatError, InputError, Remedy, VeilError
from veil.files.atomic import replacing, write_text
from veil.files.attack_networks import DAMAGE, load_arrays, save_arrays
from veil.files.containers import require_filled
from veil_lab.training.density_training import DensityTraining, TrainingState
from veil_lab.training.photos import Example, assembled


class Workshop:
    """The folder of an unfinished training: the run's key, its examples, and the state of the optimizer.

    Raises InputError if the folder belongs to another run, or to this one and `resume` is not given.
    """

    def __init__(self, folder: Path, key: str, *, resume: bool) -> None:
        self._folder = folder
        run = folder / "run.txt"
        if folder.exists():
            if not run.is_file() or run.read_text().strip() != key:
                raise InputError(
                    f"{folder} belongs to a training with other photographs or options; give these, or remove the folder"
                )
            if not resume:
                raise InputError(f"{folder} holds an unfinished training", remedy=Remedy("allow", "Workshop.resume"))
        else:
            write_text(run, key + "\n")

    def example(self, index: int) -> Example | None:
        """The stored example number `index`; None if it is missing or damaged."""
        path = self._path(index)
        if not path.is_file():
            return None
        try:
            arrays, header = load_arrays(path, "an example")
            return assembled(arrays["rgb"], arrays["keypoints"], arrays["descriptors"], bytes.fromhex(header["digest"]))
        except (FileFormatError, InputError, *DAMAGE):
            return None

    def save_example(self, index: int, example: Example) -> None:
        """Store an example under its number."""
        features = example.features
        arrays = {"rgb": example.rgb, "keypoints": features.keypoints, "descriptors": features.descriptors}
        save_arrays(self._path(index), arrays, {"digest": features.image_digest.hex()})

    def _path(self, index: int) -> Path:
        return self._folder / f"example-{index:06d}.npz"

    def state(self) -> tuple[dict[str, np.ndarray], dict] | None:
        """Arrays and header of the state saved last; None if there is none. Raises FileFormatError for a damaged one."""
        path = self._folder / "state.npz"
        return load_arrays(path, "the state of a training") if path.is_file() else None

    def save_state(self, arrays: Mapping[str, np.ndarray], header: Mapping[str, object]) -> None:
        """Save the state of training in place of the one before."""
        save_arrays(self._folder / "state.npz", arrays, header)

    def remove(self) -> None:
        """Remove the folder: the training is finished."""
        shutil.rmtree(self._folder, ignore_errors=True)


def write_training_state(path: Path, options: DensityTraining, state: TrainingState) -> None:
    """Write the state of a training with `options`, at once or not at all."""
    header = {"options": asdict(options), "step": state.step, "generator": state.generator, "digest": state.digest}
    arrays = {f"array{number}": item for number, item in enumerate(state.arrays)}
    text = np.frombuffer(json.dumps(header).encode(), dtype=np.uint8)
    with replacing(path) as temporary, temporary.open("wb") as stream:
        np.savez(stream, header=text, **arrays)  # type: ignore[arg-type]


def read_training_state(path: Path, options: DensityTraining) -> TrainingState | None:
    """State that `write_training_state` wrote; None if there is no file.

    Raises InputError if it is of a training with other options, FileFormatError if it is damaged.
    """
    if not path.is_file():
        return None
    try:
        require_filled(path)
        with np.load(path, allow_pickle=False) as stored:
            header = json.loads(stored["header"].tobytes())
            arrays = tuple(stored[f"array{number}"] for number in range(len(stored.files) - 1))
            step, generator, digest = int(header["step"]), header["generator"], str(header["digest"])
            begun = header["options"] | {"hidden": tuple(header["options"]["hidden"])}
    except (VeilError, OSError, EOFError, zipfile.BadZipFile, zlib.error, ValueError, LookupError, TypeError) as error:
        raise FileFormatError(f"{path} holds no state of a training, or is damaged ({error}); delete it") from None
    if begun != asdict(options):
        raise InputError(f"{path} is of a training with other options", remedy=Remedy("renew", "training"))
    return TrainingState(step=step, arrays=arrays, generator=generator, digest=digest)
