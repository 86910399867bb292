"""A public map cut into tiles of equal size, each enough to localize in by itself (docs/theory/tiles.md#cutting).

A tile holds aspects of points: the mean descriptor of views that look alike, and from where they see the point.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TypedDict

import numpy as np
from jaxtyping import Float32, Float64, Int64, UInt8

from veil.codebooks.compression import fit_pca
from veil.errors import InputError, RangeError
from veil.forms import Points
from veil.geometry.georeference import Georeference
from veil.one_line import one_line
from veil.progress import Progress, ignore_progress
from veil.scene import Scene, views_of
from veil.tiles import merkle
from veil.tiles.cells import Cell, halved
from veil.tiles.coding import TileCoding, fitted_scales, octahedral
from veil.tiles.manifest import MOST_TILE_BYTES, Manifest, most_manifest_bytes, record_bytes
from veil.tiles.sketches import sketched, usual_words
from veil.tiles.tile_format import BITS, HEADER, PLACE_BITS, Tile, encode_tile, point_bytes

# A point whose two most different views are less alike than this cosine gets two aspects: a mean of both would be like neither.
ALIKE = 0.85


@dataclass(frozen=True, kw_only=True, eq=False)
class Aspects:
    """Aspects of points, sorted by point: those of point p are rows `starts[p]` to `starts[p + 1]`.

    - `descriptors`, float32 (aspects, dim): means of the views' descriptors, of unit length.
    - `direction`: unit vectors from the point to the cameras, on average.
    - `pixels`, `frames`: geometric means of the size of a unit of the map there, in pixels and in diagonals of the picture.
    """

    starts: Int64[np.ndarray, "_"]
    descriptors: Float32[np.ndarray, "aspects dim"]
    direction: Float64[np.ndarray, "aspects 3"]
    pixels: Float64[np.ndarray, "aspects"]
    frames: Float64[np.ndarray, "aspects"]

    def rows_of(self, points: Int64[np.ndarray, "points"]) -> Int64[np.ndarray, "_"]:
        """Rows of the aspects of some points, point after point."""
        counts = self.starts[points + 1] - self.starts[points]
        first = np.repeat(self.starts[points] - (np.cumsum(counts) - counts), counts)
        return first + np.arange(int(counts.sum()))


def aspects(scene: Scene, most: int) -> Aspects:
    """The aspects of all points of a public map, at most `most` (1 or 2) of each."""
    rows, descriptors = _observed(scene)
    views = views_of(scene)
    descriptors = descriptors[np.argsort(rows, kind="stable")]
    second = _second(descriptors, views.starts) if most > 1 else np.zeros(len(descriptors), dtype=np.int64)
    point = np.repeat(np.arange(len(scene.points)), np.diff(views.starts))
    keys, group = np.unique(2 * point + second, return_inverse=True)
    group = group.reshape(-1)

    def mean(values: np.ndarray) -> np.ndarray:
        """Means of the rows of each group."""
        order = np.argsort(group, kind="stable")
        starts = np.searchsorted(group[order], np.arange(len(keys)))
        total = np.add.reduceat(values[order].astype(np.float64), starts, axis=0)
        return total / np.bincount(group)[(..., *([None] * (values.ndim - 1)))]

    return Aspects(
        starts=np.searchsorted(keys // 2, np.arange(len(scene.points) + 1)).astype(np.int64),
        descriptors=_unit(mean(descriptors)).astype(np.float32),
        direction=_unit(mean(views.direction)),
        pixels=np.exp(mean(np.log(views.pixels))),
        frames=np.exp(mean(np.log(views.frames))),
    )


def _observed(scene: Scene) -> tuple[Int64[np.ndarray, "_"], Float32[np.ndarray, "_ dim"]]:
    """Row of the point and descriptor of each observation, image after image as `Scene.views` takes them."""
    images = list(scene.images.values())
    forms = [image.form for image in images]
    vectors = [form.vectors for form in forms if isinstance(form, Points)]
    return np.concatenate([image.point_rows for image in images]), np.concatenate(vectors)


def _second(descriptors: Float32[np.ndarray, "observations dim"], starts: Int64[np.ndarray, "_"]) -> Int64[np.ndarray, "_"]:
    """1 for each observation, sorted by point, that belongs to its point's second aspect, else 0."""
    second = np.zeros(len(descriptors), dtype=np.int64)
    for start, end in _several(starts):
        alike = descriptors[start:end] @ descriptors[start:end].T
        one, other = divmod(int(np.argmin(alike)), end - start)
        if alike[one, other] < ALIKE:
            second[start:end] = alike[one] < alike[other]
    return second


