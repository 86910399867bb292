"""Adjustment of a stored map from lines by itself: no match is kept with it, so nothing new joins a point."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from jaxtyping import Bool, Float64

from veil.mapping.lines.check import LineMapCheck, checked
from veil.mapping.lines.incremental import LineMap
from veil.mapping.lines.problem import MappingProblem, mapping_problem
from veil.mapping.lines.reconstruction import Reconstruction, adjusted, line_distances
from veil.mapping.lines.registration import FINAL, LineMapOptions, noise_px
from veil.mapping.lines.scenes import images_of, reconstruction_of, scene_of
from veil.mapping.lines.tracks import match_graph
from veil.scene import Scene

ROUNDS = 2


def adjusted_scene(scene: Scene) -> tuple[Scene, LineMapCheck]:
    """Scene of lines after adjustment of all its cameras and points, without what then disagrees, and the check of the result.

    Points keep four lines or more that agree, one of them not along gravity, and two rays `LineMapOptions.min_angle_deg` apart.
    Raises InputError if no point is left, or an image came with positions.
    """
    options = LineMapOptions()
    images = images_of(scene)
    graph = match_graph({name: len(image.form) for name, image in images.items()}, {})
    tracks, reconstruction = reconstruction_of(scene, graph)
    problem = mapping_problem({name: image.view for name, image in images.items()}, graph, tracks)
    for _ in range(ROUNDS):
        noise = noise_px(problem, reconstruction)
        reconstruction = adjusted(problem, reconstruction, reconstruction.registered, replace(FINAL, loss_px=noise))
        reconstruction = _agreeing(problem, reconstruction, float(np.clip(6 * noise, 0.75, options.point_error_px)), options)
    found = LineMap(
        tracks=tracks,
        cam_from_world={name: reconstruction.pose(index) for index, name in enumerate(graph.names)},
        points=reconstruction.points,
        observed=reconstruction.observed,
        quad=None,
        refused={},
        check=checked(problem, reconstruction, limit_px=options.point_error_px, left_out={}),
    )
    return scene_of(found, images), found.check


def _agreeing(
    problem: MappingProblem, reconstruction: Reconstruction, limit_px: float, options: LineMapOptions
) -> Reconstruction:
    """The reconstruction without lines that disagree by more than `limit_px`, and without the points that these held up."""
    tracks = problem.tracks
    distance = line_distances(problem, reconstruction, tracks.image, tracks.feature, reconstruction.points[tracks.track])
    observed = reconstruction.observed & (distance <= limit_px)
    count = np.bincount(tracks.track[observed], minlength=len(tracks))
    firm = np.bincount(tracks.track[observed & ~problem.aligned], minlength=len(tracks)) > 0
    wide = _widest_angles_deg(problem, reconstruction, observed) >= options.min_angle_deg
    return replace(reconstruction, observed=observed & ((count >= options.min_lines) & firm & wide)[tracks.track])


def _widest_angles_deg(
    problem: MappingProblem, reconstruction: Reconstruction, observed: Bool[np.ndarray, "observations"]
) -> Float64[np.ndarray, "tracks"]:
    """Angle between two rays of each track's point: of the ray farthest from the first one, and of the one farthest from that.

    It is half of the widest angle at least. Zero for a track without an observation.
    """
    widest = np.zeros(len(problem.tracks))
    rows = np.flatnonzero(observed)
    if len(rows) == 0:
        return widest
    image = problem.tracks.image[rows]
    centers = -np.einsum("cji,cj->ci", reconstruction.rotations, reconstruction.translations)
    rays = reconstruction.points[problem.tracks.track[rows]] - centers[image]
    rays /= np.maximum(np.linalg.norm(rays, axis=1, keepdims=True), 1e-300)
    seen, first, group = np.unique(problem.tracks.track[rows], return_index=True, return_inverse=True)
    for _ in range(2):
        cosine = (rays * rays[first][group]).sum(axis=1)
        order = np.lexsort((cosine, group))
        first = order[np.searchsorted(group[order], np.arange(len(seen)))]
    widest[seen] = np.degrees(np.arccos(np.clip(cosine[first], -1, 1)))
    return widest
