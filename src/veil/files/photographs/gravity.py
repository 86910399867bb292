"""Gravity of photographs from files: veil's table, tables of accelerometers, iPhones' maker notes, and drones' gimbals.

- Veil's table has lines image,x,y,z[,sigma_deg]: down in the camera frame x right, y down, z forward (gravity.md#frame).
  Vectors of any length are directions. A first line of words names the columns, in any order. A table of a phone's sensors
  may hold others, which are not read, beside `image`, `gravity_x`, `gravity_y` and `gravity_z`.
- A table of accelerometers is as phones and photo applications write it: one image and vector a line, in any frame and unit.
  It is a CSV whose first line names an image (`image`, `file`, `filename`, `name` or `photo`) and x, y, z of `acc`, `accel`,
  `accelerometer` or `acceleration` (`acc_x`, `accelerometer.y`, `AccelZ`), or JSON as Mapillary's tools describe images:
  records with `filename` and `MAPAccelerometerVector`. The file does not tell which way its axes point:
  `veil.geometry.device_axes` finds it.
- A maker note is Apple's, in the EXIF block of a photograph.
- The angles of a drone's gimbal are in its XMP packet: `GimbalPitchDegree` and `GimbalRollDegree` of DJI and Autel,
  `CameraPitchDegree` and `CameraRollDegree` of Parrot, `Pitch` and `Roll` of Skydio's `CameraOrientationNED`. Both are 0 for a
  level camera, and -90 degrees of pitch look straight down. Autel's older `Camera:Pitch` counts from straight down.
"""

from __future__ import annotations

import csv
import io
import json
import math
import re
import struct
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np

from veil.errors import FileFormatError, InputError, Remedy
from veil.files.atomic import write_text
from veil.files.photographs.pictures import DAMAGE, opened, stored_form, xmp_of
from veil.files.tables import is_number, once, read_rows, read_text, require_single
from veil.geometry.gravity import Gravity, NoGravity, gravity_from_accelerometer, gravity_from_gimbal

_COLUMNS = "image,x,y,z[,sigma_deg]"
_PLAIN, _NAMED, _SIGMA = ("x", "y", "z"), ("gravity_x", "gravity_y", "gravity_z"), "sigma_deg"
_NAMES = ("image", "file", "filename", "file_name", "name", "photo", "image_name")


def read_gravity(path: Path | str) -> dict[str, np.ndarray]:
    """Gravity by image name, from a table of lines image,x,y,z[,sigma_deg], or with a header that names its columns.

    `path` is the table's file (.csv). Each value is a float64 (3,) unit vector that points down in the camera frame (x right,
    y down, z forward; gravity.md#frame). Raises FileFormatError, with the line at fault, for another table or header, an empty
    one, an image that is there twice, or a vector without a direction.
    """
    return {name: reading.direction for name, reading in read_gravity_readings(path).items()}


def read_gravity_readings(path: Path | str) -> dict[str, Gravity]:
    """Gravity by image name as in `read_gravity`, with the standard deviation (degrees) where a line gives one."""
    path = Path(path)
    readings = once(path, _readings(path))
    if not readings:
        raise FileFormatError(f"{path} holds no readings; expected lines {_expected(path)}")
    return readings


def _expected(path: Path) -> str:
    """The columns that the lines of a table must hold."""
    return ",".join(("image", *_NAMED)) if set(_NAMED) <= set(_header(read_rows(path))) else _COLUMNS


def _readings(path: Path) -> Iterator[tuple[str, str, Gravity]]:
    """The line, image and gravity of each row."""
    rows = read_rows(path)
    header = _header(rows)
    columns = _columns_of(path, header) if header else [0, 1, 2, 3, 4]
    for number, row in rows[1:] if header else rows:
        try:
            if len(row) > (len(header) or len(columns)):
                raise ValueError("more cells than columns")
            name, x, y, z = (row[column] for column in columns[:4])
            sigma = "".join(row[column] for column in columns[4:] if column < len(row))
            vector = np.array([float(x), float(y), float(z)])
            reading = Gravity(direction=vector, sigma_deg=float(sigma) if sigma else None)
        except InputError as error:
            raise FileFormatError(f"{path}, line {number}: {error}") from None
        except (ValueError, IndexError):
            raise FileFormatError(f"{path}, line {number}: expected {_expected(path)}, got {','.join(row)!r}") from None
        yield f"line {number}", name, reading


def _header(rows: Sequence[tuple[int, list[str]]]) -> list[str]:
    """The names of a table's columns in lower case; none where the first line has a number behind its first cell."""
    cells = [cell.lower().removeprefix("#").strip() for cell in rows[0][1]] if rows else []
    return cells if cells[1:] and not any(is_number(cell) for cell in cells[1:]) else []


