"""`veil match` and `veil map`: matches of two uploads, and maps from uploads or raw features."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from veil.cli.common import (
    add_command,
    add_json,
    add_strict,
    at_least,
    quiet_colmap,
    report,
    say,
    say_left_out,
    tell_skipped,
    write_json,
)
from veil.cli.remedies import advised
from veil.cli.server.map_gravity import gravity_facts, say_gravity
from veil.cli.server.map_writing import further_models, map_output
from veil.cli.server.matcher_arguments import add_matcher_arguments, asks_for_network, load_matcher
from veil.cli.server.matching_arguments import (
    TimedSteps,
    add_pair_arguments,
    asked_pairs,
    matching_facts,
    matching_work,
)
from veil.device.doors import load_images, load_on_demand
from veil.errors import InputError
from veil.files.photographs.gravity import read_gravity
from veil.forms import Lines
from veil.matching import MatchOptions, match
from veil.matching.neighbors import distance_name
from veil.matching.placed_points import placed
from veil.matching.ratio import calibrated
from veil.places.building import map_positions
from veil.places.built_maps import BuiltMap, MappingOptions
from veil.places.growth import add_positions
from veil.places.held_map import Map
from veil.places.images_on_demand import GIB
from veil.places.maps import NoMap
from veil.places.pairs.images import LoadedImage, PlacedImages
from veil.places.uploads import comparable
from veil.scene import MapCheck

MATCH = "Mutual nearest neighbors of two messages, or what a network matches of raw features."
MATCH_EXAMPLES = """\
  veil match upload/1a....veil upload/9c....veil
  veil match a.veil b.veil --ratio auto --json matches.json
  veil match a.h5 b.h5 --matcher lightglue      raw features of one photograph each, by a network
"""
MAP_EXAMPLES = """\
  veil map upload/ -o map/            a private map from messages of `veil privatize`
  veil map features.h5 -o map/        a public map from raw features
  veil map features.h5 -o map/ --matcher lightglue   matched by a network, which reads raw features alone
  veil map lines/ -o map/             from messages of `veil privatize --lines`, no position sent
  veil map features.h5 -o map/ --gravity gravity.csv   a public map that serves queries in words with lines
  veil map more/ --add-to map/ -o map2/   the same map with more images
  veil map upload/ -o map/ --pairs retrieval --matches kept/   pairs of images that look alike; keep their matches
  veil map upload/ -o map/ --mapper global   by COLMAP's global mapper
  veil map upload/ -o map/ --locate   also images that no pair brings in, where nothing is built twice
  veil map upload/ -o map/ --pairs pairs.txt --engine dask:tcp://10.0.0.5:8786   listed pairs, on a cluster
"""


def register(commands) -> None:  # type: ignore[no-untyped-def]
    """Add `veil match` and `veil map` to the parser's commands."""
    parser = add_command(commands, "match", "match two uploads", MATCH, MATCH_EXAMPLES)
    parser.add_argument("left", type=Path, help="a .veil message, or raw features of one photograph (.h5)")
    parser.add_argument("right", type=Path, help="another one")
    add_matching(parser)
    add_json(parser)
    parser.set_defaults(run=_match)

    parser = add_command(
        commands,
        "map",
        "uploads or raw features -> a map",
        "Match all pairs and reconstruct: with COLMAP from positions, or from random lines alone where the messages hide\n"
        "their positions (four images or more with gravity). The map is a COLMAP model with released descriptors, and lines,\n"
        "beside. A map of positions is compared with its own pairs of images: what contradicts it is left out and named,\n"
        "and a map that cannot be trusted is refused. Mapping from lines goes on where it was interrupted when the same\n"
        "command is given again. --add-to matches new images with a map's and with each other alone; a map of positions\n"
        "keeps its poses, and `veil map remove` takes images out again.",
        MAP_EXAMPLES,
    )
    parser.add_argument("input", type=Path, help="folder of .veil messages, or raw features (.h5)")
    parser.add_argument("-o", "--output", type=Path, required=True, metavar="FOLDER", help="map to write")
    add_strict(parser)
    parser.add_argument("--seed", type=at_least(0), default=0, help="seed of RANSAC and mapping (default 0)")
    parser.add_argument("--add-to", type=Path, metavar="MAP", help="a map to add the images to; it stays as it is")
    parser.add_argument(
        "--gravity",
        type=Path,
        metavar="CSV",
        help="gravity of the photographs of a map of positions, to check it and to serve queries in words with lines",
    )
    parser.add_argument(
        "--max-seconds", type=float, metavar="S", help="stop the mapper after so long (default: only where it hangs)"
    )
    parser.add_argument(
        "--mapper",
        choices=("incremental", "global"),
        default="incremental",
        help="COLMAP's mapper for a new map of positions: incremental adds one image after another (default); global finds all "
        "rotations first and then all positions, in less time, and refines focal lengths only where none is known",
    )
    parser.add_argument(
        "--locate",
        action="store_true",
        help="then look for each image that is left out in the map of positions, as for a query, and add it where it has a "
        "pose. Leave this out where facades repeat: an image of one that is not mapped is added at its copy",
    )
    add_matching(parser)
    add_pair_arguments(parser)
    add_json(parser)
    parser.set_defaults(run=_map)


