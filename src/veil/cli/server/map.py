"""`veil map`: maps from uploads or raw features."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import numpy as np

from veil.cli.common import (
    NamedJson,
    by_message,
    named_facts,
    quiet_colmap,
    report,
    say,
    say_focals,
    say_left_out,
    say_vague,
    tell_skipped,
    write_json,
)
from veil.cli.input_options import LINES, MAP, POSITIONS, require_applicable
from veil.cli.records import add_record_command
from veil.cli.remedies import advised
from veil.cli.server.map_options import (
    MakeMap,
    MatchingFactsJson,
    TimedSteps,
    asked_pairs,
    asked_ratio,
    asks_for_network,
    load_matcher,
    matching_facts,
    matching_work,
)
from veil.cli.server.map_writing import (
    GravityReadingsJson,
    MadeMapJson,
    further_models,
    gravity_facts,
    map_output,
    say_gravity,
)
from veil.device.doors import load_on_demand
from veil.errors import InputError
from veil.files.photographs.gravity import read_gravity
from veil.files.photographs.posed_models import PosedModel, read_model
from veil.forms import Lines
from veil.geometry.camera import described_focals
from veil.json_records.values import Reasons
from veil.places.building import map_posed, map_positions
from veil.places.built_maps import BuiltMap, MappingOptions
from veil.places.growth import add_positions
from veil.places.held_map import Map
from veil.places.images_on_demand import GIB
from veil.places.maps import NoMap
from veil.places.pairs.images import PlacedImages
from veil.places.uploads import comparable
from veil.scene import MapCheck, MapCheckJson

EXAMPLES = """\
  veil map upload/ -o map/            a private map from messages of `veil privatize`
  veil map features.h5 -o map/        a public map from raw features
  veil map features.h5 -o map/ --matcher lightglue   matched by a network, which reads raw features alone
  veil map lines/ -o map/             from messages of `veil privatize --lines`, no position sent
  veil map features.h5 -o map/ --gravity gravity.csv   a public map that serves queries in words with lines
  veil map more/ --add-to map/ -o map2/   the same map with more images
  veil map upload/ -o map/ --pairs retrieval --matches kept/   pairs of images that look alike; keep their matches
  veil map features.h5 -o map/ --known-poses sparse/0   at the poses of a COLMAP model, which stay as they are
  veil map upload/ -o map/ --mapper global   by COLMAP's global mapper
  veil map upload/ -o map/ --locate   also images that no pair brings in, where nothing is built twice
  veil map upload/ -o map/ --pairs pairs.txt --engine dask:tcp://10.0.0.5:8786   listed pairs, on a cluster
"""


def register(commands) -> None:  # type: ignore[no-untyped-def]
    """Add `veil map` to the parser's commands."""
    add_record_command(commands, "map", "uploads or raw features -> a map", EXAMPLES, MakeMap, _map)


def _map(arguments: MakeMap) -> int:
    quiet_colmap()
    asked = asks_for_network(arguments)
    output = map_output(arguments)
    budget = round(arguments.memory * GIB)
    all_uploads = load_on_demand(arguments.input, budget_bytes=budget, strict=arguments.strict)
    uploads = comparable(all_uploads, strict=arguments.strict)
    loaded = uploads.images
    tell_skipped(uploads.skipped)
    say(arguments, described_focals(image.camera for image in loaded.values()))
    if asked:
        PlacedImages(loaded)  # says what a network cannot match
    in_lines = all(isinstance(image.positions, Lines) for image in loaded.values())
    require_applicable(arguments, MAP, LINES if in_lines else POSITIONS, arguments.input)
    if arguments.mapper != "incremental" and arguments.add_to:
        raise InputError(
            f"--mapper {arguments.mapper} makes new maps of positions; images are added to a map by the incremental mapper: "
            "leave it out"
        )
    model = _known_poses(arguments)
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
        if model is not None:
            cameras, poses = model.cameras, model.poses
            built = map_posed(loaded, cameras, poses, options=options, gravity=gravity, work=work, network=network, steps=steps)
        elif base is None:
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
            more: MatchingFactsJson = {} if base else matching_facts(arguments, work, steps, models, verified, images)
            _tell_map(arguments, built, images, uploads.skipped, more)
    if isinstance(built, NoMap):
        write_json(arguments.json, no_map_facts(images, built, uploads.skipped))
        say_left_out(arguments, built.left_out)
        raise InputError(f"no map: {built.reason}", remedy=built.remedy)
    return 0


