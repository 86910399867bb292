"""Incremental mapping from lines: seed, then resection, triangulation, adjustment (Geppert et al. 2020, Sec. 3).

Acceptance of an image weighs its inliers against chance (docs/theory/lines.md, Eq. 11); points need four lines that agree,
one of them not along gravity, an angle, positive depth, and a projection inside the image (traps S6, S7).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import numpy as np
from jaxtyping import Bool, Float64

from veil.errors import InputError, RangeError
from veil.geometry.ransac import RansacOptions
from veil.geometry.resection_lines import LineResection, resect_from_lines
from veil.geometry.rigid import Rigid
from veil.kernels.bundle import AdjustOptions
from veil.localize import P6L, chance_poses, line_agreement
from veil.mapping.lines.seed import NoSeed, QuadTracks, Seed, SeedOptions, seed_from_quad
from veil.mapping.lines.tracks import Quad, Tracks, candidate_quads
from veil.mapping.lines.world import LineView, Model, World, adjusted, empty_model, mapped_tracks, triangulated, world_of

# Steps while the map grows need not converge: the next image moves everything again.
GROWING = AdjustOptions(loss_px=2.0, max_iterations=8, tol=1e-4)
FINAL = AdjustOptions(loss_px=2.0, max_iterations=30, tol=1e-7)


@dataclass(frozen=True, kw_only=True)
class LineMapOptions:
    """Thresholds in pixels and degrees; `resection` acceptance as in the published code, and never what chance explains.

    All cameras are adjusted when the map has grown by `global_growth` since they last were, else the newest and its
    `local_images` nearest.
    """

    seed: SeedOptions = field(default_factory=SeedOptions)
    quads: int = 10
    resection_error_px: float = 6.0
    point_error_px: float = 4.0
    min_angle_deg: float = 1.5
    min_lines: int = 4
    min_resection_inliers: int = 30
    max_aligned_share: float = 0.9
    max_log10_nfa: float = -6.0
    global_growth: float = 1.1
    local_images: int = 6

    def __post_init__(self) -> None:
        for name in ("resection_error_px", "point_error_px", "min_angle_deg"):
            if not 0 < getattr(self, name) < math.inf:
                raise RangeError(f"{name} must be positive and finite, got {getattr(self, name)!r}")
        if self.min_lines < 4:
            raise RangeError("a point needs four lines or more: three always agree")


@dataclass(frozen=True, kw_only=True, eq=False)
class LineMap:
    """Poses of the registered images, points of the tracks, and which observations agree with them.

    `observed[k]` is True where the line of observation k of `tracks` agrees with `points[tracks.track[k]]`; tracks without
    a point have none.
    """

    tracks: Tracks
    cam_from_world: Mapping[str, Rigid]
    points: Float64[np.ndarray, "tracks 3"]
    observed: Bool[np.ndarray, "observations"]
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
    world = world_of(views, tracks)
    started = _start(world, options)
    if isinstance(started, NoLineMap):
        return started
    quad, seed = started
    model = empty_model(world)
    for image, pose in zip(quad.images, seed.cam_from_world, strict=True):
        model = model.with_pose(image, pose)
    model = _settle(world, model, model.registered, options)
    model, refused = _grow(world, model, options, progress)
    for limit in (options.point_error_px, 3.0, 2.5):
        model = adjusted(world, model, model.registered, FINAL)
        model = _triangulated(world, model, min(limit, options.point_error_px), options)
    return LineMap(
        tracks=tracks,
        cam_from_world={name: model.pose(i) for i, name in enumerate(tracks.names) if model.registered[i]},
        points=model.points,
        observed=model.observed,
        quad=quad,
        refused=refused,
    )


def _start(world: World, options: LineMapOptions) -> tuple[Quad, Seed] | NoLineMap:
    """The best seed over the candidate quads."""
    quads = candidate_quads(
        world.tracks,
        world.aligned,
        with_gravity=[view.lines.gravity is not None for view in world.views],
        limit=options.quads,
        min_tracks=options.seed.min_tracks,
    )
    if not quads:
        return NoLineMap("no four images with gravity share enough tracks; take photographs with more overlap")
    found: list[tuple[Quad, Seed]] = []
    reason = ""
    for quad in quads:
        seed = seed_from_quad(_quad_tracks(world, quad), options.seed)
        if isinstance(seed, NoSeed):
            reason = seed.reason
        else:
            found.append((quad, seed))
    if not found:
        return NoLineMap(f"none of {len(quads)} image quads gave a seed; the last said: {reason}")
    return max(found, key=lambda item: item[1].evidence)


def _quad_tracks(world: World, quad: Quad) -> QuadTracks:
    table = world.tracks.table(quad.images)
    rows = table[(table >= 0).all(axis=1)]
    chosen = [world.views[image].lines for image in quad.images]
    gravity = []
    for lines in chosen:
        assert lines.gravity is not None
        gravity.append(lines.gravity)
    return QuadTracks(
        lines=np.stack([lines.coefficients[rows[:, v]].astype(np.float64) for v, lines in enumerate(chosen)], axis=1),
        aligned=np.stack([lines.aligned[rows[:, v]] for v, lines in enumerate(chosen)], axis=1),
        gravity=np.array(gravity),
        focal_px=world.focal_px[list(quad.images)],
    )


def _grow(
    world: World, model: Model, options: LineMapOptions, progress: Callable[[int, int], None] | None
) -> tuple[Model, dict[str, str]]:
    """Register image after image until none is left that sees enough; the reasons of those refused."""
    refused: dict[int, str] = {}
    last_global = int(model.registered.sum())
    while (image := _next(world, model, refused)) is not None:
        found = _resect(world, model, image, options)
        if isinstance(found, str):
            refused[image] = found
            continue
        model = model.with_pose(image, found)
        count = int(model.registered.sum())
        everything = count >= options.global_growth * last_global
        last_global = count if everything else last_global
        free = model.registered if everything else _neighbors(world, model, image, options.local_images)
        model = _settle(world, model, free, options)
        refused.clear()  # more points may carry what failed before
        if progress is not None:
            progress(count, len(world.views))
    return model, {world.tracks.names[image]: reason for image, reason in refused.items()}


def _next(world: World, model: Model, refused: Mapping[int, str]) -> int | None:
    """The image that sees most points and was not refused since the map last grew."""
    counts = np.bincount(world.tracks.image[mapped_tracks(world, model)[world.tracks.track]], minlength=len(world.views))
    counts[model.registered] = -1
    counts[list(refused)] = -1
    return int(counts.argmax()) if counts.max() >= 0 else None


def _neighbors(world: World, model: Model, image: int, count: int) -> Bool[np.ndarray, "images"]:
    """The image and the registered ones that share most tracks with it."""
    mine = np.zeros(len(world.tracks), dtype=bool)
    mine[world.tracks.track[world.tracks.image == image]] = True
    shared = np.bincount(world.tracks.image[mine[world.tracks.track]], minlength=len(world.views)) * model.registered
    chosen = np.zeros(len(world.views), dtype=bool)
    chosen[np.argsort(-shared, kind="stable")[: count + 1]] = True
    return chosen & model.registered


def _resect(world: World, model: Model, image: int, options: LineMapOptions) -> Rigid | str:
    """The pose of one image, or why it was refused."""
    rows = np.flatnonzero((world.tracks.image == image) & mapped_tracks(world, model)[world.tracks.track])
    problem = LineResection(
        lines=world.lines[rows],
        points=model.points[world.tracks.track[rows]],
        aligned=world.aligned[rows],
        focal_px=float(world.focal_px[image]),
        half_extent=world.half_extent[image],
    )
    found = resect_from_lines(problem, RansacOptions(max_error=options.resection_error_px, seed=options.seed.seed))
    if found is None:
        return f"sees {len(rows)} points, too few or only along gravity"
    inliers = int(found.inliers.sum())
    agreement = line_agreement(world.views[image].camera, options.resection_error_px)
    log10_nfa = chance_poses(inliers, len(rows), agreement, P6L)
    aligned_share = float(world.aligned[rows][found.inliers].mean()) if inliers else 1.0
    if inliers < options.min_resection_inliers or log10_nfa > options.max_log10_nfa:
        return f"{inliers} of {len(rows)} lines agree, which chance also gives"
    if aligned_share > options.max_aligned_share:
        return f"{aligned_share:.0%} of its inliers follow gravity, so its height is not determined"
    return found.model


def _settle(world: World, model: Model, free: Bool[np.ndarray, "images"], options: LineMapOptions) -> Model:
    """Triangulate everything, adjust what is free, and triangulate again with what was learned."""
    model = _triangulated(world, model, 1.5 * options.point_error_px, options)
    model = adjusted(world, model, free, GROWING)
    return _triangulated(world, model, options.point_error_px, options)


def _triangulated(world: World, model: Model, limit_px: float, options: LineMapOptions) -> Model:
    return triangulated(world, model, limit_px=limit_px, min_lines=options.min_lines, min_angle_deg=options.min_angle_deg)
