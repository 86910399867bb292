"""Folders of image sequences with homographies, in the layout of HPatches: NAME/1.jpg ... 6.jpg and H_1_2 ... H_1_6."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from jaxtyping import Float64

from veil.errors import FileFormatError, InputError
from veil.files.photographs.pictures import SUFFIXES


@dataclass(frozen=True, kw_only=True, eq=False)
class SequenceFiles:
    """Files of one sequence: `pictures[0]` is the reference, `homographies[k]` maps its pixels to `pictures[k + 1]`."""

    name: str
    pictures: tuple[Path, ...]
    homographies: tuple[Float64[np.ndarray, "3 3"], ...]


def find_sequences(folder: Path) -> list[SequenceFiles]:
    """All sequences directly below `folder`, sorted by name.

    Raises InputError if there are none, FileFormatError for a homography that is no finite 3x3 matrix or a missing image.
    """
    if not folder.is_dir():
        raise InputError(f"there is no folder {folder}")
    sequences = [_sequence(child) for child in sorted(folder.iterdir()) if (child / "H_1_2").is_file()]
    if not sequences:
        raise InputError(f"{folder} holds no sequences; expected NAME/1.jpg (or .ppm, .png) and NAME/H_1_2 ...")
    return sequences


def _sequence(folder: Path) -> SequenceFiles:
    pictures, homographies = [_numbered(folder, 1)], []
    for number in range(2, 1000):
        path = folder / f"H_1_{number}"
        if not path.is_file():
            break
        try:
            matrix = np.loadtxt(path, dtype=np.float64)
        except ValueError as error:
            raise FileFormatError(f"{path} is not a 3x3 matrix ({error})") from None
        if matrix.shape != (3, 3) or not np.isfinite(matrix).all():
            raise FileFormatError(f"{path} must hold a finite 3x3 matrix, got shape {matrix.shape}")
        pictures.append(_numbered(folder, number))
        homographies.append(matrix)
    return SequenceFiles(name=folder.name, pictures=tuple(pictures), homographies=tuple(homographies))


def _numbered(folder: Path, number: int) -> Path:
    for path in sorted(folder.glob(f"{number}.*")):
        if path.suffix.lower() in SUFFIXES:
            return path
    raise FileFormatError(f"{folder} has no image {number}")
