"""`veil gravity`: the direction of gravity in each photograph, for `veil privatize --lines --gravity`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypedDict, cast

from veil.cli.common import (
    EXIT_NO_GRAVITY,
    EXIT_OK,
    Bar,
    Commands,
    picture,
    quiet_colmap,
    report,
    say,
    say_facts,
    write_json,
)
from veil.cli.device.extract import CAMERA, with_camera
from veil.cli.input_options import DATABASE, FEATURES, GRAVITY, kind_of_input, require_applicable
from veil.cli.records import Record, add_record_command, json_file, option, positional
from veil.cli.remedies import advised
from veil.device.gravity import GravityAnswer, measure_gravity, vertical_of
from veil.errors import InputError
from veil.files.colmap_databases import read_colmap_gravity
from veil.files.photographs.gravity import write_gravity
from veil.files.photographs.pictures import named_pictures, read_picture, read_rgb
from veil.geometry.camera import require_readable
from veil.geometry.gravity import Gravity, NoGravity
from veil.geometry.gravity_check import CheckedJson
from veil.json_records.values import Vector

EXAMPLES = """\
  veil gravity photos/ -o gravity.csv                             what the phone measured, else vertical edges
  veil gravity photos/ -o gravity.csv --from exif                 an iPhone's accelerometer or a drone's gimbal alone
  veil gravity photos/ -o gravity.csv --from vanishing-point --camera SIMPLE_RADIAL,1288.6,343,512,-0.0336
  veil gravity photos/ -o gravity.csv --readings sensors.csv      a table image,acc_x,acc_y,acc_z; its axes by vertical edges
  veil gravity database.db -o gravity.csv --from colmap           measured pose priors of a COLMAP database
"""


@dataclass(frozen=True, kw_only=True)
class AskedGravity(Record):
    """Write image,x,y,z,sigma_deg: down as a unit vector in the camera frame x right, y down, z forward of the upright
    photograph, and its standard deviation in degrees. A photograph without an answer is listed with the reason, the
    others are written, and the exit code is 3. The database of COLMAP goes with features imported from it.
    """

    input: tuple[Path, ...] = positional("photographs or folders of them, or a COLMAP .db")
    output: Path = option("table to write", required=True, short="-o", metavar="CSV")
    source: Literal["auto", "exif", "readings", "vanishing-point", "colmap"] = option(
        "where gravity comes from: one source alone, or auto (default): exif or --readings, checked "
        "against vertical edges, which also serve where there is neither; of a database its pose priors",
        default="auto",
        name="--from",
    )
    readings: Path | None = option("table of accelerometer readings of the photographs, or of gravity", metavar="CSV")
    axes: str | None = option(
        "axes of --readings: ios, android, or as +x-y-z (default: told by vertical edges)", metavar="AXES"
    )
    camera: str | None = option(CAMERA, metavar="MODEL,P1,...")
    figure: Path | None = option("draw the vertical edges of one photograph (.png or .svg)", parse=picture, metavar="FILE")
    json: Path | None = json_file()


def register(commands: Commands) -> None:
    """Add `veil gravity` to the parser's commands."""
    summary = "photographs -> where down is in each (stays on the device)"
    add_record_command(commands, "gravity", summary, EXAMPLES, AskedGravity, _gravity)


def _gravity(arguments: AskedGravity) -> int:
    quiet_colmap()
    answers = list(_from_database(arguments) if _is_of_database(arguments) else _from_photographs(arguments))
    readings = {answer.name: answer.gravity for answer in answers if isinstance(answer.gravity, Gravity)}
    if readings:
        write_gravity(arguments.output, readings)
    record: GravityAnswersJson = {"images": [_row(answer) for answer in sorted(answers, key=lambda answer: answer.name)]}
    write_json(arguments.json, record, private=True)
    say_facts(arguments, {answer.name: _told(answer) for answer in answers})
    if readings:
        report(arguments, arguments.output, f"gravity of {len(readings)} of {len(answers)} images")
    else:
        say(arguments, f"no image has gravity; {arguments.output} was not written")
    return EXIT_OK if len(readings) == len(answers) else EXIT_NO_GRAVITY


def _is_of_database(arguments: AskedGravity) -> bool:
    """Whether gravity comes from a COLMAP database. Raises InputError for a source that the input does not have."""
    if arguments.source == "colmap":
        return True
    kind = kind_of_input(arguments.input)
    if kind == FEATURES or (kind == DATABASE and arguments.source != "auto"):
        raise InputError(f"{arguments.input[0]} holds no photographs, which --from {arguments.source} reads; give these")
    return kind == DATABASE


