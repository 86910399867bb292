"""Reading photographs from disk: any common format, turned upright, with the focal length that EXIF gives."""

from __future__ import annotations

import math
import struct
import threading
import warnings
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from veil.errors import FileFormatError, InputError, VeilWarning
from veil.extraction.picture import Picture
from veil.files.photographs.calibration import NAME
from veil.files.photographs.kinds import PICTURES, kind_of, readable, remedies, walked
from veil.files.photographs.kinds import SUFFIXES as SUFFIXES
from veil.geometry.camera import Camera, resized

if TYPE_CHECKING:
    from PIL import Image

MAX_PIXELS = 1 << 26  # 67 megapixels: larger photographs are shrunk to it
DECODED_PIXELS = 1 << 28  # 268 megapixels, in a file that fills them: a few kilobytes can stand for gigabytes of pixels
_PIXELS_PER_BYTE = 100
_PIXEL_X, _PIXEL_Y = 0xA002, 0xA003  # EXIF 2.3
_TIFF_WIDTH, _TIFF_HEIGHT, _TIFF_BITS, _TIFF_MAXIMUM = 256, 257, 258, 281  # TIFF 6.0

# Namespace of XMP packets of panoramas (Photo Sphere XMP Metadata).
PANORAMA = b"http://ns.google.com/photos/1.0/panorama/"
# Errors that Pillow raises when a file or its metadata are not what they should be.
DAMAGE = (OSError, ValueError, SyntaxError, struct.error, LookupError, TypeError, ArithmeticError, MemoryError)


def find_pictures(folder: Path) -> list[Path]:
    """All photographs below `folder` (or `folder` itself if it is one), sorted. Raises InputError if there are none."""
    return _searched(folder)[0]


def _searched(folder: Path) -> tuple[list[Path], Counter[str]]:
    """Photographs of `find_pictures`, and the number of files that were passed over by kind."""
    if folder.is_file():
        return [folder], Counter()
    if not folder.is_dir():
        raise InputError(f"there is no file or folder {folder}")
    paths, passed = walked(folder, frozenset({NAME}))
    if not paths:
        others = f"; it has {_counted(passed)}" if passed else ""
        raise InputError(
            f"no photographs in {folder}{others}; looked for {', '.join(sorted(readable()))}",
            remedy=tuple(remedy for kind in passed for remedy in remedies(kind)),
        )
    return paths, passed


def named_pictures(roots: Sequence[Path]) -> list[tuple[str, Path]]:
    """Name and path of every photograph below `roots`; veil calls each by its path below the folder that was given.

    Files of other kinds are passed over, and a warning (`veil.errors.VeilWarning`) gives their numbers. Raises InputError if a
    root holds no photographs, two photographs get one name, or a name is not UTF-8.
    """
    paths: dict[str, Path] = {}
    for root in roots:
        pictures, passed = _searched(root)
        warn_of_passed(root, passed)
        for path in pictures:
            name = path.name if root.is_file() else path.relative_to(root).as_posix()
            if not _can_be_written(name):
                raise InputError(
                    f"the name of {str(path)!r} is not UTF-8, and files of features cannot hold it; rename the file"
                )
            if name in paths:
                raise InputError(f"two photographs are called {name!r}; treat them in two runs, or give a folder above both")
            paths[name] = path
    return list(paths.items())


def warn_of_passed(folder: Path, passed: Counter[str]) -> None:
    """Warn (`veil.errors.VeilWarning`) of files of a folder that were passed over, by kind, in one sentence."""
    if passed:
        number = passed.total()
        text = f"passed over {number} {'file' if number == 1 else 'files'} in {folder}: {_counted(passed)}"
        remedy = tuple(remedy for kind in passed for remedy in remedies(kind))
        warnings.warn(VeilWarning(text, remedy=remedy), stacklevel=1)


def _counted(passed: Counter[str]) -> str:
    return ", ".join(f"{count} {kind}" for kind, count in sorted(passed.items()))


def _can_be_written(name: str) -> bool:
    """Whether files can hold a name: bytes that are not UTF-8 come from the file system as lone surrogates, which none can."""
    return name.isascii() or name.encode("utf-8", "ignore").decode() == name


