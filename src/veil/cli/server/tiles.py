"""`veil tiles cut`: a public map in pieces of equal size, which devices fetch without telling which."""

from __future__ import annotations

import argparse
from pathlib import Path

from veil.cli.common import Bar, add_command, add_json, at_least, quiet_colmap, report, say, write_json
from veil.files.places import read_place
from veil.files.tiles import read_manifest
from veil.places.tiles import cut_map
from veil.tiles.cutting import CutOptions, CutReport
from veil.tiles.manifest import Manifest

DEFAULT = CutOptions()
EXAMPLES = """\
  veil tiles cut map/ -o tiles/
  veil tiles cut map/ -o tiles/ --bytes 65536                 smaller tiles
  veil tiles cut map/ -o tiles/ --place place.json            devices then find their tiles from a GPS fix, too
  veil localize tiles:tiles/ photo.jpg                        on the device: neither photo nor place nor pose leaves
"""


def register(commands) -> None:  # type: ignore[no-untyped-def]
    """Add `veil tiles cut` to the parser's commands."""
    parser = add_command(
        commands,
        "cut",
        "a public map -> tiles that devices fetch privately",
        "Cut a map of raw features into tiles of equal size, by cells of the cameras that see their points. A device fetches\n"
        "a few, without telling which, and localizes itself. Whoever fetches tiles holds a part of the map: its points and\n"
        "descriptors, which can be inverted into pictures of the place. Cut only maps of places that may be public.",
        EXAMPLES,
    )
    parser.add_argument("map", type=Path, help="a folder that `veil map` wrote from raw features")
    parser.add_argument("-o", "--output", type=Path, required=True, metavar="FOLDER", help="a new folder for the tiles")
    parser.add_argument(
        "--bytes", type=at_least(1), default=DEFAULT.tile_bytes, metavar="N", help="bytes of a tile (default %(default)s)"
    )
    parser.add_argument("--points", type=at_least(1), metavar="N", help="points in a tile at most (default: as many as fit)")
    parser.add_argument(
        "--descriptors",
        type=int,
        choices=(1, 2),
        default=DEFAULT.aspects,
        help="descriptors of a point at most (default %(default)s)",
    )
    parser.add_argument(
        "--asked",
        type=at_least(1),
        default=DEFAULT.asked,
        metavar="N",
        help="tiles that every localization asks for (default %(default)s)",
    )
    parser.add_argument("--place", type=Path, metavar="FILE", help="where on Earth the map is (`veil map align`)")
    add_json(parser)
    parser.set_defaults(run=_cut)


def _cut(arguments: argparse.Namespace) -> int:
    quiet_colmap()
    options = CutOptions(
        tile_bytes=arguments.bytes,
        points=arguments.points,
        aspects=arguments.descriptors,
        asked=arguments.asked,
    )
    place = read_place(arguments.place) if arguments.place else None
    with Bar("cutting") as bar:
        made = cut_map(arguments.map, arguments.output, options, place=place, progress=bar)
    manifest = read_manifest(arguments.output)
    write_json(arguments.json, cut_record(manifest, made))
    for line in described(manifest, made):
        say(arguments, line)
    report(arguments, arguments.output, f"{len(manifest)} tiles (public: they can be inverted into pictures of the place)")
    return 0


def cut_record(manifest: Manifest, told: CutReport) -> dict:
    """The JSON record of the command."""
    return {
        "version": manifest.version,
        "tiles": len(manifest),
        "tile_bytes": manifest.tile_bytes,
        "record_bytes": manifest.record_bytes,
        "asked": manifest.asked,
        "axes": manifest.coding.axes,
        "bits": manifest.coding.bits,
        "max_position_error": manifest.coding.max_position_error,
        **told.as_json(),
    }


def described(manifest: Manifest, told: CutReport) -> list[str]:
    """Result of cutting, as lines for people."""
    lines = [
        f"{told.kept_points} of {told.map_points} points are in the tiles, each in {told.placed / told.kept_points:.2f} of "
        f"them and with {told.aspects:.2f} descriptors on average",
        f"places are kept within {manifest.coding.max_position_error:.3g} units of the map, descriptors with "
        f"{100 * told.variance_kept:.1f} % of their variance; {100 * told.filled:.1f} % of the bytes are filled",
        f"every localization asks for {manifest.asked} tiles, {manifest.asked * manifest.record_bytes} bytes",
    ]
    if told.crowded_out:
        lines.append(
            f"left out: {told.crowded_out} times a point, those that fewest cameras see, as {told.crowded_tiles} tiles were "
            "full; --bytes makes room"
        )
    if told.too_far:
        lines.append(f"left out: {told.too_far} times a point that is too far from its cell")
    return lines
