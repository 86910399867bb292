"""A map takes the place of another at once: whatever kills the process, the old map or the new one is there."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

import veil.files.maps.folders as folders
from veil.errors import InputError
from veil.files.maps.folders import (
    file_digests,
    foreign_files,
    index_folders,
    model_folders,
    replace_models,
    settle_folder,
    write_models,
)
from veil.files.maps.format import read_map, write_map
from veil.scene import Scene
from worlds.map_scenes import planted_map

# Ends itself without any cleaning at the n-th event of the system that replacing a map causes, n = 1, 2, ... until it gets
# through; each time in a child process, whose map must be the old one or the new one.
KILLED = """
import os, shutil, sys
from pathlib import Path
import veil.files.maps.folders as folders
from veil.files.maps.format import read_map, write_map
from worlds.map_scenes import planted_map

place = Path(sys.argv[1])
old, new = planted_map("old", images=2, points=12)[0], planted_map("new", images=3, points=12)[0]
write_map(place / "first", old)
import pycolmap, h5py, numpy
events = 0
def watch(event, arguments):
    global events
    if event in ("os.rename", "os.mkdir", "os.rmdir", "os.remove", "tempfile.mkdtemp"):
        events += 1
        if events == limit:
            os._exit(9)
limit = 0
sys.addaudithook(watch)


def tried(exchange):
    global events, limit
    seen = set()
    for number in range(1, 200):
        target = place / f"map{number}"
        shutil.copytree(place / "first", target)
        child = os.fork()
        if child == 0:
            events, limit = 0, number
            folders.replace_models(target, [new])
            os._exit(0)
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        if exchange and not target.is_dir():
            sys.exit(f"no map after event {number}")
        folders.settle_folder(target)
        images = len(read_map(target).images)
        left = [path.name for path in place.iterdir() if path.name not in ("first", target.name)]
        if images not in (2, 3) or left:
            sys.exit(f"{images} images and {left} after event {number}")
        seen.add(images)
        shutil.rmtree(target)
        if code == 0:
            return number if images == 3 and seen == {2, 3} else sys.exit("not both maps were seen")
    sys.exit("it never got through")


first = tried(True)
folders._exchanged = lambda *_: False
print(first, tried(False))
"""


def maps() -> tuple[Scene, Scene]:
    return planted_map("old", images=3, points=30)[0], planted_map("new", images=4, points=30)[0]


@pytest.mark.slow
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="elsewhere folders may not be exchanged")
def test_a_kill_leaves_the_old_map_or_the_new_one(tmp_path: Path) -> None:
    """Enumeration of every moment between two operations on folders, by os._exit in a child; both maps must be seen.

    Then once more as on a system that cannot exchange two folders.
    """
    paths = os.pathsep.join([str(Path(__file__).parents[1]), os.environ.get("PYTHONPATH", "")])
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", KILLED, str(tmp_path)],
        env={**os.environ, "PYTHONPATH": paths},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert min(map(int, done.stdout.split())) > 8, "more than 8 moments were tried"


def test_a_failure_keeps_the_old_map_and_leaves_nothing_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    old, new = maps()
    write_map(tmp_path / "map", old)
    before = file_digests(tmp_path / "map")
    for name in ("write_map", "_synced", "_exchanged"):
        with monkeypatch.context() as patch:
            patch.setattr(folders, name, lambda *_: (_ for _ in ()).throw(OSError(28, "No space left on device")))
            with pytest.raises((InputError, OSError), match="No space left"):
                replace_models(tmp_path / "map", [new])
        assert file_digests(tmp_path / "map") == before and [path.name for path in tmp_path.iterdir()] == ["map"]


def test_all_models_are_written_and_found(tmp_path: Path) -> None:
    """Inverse pair: as many as were given, in their order; a map that is there is not overwritten."""
    old, new = maps()
    write_models(tmp_path / "map", [old, new, replace(old, measured_down=None)])
    places = model_folders(tmp_path / "map")
    assert [path.relative_to(tmp_path / "map").as_posix() for path in places] == [".", "models/2", "models/3"]
    assert [len(read_map(path).images) for path in places] == [3, 4, 3]
    with pytest.raises(InputError, match="cannot write"):
        write_models(tmp_path / "map", [new])
    assert len(read_map(tmp_path / "map").images) == 3
    replace_models(tmp_path / "map", [new])
    assert [len(read_map(path).images) for path in model_folders(tmp_path / "map")] == [4]


def test_files_of_others_and_indexes_are_told_apart(tmp_path: Path) -> None:
    old, new = maps()
    write_models(tmp_path / "map", [old, new])
    assert foreign_files(tmp_path / "map") == [] and index_folders(tmp_path / "map") == []
    for name in (
        "vocabularies/0123/header.json",
        "models/2/vocabularies/4567/words.npy",
        "notes.txt",
        "models/mine",
        "sparse.txt",
    ):
        (tmp_path / "map" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "map" / name).write_text("x")
    assert foreign_files(tmp_path / "map") == ["models/mine", "notes.txt", "sparse.txt"]
    assert index_folders(tmp_path / "map") == ["models/2/vocabularies/4567", "vocabularies/0123"]


def test_what_a_killed_run_left_is_settled(tmp_path: Path) -> None:
    """Planted: a finished map that is not in its place, an unfinished one, and a folder of another map."""
    _, new = maps()
    staging = tmp_path / ".map.replacing-abc"
    write_map(staging / "new", new)
    (staging / "finished").touch()
    (tmp_path / ".map.replacing-def" / "new").mkdir(parents=True)
    (tmp_path / ".map2.replacing-def").mkdir()
    settle_folder(tmp_path / "map")
    assert len(read_map(tmp_path / "map").images) == 4
    assert sorted(path.name for path in tmp_path.iterdir()) == [".map2.replacing-def", "map"]
