"""The reconstruction that incremental mapping from lines extends, and its basic steps: triangulation, adjustment, residuals."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

import numpy as np
from jaxtyping import Bool, Float64, Int64

from veil.geometry.bundle.adjustment import AdjustOptions, LineProblem, adjust
from veil.geometry.bundle.upright import Upright, upright_of
from veil.geometry.rigid import Rigid
from veil.geometry.triangulation import TrackLines, triangulate_tracks
from veil.places.maps.lines.problem import MappingProblem, mapping_problem
from veil.places.maps.lines.tracks import MatchGraph, Tracks, join


@dataclass(frozen=True, kw_only=True, eq=False)
class Reconstruction:
    """Poses of the registered images, points of the tracks, and the observations that agree with them.

    Rows of `rotations` and `translations` (cam_from_world) mean nothing where an image is not `registered`. `points` has a row
    for each track, which is a point only if any observation of the track is in `observed`. Images, tracks and observations are
    numbered as in the `MappingProblem`.
    """

    registered: Bool[np.ndarray, "_"]
    rotations: Float64[np.ndarray, "_ 3 3"]
    translations: Float64[np.ndarray, "_ 3"]
    points: Float64[np.ndarray, "_ 3"]
    observed: Bool[np.ndarray, "_"]

    def pose(self, image: int) -> Rigid:
        """Pose cam_from_world of a registered image, by its index."""
        return Rigid(rotation=self.rotations[image], translation=self.translations[image])

    def with_pose(self, image: int, pose: Rigid) -> Reconstruction:
        """Reconstruction with `image` (index) registered at `pose` (cam_from_world)."""
        registered, rotations, translations = self.registered.copy(), self.rotations.copy(), self.translations.copy()
        registered[image], rotations[image], translations[image] = True, pose.rotation, pose.translation
        return replace(self, registered=registered, rotations=rotations, translations=translations)


def without_images(problem: MappingProblem, reconstruction: Reconstruction, images: Iterable[int]) -> Reconstruction:
    """Reconstruction without `images` (indices), their observations, and the points that keep fewer than four lines."""
    registered = reconstruction.registered.copy()
    registered[list(images)] = False
    observed = reconstruction.observed & registered[problem.tracks.image]
    enough = np.bincount(problem.tracks.track[observed], minlength=len(problem.tracks)) >= 4
    return replace(reconstruction, registered=registered, observed=observed & enough[problem.tracks.track])


def empty_reconstruction(problem: MappingProblem) -> Reconstruction:
    """Reconstruction without any registered image or point."""
    images, count = len(problem.views), len(problem.tracks)
    return Reconstruction(
        registered=np.zeros(images, dtype=bool),
        rotations=np.tile(np.eye(3), (images, 1, 1)),
        translations=np.zeros((images, 3)),
        points=np.zeros((count, 3)),
        observed=np.zeros(len(problem.lines), dtype=bool),
    )


def upright(problem: MappingProblem, reconstruction: Reconstruction) -> Upright | None:
    """Gravity term of bundle adjustment, from the registered images' readings; None if no registered image has one."""
    return upright_of(reconstruction.rotations, np.where(reconstruction.registered[:, None], problem.gravity, np.nan))


def mapped_tracks(problem: MappingProblem, reconstruction: Reconstruction) -> Bool[np.ndarray, "tracks"]:
    """Mask of the tracks that have a point."""
    mapped = np.zeros(len(problem.tracks), dtype=bool)
    mapped[problem.tracks.track[reconstruction.observed]] = True
    return mapped


def triangulated(
    problem: MappingProblem, reconstruction: Reconstruction, *, limit_px: float, min_lines: int, min_angle_deg: float
) -> Reconstruction:
    """Reconstruction with every track triangulated anew from the registered images.

    A line agrees within `limit_px` pixels; a point needs `min_lines` such lines and two rays `min_angle_deg` degrees apart. The
    present point of a track is one more hypothesis for it. Points of exactly four lines are kept only if four strong matches,
    that is a cycle, connect their features (docs/theory/mapping.md, A cycle of matches).

    Four lines are one check, which a wrong match passes with the probability of docs/theory/lines.md, Eq. 10. On repeated
    structure chains of such matches always exist, and a few dozen of them bend a map of thousands of points.
    """
    points, observed = triangulate_tracks(
        TrackLines(
            starts=problem.tracks.starts,
            camera_of=problem.tracks.image,
            lines=problem.lines,
            aligned=problem.aligned,
            active=reconstruction.registered[problem.tracks.image],
            rotations=reconstruction.rotations,
            translations=reconstruction.translations,
            focal_px=problem.focal_px,
            half_extent=problem.half_extent,
        ),
        reconstruction.points,
        mapped_tracks(problem, reconstruction),
        limit_px=limit_px,
        min_lines=min_lines,
        min_angle_deg=min_angle_deg,
    )
    lines = np.bincount(problem.tracks.track[observed], minlength=len(problem.tracks))
    firm = (lines != 4) | (_matches_within(problem, observed) >= 4)
    return replace(reconstruction, points=points, observed=observed & firm[problem.tracks.track])


