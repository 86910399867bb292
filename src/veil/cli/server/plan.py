"""`veil plan map`: what a map of many images takes, before the work begins."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypedDict, cast

from veil.cli.common import at_least, say_table, write_json
from veil.cli.records import Record, add_record_command, json_file, option
from veil.places.maps.clusters.plans import MapPlan, MapPlanJson
from veil.places.pairs.candidates import BY_TRACKS, RETRIEVED
from veil.report.tables import Name, Number, Table, Words

EXAMPLES = """\
  veil plan map --image-count 1000
  veil plan map --image-count 10000 --machines 4 --cores 16 --json plan.json
  veil plan map --image-count 200 --pairs all
"""


@dataclass(frozen=True, kw_only=True)
class PlanMap(Record):
    """Print pairs, core-hours, memory, disk, network and days of a map of hardened uploads, from unit costs that are
    measured on this machine for some seconds. Mapping itself is counted at half a second of a core for each image of
    1,000 features. The formulas are in docs/theory/scale.md#plans.
    """

    image_count: int = option("number of images", required=True, parse=at_least(2), metavar="N")
    features: int = option("features that each image sends (default 1000)", default=1000, parse=at_least(1), metavar="F")
    pairs: Literal["auto", "tracks", "retrieval", "all"] = option(
        "which pairs are matched, as for `veil map` (default auto)", default="auto"
    )
    pair_count: int | None = option(
        f"images that each is paired with (default {BY_TRACKS} by tracks, {RETRIEVED} by retrieval)",
        parse=at_least(1),
        metavar="N",
    )
    machines: int = option("machines that match pairs (default 1)", default=1, parse=at_least(1), metavar="M")
    cores: int | None = option("cores of each machine (default: those of this one)", parse=at_least(1), metavar="C")
    json: Path | None = json_file()


def register(commands) -> None:  # type: ignore[no-untyped-def]
    """Add `veil plan map` to the parser's commands."""
    add_record_command(commands, "map", "what a map of many images takes", EXAMPLES, PlanMap, _plan)


PairsBy = Literal["all", "tracks", "retrieval"]


class _PairsByJson(TypedDict):
    pairs_by: PairsBy


class PlanMapJson(_PairsByJson, MapPlanJson):
    """The plan of a map, and how its pairs are chosen."""


def _plan(arguments: PlanMap) -> int:
    from veil.places.pairs.choice import pair_choice
    from veil.places.unit_costs import plan_map

    method = pair_choice(arguments.pairs, arguments.image_count).method
    plan = plan_map(
        arguments.image_count,
        features=arguments.features,
        pairs=arguments.pairs,
        pair_count=arguments.pair_count,
        machines=arguments.machines,
        machine_cores=arguments.cores,
    )
    record: PlanMapJson = {"pairs_by": cast(PairsBy, method), **plan.as_json()}
    write_json(arguments.json, record)
    say_table(arguments, plan_table(plan, method, arguments.image_count))
    return 0


def plan_table(plan: MapPlan, method: str, images: int) -> Table:
    """The plan as a table for people."""
    every = images * (images - 1) // 2
    hours = {"retrieval": plan.retrieval_s, "matching": plan.matching_s, "mapping": plan.mapping_s}
    steps = ", ".join(f"{step} {amount(seconds / 3600)}" for step, seconds in hours.items())
    return Table(
        columns=[Name("what"), Number("in all"), Words("of which", least=30)],
        rows=[
            ("pairs of images", f"{plan.pairs:,}", f"of {every:,} ({method}; before those that matches suggest)"),
            ("core-hours", amount(plan.core_hours), steps),
            ("memory", sized(plan.memory_bytes), f"in the process that maps, {sized(plan.worker_bytes)} in each worker"),
            ("disk", sized(plan.disk_bytes), "of uploads and matches"),
            ("network", sized(plan.network_bytes), "to workers elsewhere"),
            ("days", amount(plan.days), "on these machines"),
        ],
    )


def amount(value: float) -> str:
    """A number of hours or days as people read it: two digits of a small one."""
    return f"{value:,.1f}" if value >= 1 else f"{value:.2g}"


def sized(count: int) -> str:
    """Bytes as people read them."""
    value = float(count)
    for unit in ("B", "kB", "MB", "GB"):
        if value < 1000:
            return f"{value:,.0f} {unit}" if unit in ("B", "kB") else f"{value:,.1f} {unit}"
        value /= 1000
    return f"{value:,.1f} TB"