def _several(starts: Int64[np.ndarray, "_"]) -> Sequence[tuple[int, int]]:
    """First and last row of each point with several observations."""
    return [(start, end) for start, end in zip(starts.tolist(), starts[1:].tolist(), strict=False) if end - start > 1]


def _unit(vectors: Float64[np.ndarray, "rows dim"]) -> Float64[np.ndarray, "rows dim"]:
    return vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-12)


# Largest number of descriptors by which principal axes and scales are computed, and losses measured.
SAMPLE = 100_000


@dataclass(frozen=True, kw_only=True)
class CutOptions:
    """How a map is cut.

    - `tile_bytes`: size of every tile, without its proof.
    - `points`: most points in a tile, or None: as many as fit.
    - `axes`, `bits`: principal axes of the descriptors, and bits along each (4 or 8).
    - `aspects`: descriptors of a point whose views differ much, at most: 1 or 2.
    - `overlap`: share of its own number of cameras that a cell takes from around it.
    - `angle`: step of the points' places, as an angle (radians) at their median distance from the cameras.
    - `asked`: number of tiles that a localization asks for.
    - `words`: of the sketches, or None: 64 a tile, at least 1,024 and at most 4,096.
    - `download`: most bytes of the manifest and all tiles together, for devices that keep the whole map; points that fewest
      cameras see are left out until it fits. None: all points are kept for which tiles have room.
    - `seed`: of the sample and of the words.

    Raises RangeError for values that no tile can have.
    """

    tile_bytes: int = 256 << 10
    points: int | None = None
    axes: int = 64
    bits: int = 8
    aspects: int = 2
    overlap: float = 0.15
    angle: float = 1e-4
    asked: int = 4
    words: int | None = None
    download: int | None = None
    seed: int = 0

    __repr__ = one_line

    def __post_init__(self) -> None:
        if self.bits not in BITS or not 2 <= self.axes < 4096 or self.axes * self.bits % 8:
            raise RangeError(f"descriptors take 4 or 8 bits along an even number of axes, got {self.bits!r} and {self.axes!r}")
        if self.aspects not in (1, 2) or not self.asked >= 1 or (self.words is not None and not self.words >= 2):
            raise RangeError("a point has 1 or 2 aspects, a localization asks for a tile or more, a sketch has 2 words or more")
        if not 0 <= self.overlap <= 1 or not 1e-7 <= self.angle <= 1e-2:
            raise RangeError(f"overlap must lie in 0..1 and angle in 1e-7..1e-2, got {self.overlap!r} and {self.angle!r}")
        if self.points is not None and not self.points >= 1:
            raise RangeError(f"a tile has at least one point, got {self.points!r}")
        least = HEADER.size + point_bytes(self.axes, self.bits, self.aspects)
        if not least <= self.tile_bytes <= MOST_TILE_BYTES:
            raise RangeError(f"a tile takes {least} to {MOST_TILE_BYTES} bytes, got {self.tile_bytes!r}")
        if self.download is not None and not self.download > self.tile_bytes:
            raise RangeError(f"tiles of {self.tile_bytes} bytes do not fit into {self.download!r} bytes; make smaller ones")


class CutReportJson(TypedDict):
    """Losses of a map that was cut."""

    map_points: int
    kept_points: int
    placed: int
    crowded_out: int
    too_far: int
    crowded_tiles: int
    filled: float
    aspects: float
    variance_kept: float


