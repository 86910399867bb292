"""Images of a simulated city, as features with their truth, one by one and in any order."""

from __future__ import annotations

import hashlib
import math
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from jaxtyping import Float64, Int64, UInt8, UInt64
from scipy.sparse import csr_array

from veil.extraction.sift import sift_space
from veil.features import Features
from veil.geometry.camera import Camera
from veil.geometry.gravity import Gravity
from veil.geometry.rigid import Rigid
from veil.one_line import in_full
from veil_lab.city.draws import mixed
from veil_lab.city.looks import MIRRORED, Looks, TileKeypoints, tile_keypoints
from veil_lab.city.plan import TEMPLATES, TILE_HEIGHT_M, TILE_WIDTH_M, Facade, block_facades, blocks_near, cell_of, hidden_by
from veil_lab.city.views import ViewStatistics, described, detected, shifted
from veil_lab.city.walks import gravity_reading, pose, walk_of

REACH_M, STEEPEST_DEG, RELIEF_M = 60.0, 72.0, 0.03
_KEPT_BLOCKS, _KEPT_FACADES, _KEPT_TILES = 256, 192, 1024
PHONE = Camera(model="SIMPLE_RADIAL", width_px=1600, height_px=1200, params=(1300.0, 800.0, 600.0, 0.0))


@dataclass(frozen=True, kw_only=True)
class CityOptions:
    """Parameters of a city.

    - `seed`: of everything. `features`: largest number in an image, those of largest scale.
    - `least_sigma_px`: smaller features are not detected. `gravity_sigma_deg`: of a phone's reading, about each axis.
    - `copied_share`: share of facades that are exact copies of one of `templates` facades of their width.
    """

    seed: int = 1
    features: int = 1000
    least_sigma_px: float = 1.8
    gravity_sigma_deg: float = 0.5
    copied_share: float = 0.06
    templates: int = TEMPLATES
    camera: Camera = PHONE


@dataclass(frozen=True, kw_only=True, eq=False)
class CityImage:
    """One image: its features, the phone's gravity, and what is true.

    `landmarks`, int64: the landmark of each feature, -1 for clutter; ids are `facade identity << 16 | number`. `points`,
    float64 (features, 3): their places in the world (NaN for clutter). `seen`: landmarks in view, detected or not, of at least
    half the least scale.
    """

    name: str
    number: int
    features: Features
    gravity: Gravity
    cam_from_world: Rigid
    landmarks: Int64[np.ndarray, "features"]
    points: Float64[np.ndarray, "features 3"]
    seen: Int64[np.ndarray, "_"]


@dataclass(frozen=True, kw_only=True, eq=False)
class Landmarks:
    """Landmarks of a facade: ids, places, scale, look, and the keys of detection and of appearance (by group)."""

    ids: Int64[np.ndarray, "_"]
    points: Float64[np.ndarray, "_ 3"]
    sigmas_m: Float64[np.ndarray, "_"]
    orientations: Float64[np.ndarray, "_"]
    cores: UInt8[np.ndarray, "_ 128"]
    keys: UInt64[np.ndarray, "_"]
    looks: UInt64[np.ndarray, "_"]


