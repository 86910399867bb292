"""`veil lab board`: any folders of scenes in every form, on one page."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path

from veil.cli.common import Commands, StepBar, at_least, explain, progress, quiet_colmap, report, say_table, write_json
from veil.cli.records import Record, add_record_command, json_file, option, positional
from veil.cli.remedies import advised
from veil.errors import FileFormatError, InputError, VeilError
from veil.extraction.sift import SiftOptions, extract_sift
from veil.files.atomic import read_bytes, write_text
from veil.files.attack_networks import bundled_learned_model, bundled_pair_network
from veil.files.codebooks import bundled_codebook, bundled_decoys
from veil.files.photographs.gravity import gravity_from_exif
from veil.files.photographs.pictures import read_picture
from veil.geometry.gravity import Gravity
from veil_lab.files.scenes import read_scene
from veil_lab.report.board import board_table, page, scene_facts, sentences
from veil_lab.studies.attacks.form_releases import FormPools
from veil_lab.studies.board.rows import BoardOptions, BoardScene
from veil_lab.studies.board.split import ranked
from veil_lab.studies.board.study import BOARD_FORMS, BoardStudy
from veil_lab.studies.localization.false_acceptance import ReferencePlace

EXAMPLES = """\
  veil lab board untuned/et fox -o board.html
  veil lab board untuned --attacked-features 50 --json board.json         all scenes of a folder
  veil lab board untuned --attacked-features 50 --measured board.json     go on where that run stopped
