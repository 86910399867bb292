"""Tiles of a map: cutting, and the plan of a server for private fetches, measured on this machine for some seconds."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np

from veil.errors import InputError
from veil.files.maps.format import read_map
from veil.files.tiles import holds_tiles, read_manifest, write_tiles
from veil.geometry.georeference import Georeference
from veil.one_line import one_line
from veil.pir import hintless, one_server, public_matrix, two_servers
from veil.pir.hintless_layout import HintlessLayout
from veil.pir.layout import Layout
from veil.pir.packing import packed
from veil.pir.ring import DEGREE
from veil.progress import Progress
from veil.tiles.cutting import CutOptions, CutReport, cut
from veil.tiles.manifest import encode_manifest
from veil.tiles.plans import ExitPlan, ServerCosts, TileNumbers, hintless_tiles, one_server_layout, plan_exits

# Bytes of records that together do not fit into a processor's caches, and take little time.
SAMPLE_BYTES = 64 << 20
# The hint takes more than a thousand times the work of a query.
HINT_BYTES = 4 << 20

# Columns of a matrix of 2,048 rows, 32 MiB, whose products do not fit into a processor's caches.
PACKED_COLUMNS = 16_384


def cut_map(
    source: Path | str,
    target: Path | str,
    options: CutOptions | None = None,
    *,
    place: Georeference | None = None,
    progress: Progress | None = None,
) -> CutReport:
    """Cut the map in a folder into tiles and write them to a new folder, at once or not at all (docs/theory/tiles.md#cutting).

    Whoever gets the tiles holds the map: they are raw descriptors, compressed but readable, and can be inverted into pictures.

    - `source`: a folder that `Map.write` or `veil map` wrote, of raw descriptors.
    - `target`: a new folder.
    - `options`: sizes and precision.
    - `place`: where on Earth the map is; the manifest then says it.
    - `progress`: called with the number of tiles made and of all.

    Raises FileFormatError for a damaged map, InputError for a map of private forms, and if the new folder holds something.
    """
    made = cut(read_map(Path(source)), options, place=place, progress=progress)
    write_tiles(Path(target), made)
    return made.report


@dataclass(frozen=True, kw_only=True)
class TilePlan:
    """Plan of private fetching of a map's tiles.

    - `tiles`, `asked`: number of tiles, and of those that each localization asks for.
    - `record_bytes`, `manifest_bytes`: of a tile with its proof, and of the manifest.
    - `localizations`: of one device, with one version of the map.
    - `exits`: the cost of each way to fetch.
    """

    tiles: int
    asked: int
    record_bytes: int
    manifest_bytes: int
    localizations: int
    exits: Sequence[ExitPlan]

    __repr__ = one_line


def plan_tiles(
    folder: Path | str,
    localizations: int,
    *,
    options: CutOptions | None = None,
    mbit_s: float = 20.0,
    seconds: float = 2.0,
) -> TilePlan:
    """Plan private fetching of a map's tiles: bytes and seconds of each exit (docs/theory/tiles.md#fetching).

    - `folder`: tiles that `cut_map` wrote, or a map of raw features, which is cut in memory.
    - `localizations`: of one device, with one version of the map.
    - `options`: how a map is cut; None for tiles, and for a map those of `CutOptions`.
    - `mbit_s`: speed of the device's link, in 10^6 bits a second.
    - `seconds`: of each measurement of a server's work on this machine.

    Raises InputError for options with tiles that are cut already and what `cut_map` raises.
    """
    folder = Path(folder)
    if not holds_tiles(folder):
        manifest = cut(read_map(folder), options).manifest
    elif options is not None:
        raise InputError("these tiles are cut already; leave the options out, or give the map")
    else:
        manifest = read_manifest(folder)
    text, binary, _ = encode_manifest(manifest)
    numbers = TileNumbers(
        tiles=len(manifest),
        record_bytes=manifest.record_bytes,
        manifest_bytes=len(text) + len(binary),
        asked=manifest.asked,
    )
    costs = measured_server_costs(numbers, localizations, seconds=seconds)
    exits = plan_exits(numbers, costs, localizations=localizations, mbit_s=mbit_s)
    return TilePlan(**vars(numbers), localizations=localizations, exits=exits)


def measured_server_costs(numbers: TileNumbers, localizations: int, *, seconds: float = 3.0, seed: int = 0) -> ServerCosts:
    """Seconds of one core a byte of the records, measured with queries as a localization sends them.

    - `numbers`: of the map's tiles; random records of their size take their place.
    - `localizations`: of one device, from which the layout of the one-server exit follows.
    - `seconds`: for each of the six measurements, about.
    """
    random = np.random.default_rng(seed)
    layout = one_server_layout(numbers, localizations)
    count = min(numbers.tiles, max(1, SAMPLE_BYTES // numbers.record_bytes))
    records = random.integers(0, 256, (count, numbers.record_bytes), dtype=np.uint8)
    wanted = [index % count for index in range(numbers.asked)]
    to_one = [two_servers.queries(index, count)[0] for index in wanted]
    xor_s = _seconds(lambda: two_servers.answers(records, to_one), seconds) / (records.size * len(wanted))
    of_packing = {} if hintless_tiles(numbers) is None else _packing_costs(seconds)
    if layout is None:
        return ServerCosts(xor_s=xor_s, product_s=0.0, hint_s=0.0, **of_packing)
    parts = Layout(records=count, size=numbers.record_bytes, parts=min(layout.parts, numbers.record_bytes))
    matrix = one_server.arranged(records, parts)
    messages = [random.bytes(parts.query_bytes) for _ in range(numbers.asked * parts.parts)]
    product_s = _seconds(lambda: one_server.answers(matrix, messages), seconds) / (records.size * len(messages))
    few = records[: max(1, HINT_BYTES // numbers.record_bytes)]
    small = one_server.arranged(few, Layout(records=len(few), size=numbers.record_bytes, parts=parts.parts))
    hint_s = _seconds(lambda: one_server.hint(small, public_matrix.new_seed()), seconds) / few.size
    return ServerCosts(xor_s=xor_s, product_s=product_s, hint_s=hint_s, **of_packing)


def _packing_costs(seconds: float) -> dict[str, float]:
    """Costs of the hintless exit, measured with one polynomial of rows and a few blocks of columns."""
    rows, seed = DEGREE, public_matrix.new_seed()
    few, many = (HintlessLayout(records=count, size=rows) for count in (1, PACKED_COLUMNS))
    sizes = [each.records * each.size for each in (few, many)]
    matrices = [hintless.arranged_rows(np.full((each.records, rows), 77, dtype=np.uint8), each) for each in (few, many)]
    collapse_s, whole_s = (
        _seconds(partial(hintless.prepared, matrix, each, seed), seconds / 2)
        for matrix, each in zip(matrices, (few, many), strict=True)
    )
    made = hintless.prepared(matrices[0], few, seed)
    vector = np.full((1, many.columns), 12345, dtype=np.uint32)
    keys = np.full((1, few.key_bytes // (4 * DEGREE), DEGREE), 12345, dtype=np.uint32)
    products = hintless.exact_products(matrices[1], vector)
    return {
        "exact_s": _seconds(lambda: hintless.exact_products(matrices[1], vector), seconds) / sizes[1],
        "packing_s": _seconds(lambda: packed(products, keys, made), seconds),
        "transform_s": max(0.0, whole_s - collapse_s) / (sizes[1] - sizes[0]),
        "collapse_s": collapse_s,
    }


def _seconds(work: Callable[[], object], least: float) -> float:
    """The least time that some work takes, repeated for `least` seconds after a first time, which may compile it."""
    work()
    times: list[float] = []
    while not times or sum(times) < least:
        start = time.perf_counter()
        work()
        times.append(time.perf_counter() - start)
    return min(times)