@dataclass(eq=False)
class City:
    """A city that is made where it is looked at: image i is a function of options, looks, statistics and i alone.

    Some facades are kept between images, so that images in order come fast; memory does not grow with their number.
    """

    looks: Looks
    statistics: ViewStatistics
    options: CityOptions = field(default_factory=CityOptions)
    _plan: OrderedDict[tuple[int, int], list[Facade]] = field(default_factory=OrderedDict)
    _facades: OrderedDict[int, Landmarks] = field(default_factory=OrderedDict)
    _tiles: OrderedDict[int, TileKeypoints] = field(default_factory=OrderedDict)

    def images(self, count: int, *, first: int = 0) -> Iterator[CityImage]:
        """Images `first` to `first + count - 1`, made as they are asked for."""
        return (self.image(number) for number in range(first, first + count))

    def facades(self, cell: tuple[int, int]) -> list[Facade]:
        """The facades of the block in a grid cell."""
        o = self.options

        def made() -> list[Facade]:
            return block_facades(o.seed, *cell, copied_share=o.copied_share, templates=o.templates)

        return _kept(self._plan, cell, _KEPT_BLOCKS, made)

    def image(self, number: int) -> CityImage:
        """Image `number` of the city."""
        o, camera = self.options, self.options.camera
        cam_from_world = pose(o.seed, number)
        random = np.random.default_rng([o.seed, 61, number])
        cells = blocks_near(cam_from_world.center[:2], REACH_M)
        seen, pixels, angle, sigma, distance = self._in_view(cam_from_world, cells)
        # The unit of distance of the statistics' octaves: that at which a landmark's scale is 4 px.
        octave = np.log2(np.maximum(distance, 0.1) / (camera.focal_px * seen.sigmas_m / 4.0))
        rows = np.flatnonzero(detected(self.statistics, seen.keys, angle, octave, random))
        errors, scales = shifted(self.statistics, sigma[rows], random)
        places = pixels[rows] + errors
        inside = ((places > 1) & (places < [camera.width_px - 1, camera.height_px - 1])).all(axis=1)
        keep = inside & (scales >= o.least_sigma_px)
        rows, places, scales = rows[keep], places[keep], scales[keep]
        room = o.features - round(o.features * self.statistics.clutter)
        largest = np.argsort(-scales, kind="stable")[:room]
        rows, places, scales = rows[largest], places[largest], scales[largest]
        descriptors = described(self.statistics, seen.cores[rows], seen.looks[rows], angle[rows], octave[rows], number)
        share = self.statistics.clutter / (1 - self.statistics.clutter)
        clutter = self._clutter(round(len(rows) * share) if len(rows) >= 20 else 20, random)
        angles = np.concatenate([seen.orientations[rows] + 0.1 * random.normal(size=len(rows)), clutter[3]])
        order = random.permutation(len(angles))
        landmarks = np.concatenate([seen.ids[rows], np.full(len(clutter[0]), -1)])[order]
        points = np.concatenate([seen.points[rows], np.full((len(clutter[0]), 3), np.nan)])[order]
        name = f"walk{walk_of(number)[0]:05d}/{number:06d}.jpg"
        features = Features(
            keypoints=np.concatenate([places, clutter[0]])[order].astype(np.float32),
            descriptors=np.concatenate([descriptors, clutter[1]])[order],
            space=sift_space(self.looks.normalization),
            camera=camera,
            image_digest=hashlib.blake2b(f"city {in_full(o)} {number}".encode(), digest_size=32).digest(),
            scales=np.concatenate([scales, clutter[2]])[order].astype(np.float32),
            orientations=((angles[order] + math.pi) % (2 * math.pi) - math.pi).astype(np.float32),
        )
        down = gravity_reading(o.seed, number, cam_from_world.rotation, o.gravity_sigma_deg)
        return CityImage(
            name=name,
            number=number,
            features=features,
            gravity=Gravity(direction=down, sigma_deg=o.gravity_sigma_deg or None),
            cam_from_world=cam_from_world,
            landmarks=landmarks,
            points=points,
            seen=np.sort(seen.ids),
        )

    def points(self, ids: Int64[np.ndarray, "_"]) -> Float64[np.ndarray, "_ 3"]:
        """Places of landmarks in the world, by id; each must be a landmark of the city."""
        places = np.empty((len(ids), 3))
        for identity in np.unique(ids >> 16):
            (facade,) = (facade for facade in self.facades(cell_of(int(identity))) if facade.identity == identity)
            own, rows = self.on_facade(facade), np.flatnonzero(ids >> 16 == identity)
            places[rows] = own.points[np.searchsorted(own.ids, ids[rows])]
        return places

    def _in_view(
        self, cam_from_world: Rigid, cells: list[tuple[int, int]]
    ) -> tuple[Landmarks, np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """Landmarks in view: pixels, direction (degrees about the vertical), scale in pixels, and distance."""
        camera, center, parts = self.options.camera, cam_from_world.center, []
        for home, facade in [(own_cell, one) for own_cell in cells for one in self.facades(own_cell)]:
            if not _may_be_seen(facade, cam_from_world, camera):
                continue
            own = self.on_facade(facade)
            rays = center - own.points
            distance = np.sqrt(np.einsum("ij,ij->i", rays, rays))
            across, out = rays @ facade.along, rays @ facade.normal
            turn = np.arctan2(across, out)
            # Scale is the square root of area: a slanted view shrinks one side.
            sigma = own.sigmas_m * (camera.focal_px * np.sqrt(np.maximum(np.cos(turn), 0))) / distance
            near = (distance < REACH_M) & (out > math.cos(math.radians(STEEPEST_DEG)) * distance)
            rows = np.flatnonzero(near & (sigma > 0.5 * self.options.least_sigma_px))
            local = cam_from_world.apply(own.points[rows])
            rows, local = rows[local[:, 2] > 0.5], local[local[:, 2] > 0.5]
            pixels = local[:, :2] / local[:, 2:] * camera.focal_px + np.array(camera.params[1:3])
            inside = ((pixels > 0) & (pixels < [camera.width_px, camera.height_px])).all(axis=1)
            rows, pixels = rows[inside], pixels[inside]
            # A landmark set back lies inside of its own block, which its facing side does not hide.
            visible = ~hidden_by(center, own.points[rows], [other for other in cells if other != home])
            rows, pixels = rows[visible], pixels[visible]
            parts.append((own, rows, np.column_stack([pixels, np.degrees(turn[rows]), sigma[rows], distance[rows]])))
        if not parts:  # nothing but sky: no rows of any facade
            parts.append((self.on_facade(self.facades(cells[0])[0]), np.empty(0, dtype=np.int64), np.empty((0, 5))))
        values = np.concatenate([values for _, _, values in parts])
        seen = _joined([_rows(own, rows) for own, rows, _ in parts])
        return seen, values[:, :2], values[:, 2], values[:, 3], values[:, 4]

    def _clutter(self, count: int, random: np.random.Generator) -> tuple[np.ndarray, ...]:
        """Keypoints of no landmark in groups of up to fifty, each of one tile: places, descriptors, scales, directions."""
        size = np.array([self.options.camera.width_px, self.options.camera.height_px])
        columns: list[tuple[np.ndarray, ...]] = []
        while (missing := count - sum(len(column[0]) for column in columns)) > 0:
            tile = self._tile(int(random.integers(self.looks.kinds)))
            rows = random.permutation(len(tile.sigmas_m))[: min(50, missing)]
            middle, spread = random.uniform(0, 1, 2) * size, random.uniform(20, 150)
            places = np.clip(middle + spread * random.normal(size=(len(rows), 2)), 1, size - 1)
            scales = self.options.least_sigma_px * random.pareto(2.0, len(rows)) + self.options.least_sigma_px
            columns.append((places, tile.descriptors[rows], np.minimum(scales, 60.0), tile.orientations[rows]))
        return tuple(np.concatenate(parts) for parts in zip(*columns, strict=True))

    def _tile(self, number: int) -> TileKeypoints:
        return _kept(self._tiles, number, _KEPT_TILES, lambda: tile_keypoints(self.looks, self.options.seed, number))

    def on_facade(self, facade: Facade) -> Landmarks:
        """The landmarks of one facade. Copies have equal cores and appearance keys, tile by tile."""
        return _kept(self._facades, facade.identity, _KEPT_FACADES, lambda: self._made(facade))

    def _made(self, facade: Facade) -> Landmarks:
        floors, columns = facade.tiles.shape
        parts = []
        for place in range(floors * columns):
            floor, column = divmod(place, columns)
            tile = self._tile(int(facade.tiles[floor, column]))
            number = np.arange(len(tile.sigmas_m))
            key = mixed(self.options.seed, 62, facade.content, place, number)
            relief = facade.depths_m[floor, column] + RELIEF_M * np.random.default_rng(
                [self.options.seed, 63, facade.content, place]
            ).normal(size=len(number))
            x = column * TILE_WIDTH_M + tile.places_m[:, 0]
            z = floor * TILE_HEIGHT_M + tile.places_m[:, 1]
            points = facade.corner + x[:, None] * facade.along + z[:, None] * [0.0, 0.0, 1.0] + relief[:, None] * facade.normal
            ids = (facade.identity << 16) + (place << 9) + number
            parts.append(
                Landmarks(
                    ids=ids,
                    points=points,
                    sigmas_m=tile.sigmas_m,
                    orientations=tile.orientations,
                    cores=tile.descriptors,
                    keys=key,
                    looks=mixed(self.options.seed, 64, facade.content, place, tile.groups),
                )
            )
        return _joined(parts)


def _may_be_seen(facade: Facade, cam_from_world: Rigid, camera: Camera) -> bool:
    """Whether a camera is in front of a facade, and the facade not wholly beyond one side of the picture."""
    if (cam_from_world.center - facade.corner) @ facade.normal <= 0:
        return False
    base, height = np.stack([facade.corner, facade.corner + facade.along * facade.width_m]), [0.0, 0.0, facade.height_m]
    # One meter more on all sides, for what stands out of the plane.
    x, y, z = cam_from_world.apply(np.concatenate([base, base + height])).T
    beyond_x, beyond_y = (z * side / 2 / camera.focal_px + 1.5 for side in (camera.width_px, camera.height_px))
    sides = (z + 1.0, beyond_x - x, beyond_x + x, beyond_y - y, beyond_y + y)
    return all((side > 0).any() for side in sides)


def _rows(landmarks: Landmarks, rows: np.ndarray) -> Landmarks:
    return Landmarks(**{name: getattr(landmarks, name)[rows] for name in Landmarks.__dataclass_fields__})


def _joined(parts: Sequence[Landmarks]) -> Landmarks:
    return Landmarks(**{n: np.concatenate([getattr(part, n) for part in parts]) for n in Landmarks.__dataclass_fields__})


def _kept(cache: OrderedDict, key: Hashable, most: int, make: Callable[[], Any]) -> Any:
    """Result of `make` for a key, from the cache if it is there; the cache forgets what was not used for longest."""
    if key not in cache:
        cache[key] = make()
        if len(cache) > most:
            cache.popitem(last=False)
    cache.move_to_end(key)
    return cache[key]


def mirrored(image: CityImage) -> CityImage:
    """The image as a mirror shows it: no place in any city looks like that. Gravity turns with it; no landmark is true."""
    features, width = image.features, image.features.camera.width_px
    assert features.orientations is not None
    flipped = replace(
        features,
        keypoints=np.column_stack([width - features.keypoints[:, 0], features.keypoints[:, 1]]).astype(np.float32),
        descriptors=np.ascontiguousarray(features.descriptors[:, MIRRORED]),
        orientations=(np.float32(math.pi) - features.orientations).astype(np.float32),
        image_digest=hashlib.blake2b(b"mirrored" + features.image_digest, digest_size=32).digest(),
    )
    return replace(
        image,
        name=f"mirrored/{image.name}",
        features=flipped,
        gravity=replace(image.gravity, direction=image.gravity.direction * [-1.0, 1.0, 1.0]),
        landmarks=np.full_like(image.landmarks, -1),
        points=np.full_like(image.points, np.nan),
        seen=image.seen[:0],
    )


def shared_landmarks(landmarks: Sequence[Int64[np.ndarray, "_"]]) -> csr_array:
    """How many landmarks each two images have features of, int32 (images, images) without the diagonal; -1 is no landmark."""
    owner = np.repeat(np.arange(len(landmarks)), [len(ids) for ids in landmarks])
    ids = np.concatenate(landmarks)
    real = ids >= 0
    unique, column = np.unique(ids[real], return_inverse=True)
    has = csr_array((np.ones(real.sum(), dtype=np.int32), (owner[real], column)), shape=(len(landmarks), len(unique)))
    has.data[:] = 1
    shared = (has @ has.T).tocsr()
    shared.setdiag(0)
    shared.eliminate_zeros()
    return shared
