"""What mapping from lines works on: the observations of all tracks in one array, and the model that grows over them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

import numpy as np
from jaxtyping import Bool, Float64, Int64

from veil.errors import InputError
from veil.forms import Lines
from veil.geometry.bundle.adjustment import AdjustOptions, LineProblem, adjust
from veil.geometry.bundle.upright import Upright
from veil.geometry.camera import Camera, as_colmap
from veil.geometry.rigid import Rigid
from veil.geometry.triangulation import TrackLines, triangulate_tracks
from veil.mapping.lines.gravity import upright_of
from veil.mapping.lines.tracks import MatchGraph, Tracks, build_tracks

# Projections up to this factor beyond the farthest corner count as inside the image (lines.md#points-and-cameras).
MARGIN = 1.1


@dataclass(frozen=True, kw_only=True, eq=False)
class LineView:
    """One image to map: its camera and the lines that hide its keypoints."""

    camera: Camera
    lines: Lines


@dataclass(frozen=True, kw_only=True, eq=False)
class World:
    """The lines of every observation of `tracks`, in their order, what each camera needs, and the matches behind it.

    `gravity` is NaN for images without a reading.
    """

    views: tuple[LineView, ...]
    graph: MatchGraph
    tracks: Tracks
    lines: Float64[np.ndarray, "_ 3"]
    aligned: Bool[np.ndarray, "_"]
    focal_px: Float64[np.ndarray, "_"]
    half_extent: Float64[np.ndarray, "_ 2"]
    gravity: Float64[np.ndarray, "_ 3"]


def world_of(views: Mapping[str, LineView], graph: MatchGraph, tracks: Tracks | None = None) -> World:
    """Gather what `tracks` (by default those of the strong matches) needs of `views`.

    Raises InputError if an image of the matches is missing or has another number of lines.
    """
    for name, count in zip(graph.names, np.diff(graph.starts), strict=True):
        if name not in views or len(views[name].lines) != count:
            raise InputError(f"the matches name {count} features of image {name!r}, which is missing or has another number")
    ordered = tuple(views[name] for name in graph.names)
    tracks = build_tracks(graph) if tracks is None else tracks
    lines, aligned = np.zeros((len(tracks.track), 3)), np.zeros(len(tracks.track), dtype=bool)
    for image, view in enumerate(ordered):
        rows = np.flatnonzero(tracks.image == image)
        lines[rows] = view.lines.coefficients[tracks.feature[rows]]
        aligned[rows] = view.lines.aligned[tracks.feature[rows]]
    return World(
        views=ordered,
        graph=graph,
        tracks=tracks,
        lines=lines,
        aligned=aligned,
        focal_px=np.array([view.camera.focal_px for view in ordered]),
        half_extent=np.array([MARGIN * half_extent(view.camera) for view in ordered]),
        gravity=np.array([np.full(3, np.nan) if view.lines.gravity is None else view.lines.gravity for view in ordered]),
    )


def half_extent(camera: Camera) -> Float64[np.ndarray, "2"]:
    """Largest |x| and |y| of the image's corners in the undistorted normalized plane."""
    corners = np.array([[0.0, 0.0], [camera.width_px, camera.height_px]])
    return np.abs(np.asarray(as_colmap(camera).cam_from_img(corners), dtype=np.float64)).max(axis=0)


@dataclass(frozen=True, kw_only=True, eq=False)
class Model:
    """Poses of the registered images (rows of others mean nothing), points of tracks, and which observations agree.

    A track has a point where any of its observations is in `observed`.
    """

    registered: Bool[np.ndarray, "_"]
    rotations: Float64[np.ndarray, "_ 3 3"]
    translations: Float64[np.ndarray, "_ 3"]
    points: Float64[np.ndarray, "_ 3"]
    observed: Bool[np.ndarray, "_"]

    def pose(self, image: int) -> Rigid:
        """cam_from_world of a registered image."""
        return Rigid(rotation=self.rotations[image], translation=self.translations[image])

    def with_pose(self, image: int, pose: Rigid) -> Model:
        """The model with one more image."""
        registered, rotations, translations = self.registered.copy(), self.rotations.copy(), self.translations.copy()
        registered[image], rotations[image], translations[image] = True, pose.rotation, pose.translation
        return replace(self, registered=registered, rotations=rotations, translations=translations)


def without_images(world: World, model: Model, images: Iterable[int]) -> Model:
    """The model with fewer images, and without their observations; points of fewer than four lines go with them."""
    registered = model.registered.copy()
    registered[list(images)] = False
    observed = model.observed & registered[world.tracks.image]
    enough = np.bincount(world.tracks.track[observed], minlength=len(world.tracks)) >= 4
    return replace(model, registered=registered, observed=observed & enough[world.tracks.track])


def empty_model(world: World) -> Model:
    """No image, no point."""
    images, count = len(world.views), len(world.tracks)
    return Model(
        registered=np.zeros(images, dtype=bool),
        rotations=np.tile(np.eye(3), (images, 1, 1)),
        translations=np.zeros((images, 3)),
        points=np.zeros((count, 3)),
        observed=np.zeros(len(world.lines), dtype=bool),
    )


