"""`veil gravity`: the direction of gravity in each photograph, for `veil privatize --lines --gravity`."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path

from veil.cli.common import (
    EXIT_NO_GRAVITY,
    EXIT_OK,
    Bar,
    add_command,
    add_json,
    picture,
    quiet_colmap,
    report,
    say,
    say_facts,
    write_json,
)
from veil.cli.device.extract import with_camera
from veil.cli.remedies import advised
from veil.device.gravity import GravityAnswer, measure_gravity
from veil.errors import InputError
from veil.files.colmap_databases import read_colmap_gravity
from veil.files.photographs.gravity import write_gravity
from veil.files.photographs.pictures import named_pictures, read_picture, read_rgb
from veil.geometry.camera import require_readable
from veil.geometry.gravity import Gravity, NoGravity

EXAMPLES = """\
  veil gravity photos/ -o gravity.csv                             what the phone measured, else vertical edges
  veil gravity photos/ -o gravity.csv --from exif                 the accelerometer of an iPhone alone
  veil gravity photos/ -o gravity.csv --from vanishing-point --camera SIMPLE_RADIAL,1288.6,343,512,-0.0336
  veil gravity photos/ -o gravity.csv --readings sensors.csv      a table image,acc_x,acc_y,acc_z; its axes by vertical edges
  veil gravity database.db -o gravity.csv --from colmap           measured pose priors of a COLMAP database
"""
SOURCES = ("auto", "exif", "readings", "vanishing-point", "colmap")


def register(commands) -> None:  # type: ignore[no-untyped-def]
    """Add `veil gravity` to the parser's commands."""
    parser = add_command(
        commands,
        "gravity",
        "photographs -> where down is in each (stays on the device)",
        "Write image,x,y,z,sigma_deg: down as a unit vector in the camera frame x right, y down, z forward of the upright\n"
        "photograph, and its standard deviation in degrees. A photograph without an answer is listed with the reason, the\n"
        "others are written, and the exit code is 3. The database of COLMAP goes with features imported from it.",
        EXAMPLES,
    )
    parser.add_argument("input", type=Path, nargs="+", help="photographs or folders of them, or a COLMAP .db")
    parser.add_argument("-o", "--output", type=Path, required=True, metavar="CSV", help="table to write")
    parser.add_argument(
        "--from",
        dest="source",
        choices=SOURCES,
        default="auto",
        help="where gravity comes from: one source alone, or auto (default): exif or --readings, checked "
        "against vertical edges, which also serve where there is neither",
    )
    parser.add_argument(
        "--readings", type=Path, metavar="CSV", help="table of accelerometer readings of the photographs, or of gravity"
    )
    parser.add_argument(
        "--axes", metavar="AXES", help="axes of --readings: ios, android, or as +x-y-z (default: told by vertical edges)"
    )
    parser.add_argument(
        "--camera",
        metavar="MODEL,P1,...",
        help="intrinsics of all photographs, by one of COLMAP's models (default: K.txt beside them)",
    )
    parser.add_argument(
        "--figure", type=picture, metavar="FILE", help="draw the vertical edges of one photograph (.png or .svg)"
    )
    add_json(parser)
    parser.set_defaults(run=_gravity)


def _gravity(arguments: argparse.Namespace) -> int:
    quiet_colmap()
    answers = list(_from_database(arguments) if arguments.source == "colmap" else _from_photographs(arguments))
    readings = {answer.name: answer.found for answer in answers if isinstance(answer.found, Gravity)}
    if readings:
        write_gravity(arguments.output, readings)
    write_json(
        arguments.json, {"images": [_row(answer) for answer in sorted(answers, key=lambda answer: answer.name)]}, private=True
    )
    say_facts(arguments, {answer.name: _told(answer) for answer in answers})
    if readings:
        report(arguments, arguments.output, f"gravity of {len(readings)} of {len(answers)} images")
    else:
        say(arguments, f"no image has gravity; {arguments.output} was not written")
    return EXIT_OK if len(readings) == len(answers) else EXIT_NO_GRAVITY


def _from_database(arguments: argparse.Namespace) -> Iterator[GravityAnswer]:
    """Answers for all images of a COLMAP database."""
    if len(arguments.input) != 1 or arguments.camera or arguments.figure:
        raise InputError("--from colmap takes one database, and neither --camera nor --figure")
    for name, found in read_colmap_gravity(arguments.input[0]).items():
        yield GravityAnswer(name=name, source="colmap", found=found)


def _from_photographs(arguments: argparse.Namespace) -> Iterator[GravityAnswer]:
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
    found = measure_gravity(
        arguments.input,
        source=arguments.source,
        camera=arguments.camera,
        readings=arguments.readings,
        axes=arguments.axes,
        tell=lambda sentence: say(arguments, sentence),
        steps=Bar,
    )
    for name, answer in found.items():
        if arguments.figure and not arguments.readings:
            _draw(arguments, pictures[name], answer)
        yield answer


def _draw(arguments: argparse.Namespace, path: Path, answer: GravityAnswer) -> None:
    if answer.vertical is None:
        raise InputError(f"{path} has no vertical edges to draw; --figure shows what vanishing-point found: {_told(answer)}")
    from veil.extraction.segments import detect_segments
    from veil.report.gravity import draw_vertical

    picture = with_camera(read_picture(path), arguments.camera, path)
    draw_vertical(arguments.figure, read_rgb(path), detect_segments(picture), picture.camera, answer.vertical)


def _told(answer: GravityAnswer) -> str:
    if isinstance(answer.found, NoGravity):
        earlier = f"exif: {answer.note}; {answer.source}: " if answer.note else ""
        return f"no gravity: {earlier}{advised(answer.found.reason, answer.found.remedy)}"
    x, y, z = answer.found.direction
    sigma = "" if answer.found.sigma_deg is None else f" +- {answer.found.sigma_deg:.1f} deg"
    note = f" ({answer.note})" if answer.note else ""
    return f"({x:+.3f}, {y:+.3f}, {z:+.3f}){sigma}, from {answer.source}{note}"


def _row(answer: GravityAnswer) -> dict:
    row: dict = {"name": answer.name, "source": answer.source, "note": answer.note}
    if isinstance(answer.found, NoGravity):
        return row | {"status": "no gravity", "reason": advised(answer.found.reason, answer.found.remedy)}
    row |= {"status": "found", "down": answer.found.direction.tolist(), "sigma_deg": answer.found.sigma_deg}
    if answer.vertical is not None:
        row |= {"lines": answer.vertical.lines, "log10_nfa": answer.vertical.log10_nfa}
    return row | {"check": None if answer.check is None else answer.check.as_json()}
