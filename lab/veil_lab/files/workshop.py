"""The folder of an unfinished training of an inversion network: its examples, and the state of the optimizer."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from veil.errors import FileFormatError, InputError, Remedy
from veil.files.atomic import write_text
from veil.files.attack_networks import DAMAGE, load_arrays, save_arrays
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
