"""`veil evaluate answers`: which objects stand in a map, and where, by its answers to views of them, or to photographs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np

from veil.cli.common import Commands, StepBar, at_least, explain, quiet_colmap, say, say_table, write_json
from veil.cli.records import Record, add_record_command, json_file, option, positional
from veil.errors import InputError
from veil.extraction.flat_objects import Gray
from veil.extraction.picture import Picture
from veil.files.codebooks import bundled_codebook, bundled_decoys
from veil.files.photographs.pictures import named_pictures, read_picture
from veil.geometry.camera import Camera, resized
from veil.report.tables import Name, Table, numbers, percent
from veil_lab.cli.evaluate.scene_arguments import vertical
from veil_lab.files.scenes import ReferenceScene, read_scene
from veil_lab.studies.answers.asking import FORMS, AnswerStudyOptions, PosedPlace, QueryForm
from veil_lab.studies.answers.in_photographs import PaintedRow, PaintedStudy, painted_rows
from veil_lab.studies.answers.planting import cut_objects
from veil_lab.studies.answers.rows import AnswerDefenseRow, MembershipRow, TimeRow, defense_rows, membership_rows, time_rows
from veil_lab.studies.answers.separation import Separation
from veil_lab.studies.answers.study import AnswerStudy
from veil_lab.studies.attacks.form_releases import FormPools
from veil_lab.studies.board.split import ranked

EXAMPLES = """\
  veil evaluate answers strecha/fountain-P11 lund_door --objects photos
  veil evaluate answers strecha/castle-P19 --objects photos --count 20 --form subspaces --json answers.json
  veil evaluate answers strecha/castle-P19 --objects photos --count 20 --ask-with photographs
