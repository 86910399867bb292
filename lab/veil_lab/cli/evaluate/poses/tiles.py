"""`veil evaluate tiles`: held-out photographs from tiles of several sizes, beside the whole raw map."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Literal

from veil.cli.common import (
    Bar,
    Commands,
    at_least,
    explain,
    picture,
    progress,
    quiet_colmap,
    report,
    say,
    say_table,
    write_json,
)
from veil.cli.records import add_record_command, json_file, option
from veil.files.codebooks import bundled_codebook, bundled_decoys
from veil.randomness import Secret, memoized
from veil.report.tables import Name, Number, Table, fixed, numbers
from veil.trials.form_answers import FormSetup
from veil_lab.cli.evaluate.scene_arguments import (
    AskedExtraction,
    AskedFolds,
    AskedSamePlaces,
    AskedScenes,
    extracted_features,
    other_places,
    reference_place,
    stranger_features,
)
from veil_lab.files.scenes import ReferenceScene, read_scene
from veil_lab.report.tiles import ALLOWED_RATIO, NEEDED_SHARE, draw_tiles
from veil_lab.studies.localization.against_raw import AgainstRaw
from veil_lab.studies.localization.false_acceptance import Fold, QueryProtocol, fold_maps
from veil_lab.studies.localization.tile_localization import (
    FORMS,
    FormName,
    FormTrial,
    TileFormRow,
    TileRow,
    TileSetting,
    TileTrial,
    false_queries,
    form_rows,
    form_trials,
    raw_trials,
    tile_rows,
    tile_trials,
)

# Axes of the descriptors' PCA.
PCA_AXES = 64
EXAMPLES = """\
  veil evaluate tiles lund_door strecha/castle-P19 --json tiles.json --figure tiles.png
  veil evaluate tiles fox --bytes 65536 --bits 4 --strangers photos/ --false 100
  veil evaluate tiles lund_door --bytes 131072 --forms subspaces words
  veil evaluate tiles lund_door --bytes 65536 --download 0.5 1 2 --forms none
