"""Altered copies of photographs for training: mirrored and resized, with the photograph's own digest."""

from __future__ import annotations

import numpy as np
import pytest

from veil.errors import RangeError
from veil.extraction.altered import ALTERATIONS, altered_copies
from veil.extraction.picture import picture


def test_copies_are_mirrored_and_resized_and_keep_the_digest() -> None:
    rgb = np.random.default_rng(0).integers(256, size=(200, 300, 3), dtype=np.uint8)
    shown = picture(rgb, {}, None)
    copies = list(altered_copies(shown, 5))
    assert np.array_equal(copies[0].gray, shown.gray[:, ::-1])
    assert [item.gray.shape for item in copies] == [(200, 300), (140, 210), (280, 420), (280, 420), (140, 210)]
    assert np.array_equal(copies[2].gray, copies[3].gray[:, ::-1]) and np.array_equal(copies[4].gray, copies[1].gray[:, ::-1])
    assert all(item.digest == shown.digest for item in copies)
    assert all(item.gray.shape == (item.camera.height_px, item.camera.width_px) for item in copies)
    assert list(altered_copies(shown, 0)) == [] and len(list(altered_copies(shown, 2))) == 2
    for count in (-1, len(ALTERATIONS) + 1):
        with pytest.raises(RangeError, match="at most 5"):
            list(altered_copies(shown, count))


def test_a_copy_too_small_for_features_is_left_out() -> None:
    shown = picture(np.zeros((80, 90, 3), dtype=np.uint8), {}, None)
    assert [item.gray.shape[0] for item in altered_copies(shown, 5)] == [80, 112, 112]