"""
NAMES = tuple(setting.name for setting in BOARD_FORMS)


@dataclass(frozen=True, kw_only=True)
class Board(Record):
    """Compare all forms on any scenes: what a private map registers, how queries are localized, and what attacks recover. A
    scene is a folder with images/, and reference cameras if there are any; without, the raw map of all its photographs is the
    reference. A hash of each photograph's name decides which ones are mapped and which are queries. A scene that cannot be
    measured has a row that says why.
    """

    data: tuple[Path, ...] = positional("the data: scenes, or folders of scenes", metavar="DATA")
    queries_every: int = option(
        "one photograph in N is a query, in the order of their hashes (default %(default)s)",
        default=4,
        parse=at_least(2),
    )
    forms: tuple[str, ...] = option(
        f"forms to compare (default: all): {'; '.join(NAMES)}", default=NAMES, choices=NAMES, metavar="FORM"
    )
    attacked_features: int = option(
        "features of each photograph that are attacked (default %(default)s)", default=100, parse=at_least(10)
    )
    photographs: int = option(
        "photographs taken of a scene at most, in the order of their hashes (default %(default)s)",
        default=20,
        parse=at_least(4),
    )
    seed: int = option("seed of releases and of attacked features (default %(default)s)", default=0, parse=at_least(0))
    measured: Path | None = option("JSON of a run that stopped: its scenes are not measured again", metavar="FILE")
    output: Path | None = option("page to write (.html)", short="-o", metavar="FILE")
    json: Path | None = json_file()


def register(actions: Commands) -> None:
    """Add `veil lab board` to the subparsers `actions`."""
    add_record_command(actions, "board", "any scenes in every form, on one page", EXAMPLES, Board, _board)


def _board(arguments: Board) -> int:
    """Run the command; exit code 0, also if no scene could be measured."""
    quiet_colmap()
    options = BoardOptions(queries_every=arguments.queries_every, features=arguments.attacked_features, seed=arguments.seed)
    pools = FormPools.split(bundled_codebook(), bundled_decoys())
    study = BoardStudy(
        pools=replace(pools, learned=bundled_learned_model(), pairs=bundled_pair_network()),
        dictionary=bundled_codebook(),
        settings=[setting for setting in BOARD_FORMS if setting.name in arguments.forms],
        options=options,
    )
    finished = _finished(arguments)
    scenes: list[BoardScene] = []
    folders = named(scene_folders(arguments.data))
    for number, (name, folder) in enumerate(folders, start=1):
        count = f"{number} of {len(folders)}: {name}"
        scenes.append(finished[name] if name in finished else _scene(study, name, folder, arguments.photographs, count))
        if str(arguments.json) != "-":  # what is done is not lost if the rest is interrupted
            write_json(arguments.json, _as_json(arguments, scenes))
        if arguments.output:
            write_text(arguments.output, page(scenes, options))
    write_json(arguments.json, _as_json(arguments, scenes))
    say_table(arguments, board_table(scenes))
    explain(arguments, *sentences(options), *map(scene_facts, scenes))
    if arguments.output:
        report(arguments, arguments.output, "the page")
    return 0


def _as_json(arguments: Board, scenes: Iterable[BoardScene]) -> dict:
    return {**_asked(arguments), "scenes": [scene.as_json() for scene in scenes]}


def _asked(arguments: Board) -> dict:
    """The options that say what is measured of a scene, as the JSON holds them."""
    return {
        "queries_every": arguments.queries_every,
        "forms": list(arguments.forms),
        "attacked_features": arguments.attacked_features,
        "photographs": arguments.photographs,
        "seed": arguments.seed,
    }


def _finished(arguments: Board) -> dict[str, BoardScene]:
    """The scenes of the run that goes on, by name. Raises InputError if its options were others."""
    path = arguments.measured
    if path is None:
        return {}
    try:
        content = json.loads(read_bytes(path))
        options = {key: content.get(key) for key in _asked(arguments)}
        scenes = [BoardScene.from_json(scene) for scene in content["scenes"]]
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise FileFormatError(f"{path} is no JSON of `veil lab board` ({error!r}); leave out --measured") from None
    for key, asked in _asked(arguments).items():
        if options[key] != asked:
            told = f"{key.replace('_', ' ')}: {options[key]!r} in the file, {asked!r} now"
            raise InputError(f"{path} was measured with other options ({told}); give the same ones, or leave out --measured")
    return {scene.scene: scene for scene in scenes if scene.rows}


def scene_folders(data: Iterable[Path]) -> list[Path]:
    """The scenes among some folders and in them; a folder that is none and holds none stands for itself."""
    folders: list[Path] = []
    for folder in data:
        inside = [] if (folder / "images").is_dir() else sorted(path.parent for path in folder.glob("*/images"))
        folders += inside or [folder]
    return list(dict.fromkeys(folders))


def named(folders: list[Path]) -> list[tuple[str, Path]]:
    """Names of scenes with their folders: that of the folder, with the one above it where two scenes have one name."""
    counts = Counter(folder.resolve().name for folder in folders)
    paths = [folder.resolve() for folder in folders]
    return [
        ("/".join(path.parts[-2:]) if counts[path.name] > 1 else path.name, folder)
        for path, folder in zip(paths, folders, strict=True)
    ]


def _scene(study: BoardStudy, name: str, folder: Path, most: int, count: str) -> BoardScene:
    """The rows of one folder, or the reason why there are none; `count` says in the progress which of all scenes it is."""
    try:
        place = _place(name, folder, most, count)
    except VeilError as error:
        return BoardScene(scene=name, reason=advised(error))
    with StepBar(count) as bar:
        return study.scene(place, progress=lambda step, done, total: bar(f"{count}: {step}", done, total))


def _place(name: str, folder: Path, most: int, count: str) -> ReferencePlace:
    """Features of a scene's photographs, as `veil extract` makes them, with their reference poses and gravity."""
    scene = read_scene(folder)
    names = ranked(scene.pictures, most)
    features, down = {}, {}
    for image in progress(names, f"{count}: extracting"):
        path = scene.pictures[image]
        picture = read_picture(path, camera=scene.cameras.get(image))
        features[image] = extract_sift(picture, SiftOptions(first_octave=None))
        measured = gravity_from_exif(path)
        if image in scene.gravity:
            down[image] = scene.gravity[image]
        elif isinstance(measured, Gravity):
            down[image] = measured.direction
        elif scene.down is not None:
            down[image] = scene.cam_from_world[image].rotation @ scene.down
    poses = {image: pose for image, pose in scene.cam_from_world.items() if image in features}
    return ReferencePlace(name=name, features=features, cam_from_world=poses, down=down)
