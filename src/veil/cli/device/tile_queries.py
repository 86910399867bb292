"""`veil localize tiles:PLACE`: photographs are localized on this device, in tiles that are fetched without telling which."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from veil.cli.common import EXIT_NO_POSE, EXIT_OK, Arguments, quiet_colmap, say, tell, tell_skipped, write_json
from veil.cli.device.extract import CAMERA, with_camera
from veil.cli.input_options import LOCALIZE, TILES_FEATURES, TILES_PHOTOGRAPHS, require_applicable
from veil.cli.records import Record, option
from veil.cli.remedies import advised
from veil.cli.server.map_options import asked_ratio
from veil.cli.server.pose_rows import LocalizeJson, QueryJson, pose_line, pose_row, report_poses
from veil.client.tile_access import TileExit, open_tiles
from veil.device.tiles import PREFIX, TileAnswer, localize_with_tiles
from veil.errors import InputError, VeilError
from veil.extraction import EXTRACTORS, extract
from veil.extraction.sift import SiftOptions
from veil.features import Features
from veil.files.features import holds_features, read_features
from veil.files.photographs.pictures import named_pictures, read_picture
from veil.files.weights import load_network
from veil.geometry.camera import require_readable
from veil.geometry.rigid import Rigid
from veil.ldp.guarantee import FetchGuarantee, NoProof
from veil.places.poses.answer import Localization
from veil.places.poses.options import LocalizeOptions
from veil.space import Space
from veil.tiles.fetching import Fetcher, TileFetcher, fetcher_of


def map_or_tiles(text: str) -> Path | str:
    """The folder of a map, or the text "tiles:..." of a map's tiles (an argparse type)."""
    return text if text.startswith(PREFIX) else Path(text)


@dataclass(frozen=True, kw_only=True)
class InTiles(Record):
    """Options of localization in tiles."""

    camera: str | None = option(f"tiles: {CAMERA}", metavar="MODEL,P1,...")
    fix: tuple[float, float] | None = option("tiles: where the device is about on Earth (degrees)", metavar=("LAT", "LON"))
    within: float = option("tiles: how far from --near or --fix, in the map's units", default=0.0, metavar="D")
    exit: TileExit | None = option(
        "tiles: how they are fetched (default: all at once up to 16 MiB; else from several addresses, or from one server, "
        "without a hint where it offers that)"
    )
    cache: Path | None = option("tiles: keep what is fetched there, for --offline", metavar="FOLDER")
    offline: bool = option("tiles: send nothing, use what --cache holds", default=False)


def localize_in_fetched(arguments: Arguments) -> int:
    """Localize photographs in tiles, with the options of `veil localize`; exit code 3 if one has no pose."""
    quiet_colmap()
    if arguments.matcher != "nearest":
        raise InputError(
            "tiles hold points and how they look, and no keypoints of images, which LightGlue reads; leave --matcher out, or "
            "give the folder of a public map"
        )
    for given in arguments.queries:
        kind = TILES_FEATURES if given.is_file() and holds_features(given) else TILES_PHOTOGRAPHS
        require_applicable(arguments, LOCALIZE, kind, given)
    if arguments.offline and arguments.cache is None:
        raise InputError("--offline uses what is kept on this device; say where with --cache")
    fetcher = _fetcher(arguments)
    rows: list[QueryJson] = []
    poses: dict[str, Rigid] = {}
    refused: dict[str, dict[str, str]] = {}
    skipped: dict[str, str] = {}
    for name, features in _features(arguments, fetcher.manifest.coding.raw_space, skipped):
        start = time.perf_counter()
        answer = _answer(arguments, features, fetcher)
        rows.append(pose_row(name, answer.pose, time.perf_counter() - start))
        say(arguments, pose_line(name, answer.pose))
        if isinstance(answer.pose, Localization):
            poses[name] = answer.pose.cam_from_world
        for index, why in answer.refused.items():
            tell(f"veil: {name}: tile {index} was not used: {why}")
            refused.setdefault(name, {})[str(index)] = why
    tell_skipped(skipped)
    if not rows:
        raise InputError(f"none of the {len(skipped)} photographs could be used; the reasons stand above")
    sentence = "Nothing was sent." if arguments.offline else promise(fetcher.guarantee)
    record: LocalizeJson = {
        "queries": rows,
        "skipped": skipped,
        "tiles": {
            "version": fetcher.manifest.version,
            "asked": 0 if arguments.offline else fetcher.manifest.asked,
            "record_bytes": fetcher.manifest.record_bytes,
            "guarantee": sentence,
            "refused": refused,
        },
    }
    write_json(arguments.json, record, private=True)
    report_poses(arguments, arguments.write_poses, poses)
    say(arguments, f"localized on this device, in tiles of a public map. {sentence}")
    return EXIT_NO_POSE if skipped or any(row["status"] != "localized" for row in rows) else EXIT_OK


def _fetcher(arguments: Arguments) -> Fetcher:
    """The fetcher for tiles in a folder or at an address. Raises InputError for an address offline."""
    place = arguments.map.removeprefix(PREFIX)
    if not place.startswith(("http://", "https://")):
        if arguments.exit not in (None, "region"):
            raise InputError(f"a folder is read as a whole, and nobody is asked; --exit {arguments.exit} is for addresses")
        return fetcher_of(open_tiles(Path(place), cache=arguments.cache, offline=arguments.offline))
    if arguments.offline:
        raise InputError("--offline sends nothing, and the manifest is at an address; keep a copy of it in a folder")
    return fetcher_of(open_tiles(place.split(","), exit=arguments.exit, cache=arguments.cache))


def _answer(arguments: Arguments, features: Features, fetcher: Fetcher) -> TileAnswer:
    """The answer to one photograph, with the options of the arguments."""
    ratio = asked_ratio(arguments)
    max_ratio = ratio if isinstance(ratio, float) else None
    return localize_with_tiles(
        features,
        TileFetcher(fetcher),
        near=None if arguments.near is None else np.array(arguments.near),
        within=arguments.within,
        fix=None if arguments.fix is None else (arguments.fix[0], arguments.fix[1]),
        options=LocalizeOptions(max_ratio=max_ratio, threads=arguments.workers),
    )


def _features(arguments: Arguments, space: Space, skipped: dict[str, str]) -> Iterator[tuple[str, Features]]:
    """Names and raw features of all photographs, extracted as the map's were; why others have none is added to `skipped`."""
    alone = len(arguments.queries) == 1
    if arguments.camera:
        require_readable(arguments.camera)  # a slip of the user, and no fault of each photograph
    for given in arguments.queries:
        if given.is_file() and holds_features(given):
            yield from read_features(given)
            continue
        if space.descriptor not in EXTRACTORS:
            raise InputError(f"the map holds {space.descriptor} descriptors; extract them, and give the features (.h5)")
        options, network = SiftOptions(normalization=space.normalization), load_network(space.descriptor)
        for name, path in named_pictures([given]):
            try:
                yield name, extract(with_camera(read_picture(path), arguments.camera, path), space.descriptor, options, network)
            except VeilError as error:
                if arguments.strict or alone:
                    raise
                skipped[name] = advised(error)


def promise(guarantee: FetchGuarantee) -> str:
    """Promise of a fetch, as a sentence."""
    return guarantee.reason if isinstance(guarantee, NoProof) else guarantee.sentence
