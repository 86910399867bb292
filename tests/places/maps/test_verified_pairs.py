"""Verified pairs get back the matches that a ratio dropped, if their geometry explains them."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np

from veil.geometry.camera import as_colmap
from veil.matching.neighbors import Matches
from veil.places.maps import MapImage
from veil.places.maps.verification import with_dropped
from worlds import World, generator, world

NAMES = ("00", "03")


def pair_of(place: World) -> tuple[dict[str, MapImage], SimpleNamespace]:
    """Two images of the world, and their true geometry as COLMAP gives one."""
    images = {n: MapImage(camera=place.camera, keypoints=place.keypoints[n], form=place.form(n)) for n in NAMES}
    first, second = (place.poses[name] for name in NAMES)
    turn = second.rotation @ first.rotation.T
    x, y, z = second.translation - turn @ first.translation
    inverse = np.linalg.inv(as_colmap(place.camera).calibration_matrix())
    fundamental = inverse.T @ np.array([[0, -z, y], [z, 0, -x], [-y, x, 0]]) @ turn @ inverse
    return images, SimpleNamespace(E=None, F=fundamental, H=None, cam2_from_cam1=None, inlier_matches=np.empty((0, 2)))


def right_matches(place: World) -> np.ndarray:
    """Rows of both images that see one point."""
    rows = [{int(point): row for row, point in enumerate(place.visible[name])} for name in NAMES]
    return np.array([(rows[0][p], rows[1][p]) for p in sorted(set(rows[0]) & set(rows[1]))])


def as_matches(rows: np.ndarray) -> Matches:
    return Matches(indices=rows.astype(np.int64), distances=np.ones(len(rows)), ratios=np.full(len(rows), 0.95))


def after(kept: np.ndarray, dropped: np.ndarray, place: World, *, reverse: bool = False) -> np.ndarray:
    """Matches of the pair after dropped ones were restored."""
    images, geometry = pair_of(place)
    geometry.inlier_matches = kept.astype(np.uint32)
    lost = {NAMES[::-1]: as_matches(dropped[:, ::-1])} if reverse else {NAMES: as_matches(dropped)}
    return with_dropped(images, {NAMES: geometry}, lost).get(NAMES, kept)


def test_right_matches_that_the_ratio_dropped_come_back() -> None:
    """Oracle: planted points; nine in ten of the right matches dropped are restored, and of 10 wrong ones 2 at most."""
    place = world("dropped")
    right = generator("dropped order").permutation(right_matches(place))
    assert len(right) > 150
    wrong = np.stack([right[140:150, 0], np.roll(right[140:150, 1], 3)], axis=1)
    for reverse in (False, True):
        matches = after(right[:60], np.concatenate([right[60:140], wrong]), place, reverse=reverse)
        assert set(map(tuple, right[:60].tolist())) <= set(map(tuple, matches.tolist()))
        back = set(map(tuple, matches[60:].tolist()))
        assert len(back & set(map(tuple, right[60:140].tolist()))) >= 72
        assert len(back & set(map(tuple, wrong.tolist()))) <= 2


def test_accidents_do_not_come_back() -> None:
    """Wrong matches agree with the geometry now and then: where no more agree than chance gives, none is restored."""
    place = world("accidents")
    right = generator("accident order").permutation(right_matches(place))
    left, other = right[60:].T
    matches = after(right[:60], np.stack([left, np.roll(other, 7)], axis=1), place)
    assert len(matches) == 60


def test_a_matched_feature_gets_no_second_match() -> None:
    place = world("second")
    right = right_matches(place)
    matches = after(right[:60], right, place)
    assert len(set(matches[:, 0].tolist())) == len(set(matches[:, 1].tolist())) == len(matches) > 100
