"""Pictures from what a map of lines names, with a network whose pictures show their input."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from veil.features import Features
from veil.geometry.camera import guessed
from veil.inversion.maps import SIDE, Kind, SparseMap
from veil.mechanisms.public import publish
from veil.space import Space
from veil.trials.position_leakage import PositionLeakage
from veil_lab.studies.pictures.map_pictures import evenly, map_pictures
from worlds import generator, sift_like


class Marks:
    """A stand-in for a network: white where a map has a feature. It keeps the maps."""

    kind: Kind = "raw"

    def __init__(self) -> None:
        self.seen: list[SparseMap] = []

    def invert(self, maps: Sequence[SparseMap]) -> np.ndarray:
        self.seen.extend(maps)
        return np.stack([np.repeat(255 * item.mask[:, :, None].astype(np.uint8), 3, axis=2) for item in maps])


def test_a_map_of_lines_draws_the_features_that_it_names() -> None:
    """Planted: a fifth of the positions, a pixel off. Broken twins: descriptors of other rows; the true keypoints."""
    random = generator("map pictures")
    cells = random.permutation(SIDE * SIDE)[:100]
    keypoints = np.column_stack([cells % (SIDE - 1), cells // SIDE]).astype(np.float32) + np.float32(0.5)
    features = Features(
        keypoints=keypoints,
        descriptors=sift_like(random, 100),
        space=Space(descriptor="sift", normalization="L2", dim=128),
        camera=guessed(SIDE, SIDE),
        image_digest=bytes(32),
    )
    rows = np.sort(random.permutation(100)[:20])
    leakage = PositionLeakage(
        share=0.2,
        median_px=1.0,
        share_unchecked=0.2,
        median_px_unchecked=1.0,
        images={"a": (0.2, 1.0)},
        positions={"a": keypoints[rows].astype(np.float64) + np.array([1.0, 0.0])},
        rows={"a": rows},
    )
    network = Marks()
    photographs = {name: random.integers(0, 256, (SIDE, SIDE, 3), dtype=np.uint8) for name in "ab"}
    pictures = map_pictures(photographs, {"a": features, "b": features}, leakage, raw=network)
    assert [(item.name, item.attack) for item in pictures] == [
        ("a", "raw"),
        ("a", "line map"),
        ("b", "raw"),
        ("b", "line map"),
    ]
    assert [item.decided for item in pictures] == pytest.approx([1, 0.2, 1, 0])
    vectors = publish(features).vectors
    for cell, value in zip(network.seen[1].cells, network.seen[1].values[:, 0], strict=True):
        named = [row for row in rows if np.abs(value - vectors[row]).max() < 1e-6]
        x, y = keypoints[named[0]] + np.array([1.0, 0.0])
        assert cell == SIDE * int(y) + int(x)
    assert len(network.seen[1]) > 15 and len(network.seen[3]) == 0 and pictures[3].rgb.max() == 0


def test_names_are_taken_evenly() -> None:
    assert evenly(list("abcde"), 3) == ["a", "c", "e"] and evenly(list("ab"), 3) == ["a", "b"]
