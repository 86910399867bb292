"""`veil map` that finds the disk full and is given again: the same map; clusters that were mapped are not mapped again."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from unittest.mock import Mock

import pytest

from veil.cli import main
from veil.errors import Remedy
from veil.files.features import write_features
from veil.files.maps import folders
from veil.files.maps.cluster_results import OF_LINES, OF_POSITIONS, ClusterResults, KeptArrays
from veil.files.maps.folders import file_digests
from veil.places.kept_clusters import cluster_key, keeping
from veil.places.maps import NoMap
from veil.places.maps.clusters.joined_maps import one_after_another
from veil.places.maps.clusters.of_positions import ClusterTask
from veil.places.maps.options import MapOptions
from worlds import world
from worlds.line_worlds import features_of
from worlds.map_scenes import CHECK


def run(*arguments: object) -> int:
    return main([str(argument) for argument in arguments])


@pytest.fixture(scope="module")
def command(tmp_path_factory: pytest.TempPathFactory) -> tuple[list[object], dict[str, str]]:
    """A command that maps seven images in clusters, and the digests of the map's files when nothing disturbs it."""
    folder = tmp_path_factory.mktemp("kills")
    place = features_of(world("kills", images=6, points=120), "kills")
    write_features(folder / "f.h5", [(f"{name}.jpg", item) for name, item in place.items()])
    given: list[object] = ["map", folder / "f.h5", "--cluster-size", 4, "--workers", 1]
    assert run(*given, "-o", folder / "map") == 0
    assert sorted(path.name for path in folder.iterdir()) == ["f.h5", "map"]
    return given, file_digests(folder / "map")


@pytest.mark.slow
@pytest.mark.parametrize("stage", ["matches", "clusters", "map"])
def test_a_full_disk_is_told_and_loses_nothing(
    stage: str,
    command: tuple[list[object], dict[str, str]],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Injected ENOSPC at each kind of file. The next run, with room, ends with the undisturbed map (shown once, for time)."""
    given, expected = command
    full, whole = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)), Path.write_bytes

    def write(path: Path, data: bytes) -> int:
        if path.parent.name == stage:
            raise full
        return whole(path, data)

    with monkeypatch.context() as patch:
        if stage == "map":
            patch.setattr(folders.os, "fsync", Mock(side_effect=full))
        else:
            patch.setattr(Path, "write_bytes", write)
        assert run(*given, "-o", tmp_path / "map") == 1
    said = capsys.readouterr().err
    assert "cannot write" in said and "No space left on device" in said
    assert [path.name for path in tmp_path.iterdir()] == ["map.unfinished"]
    assert not list((tmp_path / "map.unfinished").rglob("*.part"))
    if stage == "clusters":
        assert run(*given, "-o", tmp_path / "map") == 0 and file_digests(tmp_path / "map") == expected


def test_damaged_results_of_clusters_count_as_missing(tmp_path: Path) -> None:
    """Broken bytes of every kind; nothing is raised."""
    positions, lines = ClusterResults(tmp_path, OF_POSITIONS), ClusterResults(tmp_path, OF_LINES)
    for data in (b"", b"x" * 40, bytes(4000)):
        KeptArrays(tmp_path).path("key").write_bytes(data)
        assert positions.get("key", {}) is None and lines.get("key", {}) is None


@pytest.mark.slow
def test_another_commands_map_is_not_replaced(
    command: tuple[list[object], dict[str, str]], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A map stays if the run that was killed after it wrote it was another command, or if somebody changed it since."""
    given, _ = command
    (tmp_path / "map").mkdir()
    (tmp_path / "map" / "mine.txt").write_text("precious")
    assert run(*given, "-o", tmp_path / "map") == 1
    assert "not empty" in capsys.readouterr().err and (tmp_path / "map" / "mine.txt").read_text() == "precious"


def test_answers_of_clusters_are_kept(tmp_path: Path) -> None:
    """Oracle: counted calls, and the answers, remedies included. With another seed it is another cluster."""
    mapped: list[int] = []

    def refused(seed: int) -> NoMap:
        return NoMap(f"seed {seed}", {"a": "dark"}, CHECK, (Remedy("give", "MapOptions.seed"), Remedy("see", "report", "1")))

    def mapper(task: ClusterTask) -> NoMap:
        mapped.append(task.options.seed)
        return refused(task.options.seed)

    for seeds in ((0, 1), (1, 2), (0, 1, 2)):
        tasks = [ClusterTask(images={}, matches={}, options=MapOptions(seed=seed), workdir=tmp_path) for seed in seeds]
        answers = dict(keeping(ClusterResults(tmp_path / "kept", OF_POSITIONS), one_after_another, cluster_key)(mapper, tasks))
        assert [answers[k] for k in range(len(seeds))] == [refused(seed) for seed in seeds]
    assert mapped == [0, 1, 2]
