"""Seed of a map from four views: planar poses, heights, points, and a joint adjustment (Geppert et al. 2020, Sec. 3.1).

Aligned tracks give several candidates for the planar poses (`veil.places.maps.lines.planar_poses`); tracks with two or more
random lines give the heights; the candidate that most tracks agree with after adjustment in space is the seed. The adjustment
leaves all rotations free, so it also refines gravity; its limits shrink from what the gravity noise moves a line by.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
from jaxtyping import Bool, Float64

from veil.errors import InputError, RangeError, require_positive
from veil.geometry.bundle.adjustment import AdjustOptions, LineProblem, adjust, residuals
from veil.geometry.bundle.upright import upright_of
from veil.geometry.gravity import aligned_from_cam, gravity_spread_px
from veil.geometry.rigid import Rigid
from veil.geometry.robust.significance import Sampling, pose_log10_nfa
from veil.geometry.solvers.out_of_plane import MINIMAL_TRACKS, determinant_rows, solve_out_of_plane
from veil.geometry.solvers.planes import triangulate_planes
from veil.geometry.solvers.trifocal import MINIMAL_POINTS
from veil.places.maps.lines.planar_poses import MANY_COMPLETE, PlanarPoses, PlanarTracks, flat_share, lifted, planar_poses

MAX_TRACKS = 600  # tracks of a quad in the spatial step
ENOUGH_PLANAR = 150  # tracks in the planar step: up to this number, tracks of three views complete those of four
FLAT_SHARE = 0.9  # of the aligned tracks: if one vertical plane explains this share, the quad counts as flat
SCALES = (1.0, 1 / 4, 1 / 16, 1 / 32)
# The unknowns of a seed are three poses but for the scale; each track is one equation.
UNKNOWNS = Sampling(size=17, poses=1)
SHIFTS = (7, 31)  # to count chance, a line is exchanged for that of the track this number further on
VIEWS = 4
FEW_TRACKS = 250  # quads of fewer tracks are adjusted for longer


@dataclass(frozen=True, kw_only=True)
class SeedOptions:
    """Thresholds for a seed from four images. Raises RangeError for values that mean nothing.

    A line agrees within `line_error_px` pixels, in the planar step within `planar_error_px` + f tan(`gravity_sigma_deg`), the
    standard deviation of gravity in degrees (docs/theory/mapping.md, Eq. 2). `modes` is the number of candidates for the planar
    poses that are kept, `samples` the number of samples in each search, `min_tracks` the least number of tracks in each step.

    Of the tracks that agree, `min_precise_share` have to agree closely, and `min_flat_share` where one vertical plane explains
    its aligned tracks too. How many tracks agree at all is not asked: where overlap is little most matches are wrong, and a
    wrong pose that was adjusted to a few of them shows by its loose fit. What chance explains is no seed either.
    Half a degree suits exact gravity and phones alike (lab/results/line_maps.md): the adjustment decides, not the plane.
    """

    planar_error_px: float = 2.0
    line_error_px: float = 4.0
    gravity_sigma_deg: float = 0.5
    min_tracks: int = 20
    samples: int = 300
    candidates: int = 4
    min_angle_deg: float = 2.0
    min_precise_share: float = 0.5
    min_flat_share: float = 0.85
    max_log10_nfa: float = -6.0
    seed: int = 0

    def __post_init__(self) -> None:
        require_positive(self, "planar_error_px", "line_error_px", "min_angle_deg")
        if not 0 <= self.gravity_sigma_deg < 20:
            raise RangeError(f"gravity_sigma_deg must lie in [0, 20), got {self.gravity_sigma_deg!r}")
        for name in ("min_precise_share", "min_flat_share"):
            if not 0 <= getattr(self, name) < 1:
                raise RangeError(f"{name} must lie in [0, 1), got {getattr(self, name)!r}")
        if self.min_tracks < MINIMAL_POINTS or self.samples < 1 or self.candidates < 1:
            raise RangeError(f"a seed needs min_tracks >= {MINIMAL_POINTS}, samples >= 1 and candidates >= 1")


@dataclass(frozen=True, kw_only=True, eq=False)
class Seed:
    """Seed of a map: poses of the four views in the frame of the first one, and the evidence for them.

    `inlier_share` is that of the tracks whose four lines agree within `line_error_px`, among those that could; `precise_share`
    is the same at a quarter of it. `fit` sums over `SCALES` the share of the inliers that agree within so much of the limit:
    bent seeds fall behind at the finest. `log10_nfa` weighs the close ones against chance (docs/theory/mapping.md, Eq. 6).
    """

    cam_from_world: tuple[Rigid, Rigid, Rigid, Rigid]
    inliers: int
    inlier_share: float
    precise_share: float
    fit: float
    median_angle_deg: float
    log10_nfa: float = math.inf

    @property
    def closeness(self) -> float:
        """Share of the tracks that agree closely among those that agree."""
        return self.precise_share / self.inlier_share

    @property
    def evidence(self) -> float:
        """Score by which seeds are compared; beyond 200 tracks only the fit counts."""
        return self.fit * min(self.inliers, 200)


@dataclass(frozen=True, kw_only=True)
class NoSeed:
    """Reason why four views give no seed; `weak` is a seed that agrees closely, but that chance explains too."""

    reason: str
    weak: Seed | None = None


def seed_from_quad(tracks: QuadTracks, options: SeedOptions | None = None) -> Seed | NoSeed:
    """Best seed of four views, or the reason why there is none (Geppert et al. 2020, Sec. 3.1)."""
    options = options or SeedOptions()
    upright = np.array([aligned_from_cam(down) for down in tracks.gravity])
    lines = np.einsum("vij,tvj->tvi", upright, tracks.lines)  # a line is a covector: (A l)^T (A x) = l^T x
    whole = np.flatnonzero(tracks.seen.all(axis=1))
    planar = _planar_tracks(lines, tracks)
    for name, count in (
        ("checks of gravity-aligned lines", int((planar.given.sum(axis=0) - 2).sum())),
        ("partly random four-view tracks", int((tracks.aligned[whole].sum(axis=1) <= 2).sum())),
    ):
        if count < options.min_tracks:
            return NoSeed(reason=f"{count} {name}, a seed needs {options.min_tracks}")
    error_px = options.planar_error_px + gravity_spread_px(options.gravity_sigma_deg, float(tracks.focal_px.mean()))
    if planar.given.all(axis=0).sum() < MANY_COMPLETE:
        # With few tracks the right candidate is more seldom among the first
        options = replace(options, candidates=2 * options.candidates)
    candidates = planar_poses(planar, error_px=error_px, samples=options.samples, keep=options.candidates, seed=options.seed)
    if not candidates:
        return NoSeed(reason="no planar poses explain the gravity-aligned tracks; is gravity right, and did the camera move?")
    rows = _some(tracks, options)
    chosen = tracks.take(rows)
    seeds = [
        seed for poses in candidates if (seed := _upgrade(poses, lines[rows], chosen, upright, error_px, options)) is not None
    ]
    seeds = [seed for seed in seeds if seed.median_angle_deg >= options.min_angle_deg]
    best = max(seeds, key=lambda seed: seed.evidence, default=None)
    if best is not None:
        best = replace(best, log10_nfa=_chance(best, chosen, options))
    flat = flat_share(candidates[0], planar, error_px) >= FLAT_SHARE
    needed = max(options.min_precise_share, options.min_flat_share if flat else 0.0)
    if best is not None and best.closeness >= needed and best.log10_nfa <= options.max_log10_nfa:
        return best
    if flat:
        return NoSeed(
            reason="one vertical plane explains the gravity-aligned tracks: a flat facade, or a camera that only turned, "
            "leaves the poses open; add photographs from other sides, or with more depth in the scene"
        )
    if best is None:
        return NoSeed(reason="no heights fit the planar poses, or the views are too close together to triangulate")
    if best.closeness < needed:
        return NoSeed(reason=f"only {best.closeness:.0%} of the tracks agree closely; is gravity right, and the camera known?")
    return NoSeed(reason=f"{best.inliers} of {len(rows)} tracks agree, which chance also gives", weak=best)


def _planar_tracks(lines: np.ndarray, tracks: QuadTracks) -> PlanarTracks:
    rows = np.flatnonzero(tracks.aligned.sum(axis=1) >= 3)
    rows = rows[np.argsort(~tracks.seen[rows].all(axis=1), kind="stable")]
    four = int(tracks.seen[rows].all(axis=1).sum())
    rows = np.sort(rows[: max(four, ENOUGH_PLANAR)])  # tracks of three views where those of four are few
    given = tracks.aligned[rows].T
    upright = lines[rows].transpose(1, 0, 2)
    steep = np.where(given & (np.abs(upright[..., 0]) > 1e-9), upright[..., 0], 1.0)  # n_x x + c = 0 for a vertical line
    return PlanarTracks(x=np.where(given, -upright[..., 2] / steep, 0.0), given=given, focal_px=tracks.focal_px)


def _some(tracks: QuadTracks, options: SeedOptions) -> np.ndarray:
    """Rows of at most `MAX_TRACKS` tracks that all four views see, one line or more not aligned, drawn at random."""
    usable = np.flatnonzero(tracks.seen.all(axis=1) & (~tracks.aligned).any(axis=1))
    return np.sort(np.random.default_rng(options.seed).permutation(usable)[:MAX_TRACKS])


def _upgrade(
    poses: PlanarPoses, lines: np.ndarray, tracks: QuadTracks, upright: np.ndarray, error_px: float, options: SeedOptions
) -> Seed | None:
    """Seed from planar poses: heights by RANSAC over determinants, then points, and adjustment of everything that agrees."""
    rotations, translations = lifted(poses.views), np.insert(poses.views.translation, 1, 0.0, axis=1)
    heights = camera_heights(
        lines[(~tracks.aligned).sum(axis=1) >= 2], rotations, translations, samples=options.samples, seed=options.seed
    )
    if heights is None:
        return None
    translations[1:, 1] = heights
    cameras = [
        Rigid(rotation=up.T @ turn, translation=up.T @ shift)
        for up, turn, shift in zip(upright, rotations, translations, strict=True)
    ]
    few = len(tracks.lines) < FEW_TRACKS
    for limit_px in [*_shrinking(4 * error_px, options.line_error_px), *([options.line_error_px] * 2 if few else [])]:
        moved = adjusted_cameras(cameras, tracks, limit_px, min_tracks=options.min_tracks)
        if moved is None:
            return None
        cameras = moved
    points, worst = quad_points(cameras, tracks)
    inliers = worst < options.line_error_px
    if inliers.sum() < options.min_tracks:
        return None
    return Seed(
        cam_from_world=(cameras[0], cameras[1], cameras[2], cameras[3]),
        inliers=int(inliers.sum()),
        inlier_share=float(inliers.mean()),
        precise_share=float((worst < options.line_error_px / 4).mean()),
        fit=sum(float((worst[inliers] < scale * options.line_error_px).mean()) for scale in SCALES),
        median_angle_deg=median_angle_deg(cameras, points[inliers]),
    )


def _chance(seed: Seed, tracks: QuadTracks, options: SeedOptions) -> float:
    """Expected number (log10) of seeds with as many close tracks among wrong matches (docs/theory/mapping.md, Eq. 6).

    A wrong track agrees as often as these do once the lines of one view are exchanged among them: points that gather in the
    images agree by chance more often than others.
    """
    count, close_px = len(tracks.lines), options.line_error_px / 4
    agreeing, tried = 1, 1
    for view in range(VIEWS):
        for shift in SHIFTS:
            lines = tracks.lines.copy()
            lines[:, view] = np.roll(lines[:, view], shift % max(count, 1), axis=0)
            agreeing += int((quad_points(list(seed.cam_from_world), replace(tracks, lines=lines))[1] < close_px).sum())
            tried += count
    close = round(seed.precise_share * count)
    return math.log10(options.candidates) + pose_log10_nfa(close, count, agreeing / tried, UNKNOWNS)


def _shrinking(widest: float, narrowest: float) -> list[float]:
    """Limits from the widest down to the narrowest by halves."""
    halvings = max(0, math.floor(math.log2(widest / narrowest)))
    return [narrowest * 2.0**k for k in range(halvings, -1, -1)]


@dataclass(frozen=True, kw_only=True, eq=False)
class QuadTracks:
    """Tracks of four images: the line of each track in each image, and which lines follow gravity.

    `lines[t, v]` (normalized image plane, unit normal) and `aligned[t, v]` count where `seen[t, v]`. A track is seen by all
    four images or, with aligned lines, by three of them. `gravity` (unit vectors down in the camera frames) and `focal_px` have
    a row for each image. Raises InputError for other shapes.
    """

    lines: Float64[np.ndarray, "_ _ _"]
    aligned: Bool[np.ndarray, "_ _"]
    seen: Bool[np.ndarray, "_ _"]
    gravity: Float64[np.ndarray, "_ 3"]
    focal_px: Float64[np.ndarray, "_"]

    def __post_init__(self) -> None:
        count = len(self.lines)
        shapes = self.lines.shape, self.aligned.shape, self.seen.shape, self.gravity.shape, self.focal_px.shape
        if shapes != ((count, VIEWS, 3), (count, VIEWS), (count, VIEWS), (VIEWS, 3), (VIEWS,)):
            raise InputError(f"a seed needs tracks over {VIEWS} views with gravity and focal length, got shapes {shapes}")

    def take(self, rows: np.ndarray) -> QuadTracks:
        """Tracks `rows` (indices or a mask)."""
        return replace(self, lines=self.lines[rows], aligned=self.aligned[rows], seen=self.seen[rows])


def camera_heights(
    lines: np.ndarray, rotations: np.ndarray, translations: np.ndarray, *, samples: int, seed: int
) -> Float64[np.ndarray, "3"] | None:
    """Heights of views 2 to 4: the best of many three-track samples, then least squares on the tracks that agree with it.

    `lines[t, v]` are those of gravity-aligned views, of tracks with two or more random lines; `rotations` and `translations`
    are the planar poses in space, whose heights are not used. None if no sample determines the heights. Samples are scored by
    their median absolute determinant residual (docs/theory/lines.md, Eq. 9).
    """
    random = np.random.default_rng(seed)
    matrix, right = determinant_rows(lines, rotations, translations)
    rows = random.integers(0, len(lines), (samples, MINIMAL_TRACKS))
    regular = np.abs(np.linalg.det(matrix[rows])) > 1e-9
    if not regular.any():
        return None
    trials = np.linalg.solve(matrix[rows[regular]], right[rows[regular]][..., None])[..., 0]
    deviation = np.abs(matrix @ trials.T - right[:, None])
    scores = np.median(deviation, axis=0)
    best = int(scores.argmin())
    good = deviation[:, best] <= 2 * max(float(scores[best]), 1e-12)
    refined = solve_out_of_plane(lines[good], rotations, translations) if good.sum() >= MINIMAL_TRACKS else None
    return trials[best] if refined is None else refined


def adjusted_cameras(cameras: list[Rigid], tracks: QuadTracks, limit_px: float, *, min_tracks: int) -> list[Rigid] | None:
    """Cameras after joint adjustment with the points of the tracks whose four lines agree within `limit_px` pixels.

    None if fewer than `min_tracks` tracks agree. The first camera stays; gravity is a part of the cost.
    """
    few = len(tracks.lines) < FEW_TRACKS  # few tracks leave a long valley
    points, worst = quad_points(cameras, tracks)
    rows = np.flatnonzero(worst < limit_px)
    if len(rows) < min_tracks:
        return None
    adjusted = adjust(
        _problem(cameras, points[rows], tracks.lines[rows], tracks.focal_px),
        constant=np.array([True, False, False, False]),
        upright=upright_of(np.array([camera.rotation for camera in cameras]), tracks.gravity),
        options=AdjustOptions(loss_px=limit_px / 4, max_iterations=30 if few else 15, tol=1e-5 if few else 1e-4),
    ).problem
    return [Rigid(rotation=r, translation=t) for r, t in zip(adjusted.rotations, adjusted.translations, strict=True)]


def _problem(cameras: list[Rigid], points: np.ndarray, lines: np.ndarray, focal_px: np.ndarray) -> LineProblem:
    count = len(points)
    return LineProblem(
        rotations=np.array([camera.rotation for camera in cameras]),
        translations=np.array([camera.translation for camera in cameras]),
        points=points,
        lines=(lines * focal_px[None, :, None]).reshape(-1, 3),
        camera_of=np.tile(np.arange(VIEWS), count),
        point_of=np.repeat(np.arange(count), VIEWS),
    )


def quad_points(cameras: list[Rigid], tracks: QuadTracks) -> tuple[np.ndarray, Float64[np.ndarray, "tracks"]]:
    """Points of all tracks, and the largest distance of each to one of its lines in pixels (infinite behind a camera)."""
    normals = np.stack([tracks.lines[:, v] @ camera.rotation for v, camera in enumerate(cameras)], axis=1)
    offsets = np.stack([tracks.lines[:, v] @ camera.translation for v, camera in enumerate(cameras)], axis=1)
    points = triangulate_planes(normals, offsets)
    usable = np.isfinite(points).all(axis=1)
    points = np.where(usable[:, None], points, 0.0)
    distance = np.abs(residuals(_problem(cameras, points, tracks.lines, tracks.focal_px))).reshape(-1, VIEWS)
    return points, np.where(usable, distance.max(axis=1), np.inf)


def median_angle_deg(cameras: list[Rigid], points: np.ndarray) -> float:
    """Median over points of the largest angle in degrees between two rays to it, in the three views where that is least.

    Three views from one place make a ray of their three lines, and any fourth line meets it: such a quad checks nothing but
    rotations, and a camera that only turned passes with an arbitrary fourth pose.
    """
    rays = np.stack([points - camera.center for camera in cameras], axis=1)
    rays /= np.linalg.norm(rays, axis=2, keepdims=True)
    cosines = np.einsum("pvi,pwi->pvw", rays, rays)
    threes = [np.delete(np.delete(cosines, v, axis=1), v, axis=2).reshape(len(points), -1).min(axis=1) for v in range(VIEWS)]
    return min(float(np.degrees(np.median(np.arccos(np.clip(three, -1, 1))))) for three in threes)
