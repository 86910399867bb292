"""States of interrupted trainings as .npz files, which only the run that began them can use."""

from __future__ import annotations

import json
import zipfile
import zlib
from dataclasses import asdict
from pathlib import Path

import numpy as np

from veil.errors import FileFormatError, InputError, VeilError
from veil.files.atomic import replacing
from veil.files.containers import require_filled
from veil_lab.training.density_training import DensityTraining, TrainingState


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
        raise InputError(f"{path} is of a training with other options; give the same, or leave out --resume")
    return TrainingState(step=step, arrays=arrays, generator=generator, digest=digest)
