"""Sequences of images with homographies, as files."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from veil.errors import FileFormatError
from veil.randomness import Secret
from veil_lab.files.homographies import find_sequences


def gradient(height: int = 40, width: int = 64) -> np.ndarray:
    rows, columns = np.mgrid[:height, :width]
    return np.stack([3 * columns, 4 * rows, rows + columns], axis=2).astype(np.uint8)


def test_sequences(tmp_path: Path) -> None:
    folder = tmp_path / "set" / "v_one"
    folder.mkdir(parents=True)
    for number in (1, 2):
        Image.fromarray(gradient()).save(folder / f"{number}.png")
    (folder / "H_1_2").write_text("1 0 0\n0 1 0\n0 0 1\n")
    (sequence,) = find_sequences(tmp_path / "set")
    assert sequence.name == "v_one" and len(sequence.pictures) == 2
    (folder / "H_1_2").write_text("1 0 0\n0 1 0\n")
    with pytest.raises(FileFormatError, match="3x3"):
        find_sequences(tmp_path / "set")
    assert Secret.generate() != Secret.generate()
