"""Conversions between maps from lines and scenes, which are stored, localized against, and extended by new images."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
from jaxtyping import Bool, Float32, Float64

from veil.errors import InputError
from veil.forms import Form, Lines
from veil.geometry.camera import Camera, as_colmap
from veil.geometry.rigid import Rigid
from veil.places.maps.lines.certainty import checked
from veil.places.maps.lines.focal import with_focal
from veil.places.maps.lines.incremental import LineMap
from veil.places.maps.lines.problem import LineView, MappingProblem, mapping_problem
from veil.places.maps.lines.reconstruction import Reconstruction, adjusted, line_distances
from veil.places.maps.lines.registration import FINAL, LineMapOptions, noise_px
from veil.places.maps.lines.tracks import MatchGraph, Tracks, match_graph
from veil.scene import LineMapCheck, MappedImage, Scene

ROUNDS = 2


@dataclass(frozen=True, kw_only=True, eq=False)
class LineImage:
    """Image to map as its message gives it: camera, lines, and descriptors."""

    camera: Camera
    lines: Lines
    form: Form

    @property
    def view(self) -> LineView:
        """Camera and lines of the image, without descriptors."""
        return LineView(camera=self.camera, lines=self.lines)

    def with_focal(self, ratio: float) -> LineImage:
        """The image with a focal length that is `ratio` times as long."""
        seen = with_focal(self.view, ratio)
        return replace(self, camera=seen.camera, lines=seen.lines)


def scene_of(line_map: LineMap, images: Mapping[str, LineImage]) -> Scene:
    """Scene of a map from lines: its registered images with the features that observe a point.

    `images` are all images of the map, by name. Projections of the points stand in for the hidden keypoints. Raises InputError
    if no image observes a point.
    """
    tracks = line_map.tracks
    rows = np.flatnonzero(line_map.observed)
    used, point_of = np.unique(tracks.track[rows], return_inverse=True)
    points = line_map.points[used]
    mapped, errors = {}, []
    for index, name in enumerate(tracks.names):
        mine = tracks.image[rows] == index
        if name not in line_map.cam_from_world or not mine.any():
            continue
        features, image = tracks.feature[rows[mine]], images[name].with_focal(line_map.focal_ratios.get(name, 1.0))
        keypoints = projections(image.camera, line_map.cam_from_world[name], points[point_of[mine]])
        lines = image.lines.take(features)
        errors.append(_distances(image.camera, lines, keypoints))
        mapped[name] = MappedImage(
            name=name,
            camera=image.camera,
            cam_from_world=line_map.cam_from_world[name],
            keypoints=keypoints,
            point_rows=point_of[mine].astype(np.int64),
            form=image.form.take(features),
            lines=lines,
        )
    if not mapped:
        raise InputError("no image observes a point")
    return Scene(images=mapped, points=points, mean_reprojection_error_px=float(np.concatenate(errors).mean()))


def projections(
    camera: Camera, cam_from_world: Rigid, points: Float64[np.ndarray, "points 3"]
) -> Float32[np.ndarray, "points 2"]:
    """Positions in pixels of world points that lie in front of the camera."""
    in_camera = cam_from_world.apply(points)
    return np.asarray(as_colmap(camera).img_from_cam(in_camera), dtype=np.float32).reshape(-1, 2)


def _distances(camera: Camera, lines: Lines, keypoints: np.ndarray) -> np.ndarray:
    """Distance in pixels from each projection to its line."""
    xy = np.asarray(as_colmap(camera).cam_from_img(keypoints.astype(np.float64)), dtype=np.float64).reshape(-1, 2)
    line = lines.coefficients.astype(np.float64)
    return np.abs((line[:, :2] * xy).sum(axis=1) + line[:, 2]) * camera.focal_px


def images_of(scene: Scene) -> dict[str, LineImage]:
    """Images of a scene, by name, to extend its map from. Raises InputError if one of them came with positions."""
    images = {}
    for name, image in scene.images.items():
        if image.lines is None:
            raise InputError(
                f"the map's image {name} came with positions, the new messages hide theirs in lines; add messages with "
                "positions to it, localizing works with both"
            )
        images[name] = LineImage(camera=image.camera, lines=image.lines, form=image.form)
    return images


def reconstruction_of(scene: Scene, graph: MatchGraph) -> tuple[Tracks, Reconstruction]:
    """Tracks and reconstruction of a scene of lines in the numbering of `graph`, which names its images and new ones."""
    index = {name: number for number, name in enumerate(graph.names)}
    images = len(graph.names)
    registered, rotations, translations = (
        np.zeros(images, dtype=bool),
        np.tile(np.eye(3), (images, 1, 1)),
        np.zeros((images, 3)),
    )
    track, image, feature = [], [], []
    for name, mapped in scene.images.items():
        number = index[name]
        registered[number] = True
        rotations[number], translations[number] = mapped.cam_from_world.rotation, mapped.cam_from_world.translation
        track.append(mapped.point_rows)
        image.append(np.full(len(mapped.point_rows), number))
        feature.append(np.arange(len(mapped.point_rows)))
    tracks, numbers, features = np.concatenate(track), np.concatenate(image), np.concatenate(feature)
    order = np.lexsort((numbers, tracks))
    merged = Tracks(names=graph.names, track=tracks[order], image=numbers[order], feature=features[order], left_out=0)
    reconstruction = Reconstruction(
        registered=registered,
        rotations=rotations,
        translations=translations,
        points=scene.points,
        observed=np.ones(len(order), dtype=bool),
    )
    return merged, reconstruction


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
    line_map = LineMap(
        tracks=tracks,
        cam_from_world={name: reconstruction.pose(index) for index, name in enumerate(graph.names)},
        points=reconstruction.points,
        observed=reconstruction.observed,
        quad=None,
        refused={},
        check=checked(problem, reconstruction, limit_px=options.point_error_px, left_out={}),
    )
    return scene_of(line_map, images), line_map.check


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
