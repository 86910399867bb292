"""`veil lab match`: matches of two uploads, or of raw features of two photographs.

A file of its own: it matches; `lab` only lists commands.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from veil.cli.common import say, write_json
from veil.cli.records import add_record_command, json_file, positional
from veil.cli.server.map_options import AskedMatcher, asks_for_network, load_matcher, matching_options
from veil.device.doors import load_images
from veil.errors import InputError
from veil.matching import match
from veil.matching.lightglue import learned_matches
from veil.matching.neighbors import distance_name
from veil.matching.placed_points import placed
from veil.places.pairs.images import LoadedImage

EXAMPLES = """\
  veil lab match upload/1a....veil upload/9c....veil
  veil lab match a.veil b.veil --ratio auto --json matches.json
  veil lab match a.h5 b.h5 --matcher lightglue      raw features of one photograph each, by a network
"""


@dataclass(frozen=True, kw_only=True)
class Match(AskedMatcher):
    """Mutual nearest neighbors of two messages, or matches of raw features by a network."""

    left: Path = positional("a .veil message, or raw features of one photograph (.h5)")
    right: Path = positional("another one")
    json: Path | None = json_file()


def register(actions: Any) -> None:
    """Add `veil lab match` to the subparsers `actions`."""
    add_record_command(actions, "match", "match two uploads", EXAMPLES, Match, _match)


def _match(arguments: Match) -> int:
    left, right = (_only_image(path) for path in (arguments.left, arguments.right))
    counts = f"{len(left.form)} and {len(right.form)}"
    if asks_for_network(arguments):
        sides = [
            placed(side.form, side.positions, side.camera, what=str(path))
            for side, path in ((left, arguments.left), (right, arguments.right))
        ]
        matches, by = learned_matches(load_matcher(arguments, left.form.space), *sides), "lightglue"
        say(arguments, f"{len(matches)} matches of {counts} features, by LightGlue")
    else:
        options = matching_options(arguments, left.form, right.form)
        matches, by = match(left.form, right.form, options), distance_name(left.form, right.form)
        say(arguments, f"{len(matches)} mutual nearest neighbors of {counts} features, {by}")
    write_json(arguments.json, {"distance": by, "matches": matches.indices.tolist(), "distances": matches.distances.tolist()})
    return 0


def _only_image(path: Path) -> LoadedImage:
    """The one image of a file. Raises InputError if there are several."""
    images = list(load_images(path).values())
    if len(images) != 1:
        raise InputError(f"{path} holds {len(images)} images; `veil lab match` takes one on each side, give single messages")
    return images[0]