def upright(world: World, model: Model) -> Upright | None:
    """What the registered images' readings of gravity say of the map; None if no registered image has one."""
    return upright_of(model.rotations, np.where(model.registered[:, None], world.gravity, np.nan))


def mapped_tracks(world: World, model: Model) -> Bool[np.ndarray, "tracks"]:
    """Which tracks have a point."""
    mapped = np.zeros(len(world.tracks), dtype=bool)
    mapped[world.tracks.track[model.observed]] = True
    return mapped


def triangulated(world: World, model: Model, *, limit_px: float, min_lines: int, min_angle_deg: float) -> Model:
    """All tracks triangulated, those with a point starting from it; points of four lines need a cycle of matches.

    Four lines are one check, which a wrong match passes with the probability of docs/theory/lines.md, Eq. 10. On repeated
    structure chains of such matches always exist, and a few dozen of them bend a map of thousands of points.
    """
    points, observed = triangulate_tracks(
        TrackLines(
            starts=world.tracks.starts,
            camera_of=world.tracks.image,
            lines=world.lines,
            aligned=world.aligned,
            active=model.registered[world.tracks.image],
            rotations=model.rotations,
            translations=model.translations,
            focal_px=world.focal_px,
            half_extent=world.half_extent,
        ),
        model.points,
        mapped_tracks(world, model),
        limit_px=limit_px,
        min_lines=min_lines,
        min_angle_deg=min_angle_deg,
    )
    lines = np.bincount(world.tracks.track[observed], minlength=len(world.tracks))
    firm = (lines != 4) | (_matches_within(world, observed) >= 4)
    return replace(model, points=points, observed=observed & firm[world.tracks.track])


def _matches_within(world: World, observed: Bool[np.ndarray, "observations"]) -> Int64[np.ndarray, "tracks"]:
    """Strong matches between the observed features of each track."""
    graph, tracks = world.graph, world.tracks
    track_of = np.full(graph.starts[-1], -1)
    track_of[(graph.starts[tracks.image] + tracks.feature)[observed]] = tracks.track[observed]
    first, second = track_of[graph.first[graph.strong]], track_of[graph.second[graph.strong]]
    return np.bincount(first[(first == second) & (first >= 0)], minlength=len(tracks))


def adjusted(world: World, model: Model, free: Bool[np.ndarray, "images"], options: AdjustOptions) -> Model:
    """Cameras `free` and the points that they see moved to least robust cost; if all are free the first one stays."""
    seen = np.zeros(len(world.tracks), dtype=bool)
    seen[world.tracks.track[model.observed & free[world.tracks.image]]] = True
    rows = np.flatnonzero(model.observed & seen[world.tracks.track])
    if len(rows) == 0:
        return model
    cameras, camera_of = np.unique(world.tracks.image[rows], return_inverse=True)
    tracks, point_of = np.unique(world.tracks.track[rows], return_inverse=True)
    constant = ~free[cameras]
    if not constant.any():
        constant[0] = True
    known = upright(world, model)
    found = adjust(
        LineProblem(
            rotations=model.rotations[cameras],
            translations=model.translations[cameras],
            points=model.points[tracks],
            lines=world.lines[rows] * world.focal_px[world.tracks.image[rows], None],
            camera_of=camera_of.astype(np.int64),
            point_of=point_of.astype(np.int64),
        ),
        constant=constant,
        upright=None if known is None else replace(known, down_cam=known.down_cam[cameras]),
        options=options,
    ).problem
    rotations, translations, points = model.rotations.copy(), model.translations.copy(), model.points.copy()
    rotations[cameras], translations[cameras], points[tracks] = found.rotations, found.translations, found.points
    return replace(model, rotations=rotations, translations=translations, points=points)


def line_distances(
    world: World,
    model: Model,
    image: Int64[np.ndarray, "rows"],
    feature: Int64[np.ndarray, "rows"],
    points: Float64[np.ndarray, "rows 3"],
) -> Float64[np.ndarray, "rows"]:
    """Pixels from each projected point to the line of a feature; infinite behind the camera or outside the image."""
    found = np.full(len(points), np.inf)
    for i in np.unique(image):
        rows = np.flatnonzero(image == i)
        in_camera = points[rows] @ model.rotations[i].T + model.translations[i]
        depth = in_camera[:, 2]
        ahead = depth > 1e-9
        projected = in_camera[:, :2] / np.where(ahead, depth, 1.0)[:, None]
        inside = ahead & (np.abs(projected) <= world.half_extent[i]).all(axis=1)
        line = world.views[i].lines.coefficients[feature[rows]].astype(np.float64)
        distance = np.abs((line[:, :2] * projected).sum(axis=1) + line[:, 2]) * world.focal_px[i]
        found[rows] = np.where(inside, distance, np.inf)
    return found
