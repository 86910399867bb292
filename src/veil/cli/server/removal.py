"""`veil map remove`: take images out of a map, with a receipt."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from veil.cli.common import by_message, quiet_colmap, report, say, say_left_out, write_json
from veil.cli.records import Record, add_record_command, names_file, option, positional
from veil.errors import InputError
from veil.files.maps.folders import require_outside
from veil.places.maps import NoMap
from veil.places.removal import RemovalReceipt, remove_from_map

EXAMPLES = """\
  veil map remove map/ 3f2a... --receipt receipt.json   in place: the contribution is gone from map/
  veil map remove map/ a.jpg b.jpg -o map2/             a new map; map/ stays as it is
  veil map remove map/ 3f2a... --matches kept/          and its matches, which `veil map --matches kept/` keeps
  veil map ./remove -o map/                             `veil map` of a folder called remove
"""


@dataclass(frozen=True, kw_only=True)
class RemoveImages(Record):
    """Remove images with all that came from them: their features, lines and names, and the points that fewer than two of
    the other images see (four in a map from lines). What is left is adjusted, and all files are written anew; indexes
    of words are dropped, `veil index` makes them again. The new map takes the place of the old one, at once, as a copy
    beside it would leave the contribution where it was; with -o the old map stays, contribution and all. Nothing is
    written where no map that can be trusted would be left. The receipt lists what went.
    """

    map: Path = positional("a folder that `veil map` wrote")
    name: tuple[str, ...] = positional("image of the map: its message's file name without .veil, or its photograph's")
    output: Path | None = option("write the new map here (default: in place of the old one)", short="-o", metavar="FOLDER")
    matches: Path | None = option("matches that `veil map --matches` keeps: those of the images go too", metavar="FOLDER")
    names: Path | None = names_file()
    json: Path | None = option("write the receipt ('-': standard output)", short="--receipt", metavar="FILE")


def register(commands) -> None:  # type: ignore[no-untyped-def]
    """Add `veil map remove` to the parser's commands."""
    add_record_command(commands, "map remove", "take images out of a map", EXAMPLES, RemoveImages, _remove)


def _remove(arguments: RemoveImages) -> int:
    quiet_colmap()
    for folder in filter(None, (arguments.map, arguments.output)):
        require_outside(arguments.json, folder, "the receipt")
    receipt = remove_from_map(
        arguments.map, tuple(by_message(dict.fromkeys(arguments.name))), output=arguments.output, matches=arguments.matches
    )
    if isinstance(receipt, NoMap):
        raise InputError(f"nothing was removed: {receipt.reason}", remedy=receipt.remedy)
    write_json(arguments.json, receipt.as_json())
    _tell(arguments, receipt)
    return 0


def _tell(arguments: RemoveImages, receipt: RemovalReceipt) -> None:
    """Print the receipt for people."""
    for name, count in sorted(receipt.features.items()):
        say(arguments, f"removed {name}: {count} features")
    say(arguments, f"{receipt.points} points were removed with them, and {receipt.features_of_others} features of other images")
    say_left_out(arguments, receipt.left_out)
    if receipt.kept_pairs is not None:
        say(arguments, f"kept matches of {receipt.kept_pairs:,} pairs of images went too, from {arguments.matches}")
    for name in receipt.dropped:
        say(arguments, f"dropped {name}; run `veil index` again")
    facts = receipt.as_json()
    for text in facts["unadjusted"]:
        say(arguments, f"what is left was not adjusted: {text}")
    for row in facts["files"]:
        change = f"{(row['before'] or '(none)')[:12]} -> {(row['after'] or '(none)')[:12]}"
        say(arguments, f"{row['file']}: sha256 {change}")
    left = facts["left"]
    say(arguments, f"left: {left['images']} images, {left['points']} points, {left['observations']} observations")
    if receipt.removals[0].check is not None:
        say(arguments, f"checked: {receipt.removals[0].check.described()}")
    if not receipt.in_place:
        say(arguments, f"{receipt.map} is as it was, with what was removed")
    report(arguments, receipt.output, "the map")