def _columns_of(path: Path, header: list[str]) -> list[int]:
    """Places of the image, x, y, z and, beside these, the standard deviation where it is there.

    Raises FileFormatError for a header that does not name them once, or names others that nothing is known of.
    """
    axes = next((axes for axes in (_NAMED, _PLAIN) if set(axes) <= set(header)), ())
    names = [name for name in _NAMES if name in header]
    if not axes and any(cell.startswith("acc") for cell in header):
        raise FileFormatError(
            f"{path} holds accelerometer readings, which depend on how the phone was held",
            remedy=(Remedy("make", "table of gravity", path.name), Remedy("give", "columns", ",".join(("image", *_NAMED)))),
        )
    known = {*names, *axes, _SIGMA}
    unknown = [cell for cell in header if cell not in known and axes != _NAMED]
    if not axes or not names or unknown:
        raise FileFormatError(
            f"{path} has the columns {', '.join(header)[:200]!r}; expected {_COLUMNS}",
            remedy=Remedy("give", "columns", ",".join(("image", *_NAMED))),
        )
    columns = [names[0], *axes, *([_SIGMA] if _SIGMA in header and axes == _PLAIN else [])]
    require_single(path, header, columns)
    return [header.index(name) for name in columns]


def require_names(names: Iterable[str]) -> None:
    """Raise InputError for names that the table cannot hold: it is read line by line, and without the spaces around a name.

    Callers check before long work, not after.
    """
    for name in names:
        if name != name.strip() or name.splitlines() != [name]:
            raise InputError(f"the name {name!r} begins or ends with a space or spans lines; rename the photograph")


def holds_gravity(path: Path) -> bool:
    """Whether a table's first line announces gravity in camera frames; accelerometer readings alone are not gravity."""
    header = _header(read_rows(path, "".join(read_text(path).lstrip()[:10_000].splitlines()[:1])))
    return any(set(axes) <= set(header) for axes in (_NAMED, _PLAIN)) and any(name in header for name in _NAMES)


def write_gravity(path: Path | str, readings: Mapping[str, Gravity]) -> None:
    """Write the table that `read_gravity` reads, sorted by name, with nine digits; an unknown standard deviation stays empty.

    `path` is its file (.csv), `readings` are by image name. The file is of photographs, and for its owner alone. Raises
    InputError for names that the table cannot hold.
    """
    path = Path(path)
    require_names(readings)
    buffer = io.StringIO()
    table = csv.writer(buffer, lineterminator="\n")
    table.writerow(["image", "x", "y", "z", "sigma_deg"])
    for name, reading in sorted(readings.items()):
        sigma = "" if reading.sigma_deg is None else f"{reading.sigma_deg:.3f}"
        table.writerow([name, *(f"{value:.9f}" for value in reading.direction), sigma])
    write_text(path, buffer.getvalue(), private=True)


_AXIS = re.compile(r"^(?:acc|accel|accelerometer|acceleration)[ _.\-]?([xyz])(?:[ _(\[].*)?$")
_VECTOR = "MAPAccelerometerVector"
_EXPECTED = "a column image (or file) and acc_x, acc_y, acc_z"


def read_accelerometer(path: Path) -> dict[str, np.ndarray]:
    """Vectors, float64 (3,), by image name as the file (CSV or JSON) has it, folders included, in its frame and unit.

    Raises FileFormatError with the line or record at fault, for an image that is there twice, or if there are no readings.
    """
    text = read_text(path)
    readings = once(path, _records(path, text) if text.lstrip()[:1] in ("[", "{") else _table(path, text))
    if not readings:
        raise FileFormatError(f"{path} holds no readings; expected {_EXPECTED}")
    return readings


def _table(path: Path, text: str) -> Iterator[tuple[str, str, np.ndarray]]:
    """The line, image and vector of each row of a CSV, whose first line names the columns."""
    rows = read_rows(path, text)
    header = [cell.lower() for cell in rows[0][1]] if rows else []
    names = [column for column, cell in enumerate(header) if cell in _NAMES]
    matches = [(column, match[1]) for column, cell in enumerate(header) if (match := _AXIS.match(cell))]
    axes = {axis: column for column, axis in matches}
    if not names or set(axes) != set("xyz"):
        raise FileFormatError(f"{path} has the columns {', '.join(header)[:200]!r}; expected {_EXPECTED}")
    require_single(path, [axis for _, axis in matches], "xyz")
    for number, row in rows[1:]:
        try:
            vector = _vector([row[axes[axis]] for axis in "xyz"])
            name = row[names[0]]
        except (ValueError, IndexError):
            raise FileFormatError(f"{path}, line {number}: expected {_EXPECTED}, got {','.join(row)!r}") from None
        yield f"line {number}", name, vector


