"""Tables of motions: what is read, and every fault by its line."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from veil.errors import FileFormatError, InputError
from veil.files.photographs.frame_motions import COLUMNS, motions_of, read_frame_motions

STILL = "1,0,0,0,1,0,0,0,1,0,0,0"
TURNED = "0,-1,0,1,0,0,0,0,1,0.5,0,-2"


def written(folder: Path, *rows: str, header: str = ",".join(COLUMNS)) -> Path:
    path = folder / "poses.csv"
    path.write_text("\n".join([header, *rows]) + "\n")
    return path


def test_motions_by_the_names_of_their_frames(tmp_path: Path) -> None:
    motions = read_frame_motions(written(tmp_path, f"a.veil,{STILL}", f"b,{TURNED}"))
    assert list(motions) == ["a", "b"]
    np.testing.assert_array_equal(motions["b"].rotation, [[0, -1, 0], [1, 0, 0], [0, 0, 1]])
    np.testing.assert_array_equal(motions["b"].translation, [0.5, 0, -2])
    assert [motion.translation[0] for motion in motions_of(["b", "a"], motions, tmp_path / "poses.csv")] == [0.5, 0.0]


@pytest.mark.parametrize(
    "row, fault",
    [
        ("b,1.01,0,0,0,1,0,0,0,1,0,0,0", "line 3: b: the rotation is not orthonormal"),
        ("b,1,0,0,0,1,0,0,0,-1,0,0,0", "line 3: b: the rotation mirrors"),
        ("b,nan,0,0,0,1,0,0,0,1,0,0,0", "line 3: b: the motion contains NaN or infinity; was the tracking lost"),
        ("b,1,0,0,0,1,0,0,0,1,0,inf,0", "line 3: b: the motion contains NaN"),
        ("b,1,0,0,0,1,0,0,0,1,0,0", "line 3: expected a frame and twelve numbers"),
        ("b,1,0,0,0,1,0,0,0,x,0,0,0", "line 3: expected a frame and twelve numbers"),
        (f"a,{STILL}", "a"),
    ],
)
def test_a_fault_is_named_with_its_line(tmp_path: Path, row: str, fault: str) -> None:
    with pytest.raises(FileFormatError, match=fault):
        read_frame_motions(written(tmp_path, f"a,{STILL}", row))


def test_missing_columns_frames_and_rows_are_named(tmp_path: Path) -> None:
    with pytest.raises(FileFormatError, match="no column r11"):
        read_frame_motions(written(tmp_path, f"a,{STILL}", header="frame,q"))
    with pytest.raises(FileFormatError, match="holds 1 motions, and a sequence has two frames or more"):
        read_frame_motions(written(tmp_path, f"a,{STILL}"))
    path = written(tmp_path, f"a,{STILL}", f"b,{TURNED}")
    with pytest.raises(InputError, match="no motion of c, one of 2 that are missing; it has a, b"):
        motions_of(["a", "c", "d"], read_frame_motions(path), path)