"""


@dataclass(frozen=True, kw_only=True)
class EvaluateTiles(AskedScenes, AskedExtraction, AskedFolds, AskedSamePlaces):
    """Hold out photographs of each scene in turn, map the others, cut the maps into tiles of several sizes, and localize
    the held-out photographs in tiles that sketches choose; also on the whole map, from raw features, and sent to a
    server in subspaces, lines and words. Photographs of the other scenes, of a folder of strangers, and noise must be
    refused. A minute or two a scene and four settings.
    """

    bytes: tuple[int, ...] = option(
        "bytes of a tile, to try (default 65536 131072 262144)", default=(65536, 131072, 262144), parse=at_least(1000)
    )
    bits: tuple[Literal[4, 8], ...] = option("bits along each axis, to try (default 8 4)", default=(8, 4))
    asked: tuple[int, ...] = option(
        "tiles that every localization asks for, to try (default 4)", default=(4,), parse=at_least(1)
    )
    word_count: tuple[int, ...] | None = option(
        "words of the sketches, to try (default: 64 a tile, 1024 to 4096)", parse=at_least(2)
    )
    download: tuple[float, ...] | None = option(
        "10^6 bytes of all tiles of a map together, to try (default: no limit)", metavar="MB"
    )
    forms: tuple[FormName | Literal["none"], ...] = option(
        "forms in which the same photographs are sent to a server (default: all)", default=FORMS, choices=(*FORMS, "none")
    )
    strangers: Path | None = option("photographs of none of these places", metavar="FOLDER")
    false: int = option(
        "photographs of elsewhere for each map (default %(default)s)", default=12, parse=at_least(0), metavar="N"
    )
    noise: int = option("noise queries of either kind for each map (default %(default)s)", default=3, parse=at_least(0))
    figure: Path | None = option("draw accuracy against bytes (.png or .svg)", parse=picture, metavar="FILE")
    json: Path | None = json_file()


def register(protocols: Commands) -> None:
    """Add `veil evaluate tiles` to the subparsers `protocols`."""
    summary = "held-out queries from private tiles, beside the whole raw map"
    add_record_command(protocols, "tiles", summary, EXAMPLES, EvaluateTiles, _tiles)


def _tiles(arguments: EvaluateTiles) -> int:
    """Run the command; exit code 0."""
    quiet_colmap()
    settings = [
        TileSetting(tile_bytes=size, axes=axes, bits=bits, asked=asked, words=words, download=download)
        for words, axes, bits, asked, size, download in product(
            arguments.word_count or (None,),
            (PCA_AXES,),
            arguments.bits,
            arguments.asked,
            arguments.bytes,
            [round(1e6 * size) for size in arguments.download] if arguments.download else (None,),
        )
    ]
    for setting in settings:
        _ = setting.cut  # what cannot be is told before the work begins
    scenes = [read_scene(folder) for folder in arguments.scenes]
    others = other_places(scenes, arguments.same_place)
    features = {scene.name: extracted_features(scene, max_features=arguments.max_features) for scene in scenes}
    most = max(arguments.false * arguments.folds, 1)
    strangers = stranger_features(arguments.strangers, max_features=arguments.max_features, most=most)
    trials: list[TileTrial] = []
    sent: list[FormTrial] = []
    # A secret of its own: photographs are released in several forms, which a client must never do.
    setup = FormSetup(codebook=bundled_codebook(), decoys=bundled_decoys(), randomness=memoized(Secret.generate()))
    for scene in scenes:
        folds = _folds(scene, features[scene.name], arguments)
        foreign = {f"{name}/{photo}": item for name in others[scene.name] for photo, item in features[name].items()}
        false = false_queries(folds, strangers | foreign, most=arguments.false, noise=arguments.noise)
        jobs = [(fold, own, setting) for fold, own in zip(folds, false, strict=True) for setting in settings]
        for fold in progress(folds, f"{scene.name}: on the whole map"):
            trials += raw_trials(fold)
            sent += form_trials(fold, [name for name in arguments.forms if name != "none"], setup)
        for fold, own, setting in progress(jobs, f"{scene.name}: localizing"):
            trials += tile_trials(fold, setting, own)
        if str(arguments.json) != "-":  # what is done is not lost if the rest is interrupted
            write_json(arguments.json, _record(tile_rows(trials), form_rows(sent, trials)))
    rows, forms = tile_rows(trials), form_rows(sent, trials)
    write_json(arguments.json, _record(rows, forms))
    say_table(arguments, tile_table(rows))
    explain(arguments, enough(rows))
    if forms:
        say(arguments, "")
        say_table(arguments, form_table(rows, forms))
    if arguments.figure:
        draw_tiles(arguments.figure, rows, forms)
        report(arguments, arguments.figure, "the figure")
    return 0


def _record(rows: Sequence[TileRow], forms: Sequence[TileFormRow]) -> dict:
    """The JSON record of the command."""
    return {"rows": [row.as_json() for row in rows], "forms": [row.as_json() for row in forms]}


def _folds(scene: ReferenceScene, features: dict, arguments: EvaluateTiles) -> list[Fold]:
    """The maps of one scene that together hold out each photograph once."""
    protocol = QueryProtocol(folds=arguments.folds)
    with tempfile.TemporaryDirectory(prefix="veil-tiles-") as workdir, Bar(f"{scene.name}: mapping") as bar:
        return fold_maps(reference_place(scene, features), protocol, workdir=Path(workdir), progress=bar)


def tile_table(rows: Sequence[TileRow]) -> Table:
    """The table of settings: what each costs, and what it localizes beside the whole raw map."""
    setting = "tile, bytes", "axes", "bits", "asked", "words"
    cost = "tiles", "manifest, kB", "all, kB", "fetched, kB", "localized", "error to raw's", "false poses", "seconds"
    return Table(
        columns=[Number("#"), Name("scene"), *numbers(*setting, *cost)],
        rows=[
            (
                str(number),
                row.scene,
                *map(str, (row.setting.tile_bytes, row.setting.axes, row.setting.bits, row.setting.asked)),
                str(row.setting.words or "usual"),
                fixed(row.tiles, 1),
                fixed(row.manifest_bytes / 1000, 0),
                fixed(row.all_bytes / 1000, 0),
                fixed(row.fetched_bytes / 1000, 0),
                *_found(row.beside),
                f"{row.false_poses}/{row.false_queries}",
                fixed(row.seconds, 2),
            )
            for number, row in enumerate(rows, start=1)
        ],
        labels=2,
    )


def enough(rows: Sequence[TileRow]) -> str:
    """Which setting reaches what is needed in all scenes together with the fewest bytes, as a sentence."""
    last = rows[-1].scene
    some = [row for row in rows if row.scene == last and is_enough(row.beside) and row.false_poses == 0]
    needed = f"{100 * NEEDED_SHARE:g} % with at most {ALLOWED_RATIO:g} times the error and no false pose"
    if not some:
        return f"no setting localizes {needed}"
    best = min(some, key=lambda row: row.fetched_bytes)
    return (
        f"the fewest bytes that localize {needed}: {best.fetched_bytes / 1000:.0f} kB, tiles of {best.setting.tile_bytes} "
        f"bytes with {best.setting.axes} axes of {best.setting.bits} bits"
    )


def form_table(rows: Sequence[TileRow], forms: Sequence[TileFormRow]) -> Table:
    """The same photographs in the forms that are sent to a server, and in tiles from two servers."""
    cells: list[tuple[str, ...]] = []
    for scene in dict.fromkeys(form.scene for form in forms):
        for form in (item for item in forms if item.scene == scene):
            size, seconds = fixed(form.upload_bytes / 1000, 1), (fixed(form.device_seconds, 2), fixed(form.server_seconds, 2))
            cells.append((scene, form.form, size, "", *_found(form.beside), *seconds))
        for row in (item for item in rows if item.scene == scene):
            setting = row.setting
            name = f"tiles {setting.tile_bytes >> 10} KiB, {setting.bits} bits, {setting.asked} asked"
            sizes = fixed(row.up_bytes / 1000, 3), fixed(row.down_bytes / 1000, 0)
            cells.append((scene, name, *sizes, *_found(row.beside), fixed(row.seconds, 2), ""))
    heads = "up, kB", "down, kB (else a pose)", "localized", "error to raw's", "device, s", "server, s"
    return Table(
        columns=[Name("scene", least=9), Name("what was asked", least=28), *numbers(*heads)],
        rows=cells,
        labels=2,
    )


def _found(beside: AgainstRaw) -> tuple[str, str]:
    """How many photographs were localized beside the raw map's, and the ratio of errors."""
    return f"{beside.localized}/{beside.raw_localized}", fixed(beside.error_ratio, 3)


def is_enough(beside: AgainstRaw) -> bool:
    """Whether answers are as many and as exact as needed beside the raw map's."""
    return beside.localized >= NEEDED_SHARE * beside.raw_localized and (beside.error_ratio or 99.0) <= ALLOWED_RATIO
