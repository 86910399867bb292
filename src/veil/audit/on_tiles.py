"""Audit of published tiles: pictures of the place from their points, beside photographs of it and their raw features.

Tiles are public raw descriptors, so that nothing is attacked: places are projected into a camera, descriptors are led back
through the compression, and a network draws what they show (docs/theory/audit.md#tiles). A camera is that of a photograph, or
one that may have stood where nobody took any.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, TypedDict

import numpy as np
from jaxtyping import Float64, Int64, UInt8

from veil.audit.on_pictures import without_root
from veil.errors import InputError
from veil.features import Features
from veil.geometry.camera import Camera, as_colmap, guessed
from veil.geometry.rigid import Rigid
from veil.inversion.maps import Frame, Inverts, SparseMap, points_map
from veil.inversion.quality import OptionalQualityJson, Quality, quality, quality_facts
from veil.mechanisms.public import publish
from veil.places.poses.answer import Localization, NoPose
from veil.tiles.coding import TileCoding
from veil.tiles.device import localize_in_tiles
from veil.tiles.manifest import Manifest
from veil.tiles.tile_format import Tile
from veil.tiles.union import TilePoints, united

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


WITHIN = (0.1, 0.4)
PictureSource = Literal["tiles", "raw features"]


class _PictureSourceJson(TypedDict):
    source: PictureSource
    features: int


class TilePictureJson(_PictureSourceJson, OptionalQualityJson):
    """A picture of a place; its quality is None without the photograph."""


@dataclass(frozen=True, kw_only=True, eq=False)
class TilePicture:
    """A picture that a network drew from `source`.

    `features` is the number of pixels of the sparse map that hold a feature. `quality` is None without the photograph.
    """

    source: PictureSource
    features: int
    rgb: UInt8[np.ndarray, "256 256 3"]
    quality: Quality | None

    def as_json(self) -> TilePictureJson:
        """The stable record of docs/reference/json.md, without the picture."""
        return {
            "source": self.source,
            "features": self.features,
            **quality_facts(self.quality),
        }


DescriptorErrorsJson = TypedDict(
    "DescriptorErrorsJson",
    {
        "features": int,
        "matched": int,
        "compression": float,
        "median": float | None,
        "within_0.1": int,
        "within_0.4": int,
    },
)


@dataclass(frozen=True, kw_only=True)
class DescriptorErrors:
    """How near tiles come to the descriptors of a photograph of the place (unit vectors; two random ones are about 1 apart).

    - `features`: of the photograph, and `matched`: those of them that agree with its pose, which the tiles therefore have.
    - `compression`: median distance between a descriptor and what the tiles' compression leaves of it.
    - `median`: median distance between a matched descriptor and the tiles' descriptor of the point that it sees; None without.
    - `within`: how many matched descriptors the tiles have to within 0.1, and to within 0.4.
    """

    features: int
    matched: int
    compression: float
    median: float | None
    within: tuple[int, int]

    def as_json(self) -> DescriptorErrorsJson:
        """The stable record of docs/reference/json.md."""
        return {
            "features": self.features,
            "matched": self.matched,
            "compression": self.compression,
            "median": self.median,
            "within_0.1": self.within[0],
            "within_0.4": self.within[1],
        }


class TileViewJson(TypedDict):
    """A view of tiles, without its pictures."""

    name: str
    tiles: list[int]
    points: int
    seen: int
    descriptors: DescriptorErrorsJson | None


@dataclass(frozen=True, kw_only=True, eq=False)
class TileView:
    """Points and picture of some tiles from one camera.

    - `name`: of the photograph that the camera took, or of the tile.
    - `tiles`: numbers of the tiles, and `points`: how many points they have.
    - `camera`, `cam_from_world`: of the photograph, whose pose was found in the tiles; or one from which most points of a tile
      are seen.
    - `keypoints`, float64 (seen, 2): where the points that it sees lie in the picture, in pixels.
    - `descriptors`, float64 (seen, dim): theirs, of unit length, led back through the compression.
    - `errors`: beside the photograph's own descriptors; None without a photograph.
    """

    name: str
    tiles: tuple[int, ...]
    points: int
    camera: Camera
    cam_from_world: Rigid
    keypoints: Float64[np.ndarray, "seen 2"]
    descriptors: Float64[np.ndarray, "seen dim"]
    errors: DescriptorErrors | None

    def __len__(self) -> int:
        return len(self.keypoints)

    def as_json(self) -> TileViewJson:
        """The stable record of docs/reference/json.md, without pictures."""
        return {
            "name": self.name,
            "tiles": list(self.tiles),
            "points": self.points,
            "seen": len(self),
            "descriptors": None if self.errors is None else self.errors.as_json(),
        }


def view_of_photograph(name: str, features: Features, manifest: Manifest, tiles: Sequence[Tile]) -> TileView | NoPose:
    """View of tiles from the pose of a photograph of the place, or the reason why they give no pose.

    - `name`, `features`: of the photograph.
    - `manifest`, `tiles`: of the map, and proved tiles of it, in which the photograph is localized.

    Raises SpaceError for features of another kind than the map's.
    """
    answer = localize_in_tiles(features, manifest, tiles)
    if isinstance(answer, NoPose):
        return answer
    points = united(tiles, manifest.coding)
    rows, xy = seen_from(points, features.camera, answer.cam_from_world)
    return TileView(
        name=name,
        tiles=tuple(tile.index for tile in tiles),
        points=len(points.points),
        camera=features.camera,
        cam_from_world=answer.cam_from_world,
        keypoints=xy,
        descriptors=led_back(points.descriptors[rows], manifest.coding),
        errors=descriptor_errors(features, answer, points, manifest.coding),
    )


def view_of_tile(tile: Tile, manifest: Manifest) -> TileView:
    """View of a tile from a camera of its cell, as a holder of nothing else would choose one (docs/theory/audit.md#tiles).

    Raises InputError for a tile without points.
    """
    points = united([tile], manifest.coding)
    camera, pose = likely_camera(points, manifest, tile.index)
    rows, xy = seen_from(points, camera, pose)
    return TileView(
        name=f"tile {tile.index}",
        tiles=(tile.index,),
        points=len(points.points),
        camera=camera,
        cam_from_world=pose,
        keypoints=xy,
        descriptors=led_back(points.descriptors[rows], manifest.coding),
        errors=None,
    )


def pictures(
    view: TileView,
    manifest: Manifest,
    network: Inverts,
    *,
    features: Features | None = None,
    photograph: UInt8[np.ndarray, "_ _ 3"] | None = None,
) -> list[TilePicture]:
    """The picture of a view, and that of as many of the photograph's raw features, drawn evenly, where they are given.

    - `network`: an inversion network for raw SIFT.
    - `features`, `photograph`: of the view's camera; with the latter each picture is compared.

    The list is empty for descriptors other than SIFT, which the networks do not read.
    """
    space = manifest.coding.raw_space
    if space.descriptor != "sift":
        return []
    frame = Frame(width=view.camera.width_px, height=view.camera.height_px)
    maps: dict[PictureSource, SparseMap] = {"tiles": points_map(frame, view.keypoints, without_root(view.descriptors, space))}
    if features is not None:
        count = min(len(view), len(features))
        drawn = features.take(np.sort(np.random.default_rng(0).permutation(len(features))[:count]))
        raw = publish(drawn).vectors.astype(np.float64)
        maps["raw features"] = points_map(frame, drawn.keypoints, without_root(raw, space))
    original = None if photograph is None else frame.crop(photograph)
    return [_picture(source, sparse, network, original) for source, sparse in maps.items()]


def _picture(
    source: PictureSource, sparse: SparseMap, network: Inverts, original: UInt8[np.ndarray, "256 256 3"] | None
) -> TilePicture:
    rgb = network.invert([sparse])[0]
    measured = None if original is None else quality(original, rgb)
    return TilePicture(source=source, features=len(sparse), rgb=rgb, quality=measured)


def led_back(compressed: np.ndarray, coding: TileCoding) -> Float64[np.ndarray, "rows dim"]:
    """Descriptors of unit length from compressed ones. SIFT is not negative: what the compression makes so is set to zero."""
    plain = coding.restored(compressed)
    if coding.raw_space.descriptor == "sift":
        plain = np.maximum(plain, 0.0)
    return plain / np.maximum(np.linalg.norm(plain, axis=1, keepdims=True), 1e-12)


def descriptor_errors(
    features: Features, localization: Localization, points: TilePoints, coding: TileCoding
) -> DescriptorErrors:
    """How near tiles come to the descriptors of a photograph that was localized in them."""
    raw = publish(features)
    own = raw.vectors.astype(np.float64)
    kept = led_back(coding.vectors(coding.levels(own)), coding)
    lost = np.linalg.norm(kept - own, axis=1)
    distance = _nearest_aspects(own[localization.keypoint_rows], points, localization.point_rows, coding)
    near, close = (int((distance < limit).sum()) for limit in WITHIN)
    return DescriptorErrors(
        features=len(features),
        matched=len(distance),
        compression=float(np.median(lost)),
        median=float(np.median(distance)) if len(distance) else None,
        within=(near, close),
    )


def _nearest_aspects(
    own: Float64[np.ndarray, "pairs dim"], points: TilePoints, rows: Int64[np.ndarray, "pairs"], coding: TileCoding
) -> Float64[np.ndarray, "pairs"]:
    """Distance of each descriptor to the nearest aspect of its point."""
    counts = points.views.starts[rows + 1] - points.views.starts[rows]
    pair = np.repeat(np.arange(len(rows)), counts)
    aspect = np.arange(len(pair)) - np.repeat(np.cumsum(counts) - counts, counts) + points.views.starts[rows][pair]
    distance = np.linalg.norm(led_back(points.descriptors[aspect], coding) - own[pair], axis=1)
    nearest = np.full(len(rows), np.inf)
    np.minimum.at(nearest, pair, distance)
    return nearest
