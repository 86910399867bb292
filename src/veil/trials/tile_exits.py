"""A photograph localized in tiles by each exit, with servers in memory: what travels, and who computes for how long."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TypedDict, get_args

import numpy as np
from jaxtyping import UInt8

from veil.errors import RangeError
from veil.features import Features
from veil.geometry.rigid import Rigid
from veil.ldp.guarantee import FetchGuarantee
from veil.pir import hintless, one_server, public_matrix, two_servers
from veil.pir.hintless_layout import HintlessLayout, hintless_layout
from veil.pir.layout import Layout, best_layout
from veil.places.poses.answer import Localization, NoPose
from veil.places.poses.options import LocalizeOptions
from veil.progress import Progress, ignore_progress
from veil.scene import Scene
from veil.tiles.cutting import CutMap, CutOptions, cut
from veil.tiles.device import localize_in_tiles, wanted_tiles
from veil.tiles.exits import Exit, Hintless, OneServer, Region, TwoServers
from veil.tiles.fetching import Fetcher
from veil.tiles.manifest import encode_manifest
from veil.tiles.plans import ExitName
from veil.trials.held_out import Query, Status, reference_errors

# A device is taken to localize so often with one version of the map: the one-server exit's layout follows from it.
LOCALIZATIONS = 100


@dataclass(kw_only=True, eq=False)
class MemoryServer:
    """A server that answers queries for records in this process; it counts bytes both ways, and its seconds."""

    answer: Callable[[Sequence[bytes]], Sequence[bytes]]
    up_bytes: int = field(default=0, init=False)
    down_bytes: int = field(default=0, init=False)
    seconds: float = field(default=0.0, init=False)

    def __call__(self, messages: Sequence[bytes]) -> Sequence[bytes]:
        """The answers to some messages: a `veil.tiles.exits.Transport`."""
        start = time.perf_counter()
        answers = list(self.answer(messages))
        self.seconds += time.perf_counter() - start
        self.up_bytes += sum(map(len, messages))
        self.down_bytes += sum(map(len, answers))
        return answers


@dataclass(frozen=True, kw_only=True, eq=False)
class ServedExit:
    """An exit with its servers.

    - `once_bytes`: what a device downloads once beside the manifest: all records, or the hint.
    - `prepare_s`: seconds that the server takes once a version.
    """

    name: ExitName
    exit: Exit
    servers: tuple[MemoryServer, ...]
    once_bytes: int
    prepare_s: float


@dataclass(frozen=True, kw_only=True, eq=False)
class ExitAnswer:
    """The answer to one photograph by one exit, and its cost.

    - `pose`: the pose, or why there is none; it is known to the device alone.
    - `once_bytes`: downloaded once, with the manifest. `up_bytes`, `down_bytes`: of this localization, all servers together.
    - `device_s`, `server_s`: seconds of the device (choosing, asking, decoding, matching, pose) and of all servers together.
    - `prepare_s`: of the server, once a version.
    - `guarantee`: what the fetch promises.
    """

    exit: ExitName
    pose: Localization | NoPose
    once_bytes: int
    up_bytes: int
    down_bytes: int
    device_s: float
    server_s: float
    prepare_s: float
    guarantee: FetchGuarantee


class ExitOutcomeJson(TypedDict):
    """One photograph by one exit."""

    name: str
    exit: ExitName
    status: Status
    position_error: float | None
    rotation_error_deg: float | None
    inliers: int
    once_bytes: int
    up_bytes: int
    down_bytes: int
    device_seconds: float
    server_seconds: float
    prepare_seconds: float


@dataclass(frozen=True, kw_only=True, eq=False)
class ExitOutcome:
    """One photograph by one exit, with its errors: in units of the reference and in degrees, None without pose or reference."""

    query: Query
    answer: ExitAnswer
    position_error: float | None
    rotation_error_deg: float | None

    def as_json(self) -> ExitOutcomeJson:
        """The stable record of docs/reference/json.md."""
        answer = self.answer
        return {
            "name": self.query.name,
            "exit": answer.exit,
            "status": "localized" if isinstance(answer.pose, Localization) else "no pose",
            "position_error": None if self.position_error == math.inf else self.position_error,
            "rotation_error_deg": self.rotation_error_deg,
            "inliers": answer.pose.inliers,
            "once_bytes": answer.once_bytes,
            "up_bytes": answer.up_bytes,
            "down_bytes": answer.down_bytes,
            "device_seconds": answer.device_s,
            "server_seconds": answer.server_s,
            "prepare_seconds": answer.prepare_s,
        }


class ExitStudyJson(TypedDict):
    """Photographs localized in tiles by each exit."""

    tiles: int
    tile_bytes: int
    asked: int
    queries: list[ExitOutcomeJson]
    strangers: list[ExitOutcomeJson]


@dataclass(frozen=True, kw_only=True, eq=False)
class ExitStudy:
    """Photographs of a map's place and of another one (`strangers`), each localized in the map's tiles by each exit."""

    made: CutMap
    queries: tuple[ExitOutcome, ...]
    strangers: tuple[ExitOutcome, ...]

    def as_json(self) -> ExitStudyJson:
        """The stable record of docs/reference/json.md."""
        return {
            "tiles": len(self.made.manifest),
            "tile_bytes": self.made.manifest.tile_bytes,
            "asked": self.made.manifest.asked,
            "queries": [outcome.as_json() for outcome in self.queries],
            "strangers": [outcome.as_json() for outcome in self.strangers],
        }


def exit_study(
    scene: Scene,
    queries: Sequence[Query],
    references: Mapping[str, Rigid],
    options: CutOptions,
    *,
    progress: Progress | None = None,
) -> ExitStudy:
    """Cut a public map and localize photographs in its tiles by each exit.

    - `queries`: those without a reference pose are of another place.
    - `references`: true poses (cam_from_world) of the map's images, by name.
    - `progress`: called with the number of photographs done and of all, one for each exit.
    """
    made = cut(scene, options)
    outcomes: list[ExitOutcome] = []
    for served in served_exits(made):
        by_exit(queries[0].features, made, served)  # what is compiled or loaded at the first use is not timed
        for query in queries:
            (progress or ignore_progress)(len(outcomes), len(get_args(ExitName)) * len(queries))
            answer = by_exit(query.features, made, served)
            position = rotation = None
            if isinstance(answer.pose, Localization) and query.reference is not None:
                position, rotation = reference_errors(references, scene, answer.pose, query.reference)
            outcomes.append(ExitOutcome(query=query, answer=answer, position_error=position, rotation_error_deg=rotation))
    return ExitStudy(
        made=made,
        queries=tuple(item for item in outcomes if item.query.reference is not None),
        strangers=tuple(item for item in outcomes if item.query.reference is None),
    )


def served_exits(made: CutMap, *, localizations: int = LOCALIZATIONS) -> Iterator[ServedExit]:
    """All exits for a map's tiles; those by one server are left out where their noise does not allow this number of tiles.

    Each is made when it is its turn: the server of the hintless exit holds up to 0.7 GB.
    """
    records = made.records
    count, size = records.shape
    yield ServedExit(name="region", exit=Region(read=lambda: records), servers=(), once_bytes=records.size, prepare_s=0.0)
    to_two = tuple(MemoryServer(answer=lambda messages: two_servers.answers(records, messages)) for _ in range(2))
    both = TwoServers(records=count, size=size, transports=to_two)
    yield ServedExit(name="two servers", exit=both, servers=to_two, once_bytes=0, prepare_s=0.0)
    with suppress(RangeError):
        yield _one_server(records, best_layout(count, size, fetches=localizations * made.manifest.asked))
    with suppress(RangeError):
        yield _hintless(records, hintless_layout(count, size))


def _one_server(records: UInt8[np.ndarray, "records size"], layout: Layout) -> ServedExit:
    start = time.perf_counter()
    matrix, seed = one_server.arranged(records, layout), public_matrix.new_seed()
    hint = one_server.hint(matrix, seed)
    prepare_s = time.perf_counter() - start
    server = MemoryServer(answer=lambda messages: one_server.answers(matrix, messages))
    return ServedExit(
        name="one server",
        exit=OneServer(layout=layout, seed=seed, hint=hint, transport=server),
        servers=(server,),
        once_bytes=hint.nbytes,
        prepare_s=prepare_s,
    )


def _hintless(records: UInt8[np.ndarray, "records size"], layout: HintlessLayout) -> ServedExit:
    start = time.perf_counter()
    matrix, seed = hintless.arranged_rows(records, layout), public_matrix.new_seed()
    made = hintless.prepared(matrix, layout, seed)
    prepare_s = time.perf_counter() - start
    server = MemoryServer(answer=lambda messages: hintless.answers(matrix, made, layout, messages))
    to_one = Hintless(layout=layout, seed=seed, transport=server)
    return ServedExit(name="hintless", exit=to_one, servers=(server,), once_bytes=0, prepare_s=prepare_s)


def by_exit(features: Features, made: CutMap, served: ServedExit, options: LocalizeOptions | None = None) -> ExitAnswer:
    """Localize a photograph in tiles that sketches choose, fetched by one exit."""
    before = [(server.up_bytes, server.down_bytes, server.seconds) for server in served.servers]
    start = time.perf_counter()
    wanted = wanted_tiles(made.manifest, features)
    fetched = Fetcher(made.manifest, served.exit).fetch(wanted)
    pose = localize_in_tiles(features, made.manifest, fetched.tiles, options)
    seconds = time.perf_counter() - start
    after = [(server.up_bytes, server.down_bytes, server.seconds) for server in served.servers]
    up, down, server_s = (sum(b[k] - a[k] for a, b in zip(before, after, strict=True)) for k in range(3))
    waited = max((b[2] - a[2] for a, b in zip(before, after, strict=True)), default=0.0)  # servers are asked at once
    text, binary, _ = encode_manifest(made.manifest)
    return ExitAnswer(
        exit=served.name,
        pose=pose,
        once_bytes=served.once_bytes + len(text) + len(binary),
        up_bytes=int(up),
        down_bytes=int(down),
        device_s=max(0.0, seconds - waited),
        server_s=server_s,
        prepare_s=served.prepare_s,
        guarantee=served.exit.guarantee,
    )
