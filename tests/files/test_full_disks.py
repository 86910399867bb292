"""Files whose bytes end before they are whole: an error that says so, no end of the process, and nothing left behind.

A limit of the size of files stands for a full disk: every write beyond it fails.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from veil.errors import CannotWrite
from veil.files.atomic import write_text
from veil.files.features import write_features
from worlds import features as made_up
from worlds import generator

PROGRAM = """
import resource, sys
from pathlib import Path
from veil.errors import CannotWrite
from veil.files.features import read_features, write_features
from veil.files.maps.exports import export_map
from veil.files.maps.format import write_map
from worlds.map_scenes import planted_map

kind, folder = sys.argv[1], Path(sys.argv[2])
if kind == "features":
    images = list(read_features(folder / "whole.h5"))
    work, size = lambda: write_features(folder / "new" / "f.h5", images), (folder / "whole.h5").stat().st_size
    limits = [*range(0, size, size // 20), size - 1]
else:
    scene, _ = planted_map("full disks")
    work = {"map": lambda: write_map(folder / "new" / "map", scene)}.get(
        kind, lambda: export_map(folder / "new" / "model", scene, "colmap")
    )
    limits = [100, 2000, 20000]
for limit in limits:
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, resource.RLIM_INFINITY))
    try:
        work()
        print(limit, "was written")
    except CannotWrite as error:
        print("refused" if "File too large" in str(error) else error)
"""


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["features", "map", "model"])
def test_a_write_that_fails_is_told(kind: str, tmp_path: Path) -> None:
    """At any byte. Broken twins: HDF5 on the file itself ends the process, and COLMAP alone writes half a model."""
    write_features(tmp_path / "whole.h5", [(f"{n}.jpg", made_up(generator(f"full {n}"), 60)) for n in range(4)])
    (tmp_path / "new").mkdir()
    command = [sys.executable, "-B", "-c", PROGRAM, kind, str(tmp_path)]  # no compiled file may end at the limit
    done = subprocess.run(command, capture_output=True, text=True, cwd=Path(__file__).parents[1], check=False)
    assert done.returncode == 0 and done.stderr == ""
    assert set(done.stdout.splitlines()) == {"refused"}
    assert list((tmp_path / "new").iterdir()) == []


def test_nothing_takes_the_place_of_a_device(tmp_path: Path) -> None:
    """Whoever may write to /dev would have a file in place of /dev/null; a pipe stands for it here."""
    os.mkfifo(tmp_path / "pipe")
    for write in (
        lambda path: write_text(path, "text"),
        lambda path: write_features(path, [("a.jpg", made_up(np.random.default_rng(0), 20))]),
    ):
        with pytest.raises(CannotWrite, match="but a device or a pipe"):
            write(tmp_path / "pipe")
    assert (tmp_path / "pipe").is_fifo()
