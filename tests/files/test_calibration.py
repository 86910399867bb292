"""A camera matrix beside photographs gives their intrinsics, and one of other photographs is refused."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import ExifTags, Image

from veil.cli import main
from veil.errors import FileFormatError
from veil.files.features import read_features
from veil.files.photographs.calibration import camera_from_matrix, matrix_of
from worlds import generator

K = "300 0 101\n0 301 74\n0 0 1\n"


def photographs(folder: Path) -> Path:
    """Two of 200 x 150 px with texture, one stored lying on its side."""
    folder.mkdir(parents=True)
    pixels = generator("calibration").integers(0, 256, (15, 20, 3), dtype=np.uint8)
    upright = Image.fromarray(pixels).resize((200, 150), Image.Resampling.BICUBIC)
    upright.save(folder / "a.png")
    exif = Image.Exif()
    exif[ExifTags.Base.Orientation] = 6
    upright.transpose(Image.Transpose.ROTATE_90).save(folder / "b.jpg", exif=exif)
    return folder


@pytest.mark.slow
@pytest.mark.parametrize("place", ["images/K.txt", "K.txt"])
def test_extraction_reads_it(tmp_path: Path, place: str) -> None:
    """In the folder of photographs or beside it; --camera still says more."""
    folder = photographs(tmp_path / "images")
    (tmp_path / place).write_text(K)
    for given in (folder, tmp_path):
        assert main(["extract", str(given), "-o", str(tmp_path / "f.h5")]) == 0
        for _, item in read_features(tmp_path / "f.h5"):
            assert (item.camera.model, item.camera.params) == ("PINHOLE", (300.0, 301.0, 101.0, 74.0))
            assert item.camera.focal_is_known and (item.camera.width_px, item.camera.height_px) == (200, 150)
    assert main(["extract", str(folder), "-o", str(tmp_path / "g.h5"), "--camera", "SIMPLE_PINHOLE,280,100,75"]) == 0
    assert all(item.camera.focal_px == 280 for _, item in read_features(tmp_path / "g.h5"))


def test_without_one_the_focal_length_stays_a_guess(tmp_path: Path) -> None:
    folder = photographs(tmp_path / "photos")
    (tmp_path / "K.txt").write_text(K)  # beside a folder of another name: not about it
    assert matrix_of(folder / "a.png") is None


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("600 0 202\n0 602 148\n0 0 1\n", "images of another size"),
        ("300 0 74\n0 301 101\n0 0 1\n", "images of another size, or turned"),
        ("300 5 101\n0 301 74\n0 0 1\n", "without skew"),
        ("300 0 101\n0 301 74\n0 0 2\n", "without skew"),
        ("3 0 101\n0 3 74\n0 0 1\n", "gives no camera .*focal length of 3 px"),
        ("-300 0 101\n0 301 74\n0 0 1\n", "gives no camera"),
        ("300 0 101 0 301 74\n", "9 finite numbers, got 6"),
        ("fx fy", "must hold numbers"),
    ],
)
def test_a_matrix_of_something_else_is_refused(tmp_path: Path, text: str, words: str) -> None:
    (tmp_path / "K.txt").write_text(text)
    with pytest.raises(FileFormatError, match=words):
        camera_from_matrix(tmp_path / "K.txt", 200, 150)