def _records(path: Path, text: str) -> Iterator[tuple[str, str, np.ndarray]]:
    """The record, image and vector of each record of JSON as Mapillary's tools write it: a list, or records by file name."""
    try:
        content = json.loads(text, object_pairs_hook=_Pairs)
    except ValueError as error:
        raise FileFormatError(f"{path} is damaged JSON ({error})") from None
    named = content.pairs if isinstance(content, _Pairs) else ()
    items = (
        content if isinstance(content, list) else [{"filename": name} | item for name, item in named if isinstance(item, dict)]
    )
    for number, item in enumerate(items, start=1):
        if not isinstance(item, dict) or _VECTOR not in item:
            continue
        try:
            name = str(item["filename"]).replace("\\", "/").removeprefix("./")
            vector = _vector([item[_VECTOR][axis] for axis in "xyz"])
        except (KeyError, TypeError, ValueError):
            raise FileFormatError(f"{path}, record {number}: expected filename and {_VECTOR} with x, y, z") from None
        yield f"record {number}", name, vector


class _Pairs(dict):
    """An object of JSON that also keeps its `pairs`, in which a name may stand twice."""

    def __init__(self, pairs: list[tuple[str, object]]) -> None:
        super().__init__(pairs)
        self.pairs = pairs


def _vector(values: list) -> np.ndarray:
    vector = np.array([float(value) for value in values], dtype=np.float64)
    if not np.isfinite(vector).all():
        raise ValueError("not finite")
    return vector


# Apple's maker note: a signature, a version, the byte order, then one TIFF directory whose offsets count from the
# signature (ExifTool, Apple.pm; the tag AccelerationVector is 0x0008).
_SIGNATURE, _DIRECTORY = b"Apple iOS\x00", 14
_ACCELERATION_TAG, _SIGNED_RATIONAL = 0x0008, 10
_ENTRY_BYTES, _RATIONALS_BYTES = 12, 24
MAX_ANGLE_DEG = 180.0


# The angles' names in a packet, as attributes or elements, and their values: those of DJI, Autel and Parrot; those of Skydio
# within its element of the camera's orientation, beside which others have the same names; and Pix4D's in a packet of Autel.
_VALUE = rb"\s{0,9}(?:=\s{0,9}[\"']|>)\s{0,9}([^\"'<>]{0,40}?)\s{0,9}[\"'<]"
_ANGLE = re.compile(rb"(?<=[<\s])drone(?:-dji:Gimbal|:Gimbal|-parrot:Camera)(Pitch|Roll)Degree" + _VALUE)
_NED = re.compile(rb"(?s)<drone-skydio:CameraOrientationNED(?=[\s>])(.{0,999}?)(?:/>|</drone-skydio:CameraOrientationNED)")
_ANGLE_IN_NED = re.compile(rb"(?<=[<\s])drone-skydio:(Pitch|Roll)" + _VALUE)
_OF_AUTEL = re.compile(rb"rdf:about\s{0,9}=\s{0,9}[\"'][^\"'<>]{0,40}?autel", re.IGNORECASE)
_ANGLE_OF_PIX4D = re.compile(rb"(?<=[<\s])Camera:(Pitch|Roll)" + _VALUE)
# Of a level camera, Pix4D's roll is about the picture's vertical axis, a gimbal's about the line of sight: so small, both agree
# within the deviation.
MAX_ROLL_OF_PIX4D_DEG = 1.0


def gravity_from_exif(path: Path) -> Gravity | NoGravity | None:
    """Gravity from the maker note of an iPhone's rear camera, or the angles of a drone's gimbal (docs/theory/gravity.md).

    None where the photograph carries no reading, NoGravity where the reading does not tell which way is down. Raises
    FileFormatError where the photograph, the note or an angle is damaged.
    """
    from PIL import ExifTags

    try:
        with opened(path) as image:
            (stored_width, stored_height), orientation = stored_form(image)
            detail = image.getexif().get_ifd(ExifTags.IFD.Exif)
            note, lens = detail.get(ExifTags.Base.MakerNote), detail.get(ExifTags.Base.LensModel, "")
            packet = xmp_of(image)
    except FileNotFoundError:
        raise FileFormatError(f"there is no photograph {path}") from None
    except DAMAGE as error:
        raise FileFormatError(f"{path} cannot be decoded as a photograph ({error}); convert it to JPEG or PNG") from None
    try:
        acceleration = parse_acceleration(note) if isinstance(note, bytes) and note.startswith(_SIGNATURE) else None
        angles = parse_gimbal(packet) if acceleration is None else None
    except FileFormatError as error:
        raise FileFormatError(f"{path}: {error}") from None
    if acceleration is None and angles is None:
        return None
    if acceleration is not None and "front" in str(lens).lower():
        return NoGravity(reason="it was taken with the front camera, which looks the other way; use vanishing-point")
    if stored_width < stored_height:  # the sensor is wider than high: pixels that were turned hide by how much
        return NoGravity(reason="its pixels were turned or cropped by a program; give the picture as the camera wrote it")
    if angles is not None:
        return gravity_from_gimbal(*angles, orientation if isinstance(orientation, int) else 1)
    assert acceleration is not None
    return gravity_from_accelerometer(acceleration, orientation if isinstance(orientation, int) else 0)


