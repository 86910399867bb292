"""Altered copies of photographs: mirrored and resized, with the photograph's own digest; second views; near repeats."""

from __future__ import annotations

from typing import get_args

import numpy as np
import pytest

from veil.errors import RangeError
from veil.extraction.picture import Picture
from veil.files.photographs.examples import other_place
from veil.files.photographs.pictures import read_rgb
from veil_lab.training.altered import ALTERATIONS, RepeatKind, altered_copies, near_repeats, second_view


def test_copies_are_mirrored_and_resized_and_keep_the_digest() -> None:
    rgb = np.random.default_rng(0).integers(256, size=(200, 300, 3), dtype=np.uint8)
    shown = Picture.of(rgb, {}, None)
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
    shown = Picture.of(np.zeros((80, 90, 3), dtype=np.uint8), {}, None)
    assert [item.gray.shape[0] for item in altered_copies(shown, 5)] == [80, 112, 112]


def test_a_second_view_is_the_picture_in_perspective() -> None:
    """Oracle: the four corners in the photograph, and the cross of their diagonals, which a perspective keeps. The photograph's
    pixels tell their own place: its red is the column, its green the row."""
    y, x = np.mgrid[:240, :250]
    shown = Picture.of(np.stack([x, y, np.zeros_like(x)], axis=2).astype(np.uint8), {}, None)
    seen = second_view(shown)
    assert seen.rgb is not None and seen.rgb.shape == (240, 250, 3) and seen.digest != shown.digest
    quad = np.array([(0.06, 0.03), (0.02, 0.95), (0.97, 0.99), (0.93, 0.02)]) * [250, 240]
    corners = [(0, 0), (239, 0), (239, 249), (0, 249)]
    for (row, column), place in zip(corners, quad, strict=True):
        assert np.abs(seen.rgb[row, column, :2] - (place - 0.5)).max() < 2
    (a, b, c, d) = quad
    along = np.linalg.solve(np.stack([c - a, b - d], axis=1), b - a)
    assert np.abs(seen.rgb[120, 125, :2] - (a + along[0] * (c - a) - 0.5)).max() < 2
    assert not np.abs(seen.rgb[120, 125, :2] - quad.mean(axis=0)).max() < 0.5  # an affine map would put it there


def photograph(rows: int, columns: int) -> np.ndarray:
    """A part of the bundled photograph of another place, in colors."""
    with other_place() as path:
        return np.ascontiguousarray(read_rgb(path)[200 : 200 + rows, 100 : 100 + columns])


def test_altered_copies_have_altered_colors() -> None:
    rgb = photograph(128, 200)
    mirrored, small = list(altered_copies(Picture.of(rgb, {}, None), 2))
    assert mirrored.rgb is not None and small.rgb is not None
    np.testing.assert_array_equal(mirrored.rgb, rgb[:, ::-1])
    assert small.rgb.shape == (*small.gray.shape, 3)


@pytest.mark.parametrize("kind", get_args(RepeatKind))
def test_near_repeats_show_the_photograph_where_their_map_says(kind: RepeatKind) -> None:
    """Planted: the red of each pixel is its column, its green its row. Noise and JPEG move it by a few levels at random."""
    y, x = np.mgrid[:240, :250]
    shown = Picture.of(np.stack([x, y, np.zeros_like(x)], axis=2).astype(np.uint8), {}, None)
    repeats = near_repeats(shown, kind, 3, seed=0)
    assert len({shown.digest, *(item.picture.digest for item in repeats)}) == 4
    for item in repeats:
        seen = item.picture.rgb
        assert seen is not None and (item.picture.camera == shown.camera) == (kind == "frame")
        rows, columns = np.mgrid[: seen.shape[0], : seen.shape[1]] + 0.5
        place = np.stack([columns, rows], axis=2) @ item.to_photograph[:, :2].T + item.to_photograph[:, 2] - 0.5
        assert np.abs((seen[..., :2] - place).mean(axis=(0, 1))).max() < 0.7  # Pillow cuts off half a level
        assert 0.5 < np.std(seen[..., :2] - place) < 4  # also at the border: nothing empty is in sight
        wrong = place + 2  # broken twin: a map that is off by two pixels
        assert np.abs((seen[..., :2] - wrong).mean(axis=(0, 1))).min() > 0.7
    again = near_repeats(shown, kind, 2, seed=0)
    assert [item.picture.digest for item in again] == [item.picture.digest for item in repeats[:2]]
    assert near_repeats(shown, kind, 1, seed=1)[0].picture.digest != repeats[0].picture.digest


def test_handheld_shots_of_a_small_picture_are_refused() -> None:
    shown = Picture.of(np.zeros((70, 300, 3), dtype=np.uint8), {}, None)
    with pytest.raises(RangeError, match="need pictures of 64 px"):
        near_repeats(shown, "shot", 1, seed=0)
