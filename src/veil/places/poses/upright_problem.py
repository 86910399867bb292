"""Keypoints with gravity as a search problem: candidates by mapped image, poses, and the table that tests them.

Theory: docs/theory/words_upright.md. The table says how much likelier a point of the map is shown at a place of the picture by
a right pose than by a wrong one.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple

import numpy as np
from jaxtyping import Float32, Float64, Int64
from scipy.ndimage import gaussian_filter
from scipy.spatial import cKDTree

from veil.errors import Remedy
from veil.geometry.camera import FRAME_SLACK, Camera, as_colmap, half_extent
from veil.geometry.gravity import aligned_from_cam
from veil.geometry.rigid import Rigid, rotation_angle_deg
from veil.geometry.robust.upright_search import Kept, PoseTest, Sampled, UprightLimits, refine_by_steps, search_pairs
from veil.matching.inverted_index import Candidates
from veil.places.poses.answer import NoPose
from veil.places.poses.options import UprightOptions
from veil.scene import Scene

# The share of a query's keypoints that show a point of a mapped image, and the bounds of the share of points that are shown.
SHARE_OF_KEYPOINTS, LEAST_SHOWN, MOST_SHOWN = 0.3, 0.02, 0.5
# How much the table weighs the words of a candidate right at its keypoint, by the table's width in pixels: in a wide table the
# keypoint there may well be another one than the point's own.
WORD_WEIGHT_PX = 4.0
# A likelihood ratio is cut off here: beyond it, one candidate would take all samples.
MOST_LOG_ODDS = 12.0
# Numbers of points of its mapped image after which a pose goes on, if the sum of the table is above a limit.
LIKELY = 256
BATCHES, LEAST_SUMS = (24, 96, 264), (1.0, 2.0, 3.0)
# Poses this near (share of the distance to a point; degrees) are one and the same.
SAME_PLACE, SAME_TURN_DEG = 0.05, 3.0
# Largest number of guesses that are held for all mapped images (32 bytes each), and how many pairs are looked at for one.
MOST_GUESSES, PAIRS_A_GUESS = 6_000_000, 4
# Steps of the refinement with each table. The first are so long that the typical step is a third of the table's width.
STEPS, STEP_SHARE = 150, 0.8
# Number of refinements of the best pose.
RETRIES = 4


class Draws(NamedTuple):
    """Candidates of one mapped image: rows of keypoints and points, and the gains of their words; 0 where they share none."""

    keypoint_rows: Int64[np.ndarray, "candidates"]
    point_rows: Int64[np.ndarray, "candidates"]
    gains: Float64[np.ndarray, "candidates"]


_NOTHING = np.empty(0, dtype=np.int64)
NO_DRAWS = Draws(_NOTHING, _NOTHING, np.empty(0))


@dataclass(frozen=True, kw_only=True, eq=False)
class UprightProblem:
    """Input of the search for the pose of a query in words where gravity is known in query and map.

    - `camera`, `keypoints` (pixels), `gravity` (unit vector, down in the camera frame): the query.
    - `candidates`: of the query's features, with the log odds of their words; `scene`: the map, whose gravity is known.
    - `names`: the images of the map that samples are taken from.
    """

    camera: Camera
    keypoints: Float32[np.ndarray, "features 2"]
    gravity: Float64[np.ndarray, "3"]
    candidates: Candidates
    scene: Scene
    names: Sequence[str]
    options: UprightOptions
    seed: int = 0

    @cached_property
    def seen(self) -> Float64[np.ndarray, "features 2"]:
        """The keypoints in the undistorted normalized plane."""
        return np.asarray(as_colmap(self.camera).cam_from_img(self.keypoints.astype(np.float64)), dtype=np.float64).reshape(
            -1, 2
        )

    @cached_property
    def half(self) -> Float64[np.ndarray, "2"]:
        """Largest |x| and |y| of the normalized plane that projections may have."""
        return FRAME_SLACK * half_extent(self.camera)

    @cached_property
    def up_from_world(self) -> Float64[np.ndarray, "3 3"]:
        """Turn from the map to frames where gravity is the y-axis."""
        assert self.scene.down is not None
        return aligned_from_cam(self.scene.down)

    @cached_property
    def up_from_cam(self) -> Float64[np.ndarray, "3 3"]:
        """Turn from the camera to a frame where gravity is the y-axis."""
        return aligned_from_cam(self.gravity)

    @cached_property
    def shown(self) -> list[Int64[np.ndarray, "_"]]:
        """Points that each of the images sees, in an order that says nothing."""
        random = np.random.default_rng(self.seed)
        return [random.permutation(np.unique(self.scene.images[name].point_rows)) for name in self.names]

    @property
    def queried(self) -> int:
        """Number of features that have candidates."""
        return len(np.unique(self.candidates.keypoint_rows))

    @property
    def doubt(self) -> str:
        """Possible fault where no pose is beyond chance, as a question."""
        return "is the map of this place, and its gravity and the query's right?"

    @cached_property
    def shown_share(self) -> float:
        """Share of the points of a mapped image that the query is expected to show as keypoints."""
        mean = float(np.mean([len(rows) for rows in self.shown]))
        return float(np.clip(SHARE_OF_KEYPOINTS * len(self.keypoints) / max(mean, 1.0), LEAST_SHOWN, MOST_SHOWN))

    @cached_property
    def sampled(self) -> Sampled:
        """Candidates by image, for `veil.geometry.robust.upright_search`. Images without two of them get no samples."""
        gains = np.expm1(np.minimum(self.candidates.log_odds, MOST_LOG_ODDS))
        likely = np.flatnonzero(gains > 0)
        drawn = []
        for name, shown in zip(self.names, self.shown, strict=True):
            visible = np.zeros(len(self.scene.points), dtype=bool)
            visible[shown] = True
            own = likely[visible[self.candidates.point_rows[likely]]]  # the most likely first, as the candidates are
            words = Draws(self.candidates.keypoint_rows[own], self.candidates.point_rows[own], gains[own])
            drawn.append((words, guesses(self, name) if self.options.reach else NO_DRAWS))
        parts = [part for both in drawn for part in both]
        counts = np.array([[len(part.gains) for part in both] for both in drawn], dtype=np.int64).reshape(-1, 2)
        starts = np.cumsum([0, *counts.sum(axis=1)])
        usable = (counts.sum(axis=1) >= 2).astype(np.float64)
        rays, points, centers = self.upright_frames
        return Sampled(
            rays=rays,
            points=points,
            starts=starts,
            worded=starts[:-1] + counts[:, 0],
            keypoint_rows=np.concatenate([NO_DRAWS.keypoint_rows, *(part.keypoint_rows for part in parts)]),
            point_rows=np.concatenate([NO_DRAWS.point_rows, *(part.point_rows for part in parts)]),
            gain=np.concatenate([NO_DRAWS.gains, *(part.gains for part in parts)]),
            cumulative=np.concatenate([NO_DRAWS.gains, *(_cumulative(*both) for both in drawn)]),
            shares=np.cumsum(usable) / max(float(usable.sum()), 1.0),
            centers=centers,
        )

    @property
    def upright_frames(
        self,
    ) -> tuple[Float64[np.ndarray, "features 3"], Float64[np.ndarray, "points 3"], Float64[np.ndarray, "images 3"]]:
        """Unit rays of the keypoints, points of the map and centers of its images in frames where gravity is the y-axis."""
        rays = np.hstack([self.seen, np.ones((len(self.seen), 1))])
        rays /= np.linalg.norm(rays, axis=1, keepdims=True)
        centers = [self.up_from_world @ self.scene.images[name].cam_from_world.center for name in self.names]
        points = self.scene.points @ self.up_from_world.T
        return np.ascontiguousarray(rays @ self.up_from_cam.T), np.ascontiguousarray(points), np.array(centers)

    def tested(self, spread_px: float, words_px: float | None = None) -> PoseTest:
        """The table of a width in pixels, for the search and the steps; words reach `words_px`, by default as far."""
        words_px = words_px or spread_px
        table = keypoint_table(self._cells, spread_px=spread_px, shown_share=self.shown_share)
        return PoseTest(
            shown_starts=np.cumsum([0, *(len(rows) for rows in self.shown)]).astype(np.int64),
            shown=np.concatenate(self.shown),
            table=table.values,
            scale=table.scale,
            origin=table.origin,
            cam_from_up=np.ascontiguousarray(self.up_from_cam.T),
            seen=np.ascontiguousarray(self.seen),
            inverse_variance=(self.camera.focal_px / words_px) ** 2,
            weight=WORD_WEIGHT_PX / (WORD_WEIGHT_PX + words_px),
        )

    @cached_property
    def _cells(self) -> KeypointCells:
        return keypoint_cells(self.camera, self.seen)

    @cached_property
    def _tables(self) -> list[PoseTest]:
        return [self.tested(width) for width in self.options.refine_px]

    @property
    def limits(self) -> UprightLimits:
        """Thresholds of poses in the search."""
        return limits_of(self.options, likely=LIKELY, batches=BATCHES, least=LEAST_SUMS)

    def draw(self, kept: Kept, *, samples: int, seed: int) -> None:
        """Draw pairs of candidates, and keep the best poses that they give."""
        search_pairs(kept, self.sampled, self._searched, self.limits, samples=samples, seed=seed)

    @cached_property
    def _searched(self) -> PoseTest:
        """The table of the search."""
        return self.tested(self.options.search_px, self.options.words_px)

    def refined(self, kept: Kept) -> list[Rigid]:
        """The best kept poses (cam_from_world) after the steps of the refinement, the best first, each place once.

        All six degrees of freedom are refined: gravity, which the samples trusted, is off by some tenths of a degree.
        """
        sampled = self.sampled
        scored: list[tuple[float, Rigid, float]] = []
        for k in kept.best()[: self.options.refined]:
            cos, sin, *shift = kept.turns[k]
            heading = np.array([[cos, 0.0, sin], [0.0, 1.0, 0.0], [-sin, 0.0, cos]])
            rotation = np.ascontiguousarray(self.up_from_cam.T @ heading)
            translation = self.up_from_cam.T @ np.array(shift)
            v = int(kept.images[k])
            shown = np.ascontiguousarray(self.shown[v])
            middle = sampled.points[shown].mean(axis=0)
            first, last, score = int(sampled.starts[v]), int(sampled.worded[v]), 0.0
            for width, tested in zip(self.options.refine_px, self._tables, strict=True):
                size, seed = STEP_SHARE * width / self.camera.focal_px, np.uint64(int(k) + 1)
                score = refine_by_steps(tested, sampled, first, last, shown, middle, rotation, translation, size, STEPS, seed)
            pose = Rigid(rotation=rotation @ self.up_from_world, translation=translation)
            scored.append((score, pose, float(np.linalg.norm(sampled.centers[v] - middle))))
        scored.sort(key=lambda item: -item[0])
        distinct: list[Rigid] = []
        for _, pose, distance in scored:
            if not any(is_same_pose(pose, other, SAME_PLACE * distance) for other in distinct):
                distinct.append(pose)
        return distinct

    def retried(self, pose: Rigid, rows: Int64[np.ndarray, "visible"]) -> list[Rigid]:
        """Poses that steps from `pose` lead to by all points `rows` that it shows: the table has more than one maximum."""
        sampled, poses = self.sampled, []
        middle = sampled.points[rows].mean(axis=0)
        for attempt in range(RETRIES):
            rotation = np.ascontiguousarray(pose.rotation @ self.up_from_world.T)
            translation = pose.translation.copy()
            for width, tested in zip(self.options.refine_px, self._tables, strict=True):
                size, seed = STEP_SHARE * width / self.camera.focal_px, np.uint64(attempt + 1)
                refine_by_steps(tested, sampled, 0, 0, rows, middle, rotation, translation, size, STEPS, seed)
            poses.append(Rigid(rotation=rotation @ self.up_from_world, translation=translation))
        return poses


def guesses(problem: UprightProblem, name: str) -> Draws:
    """A pair for each point of a mapped image that it shows within reach of a keypoint.

    Of more than this image's part of `MOST_GUESSES`, or of points whose pairs would be too many, a random part is
    kept.
    """

    most = MOST_GUESSES // len(problem.names)
    random = np.random.default_rng([problem.seed, problem.names.index(name)])
    image = problem.scene.images[name]
    rows = np.unique(image.point_rows)
    in_camera = image.cam_from_world.apply(problem.scene.points[rows])
    ahead = np.flatnonzero(in_camera[:, 2] > 1e-9)
    ahead = _some(ahead, max(1, PAIRS_A_GUESS * most // len(problem.seen)), random)
    rows, places = rows[ahead], in_camera[ahead, :2] / in_camera[ahead, 2:]
    near = cKDTree(problem.seen).query_ball_point(places, problem.options.reach, return_sorted=True)
    counts = np.array([len(keypoint_rows) for keypoint_rows in near], dtype=np.int64)
    keypoints = np.concatenate([_NOTHING, *(np.asarray(keypoint_rows, dtype=np.int64) for keypoint_rows in near)])
    kept = _some(np.arange(len(keypoints)), most, random)
    return Draws(keypoints[kept], np.repeat(rows, counts)[kept].astype(np.int64), np.zeros(len(kept)))


def _some(rows: Int64[np.ndarray, "_"], most: int, random: np.random.Generator) -> Int64[np.ndarray, "_"]:
    """All rows, or of more than `most` a random part, in their order."""
    return rows if len(rows) <= most else np.sort(random.permutation(rows)[:most])


def _cumulative(words: Draws, guessed: Draws) -> Float64[np.ndarray, "candidates"]:
    """Share of the draws up to each candidate: by gain among words, evenly among guesses, half of each where there are both."""
    both = len(words.gains) > 0 and len(guessed.gains) > 0
    weights = np.full(len(words.gains) + len(guessed.gains), 1 / max(len(guessed.gains), 1))
    weights[: len(words.gains)] = words.gains / max(float(words.gains.sum()), 1e-300)
    return np.cumsum(weights) / (2 if both else 1)


def limits_of(options: UprightOptions, *, likely: int, batches: Sequence[int], least: Sequence[float]) -> UprightLimits:
    """Thresholds of upright poses: the options' plausibility, and sums above `least` after each number in `batches`."""
    return UprightLimits(
        nearest=options.nearest,
        farthest=options.farthest,
        least_cosine=math.cos(math.radians(options.max_turn_deg)),
        likely=likely,
        batches=np.array(batches, dtype=np.int64),
        least=np.array(least, dtype=np.float64),
        near=SAME_PLACE,
        near_cosine=math.cos(math.radians(SAME_TURN_DEG)),
    )


