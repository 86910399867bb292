"""Tables of photographs by their messages, and poses of queries as hloc and COLMAP read them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from veil.colmap import pycolmap
from veil.errors import FileFormatError, InputError
from veil.files.maps.query_poses import write_poses
from veil.files.photographs.names import read_names, write_names
from veil.geometry.rigid import Rigid, rigid_from_colmap
from worlds import generator

NAMES = {"9bdc780da89b76b6": "a/b c.jpg", "0123456789abcdef-01234567": 'quo"ted, é.png'}


def as_hloc_reads(path: Path) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """Quaternion (w, x, y, z) and translation by name, by the lines of hloc's `pipelines/Cambridge/utils.py`, `evaluate`."""
    predictions = {}
    for line in path.read_text().rstrip().split("\n"):
        data = line.split()
        q, t = np.split(np.array(data[1:], float), [4])
        predictions[data[0]] = (q, t)
    return predictions


def test_poses_are_read_as_hloc_and_colmap_read_them(tmp_path: Path) -> None:
    """Second method: hloc's own parser, and pycolmap's `Rigid3d`. Half turns and the identity are among the rotations."""
    random = generator("query poses")
    quaternions = [*random.normal(size=(20, 4)), *np.eye(4), -np.eye(4)[3]]
    planted = {
        f"query/{number}.jpg": pycolmap.Rigid3d(pycolmap.Rotation3d(xyzw / np.linalg.norm(xyzw)), random.normal(0, 50, 3))
        for number, xyzw in enumerate(quaternions)
    }
    assert write_poses(tmp_path / "poses.txt", {name: rigid_from_colmap(pose) for name, pose in planted.items()}) == []
    read = as_hloc_reads(tmp_path / "poses.txt")
    assert list(read) == list(planted)
    for name, (wxyz, translation) in read.items():
        back = pycolmap.Rigid3d(pycolmap.Rotation3d(wxyz[[1, 2, 3, 0]]), translation)
        np.testing.assert_allclose(back.matrix(), planted[name].matrix(), atol=1e-12)


def test_names_that_would_break_a_line_are_left_out(tmp_path: Path) -> None:
    """Broken twin: a line with the name as it is, which the parser takes for another name and other numbers."""
    pose = Rigid(np.eye(3), np.array([1.0, 2.0, 3.0]))
    left_out = write_poses(tmp_path / "poses.txt", {"a.jpg": pose, "b c.jpg": pose, "": pose, "d\n.jpg": pose})
    assert left_out == ["b c.jpg", "", "d\n.jpg"]
    assert (tmp_path / "poses.txt").read_text() == "a.jpg 1 0 0 0 1 2 3\n"


def test_names_come_back(tmp_path: Path) -> None:
    """Round trip, and the mode of a private file; a table from elsewhere may have other columns and a byte-order mark."""
    path = tmp_path / "names.csv"
    write_names(path, NAMES)
    assert read_names(path) == NAMES and path.stat().st_mode & 0o077 == 0
    path.write_bytes("\ufeffphotograph,sent,image\r\nx.jpg,yes,abc.veil\r\n".encode())
    assert read_names(path) == {"abc": "x.jpg"}
    with pytest.raises(InputError, match="rename the photograph"):
        write_names(path, {"abc": " x.jpg"})


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "has no column image and no column photograph"),
        ("image,name\na,b\n", "has no column photograph"),
        ("image,photograph\n", "names no image"),
        ("image,photograph\na,b.jpg\na,c.jpg\n", "'a' is there twice, first in line 2"),
        ("image,photograph\na\n", "line 2: expected image,photograph"),
        ("image,photograph\n,b.jpg\n", "line 2: expected image,photograph"),
        ("image,image,photograph\na,b,c\n", "has the column 'image' twice"),
    ],
)
def test_other_tables_are_refused(tmp_path: Path, text: str, reason: str) -> None:
    (tmp_path / "names.csv").write_text(text)
    with pytest.raises(FileFormatError, match=reason):
        read_names(tmp_path / "names.csv")
