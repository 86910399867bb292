"""Localization on the device: raw features against the points of fetched tiles. Nothing of it leaves (docs/theory/tiles.md).

Raw side: this file knows `veil.features`. Neither features, nor the tiles that they look like, nor the pose are sent.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from jaxtyping import Float32, Float64, Int64

from veil import distances
from veil.codebooks.mirror import mirrored_descriptors
from veil.errors import InputError, RangeError
from veil.features import Features
from veil.forms import Points
from veil.geometry.earth import require_places
from veil.mechanisms.public import publish
from veil.places.poses.answer import Localization, NoPose
from veil.places.poses.options import LocalizeOptions
from veil.tiles.cells import distances_to_boxes
from veil.tiles.manifest import Manifest
from veil.tiles.tile_format import Tile
from veil.tiles.union import TilePoints, united

# So many neighbors are looked at for one that is of another point.
NEIGHBORS = 5


def wanted_tiles(
    manifest: Manifest,
    features: Features | None = None,
    *,
    near: Float64[np.ndarray, "3"] | None = None,
    within: float = 0.0,
    tiles: int | None = None,
) -> list[int]:
    """The tiles to localize in, the most promising first: nearest to a place, or most like the features.

    - `features`: raw features of the query, which are compared with the manifest's sketches.
    - `near`, `within`: where the device is about, and how far it may be from there, in units of the map: from its last pose, or
      from `place_in_map`. Tiles whose cameras may be so near come first, those most like the features among them; then the
      nearest of the others.
    - `tiles`: largest number of tiles; None: as many as are asked for.

    Raises InputError if neither is given, or if a place is not finite; RangeError for a negative `within` or no tiles.
    """
    if tiles is not None and not tiles >= 1:
        raise RangeError(f"at least one tile is needed, got {tiles!r}")
    count = min(manifest.asked, tiles or manifest.asked)
    if features is None and near is None:
        raise InputError("nothing says where to begin: give a photograph's features, a last pose, or a place on Earth")
    order = np.arange(len(manifest))
    if features is not None:
        order, _ = manifest.sketches.ranked(manifest.coding.compressed(publish(features)))
    if not within >= 0:
        raise RangeError(f"within must not be negative, got {within!r}")
    if near is not None:
        if not np.isfinite(near).all():
            raise InputError(f"the place near which to look must be finite, got {near.tolist()}")
        away = distances_to_boxes(manifest.low, manifest.high, near[None])[0]
        order = order[np.argsort(np.maximum(away - within, 0.0)[order], kind="stable")]
    return order[:count].tolist()


def place_in_map(manifest: Manifest, latitude_deg: float, longitude_deg: float, height_m: float | None = None) -> np.ndarray:
    """The place of a GPS fix in units of the map, float64 (3,).

    Without a height, that of the map's middle is taken. Raises InputError for a map without a place on Earth, RangeError for a
    place that is none.
    """
    if manifest.place is None:
        raise InputError(
            "nobody said where on Earth this map is, so a GPS fix does not help; give features, or a place in the map"
        )
    frame, enu_from_map = manifest.place.frame, manifest.place.enu_from_map
    height = frame.height_m if height_m is None else height_m
    require_places(np.array([[latitude_deg, longitude_deg, height]]))
    local = frame.local(np.array([latitude_deg, longitude_deg, height]))
    return (local - enu_from_map.translation) @ enu_from_map.rotation / enu_from_map.scale


def localize_in_tiles(
    features: Features, manifest: Manifest, tiles: Sequence[Tile], options: LocalizeOptions | None = None
) -> Localization | NoPose:
    """The pose of a photograph in the points of fetched tiles, or why there is none.

    The pose is estimated, weighed against chance and refused as on a public map (`veil.places.poses.by_distance.localize`).
    `point_rows` of the answer are rows of `veil.tiles.union.united` of the same tiles.

    - `features`: raw features of the photograph.
    - `manifest`: of the map.
    - `tiles`: decoded and proved ones of this manifest, in any order.

    Raises SpaceError for features of another kind than the map's.
    """
    options = options or LocalizeOptions()
    query = manifest.coding.compressed(publish(features))
    if not tiles:
        return NoPose(reason="no tile could be used; see why, and fetch again", correspondences=0)
    points, camera = united(tiles, manifest.coding), features.camera
    # loads SciPy and COLMAP
    from veil.places.poses.by_distance import evidence_of_matches, is_doubtful, localize_matches
    from veil.places.poses.mirror import mirrored_keypoints, unless_mirrored

    pairs = matched(query, points, options)
    answer = localize_matches(camera, features.keypoints, *pairs, points.points, views=points.views, options=options)

    def mirrored() -> float | None:
        turned = mirrored_descriptors(publish(features), None)
        if not isinstance(turned, Points):
            return None
        pairs = matched(manifest.coding.compressed(turned), points, options)
        keypoints = mirrored_keypoints(camera, features.keypoints)
        return evidence_of_matches(camera, keypoints, *pairs, points.points, views=points.views, options=options)

    return unless_mirrored(answer, mirrored) if is_doubtful(answer) else answer


def matched(
    query: Float32[np.ndarray, "features axes"], points: TilePoints, options: LocalizeOptions
) -> tuple[Int64[np.ndarray, "pairs"], Int64[np.ndarray, "pairs"]]:
    """Rows of features and points that are each other's nearest, the most distinctive pairs first.

    A pair is as distinctive as its distance is small beside that to the nearest descriptor of another point, or of another
    feature, whichever is the smaller. `options.max_ratio` leaves out pairs that are less so.
    """
    if not len(query) or not len(points.points):
        return np.empty(0, dtype=np.int64), np.empty(0, dtype=np.int64)
    there = distances.nearest(
        (query, None), (points.descriptors, None), NEIGHBORS, backend=options.backend, threads=options.threads
    )
    back = distances.nearest((points.descriptors, None), (query, None), 2, backend=options.backend, threads=options.threads)
    aspect = there.index[:, 0]
    point = np.where(there.index >= 0, points.point_rows[there.index], -1)
    other = np.where((point != point[:, :1]) & (point >= 0), there.distance, np.inf).min(axis=1)
    ratios = np.maximum(_ratios(there.distance[:, 0], other), _ratios(back.distance[aspect, 0], back.distance[aspect, 1]))
    kept = back.index[aspect, 0] == np.arange(len(query))
    if options.max_ratio is not None:
        kept &= ratios <= options.max_ratio
    rows = np.flatnonzero(kept)
    rows = rows[np.argsort(ratios[rows], kind="stable")]
    return rows.astype(np.int64), point[rows, 0].astype(np.int64)


def _ratios(nearest: Float64[np.ndarray, "rows"], second: Float64[np.ndarray, "rows"]) -> Float64[np.ndarray, "rows"]:
    """Nearest over second nearest distance; 1 where both are zero, 0 where there is no second."""
    tie = second == 0
    return np.where(tie, 1.0, nearest / np.where(tie, 1.0, second))