def is_same_pose(pose: Rigid, other: Rigid, near: float) -> bool:
    """Whether two poses are one: their centers differ by less than `near`, and they are turned by less than `SAME_TURN_DEG`."""
    return (
        float(np.linalg.norm(pose.center - other.center)) < near
        and rotation_angle_deg(pose.rotation @ other.rotation.T) < SAME_TURN_DEG
    )


# Width and height of a cell in pixels, and the most cells along the longer side.
CELL_PX, MOST_CELLS = 2.0, 2048
# The density that keypoints have around a place is taken over this number of pixels, and is at least this share of its mean.
LOCAL_PX, LEAST_DENSITY = 60.0, 0.1


@dataclass(frozen=True, kw_only=True, eq=False)
class KeypointTable:
    """Log likelihood ratios in the cells of the undistorted normalized plane, 0 outside of the picture.

    `values[row, column]` belongs to x = column / scale - origin[0], y = row / scale - origin[1].
    """

    values: Float32[np.ndarray, "rows columns"]
    scale: float
    origin: Float64[np.ndarray, "2"]


@dataclass(frozen=True, kw_only=True, eq=False)
class KeypointCells:
    """Keypoints in cells of the undistorted normalized plane, from which tables of all widths are made.

    - `occupied`: 1 in cells with a keypoint; `around`: the density of the keypoints around, bounded from below.
    - `half`: half of the picture's extent; `cell_px`: width of a cell in pixels.
    - `scale`, `origin`: as of the table.
    """

    occupied: Float32[np.ndarray, "rows columns"]
    around: Float32[np.ndarray, "rows columns"]
    half: Float64[np.ndarray, "2"]
    cell_px: float
    scale: float
    origin: Float64[np.ndarray, "2"]


