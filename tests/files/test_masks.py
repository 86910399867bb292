"""Masks: which file is whose, which pixels they leave, and photographs that have none."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import ExifTags, Image

from veil.cli import main
from veil.errors import FileFormatError, InputError
from veil.extraction import extract
from veil.files.features import read_features
from veil.files.photographs.masks import masks_of, read_mask
from veil.files.photographs.pictures import read_picture
from worlds import generator


def photograph(path: Path, size: tuple[int, int] = (160, 120)) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    noise = generator(path.name).integers(0, 256, (size[1] // 4, size[0] // 4)).astype(np.uint8)
    Image.fromarray(noise).resize(size, Image.Resampling.BICUBIC).save(path)
    return path


def mask(path: Path, white: np.ndarray) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(np.where(white, 255, 0).astype(np.uint8)).save(path)
    return path


def right_half(width: int = 160, height: int = 120) -> np.ndarray:
    return np.broadcast_to(np.arange(width) >= width // 2, (height, width))


def run(*words: object) -> int:
    return main(list(map(str, words)))


def test_names_of_masks(tmp_path: Path) -> None:
    """Golden: COLMAP's names come before nerfstudio's; a file is the mask of one photograph, and never of itself."""
    photos = {name: photograph(tmp_path / "p" / name) for name in ("a.jpg", "d/b.jpg", "c.png", "e.jpg")}
    folder = tmp_path / "m"
    for name in ("a.jpg.png", "a.png", "d/b.png", "c.png"):
        mask(folder / name, right_half())
    masks = {"a.jpg": folder / "a.jpg.png", "d/b.jpg": folder / "d/b.png", "c.png": folder / "c.png"}
    assert masks_of(folder, photos) == masks
    with pytest.raises(InputError, match=r"no mask of a photograph; that of a\.jpg is to be called a\.jpg\.png"):
        masks_of(tmp_path / "p" / "d", {"a.jpg": photos["a.jpg"]})
    two = {"a.jpg": photos["a.jpg"], "a.jpeg": photograph(tmp_path / "p" / "a.jpeg")}
    (folder / "a.jpg.png").unlink()
    with pytest.raises(InputError, match=r"a\.png may be the mask of a\.jpg or of a\.jpeg"):
        masks_of(folder, two)
    with pytest.raises(InputError, match="no folder of masks"):
        masks_of(tmp_path / "none", two)


@pytest.mark.parametrize("mode", ["L", "1", "RGB", "RGBA", "P", "I;16"])
def test_masks_of_every_mode_and_size(tmp_path: Path, mode: str) -> None:
    """Planted truth: the right half, also at half the size, and turned by EXIF as its photograph is."""
    white = right_half()
    gray = Image.fromarray(np.where(white, 255, 0).astype(np.uint8))
    image = Image.fromarray(np.where(white, 1, 0).astype(np.uint16)) if mode == "I;16" else gray.convert(mode)
    image.save(tmp_path / "m.png")
    np.testing.assert_array_equal(read_mask(tmp_path / "m.png", 160, 120), white)
    gray.resize((80, 60), Image.Resampling.NEAREST).save(tmp_path / "h.png")
    np.testing.assert_array_equal(read_mask(tmp_path / "h.png", 160, 120), white)
    exif = Image.Exif()
    exif[ExifTags.Base.Orientation] = 6
    gray.transpose(Image.Transpose.ROTATE_90).save(tmp_path / "t.png", exif=exif)
    np.testing.assert_array_equal(read_mask(tmp_path / "t.png", 160, 120), white)


def test_what_is_no_mask_of_the_photograph_is_refused(tmp_path: Path) -> None:
    mask(tmp_path / "m.png", right_half(120, 160))
    with pytest.raises(InputError, match="another shape than the upright photograph of 160x120"):
        read_mask(tmp_path / "m.png", 160, 120)
    (tmp_path / "d.png").write_bytes(b"no picture")
    with pytest.raises(FileFormatError, match="cannot be decoded as a mask"):
        read_mask(tmp_path / "d.png", 160, 120)


def test_no_feature_lies_where_the_mask_is_black(tmp_path: Path) -> None:
    """Second method: the features of the whole picture whose keypoints lie in the right half."""
    picture = read_picture(photograph(tmp_path / "a.png"))
    whole, half = extract(picture), extract(picture, mask=right_half().copy())
    kept = whole.keypoints[:, 0] >= 80
    assert 0 < len(half) < len(whole)
    np.testing.assert_array_equal(half.keypoints, whole.keypoints[kept])
    np.testing.assert_array_equal(half.descriptors, whole.descriptors[kept])
    with pytest.raises(InputError, match=r"all of its \d+ features lie where the mask is black"):
        extract(picture, mask=np.zeros((120, 160), dtype=bool))
    with pytest.raises(InputError, match="the mask has shape"):
        extract(picture, mask=np.ones((160, 120), dtype=bool))


@pytest.mark.parametrize("place", ["masks", "photos/masks", "photos"])
def test_the_command_extracts_what_masks_allow(tmp_path: Path, place: str, capsys: pytest.CaptureFixture[str]) -> None:
    """One photograph has no mask: it is skipped and named, or refuses all. Masks among photographs are no photographs."""
    for name in ("a.jpg", "b.jpg", "c.jpg"):
        photograph(tmp_path / "photos" / name)
    mask(tmp_path / place / "a.jpg.png", right_half())
    mask(tmp_path / place / "b.jpg.png", ~right_half())
    words = ("extract", tmp_path / "photos", "-o", tmp_path / "f.h5", "--masks", tmp_path / place)
    assert run(*words, "--strict") == 1 and not (tmp_path / "f.h5").exists()
    assert run(*words) == 0
    assert "skipped c.jpg" in capsys.readouterr().err
    read = dict(read_features(tmp_path / "f.h5"))
    assert list(read) == ["a.jpg", "b.jpg"]
    assert read["a.jpg"].keypoints[:, 0].min() >= 80 > read["b.jpg"].keypoints[:, 0].max()
    (tmp_path / "none").mkdir()
    assert run(*words[:-1], tmp_path / "none") == 1
    assert "has no mask of a photograph" in capsys.readouterr().err
