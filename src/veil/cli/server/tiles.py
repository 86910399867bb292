"""`veil tiles cut` and `plan`: a public map in pieces that devices fetch without telling which, and what that costs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypedDict, cast

from veil.cli.common import Bar, at_least, explain, quiet_colmap, report, say, say_table, write_json
from veil.cli.records import Record, add_record_command, json_file, option, positional
from veil.cli.server.plan import sized
from veil.errors import InputError
from veil.files.maps.places import read_place
from veil.files.tiles import holds_tiles, read_manifest
from veil.json_records.values import Digest
from veil.places.tiles import TilePlan, cut_map, plan_tiles
from veil.report.tables import Name, Table, fixed, numbers
from veil.tiles.cutting import CutOptions, CutReport, CutReportJson
from veil.tiles.manifest import Manifest
from veil.tiles.plans import ExitPlan, ExitPlanJson
from veil.tiles.tile_format import LevelBits

DEFAULT = CutOptions()
EXAMPLES = """\
  veil tiles cut map/ -o tiles/
  veil tiles cut map/ -o tiles/ --bytes 65536                 smaller tiles
  veil tiles cut map/ -o tiles/ --download 20                 at most 20 MB, for devices that work offline
  veil tiles cut map/ -o tiles/ --place place.json            devices then find their tiles from a GPS fix, too
  veil localize tiles:tiles/ photo.jpg                        on the device: neither photo nor place nor pose leaves
"""
PLAN_EXAMPLES = """\
  veil tiles plan tiles/
  veil tiles plan map/ --bytes 131072 --queries-a-day 200 --days 30 --mbit 8
"""


@dataclass(frozen=True, kw_only=True)
class CutTiles(Record):
    """Cut a map of raw features into tiles of equal size, by cells of the cameras that see their points. A device fetches
    a few, without telling which, and localizes itself. Whoever fetches tiles holds a part of the map: its points and
    descriptors, which can be inverted into pictures of the place. Cut only maps of places that may be public.
    """

    map: Path = positional("a folder that `veil map` wrote from raw features")
    output: Path = option("a new folder for the tiles", required=True, short="-o", metavar="FOLDER")
    bytes: int = option("bytes of a tile (default %(default)s)", default=DEFAULT.tile_bytes, parse=at_least(1), metavar="N")
    download: float | None = option(
        "most 10^6 bytes of all tiles together, for devices that keep them all; points that fewest cameras see are left out",
        metavar="MB",
    )
    place: Path | None = option("where on Earth the map is (`veil map align`)", metavar="FILE")
    json: Path | None = json_file()


@dataclass(frozen=True, kw_only=True)
class PlanTiles(Record):
    """Print what a device downloads once and exchanges for each localization, and what servers compute, for each way
    to fetch: the whole map, from two servers, or from one; and for how many localizations each takes the fewest
    bytes. Seconds of servers are of one core, measured on this machine.
    """

    map: Path = positional("a folder that `veil tiles cut` or, from raw features, `veil map` wrote")
    bytes: int | None = option(f"bytes of a tile of a map (default {DEFAULT.tile_bytes})", parse=at_least(1), metavar="N")
    queries_a_day: int = option("localizations of a device in a day (default 100)", default=100, parse=at_least(1), metavar="N")
    days: int = option("days that a version of the map lasts (default 7)", default=7, parse=at_least(1), metavar="D")
    mbit: float = option("speed of the device's link, in 10^6 bits a second (default 20)", default=20.0, metavar="M")
    json: Path | None = json_file()


def register(commands) -> None:  # type: ignore[no-untyped-def]
    """Add `veil tiles cut` and `veil tiles plan` to the group's commands."""
    add_record_command(commands, "cut", "a public map -> tiles that devices fetch privately", EXAMPLES, CutTiles, _cut)
    add_record_command(commands, "plan", "what private fetching of tiles costs", PLAN_EXAMPLES, PlanTiles, _plan)


def _cut(arguments: CutTiles) -> int:
    quiet_colmap()
    download = None if arguments.download is None else round(arguments.download * 1e6)
    options = CutOptions(tile_bytes=arguments.bytes, download=download)
    place = read_place(arguments.place) if arguments.place else None
    with Bar("cutting") as bar:
        made = cut_map(arguments.map, arguments.output, options, place=place, progress=bar)
    manifest = read_manifest(arguments.output)
    write_json(arguments.json, cut_record(manifest, made))
    for line in described(manifest, made):
        say(arguments, line)
    report(arguments, arguments.output, f"{len(manifest)} tiles (public: they can be inverted into pictures of the place)")
    return 0


class _TilesFactsJson(TypedDict):
    version: Digest
    tiles: int
    tile_bytes: int
    record_bytes: int
    asked: int
    axes: int
    bits: LevelBits
    max_position_error: float