def add_matching(parser: argparse.ArgumentParser) -> None:
    """Add the options --matcher, --matcher-weights, --ratio and --workers."""
    add_matcher_arguments(parser)
    parser.add_argument(
        "--ratio",
        metavar="R",
        help="ratio test: none, auto, or a number up to 1 (default: auto in `veil map`, else none)",
    )
    parser.add_argument("--workers", type=at_least(1), default=2, help="image pairs at a time that are matched (default 2)")


def matching_options(arguments: argparse.Namespace, left, right) -> MatchOptions:  # type: ignore[no-untyped-def]
    """The ratio test that --ratio asks for, between two forms. Raises InputError for another text."""
    if arguments.ratio in (None, "none"):
        return MatchOptions()
    if arguments.ratio == "auto":
        return MatchOptions(max_ratio=calibrated(left, right))
    try:
        return MatchOptions(max_ratio=float(arguments.ratio))
    except ValueError as error:
        raise InputError(f"--ratio takes none, auto or a number in (0, 1], got {arguments.ratio!r} ({error})") from None


def _match(arguments: argparse.Namespace) -> int:
    left, right = (_only_image(path) for path in (arguments.left, arguments.right))
    counts = f"{len(left.form)} and {len(right.form)}"
    if asks_for_network(arguments):
        sides = [
            placed(side.form, side.positions, side.camera, what=str(path))
            for side, path in ((left, arguments.left), (right, arguments.right))
        ]
        found, by = load_matcher(arguments, left.form.space).match(*sides), "lightglue"
        say(arguments, f"{len(found)} matches of {counts} features, by LightGlue")
    else:
        options = matching_options(arguments, left.form, right.form)
        found, by = match(left.form, right.form, options), found_by(left, right)
        say(arguments, f"{len(found)} mutual nearest neighbors of {counts} features, {by}")
    write_json(arguments.json, {"distance": by, "matches": found.indices.tolist(), "distances": found.distances.tolist()})
    return 0


def _only_image(path: Path) -> LoadedImage:
    """The one image of a file. Raises InputError if there are several."""
    images = list(load_images(path).values())
    if len(images) != 1:
        raise InputError(f"{path} holds {len(images)} images; `veil match` takes one on each side, give single messages")
    return images[0]


def found_by(left: LoadedImage, right: LoadedImage) -> str:
    """Name of the distance by which two images are compared."""
    return distance_name(left.form, right.form)


