"""`veil map align`: a map's place on Earth, from positions of its cameras."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from veil.cli.common import by_message, report, say, say_left_out, write_json
from veil.cli.records import Record, add_record_command, json_file, names_file, option, positional
from veil.errors import InputError
from veil.files.maps.places import place_facts, read_positions, write_place
from veil.places.held_map import Map, align_map, placed_names

EXAMPLES = """\
  veil map align map/ positions.csv -o place.json
  veil map align map/ positions.csv -o place.json --names names.csv   a private map, positions by photograph
  veil serve place store/ place.json --map lobby     from then on, the server's answers name the place on Earth
"""


@dataclass(frozen=True, kw_only=True)
class Align(Record):
    """Find the similarity from a map's coordinates to east, north and up in meters, from positions of its cameras on
    WGS 84. Positions that disagree with the others are left out and named; the error that is left is told. Cameras
    along a line need a map with gravity.
    """

    map: Path = positional("a folder that `veil map` wrote")
    positions: Path = positional("CSV with columns image, latitude, longitude, height (above the ellipsoid)")
    output: Path = option("where to write the place (JSON)", required=True, short="-o", metavar="FILE")
    names: Path | None = names_file()
    json: Path | None = json_file()


def register(commands) -> None:  # type: ignore[no-untyped-def]
    """Add `veil map align` to the parser's commands."""
    add_record_command(commands, "map align", "a map's place on Earth", EXAMPLES, Align, _align)


def _align(arguments: Align) -> int:
    where, given = Map.read(arguments.map), by_message(read_positions(arguments.positions))
    names = placed_names(where, given)
    if not names:
        known = ", ".join(sorted(where.scene.images)[:3])
        raise InputError(f"{arguments.positions} names none of the map's images, which are {known}; check it")
    place = align_map(where, given)
    facts = place_facts(place)
    left_out = [name for name, agrees in zip(names, place.agreeing.tolist(), strict=True) if not agrees]
    write_place(arguments.output, place)
    write_json(arguments.json, {**facts, "left_out": left_out})
    say(
        arguments,
        f"{facts['agreeing']} of {facts['positions']} positions agree: {facts['median_error_m']:.2f} m at the median, "
        f"{facts['largest_error_m']:.2f} m at most; a unit of the map is {place.enu_from_map.scale:.4g} m",
    )
    if facts["agreeing"] == (2 if place.uses_gravity else 3):
        say(arguments, "note: any map fits so few positions, so nothing checks them; give the positions of more images")
    say_left_out(arguments, dict.fromkeys(left_out, "its position disagrees with the others"))
    report(arguments, arguments.output, "the map's place")
    return 0
