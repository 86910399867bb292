"""`veil tiles plan`: what private fetching of a map's tiles costs, by each exit."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from pathlib import Path

from veil.cli.common import add_command, add_json, at_least, explain, quiet_colmap, say_table, write_json
from veil.cli.server.plan import sized
from veil.cli.server.tiles import DEFAULT
from veil.errors import InputError
from veil.files.tiles import holds_tiles
from veil.places.tiles import TilePlan, plan_tiles
from veil.report.tables import Name, Table, fixed, numbers
from veil.tiles.cutting import CutOptions
from veil.tiles.plans import ExitPlan

EXAMPLES = """\
  veil tiles plan tiles/
  veil tiles plan map/ --bytes 131072 --queries-a-day 200 --days 30 --mbit 8
"""


def register(commands) -> None:  # type: ignore[no-untyped-def]
    """Add `veil tiles plan` to the parser's commands."""
    parser = add_command(
        commands,
        "plan",
        "what private fetching of tiles costs",
        "Print what a device downloads once and exchanges for each localization, and what servers compute, for each way\n"
        "to fetch: the whole map, from two servers, or from one; and for how many localizations each takes the fewest\n"
        "bytes. Seconds of servers are of one core, measured on this machine.",
        EXAMPLES,
    )
    parser.add_argument("map", type=Path, help="a folder that `veil tiles cut` or, from raw features, `veil map` wrote")
    parser.add_argument(
        "--bytes", type=at_least(1), metavar="N", help=f"bytes of a tile of a map (default {DEFAULT.tile_bytes})"
    )
    parser.add_argument(
        "--asked", type=at_least(1), metavar="N", help=f"tiles that every localization asks for (default {DEFAULT.asked})"
    )
    parser.add_argument(
        "--queries-a-day", type=at_least(1), default=100, metavar="N", help="localizations of a device in a day (default 100)"
    )
    parser.add_argument(
        "--days", type=at_least(1), default=7, metavar="D", help="days that a version of the map lasts (default 7)"
    )
    parser.add_argument(
        "--mbit", type=float, default=20.0, metavar="M", help="speed of the device's link, in 10^6 bits a second (default 20)"
    )
    parser.add_argument("--seconds", type=float, default=2.0, metavar="S", help="seconds of each measurement (default 2)")
    add_json(parser)
    parser.set_defaults(run=_plan)


def _plan(arguments: argparse.Namespace) -> int:
    if not 0 < arguments.seconds < 3600:
        raise InputError(f"--seconds must be more than 0 and at most an hour, got {arguments.seconds!r}")
    localizations = arguments.queries_a_day * arguments.days
    plan = plan_tiles(
        arguments.map,
        localizations,
        options=_options(arguments),
        mbit_s=arguments.mbit,
        seconds=arguments.seconds,
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


def _options(arguments: argparse.Namespace) -> CutOptions | None:
    """How a map is cut; None for a folder of tiles, which takes no such option."""
    given = {"tile_bytes": arguments.bytes, "asked": arguments.asked}
    if holds_tiles(arguments.map):
        if any(value is not None for value in given.values()):
            raise InputError("these tiles are cut already; leave out --bytes and --asked, or give the map")
        return None
    quiet_colmap()
    return CutOptions(**{name: value or getattr(DEFAULT, name) for name, value in given.items()})


def plan_record(plan: TilePlan) -> dict:
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
    if len(plans) < 3:
        yield "one server: its noise does not allow so many tiles; cut the map into several, or into larger tiles"