def _matches_within(problem: MappingProblem, observed: Bool[np.ndarray, "observations"]) -> Int64[np.ndarray, "tracks"]:
    """Number of strong matches between the observed features of each track."""
    graph, tracks = problem.graph, problem.tracks
    track_of = np.full(graph.starts[-1], -1)
    track_of[(graph.starts[tracks.image] + tracks.feature)[observed]] = tracks.track[observed]
    first, second = track_of[graph.first[graph.strong]], track_of[graph.second[graph.strong]]
    return np.bincount(first[(first == second) & (first >= 0)], minlength=len(tracks))


def adjusted(
    problem: MappingProblem, reconstruction: Reconstruction, free: Bool[np.ndarray, "images"], options: AdjustOptions
) -> Reconstruction:
    """Reconstruction after bundle adjustment of the cameras `free` (mask of images) and of the points that they see.

    The other cameras that see these points stay where they are. If all cameras are free, the first one is held all the same.
    """
    seen = np.zeros(len(problem.tracks), dtype=bool)
    seen[problem.tracks.track[reconstruction.observed & free[problem.tracks.image]]] = True
    rows = np.flatnonzero(reconstruction.observed & seen[problem.tracks.track])
    if len(rows) == 0:
        return reconstruction
    cameras, camera_of = np.unique(problem.tracks.image[rows], return_inverse=True)
    tracks, point_of = np.unique(problem.tracks.track[rows], return_inverse=True)
    constant = ~free[cameras]
    if not constant.any():
        constant[0] = True
    known = upright(problem, reconstruction)
    solved = adjust(
        LineProblem(
            rotations=reconstruction.rotations[cameras],
            translations=reconstruction.translations[cameras],
            points=reconstruction.points[tracks],
            lines=problem.lines[rows] * problem.focal_px[problem.tracks.image[rows], None],
            camera_of=camera_of.astype(np.int64),
            point_of=point_of.astype(np.int64),
        ),
        constant=constant,
        upright=None if known is None else replace(known, down_cam=known.down_cam[cameras]),
        options=options,
    ).problem
    rotations, translations, points = (
        reconstruction.rotations.copy(),
        reconstruction.translations.copy(),
        reconstruction.points.copy(),
    )
    rotations[cameras], translations[cameras], points[tracks] = solved.rotations, solved.translations, solved.points
    return replace(reconstruction, rotations=rotations, translations=translations, points=points)


def line_distances(
    problem: MappingProblem,
    reconstruction: Reconstruction,
    image: Int64[np.ndarray, "rows"],
    feature: Int64[np.ndarray, "rows"],
    points: Float64[np.ndarray, "rows 3"],
) -> Float64[np.ndarray, "rows"]:
    """Distances in pixels from each projected point to the line of a feature; infinite behind the camera or outside the image.

    Row k: the world point `points[k]`, projected into image `image[k]`, against the line of its feature `feature[k]`.
    """
    distances = np.full(len(points), np.inf)
    for i in np.unique(image):
        rows = np.flatnonzero(image == i)
        in_camera = points[rows] @ reconstruction.rotations[i].T + reconstruction.translations[i]
        depth = in_camera[:, 2]
        ahead = depth > 1e-9
        projected = in_camera[:, :2] / np.where(ahead, depth, 1.0)[:, None]
        inside = ahead & (np.abs(projected) <= problem.half_extent[i]).all(axis=1)
        line = problem.views[i].lines.coefficients[feature[rows]].astype(np.float64)
        distance = np.abs((line[:, :2] * projected).sum(axis=1) + line[:, 2]) * problem.focal_px[i]
        distances[rows] = np.where(inside, distance, np.inf)
    return distances


