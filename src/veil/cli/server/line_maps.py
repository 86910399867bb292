"""`veil map` for messages that hide their positions: resumable, several models, images added to an existing map."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Literal

from veil.cli.common import Bar, named_facts, report, say, say_focals, write_json
from veil.cli.server.map_options import MakeMap, asked_pairs, asked_ratio, matching_work
from veil.cli.server.map_writing import (
    GravityReadingsJson,
    MadeMapJson,
    MapOutput,
    further_models,
    gravity_facts,
    say_gravity,
)
from veil.errors import InputError
from veil.files.atomic import read_bytes
from veil.files.maps.checkpoints import Checkpoints, run_key, unfinished_folder
from veil.json_records.values import Reasons
from veil.matching.ratio import calibrated
from veil.places.built_maps import BuiltMap, MappingOptions
from veil.places.held_map import Map
from veil.places.line_mapping import EVERY_MATCH, map_lines
from veil.places.maps import NoMap
from veil.places.pairs.images import LoadedImage
from veil.places.uploads import message_files
from veil.scene import LineMapCheck, LineMapCheckJson


def map_messages(arguments: MakeMap, loaded: Mapping[str, LoadedImage], skipped: Mapping[str, str], output: MapOutput) -> int:
    """Run `veil map` on messages that were read; `skipped` says why others were left out. Returns the exit code."""
    digests = _digests(arguments.input, skipped)
    add_to = Map.read(arguments.add_to) if arguments.add_to else None
    options = MappingOptions(
        seed=arguments.seed,
        workers=arguments.workers,
        pairs=asked_pairs(arguments, len(loaded)),
        cluster_size=arguments.cluster_size,
        max_ratio=_max_ratio(arguments, loaded),
    )
    cut = f" clusters={options.cluster_size}" if len(loaded) > options.cluster_size and add_to is None else ""
    key = run_key([*digests, (_key(options) + cut).encode(), str(arguments.add_to).encode()])
    checkpoints = Checkpoints(unfinished_folder(arguments.output), key)
    with matching_work(arguments, loaded) as work:
        built = map_lines(loaded, options=options, add_to=add_to, unfinished=checkpoints, work=work, steps=Bar)
        if isinstance(built, NoMap):
            raise InputError(f"no map: {built.reason}", remedy=built.remedy)
        models = [built.map, *built.further, *further_models(arguments.add_to)]
        output.write(arguments, [item.scene for item in models], add_to)
        _tell(arguments, built, len(loaded) + (len(add_to.scene.images) if add_to else 0), skipped)
    return 0


def _digests(path: Path, skipped: Mapping[str, str]) -> list[bytes]:
    """Names with hashes of a run's messages, without those that were `skipped`, some of which cannot even be read."""
    files = [file for file in message_files(path) if file.name not in skipped]
    return [file.name.encode() + hashlib.sha256(read_bytes(file)).digest() for file in files]


def _key(options: MappingOptions) -> str:
    """Text of the options that change a run's results: an unfinished run is continued only if it is the same."""
    return f"lines 1 seed={options.seed} gravity_sigma_deg={options.gravity_sigma_deg!r} max_ratio={options.max_ratio!r}"


def _max_ratio(arguments: MakeMap, loaded: Mapping[str, LoadedImage]) -> float | None:
    """The ratio that --ratio asks for; None without it: then it is calibrated where there is a calibration, else unlimited."""
    ratio = asked_ratio(arguments)
    if ratio == "auto":
        forms = [image.form for image in loaded.values()]
        return calibrated(forms[0], forms[-1])
    return EVERY_MATCH if ratio == "none" else ratio


class LineMapJson(MadeMapJson):
    """A map from lines."""

    lines: Literal[True]
    models: list[list[str]]
    refused: Reasons
    check: LineMapCheckJson
    gravity: GravityReadingsJson


def _tell(arguments: MakeMap, built: BuiltMap, images: int, skipped: Mapping[str, str]) -> None:
    scene, check = built.map.scene, built.check
    assert built.readings is not None and isinstance(check, LineMapCheck)
    facts: LineMapJson = {
        "images": images,
        "skipped": dict(skipped),
        "registered": len(scene.images),
        "points": len(scene.points),
        "observations": scene.observation_count,
        "mean_reprojection_error_px": scene.mean_reprojection_error_px,
        "public": scene.is_public,
        "lines": True,
        "models": [sorted(item.scene.images) for item in (built.map, *built.further)],
        "refused": dict(built.left_out),
        "check": check.as_json(),
        "gravity": gravity_facts(built.readings),
        "reasons": list(built.reasons),
        **named_facts([*(name for item in (built.map, *built.further) for name in item.scene.images), *built.left_out]),
    }
    write_json(arguments.json, facts)
    say_gravity(arguments, built.readings)
    for name, reason in sorted(built.left_out.items()):
        say(arguments, f"{name} is not in the map: {reason}")
    say(
        arguments,
        f"{facts['registered']} of {facts['images']} images, {facts['points']} points from lines alone, "
        f"{scene.mean_reprojection_error_px:.2f} px mean distance to the lines",
    )
    say(arguments, check.described())
    say_focals(arguments, check.contradicted_focals)
    for doubt in check.doubts:
        say(arguments, f"do not rely on it: {doubt}")
    for number, item in enumerate(built.further, start=2):
        say(arguments, f"model {number}: {len(item.scene.images)} more images that share too little with the first")
    for reason in built.reasons:
        say(arguments, reason)
    report(arguments, arguments.output, "the private map")
