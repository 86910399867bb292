"""Appearance of facades: keypoints of real photographs as picture tiles, with descriptors as SIFT gave them.

Neighbors on a tile are neighbors of one photograph. Mirrored photographs and their negatives are photographs too, and their
descriptors are permutations of the original's (VLFeat's layout in COLMAP's order: 4 x 4 cells of 8 directions). When a city
needs more tiles than there are, the left half of each descriptor's cells comes from one tile and the right half from another.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float32, Float64, Int64, UInt8

from veil.codebooks.mirror import SIFT_MIRRORED
from veil.errors import InputError
from veil.extraction.picture import Picture
from veil.extraction.sift import SiftOptions, extract_sift
from veil.space import Normalization
from veil_lab.city.draws import mixed, uniform
from veil_lab.city.plan import TILE_HEIGHT_M, TILE_WIDTH_M

PARTS, TILE_KEYPOINTS, VERSIONS = 2, 500, 4
_FIELDS, _MOST_KEYPOINTS, _LEADERS = np.array([12, 8]), 511, 64
_CELLS = np.arange(128).reshape(4, 4, 8)
# In the frame of a keypoint, x along its orientation: a mirror turns y and all directions around, a negative turns the cells.
MIRRORED = SIFT_MIRRORED
NEGATIVE = np.ascontiguousarray(_CELLS[::-1, ::-1]).reshape(-1)
_PERMUTATIONS = np.stack([np.arange(128), MIRRORED, NEGATIVE, MIRRORED[NEGATIVE]])
_RIGHT = np.broadcast_to(np.arange(4)[None, :, None] >= 2, (4, 4, 8)).reshape(-1)


@dataclass(frozen=True, kw_only=True, eq=False)
class Looks:
    """Keypoints of photographs, cut into tiles: rows `starts[t]` to `starts[t + 1]` are part t % 2 of photograph t // 2.

    - `descriptors`, uint8 (N, 128), as `veil.features` holds them; `places`, (N, 2): from the tile's lower left corner, in
      tile widths and heights; `sigmas_m`: SIFT's scale on the facade, meters; `orientations`: radians.
    - `groups`: number of the most similar of 64 keypoints of the tile. Similar patches of one place change alike.
    """

    normalization: Normalization
    starts: Int64[np.ndarray, "_"]
    descriptors: UInt8[np.ndarray, "_ 128"]
    places: Float32[np.ndarray, "_ 2"]
    sigmas_m: Float32[np.ndarray, "_"]
    orientations: Float32[np.ndarray, "_"]
    groups: Int64[np.ndarray, "_"]

    @property
    def kinds(self) -> int:
        """Number of different tiles before any is mixed of two."""
        return (len(self.starts) - 1) * VERSIONS


@dataclass(frozen=True, kw_only=True, eq=False)
class TileKeypoints:
    """Keypoints of one tile: place from its lower left corner and scale (meters), orientation (radians), descriptor, group."""

    places_m: Float64[np.ndarray, "_ 2"]
    sigmas_m: Float64[np.ndarray, "_"]
    orientations: Float64[np.ndarray, "_"]
    descriptors: UInt8[np.ndarray, "_ 128"]
    groups: Int64[np.ndarray, "_"]


def looks_of(photographs: Sequence[np.ndarray], *, normalization: Normalization = "L2") -> Looks:
    """The tiles of photographs, uint8 RGB (height, width, 3); one with less than 40 features in the middle is left out.

    A photograph is turned to landscape and covers one tile with its middle of 3 : 2. Its 1,000 features of largest scale are
    dealt out to two tiles by the fields of a checkerboard. Raises InputError if none is left.
    """
    parts: list[tuple[np.ndarray, ...]] = []
    for rgb in photographs:
        upright = np.ascontiguousarray(np.rot90(rgb) if rgb.shape[0] > rgb.shape[1] else rgb)
        height, width = upright.shape[:2]
        extent = min(width, height * TILE_WIDTH_M / TILE_HEIGHT_M)
        corner = np.array([width - extent, height + extent * TILE_HEIGHT_M / TILE_WIDTH_M]) / 2
        try:
            features = extract_sift(Picture.of(upright, {}, None), SiftOptions(first_octave=-1, normalization=normalization))
        except InputError:
            continue
        assert features.scales is not None and features.orientations is not None
        places = (features.keypoints - corner) * [1, -TILE_WIDTH_M / TILE_HEIGHT_M] / extent
        inside = np.flatnonzero(((places > 0) & (places < 1)).all(axis=1))
        rows = inside[np.argsort(-features.scales[inside], kind="stable")][: PARTS * TILE_KEYPOINTS]
        if len(rows) < 20 * PARTS:
            continue
        # Parts are fields of a checkerboard: what SIFT finds twice at one place, at two scales, stays together.
        field = np.floor(places[rows] * _FIELDS).astype(int).sum(axis=1) % PARTS
        for part in range(PARTS):
            own = rows[field == part][:_MOST_KEYPOINTS]
            sigmas = features.scales[own] * TILE_WIDTH_M / extent
            parts.append(
                (features.descriptors[own], places[own], sigmas, features.orientations[own], _groups(features.descriptors[own]))
            )
    if not parts:
        raise InputError("no photograph has features enough for a tile; give others")
    descriptors, places, sigmas, orientations, groups = (np.concatenate(columns) for columns in zip(*parts, strict=True))
    return Looks(
        normalization=normalization,
        starts=np.cumsum([0, *(len(part[0]) for part in parts)]),
        descriptors=descriptors,
        places=places.astype(np.float32),
        sigmas_m=sigmas.astype(np.float32),
        orientations=orientations.astype(np.float32),
        groups=groups,
    )


def _groups(descriptors: UInt8[np.ndarray, "_ 128"]) -> Int64[np.ndarray, "_"]:
    """The most similar of 64 of these descriptors, which are evenly spread over them."""
    vectors = descriptors.astype(np.float32)
    leaders = vectors[np.linspace(0, len(vectors) - 1, _LEADERS).astype(int)]
    return ((leaders**2).sum(axis=1) - 2 * vectors @ leaders.T).argmin(axis=1)


def tile_keypoints(looks: Looks, seed: int, tile: int) -> TileKeypoints:
    """Keypoints of tile number `tile` of a city: each kind once, in an order by seed, and mixtures of two from then on."""
    generation, place = divmod(tile, looks.kinds)
    order = np.argsort(mixed(seed, 31, np.arange(looks.kinds)))
    first = _version(looks, int(order[place]))
    if generation == 0:
        return first
    second = _version(looks, int(uniform(seed, 32, tile) * looks.kinds))
    partners = (uniform(seed, 33, tile, np.arange(len(first.sigmas_m))) * len(second.sigmas_m)).astype(int)
    partners = np.sort(partners)  # neighbors in scale stay neighbors in scale
    halves = np.where(_RIGHT, second.descriptors[partners], first.descriptors)
    return TileKeypoints(
        places_m=first.places_m,
        sigmas_m=first.sigmas_m,
        orientations=first.orientations,
        descriptors=quantized(halves),
        groups=first.groups,
    )


def _version(looks: Looks, kind: int) -> TileKeypoints:
    """Keypoints of a kind of tile: one part of a photograph as it is, mirrored, as a negative, or both."""
    part, version = divmod(kind, VERSIONS)
    rows = slice(looks.starts[part], looks.starts[part + 1])
    places = looks.places[rows].astype(np.float64) * [TILE_WIDTH_M, TILE_HEIGHT_M]
    orientations = looks.orientations[rows].astype(np.float64)
    if version & 1:
        places[:, 0] = TILE_WIDTH_M - places[:, 0]
        orientations = np.pi - orientations
    if version & 2:
        orientations = orientations + np.pi
    return TileKeypoints(
        places_m=places,
        sigmas_m=looks.sigmas_m[rows].astype(np.float64),
        orientations=orientations,
        descriptors=looks.descriptors[rows][:, _PERMUTATIONS[version]],
        groups=looks.groups[rows],
    )


def quantized(vectors: np.ndarray) -> UInt8[np.ndarray, "rows 128"]:
    """Vectors as COLMAP stores SIFT: not negative, 512 long, rounded, at most 255."""
    positive = np.maximum(vectors, 0).astype(np.float32)
    lengths = np.sqrt(np.einsum("ij,ij->i", positive, positive))
    positive *= (512.0 / np.maximum(lengths, 1e-6))[:, None]
    return np.minimum(np.rint(positive), 255).astype(np.uint8)
