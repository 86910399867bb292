"""`veil evaluate tiles`: held-out photographs from tiles of several sizes, beside the whole raw map."""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Iterator, Sequence
from itertools import product
from pathlib import Path
from typing import Any

from veil.cli.common import Bar, add_command, add_json, at_least, picture, progress, quiet_colmap, report, say, write_json
from veil.cli.evaluate.queries import extracted_features, other_places, reference_place, stranger_features
from veil.files.scenes import ReferenceScene, read_scene
from veil.report.tiles import ALLOWED_RATIO, NEEDED_SHARE, draw_tiles
from veil.studies.localization.false_acceptance import Fold, QueryProtocol, fold_maps
from veil.studies.localization.tile_localization import (
    TileRow,
    TileSetting,
    TileTrial,
    false_queries,
    raw_trials,
    tile_rows,
    tile_trials,
)
from veil.tiles.tile_format import BITS

EXAMPLES = """\
  veil evaluate tiles lund_door strecha/castle-P19 --json tiles.json --figure tiles.png
  veil evaluate tiles fox --bytes 65536 --bits 4 --strangers photos/ --false 100
"""


def register(protocols: Any) -> None:
    """Add `veil evaluate tiles` to the subparsers `protocols`."""
    parser = add_command(
        protocols,
        "tiles",
        "held-out queries from private tiles, beside the whole raw map",
        "Hold out photographs of each scene in turn, map the others, cut the maps into tiles of several sizes, and localize\n"
        "the held-out photographs in tiles that sketches choose; also on the whole map from raw features. Photographs of the\n"
        "other scenes, of a folder of strangers, and noise must be refused. A minute or two a scene and four settings.",
        EXAMPLES,
    )
    parser.add_argument("scenes", type=Path, nargs="+", metavar="SCENE", help="folders with reference cameras")
    parser.add_argument("--bytes", type=at_least(1000), nargs="+", default=[65536, 131072, 262144], help="of a tile")
    parser.add_argument("--axes", type=at_least(2), nargs="+", default=[64], help="of descriptors (default 64)")
    parser.add_argument("--bits", type=int, choices=BITS, nargs="+", default=[8, 4], help="along each axis (default 8 4)")
    parser.add_argument("--asked", type=at_least(1), nargs="+", default=[4], help="tiles of a localization (default 4)")
    parser.add_argument("--folds", type=at_least(2), default=3, help="photographs are held out in so many turns (default 3)")
    parser.add_argument("--strangers", type=Path, metavar="FOLDER", help="photographs of none of these places")
    parser.add_argument(
        "--false", type=at_least(0), default=12, metavar="N", help="photographs of elsewhere, a map (default %(default)s)"
    )
    parser.add_argument("--noise", type=at_least(0), default=3, help="noise queries of either kind, a map (default 3)")
    parser.add_argument(
        "--same-place", nargs="+", action="append", default=[], metavar="NAME", help="scenes not asked of each other"
    )
    parser.add_argument("--max-features", type=at_least(100), default=4096, help="per image (default %(default)s)")
    parser.add_argument("--first-octave", type=int, default=0, help="-1 doubles the image first (default %(default)s)")
    parser.add_argument("--figure", type=picture, metavar="FILE", help="draw accuracy against bytes (.png or .svg)")
    add_json(parser)
    parser.set_defaults(run=_tiles)


def _tiles(arguments: argparse.Namespace) -> int:
    """Run the command; exit code 0."""
    quiet_colmap()
    settings = [
        TileSetting(tile_bytes=size, axes=axes, bits=bits, asked=asked)
        for axes, bits, asked, size in product(arguments.axes, arguments.bits, arguments.asked, arguments.bytes)
    ]
    for setting in settings:
        _ = setting.cut  # what cannot be is told before the work begins
    scenes = [read_scene(folder) for folder in arguments.scenes]
    others = other_places(scenes, arguments.same_place)
    features = {scene.name: extracted_features(scene, arguments) for scene in scenes}
    strangers = stranger_features(arguments, most=max(arguments.false * arguments.folds, 1))
    trials: list[TileTrial] = []
    for scene in scenes:
        folds = _folds(scene, features[scene.name], arguments)
        foreign = {f"{name}/{photo}": item for name in others[scene.name] for photo, item in features[name].items()}
        false = false_queries(folds, strangers | foreign, most=arguments.false, noise=arguments.noise)
        jobs = [(fold, own, setting) for fold, own in zip(folds, false, strict=True) for setting in settings]
        for fold in folds:
            trials += raw_trials(fold)
        for fold, own, setting in progress(jobs, f"{scene.name}: localizing"):
            trials += tile_trials(fold, setting, own)
        if str(arguments.json) != "-":  # what is done is not lost if the rest is interrupted
            write_json(arguments.json, _record(tile_rows(trials)))
    rows = tile_rows(trials)
    write_json(arguments.json, _record(rows))
    for line in described(rows):
        say(arguments, line)
    if arguments.figure:
        draw_tiles(arguments.figure, rows)
        report(arguments, arguments.figure, "the figure")
    return 0


def _record(rows: Sequence[TileRow]) -> dict:
    """The JSON record of the command."""
    return {"rows": [row.as_json() for row in rows]}


def _folds(scene: ReferenceScene, features: dict, arguments: argparse.Namespace) -> list[Fold]:
    """The maps of one scene that together hold out each photograph once."""
    protocol = QueryProtocol(folds=arguments.folds)
    with tempfile.TemporaryDirectory(prefix="veil-tiles-") as workdir, Bar(f"{scene.name}: mapping") as bar:
        return fold_maps(reference_place(scene, features), protocol, workdir=Path(workdir), progress=bar)


def described(rows: Sequence[TileRow]) -> Iterator[str]:
    """The rows as a table for people, and which settings reach what is needed in all scenes together."""
    head = f"{'scene':16} {'tile':>7} {'axes':>4} {'bits':>4} {'asked':>5} {'tiles':>6} {'kB':>7}"
    yield f"{head}  {'localized':>9}  {'error':>6}  {'false poses':>11}  {'s':>5}"
    for row in rows:
        setting = row.setting
        text = f"{row.scene[:16]:16} {setting.tile_bytes:>7} {setting.axes:>4} {setting.bits:>4} {setting.asked:>5} "
        text += f"{row.tiles:>6.1f} {row.fetched_bytes / 1000:>7.0f}  {f'{row.localized}/{row.raw_localized}':>9}  "
        ratio = "-" if row.error_ratio is None else f"{row.error_ratio:.3f}"
        yield f"{text}{ratio:>6}  {f'{row.false_poses}/{row.false_queries}':>11}  {row.seconds:>5.2f}"
    last = rows[-1].scene
    enough = [
        row
        for row in rows
        if row.scene == last
        and row.localized >= NEEDED_SHARE * row.raw_localized
        and (row.error_ratio or 99.0) <= ALLOWED_RATIO
        and row.false_poses == 0
    ]
    if not enough:
        yield f"no setting localizes {100 * NEEDED_SHARE:g} % with at most {ALLOWED_RATIO:g} times the error and no false pose"
        return
    best = min(enough, key=lambda row: row.fetched_bytes)
    yield (
        f"the fewest bytes that localize {100 * NEEDED_SHARE:g} % with at most {ALLOWED_RATIO:g} times the error and no false "
        f"pose: {best.fetched_bytes / 1000:.0f} kB, tiles of {best.setting.tile_bytes} bytes with {best.setting.axes} axes of "
        f"{best.setting.bits} bits"
    )