def read_picture(path: Path | str, *, camera: Camera | None = None, as_stored: bool = False) -> Picture:
    """Decode one photograph, turned upright by its EXIF orientation.

    - `path`: a file in any common format (JPEG, PNG, TIFF, WebP, ...). One of more than 67 megapixels is shrunk to that number,
      with its camera, and a warning (`veil.errors.VeilWarning`) says so.
    - `camera`: intrinsics in pixels of the upright image as it is in the file; by default the focal length is read from EXIF,
      else guessed.
    - `as_stored`: leave it as it is stored, as COLMAP does. A `camera` is then that of the stored image.

    Raises FileFormatError if there is no such file or it cannot be decoded, InputError if it is smaller than 16 px a side or
    the camera is for another size.
    """
    path = Path(path)
    decoded = _decode(path, as_stored=as_stored)
    height, width = decoded.rgb.shape[:2]
    try:
        if decoded.full_size == (width, height):
            return Picture.of(decoded.rgb, decoded.exif, camera)
        if camera is not None and (camera.width_px, camera.height_px) == decoded.full_size:
            camera = resized(camera, width, height)
        exif = decoded.exif
        if not {_PIXEL_X, _PIXEL_Y} & set(exif):
            exif = {**exif, **dict(zip((_PIXEL_X, _PIXEL_Y), decoded.full_size, strict=True))}
        return replace(Picture.of(decoded.rgb, exif, camera), full_size=decoded.full_size)
    except InputError as error:
        raise error.at(path) from None


def read_rgb(path: Path) -> np.ndarray:
    """Upright 8-bit RGB pixels (height, width, 3) of a photograph, shrunk as in `read_picture`.

    Raises FileFormatError if it cannot be decoded.
    """
    return _decode(path).rgb


def upright_size(path: Path) -> tuple[int, int]:
    """Width and height (pixels) of the upright picture in its file, without decoding it.

    Raises FileFormatError if it cannot be read.
    """
    try:
        with opened(path) as image:
            (width, height), orientation = stored_form(image)
            return (height, width) if orientation in _ON_ITS_SIDE else (width, height)
    except DAMAGE as error:
        raise _unreadable(path, error) from None


_limit = threading.Lock()


@contextmanager
def _any_size() -> Iterator[None]:
    """A block without Pillow's own limit: it warns from 89 megapixels on, and refuses twice as many."""
    from PIL import Image

    with _limit:
        usual, Image.MAX_IMAGE_PIXELS = Image.MAX_IMAGE_PIXELS, None
        try:
            yield
        finally:
            Image.MAX_IMAGE_PIXELS = usual


@contextmanager
def opened(path: Path) -> Iterator[Any]:
    """Pillow's image of a file. Raises what Pillow raises, and FileFormatError for one of more pixels than are decoded."""
    from PIL import Image

    readable()  # registers what reads HEIC
    with _any_size():
        image = Image.open(path)
    with image:
        if image.width * image.height > DECODED_PIXELS:
            raise _too_large(path, image)
        if image.format == "TIFF":
            image.filename = ""  # else Pillow maps rows of the upright picture's width, and then turns them
        yield image


# EXIF's orientations of pictures that are stored on their side.
_ON_ITS_SIDE = (5, 6, 7, 8)


def stored_form(image: Any) -> tuple[tuple[int, int], int]:
    """Width and height (pixels) of Pillow's image of a file as it is stored, and its EXIF orientation (1: upright).

    It must not be loaded yet. Pillow turns TIFF itself, and gives the size of the upright picture.
    """
    from PIL import ExifTags

    tags: dict[int, Any] = getattr(image, "tag_v2", {})
    size = tags.get(_TIFF_WIDTH, image.width), tags.get(_TIFF_HEIGHT, image.height)
    return size, image.getexif().get(ExifTags.Base.Orientation, 1)


def _turned_back(image: Any, orientation: int) -> Any:
    """Pillow's image of a file of this EXIF orientation, with its pixels as they are stored: Pillow turned those of TIFF."""
    from PIL.Image import Transpose

    back = {
        2: Transpose.FLIP_LEFT_RIGHT,
        3: Transpose.ROTATE_180,
        4: Transpose.FLIP_TOP_BOTTOM,
        5: Transpose.TRANSPOSE,
        6: Transpose.ROTATE_90,
        7: Transpose.TRANSVERSE,
        8: Transpose.ROTATE_270,
    }
    return image.transpose(back[orientation]) if image.format == "TIFF" and orientation in back else image


def stored_size(path: Path) -> tuple[int, int]:
    """Width and height (pixels) of the picture as it is stored. Raises FileFormatError if it cannot be read."""
    try:
        with opened(path) as image:
            return stored_form(image)[0]
    except DAMAGE as error:
        raise _unreadable(path, error) from None


@dataclass(frozen=True, kw_only=True)
class _Decoded:
    """Upright RGB pixels of a photograph, its Exif IFD, and its width and height in the file."""

    rgb: np.ndarray
    exif: dict[int, object]
    full_size: tuple[int, int]


