"""Reading photographs from disk: any common format, turned upright, with the focal length that EXIF gives."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from veil.errors import FileFormatError, InputError
from veil.extraction.picture import Picture
from veil.geometry.camera import Camera

if TYPE_CHECKING:
    from PIL import Image

SUFFIXES = {".jpg", ".jpeg", ".png", ".tif", ".tiff", ".webp", ".bmp", ".ppm", ".pgm", ".gif", ".jp2"}

MAX_PIXELS = 1 << 26  # 67 megapixels: a few kilobytes of a picture can stand for gigabytes of pixels

# Namespace of XMP packets of panoramas (Photo Sphere XMP Metadata).
PANORAMA = b"http://ns.google.com/photos/1.0/panorama/"
# Errors that Pillow raises when a file or its metadata are not what they should be.
DAMAGE = (OSError, ValueError, SyntaxError, struct.error, LookupError, TypeError, ArithmeticError, MemoryError)


def find_pictures(folder: Path) -> list[Path]:
    """All photographs below `folder` (or `folder` itself if it is one), sorted. Raises InputError if there are none."""
    if folder.is_file():
        return [folder]
    if not folder.is_dir():
        raise InputError(f"there is no file or folder {folder}")
    paths = sorted(path for path in folder.rglob("*") if path.suffix.lower() in SUFFIXES and path.is_file())
    if not paths:
        raise InputError(f"no photographs in {folder}; looked for {', '.join(sorted(SUFFIXES))}")
    return paths


def named_pictures(roots: Sequence[Path]) -> list[tuple[str, Path]]:
    """Name and path of every photograph below `roots`; veil calls each by its path below the folder that was given.

    Raises InputError if a root holds no photographs, two photographs get one name, or a name is not UTF-8.
    """
    paths: dict[str, Path] = {}
    for root in roots:
        for path in find_pictures(root):
            name = path.name if root.is_file() else path.relative_to(root).as_posix()
            if not _can_be_written(name):
                raise InputError(
                    f"the name of {str(path)!r} is not UTF-8, and files of features cannot hold it; rename the file"
                )
            if name in paths:
                raise InputError(f"two photographs are called {name!r}; treat them in two runs, or give a folder above both")
            paths[name] = path
    return list(paths.items())


def _can_be_written(name: str) -> bool:
    """Whether files can hold a name: bytes that are not UTF-8 come from the file system as lone surrogates, which none can."""
    return name.isascii() or name.encode("utf-8", "ignore").decode() == name


def read_picture(path: Path | str, *, camera: Camera | None = None, as_stored: bool = False) -> Picture:
    """Decode one photograph, turned upright by its EXIF orientation.

    - `path`: a file in any common format (JPEG, PNG, TIFF, WebP, ...), of at most 67 megapixels.
    - `camera`: intrinsics in pixels of the upright image; by default the focal length is read from EXIF, else guessed.
    - `as_stored`: leave it as it is stored, as COLMAP does. A `camera` is then that of the stored image.

    Raises FileFormatError if there is no such file or it cannot be decoded, InputError if it is smaller than 16 px a side or
    the camera is for another size.
    """
    path = Path(path)
    rgb, exif = _decode(path, as_stored=as_stored)
    try:
        return Picture.of(rgb, exif, camera)
    except InputError as error:
        raise error.at(path) from None


def read_rgb(path: Path) -> np.ndarray:
    """Upright 8-bit RGB pixels (height, width, 3) of a photograph. Raises FileFormatError if it cannot be decoded."""
    return _decode(path)[0]


def upright_size(path: Path) -> tuple[int, int]:
    """Width and height (pixels) of the upright picture, without decoding it. Raises FileFormatError if it cannot be read."""
    from PIL import ExifTags, Image

    try:
        with Image.open(path) as image:
            turned = image.getexif().get(ExifTags.Base.Orientation, 1) in (5, 6, 7, 8)
            return (image.height, image.width) if turned else (image.width, image.height)
    except DAMAGE as error:
        raise FileFormatError(f"{path} cannot be decoded ({error}); give a photograph") from None


def stored_size(path: Path) -> tuple[int, int]:
    """Width and height (pixels) of the picture as it is stored. Raises FileFormatError if it cannot be read."""
    from PIL import Image

    try:
        with Image.open(path) as image:
            return image.size
    except DAMAGE as error:
        raise FileFormatError(f"{path} cannot be decoded ({error}); give a photograph") from None


def _decode(path: Path, *, as_stored: bool = False) -> tuple[np.ndarray, dict[int, object]]:
    """Upright RGB pixels and the Exif IFD of a photograph, on white where it is transparent."""
    from PIL import ExifTags, Image, ImageOps

    try:
        with Image.open(path) as image:
            if image.width * image.height > MAX_PIXELS:
                raise FileFormatError(
                    f"{path} has {image.width}x{image.height} px, which take gigabytes of memory; scale it down "
                    f"(to {MAX_PIXELS} px)"
                )
            exif = {} if _is_panorama(image) else dict(image.getexif().get_ifd(ExifTags.IFD.Exif))
            upright = image if as_stored else ImageOps.exif_transpose(image)
            if upright.mode.startswith("I") or upright.mode == "F":
                upright = Image.fromarray(_to_eight_bits(np.asarray(upright, dtype=np.float64)))
            if upright.mode in ("RGBA", "LA", "PA") or "transparency" in upright.info:
                upright = Image.alpha_composite(Image.new("RGBA", upright.size, (255, 255, 255, 255)), upright.convert("RGBA"))
            return np.asarray(upright.convert("RGB")), exif
    except FileNotFoundError:
        raise FileFormatError(f"there is no photograph {path}") from None
    except Image.DecompressionBombError as error:
        raise FileFormatError(f"{path} is too large to decode safely: {error}; shrink it first") from None
    except DAMAGE as error:
        raise FileFormatError(f"{path} cannot be decoded as a photograph ({error}); convert it to JPEG or PNG") from None


def _is_panorama(image: Image.Image) -> bool:
    """Whether the picture's XMP packet describes a panorama, in Google's namespace GPano: its projection is not a camera's."""
    packet = image.info.get("xmp") or image.info.get("XML:com.adobe.xmp") or b""
    return PANORAMA in (packet.encode() if isinstance(packet, str) else packet)


def _to_eight_bits(values: np.ndarray) -> np.ndarray:
    """8-bit values of a 16-bit, 32-bit or float image, scaled by the smallest usual range that holds them: 1, 255, 65535, or
    the largest value. Raises ValueError for NaN or infinity."""
    if not np.isfinite(values).all():
        raise ValueError("some of its pixels are NaN or infinite")
    largest = float(values.max(initial=0))
    top = next((top for top in (1.0, 255.0, 65535.0) if largest <= top), largest)
    return np.clip(values * (255.0 / top) + 0.5, 0, 255).astype(np.uint8)
