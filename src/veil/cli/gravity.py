"""`veil gravity`: where down is in each photograph, for `veil privatize --lines --gravity`."""

from __future__ import annotations

import argparse
import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from veil.cli import EXIT_NO_GRAVITY, EXIT_OK
from veil.cli.common import add_command, add_json, picture, progress, quiet_colmap, report, say, write_json
from veil.cli.extract import with_camera
from veil.errors import InputError, VeilError
from veil.files.gravity import require_names, write_gravity
from veil.files.maker_notes import gravity_from_exif
from veil.files.pictures import named_pictures, read_picture, read_rgb
from veil.files.priors import read_colmap_gravity
from veil.geometry.gravity import Gravity, NoGravity
from veil.geometry.vertical import Vertical

EXAMPLES = """\
  veil gravity photos/ -o gravity.csv                             what the phone measured, else vertical edges
  veil gravity photos/ -o gravity.csv --from exif                 the accelerometer of an iPhone alone
  veil gravity photos/ -o gravity.csv --from vanishing-point --camera SIMPLE_RADIAL,1288.6,343,512,-0.0336
  veil gravity database.db -o gravity.csv --from colmap           measured pose priors of a COLMAP database
"""
NO_READING = "it has no maker note of an iPhone with the accelerometer's reading; use --from vanishing-point"
UNUSUAL_ROLL_DEG = 15.0
SOURCES = ("auto", "exif", "vanishing-point", "colmap")


@dataclass(frozen=True, kw_only=True, eq=False)
class _Answer:
    """What was found of one photograph, by which source; the note says why not by an earlier one, or what to check."""

    name: str
    source: str
    found: Gravity | NoGravity
    vertical: Vertical | None = None
    note: str | None = None


def register(commands) -> None:  # type: ignore[no-untyped-def]
    """Add the command."""
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
    parser.add_argument("--from", dest="source", choices=SOURCES, default="auto", help="auto: exif, else vanishing-point")
    parser.add_argument("--camera", metavar="MODEL,P1,...", help="intrinsics of all photographs, COLMAP's models")
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
    write_json(arguments.json, {"images": [_row(answer) for answer in sorted(answers, key=lambda answer: answer.name)]})
    for answer in answers:
        say(arguments, f"{answer.name:40} {_told(answer)}")
    if readings:
        report(arguments, arguments.output, f"gravity of {len(readings)} of {len(answers)} images")
    else:
        say(arguments, f"no image has gravity; {arguments.output} was not written")
    return EXIT_OK if len(readings) == len(answers) else EXIT_NO_GRAVITY


def _from_database(arguments: argparse.Namespace) -> Iterator[_Answer]:
    if len(arguments.input) != 1 or arguments.camera or arguments.figure:
        raise InputError("--from colmap takes one database, and neither --camera nor --figure")
    for name, found in read_colmap_gravity(arguments.input[0]).items():
        yield _Answer(name=name, source="colmap", found=found)


def _from_photographs(arguments: argparse.Namespace) -> Iterator[_Answer]:
    pictures = named_pictures(arguments.input)
    require_names(name for name, _ in pictures)
    if arguments.figure and len(pictures) != 1:
        raise InputError(f"--figure draws one photograph, got {len(pictures)}; run `veil gravity` on that one")
    for name, path in progress(pictures, "gravity"):
        answer = _of_photograph(name, path, arguments.source, arguments.camera)
        if arguments.figure:
            _draw(arguments, path, answer)
        yield answer


def _of_photograph(name: str, path: Path, source: str, camera: str | None) -> _Answer:
    """One photograph; what is wrong with it is its answer, so that the others still get theirs."""
    note = None
    if source in ("auto", "exif"):
        told = _from_exif(path)
        if isinstance(told, Gravity):
            return _Answer(name=name, source="exif", found=told)
        if source == "exif":
            return _Answer(name=name, source="exif", found=told or NoGravity(reason=NO_READING))
        note = told.reason if told else None
    seen = _from_edges(path, camera)
    if isinstance(seen, Vertical):
        note = "; ".join(filter(None, [note, _doubt(seen)])) or None
        return _Answer(name=name, source="vanishing-point", found=seen.gravity, vertical=seen, note=note)
    return _Answer(name=name, source="vanishing-point", found=seen, note=note if note != seen.reason else None)


def _from_exif(path: Path) -> Gravity | NoGravity | None:
    try:
        return gravity_from_exif(path)
    except VeilError as error:
        return NoGravity(reason=str(error))


def _from_edges(path: Path, camera: str | None) -> Vertical | NoGravity:
    from veil.extract.segments import vertical_of

    try:
        picture = read_picture(path)
    except VeilError as error:
        return NoGravity(reason=str(error))
    return vertical_of(with_camera(picture, camera), calibrated=camera is not None)


def _doubt(vertical: Vertical) -> str | None:
    """Bundles of parallel lines that lie on tables and floors pass for vertical; a tilt that people avoid gives them away."""
    x, y, _ = vertical.gravity.direction
    roll_deg = abs(math.degrees(math.atan2(x, y)))
    if roll_deg <= UNUSUAL_ROLL_DEG:
        return None
    return f"rolled by {roll_deg:.0f} degrees: look with --figure whether its edges are vertical in the world"


def _draw(arguments: argparse.Namespace, path: Path, answer: _Answer) -> None:
    if answer.vertical is None:
        raise InputError(f"{path} has no vertical edges to draw; --figure shows what vanishing-point found: {_told(answer)}")
    from veil.extract.segments import detect_segments
    from veil.report.gravity import draw_vertical

    picture = with_camera(read_picture(path), arguments.camera)
    draw_vertical(arguments.figure, read_rgb(path), detect_segments(picture), picture.camera, answer.vertical)


def _told(answer: _Answer) -> str:
    if isinstance(answer.found, NoGravity):
        earlier = f"exif: {answer.note}; {answer.source}: " if answer.note else ""
        return f"no gravity: {earlier}{answer.found.reason}"
    x, y, z = answer.found.direction
    sigma = "" if answer.found.sigma_deg is None else f" +- {answer.found.sigma_deg:.1f} deg"
    note = f" ({answer.note})" if answer.note else ""
    return f"({x:+.3f}, {y:+.3f}, {z:+.3f}){sigma}, from {answer.source}{note}"


def _row(answer: _Answer) -> dict:
    row: dict = {"name": answer.name, "source": answer.source, "note": answer.note}
    if isinstance(answer.found, NoGravity):
        return row | {"status": "no gravity", "reason": answer.found.reason}
    row |= {"status": "found", "down": answer.found.direction.tolist(), "sigma_deg": answer.found.sigma_deg}
    if answer.vertical is not None:
        row |= {"lines": answer.vertical.lines, "log10_nfa": answer.vertical.log10_nfa}
    return row
