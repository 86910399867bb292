"""`--matcher lightglue` of `veil map` and `veil localize`: raw features by a network that is given, and what it refuses."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from veil.cli import main
from veil.features import Features
from veil.files.features import write_features
from veil.wire.codec import encode
from worlds.lightglue_weights import still_weights
from worlds.releases import released
from worlds.schemas import validate


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory, door: dict[str, Features]) -> Path:
    """Raw features of all photographs, of each alone, weights of a network that compares descriptors, and a message."""
    made = tmp_path_factory.mktemp("matcher")
    np.savez(made / "still.npz", **still_weights())  # type: ignore[arg-type]
    write_features(made / "all.h5", door.items())
    for number, (name, features) in enumerate(sorted(door.items())):
        write_features(made / f"{number}.h5", {name: features}.items())
    (made / "a.veil").write_bytes(encode(released(next(iter(door.values())), None)[0]))
    return made


def run(*arguments: object) -> int:
    return main([str(argument) for argument in arguments])


def by_network(folder: Path) -> list[object]:
    return ["--matcher", "lightglue", "--matcher-weights", folder / "still.npz"]


@pytest.mark.slow
def test_raw_features_are_mapped_and_localized(folder: Path, door: dict[str, Features], tmp_path: Path) -> None:
    """Second method: the map and the pose by nearest neighbors. Matches that were kept serve again, and adding an image."""
    kept = tmp_path / "kept"
    assert (
        run("map", folder / "all.h5", "-o", tmp_path / "map", *by_network(folder), "--matches", kept, "--json", tmp_path / "j")
        == 0
    )
    record = json.loads((tmp_path / "j").read_text())
    validate("map", record)
    assert record["registered"] == 6 and record["public"] and record["points"] > 200
    names = sorted(door)
    write_features(tmp_path / "five.h5", {name: door[name] for name in names[:5]}.items())
    assert run("map", tmp_path / "five.h5", "-o", tmp_path / "five", *by_network(folder), "--matches", kept) == 0
    write_features(tmp_path / "sixth.h5", {names[5]: door[names[5]]}.items())
    assert run("map", tmp_path / "sixth.h5", "--add-to", tmp_path / "five", "-o", tmp_path / "grown", *by_network(folder)) == 0
    centers = []
    for matcher in (by_network(folder), []):
        poses = tmp_path / "poses.json"
        assert run("localize", tmp_path / "five", tmp_path / "sixth.h5", *matcher, "--json", poses) == 0
        (row,) = json.loads(poses.read_text())["queries"]
        centers.append(np.array(row["camera_center"]))
    assert np.linalg.norm(centers[0] - centers[1]) < 0.02


def test_what_cannot_be_matched_by_a_network_is_refused(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Every reason with what to do, and nothing is written."""
    made, glue = ["map", folder / "all.h5", "-o", tmp_path / "m"], ["--matcher", "lightglue"]
    cases: list[tuple[list[object], str]] = [
        (
            ["map", folder / "a.veil", "-o", tmp_path / "m", *by_network(folder)],
            "whoever runs it would have to hold what is hidden",
        ),
        ([*made, *by_network(folder), "--ratio", "0.8"], "--ratio is of nearest neighbors"),
        ([*made, "--matcher-weights", folder / "still.npz"], "add --matcher lightglue"),
        ([*made, *glue], "no weights of LightGlue for sift"),
        ([*made, *glue, "--matcher-weights", tmp_path / "none.pth"], "there is no file of weights"),
        ([*made, *glue, "--matcher-weights", folder / "0.h5"], "holds no weights"),
        (["map", folder / "all.h5", "-o", tmp_path / "m", *by_network(folder), "--engine", "dask"], "leave --engine dask out"),
        (["localize", f"tiles:{tmp_path}", folder / "0.h5", *by_network(folder)], "no keypoints of images"),
    ]
    for arguments, remedy in cases:
        assert run(*arguments) == 1, arguments
        said = capsys.readouterr().err
        assert remedy in said and "Traceback" not in said, (arguments, said)
    assert not (tmp_path / "m").exists()