def keypoint_cells(camera: Camera, seen: Float64[np.ndarray, "features 2"]) -> KeypointCells:
    """Cells of the keypoints `seen` (normalized plane), and b of Eq. 7: their density, spread by `LOCAL_PX`."""
    half = half_extent(camera)
    cell_px = max(CELL_PX, 2 * FRAME_SLACK * float(half.max()) * camera.focal_px / MOST_CELLS)
    scale = camera.focal_px / cell_px
    origin = FRAME_SLACK * half
    columns, rows = np.ceil(2 * origin * scale).astype(np.int64)
    cells = np.floor((seen + origin) * scale).astype(np.int64)
    cells = cells[((cells >= 0) & (cells < [columns, rows])).all(axis=1)]
    occupied = np.zeros((int(rows), int(columns)), dtype=np.float32)
    occupied[cells[:, 1], cells[:, 0]] = 1  # repeats of a keypoint count once
    around = gaussian_filter(occupied, LOCAL_PX / cell_px, mode="constant")
    around += LEAST_DENSITY * FRAME_SLACK**2 * float(occupied.mean()) + 1e-12
    return KeypointCells(occupied=occupied, around=around, half=half, cell_px=cell_px, scale=scale, origin=origin)


def keypoint_table(cells: KeypointCells, *, spread_px: float, shown_share: float) -> KeypointTable:
    """Table of log(1 - d + d k / b) at every place of the picture (docs/theory/words_upright.md, Eq. 7).

    k is the density of the keypoints, each spread by a Gaussian of `spread_px`; b that of the keypoints around;
    d = `shown_share` the share of the points in view that keypoints show.
    """
    near = gaussian_filter(cells.occupied, spread_px / cells.cell_px, mode="constant")
    values = np.log(1 - shown_share + shown_share * near / cells.around)
    left, top = np.ceil((FRAME_SLACK - 1) * cells.half * cells.scale).astype(np.int64)
    rows, columns = values.shape
    inside = np.zeros_like(values)
    inside[top : rows - top, left : columns - left] = values[top : rows - top, left : columns - left]
    return KeypointTable(values=inside.astype(np.float32), scale=cells.scale, origin=cells.origin)


