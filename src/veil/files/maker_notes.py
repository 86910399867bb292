"""Accelerometer readings in photographs of phones: Apple's maker note in the EXIF block."""

from __future__ import annotations

import struct
from pathlib import Path

import numpy as np

from veil.errors import FileFormatError
from veil.files.pictures import DAMAGE
from veil.geometry.gravity import Gravity, NoGravity, gravity_from_accelerometer

# Apple's maker note: a signature, a version, the byte order, then one TIFF directory whose offsets count from the
# signature (ExifTool, Apple.pm; the tag AccelerationVector is 0x0008).
_SIGNATURE, _DIRECTORY = b"Apple iOS\x00", 14
_ACCELERATION_TAG, _SIGNED_RATIONAL = 0x0008, 10
_ENTRY_BYTES, _RATIONALS_BYTES = 12, 24


def gravity_from_exif(path: Path) -> Gravity | NoGravity | None:
    """Gravity from the maker note of a photograph taken with an iPhone's rear camera (docs/theory/gravity.md).

    None where the photograph carries no reading, NoGravity where the reading does not tell which way is down. Raises
    FileFormatError where the photograph or the note is damaged.
    """
    from PIL import ExifTags, Image

    try:
        with Image.open(path) as image:
            stored_width, stored_height = image.size
            exif = image.getexif()
            orientation = exif.get(ExifTags.Base.Orientation, 1)
            detail = exif.get_ifd(ExifTags.IFD.Exif)
            note, lens = detail.get(ExifTags.Base.MakerNote), detail.get(ExifTags.Base.LensModel, "")
    except FileNotFoundError:
        raise FileFormatError(f"there is no photograph {path}") from None
    except (*DAMAGE, Image.DecompressionBombError) as error:
        raise FileFormatError(f"{path} cannot be decoded as a photograph ({error}); convert it to JPEG or PNG") from None
    if not isinstance(note, bytes) or not note.startswith(_SIGNATURE):
        return None
    try:
        acceleration = parse_acceleration(note)
    except FileFormatError as error:
        raise FileFormatError(f"{path}: {error}") from None
    if acceleration is None:
        return None
    if "front" in str(lens).lower():
        return NoGravity(reason="it was taken with the front camera, which looks the other way; use vanishing-point")
    if stored_width < stored_height:  # the sensor is wider than high: pixels that were turned hide by how much
        return NoGravity(reason="its pixels were turned or cropped by a program; give the picture as the camera wrote it")
    return gravity_from_accelerometer(acceleration, orientation if isinstance(orientation, int) else 0)


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
