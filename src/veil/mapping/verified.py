"""Which pairs of images show the same thing: COLMAP's two-view geometries, kept by their evidence against chance."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float64, Int64

from veil.forms import Subsets
from veil.mapping.guided import Side, along_geometry
from veil.mapping.images import MapImage, calibration, undistorted_pixels
from veil.mapping.two_view import TwoView, agreeing, log10_chance
from veil.matching.neighbors import Matches

# Expected number of wrong pairs among all that were tried.
WRONG_PAIRS = 0.01
# A pair this strong gains nothing from a second matching, nor do images with so many verified matches in all.
ENOUGH_INLIERS, ENOUGH_SUPPORT = 100, 500
# Images with fewer inliers are worth a verification of looser matches.
LITTLE_SUPPORT = 250
# Matches that the ratio dropped come back within so many pixels of the pair's geometry, if so few of them can be accidents.
RESTORED_PX, MOST_ACCIDENTS = 2.0, 0.1


@dataclass(frozen=True, kw_only=True, eq=False)
class VerifiedPair:
    """A pair whose matches chance does not explain: those that agree (rows of both images), log10 of how many such geometries
    chance would give, and the rotation b_from_a of the pair by itself where COLMAP found one."""

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
    """The pairs that evidence verifies: those of which fewer than `WRONG_PAIRS` as good are expected in `tests` pairs of wrong
    matches. `matches` are those that the geometries were sought in."""
    positions = _positions(images, geometries)
    limit = math.log10(WRONG_PAIRS) - math.log10(max(1, tests))
    found: dict[tuple[str, str], VerifiedPair] = {}
    for (a, b), geometry in geometries.items():
        tried = _of(matches, (a, b))
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
    """Match weak pairs a second time along their geometry. What that adds goes into COLMAP's objects alone: a map is not judged
    by it."""
    positions = _positions(images, geometries)
    for pair in _weak(pairs):
        two_view = _two_view(geometries[pair], images[pair[0]], images[pair[1]])
        matched = _again(images, positions, pair, two_view, pairs[pair].inliers, max_ratio)
        geometries[pair].inlier_matches = matched.astype(np.uint32)


def with_dropped(
    images: Mapping[str, MapImage], geometries: Mapping[tuple[str, str], Any], dropped: Mapping[tuple[str, str], Matches]
) -> dict[tuple[str, str], Int64[np.ndarray, "matches 2"]]:
    """Matches of verified pairs that get some back: of those `dropped` by a ratio the ones that the geometry explains.

    They are for more points, not for poses: what a geometry picked is no evidence for it.
    """
    positions = _positions(images, geometries)
    found = {}
    for (a, b), geometry in geometries.items():
        kept = np.asarray(geometry.inlier_matches, dtype=np.int64)
        two_view = _two_view(geometry, images[a], images[b])
        more = _restored(positions, (a, b), two_view, kept, _of(dropped, (a, b)))
        if len(more) > len(kept):
            found[a, b] = more
    return found


def unsupported(pairs: Mapping[tuple[str, str], VerifiedPair], candidates: Iterable[tuple[str, str]]) -> list[tuple[str, str]]:
    """Those of the candidates that are not verified and have an image of few inliers in all its verified pairs together."""
    support, known = _support(pairs), {frozenset(pair) for pair in pairs}
    return [
        pair for pair in candidates if frozenset(pair) not in known and min(support[name] for name in pair) < LITTLE_SUPPORT
    ]


def _positions(images: Mapping[str, MapImage], pairs: Iterable[tuple[str, str]]) -> dict[str, Float64[np.ndarray, "_ 2"]]:
    """Undistorted pixels of the images that the pairs name."""
    names = {name for pair in pairs for name in pair}
    return {name: undistorted_pixels(images[name].camera, images[name].keypoints) for name in names}


def _of(matches: Mapping[tuple[str, str], Matches], pair: tuple[str, str]) -> Int64[np.ndarray, "matches 2"]:
    """Rows of both images in the order of `pair`, whichever way round the matches are listed."""
    if pair in matches:
        return matches[pair].indices
    reverse = matches.get((pair[1], pair[0]))
    return np.empty((0, 2), dtype=np.int64) if reverse is None else reverse.indices[:, ::-1]


def _restored(
    positions: Mapping[str, np.ndarray], pair: tuple[str, str], geometry: TwoView, kept: np.ndarray, dropped: np.ndarray
) -> np.ndarray:
    """The kept matches, and those dropped ones of features without one that the geometry explains, unless accidents may be
    more than a tenth of them: mutual neighbors whose ratio a repeated texture spoiled."""
    free = ~(np.isin(dropped[:, 0], kept[:, 0]) | np.isin(dropped[:, 1], kept[:, 1]))
    rows = dropped[free]
    agree, accidents = agreeing(positions[pair[0]][rows[:, 0]], positions[pair[1]][rows[:, 1]], geometry, RESTORED_PX)
    return kept if accidents > MOST_ACCIDENTS * agree.sum() else np.concatenate([kept, rows[agree]])


def _weak(pairs: Mapping[tuple[str, str], VerifiedPair]) -> list[tuple[str, str]]:
    """The pairs of few inliers that have an image of few inliers in all its pairs together."""
    support = _support(pairs)
    return [
        names
        for names, pair in pairs.items()
        if len(pair.inliers) < ENOUGH_INLIERS and min(support[name] for name in names) < ENOUGH_SUPPORT
    ]


def _support(pairs: Mapping[tuple[str, str], VerifiedPair]) -> Counter[str]:
    """Inliers of every image in all its pairs together."""
    support: Counter[str] = Counter()
    for names, pair in pairs.items():
        for name in names:
            support[name] += len(pair.inliers)
    return support


def _again(
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