class CutTilesJson(_TilesFactsJson, CutReportJson):
    """Tiles of a map that was cut, with its losses."""


def cut_record(manifest: Manifest, report: CutReport) -> CutTilesJson:
    """The JSON record of the command."""
    return {
        "version": manifest.version,
        "tiles": len(manifest),
        "tile_bytes": manifest.tile_bytes,
        "record_bytes": manifest.record_bytes,
        "asked": manifest.asked,
        "axes": manifest.coding.axes,
        "bits": cast(LevelBits, manifest.coding.bits),
        "max_position_error": manifest.coding.max_position_error,
        **report.as_json(),
    }


def described(manifest: Manifest, report: CutReport) -> list[str]:
    """Result of cutting, as lines for people."""
    lines = [
        f"{report.kept_points} of {report.map_points} points are in the tiles, each in "
        f"{report.placed / report.kept_points:.2f} of them and with {report.aspects:.2f} descriptors on average",
        f"places are kept within {manifest.coding.max_position_error:.3g} units of the map, descriptors with "
        f"{100 * report.variance_kept:.1f} % of their variance; {100 * report.filled:.1f} % of the bytes are filled",
        f"every localization asks for {manifest.asked} tiles, {manifest.asked * manifest.record_bytes} bytes",
    ]
    lines[-1] += f"; all together take {sized(len(manifest) * manifest.record_bytes)}"
    if report.crowded_out:
        lines.append(
            f"left out: {report.crowded_out} times a point, those that fewest cameras see, as {report.crowded_tiles} tiles "
            "were full; --bytes makes room"
        )
    if report.too_far:
        lines.append(f"left out: {report.too_far} times a point that is too far from its cell")
    return lines


def _plan(arguments: PlanTiles) -> int:
    localizations = arguments.queries_a_day * arguments.days
    plan = plan_tiles(
        arguments.map,
        localizations,
        options=_options(arguments),
        mbit_s=arguments.mbit,
    )
    write_json(arguments.json, plan_record(plan))
    explain(
        arguments,
        f"{plan.tiles} tiles, {sized(plan.tiles * plan.record_bytes)} in all; {plan.asked} of {sized(plan.record_bytes)} for "
        f"each localization, and {localizations} localizations with one version of the map",
    )
    say_table(arguments, exit_table(plan.exits))
    explain(arguments, *fewest_bytes(plan.exits))
    return 0


def _options(arguments: PlanTiles) -> CutOptions | None:
    """How a map is cut; None for a folder of tiles, which takes no such option."""
    if holds_tiles(arguments.map):
        if arguments.bytes is not None:
            raise InputError("these tiles are cut already; leave --bytes out, or give the map")
        return None
    quiet_colmap()
    return CutOptions(tile_bytes=arguments.bytes or DEFAULT.tile_bytes)


class TilePlanJson(TypedDict):
    """The plan of private fetching."""

    tiles: int
    record_bytes: int
    manifest_bytes: int
    asked: int
    localizations: int
    exits: list[ExitPlanJson]


def plan_record(plan: TilePlan) -> TilePlanJson:
    """The JSON record of the command."""
    return {
        "tiles": plan.tiles,
        "record_bytes": plan.record_bytes,
        "manifest_bytes": plan.manifest_bytes,
        "asked": plan.asked,
        "localizations": plan.localizations,
        "exits": [item.as_json() for item in plan.exits],
    }


def exit_table(plans: Sequence[ExitPlan]) -> Table:
    """The table of the ways to fetch tiles: once, for each localization, and in all."""
    heads = "once", "up, each", "down, each", "in all", "link, s", "server, s", "server once, s"
    return Table(
        columns=[Name("exit"), *numbers(*heads)],
        rows=[
            (
                plan.exit,
                *map(sized, (plan.once_bytes, plan.up_bytes, plan.down_bytes, plan.total_bytes)),
                fixed(plan.link_s, 1),
                fixed(plan.server_s, 4),
                fixed(plan.prepare_s, 1),
            )
            for plan in plans
        ],
    )


def fewest_bytes(plans: Sequence[ExitPlan]) -> Iterator[str]:
    """Sentences on how many localizations each exit takes the fewest bytes for."""
    for plan in plans:
        if plan.best_from is None:
            yield f"{plan.exit}: never takes the fewest bytes"
            continue
        until = "on" if plan.best_to is None else f"to {plan.best_to}"
        yield f"{plan.exit}: takes the fewest bytes from {plan.best_from} localizations {until}"
    for exit in sorted({"one server", "hintless"} - {plan.exit for plan in plans}):
        yield f"{exit}: its noise does not allow this number of tiles; cut the map into several, or into larger tiles"
