"""Pairs of images that show the same thing: COLMAP's two-view geometries that chance does not explain."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float64, Int64

from veil.forms import Subsets
from veil.geometry.robust.two_view import TwoView, agreeing, log10_chance
from veil.mapping.guided import Side, along_geometry
from veil.mapping.images import MapImage, calibration, undistorted_pixels
from veil.matching.neighbors import Matches

# Expected number of wrong pairs of images among all that were tried, at most.
WRONG_PAIRS = 0.01
# Pairs with so many inliers gain nothing from a second matching, nor do images with so many verified matches in all.
ENOUGH_INLIERS, ENOUGH_SUPPORT = 100, 500
# Images with fewer inliers in all their pairs are worth a verification of looser matches.
LITTLE_SUPPORT = 250
# Matches that the ratio dropped are restored within `RESTORED_PX` of the pair's geometry, if no more than the share
# `MOST_ACCIDENTS` of them can be accidents.
RESTORED_PX, MOST_ACCIDENTS = 2.0, 0.1


@dataclass(frozen=True, kw_only=True, eq=False)
class VerifiedPair:
    """Pair of images, a and b, whose matches chance does not explain.

    `inliers` are the matches that agree (feature of a, feature of b), `log10_chance` is log10 of the expected number of such
    geometries by chance, `rotation` is b_from_a of the pair by itself where COLMAP found one.
    """

    inliers: Int64[np.ndarray, "inliers 2"]
    log10_chance: float
    rotation: Float64[np.ndarray, "3 3"] | None = None


def verified_pairs(
    images: Mapping[str, MapImage],
    matches: Mapping[tuple[str, str], Matches],
    geometries: Mapping[tuple[str, str], Any],
    *,
    tests: int,
) -> dict[tuple[str, str], VerifiedPair]:
    """Verified pairs: fewer than `WRONG_PAIRS` as good are expected among `tests` pairs of images with wrong matches.

    `geometries` are COLMAP's, by pairs of names, and `matches` those that they were sought in.
    """
    positions = _positions(images, geometries)
    limit = math.log10(WRONG_PAIRS) - math.log10(max(1, tests))
    found: dict[tuple[str, str], VerifiedPair] = {}
    for (a, b), geometry in geometries.items():
        tried = _matches_of(matches, (a, b))
        chance = log10_chance(positions[a][tried[:, 0]], positions[b][tried[:, 1]], _two_view(geometry, images[a], images[b]))
        if chance <= limit:
            pose = geometry.cam2_from_cam1
            rotation = None if pose is None else np.asarray(pose.rotation.matrix(), dtype=np.float64)
            inliers = np.asarray(geometry.inlier_matches, dtype=np.int64)
            found[a, b] = VerifiedPair(inliers=inliers, log10_chance=chance, rotation=rotation)
    return found


def match_again(
    images: Mapping[str, MapImage],
    pairs: Mapping[tuple[str, str], VerifiedPair],
    geometries: Mapping[tuple[str, str], Any],
    max_ratio: float,
) -> None:
    """Match weak pairs a second time along their geometry, with the ratio `max_ratio` within the band.

    The matches that this adds go into COLMAP's objects `geometries` alone: a map is not judged by them.
    """
    positions = _positions(images, geometries)
    for pair in _weak(pairs):
        two_view = _two_view(geometries[pair], images[pair[0]], images[pair[1]])
        matched = _matched_again(images, positions, pair, two_view, pairs[pair].inliers, max_ratio)
        geometries[pair].inlier_matches = matched.astype(np.uint32)


def with_dropped(
    images: Mapping[str, MapImage], geometries: Mapping[tuple[str, str], Any], dropped: Mapping[tuple[str, str], Matches]
) -> dict[tuple[str, str], Int64[np.ndarray, "matches 2"]]:
    """Matches of the verified pairs that get some back of those `dropped` by a ratio, because the geometry explains them.

    The restored matches are for more points, not for poses: what a geometry picked is no evidence for it.
    """
    positions = _positions(images, geometries)
    found = {}
    for (a, b), geometry in geometries.items():
        kept = np.asarray(geometry.inlier_matches, dtype=np.int64)
        two_view = _two_view(geometry, images[a], images[b])
        more = _restored(positions, (a, b), two_view, kept, _matches_of(dropped, (a, b)))
        if len(more) > len(kept):
            found[a, b] = more
    return found


def unsupported(pairs: Mapping[tuple[str, str], VerifiedPair], candidates: Iterable[tuple[str, str]]) -> list[tuple[str, str]]:
    """Candidates that are not verified and have an image of few inliers in all its verified pairs together."""
    support, known = _support(pairs), {frozenset(pair) for pair in pairs}
    return [
        pair for pair in candidates if frozenset(pair) not in known and min(support[name] for name in pair) < LITTLE_SUPPORT
    ]


def _positions(images: Mapping[str, MapImage], pairs: Iterable[tuple[str, str]]) -> dict[str, Float64[np.ndarray, "_ 2"]]:
    """Undistorted positions in pixels of the features of the images that the pairs name."""
    names = {name for pair in pairs for name in pair}
    return {name: undistorted_pixels(images[name].camera, images[name].keypoints) for name in names}


def _matches_of(matches: Mapping[tuple[str, str], Matches], pair: tuple[str, str]) -> Int64[np.ndarray, "matches 2"]:
    """Matches (feature, feature) in the order of the images of `pair`, whichever way round they are listed."""
    if pair in matches:
        return matches[pair].indices
    reverse = matches.get((pair[1], pair[0]))
    return np.empty((0, 2), dtype=np.int64) if reverse is None else reverse.indices[:, ::-1]


def _restored(
    positions: Mapping[str, np.ndarray], pair: tuple[str, str], geometry: TwoView, kept: np.ndarray, dropped: np.ndarray
) -> np.ndarray:
    """Matches `kept`, and those of `dropped` between features without a match that the geometry explains.

    These are mutual neighbors whose ratio a repeated texture spoiled. None is restored if accidents may be more than a tenth of
    them.
    """
    free = ~(np.isin(dropped[:, 0], kept[:, 0]) | np.isin(dropped[:, 1], kept[:, 1]))
    rows = dropped[free]
    agree, accidents = agreeing(positions[pair[0]][rows[:, 0]], positions[pair[1]][rows[:, 1]], geometry, RESTORED_PX)
    return kept if accidents > MOST_ACCIDENTS * agree.sum() else np.concatenate([kept, rows[agree]])


def _weak(pairs: Mapping[tuple[str, str], VerifiedPair]) -> list[tuple[str, str]]:
    """Names of the pairs of few inliers that have an image of few inliers in all its pairs together."""
    support = _support(pairs)
    return [
        names
        for names, pair in pairs.items()
        if len(pair.inliers) < ENOUGH_INLIERS and min(support[name] for name in names) < ENOUGH_SUPPORT
    ]


def _support(pairs: Mapping[tuple[str, str], VerifiedPair]) -> Counter[str]:
    """Number of inliers of every image in all its pairs together."""
    support: Counter[str] = Counter()
    for names, pair in pairs.items():
        for name in names:
            support[name] += len(pair.inliers)
    return support


def _matched_again(
    images: Mapping[str, MapImage],
    positions: Mapping[str, np.ndarray],
    pair: tuple[str, str],
    geometry: TwoView,
    inliers: np.ndarray,
    max_ratio: float,
) -> np.ndarray:
    left, right = (images[name].form for name in pair)
    if isinstance(left, Subsets) or isinstance(right, Subsets):
        return inliers
    return along_geometry(
        Side(positions=positions[pair[0]], form=left),
        Side(positions=positions[pair[1]], form=right),
        geometry,
        inliers,
        max_ratio=max_ratio,
    )


def _two_view(geometry: Any, left: MapImage, right: MapImage) -> TwoView:
    essential, calibrated = geometry.E, geometry.E is not None
    fundamental = geometry.F
    if essential is not None:
        inverse = [np.linalg.inv(calibration(image.camera)) for image in (left, right)]
        fundamental = inverse[1].T @ np.asarray(essential) @ inverse[0]
    return TwoView(
        fundamental=None if fundamental is None else np.asarray(fundamental, dtype=np.float64),
        homography=None if geometry.H is None else np.asarray(geometry.H, dtype=np.float64),
        calibrated=calibrated,
    )
