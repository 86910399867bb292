"""Equal numbers of features: planted scores and scales say which stay."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from veil.features import Features
from veil_lab.studies.matching.equal_numbers import strongest, with_equal_numbers
from worlds import features, generator


def test_each_image_has_as_many_features_as_the_poorest_descriptor() -> None:
    """Planted counts: 30 and 50 in one image, 20 and 10 in the other; a comparison without the cut would see 80 and 30."""

    def image(name: str, count: int) -> Features:
        return features(generator(name), count)

    equalized = with_equal_numbers(
        {"sift": {"a": image("sa", 30), "b": image("sb", 20)}, "aliked": {"a": image("aa", 50), "b": image("ab", 10)}}
    )
    assert {kind: [len(images[name]) for name in "ab"] for kind, images in equalized.items()} == {
        "sift": [30, 10],
        "aliked": [30, 10],
    }
    assert with_equal_numbers({}) == {}


def test_the_surest_stay_and_keep_their_order() -> None:
    """Planted: scores decide where there are any, scales where there are none; the first stay where both are unknown."""
    plain = features(generator("plain"), 6)
    scores = np.array([0.1, 0.9, 0.3, 0.8, 0.2, 0.7], dtype=np.float32)
    for known in (replace(plain, scores=scores, scales=-scores), replace(plain, scales=scores)):
        np.testing.assert_array_equal(strongest(known, 3).keypoints, plain.keypoints[[1, 3, 5]])
    np.testing.assert_array_equal(strongest(plain, 3).keypoints, plain.keypoints[:3])
    assert strongest(plain, 6) is plain