def _map(arguments: argparse.Namespace) -> int:
    quiet_colmap()
    asked = asks_for_network(arguments)
    output = map_output(arguments)
    budget = round(arguments.memory * GIB)
    found = load_on_demand(arguments.input, budget_bytes=budget, strict=arguments.strict)
    uploads = comparable(found, strict=arguments.strict)
    loaded = uploads.images
    tell_skipped(uploads.skipped)
    if asked:
        PlacedImages(loaded)  # says what a network cannot match
    in_lines = all(isinstance(image.positions, Lines) for image in loaded.values())
    if arguments.mapper != "incremental" and (in_lines or arguments.add_to):
        kind = "lines have a mapper of their own" if in_lines else "images are added to a map by the incremental mapper"
        raise InputError(f"--mapper {arguments.mapper} makes new maps of positions; {kind}: leave it out")
    if in_lines and arguments.locate:
        raise InputError("--locate looks for images in maps of positions; images in lines are not added so: leave it out")
    if in_lines:
        from veil.cli.server.line_maps import map_messages  # a map of positions needs nothing of it

        return map_messages(arguments, loaded, uploads.skipped, output)
    base = Map.read(arguments.add_to) if arguments.add_to else None
    network = None if not asked else load_matcher(arguments, next(iter(loaded.values())).form.space)
    images = len(loaded) + (len(base.scene.images) if base else 0)
    gravity = _gravity_of(arguments, sorted(loaded))
    options = MappingOptions(
        seed=arguments.seed,
        workers=arguments.workers,
        pairs=asked_pairs(arguments, images),
        cluster_size=arguments.cluster_size,
        max_ratio=_map_ratio(arguments),
        max_seconds=arguments.max_seconds,
        global_mapper=arguments.mapper == "global",
        locate=arguments.locate,
    )
    steps = TimedSteps()
    with matching_work(arguments, loaded, network) as work:
        if base is None:
            built = map_positions(loaded, options=options, gravity=gravity, work=work, network=network, steps=steps)
        else:
            built = add_positions(base, loaded, options=options, gravity=gravity, work=work, network=network, steps=steps)
        if isinstance(built, BuiltMap):
            scene = built.map.scene
            if built.readings is not None:
                say_gravity(arguments, built.readings)
                if scene.measured_down is None:
                    raise InputError(
                        f"{arguments.gravity} has no gravity of a mapped image on which the others agree; check its names"
                    )
            models = (built.map, *built.further, *further_models(arguments.add_to))
            output.write(arguments, [item.scene for item in models], base)
            verified = built.check.pairs if isinstance(built.check, MapCheck) else None
            more = {} if base else matching_facts(arguments, work, steps, models, verified, images)
            _tell_map(arguments, built, images, uploads.skipped, more)
    if isinstance(built, NoMap):
        write_json(arguments.json, {**_no_map_facts(images, built), "skipped": uploads.skipped})
        say_left_out(arguments, built.left_out)
        raise InputError(f"no map: {built.reason}", remedy=built.remedy)
    return 0


def _tell_map(arguments: argparse.Namespace, built: BuiltMap, images: int, skipped: Mapping[str, str], more: Mapping) -> None:
    scene, readings = built.map.scene, built.readings
    facts = {
        "images": images,
        "skipped": dict(skipped),
        "registered": len(scene.images),
        "points": len(scene.points),
        "observations": scene.observation_count,
        "mean_reprojection_error_px": scene.mean_reprojection_error_px,
        "public": scene.is_public,
        "check": scene.check and scene.check.as_json(),
        "gravity": readings and gravity_facts(readings),
        "reasons": list(built.reasons),
        **more,
    }
    write_json(arguments.json, facts)
    say(
        arguments,
        f"{len(scene.images)} of {images} images, {len(scene.points)} points, "
        f"{scene.mean_reprojection_error_px:.2f} px mean reprojection error",
    )
    if scene.check is not None:
        say(arguments, f"checked: {scene.check.described()}")
        say_left_out(arguments, scene.check.left_out)
    for number, item in enumerate(built.further, start=2):
        say(arguments, f"model {number}: {len(item.scene.images)} more images that do not join the first")
    for reason in built.reasons:
        say(arguments, reason)
    report(arguments, arguments.output, "the public map" if scene.is_public else "the private map")


def _gravity_of(arguments: argparse.Namespace, names: list[str]) -> dict[str, np.ndarray] | None:
    """The readings of --gravity; None without it. Raises InputError, before any long work, if they are of other images."""
    if not arguments.gravity:
        return None
    found = read_gravity(arguments.gravity)
    if not set(found) & set(names):
        raise InputError(f"{arguments.gravity} names none of the images, which are {', '.join(names[:3])}; check its names")
    return found


def _map_ratio(arguments: argparse.Namespace) -> float | None:
    """The ratio that --ratio asks for in a map of positions; None lets the mapper learn it from the images."""
    if arguments.ratio == "none":
        return 1.0
    if arguments.ratio in (None, "auto"):
        return None
    try:
        return MatchOptions(max_ratio=float(arguments.ratio)).max_ratio
    except ValueError as error:
        raise InputError(f"--ratio takes none, auto or a number in (0, 1], got {arguments.ratio!r} ({error})") from None


def _no_map_facts(images: int, no_map: NoMap) -> dict:
    check = no_map.check and no_map.check.as_json()
    reason = advised(no_map.reason, no_map.remedy)
    return {"images": images, "registered": 0, "reason": reason, "left_out": dict(no_map.left_out), "check": check}