def _from_database(arguments: AskedGravity) -> Iterator[GravityAnswer]:
    """Answers for all images of a COLMAP database."""
    if len(arguments.input) != 1:
        raise InputError(f"--from colmap takes one database, got {len(arguments.input)} inputs")
    require_applicable(arguments, GRAVITY, DATABASE, arguments.input[0])
    for name, gravity in read_colmap_gravity(arguments.input[0]).items():
        yield GravityAnswer(name=name, source="colmap", gravity=gravity)


def _from_photographs(arguments: AskedGravity) -> Iterator[GravityAnswer]:
    """Answers for all photographs. Raises InputError for options that do not fit together."""
    pictures = dict(named_pictures(arguments.input))
    if arguments.figure and len(pictures) != 1:
        raise InputError(f"--figure draws one photograph, got {len(pictures)}; run `veil gravity` on that one")
    if (arguments.readings or arguments.axes) and arguments.source not in ("auto", "readings"):
        raise InputError("--readings and --axes go with --from auto or readings")
    if (arguments.axes and not arguments.readings) or (arguments.source == "readings" and not arguments.readings):
        raise InputError("give the accelerometer's table with --readings")
    if arguments.camera:
        require_readable(arguments.camera)  # a slip of the user, and no fault of each photograph
    answers = measure_gravity(
        arguments.input,
        source=arguments.source,
        camera=arguments.camera,
        readings=arguments.readings,
        axes=arguments.axes,
        tell=lambda sentence: say(arguments, sentence),
        steps=Bar,
    )
    for name, answer in answers.items():
        if arguments.figure and not arguments.readings:
            _draw(arguments.figure, arguments.camera, pictures[name], answer)
        yield answer


def _draw(figure: Path, camera: str | None, path: Path, answer: GravityAnswer) -> None:
    vertical = vertical_of(answer)
    if vertical is None:
        raise InputError(f"{path} has no vertical edges to draw; --figure shows what vanishing-point found: {_told(answer)}")
    from veil.extraction.segments import detect_segments
    from veil.report.gravity import draw_vertical

    picture = with_camera(read_picture(path), camera, path)
    draw_vertical(figure, read_rgb(path), detect_segments(picture), picture.camera, vertical)


def _told(answer: GravityAnswer) -> str:
    if isinstance(answer.gravity, NoGravity):
        earlier = f"exif: {answer.note}; {answer.source}: " if answer.note else ""
        return f"no gravity: {earlier}{advised(answer.gravity.reason, answer.gravity.remedy)}"
    x, y, z = answer.gravity.direction
    sigma = "" if answer.gravity.sigma_deg is None else f" +- {answer.gravity.sigma_deg:.1f} deg"
    note = f" ({answer.note})" if answer.note else ""
    return f"({x:+.3f}, {y:+.3f}, {z:+.3f}){sigma}, from {answer.source}{note}"


Source = Literal["exif", "readings", "vanishing-point", "colmap"]


class _AnswerJson(TypedDict):
    name: str
    source: Source
    note: str | None


class _FoundJson(_AnswerJson):
    status: Literal["found"]
    down: Vector
    sigma_deg: float | None
    check: CheckedJson | None


class _EdgesJson(TypedDict, total=False):
    lines: int
    log10_nfa: float


class GravityFoundJson(_FoundJson, _EdgesJson):
    """Gravity of a photograph."""


class NoGravityJson(_AnswerJson):
    """No gravity, and why."""

    status: Literal["no gravity"]
    reason: str


class GravityAnswersJson(TypedDict):
    """Answers for all photographs."""

    images: list[GravityFoundJson | NoGravityJson]


def _row(answer: GravityAnswer) -> GravityFoundJson | NoGravityJson:
    row: _AnswerJson = {"name": answer.name, "source": cast(Source, answer.source), "note": answer.note}
    if isinstance(answer.gravity, NoGravity):
        return {**row, "status": "no gravity", "reason": advised(answer.gravity.reason, answer.gravity.remedy)}
    edges: _EdgesJson = {}
    vertical = vertical_of(answer)
    if vertical is not None:
        edges = {"lines": vertical.lines, "log10_nfa": vertical.log10_nfa}
    return {
        **row,
        "status": "found",
        "down": answer.gravity.direction.tolist(),
        "sigma_deg": answer.gravity.sigma_deg,
        **edges,
        "check": None if answer.check is None else answer.check.as_json(),
    }