@dataclass(frozen=True, kw_only=True)
class CutReport:
    """Losses of a map that was cut.

    - `tiles`, `record_bytes`: number of tiles, and bytes of each with its proof.
    - `map_points`, `kept_points`: of the map, and those that are in one tile or more.
    - `placed`, `crowded_out`, `too_far`: points counted once for each tile: kept; left out because the tile was full; left out
      because they are too far away for places in steps.
    - `crowded_tiles`: tiles that were full.
    - `filled`: share of the tiles' bytes that is no filling.
    - `aspects`: descriptors a point, on average.
    - `variance_kept`: share of the descriptors' variance that compression and levels keep.
    """

    tiles: int
    record_bytes: int
    map_points: int
    kept_points: int
    placed: int
    crowded_out: int
    too_far: int
    crowded_tiles: int
    filled: float
    aspects: float
    variance_kept: float

    __repr__ = one_line

    def as_json(self) -> CutReportJson:
        """The stable record of docs/reference/json.md."""
        return {
            "map_points": self.map_points,
            "kept_points": self.kept_points,
            "placed": self.placed,
            "crowded_out": self.crowded_out,
            "too_far": self.too_far,
            "crowded_tiles": self.crowded_tiles,
            "filled": self.filled,
            "aspects": self.aspects,
            "variance_kept": self.variance_kept,
        }


@dataclass(frozen=True, kw_only=True, eq=False)
class CutMap:
    """A map's tiles: the `manifest`, `records` (each a tile with its proof), and a `report` of what was left out."""

    manifest: Manifest
    records: UInt8[np.ndarray, "tiles size"]
    report: CutReport

    __repr__ = one_line


@dataclass(frozen=True, kw_only=True, eq=False)
class _Piece:
    """Points of a cell's tile: rows, those that found no room, and those that are too far away."""

    origin: Int64[np.ndarray, "3"]
    points: Int64[np.ndarray, "_"]
    crowded_out: Int64[np.ndarray, "_"]
    too_far: Int64[np.ndarray, "_"]


def cut(
    scene: Scene, options: CutOptions | None = None, *, place: Georeference | None = None, progress: Progress | None = None
) -> CutMap:
    """Cut a public map into tiles.

    - `scene`: a map of raw descriptors.
    - `options`: sizes and precision.
    - `place`: where on Earth the map is, which the manifest then says.
    - `progress`: called with the number of tiles made and of all.

    Raises InputError for a map of private forms, for one with too few descriptors for the axes, and where `download` leaves the
    cameras fewer than `LEAST_SHOWN` points each.
    """
    options, progress = options or CutOptions(), progress or ignore_progress
    if not scene.is_public:
        raise InputError("tiles are cut from a map of raw descriptors; build one from features, if the place may be public")
    views = aspects(scene, options.aspects)
    step = options.angle * _median_distance(scene)
    room = _Room(scene, views, options)
    if options.download is not None:
        room = room.within(options.download)
    steps = np.rint(scene.points / step)
    pieces = [room.piece(cell, steps) for cell in room.cells]
    coding = _coding(scene, views, pieces, step, options)
    tiles = []
    for index, piece in enumerate(pieces):
        tile = _tile(index, piece, steps, views, coding)
        tiles.append((tile, encode_tile(tile, bits=options.bits, size=options.tile_bytes)))
        progress(index + 1, len(pieces))
    tree = merkle.levels([merkle.leaf_hash(data) for _, data in tiles])
    records = [data + merkle.proof(tree, index) for index, (_, data) in enumerate(tiles)]
    sketches = sketched([tile.descriptors for tile, _ in tiles], coding.scales, words=options.words, seed=options.seed)
    manifest = Manifest(
        coding=coding,
        low=np.array([cell.low for cell in room.cells]),
        high=np.array([cell.high for cell in room.cells]),
        sketches=sketches,
        tile_bytes=options.tile_bytes,
        asked=min(options.asked, len(pieces)),
        root=tree[-1][0],
        place=place,
    )
    made = np.frombuffer(b"".join(records), dtype=np.uint8).reshape(len(records), -1)
    return CutMap(manifest=manifest, records=made, report=_report(scene, pieces, views, coding, options, made))


# A photograph is found by some tens of matches, and a query matches a part of what a camera shows: with fewer points a camera
# than this a map is of no use.
LEAST_SHOWN = 100


