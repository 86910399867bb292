"""Localization of several frames of words, or positions alone, with gravity (docs/theory/sequences.md#one-evidence).

A pose of the rig is found among the frames' candidates, tested and refined by the keypoints of all frames, and weighed by the
points of the map that lie beside a keypoint of any frame.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from jaxtyping import Bool, Float64, Int64
from scipy.spatial import cKDTree

from veil.geometry.robust.significance import P3P, pose_log10_samples
from veil.places.poses.answer import Localization, NoPose
from veil.places.poses.matches import Estimate
from veil.places.poses.options import WordOptions
from veil.places.poses.sequences.claims import FramesClaim
from veil.places.poses.sequences.frames import MatchedFrames
from veil.places.poses.sequences.upright_problem import FramesProblem
from veil.places.poses.upright import (
    DIRECTIONS,
    PARTS,
    SHIFTS_PX,
    UprightEvidence,
    UprightWeighing,
    best_upright,
    deviance,
    found,
    mutual,
)
from veil.progress import Progress


@dataclass(frozen=True, kw_only=True, eq=False)
class FramesWeighing(UprightWeighing):
    """Weighs poses of a rig by the keypoints of all its frames. Rows of keypoints are those of all frames together."""

    problem: FramesProblem

    @cached_property
    def parts(self) -> tuple[UprightWeighing, ...]:
        """The weighing of each frame."""
        frames = self.problem.frames
        return tuple(
            UprightWeighing(problem=part, unshared=self.unshared[rows])
            for part, rows in zip(self.problem.parts, frames.rows, strict=True)
        )

    def weighed(
        self,
        estimate: Estimate,
        *,
        keypoints: Bool[np.ndarray, "features"] | None = None,
        points: Bool[np.ndarray, "points"] | None = None,
        offsets: Float64[np.ndarray, "5"] | None = None,
    ) -> UprightEvidence:
        """Evidence for a pose of the rig among the `keypoints` and `points` (masks), by default all (sequences.md, Eq. 10).

        A point of the map counts once, in whichever frames a keypoint lies beside it. Of all sets of frames the one counts that
        chance explains least. `offsets` are asked of single frames.
        """
        assert offsets is None
        views = [self._view(frame, estimate, keypoints, points) for frame in range(len(self.parts))]
        most, expected = -math.inf, 1.0
        widest: tuple[np.ndarray, np.ndarray] = (np.empty(0, dtype=np.int64), np.empty(0, dtype=np.int64))
        for part in PARTS:
            pairs = [view.pairs(part) for view in views]
            words = [self.parts[k].words(*own) for k, own in enumerate(pairs)]
            shifted = [[view.pairs(part, shift)[1] for shift in _SHIFTS] for view in views]
            own = [deviance(len(pairs[k][0]), _mean_number(shifted[k : k + 1])) + words[k] for k in range(len(views))]
            order = np.argsort(-np.array(own), kind="stable")
            for count in range(1, len(views) + 1):
                chosen = order[:count].tolist()
                number, chance = len(_union(pairs[k][1] for k in chosen)), _mean_number([shifted[k] for k in chosen])
                most = max(most, deviance(number, chance) + sum(words[k] for k in chosen))
            if part == PARTS[0]:
                rows = np.concatenate([self.problem.frames.rows[k][one[0]] for k, one in enumerate(pairs)])
                point_rows, first = np.unique(np.concatenate([one[1] for one in pairs]), return_index=True)
                widest, expected = (rows[first], point_rows), chance
        places = sum(view.seen.n for view in views)
        tests = pose_log10_samples(places, P3P) + P3P.size * math.log10(max(len(self.problem.scene.points), 1))
        tests += math.log10(len(PARTS)) + len(views) * math.log10(2)
        count = len(widest[0])
        log10_nfa = tests - most / math.log(10) if count > P3P.size else math.inf
        return UprightEvidence(
            estimate=estimate, keypoint_rows=widest[0], point_rows=widest[1], expected=expected, log10_nfa=log10_nfa
        )

    def _view(
        self,
        frame: int,
        estimate: Estimate,
        keypoints: Bool[np.ndarray, "features"] | None,
        points: Bool[np.ndarray, "points"] | None,
    ) -> _FrameView:
        weighing = self.parts[frame]
        mask = weighing.places if keypoints is None else weighing.places & keypoints[self.problem.frames.rows[frame]]
        allowed = np.flatnonzero(mask)
        rows, projected = weighing.visible(self.problem.frames.estimate_in(frame, estimate))
        if points is not None:
            rows, projected = rows[points[rows]], projected[points[rows]]
        return _FrameView(
            allowed=allowed,
            seen=cKDTree(weighing.problem.seen[allowed]),
            point_rows=rows,
            projected=projected,
            pixel=1 / weighing.problem.camera.focal_px,
            limit_px=self.problem.options.match_px,
        )

    def visible(
        self, estimate: Estimate, offsets: Float64[np.ndarray, "5"] | None = None
    ) -> tuple[Int64[np.ndarray, "visible"], Float64[np.ndarray, "visible 2"]]:
        """Rows of the points that some frame could see, and their places in the first frame that does."""
        assert offsets is None
        views = [part.visible(self.problem.frames.estimate_in(frame, estimate)) for frame, part in enumerate(self.parts)]
        rows, first = np.unique(np.concatenate([rows for rows, _ in views]), return_index=True)
        return rows, np.concatenate([places for _, places in views])[first]

    def matched(self, estimate: Estimate, limit_px: float) -> MatchedFrames:
        """Pairs of keypoints and points that an estimate shows nearest to each other in a frame, within `limit_px`."""
        return self._of_frames(lambda part, own: part.pairs(own, limit_px), estimate, limit_px)

    def around(self, estimate: Estimate, reach_px: float) -> MatchedFrames:
        """All pairs of a keypoint and a point that a frame shows within `reach_px`; they agree within the usual limit."""

        def pairs(part: UprightWeighing, own: Estimate) -> tuple[np.ndarray, np.ndarray]:
            near = part.around(own, reach_px)
            return near.keypoint_rows, near.point_rows

        return self._of_frames(pairs, estimate, self.problem.options.match_px)

    def _of_frames(
        self,
        pairs: Callable[[UprightWeighing, Estimate], tuple[np.ndarray, np.ndarray]],
        estimate: Estimate,
        limit_px: float,
    ) -> MatchedFrames:
        frames = self.problem.frames
        own = [pairs(part, frames.estimate_in(frame, estimate)) for frame, part in enumerate(self.parts)]
        return MatchedFrames(
            camera=self.problem.camera,
            keypoint_rows=np.concatenate([frames.rows[frame][rows] for frame, (rows, _) in enumerate(own)]),
            point_rows=np.concatenate([rows for _, rows in own]),
            points=self.problem.scene.points,
            max_error_px=limit_px,
            seed=self.problem.seed,
            frames=frames,
            observations=self.problem.keypoints,
        )

    def log_odds_of_words(self, evidence: UprightEvidence) -> float:
        """Log likelihood ratio of the words of a pose's pairs, if those beyond chance are right (words_upright.md, Eq. 12)."""
        if not len(evidence):
            return 0.0
        right, total = max(0.0, 1.0 - evidence.expected / len(evidence)), 0.0
        frame_of = self.problem.frames.frame_of[evidence.keypoint_rows]
        for frame, (part, rows) in enumerate(zip(self.parts, self.problem.frames.rows, strict=True)):
            own = frame_of == frame
            total += part.words(np.searchsorted(rows, evidence.keypoint_rows[own]), evidence.point_rows[own], right)
        return total

    def claimed(self, **parts: Any) -> FramesClaim:
        """The claim of a pose of the rig for the judge."""
        return FramesClaim(doubts=[part.doubt for part in self.parts], **parts)