"""
Queries = Literal["views", "photographs"]
QUERIES: tuple[Queries, ...] = "views", "photographs"
NAMES: tuple[QueryForm, ...] = tuple(FORMS)
SIDE_PX, MOST_PHOTOGRAPHS = 1024, 20


@dataclass(frozen=True, kw_only=True)
class EvaluateAnswers(Record):
    """Plant flat objects, cut from photographs, in the photographs of scenes with known cameras, map these, and ask the maps
    with views of each object alone: from consistent poses an attacker reads which objects are there, and where. Half of the
    objects are planted nowhere. The same defenses then meet honest queries, photographs held out of a map. Photographs that
    the map holds, and those of other places, show what answers tell of membership. An attacker with photographs of the place
    paints each object into one, and compares the answer with that to a gray patch there.
    """

    scenes: tuple[Path, ...] = positional("scenes: folders with reference cameras", metavar="SCENE")
    objects: tuple[Path, ...] = option("photographs that objects are cut from", metavar="PHOTOS")
    form: QueryForm = option(
        "form of queries: words go to public maps, lines to private ones (default %(default)s)", default="raw", choices=NAMES
    )
    ask_with: Queries = option(
        "views of each object alone, or photographs of the place with it (default %(default)s)",
        default="views",
        choices=QUERIES,
    )
    count: int = option("objects, half of them absent (default %(default)s)", default=200, parse=at_least(4))
    placements: int = option("places of each object (default %(default)s)", default=3, parse=at_least(1))
    seed: int = option("seed of places, releases and intervals (default %(default)s)", default=0, parse=at_least(0))
    json: Path | None = json_file()


def register(protocols: Commands) -> None:
    """Add `veil evaluate answers` to the subparsers `protocols`."""
    summary = "objects in a map, told by its answers"
    add_record_command(protocols, "answers", summary, EXAMPLES, EvaluateAnswers, _answers)


def _answers(arguments: EvaluateAnswers) -> int:
    """Run the command; exit code 0."""
    quiet_colmap()
    if arguments.count < 2 * len(arguments.scenes):
        raise InputError(f"{len(arguments.scenes)} scenes need two objects each, got {arguments.count}")
    places = [posed_place(read_scene(folder)) for folder in arguments.scenes]
    objects = cut_objects(_gray(arguments.objects), arguments.count, np.random.default_rng(arguments.seed))
    options = AnswerStudyOptions(form=arguments.form, placements=arguments.placements, seed=arguments.seed)
    pools = FormPools.split(bundled_codebook(), bundled_decoys())
    if arguments.ask_with == "photographs":
        return _in_photographs(arguments, PaintedStudy(places, pools, options), objects)
    with StepBar("asking") as bar:
        answers = AnswerStudy(places, pools, options).run(objects, progress=bar)
    rows, members = defense_rows(answers, seed=arguments.seed), membership_rows(answers, seed=arguments.seed)
    times = time_rows(answers, seed=arguments.seed)
    write_json(
        arguments.json,
        {
            "form": arguments.form,
            "defenses": [row.as_json() for row in rows],
            "membership": [row.as_json() for row in members],
            "times": [row.as_json() for row in times],
        },
    )
    first = rows[0]
    say(arguments, f"{first.present} objects planted, {first.placements} times in all, and {first.absent} absent ones")
    say_table(arguments, defense_table(rows))
    say_table(arguments, membership_table(members))
    say_table(arguments, time_table(times))
    explain(
        arguments,
        "AUC: of the number of agreeing views, with 95 % intervals over objects. Told: placements of which two views agree.",
        "Error: of the object's place, as a share of its width and of the map's extent, the median.",
        "Lost: honest queries that are localized without the defense and refused with it.",
        "Times: of a photograph, where shorter is in the map; of an object's views, where longer is in the map.",
    )
    return 0


def _in_photographs(arguments: EvaluateAnswers, study: PaintedStudy, objects: Mapping[str, Gray]) -> int:
    """Run the command for an attacker with photographs of the places; exit code 0."""
    with StepBar("asking") as bar:
        rows = painted_rows(study.run(objects, progress=bar), seed=arguments.seed)
    write_json(arguments.json, {"form": arguments.form, "facts": [row.as_json() for row in rows]})
    say_table(arguments, painted_table(rows))
    explain(
        arguments,
        "AUC: of a fact of the answers that the default guard lets through, with 95 % intervals over objects.",
        "Without: the same photograph with a gray patch in place of the object.",
    )
    return 0


def posed_place(scene: ReferenceScene) -> PosedPlace:
    """A scene with its poses: at most 20 photographs, as their names' hash chooses, shrunk to a longer side of 1024 px.

    Raises InputError for a scene without reference cameras.
    """
    if not scene.cam_from_world:
        raise InputError(f"{scene.name} has no reference cameras: it needs gt_dense_cameras/ or a COLMAP text model")
    names = sorted(ranked(scene.pictures, MOST_PHOTOGRAPHS))
    pictures = {name: _shrunk(read_picture(scene.pictures[name], camera=scene.cameras[name])) for name in names}
    return PosedPlace(name=scene.name, pictures=pictures, cam_from_world=scene.cam_from_world, down=vertical(scene))


def _shrunk(picture: Picture) -> Picture:
    import cv2

    camera: Camera = picture.camera
    part = min(1.0, SIDE_PX / max(camera.width_px, camera.height_px))
    size = round(part * camera.width_px), round(part * camera.height_px)
    gray = np.asarray(cv2.resize(picture.gray, size, interpolation=cv2.INTER_AREA), dtype=np.uint8)
    return Picture.of(np.repeat(gray[:, :, None], 3, axis=2), camera=resized(camera, *size))


def _gray(folders: Sequence[Path]) -> Iterator[tuple[str, Gray]]:
    """Names and gray pixels of photographs, in the order of the hash of their names."""
    paths = dict(named_pictures(folders))
    for name in ranked(paths):
        yield name, read_picture(paths[name]).gray


def _told(separation: Separation | None) -> tuple[str, str]:
    if separation is None:
        return "", ""
    return f"{separation.auc:.2f}", f"{separation.low:.2f}-{separation.high:.2f}"


def defense_table(rows: Sequence[AnswerDefenseRow]) -> Table:
    """The table of defenses: separation, objects told, errors of their places, and honest queries lost."""
    heads = "AUC", "95 % interval", "told %", "falsely told %", "error, width", "error, extent", "honest", "lost", "lost %"
    return Table(
        columns=[Name("defense"), *numbers(*heads)],
        rows=[
            (
                row.defense,
                *_told(row.separation),
                percent(row.told),
                percent(row.falsely),
                "" if row.error_of_width is None else f"{row.error_of_width:.3f}",
                "" if row.error_of_extent is None else f"{row.error_of_extent:.4f}",
                str(row.honest),
                str(row.lost),
                percent(row.lost / max(row.honest, 1)),
            )
            for row in rows
        ],
    )


def membership_table(rows: Sequence[MembershipRow]) -> Table:
    """The table of membership: by which fact of an answer photographs in the map are told from others."""
    heads = "same place, AUC", "interval", "other place, AUC", "its interval"
    return Table(
        columns=[Name("told by"), *numbers(*heads)],
        rows=[(row.told, *_told(row.same_place), *_told(row.other_place)) for row in rows],
    )


def time_table(rows: Sequence[TimeRow]) -> Table:
    """The table of times by which present objects are told from absent ones where every answer is a refusal."""
    return Table(
        columns=[Name("told by"), *numbers("AUC", "95 % interval")],
        rows=[(row.told, *_told(row.separation)) for row in rows],
    )


def painted_table(rows: Sequence[PaintedRow]) -> Table:
    """The table of facts by which an object that is painted into a photograph of the place is told to stand there."""
    heads = "AUC", "95 % interval", "present", "absent", "queries", "with a pose, %"
    return Table(
        columns=[Name("told by"), *numbers(*heads)],
        rows=[
            (
                row.fact,
                *_told(row.separation),
                *(str(count) for count in (row.present, row.absent, row.queries)),
                percent(row.told),
            )
            for row in rows
        ],
    )
