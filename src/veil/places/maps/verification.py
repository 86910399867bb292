"""Verified pairs of images: COLMAP's two-view geometries that chance does not explain, and how they are sought."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Set
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float64, Int64

from veil.forms import Subsets, Subspaces
from veil.geometry.robust.turns import FACTORS, LIMIT_PX, Turn, best_turn
from veil.geometry.robust.two_view import TwoView, agreeing, log10_chance
from veil.matching.neighbors import Matches
from veil.matching.rescoring import matches_by_odds, scoring_for
from veil.places.maps.colmap import Colmap, Stopped
from veil.places.maps.colmap.database import keep_geometries, read_geometries, write_database
from veil.places.maps.guided import UndistortedFeatures, along_geometry
from veil.places.maps.images import MapImage, Pair, calibration, undistorted_pixels
from veil.places.maps.options import LEAST_INLIERS, MapOptions, first_ratios, verification_settings

# Verifying more pairs than this may take longer, in proportion, before it counts as hanging.
PAIRS_AT_ONCE = 50
# Expected number of wrong pairs of images among all that were tried, at most.
WRONG_PAIRS = 0.01
# Number of inliers from which a pair gains nothing from a second matching, and of verified matches for an image.
ENOUGH_INLIERS, ENOUGH_SUPPORT = 100, 500
# Images with fewer inliers in all their pairs are worth a verification of looser matches.
LITTLE_SUPPORT = 250
# Log odds of a match that is tried where ratios leave little, and number of pairs of images of a map that are tried so.
LEAST_LOG_ODDS, MOST_RESCORED = -1.0, 2000
# Matches that the ratio dropped are restored within `RESTORED_PX` of the pair's geometry, if no more than the share
# `MOST_ACCIDENTS` of them can be accidents.
RESTORED_PX, MOST_ACCIDENTS = 2.0, 0.1
# Share of the matches of a pair that one turn explains if its camera only turned, and of the pairs that are like this.
ONE_STANDPOINT = 0.9


class Verification:
    """Pairs of images verified so far, and COLMAP's database of them.

    `pairs` are the verified pairs by their names, the evidence that a map is judged by; COLMAP's own geometries may hold more
    matches. `image_ids` are COLMAP's, `constant_cameras` its ids of the cameras whose focal length is known.
    """

    def __init__(self, images: Mapping[str, MapImage], options: MapOptions, workdir: Path, colmap: Colmap) -> None:
        self._images, self._options, self._workdir, self._colmap = images, options, workdir, colmap
        self._matches: Mapping[Pair, Matches] = {}
        self._ratios: tuple[float, ...] = ()
        self._dropped: Mapping[Pair, Matches] = {}
        self._geometries: dict[Pair, Any] = {}
        self._tests = self._rounds = 0
        self._restored = False
        self.pairs: dict[Pair, VerifiedPair] = {}
        self.image_ids: dict[str, int] = {}
        self.constant_cameras: set[int] = set()

    @property
    def database(self) -> Path:
        """Path of COLMAP's database with the verified pairs."""
        return self._workdir / "database.db"

    def run(self, matches: Mapping[Pair, Matches]) -> Stopped | None:
        """Write the pairs that chance does not explain to the database; returns what stopped COLMAP, if anything did.

        Wrong pairs take COLMAP longest, the longer the more matches they have: the looser of two ratios is for pairs of images
        that the stricter one leaves with few inliers.
        """
        self._matches, self._ratios = matches, first_ratios(self._images, list(matches), self._options)
        for ratio in self._ratios or (math.inf,):
            candidates = self._within(ratio)
            tried = {pair: candidates[pair] for pair in unsupported(self.pairs, candidates)}
            if self._rounds and not tried:
                break
            if (stopped := self._verify(tried)) is not None:
                return stopped
        if (stopped := self._verify(self._rescored())) is not None:
            return stopped
        if self._ratios:
            self._dropped = {pair: matched.take(matched.ratios > self._ratios[0]) for pair, matched in matches.items()}
            match_again(self._images, self.pairs, self._geometries, self._ratios[-1])
        self._keep()
        return None

    def widen(self, names: Set[str], missing: Set[str]) -> bool:
        """Verify more pairs of the images `missing` by the looser ratio, and restore matches that the ratio dropped.

        `missing` are the images, of `names`, that a model lacks. Returns whether this may place one of them: whether it added
        anything, and a verified pair joins one of them to another image.
        """
        if not self._ratios:
            return False
        loose, before = self._within(self._ratios[-1]), len(self.pairs)
        known = {frozenset(pair) for pair in self.pairs}
        tried = {
            pair: matched
            for pair, matched in loose.items()
            if {*pair} <= names and {*pair} & missing and frozenset(pair) not in known
        }
        if len(self._ratios) > 1 and tried and self._verify(tried) is None:
            self._keep()
        restored = self.restore_dropped()
        rest = names - missing
        joined = any({*pair} <= names and {*pair} & missing and ({*pair} & rest or not rest) for pair in self.pairs)
        return joined and (restored or len(self.pairs) > before)

    def matched_share(self, names: Set[str]) -> float:
        """Share of the features of the images `names` that are inliers of a verified pair, on average."""
        held: dict[str, set[int]] = {name: set() for name in names}
        for pair, entry in self.pairs.items():
            for name, rows in zip(pair, entry.inliers.T, strict=True):
                if name in held:
                    held[name].update(rows.tolist())
        return float(np.mean([len(rows) / max(1, len(self._images[name].keypoints)) for name, rows in held.items()] or [0.0]))

    def forget(self, pairs: Set[Pair]) -> None:
        """Take verified pairs back, also from the database, because something else speaks against them."""
        if pairs:
            self.pairs = {pair: entry for pair, entry in self.pairs.items() if pair not in pairs}
            self._geometries = {pair: entry for pair, entry in self._geometries.items() if pair not in pairs}
            self._keep()

    def restore_dropped(self) -> bool:
        """Add matches that the ratio dropped and the pairs' geometries explain to the database; returns whether any exist."""
        if not self._restored:
            more = with_dropped(self._images, self._geometries, self._dropped)
            for pair, matches in more.items():
                self._geometries[pair].inlier_matches = matches.astype(np.uint32)
            self._restored = bool(more)
            if more:
                self._keep()
        return self._restored

    def _within(self, ratio: float) -> dict[Pair, Matches]:
        """Matches that pass a ratio, of the pairs with `LEAST_INLIERS` of them or more."""
        kept = {pair: matched.take(matched.ratios <= ratio) for pair, matched in self._matches.items()}
        return {pair: matched for pair, matched in kept.items() if len(matched) >= LEAST_INLIERS}

    def _rescored(self) -> dict[Pair, Matches]:
        """Likely matches of pairs with an image of little support, the best matched pairs first; none if a ratio is asked."""
        if self._options.max_ratio is not None or not self._ratios:
            return {}
        support = _support(self.pairs)
        poor = [pair for pair in self._matches if min(support[name] for name in pair) < LITTLE_SUPPORT]
        passing = {pair: int((self._matches[pair].ratios <= self._ratios[-1]).sum()) for pair in poor}
        rescored = {}
        for pair in sorted(poor, key=lambda pair: (-passing[pair], pair))[:MOST_RESCORED]:
            left, right = (self._images[name].form for name in pair)
            if (scoring := scoring_for(left, right)) is not None:
                assert isinstance(left, Subspaces) and isinstance(right, Subspaces)
                rescored[pair] = matches_by_odds(left, right, scoring, least_log_odds=LEAST_LOG_ODDS)
        return {pair: matched for pair, matched in rescored.items() if len(matched) >= LEAST_INLIERS}

    def _verify(self, tried: Mapping[Pair, Matches]) -> Stopped | None:
        """Verify the pairs `tried` in a new database, and keep those that chance does not explain, with COLMAP's geometries.

        Of a pair that was verified before, the geometry that chance explains less is kept.
        """
        if not tried and self._rounds:
            return None
        self._rounds += 1
        self._tests += len(tried)
        path = self.database if self._rounds == 1 else self._workdir / f"database-{self._rounds}.db"
        self.image_ids, self.constant_cameras = write_database(path, self._images, tried)
        settings = verification_settings(self._images, again=self._rounds > 1)
        request = {"do": "verify", "database": str(path), "seed": self._options.seed, "options": settings}
        # All pairs are verified in one stage without a sign of progress.
        answer = self._colmap.run(request, work=max(1.0, len(tried) / PAIRS_AT_ONCE))
        if isinstance(answer, Stopped):
            return answer
        geometries = read_geometries(path, self.image_ids)
        verified = {
            pair: entry
            for pair, entry in verified_pairs(self._images, tried, geometries, tests=self._tests).items()
            if pair not in self.pairs or entry.log10_chance < self.pairs[pair].log10_chance
        }
        self.pairs |= verified
        self._geometries |= {pair: geometries[pair] for pair in verified}
        return None

    def _keep(self) -> None:
        keep_geometries(self.database, self.image_ids, self._geometries)


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
    verified: dict[tuple[str, str], VerifiedPair] = {}
    for (a, b), geometry in geometries.items():
        tried = _matches_of(matches, (a, b))
        chance = log10_chance(positions[a][tried[:, 0]], positions[b][tried[:, 1]], _two_view(geometry, images[a], images[b]))
        if chance <= limit:
            pose = geometry.cam2_from_cam1
            rotation = None if pose is None else np.asarray(pose.rotation.matrix(), dtype=np.float64)
            inliers = np.asarray(geometry.inlier_matches, dtype=np.int64)
            verified[a, b] = VerifiedPair(inliers=inliers, log10_chance=chance, rotation=rotation)
    return verified


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
    restored = {}
    for (a, b), geometry in geometries.items():
        kept = np.asarray(geometry.inlier_matches, dtype=np.int64)
        two_view = _two_view(geometry, images[a], images[b])
        more = _restored(positions, (a, b), two_view, kept, _matches_of(dropped, (a, b)))
        if len(more) > len(kept):
            restored[a, b] = more
    return restored


