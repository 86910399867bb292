"""Audit of published tiles: pictures of the place from their points, beside photographs of it and their raw features.

Tiles are public raw descriptors, so that nothing is attacked: places are projected into a camera, descriptors are led back
through the compression, and a network draws what they show (docs/theory/audit.md#tiles).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float64, Int64, UInt8

from veil.audit.on_pictures import without_root
from veil.audit.tile_cameras import likely_camera, seen_from
from veil.features import Features
from veil.geometry.camera import Camera
from veil.geometry.rigid import Rigid
from veil.inversion.maps import Frame, Inverts, SparseMap, points_map
from veil.inversion.quality import Quality, quality, quality_facts
from veil.mechanisms.public import publish
from veil.places.poses.answer import Localization, NoPose
from veil.tiles.coding import TileCoding
from veil.tiles.device import localize_in_tiles
from veil.tiles.manifest import Manifest
from veil.tiles.tile_format import Tile
from veil.tiles.union import TilePoints, united

WITHIN = (0.1, 0.4)


@dataclass(frozen=True, kw_only=True, eq=False)
class TilePicture:
    """A picture that a network drew from `source`, "tiles" or "raw features".

    `features` is the number of pixels of the sparse map that hold a feature. `quality` is None without the photograph.
    """

    source: str
    features: int
    rgb: UInt8[np.ndarray, "256 256 3"]
    quality: Quality | None

    def as_json(self) -> dict:
        """The stable record of docs/reference/json.md, without the picture."""
        return {
            "source": self.source,
            "features": self.features,
            **quality_facts(self.quality),
        }


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

    def as_json(self) -> dict:
        """The stable record of docs/reference/json.md."""
        return {
            "features": self.features,
            "matched": self.matched,
            "compression": self.compression,
            "median": self.median,
            "within_0.1": self.within[0],
            "within_0.4": self.within[1],
        }


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

    def as_json(self) -> dict:
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
    found = localize_in_tiles(features, manifest, tiles)
    if isinstance(found, NoPose):
        return found
    points = united(tiles, manifest.coding)
    rows, xy = seen_from(points, features.camera, found.cam_from_world)
    return TileView(
        name=name,
        tiles=tuple(tile.index for tile in tiles),
        points=len(points.points),
        camera=features.camera,
        cam_from_world=found.cam_from_world,
        keypoints=xy,
        descriptors=led_back(points.descriptors[rows], manifest.coding),
        errors=descriptor_errors(features, found, points, manifest.coding),
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
    maps = {"tiles": points_map(frame, view.keypoints, without_root(view.descriptors, space))}
    if features is not None:
        count = min(len(view), len(features))
        drawn = features.take(np.sort(np.random.default_rng(0).permutation(len(features))[:count]))
        raw = publish(drawn).vectors.astype(np.float64)
        maps["raw features"] = points_map(frame, drawn.keypoints, without_root(raw, space))
    original = None if photograph is None else frame.crop(photograph)
    return [_picture(source, sparse, network, original) for source, sparse in maps.items()]


def _picture(source: str, sparse: SparseMap, network: Inverts, original: UInt8[np.ndarray, "256 256 3"] | None) -> TilePicture:
    rgb = network.invert([sparse])[0]
    measured = None if original is None else quality(original, rgb)
    return TilePicture(source=source, features=len(sparse), rgb=rgb, quality=measured)


def led_back(compressed: np.ndarray, coding: TileCoding) -> Float64[np.ndarray, "rows dim"]:
    """Descriptors of unit length from compressed ones. SIFT is not negative: what the compression makes so is set to zero."""
    plain = coding.restored(compressed)
    if coding.raw_space.descriptor == "sift":
        plain = np.maximum(plain, 0.0)
    return plain / np.maximum(np.linalg.norm(plain, axis=1, keepdims=True), 1e-12)


def descriptor_errors(features: Features, found: Localization, points: TilePoints, coding: TileCoding) -> DescriptorErrors:
    """How near tiles come to the descriptors of a photograph that was localized in them."""
    raw = publish(features)
    own = raw.vectors.astype(np.float64)
    kept = led_back(coding.vectors(coding.levels(own)), coding)
    lost = np.linalg.norm(kept - own, axis=1)
    distance = _nearest_aspects(own[found.keypoint_rows], points, found.point_rows, coding)
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