class PositionMapJson(MatchingFactsJson, MadeMapJson):
    """A map of positions."""

    check: MapCheckJson | None
    gravity: GravityReadingsJson | None


def _tell_map(arguments: MakeMap, built: BuiltMap, images: int, skipped: Mapping[str, str], more: MatchingFactsJson) -> None:
    scene, readings = built.map.scene, built.readings
    facts: PositionMapJson = {
        "images": images,
        "skipped": dict(skipped),
        "registered": len(scene.images),
        "points": len(scene.points),
        "observations": scene.observation_count,
        "mean_reprojection_error_px": scene.mean_reprojection_error_px,
        "public": scene.is_public,
        "check": None if scene.check is None else scene.check.as_json(),
        "gravity": None if readings is None else gravity_facts(readings),
        "reasons": list(built.reasons),
        **named_facts([*scene.images, *(scene.check.left_out if scene.check is not None else ())]),
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
        say_focals(arguments, scene.check.contradicted_focals)
        say_vague(arguments, scene.check)
        say_left_out(arguments, scene.check.left_out)
    for number, item in enumerate(built.further, start=2):
        say(arguments, f"model {number}: {len(item.scene.images)} more images that do not join the first")
    for reason in built.reasons:
        say(arguments, reason)
    report(arguments, arguments.output, "the public map" if scene.is_public else "the private map")


def _known_poses(arguments: MakeMap) -> PosedModel | None:
    """The model of --known-poses; None without it. Raises InputError for options and images that do not go with it."""
    if arguments.known_poses is None:
        return None
    others = {"--add-to": arguments.add_to, "--locate": arguments.locate, "--mapper": arguments.mapper != "incremental"}
    if asked := [name for name, value in others.items() if value]:
        raise InputError(f"{', '.join(asked)} looks for poses, and --known-poses keeps the model's: leave one of them out")
    return read_model(arguments.known_poses)


def _gravity_of(arguments: MakeMap, names: list[str]) -> dict[str, np.ndarray] | None:
    """The readings of --gravity; None without it. Raises InputError, before any long work, if they are of other images."""
    if not arguments.gravity:
        return None
    readings = by_message(read_gravity(arguments.gravity))
    if not set(readings) & set(names):
        raise InputError(f"{arguments.gravity} names none of the images, which are {', '.join(names[:3])}; check its names")
    return readings


def _map_ratio(arguments: MakeMap) -> float | None:
    """The ratio that --ratio asks for in a map of positions; None lets the mapper learn it from the images."""
    ratio = asked_ratio(arguments)
    if ratio == "none":
        return 1.0
    return None if ratio == "auto" else ratio


class NoMapJson(NamedJson):
    """No map of positions, and why."""

    images: int
    registered: Literal[0]
    reason: str
    left_out: Reasons
    check: MapCheckJson | None
    skipped: Reasons


def no_map_facts(images: int, no_map: NoMap, skipped: Mapping[str, str]) -> NoMapJson:
    """The record of docs/reference/json.md where a number of images gave no map."""
    return {
        "images": images,
        "registered": 0,
        "reason": advised(no_map.reason, no_map.remedy),
        "left_out": dict(no_map.left_out),
        "check": None if no_map.check is None else no_map.check.as_json(),
        "skipped": dict(skipped),
        **named_facts(no_map.left_out),
    }