class _Room:
    """Which points of a cell's cameras a tile has room for. `seen` has the points that each camera shows, by default all."""

    def __init__(
        self, scene: Scene, views: Aspects, options: CutOptions, seen: Sequence[Int64[np.ndarray, "_"]] | None = None
    ) -> None:
        self._scene, self._views, self.options = scene, views, options
        self.centers = np.array([image.cam_from_world.center for image in scene.images.values()])
        self._seen = [np.unique(image.point_rows) for image in scene.images.values()] if seen is None else seen
        counts = np.diff(views.starts)
        self._bytes = counts * point_bytes(options.axes, options.bits) - (counts - 1) * point_bytes(
            options.axes, options.bits, 0
        )

    def within(self, download: int) -> _Room:
        """The same with as many points of each camera as `download` bytes of tiles and manifest hold."""
        turn, _ = self._worth(np.arange(len(self._scene.points)), np.arange(len(self._seen)))
        most = max(len(rows) for rows in self._seen)

        def showing(count: int) -> _Room:
            return _Room(self._scene, self._views, self.options, [rows[turn[rows] < count] for rows in self._seen])

        shown = bisect_right(range(1, most + 1), download, key=lambda count: showing(count).most_bytes)
        if shown < min(LEAST_SHOWN, most):
            raise InputError(
                f"in {download} bytes a camera of this map would show {shown} points, and {LEAST_SHOWN} are needed to find a "
                f"photograph; {showing(min(LEAST_SHOWN, most)).most_bytes} bytes hold as many"
            )
        return showing(shown)

    @property
    def most_bytes(self) -> int:
        """Largest size of the manifest and all tiles together."""
        options, tiles = self.options, len(self.cells)
        words, dim = options.words or usual_words(tiles), self._scene.space.dim
        manifest = most_manifest_bytes(tiles, dim=dim, axes=options.axes, words=words)
        return manifest + tiles * record_bytes(options.tile_bytes, tiles)

    @cached_property
    def cells(self) -> list[Cell]:
        """The cells of the map, each a tile."""
        return halved(self.centers, self.fits, overlap=self.options.overlap)

    def fits(self, cameras: Int64[np.ndarray, "_"]) -> bool:
        """Whether a tile has room for all points of some cameras."""
        return len(self._kept(self._union(cameras))) == len(self._union(cameras))

    def piece(self, cell: Cell, steps: Float64[np.ndarray, "points 3"]) -> _Piece:
        """The points of a cell's tile, sorted."""
        points = self._union(cell.cameras)
        middle = np.median(steps[points], axis=0)
        origin = np.clip(middle, -(1 << 51), 1 << 51).astype(np.int64) - (1 << (PLACE_BITS - 1))
        near = ((steps[points] >= origin) & (steps[points] < origin + (1 << PLACE_BITS))).all(axis=1)
        ordered = self._by_worth(points[near], cell)
        kept = self._kept(ordered)
        return _Piece(origin=origin, points=np.sort(kept), crowded_out=np.setdiff1d(ordered, kept), too_far=points[~near])

    def _union(self, cameras: Int64[np.ndarray, "_"]) -> Int64[np.ndarray, "_"]:
        return np.unique(np.concatenate([self._seen[camera] for camera in cameras]))

    def _kept(self, ordered: Int64[np.ndarray, "_"]) -> Int64[np.ndarray, "_"]:
        """The first points, as many as there is room for."""
        room = self.options.tile_bytes - HEADER.size
        count = int(np.searchsorted(np.cumsum(self._bytes[ordered]), room, side="right"))
        return ordered[: min(count, self.options.points or count)]

    def _by_worth(self, points: Int64[np.ndarray, "points"], cell: Cell) -> Int64[np.ndarray, "_"]:
        """Points in the order in which they are kept: each camera in turn takes that one of its own that most cameras see."""
        turn, times = self._worth(points, cell.cameras)
        return points[np.lexsort((points, -times[points], turn[points]))]

    def _worth(
        self, points: Int64[np.ndarray, "_"], cameras: Int64[np.ndarray, "_"]
    ) -> tuple[Int64[np.ndarray, "_"], Int64[np.ndarray, "_"]]:
        """The first turn in which one of some cameras takes a point of the map, and how many of them see it."""
        seen = [self._seen[camera] for camera in cameras]
        times = np.bincount(np.concatenate(seen), minlength=int(points.max(initial=0)) + 1)
        turn, wanted = np.full(len(times), np.iinfo(np.int64).max), np.zeros(len(times), dtype=bool)
        wanted[points] = True
        for rows in seen:
            own = rows[rows < len(wanted)]
            own = own[wanted[own]]
            own = own[np.lexsort((own, -times[own]))]
            turn[own] = np.minimum(turn[own], np.arange(len(own)))
        return turn, times


