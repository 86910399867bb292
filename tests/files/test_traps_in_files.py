"""Files that declare more than they hold, point elsewhere, or have names that no result could hold: refused before the work."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import h5py
import numpy as np
import pytest
from PIL import Image

from veil.cli import main
from veil.errors import FileFormatError, InputError
from veil.extraction.picture import Picture
from veil.files.codebooks import read_codebook
from veil.files.features import read_features
from veil.files.photographs.pictures import named_pictures, read_picture
from veil.space import Space
from worlds import generator

SPACE = Space(descriptor="superpoint", normalization="L2", dim=8)


def features(path: Path, **parts: object) -> Path:
    """One image in hloc's layout, with parts left out (None) or replaced."""
    good = {
        "keypoints": np.array([[1.0, 2.0], [3.0, 4.0]], dtype=np.float32),
        "descriptors": np.eye(8, 2, dtype=np.float32),
        "image_size": np.array([40, 30]),
    }
    with h5py.File(path, "w") as file:
        group = file.create_group("a.jpg")
        for name, value in (good | parts).items():
            if value is not None:
                group[name] = value
    return path


def read(path: Path) -> list:
    return list(read_features(path, space=SPACE))


def test_positions_that_lie_in_another_file_are_not_read(tmp_path: Path) -> None:
    """External storage, an external and a soft link, a virtual dataset; the same bytes in the file itself are read."""
    (tmp_path / "secret").write_bytes(np.array([[1.0, 2.0], [3.0, 4.0]], dtype=np.float32).tobytes())
    other = features(tmp_path / "other.h5")
    layout = h5py.VirtualLayout((2, 2), "f4")
    layout[:] = h5py.VirtualSource(other, "a.jpg/keypoints", (2, 2))

    def external(group: h5py.Group) -> None:
        group.create_dataset("keypoints", (2, 2), "f4", external=[(tmp_path / "secret", 0, 16)])

    def external_link(group: h5py.Group) -> None:
        group["keypoints"] = h5py.ExternalLink(other, "a.jpg/keypoints")

    def soft_link(group: h5py.Group) -> None:
        group["keypoints"] = h5py.SoftLink("/a.jpg/descriptors")

    def virtual(group: h5py.Group) -> None:
        group.create_virtual_dataset("keypoints", layout)

    for point in (external, external_link, soft_link, virtual):
        path = features(tmp_path / f"{point.__name__}.h5", keypoints=None)
        with h5py.File(path, "a") as file:
            point(file["a.jpg"])
        with pytest.raises(FileFormatError, match=r"stored in another file|is not a dataset of this file"):
            read(path)
    assert len(read(features(tmp_path / "good.h5"))) == 1


def test_arrays_that_are_not_there_are_not_made(tmp_path: Path) -> None:
    """A dataset of 96 MB of which nothing was written, and one of zeros that shrank to nothing."""
    path = features(tmp_path / "sparse.h5", keypoints=None)
    with h5py.File(path, "a") as file:
        file["a.jpg"].create_dataset("keypoints", (12_000_000, 2), "f4", chunks=(1 << 16, 2))
    assert path.stat().st_size < 1 << 16
    with pytest.raises(FileFormatError, match="declares 96000000 bytes"):
        read(path)
    zeros = np.zeros((1 << 12, 1 << 12), dtype=np.float32)
    np.savez_compressed(tmp_path / "bomb.npz", vectors=zeros, header=zeros)
    with pytest.raises(FileFormatError, match="declares 1342"):
        read_codebook(tmp_path / "bomb.npz")


def test_names_that_are_not_utf8_are_refused_before_any_extraction(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """As a camera card of another system holds them; the name is printed escaped."""
    folder = tmp_path / "photos"
    folder.mkdir()
    try:
        Image.new("RGB", (32, 32)).save(os.path.join(os.fsencode(folder), b"b\xff.jpg"))
    except (OSError, UnicodeError):
        pytest.skip("this file system holds no such names")
    with pytest.raises(InputError, match="not UTF-8"):
        named_pictures([folder])
    assert main(["extract", str(folder), "-o", str(tmp_path / "f.h5")]) == 1
    assert "b\\udcff.jpg" in capsys.readouterr().err


def test_names_that_a_table_cannot_hold_are_refused_before_any_reading(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "photos"
    folder.mkdir()
    Image.new("RGB", (32, 32)).save(folder / " b.jpg")
    monkeypatch.setattr("veil.device.gravity._of_photograph", lambda *_: pytest.fail("a reading was made"))
    assert main(["gravity", str(folder), "-o", str(tmp_path / "g.csv")]) == 1
    assert "begins or ends with a space" in capsys.readouterr().err


def test_a_small_file_of_many_pixels_is_refused(tmp_path: Path) -> None:
    """20 kB of PNG that stand for 177 megapixels, which Pillow would still decode."""
    path = tmp_path / "bomb.png"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Image, "MAX_IMAGE_PIXELS", None)
        Image.new("1", (13300, 13300)).save(path)
        assert path.stat().st_size < 100_000
        with pytest.raises(FileFormatError, match="13300x13300 px, which take gigabytes"):
            read_picture(path)


@pytest.mark.slow
def test_a_picture_takes_little_more_than_its_pixels() -> None:
    """Gray and digest are those of the formula on the whole, in a process whose memory grows by less than the pixels take."""
    rgb = generator("blocks").integers(0, 256, (700, 90, 3), dtype=np.uint8)
    made = Picture.of(rgb, {}, None)
    whole = (rgb.astype(np.float32) @ np.array([0.299, 0.587, 0.114], dtype=np.float32) + 0.5).astype(np.uint8)
    np.testing.assert_array_equal(made.gray, whole)
    code = (
        "import numpy as np, resource; from veil.extraction.picture import Picture;"
        "rgb = np.full((4000, 4000, 3), 7, np.uint8);"
        "peak = lambda: resource.getrusage(resource.RUSAGE_SELF).ru_maxrss; before = peak(); Picture.of(rgb, {}, None);"
        "print(peak() - before)"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    unit = 1 if sys.platform == "darwin" else 1024
    assert int(run.stdout) * unit < rgb_bytes(4000, 4000)


def rgb_bytes(width: int, height: int) -> int:
    return 3 * width * height
