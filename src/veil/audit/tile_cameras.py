"""Cameras before the points of a tile: what one sees of them, and where one may have stood whose photograph nobody has."""

from __future__ import annotations

import numpy as np
from jaxtyping import Float64, Int64

from veil.errors import InputError
from veil.geometry.camera import Camera, as_colmap, guessed
from veil.geometry.rigid import Rigid
from veil.tiles.manifest import Manifest
from veil.tiles.union import TilePoints

# A camera that nobody has a photograph of: 4:3, with COLMAP's guess of the focal length; sides in diagonals of the picture.
WIDTH, HEIGHT = 0.8, 0.6
# So many of the tile's points are asked where they were seen from.
CANDIDATES = 64


def seen_from(
    points: TilePoints, camera: Camera, pose: Rigid
) -> tuple[Int64[np.ndarray, "seen"], Float64[np.ndarray, "seen 2"]]:
    """Rows of the aspects that a camera sees, one for each point in the picture, and where (pixels).

    Points count that were seen from about this direction at about this size (`MapViews.possible`): others lie behind something,
    or look otherwise from here. Of several aspects of a point the one is taken that was seen from the nearest direction.
    """
    ahead = np.flatnonzero(pose.apply(points.points)[:, 2] > 0)
    ahead = ahead[points.views.possible(camera, pose, points.points, ahead)]
    xy = np.asarray(as_colmap(camera).img_from_cam(pose.apply(points.points[ahead])), dtype=np.float64).reshape(-1, 2)
    inside = ((xy >= 0) & (xy < [camera.width_px, camera.height_px])).all(axis=1)
    rows = ahead[inside]
    sight = pose.center - points.points
    turned = (points.views.direction * sight[points.point_rows]).sum(axis=1)
    order = np.lexsort((-turned, points.point_rows))
    return order[points.views.starts[rows]], xy[inside]


def likely_camera(points: TilePoints, manifest: Manifest, index: int) -> tuple[Camera, Rigid]:
    """A camera and a pose of a tile's cell, from which most of its points are seen.

    Some points are asked from where they were seen: in their direction, at the distance at which a picture of 4:3 with the
    usual focal length shows them as large, and in the box of the cell's cameras. The camera looks at what is seen from there.

    Raises InputError for a tile without points.
    """
    if not len(points.points):
        raise InputError(f"tile {index} has no points, and shows nothing")
    views = points.views
    diagonal = float(np.median(views.pixels / views.frames))
    camera = guessed(*(int(np.clip(round(share * diagonal), 16, 65535)) for share in (WIDTH, HEIGHT)))
    down = _down(manifest)
    asked = np.unique(np.linspace(0, len(views.pixels) - 1, CANDIDATES).astype(np.int64))
    best, most = Rigid(rotation=np.eye(3), translation=np.zeros(3)), -1
    for row in asked:
        away = camera.focal_px / diagonal / views.frames[row] * views.direction[row]
        center = np.clip(points.points[points.point_rows[row]] + away, manifest.low[index], manifest.high[index])
        pose = _looking(center, points, camera, down)
        count = len(seen_from(points, camera, pose)[0])
        if count > most:
            best, most = pose, count
    return camera, best


def _looking(center: Float64[np.ndarray, "3"], points: TilePoints, camera: Camera, down: Float64[np.ndarray, "3"]) -> Rigid:
    """The pose at a center that looks at the middle of the points that can be seen from there, upright."""
    still = Rigid(rotation=np.eye(3), translation=-center)
    rows = np.arange(len(points.points))
    near = points.views.possible(camera, still, points.points, rows)
    sights = points.points[near if near.any() else rows] - center
    ahead = _unit(np.median(_unit(sights), axis=0))
    side = np.cross(down, ahead)
    if np.linalg.norm(side) < 1e-3:  # straight up or down: any turn about the view will do
        side = np.cross(np.eye(3)[int(np.argmin(np.abs(ahead)))], ahead)
    right = _unit(side)
    rotation = np.stack([right, np.cross(ahead, right), ahead])
    return Rigid(rotation=rotation, translation=-rotation @ center)


def _down(manifest: Manifest) -> Float64[np.ndarray, "3"]:
    """Down in the map: known with its place on Earth, else that of the camera that COLMAP began the map with."""
    if manifest.place is None:
        return np.array([0.0, 1.0, 0.0])
    return -manifest.place.enu_from_map.rotation[2]


def _unit(vectors: Float64[np.ndarray, "*rows 3"]) -> Float64[np.ndarray, "*rows 3"]:
    return vectors / np.maximum(np.linalg.norm(vectors, axis=-1, keepdims=True), 1e-12)