def with_help(
    answer: NoPose,
    camera: Camera | None,
    max_log10_nfa: float,
    limits: str,
    *,
    gravity: Float64[np.ndarray, "3"] | None,
    down: Float64[np.ndarray, "3"] | None,
    epsilon: float,
) -> NoPose:
    """A refusal of a query in words with the `limits` that were met, and with what may help if chance explains it.

    An upright search takes a smaller epsilon than another one, so that what it lacks comes first. `gravity` is down in the
    query's `camera` and `down` in the map, as far as they are known. Lines, which have no camera here, are upright anyway.
    """
    answer = replace(answer, reason="; ".join(filter(None, (answer.reason, limits))))
    if answer.log10_nfa <= max_log10_nfa:
        return answer
    needed = {
        "the query's gravity": (gravity is not None, Remedy("give", "Protection.gravity")),
        "the map's gravity": (down is not None, Remedy("give", "map_images.gravity")),
        "a known focal length": (camera is None or camera.focal_is_known, Remedy("give", "Features.camera")),
    }
    missing = {} if camera is None else {name: remedy for name, (is_there, remedy) in needed.items() if not is_there}
    if missing:
        reason = f"{answer.reason}; the search is not upright without {' and '.join(missing)}"
        return replace(answer, reason=reason, remedy=tuple(missing.values())[:1])
    return replace(answer, remedy=(Remedy("raise", "HideInWords.epsilon"),)) if math.isfinite(epsilon) else answer