def parse_gimbal(packet: bytes) -> tuple[float, float] | None:
    """Pitch and roll in degrees against the horizon that an XMP packet of a drone holds; None without both.

    Raises FileFormatError for angles that are no numbers within 180 degrees, that stand there twice and differ, or whose axis
    is not known.
    """
    angles = _angles(
        [*_ANGLE.findall(packet), *(pair for part in _NED.findall(packet) for pair in _ANGLE_IN_NED.findall(part))]
    )
    if angles is not None or not _OF_AUTEL.search(packet):
        return angles
    from_nadir = _angles(_ANGLE_OF_PIX4D.findall(packet))
    if from_nadir is None:
        return None
    pitch, roll = from_nadir
    if abs(roll) > MAX_ROLL_OF_PIX4D_DEG:
        raise FileFormatError(
            f"its gimbal has a roll of {roll:g} degrees, which `Camera:Roll` may count about another axis; use "
            "vanishing-point for it"
        )
    return pitch - 90, roll


def _angles(found: Iterable[tuple[bytes, bytes]]) -> tuple[float, float] | None:
    """Pitch and roll in degrees from names and texts; None without both. Raises as `parse_gimbal` does."""
    values: dict[bytes, set[float]] = {}
    for name, text in found:
        try:
            angle = float(text)
        except ValueError:
            angle = math.nan
        if not abs(angle) <= MAX_ANGLE_DEG:
            raise FileFormatError(
                f"the {name.decode().lower()} of its gimbal is {text.decode(errors='replace')!r}; use vanishing-point for it"
            )
        values.setdefault(name, set()).add(angle)
    if any(len(each) > 1 for each in values.values()):
        raise FileFormatError("the angles of its gimbal stand there twice and differ; use vanishing-point for this photograph")
    if set(values) != {b"Pitch", b"Roll"}:
        return None
    return values[b"Pitch"].pop(), values[b"Roll"].pop()


def parse_acceleration(note: bytes) -> np.ndarray | None:
    """The acceleration in a maker note, float64 (3,) in g: tag 0x0008, three signed rationals. None without this tag.

    Raises FileFormatError for a note that is not in Apple's layout: every offset is checked before it is followed.
    """
    if not note.startswith(_SIGNATURE) or note[12:14] != b"MM":
        raise FileFormatError("the maker note is not in Apple's layout; use vanishing-point for this photograph")
    try:
        (count,) = struct.unpack_from(">H", note, _DIRECTORY)
        for entry in range(count):
            start = _DIRECTORY + 2 + _ENTRY_BYTES * entry
            tag, kind, values, offset = struct.unpack_from(">HHII", note, start)
            if tag == _ACCELERATION_TAG:
                return _rationals(note, kind, values, offset)
    except struct.error:
        raise FileFormatError("the maker note is cut short; copy the photograph again, or use vanishing-point") from None
    return None


def _rationals(note: bytes, kind: int, values: int, offset: int) -> np.ndarray:
    """Three signed rationals at a checked offset of the note. Raises FileFormatError for another type or place."""
    if kind != _SIGNED_RATIONAL or values != 3 or offset + _RATIONALS_BYTES > len(note):
        raise FileFormatError(
            f"the accelerometer's tag has type {kind}, {values} values at byte {offset} of {len(note)}, which is no vector "
            "of three signed rationals; use vanishing-point for this photograph"
        )
    pairs = np.array(struct.unpack_from(">6i", note, offset), dtype=np.float64).reshape(3, 2)
    if not pairs[:, 1].all():
        raise FileFormatError("the accelerometer's reading has a zero denominator; use vanishing-point for this photograph")
    return pairs[:, 0] / pairs[:, 1]
