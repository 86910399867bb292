"""Thinned scenes: counted by enumeration, nested, and exactly as weak as asked."""

from itertools import combinations

import numpy as np
import pytest

from veil.errors import InputError, RangeError
from veil.extraction.sift import sift_space
from veil.features import Features
from veil.geometry.camera import Camera
from veil.matching import Matches
from veil_lab.studies.mapping.thinning import most_shared, thin

CAMERA = Camera(model="SIMPLE_PINHOLE", width_px=100, height_px=100, params=(100.0, 50.0, 50.0))


def test_the_best_four_are_those_of_enumeration():
    random = np.random.default_rng(0)
    for images in (3, 4, 5, 7):
        for density in (0.3, 0.7):
            seen = random.random((60, images)) < density
            counts = [int(seen[:, list(four)].all(axis=1).sum()) for four in combinations(range(images), 4)]
            assert most_shared(seen) == max(counts, default=0)


def test_a_scene_is_as_weak_as_asked_and_weaker_ones_lie_inside():
    features, matches = _scene(points=800, images=5)
    shares = {count: thin(features, matches, shared_tracks=count, seed=3) for count in (200, 100, 50)}
    for count, thinned in shares.items():
        # Feature i of every image is point i, so what the best four share can be counted from the kept rows.
        kept = np.array([np.isin(np.arange(800), _points(thinned.features[name])) for name in sorted(features)]).T
        assert most_shared(kept) == thinned.shared_tracks
        assert 0.95 * count <= thinned.shared_tracks <= count
    for weak, strong in ((50, 100), (100, 200)):
        for name in features:
            assert set(_points(shares[weak].features[name])) <= set(_points(shares[strong].features[name]))


def test_thinning_refuses_what_it_cannot_give():
    features, matches = _scene(points=30, images=4)
    with pytest.raises(InputError, match="share 30 tracks"):
        thin(features, matches, shared_tracks=31)
    with pytest.raises(RangeError, match="at least 1"):
        thin(features, matches, shared_tracks=0)
    assert thin(features, matches, shared_tracks=30).kept == 1


def _scene(*, points, images):
    random = np.random.default_rng(1)
    names = [f"{i}.jpg" for i in range(images)]
    keypoints = np.stack([np.arange(points), np.zeros(points)], axis=1).astype(np.float32)
    descriptors = random.integers(1, 255, (points, 128)).astype(np.uint8)
    features = {
        name: Features(
            keypoints=keypoints, descriptors=descriptors, space=sift_space("L2"), camera=CAMERA, image_digest=bytes([i]) * 32
        )
        for i, name in enumerate(names)
    }
    same = np.stack([np.arange(points)] * 2, axis=1)
    every = Matches(indices=same, distances=np.zeros(points), ratios=np.full(points, 0.5))
    return features, dict.fromkeys(combinations(names, 2), every)


def _points(features):
    return features.keypoints[:, 0].astype(int)