def _decode(path: Path, *, as_stored: bool = False) -> _Decoded:
    """The photograph, upright unless it is to be `as_stored`, on white where it is transparent, shrunk if it is too large."""
    from PIL import ExifTags, Image, ImageOps

    try:
        if kind_of(path) == "RAW of a camera":  # of which Pillow would read the thumbnail
            raise ValueError("veil reads developed photographs alone")
        with opened(path) as image:
            _require_memory(path, image)
            lossy = ";16" in str(image.tile) and image.mode in ("L", "LA", "RGB", "RGBA")  # before anything loads the pixels
            exif = {} if _is_panorama(image) else dict(image.getexif().get_ifd(ExifTags.IFD.Exif))
            orientation = stored_form(image)[1]
            largest = _stored_range(image)
            if image.format == "TIFF":
                with _any_size():  # which are asked for again when it is loaded
                    image.load()
            upright = _turned_back(image, orientation) if as_stored else ImageOps.exif_transpose(image)
            if upright.mode.startswith("I") or upright.mode == "F":
                upright = Image.fromarray(_to_eight_bits(np.asarray(upright, dtype=np.float64), largest))
            if upright.mode in ("RGBA", "LA", "PA") or "transparency" in upright.info:
                upright = Image.alpha_composite(Image.new("RGBA", upright.size, (255, 255, 255, 255)), upright.convert("RGBA"))
            upright = upright.convert("RGB")
            if lossy and np.asarray(upright).max() < 1 << 6:
                raise ValueError("its 16-bit colors use 14 bits at most, of which Pillow keeps the upper ones alone")
            return _Decoded(rgb=np.asarray(_shrunk(path, upright)), exif=exif, full_size=upright.size)
    except FileNotFoundError:
        raise FileFormatError(f"there is no photograph {path}") from None
    except DAMAGE as error:
        raise _unreadable(path, error) from None


def _unreadable(path: Path, error: BaseException) -> FileFormatError:
    """The error for a file that is no photograph, with its kind where that can be told."""
    kind = kind_of(path)
    if not kind:
        return FileFormatError(f"{path} cannot be decoded as a photograph ({error}); convert it to JPEG or PNG")
    helps = remedies(kind)
    told = "; convert it to JPEG or PNG" if kind in PICTURES else "" if helps else "; give photographs"
    return FileFormatError(f"{path} is no photograph that can be read here: {kind}{told}", remedy=helps)


def _require_memory(path: Path, image: Any) -> None:
    """Raise FileFormatError for a picture of more pixels than a file of its size can fill."""
    pixels = image.width * image.height
    if pixels > MAX_PIXELS and pixels > _PIXELS_PER_BYTE * path.stat().st_size:
        raise _too_large(path, image)


def _too_large(path: Path, image: Any) -> FileFormatError:
    return FileFormatError(
        f"{path} has {image.width}x{image.height} px, which take gigabytes of memory; scale it down (to {MAX_PIXELS} px)"
    )


def _is_panorama(image: Image.Image) -> bool:
    """Whether the picture's XMP packet describes a panorama, in Google's namespace GPano: its projection is not a camera's."""
    return PANORAMA in xmp_of(image)


def xmp_of(image: Any) -> bytes:
    """The XMP packet of Pillow's image of a file; empty without one."""
    packet = image.info.get("xmp") or image.info.get("XML:com.adobe.xmp") or b""
    return packet.encode() if isinstance(packet, str) else bytes(packet)


def _shrunk(path: Path, image: Any) -> Any:
    """The image, or one of at most MAX_PIXELS pixels, of which a warning tells."""
    from PIL import Image

    if image.width * image.height <= MAX_PIXELS:
        return image
    factor = math.sqrt(MAX_PIXELS / (image.width * image.height))
    size = int(image.width * factor), int(image.height * factor)
    text = f"{path} was shrunk from {image.width}x{image.height} px to {size[0]}x{size[1]}, and its camera with it"
    warnings.warn(VeilWarning(text), stacklevel=1)
    return image.resize(size, Image.Resampling.LANCZOS)


def _stored_range(image: Any) -> float:
    """The largest value that the file says its pixels may have; 0 where it says nothing."""
    tags: dict[int, Any] = getattr(image, "tag_v2", {})
    bits = tags.get(_TIFF_BITS, (16,))[0]
    maximum = tags.get(_TIFF_MAXIMUM, 0)
    maximum = max(maximum) if isinstance(maximum, tuple) else maximum
    return float((1 << bits) - 1) if 8 < bits < 16 else float(maximum)


def _to_eight_bits(values: np.ndarray, largest: float = 0.0) -> np.ndarray:
    """8-bit values of a 16-bit, 32-bit or float image, scaled by the smallest usual range that holds them and `largest`.

    Ranges are 1, those of 8, 10, 12, 14 and 16 bits, or the largest value. Raises ValueError for NaN or infinity.
    """
    if not np.isfinite(values).all():
        raise ValueError("some of its pixels are NaN or infinite")
    largest = max(largest, float(values.max(initial=0)))
    ranges = (1.0, *(float((1 << bits) - 1) for bits in (8, 10, 12, 14, 16)))
    top = next((top for top in ranges if largest <= top), largest)
    return np.clip(values * (255.0 / top) + 0.5, 0, 255).astype(np.uint8)