@dataclass(frozen=True, kw_only=True, eq=False)
class _FrameView:
    """Keypoints (`allowed` rows of their frame, and a tree of their places) and points that one frame shows.

    `pixel` is the size of a pixel in the normalized plane, and `limit_px` the largest distance of a pair.
    """

    allowed: Int64[np.ndarray, "_"]
    seen: cKDTree
    point_rows: Int64[np.ndarray, "visible"]
    projected: Float64[np.ndarray, "visible 2"]
    pixel: float
    limit_px: float

    def pairs(
        self, part: float, shift: Float64[np.ndarray, "2"] | None = None
    ) -> tuple[Int64[np.ndarray, "pairs"], Int64[np.ndarray, "pairs"]]:
        """Rows of keypoints and points nearest to each other within `part` of the limit, points shown `shift` pixels beside."""
        projected = self.projected if shift is None else self.projected + self.pixel * shift
        first, second = mutual(projected, self.seen, part * self.limit_px * self.pixel)
        return self.allowed[first], self.point_rows[second]


# Shifts in pixels at which pairs by chance are counted.
_SHIFTS = [
    shift * np.array([math.cos(angle), math.sin(angle)])
    for shift in SHIFTS_PX
    for angle in 2 * np.pi * np.arange(DIRECTIONS) / DIRECTIONS
]


def _union(rows: Iterable[Int64[np.ndarray, "_"]]) -> Int64[np.ndarray, "_"]:
    """Rows of points that stand in one of several lists."""
    return np.unique(np.concatenate(list(rows)))


def _mean_number(shifted: Sequence[Sequence[Int64[np.ndarray, "_"]]]) -> float:
    """Mean number of points beside a keypoint of any frame where all points are shown beside their places, at least 1.

    `shifted` holds the rows of these points for each frame and shift.
    """
    return max(1.0, float(np.mean([len(_union(each)) for each in zip(*shifted, strict=True)])))


def localize_upright_frames(
    problem: FramesProblem,
    unshared: Float64[np.ndarray, "features"],
    *,
    options: WordOptions,
    progress: Progress | None = None,
) -> Localization | NoPose:
    """Estimate the pose of a rig from keypoints and gravity of its frames, or say why none is better than chance.

    - `problem`: keypoints, gravity and candidates of all frames, and the map.
    - `unshared`: log likelihood ratio of each feature's words and any point with which they share none.
    - `options`: thresholds, and limits of the search, which all frames share.
    - `progress`: called with the number of pairs that are drawn in one frame, and of all.
    """
    weighing = FramesWeighing(problem=problem, unshared=unshared)
    return best_upright(weighing, found(problem, options, progress), options)