def merge_tracks(
    problem: MappingProblem, reconstruction: Reconstruction, *, limit_px: float
) -> tuple[MappingProblem, Reconstruction]:
    """Problem with tracks built anew from the poses, and the reconstruction over them.

    Observations that disagree with the point of their track leave it; any match, strong or weak, joins where the point of one
    side projects within `limit_px` pixels of the line of the other side. Each new track takes the point of the old one that
    most of its lines come from. Track merging: docs/theory/mapping.md, Eq. 4.
    """
    graph, tracks = problem.graph, problem.tracks
    node = graph.starts[tracks.image] + tracks.feature
    track_of = np.full(graph.starts[-1], -1)
    track_of[node] = tracks.track
    mapped = mapped_tracks(problem, reconstruction)
    # Observations of a point that disagree with it leave their track and may join another.
    member = reconstruction.observed | ~mapped[tracks.track]
    track_of[node[~member]] = -1
    chain_first, chain_second = _chains(tracks, member, node)
    agrees = _agrees(problem, reconstruction, track_of, mapped, limit_px)
    better = join(
        graph,
        np.concatenate([chain_first, graph.first[agrees]]),
        np.concatenate([chain_second, graph.second[agrees]]),
    )
    views = dict(zip(tracks.names, problem.views, strict=True))
    return mapping_problem(views, graph, better), _carried_over(reconstruction, graph, better, track_of, mapped)


def extend_tracks(problem: MappingProblem, reconstruction: Reconstruction) -> tuple[MappingProblem, Reconstruction]:
    """Problem with its tracks lengthened by all strong matches (those of new images, say), and the reconstruction over it."""
    graph, tracks = problem.graph, problem.tracks
    node = graph.starts[tracks.image] + tracks.feature
    track_of = np.full(graph.starts[-1], -1)
    track_of[node] = tracks.track
    first, second = _chains(tracks, np.ones(len(node), dtype=bool), node)
    longer = join(
        graph, np.concatenate([first, graph.first[graph.strong]]), np.concatenate([second, graph.second[graph.strong]])
    )
    views = dict(zip(tracks.names, problem.views, strict=True))
    return mapping_problem(views, graph, longer), _carried_over(
        reconstruction, graph, longer, track_of, mapped_tracks(problem, reconstruction)
    )


def _chains(tracks: Tracks, member: np.ndarray, node: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Chains of node pairs that hold the observations `member` (a mask) of each track together."""
    rows = np.flatnonzero(member)
    linked = np.flatnonzero(tracks.track[rows[:-1]] == tracks.track[rows[1:]])
    return node[rows[linked]], node[rows[linked + 1]]


def _agrees(
    problem: MappingProblem,
    reconstruction: Reconstruction,
    track_of: Int64[np.ndarray, "nodes"],
    mapped: np.ndarray,
    limit_px: float,
) -> Bool[np.ndarray, "matches"]:
    """Mask of the matches one side of which has a point that projects onto the line of the other side.

    Both images must be registered.
    """
    graph, image_of = problem.graph, problem.graph.image_of
    mask = np.zeros(len(graph.first), dtype=bool)
    for near, far in ((graph.first, graph.second), (graph.second, graph.first)):
        track = track_of[near]
        rows = np.flatnonzero((track >= 0) & (track_of[far] != track) & reconstruction.registered[image_of[far]])
        rows = rows[mapped[track[rows]]]
        image = image_of[far[rows]]
        distance = line_distances(
            problem, reconstruction, image, far[rows] - graph.starts[image], reconstruction.points[track[rows]]
        )
        mask[rows[distance < limit_px]] = True
    return mask


def _carried_over(
    reconstruction: Reconstruction, graph: MatchGraph, better: Tracks, track_of: np.ndarray, mapped: np.ndarray
) -> Reconstruction:
    """Reconstruction over the tracks `better`: each has the point of the mapped old track that most of its lines come from."""
    old = track_of[graph.starts[better.image] + better.feature]
    known = (old >= 0) & mapped[old]
    pairs, votes = np.unique(np.stack([better.track[known], old[known]], axis=1), axis=0, return_counts=True)
    points = np.zeros((len(better), 3))
    order = np.argsort(votes, kind="stable")  # the largest vote is written last
    points[pairs[order, 0]] = reconstruction.points[pairs[order, 1]]
    observed = np.zeros(len(better.track), dtype=bool)
    observed[known] = True
    return replace(reconstruction, points=points, observed=observed)