def unsupported(pairs: Mapping[tuple[str, str], VerifiedPair], candidates: Iterable[tuple[str, str]]) -> list[tuple[str, str]]:
    """Candidates that are not verified and have an image of few inliers in all its verified pairs together."""
    support, known = _support(pairs), {frozenset(pair) for pair in pairs}
    return [
        pair for pair in candidates if frozenset(pair) not in known and min(support[name] for name in pair) < LITTLE_SUPPORT
    ]


def one_standpoint(images: Mapping[str, MapImage], pairs: Mapping[Pair, VerifiedPair]) -> str | None:
    """Reason why verified pairs measure no depths, if one turn of the camera explains nearly all matches of nearly all of them.

    A camera that stood still, or only turned, leaves all depths open (mapping.md#no-start). `images` are those of the pairs.
    """
    alike: list[Turn] = []
    for number, (pair, entry) in enumerate(pairs.items()):
        turn = _turn_of(images, pair, entry)
        alike += [turn] if turn.share >= ONE_STANDPOINT else []
        if number + 1 - len(alike) > (1 - ONE_STANDPOINT) * len(pairs):
            return None  # usually one of the first pairs shows it
    if not alike:
        return None
    shift, angle = float(np.median([turn.shift_px for turn in alike])), max(turn.angle_deg for turn in alike)
    counted = f"{len(alike)} of {len(pairs)} verified pairs of images"
    if shift > LIMIT_PX and not any(turn.is_plain for turn in alike):
        return None  # a step along a wall would show the same
    if shift <= LIMIT_PX:
        return f"{counted} are one picture, whose matches lie {shift:.1f} px apart: the camera stood still"
    return f"the camera only turned, by up to {angle:.0f} degrees, in {counted}: it moved too little to measure depths"


def _turn_of(images: Mapping[str, MapImage], pair: Pair, entry: VerifiedPair) -> Turn:
    """The turn that explains most matches of a verified pair; guessed focal lengths are tried at other values, too."""
    cameras = [images[name].camera for name in pair]
    left, right = (
        undistorted_pixels(images[name].camera, images[name].keypoints[rows])
        for name, rows in zip(pair, entry.inliers.T, strict=True)
    )
    factors = (1.0,) if all(camera.focal_is_known for camera in cameras) else FACTORS
    return best_turn(left, right, calibration(cameras[0]), calibration(cameras[1]), factors=factors)


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
        UndistortedFeatures(positions=positions[pair[0]], form=left),
        UndistortedFeatures(positions=positions[pair[1]], form=right),
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