def _median_distance(scene: Scene) -> float:
    """Median distance between a camera and a point that it sees, in units of the map."""
    distances = [
        np.linalg.norm(scene.points[image.point_rows] - image.cam_from_world.center, axis=1) for image in scene.images.values()
    ]
    median = float(np.median(np.concatenate(distances)))
    if not median > 0:
        raise InputError("the map's points lie in its cameras; it cannot be cut")
    return median


def _coding(scene: Scene, views: Aspects, pieces: list[_Piece], step: float, options: CutOptions) -> TileCoding:
    """Meaning of the tiles' numbers, from the descriptors that are kept."""
    kept = np.unique(np.concatenate([piece.points for piece in pieces]))
    rows = views.rows_of(kept)
    sample = views.descriptors[_sampled(rows, options.seed)].astype(np.float64)
    pca = fit_pca(sample, options.axes)
    return TileCoding(
        raw_space=scene.space,
        pca=pca,
        scales=fitted_scales(pca, sample, options.bits),
        bits=options.bits,
        step=step,
        least_pixels=float(views.pixels.min()),
        least_frames=float(views.frames.min()),
    )


def _sampled(rows: Int64[np.ndarray, "_"], seed: int) -> Int64[np.ndarray, "_"]:
    """At most SAMPLE of the rows, drawn evenly."""
    return rows if len(rows) <= SAMPLE else np.sort(np.random.default_rng(seed).choice(rows, SAMPLE, replace=False))


def _tile(index: int, piece: _Piece, steps: Float64[np.ndarray, "points 3"], views: Aspects, coding: TileCoding) -> Tile:
    rows = views.rows_of(piece.points)
    return Tile(
        index=index,
        origin=piece.origin,
        places=(steps[piece.points].astype(np.int64) - piece.origin).astype(np.uint32),
        counts=np.diff(views.starts)[piece.points].astype(np.uint8),
        directions=octahedral(views.direction[rows]),
        sizes=coding.sizes(views.pixels[rows], views.frames[rows]),
        descriptors=coding.levels(views.descriptors[rows].astype(np.float64)),
    )


def _report(
    scene: Scene, pieces: list[_Piece], views: Aspects, coding: TileCoding, options: CutOptions, records: np.ndarray
) -> CutReport:
    placed = np.concatenate([piece.points for piece in pieces])
    rows = views.rows_of(placed)
    exact = views.descriptors[_sampled(rows, options.seed)].astype(np.float64)
    back = coding.restored(coding.vectors(coding.levels(exact)))
    lost = float(((exact - back) ** 2).sum() / max(((exact - exact.mean(axis=0)) ** 2).sum(), 1e-12))
    used = sum(HEADER.size + len(piece.points) * point_bytes(options.axes, options.bits, 0) for piece in pieces)
    used += len(rows) * (point_bytes(options.axes, options.bits) - point_bytes(options.axes, options.bits, 0))
    return CutReport(
        tiles=records.shape[0],
        record_bytes=records.shape[1],
        map_points=len(scene.points),
        kept_points=len(np.unique(placed)),
        placed=len(placed),
        crowded_out=sum(len(piece.crowded_out) for piece in pieces),
        too_far=sum(len(piece.too_far) for piece in pieces),
        crowded_tiles=sum(len(piece.crowded_out) > 0 for piece in pieces),
        filled=used / (len(pieces) * options.tile_bytes),
        aspects=len(rows) / max(len(placed), 1),
        variance_kept=1 - lost,
    )
