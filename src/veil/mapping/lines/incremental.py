"""Incremental mapping from lines: seed, then resection, triangulation, adjustment (Geppert et al. 2020, Sec. 3).

Acceptance of an image weighs its inliers against chance (docs/theory/lines.md, Eq. 11); points need four lines that agree,
one of them not along gravity, an angle, positive depth, and a projection inside the image (traps S6, S7).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from jaxtyping import Bool, Float64

from veil.errors import InputError, RangeError
from veil.forms import Lines
from veil.geometry.camera import Camera, as_colmap
from veil.geometry.ransac import RansacOptions
from veil.geometry.resection_lines import LineResection, resect_from_lines
from veil.geometry.rigid import Rigid
from veil.kernels.bundle import AdjustOptions, LineProblem, adjust
from veil.localize import P6L, chance_poses, line_agreement
from veil.mapping.lines.seed import NoSeed, QuadTracks, Seed, SeedOptions, seed_from_quad
from veil.mapping.lines.tracks import Quad, Tracks, candidate_quads, quad_rows


@dataclass(frozen=True, kw_only=True, eq=False)
class LineView:
    """One image to map: its camera and the lines that hide its keypoints."""

    camera: Camera
    lines: Lines


@dataclass(frozen=True, kw_only=True)
class LineMapOptions:
    """Thresholds in pixels and degrees; `resection` acceptance as in the published code, and never what chance explains."""

    seed: SeedOptions = field(default_factory=SeedOptions)
    quads: int = 10
    resection_error_px: float = 6.0
    point_error_px: float = 4.0
    min_angle_deg: float = 1.5
    min_lines: int = 4
    min_resection_inliers: int = 30
    max_aligned_share: float = 0.9
    max_log10_nfa: float = -6.0

    def __post_init__(self) -> None:
        for name in ("resection_error_px", "point_error_px", "min_angle_deg"):
            if not 0 < getattr(self, name) < math.inf:
                raise RangeError(f"{name} must be positive and finite, got {getattr(self, name)!r}")
        if self.min_lines < 4:
            raise RangeError("a point needs four lines or more: three always agree")


@dataclass(frozen=True, kw_only=True, eq=False)
class LineMap:
    """Poses of the registered images, points of the tracks, and which lines agree with them.

    `observed[t, i]` is True where image i's line of track t agrees with `points[t]`; tracks without a point have none.
    """

    names: tuple[str, ...]
    cam_from_world: Mapping[str, Rigid]
    points: Float64[np.ndarray, "tracks 3"]
    observed: Bool[np.ndarray, "tracks images"]
    quad: Quad
    refused: Mapping[str, str]


@dataclass(frozen=True)
class NoLineMap:
    """No map could be started, and why."""

    reason: str


def map_from_lines(
    views: Mapping[str, LineView],
    tracks: Tracks,
    *,
    options: LineMapOptions | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> LineMap | NoLineMap:
    """Map as many images as agree. Raises InputError for fewer than four images or none with gravity."""
    options = options or LineMapOptions()
    if len(views) < 4:
        raise InputError(f"mapping from lines needs at least four images, got {len(views)}")
    if all(view.lines.gravity is None for view in views.values()):
        raise InputError("no image has gravity, which the seed needs; release with --gravity, at least four images of a place")
    world = _World(views, tracks, options)
    started = _start(world)
    if isinstance(started, NoLineMap):
        return started
    quad, seed = started
    poses = {tracks.names[image]: pose for image, pose in zip(quad.images, seed.cam_from_world, strict=True)}
    poses, points, observed = _settle(world, poses)
    refused: dict[str, str] = {}
    while len(poses) < len(views):
        name = _next(world, poses, points, observed, refused)
        if name is None:
            break
        found = _resect(world, name, points, observed)
        if isinstance(found, str):
            refused[name] = found
            continue
        poses, points, observed = _settle(world, {**poses, name: found})
        refused.clear()  # more points may carry what failed before
        if progress is not None:
            progress(len(poses), len(views))
    for limit in (3.0, 2.5):
        poses, points, observed = _settle(world, poses, limit_px=min(limit, options.point_error_px))
    return LineMap(names=tracks.names, cam_from_world=poses, points=points, observed=observed, quad=quad, refused=refused)


class _World:
    """Lines of every track laid out as (tracks, images, 3), and what each camera needs."""

    def __init__(self, views: Mapping[str, LineView], tracks: Tracks, options: LineMapOptions) -> None:
        self.views, self.tracks, self.options = views, tracks, options
        shape = tracks.feature.shape
        self.present = tracks.feature >= 0
        self.lines, self.aligned = np.zeros((*shape, 3)), np.zeros(shape, dtype=bool)
        self.focal, self.extent = np.empty(shape[1]), np.empty((shape[1], 2))
        for image, name in enumerate(tracks.names):
            view = views[name]
            rows = np.flatnonzero(self.present[:, image])
            of_track = tracks.feature[rows, image]
            self.lines[rows, image] = view.lines.coefficients[of_track]
            self.aligned[rows, image] = view.lines.aligned[of_track]
            self.focal[image] = view.camera.focal_px
            corners = np.array([[0.0, 0.0], [view.camera.width_px, view.camera.height_px]])
            self.extent[image] = np.abs(np.asarray(as_colmap(view.camera).cam_from_img(corners))).max(axis=0)


def _start(world: _World) -> tuple[Quad, Seed] | NoLineMap:
    """The best seed over the candidate quads: inlier share times up to 200 inliers, wide enough to triangulate."""
    views, tracks, options = world.views, world.tracks, world.options
    ordered = [views[name].lines for name in tracks.names]
    quads = candidate_quads(
        tracks,
        [lines.aligned for lines in ordered],
        with_gravity=[lines.gravity is not None for lines in ordered],
        limit=options.quads,
        min_tracks=options.seed.min_tracks,
    )
    if not quads:
        return NoLineMap("no four images with gravity share enough tracks; take photographs with more overlap")
    found: list[tuple[float, Quad, Seed]] = []
    reason = ""
    for quad in quads:
        seed = seed_from_quad(_quad_tracks(world, quad, ordered), options.seed)
        if isinstance(seed, NoSeed):
            reason = seed.reason
        else:
            found.append((seed.inlier_share * min(int(seed.inliers.sum()), 200), quad, seed))
    if not found:
        return NoLineMap(f"none of {len(quads)} image quads gave a seed; the last said: {reason}")
    _, quad, seed = max(found, key=lambda item: item[0])
    return quad, seed


def _quad_tracks(world: _World, quad: Quad, ordered: Sequence[Lines]) -> QuadTracks:
    rows = quad_rows(world.tracks, quad)
    chosen = [ordered[image] for image in quad.images]
    gravity = []
    for lines in chosen:
        assert lines.gravity is not None
        gravity.append(lines.gravity)
    return QuadTracks(
        lines=np.stack([lines.coefficients[rows[:, v]].astype(np.float64) for v, lines in enumerate(chosen)], axis=1),
        aligned=np.stack([lines.aligned[rows[:, v]] for v, lines in enumerate(chosen)], axis=1),
        gravity=np.array(gravity),
        focal_px=world.focal[list(quad.images)],
    )


def _next(
    world: _World, poses: Mapping[str, Rigid], points: np.ndarray, observed: np.ndarray, refused: Mapping[str, str]
) -> str | None:
    """The image that sees most points and was not refused since the map last grew."""
    mapped = observed.any(axis=1)
    counts = {
        name: int((world.present[:, image] & mapped).sum())
        for image, name in enumerate(world.tracks.names)
        if name not in poses and name not in refused
    }
    return max(counts, key=lambda name: (counts[name], name)) if counts else None


def _resect(world: _World, name: str, points: np.ndarray, observed: np.ndarray) -> Rigid | str:
    """The pose of one image, or why it was refused."""
    options, image = world.options, world.tracks.names.index(name)
    rows = np.flatnonzero(world.present[:, image] & observed.any(axis=1))
    problem = LineResection(
        lines=world.lines[rows, image],
        points=points[rows],
        aligned=world.aligned[rows, image],
        focal_px=float(world.focal[image]),
        half_extent=1.1 * world.extent[image],
    )
    found = resect_from_lines(problem, RansacOptions(max_error=options.resection_error_px, seed=options.seed.seed))
    if found is None:
        return f"sees {len(rows)} points, too few or only along gravity"
    inliers = int(found.inliers.sum())
    agreement = line_agreement(world.views[name].camera, options.resection_error_px)
    log10_nfa = chance_poses(inliers, len(rows), agreement, P6L)
    aligned_share = float(world.aligned[rows, image][found.inliers].mean()) if inliers else 1.0
    if inliers < options.min_resection_inliers or log10_nfa > options.max_log10_nfa:
        return f"{inliers} of {len(rows)} lines agree, which chance also gives"
    if aligned_share > options.max_aligned_share:
        return f"{aligned_share:.0%} of its inliers follow gravity, so its height is not determined"
    return found.model


def _settle(
    world: _World, poses: Mapping[str, Rigid], *, limit_px: float | None = None
) -> tuple[dict[str, Rigid], np.ndarray, np.ndarray]:
    """Triangulate everything, adjust everything, and triangulate again with what was learned."""
    limit = limit_px or world.options.point_error_px
    points, observed = _triangulate(world, poses, 2 * limit)
    for _ in range(2):
        poses, points = _adjust(world, poses, points, observed)
        points, observed = _triangulate(world, poses, limit)
    return dict(poses), points, observed


def _triangulate(
    world: _World, poses: Mapping[str, Rigid], limit_px: float
) -> tuple[Float64[np.ndarray, "tracks 3"], Bool[np.ndarray, "tracks images"]]:
    """Points of all tracks at once: reweighted least squares over the planes, then hard limits (traps S6)."""
    count, images = world.present.shape
    rotations, translations = np.zeros((images, 3, 3)), np.zeros((images, 3))
    registered = np.zeros(images, dtype=bool)
    for image, name in enumerate(world.tracks.names):
        if name in poses:
            registered[image] = True
            rotations[image], translations[image] = poses[name].rotation, poses[name].translation
    given = world.present & registered
    normals = np.einsum("tij,ijk->tik", world.lines, rotations)
    offsets = np.einsum("tij,ij->ti", world.lines, translations)
    weights = given.astype(np.float64)
    points = np.zeros((count, 3))
    for round_ in range(6):
        normal = np.einsum("ti,tij,tik->tjk", weights, normals, normals)
        right = -np.einsum("ti,tij,ti->tj", weights, normals, offsets)
        normal += 1e-12 * np.trace(normal, axis1=1, axis2=2)[:, None, None] * np.eye(3) + 1e-30 * np.eye(3)
        points = np.linalg.solve(normal, right[..., None])[..., 0]
        depth = np.einsum("ij,tj->ti", rotations[:, 2], points) + translations[:, 2]
        ahead = given & (depth > 1e-9)
        safe = np.where(ahead, depth, 1.0)
        distance = np.abs(np.einsum("tij,tj->ti", normals, points) + offsets) / safe * world.focal
        # Geman-McClure from wide to narrow: wrong lines lose their say, right ones count by their own pixel scale.
        scale = limit_px * max(1.0, 8.0 / 2**round_)
        weights = np.where(ahead, (world.focal / safe) ** 2 / (1 + (distance / scale) ** 2) ** 2, 0.0)
        weights /= np.maximum(weights.max(axis=1, keepdims=True), 1e-300)
    in_camera = np.einsum("ijk,tk->tij", rotations, points) + translations
    projected = in_camera[..., :2] / safe[..., None]
    inside = (np.abs(projected) <= 1.1 * world.extent).all(axis=2)
    observed = ahead & inside & (distance < limit_px)
    return points, observed & _well_posed(world, poses, points, observed)[:, None]


def _well_posed(world: _World, poses: Mapping[str, Rigid], points: np.ndarray, observed: np.ndarray) -> np.ndarray:
    """Enough lines, one not along gravity, and two rays far enough apart."""
    enough = (observed.sum(axis=1) >= world.options.min_lines) & (observed & ~world.aligned).any(axis=1)
    centers = np.array([poses[name].center if name in poses else np.zeros(3) for name in world.tracks.names])
    rays = points[:, None] - centers[None]
    rays /= np.maximum(np.linalg.norm(rays, axis=2, keepdims=True), 1e-300)
    # The mean ray's length measures the spread: two rays an angle apart have a mean of cos(angle / 2).
    total = np.einsum("ti,tij->tj", observed.astype(np.float64), rays)
    mean = total / np.maximum(observed.sum(axis=1), 1)[:, None]
    mean /= np.maximum(np.linalg.norm(mean, axis=1, keepdims=True), 1e-300)
    cosine = np.where(observed, np.einsum("tij,tj->ti", rays, mean), 1.0).min(axis=1)
    return enough & (2 * np.degrees(np.arccos(np.clip(cosine, -1, 1))) >= world.options.min_angle_deg)


def _adjust(
    world: _World, poses: Mapping[str, Rigid], points: np.ndarray, observed: np.ndarray
) -> tuple[dict[str, Rigid], np.ndarray]:
    names = [name for name in world.tracks.names if name in poses]
    column = {world.tracks.names.index(name): index for index, name in enumerate(names)}
    tracks, images = np.nonzero(observed)
    used, compact = np.unique(tracks, return_inverse=True)
    problem = LineProblem(
        rotations=np.array([poses[name].rotation for name in names]),
        translations=np.array([poses[name].translation for name in names]),
        points=points[used],
        lines=world.lines[tracks, images] * world.focal[images][:, None],
        camera_of=np.array([column[int(image)] for image in images], dtype=np.int64),
        point_of=compact.astype(np.int64),
    )
    constant = np.zeros(len(names), dtype=bool)
    constant[0] = True
    found = adjust(problem, constant=constant, options=AdjustOptions(loss_px=2.0, max_iterations=25, tol=1e-6)).problem
    moved = points.copy()
    moved[used] = found.points
    adjusted = {n: Rigid(rotation=r, translation=t) for n, r, t in zip(names, found.rotations, found.translations, strict=True)}
    return adjusted, moved
