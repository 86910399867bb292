"""Plans of private fetching: what each exit costs a device and the servers, and which is best from where on."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal, TypedDict

from veil.errors import RangeError
from veil.one_line import one_line
from veil.pir import two_servers
from veil.pir.hintless_layout import HintlessLayout, hintless_layout
from veil.pir.layout import Layout, best_layout

ExitName = Literal["region", "two servers", "one server", "hintless"]


@dataclass(frozen=True, kw_only=True)
class TileNumbers:
    """Numbers of a map's tiles on which the costs of fetching depend.

    - `tiles`, `asked`: number of tiles, and of those that each localization asks for.
    - `record_bytes`, `manifest_bytes`: of a tile with its proof, and of the manifest.
    """

    tiles: int
    record_bytes: int
    manifest_bytes: int
    asked: int

    __repr__ = one_line

    @property
    def map_bytes(self) -> int:
        """Bytes of all records."""
        return self.tiles * self.record_bytes


@dataclass(frozen=True, kw_only=True)
class ServerCosts:
    """Seconds of one core that a server takes for each byte of the records or for each polynomial, measured or assumed.

    - `xor_s`: of the two-server exit, for a byte and one query.
    - `product_s`: of the one-server exit, for a byte and one query.
    - `hint_s`: for a byte of the hint's records, once a version.
    - `exact_s`, `packing_s`: of the hintless exit, for a byte and for a polynomial of an answer, and one query.
    - `transform_s`, `collapse_s`: for a byte and for a polynomial, once a version.
    """

    xor_s: float
    product_s: float
    hint_s: float
    exact_s: float = 0.0
    packing_s: float = 0.0
    transform_s: float = 0.0
    collapse_s: float = 0.0


class ExitPlanJson(TypedDict):
    """Cost of one exit."""

    exit: ExitName
    once_bytes: int
    up_bytes: int
    down_bytes: int
    server_s: float
    prepare_s: float
    total_bytes: int
    link_s: float
    best_from: int | None
    best_to: int | None


@dataclass(frozen=True, kw_only=True)
class ExitPlan:
    """Cost of one exit for one device with a number of localizations of one version of the map.

    - `exit`: "region", "two servers", "one server" or "hintless".
    - `once_bytes`: downloaded once: the manifest, and all records or the hint.
    - `up_bytes`, `down_bytes`: of a localization, to and from all servers together.
    - `server_s`: of one core of all servers together, a localization.
    - `prepare_s`: of one core of the server, once a version.
    - `total_bytes`: all of it for the device, and `link_s` how long its link takes for that.
    - `best_from`, `best_to`: numbers of localizations from which on and up to which no other exit takes fewer bytes. None:
      never, and without end.
    """

    exit: ExitName
    once_bytes: int
    up_bytes: int
    down_bytes: int
    server_s: float
    prepare_s: float
    total_bytes: int
    link_s: float
    best_from: int | None
    best_to: int | None

    __repr__ = one_line

    def as_json(self) -> ExitPlanJson:
        """The stable record of docs/reference/json.md."""
        return {
            "exit": self.exit,
            "once_bytes": self.once_bytes,
            "up_bytes": self.up_bytes,
            "down_bytes": self.down_bytes,
            "server_s": self.server_s,
            "prepare_s": self.prepare_s,
            "total_bytes": self.total_bytes,
            "link_s": self.link_s,
            "best_from": self.best_from,
            "best_to": self.best_to,
        }


@dataclass(frozen=True, kw_only=True)
class _Line:
    """Bytes of an exit, once and a localization, and seconds of servers."""

    exit: ExitName
    once: int
    up: int
    down: int
    server_s: float
    prepare_s: float

    def bytes(self, localizations: int) -> int:
        return self.once + localizations * (self.up + self.down)


def plan_exits(numbers: TileNumbers, costs: ServerCosts, *, localizations: int, mbit_s: float) -> list[ExitPlan]:
    """Cost of each exit; the one with the fewest bytes comes first.

    - `numbers`: of the map's tiles.
    - `costs`: of the servers.
    - `localizations`: of one device with one version of the map.
    - `mbit_s`: of the device's link, in 10^6 bits a second, in both directions.

    The exits by one server are left out where their noise does not allow this number of records. Raises RangeError for less
    than one localization and for a link without speed.
    """
    if not localizations >= 1 or not 0 < mbit_s < math.inf:
        raise RangeError(f"a plan needs a localization or more and a link with a speed, got {localizations!r} and {mbit_s!r}")
    lines = [_region(numbers), _two(numbers, costs)]
    layout = one_server_layout(numbers, localizations)
    if layout is not None:
        lines.append(_one(numbers, costs, layout))
    packed = hintless_tiles(numbers)
    if packed is not None:
        lines.append(_hintless(numbers, costs, packed))
    lines.sort(key=lambda line: line.bytes(localizations))
    return [_planned(line, lines, localizations, mbit_s) for line in lines]


def one_server_layout(numbers: TileNumbers, localizations: int) -> Layout | None:
    """The layout with the least traffic for a number of localizations; None where there is none."""
    try:
        return best_layout(numbers.tiles, numbers.record_bytes, fetches=localizations * numbers.asked)
    except RangeError:
        return None


def hintless_tiles(numbers: TileNumbers) -> HintlessLayout | None:
    """The layout of the hintless exit; None where there is none."""
    try:
        return hintless_layout(numbers.tiles, numbers.record_bytes)
    except RangeError:
        return None


def _region(numbers: TileNumbers) -> _Line:
    return _Line(exit="region", once=numbers.manifest_bytes + numbers.map_bytes, up=0, down=0, server_s=0.0, prepare_s=0.0)


def _two(numbers: TileNumbers, costs: ServerCosts) -> _Line:
    asked = 2 * numbers.asked
    return _Line(
        exit="two servers",
        once=numbers.manifest_bytes,
        up=asked * two_servers.query_bytes(numbers.tiles),
        down=asked * numbers.record_bytes,
        server_s=asked * numbers.map_bytes * costs.xor_s,
        prepare_s=0.0,
    )


def _one(numbers: TileNumbers, costs: ServerCosts, layout: Layout) -> _Line:
    queries = numbers.asked * layout.parts
    return _Line(
        exit="one server",
        once=numbers.manifest_bytes + layout.hint_bytes,
        up=queries * layout.query_bytes,
        down=queries * layout.answer_bytes,
        server_s=queries * numbers.map_bytes * costs.product_s,
        prepare_s=numbers.map_bytes * costs.hint_s,
    )


def _hintless(numbers: TileNumbers, costs: ServerCosts, layout: HintlessLayout) -> _Line:
    queries = numbers.asked * layout.parts
    return _Line(
        exit="hintless",
        once=numbers.manifest_bytes,
        up=queries * layout.query_bytes,
        down=queries * layout.answer_bytes,
        server_s=queries * (numbers.map_bytes * costs.exact_s + layout.blocks * costs.packing_s),
        prepare_s=numbers.map_bytes * costs.transform_s + layout.blocks * costs.collapse_s,
    )


def _planned(line: _Line, lines: Sequence[_Line], localizations: int, mbit_s: float) -> ExitPlan:
    first, last = best_range(line.bytes, [other.bytes for other in lines if other is not line])
    total = line.bytes(localizations)
    return ExitPlan(
        exit=line.exit,
        once_bytes=line.once,
        up_bytes=line.up,
        down_bytes=line.down,
        server_s=line.server_s,
        prepare_s=line.prepare_s,
        total_bytes=total,
        link_s=8 * total / (1e6 * mbit_s),
        best_from=first,
        best_to=last,
    )


def best_range(own: Callable[[int], int], others: Sequence[Callable[[int], int]]) -> tuple[int | None, int | None]:
    """From which number of localizations on, and up to which, `own` takes no more bytes than all `others`.

    All are functions of the number whose values lie on straight lines. None: never, and without end.
    """
    low: int = 1
    high: float = math.inf
    for other in others:
        gap, slope = other(0) - own(0), (other(1) - other(0)) - (own(1) - own(0))  # wanted: gap + n slope >= 0
        if slope > 0:
            low = max(low, math.ceil(-gap / slope))
        elif slope < 0:
            high = min(high, math.floor(gap / -slope))
        elif gap < 0:
            return None, None
    return (None, None) if low > high else (low, None if high == math.inf else int(high))
