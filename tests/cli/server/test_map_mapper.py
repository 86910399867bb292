"""`veil map --mapper`: COLMAP's global mapper from the command line."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from veil.cli import main
from veil.files.features import write_features
from veil.files.maps.format import read_map
from veil.geometry.similarity import align_centers, pose_error
from worlds import World, world
from worlds.line_worlds import features_of


@pytest.fixture(scope="module")
def place() -> World:
    return world("mappers", images=6, points=250)


@pytest.fixture(scope="module")
def given(place: World, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Features of a planted world; a few descriptors differ, as no two photographs have equal features."""
    messages = []
    for number, (name, item) in enumerate(features_of(place, "mappers").items()):
        descriptors = item.descriptors.copy()
        descriptors[number, :8] = descriptors[number, 7::-1]
        messages.append((name, replace(item, descriptors=descriptors)))
    path: Path = tmp_path_factory.mktemp("mappers") / "f.h5"
    write_features(path, messages)
    return path


def extent_error(place: World, folder: Path) -> float:
    """Largest position error of a map's cameras after alignment, as a share of the extent of the planted cameras."""
    images = read_map(folder).images
    names = sorted(images)
    assert len(names) == len(place.poses)
    poses, planted = [images[name].cam_from_world for name in names], [place.poses[name] for name in names]
    aligned = align_centers(poses, planted)
    centers = np.array([pose.inverse().translation for pose in planted])
    errors = [pose_error(one, true, aligned)[0] for one, true in zip(poses, planted, strict=True)]
    return float(max(errors) / np.ptp(centers, axis=0).max())


@pytest.mark.slow
def test_the_global_mapper_is_asked_for_by_name(place: World, given: Path, tmp_path: Path) -> None:
    """Oracle: planted poses; the two mappers do not give the same bytes, so that the option reaches COLMAP."""
    for mapper in ("incremental", "global"):
        assert main(["map", str(given), "-o", str(tmp_path / mapper), "--mapper", mapper]) == 0
        assert extent_error(place, tmp_path / mapper) < 0.01
    poses = [
        np.array([image.cam_from_world.translation for _, image in sorted(read_map(tmp_path / mapper).images.items())])
        for mapper in ("incremental", "global")
    ]
    assert not np.allclose(poses[0], poses[1])


def test_images_are_added_by_the_incremental_mapper_alone(
    given: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Oracle: the statement; it is said before the other map is looked for, and nothing is written."""
    asked = ["map", str(given), "-o", str(tmp_path / "map"), "--mapper", "global", "--add-to", str(tmp_path / "other")]
    assert main(asked) == 1
    assert "leave it out" in capsys.readouterr().err and not (tmp_path / "map").exists()
