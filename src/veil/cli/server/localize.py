"""`veil localize`: the pose of an upload on a map, or a reason why there is none."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np

from veil.cli.common import (
    EXIT_NO_POSE,
    EXIT_OK,
    Bar,
    at_least,
    by_message,
    named_facts,
    quiet_colmap,
    say,
    tell_skipped,
    write_json,
)
from veil.cli.device.tile_queries import InTiles, localize_in_fetched, map_or_tiles
from veil.cli.input_options import ALONE, BY_DISTANCE, LOCALIZE, WORDS, require_applicable
from veil.cli.records import add_record_command, json_file, names_file, option, poses_file, positional, strict_flag
from veil.cli.remedies import advised
from veil.cli.server.index import read_dictionary
from veil.cli.server.map_options import AskedMatcher, asks_for_network, load_matcher, matching_options
from veil.cli.server.pose_rows import LocalizeJson, QueryJson, pose_line, pose_row, report_poses
from veil.device.doors import published, queries
from veil.errors import InputError, Remedy
from veil.files.atomic import read_bytes
from veil.files.codebooks import read_codebook
from veil.files.photographs.frame_motions import motions_of, read_frame_motions
from veil.forms import Subsets
from veil.geometry.rigid import Rigid
from veil.matching.lightglue import LightGlue
from veil.matching.placed_points import require_raw
from veil.places.held_map import Map, index_for
from veil.places.localization import POSITION_SECONDS, WORD_SECONDS, localize_loaded
from veil.places.pairs.images import LoadedImage
from veil.places.poses.answer import Localization, NoPose
from veil.places.poses.options import LocalizeOptions, PositionOptions, WordOptions
from veil.places.sequences import localize_loaded_sequence
from veil.wire.sequence import Sequence, decode_sequence, holds_sequence

EXAMPLES = """\
  veil localize map/ upload/3f2a....veil
  veil localize map/ queries/*.veil --json poses.json
  veil localize map/ queries/*.veil --names names.csv --write-poses poses.txt   by photograph, as hloc and COLMAP write poses
  veil localize map/ words.veil --dictionary dictionary.npz   a query in words; once for all: `veil index`
  veil localize map/ words.veil --near 1.5 0 -2               among the three images of the map nearest to this place
  veil localize map/ positions.veil --near-images a.jpg b.jpg   of `privatize --no-descriptors`
  veil localize map/ frames/*.veil --sequence poses.csv        several frames as one camera; a line of poses.csv:
                                                              frame,r11,r12,r13,r21,r22,r23,r31,r32,r33,tx,ty,tz
  veil localize map/ sequence.veil --motion-scale 0.31        one message of a sequence; a meter is 0.31 units of the map
  veil localize map/ features.h5 --matcher lightglue           raw features on a public map, matched by a network
  veil localize tiles:tiles/ photo.jpg                        on the device, in tiles of a public map; nothing of it leaves
  veil localize tiles:https://a.example.org/v1/tiles/station,https://b.example.org/v1/tiles/station photo.jpg
"""


@dataclass(frozen=True, kw_only=True)
class Localize(InTiles, AskedMatcher):
    """Estimate the pose of each query. A pose is returned only if chance cannot explain its inliers; otherwise the
    reason is printed and the exit code is 3. In tiles, photographs are localized on this device, and nothing of
    them leaves.
    """

    map: Path | str = positional(
        "a folder that `veil map` wrote, tiles:FOLDER, or tiles:https://...[,https://...] of one server or several",
        parse=map_or_tiles,
    )
    queries: tuple[Path, ...] = positional(".veil messages, or raw features (.h5); in tiles photographs or raw features")
    codebook: Path | None = option("codebook of the queries (default: the bundled one)", metavar="FILE")
    dictionary: str | None = option("words: dictionary of the queries, if the map has no index for it", metavar="FILE")
    max_seconds: float | None = option(
        f"words, positions: processor time of a search (default {WORD_SECONDS:g}, positions alone "
        f"{POSITION_SECONDS:g}; 0: no limit)",
        metavar="S",
    )
    near: tuple[float, float, float] | None = option(
        "words, positions, tiles: where the query is about, in the map's coordinates", metavar=("X", "Y", "Z")
    )
    near_images: tuple[str, ...] | None = option("words, positions: images of the map that are near", metavar="NAME")
    nearest: int = option("images that --near takes (default 3)", default=3, parse=at_least(1), metavar="N")
    search: Literal["index", "all"] = option(
        "subspaces and raw features: match the images that the map's index names, or all (default index, "
        "where the map has one)",
        default="index",
    )
    sequence: Path | None = option(
        "the queries are frames of one camera, and this table has their motions cam_from_rig: columns frame, r11 to r33 (the "
        "rotation by rows) and tx, ty, tz, the frame being the query's name",
        metavar="POSES.CSV",
    )
    motion_scale: float = option(
        "sequences: units of the map in one unit of the motions (default %(default)g)", default=1.0, metavar="K"
    )
    strict: bool = strict_flag()
    names: Path | None = names_file()
    write_poses: Path | None = poses_file()
    json: Path | None = json_file()


def register(commands) -> None:  # type: ignore[no-untyped-def]
    """Add `veil localize` to the parser's commands."""
    summary = "upload + map -> a pose, or a reason why there is none"
    add_record_command(commands, "localize", summary, EXAMPLES, Localize, _localize)


def _localize(arguments: Localize) -> int:
    if isinstance(arguments.map, str):
        return localize_in_fetched(arguments)
    quiet_colmap()
    asked = asks_for_network(arguments)
    where = Map.read(arguments.map)
    frames = _frames(arguments)
    if frames is not None:
        return _localize_frames(arguments, where, *frames)
    network: LightGlue | None = None
    rows: list[QueryJson] = []
    poses: dict[str, Rigid] = {}
    skipped: dict[str, str] = {}
    try:
        for name, query in queries(list(arguments.queries), strict=arguments.strict, skipped=skipped):
            start = time.perf_counter()
            try:
                require_applicable(arguments, LOCALIZE, _kind(query), name)
                if asked:
                    network = _matcher(arguments, query, where, network)
                answer = _answer(arguments, query, where, network)
            except InputError as error:  # of another space or dictionary, or lines without gravity
                if arguments.strict or len(arguments.queries) == 1:
                    raise
                skipped[name] = advised(error)
                continue
            rows.append(pose_row(name, answer, time.perf_counter() - start))
            say(arguments, pose_line(name, answer))
            if isinstance(answer, Localization):
                poses[name] = answer.cam_from_world
    finally:  # a query that cannot be read takes nothing from the others
        tell_skipped(skipped)
        record: LocalizeJson = {"queries": rows, "skipped": skipped, **named_facts(row["name"] for row in rows)}
        write_json(arguments.json, record)
        report_poses(arguments, arguments.write_poses, poses)
    if not rows:
        raise InputError(f"none of the {len(skipped)} queries could be used; the reasons stand above")
    return EXIT_NO_POSE if skipped or any(row["status"] != "localized" for row in rows) else EXIT_OK


def _frames(arguments: Localize) -> tuple[list[str], Sequence[LoadedImage]] | None:
    """Names and frames of a sequence, of one message or with a table of motions; None where each query is asked alone."""
    first = arguments.queries[0]
    data = read_bytes(first) if len(arguments.queries) == 1 and first.suffix == ".veil" and first.is_file() else b""
    if holds_sequence(data):
        if arguments.sequence is not None:
            raise InputError(
                f"{first} holds the motions of its frames", remedy=Remedy("leave out", "localize_sequence.sequence")
            )
        own = decode_sequence(data)
        names = [f"{first.stem}.{number}" for number in range(1, len(own) + 1)]
        return names, Sequence(frames=tuple(map(published, own.frames)), cam_from_rig=own.cam_from_rig)
    if arguments.sequence is None:
        return None
    if asks_for_network(arguments):
        raise InputError(
            "frames of a sequence are matched by nearest neighbors", remedy=Remedy("leave out", "map_images.network")
        )
    images = dict(queries(list(arguments.queries), strict=True, skipped={}))
    motions = motions_of(list(images), read_frame_motions(arguments.sequence), arguments.sequence)
    return list(images), Sequence(frames=tuple(images.values()), cam_from_rig=tuple(motions))


def _localize_frames(arguments: Localize, where: Map, names: list[str], sequence: Sequence[LoadedImage]) -> int:
    """Localize frames as one camera, and tell the pose of each."""
    start = time.perf_counter()
    kind = _kind(sequence.frames[0])
    require_applicable(arguments, LOCALIZE, kind, names[0])
    seconds = _seconds(arguments, POSITION_SECONDS if kind == ALONE else WORD_SECONDS)
    form = sequence.frames[0].form
    by_distance = LocalizeOptions(**vars(matching_options(arguments, form, where.form)), workers=arguments.workers)
    with Bar("searching") as bar:
        answer = localize_loaded_sequence(
            sequence.frames,
            sequence.cam_from_rig,
            where,
            scale=arguments.motion_scale,
            options=by_distance,
            word_options=WordOptions(max_seconds=seconds, threads=arguments.workers),
            position_options=PositionOptions(max_seconds=seconds),
            codebook=read_codebook(arguments.codebook) if arguments.codebook else None,
            dictionary=read_dictionary(arguments.dictionary, form.space.descriptor) if arguments.dictionary else None,
            near=_near(arguments, where),
            progress=bar,
        )
    took = time.perf_counter() - start
    told: list[Localization | NoPose] = [answer] * len(names) if isinstance(answer, NoPose) else list(answer.frames)
    for name, one in zip(names, told, strict=True):
        say(arguments, pose_line(name, one))
    rows = [pose_row(name, one, took / len(names)) for name, one in zip(names, told, strict=True)]
    write_json(arguments.json, {"queries": rows, "skipped": {}, **named_facts(row["name"] for row in rows)})
    poses = {name: one.cam_from_world for name, one in zip(names, told, strict=True) if isinstance(one, Localization)}
    report_poses(arguments, arguments.write_poses, poses)
    return EXIT_OK if poses else EXIT_NO_POSE


def _kind(query: LoadedImage) -> str:
    """The kind of a query, by which options apply to it."""
    if not isinstance(query.form, Subsets):
        return BY_DISTANCE
    return ALONE if query.form.mechanism.epsilon == 0 else WORDS


def _matcher(arguments: Localize, query: LoadedImage, where: Map, network: LightGlue | None) -> LightGlue:
    """The network that matches a query with the map, loaded once. Raises InputError where one of them is protected."""
    require_raw(type(query.form), query.positions, what="the query")
    if network is not None:
        return network
    for name, image in where.scene.images.items():
        require_raw(type(image.form), image.keypoints if image.lines is None else image.lines, what=f"the map's image {name}")
    return load_matcher(arguments, where.scene.space)


def _answer(arguments: Localize, query: LoadedImage, where: Map, network: LightGlue | None) -> Localization | NoPose:
    """The answer to one query, with the options that the arguments give for its form."""
    if _kind(query) == ALONE:
        position_options = PositionOptions(max_seconds=_seconds(arguments, POSITION_SECONDS))
        with Bar("searching") as bar:
            return localize_loaded(query, where, position_options=position_options, near=_near(arguments, where), progress=bar)
    if isinstance(query.form, Subsets):
        word_options = WordOptions(max_seconds=_seconds(arguments, WORD_SECONDS), threads=arguments.workers)
        dictionary = read_dictionary(arguments.dictionary, query.form.space.descriptor) if arguments.dictionary else None
        if not isinstance(where.form, Subsets):
            with Bar("indexing") as bar:
                index_for(where, query.form, dictionary=dictionary, progress=bar)
        near = _near(arguments, where)
        with Bar("searching") as bar:
            return localize_loaded(query, where, word_options=word_options, dictionary=dictionary, near=near, progress=bar)
    options = LocalizeOptions(
        **vars(matching_options(arguments, query.form, where.form)),
        workers=arguments.workers,
    )
    codebook = read_codebook(arguments.codebook) if arguments.codebook else None
    with Bar("matching") as bar:
        return localize_loaded(
            query, where, options=options, codebook=codebook, search=arguments.search, network=network, progress=bar
        )


def _seconds(arguments: Localize, usual: float) -> float | None:
    """Processor time of one search; None for no limit."""
    return usual if arguments.max_seconds is None else arguments.max_seconds or None


def _near(arguments: Localize, where: Map) -> list[str] | None:
    """Images of the map that the query is known to be near; None where nothing is known."""
    place = [] if arguments.near is None else where.scene.nearest(np.array(arguments.near), arguments.nearest)
    return [*place, *by_message(dict.fromkeys(arguments.near_images or []))] or None
