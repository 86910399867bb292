"""Kinds of files in folders of photographs: which are read, and what the others are.

The name of a file says its kind where it is passed over in a folder. Of one that somebody gave, its first bytes do.
"""

from __future__ import annotations

import functools
import os
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from veil.errors import Remedy

SUFFIXES = {".jpg", ".jpeg", ".jpe", ".jfif", ".png", ".tif", ".tiff", ".webp", ".bmp", ".ppm", ".pgm", ".gif", ".jp2"}
_HEIC, _AVIF = {".heic", ".heif", ".hif"}, {".avif"}
_RAW = {f".{name}" for name in (
    "dng", "cr2", "cr3", "crw", "nef", "nrw", "arw", "sr2", "srf", "raf", "orf", "rw2", "pef", "srw", "3fr", "iiq", "erf",
    "kdc", "mrw", "x3f", "rwl",
)}  # fmt: skip
_VIDEOS = {f".{name}" for name in (
    "mp4", "mov", "m4v", "avi", "mkv", "webm", "mts", "m2ts", "3gp", "mpg", "mpeg", "insv", "360",
)}  # fmt: skip
_KINDS = (
    (_HEIC, "HEIC"),
    (_AVIF, "AVIF"),
    (_RAW, "RAW of a camera"),
    (_VIDEOS, "video"),
)
# Kinds whose files hold a picture.
PICTURES = ("HEIC", "AVIF", "RAW of a camera")
_OTHER = "other"
# Brands of the ISO base media file format (ISO/IEC 14496-12), bytes 8 to 11.
_BRANDS = {
    **dict.fromkeys((b"heic", b"heix", b"heim", b"heis", b"hevc", b"mif1", b"msf1"), "HEIC"),
    **dict.fromkeys((b"avif", b"avis"), "AVIF"),
    b"crx ": "RAW of a camera",
}
_FIRST_BYTES = (
    (b"FUJIFILMCCD-RAW", "RAW of a camera"),
    (b"IIU\0", "RAW of a camera"),
    (b"IIRO", "RAW of a camera"),
    (b"\x1aE\xdf\xa3", "video"),
    (b"%PDF", "PDF"),
    (b"PK\x03\x04", "ZIP archive"),
    (b"\x1f\x8b", "gzip archive"),
    (b"\x89HDF", "HDF5 file"),
    (b"SQLite format 3", "database"),
    (b"<!DOCTYPE", "web page"),
    (b"<html", "web page"),
    (b"\x93NUMPY", "array of NumPy"),
    (b"version https://git-lfs", "pointer of Git LFS, and not the file itself"),
)


@functools.cache
def readable() -> frozenset[str]:
    """Suffixes of the photographs that are read here: AVIF if Pillow can, HEIC if the package pillow-heif is there."""
    from PIL import features

    suffixes = set(SUFFIXES)
    if features.check("avif"):
        suffixes |= _AVIF
    try:
        from pillow_heif import register_heif_opener
    except ImportError:
        return frozenset(suffixes)
    register_heif_opener()
    return frozenset(suffixes | _HEIC)


def kind_of(path: Path) -> str:
    """The kind of a file that cannot be read as a photograph, such as "video"; empty where nothing tells."""
    kind = _by_suffix(path)
    if kind == "RAW of a camera":  # most begin like TIFF
        return kind
    try:
        with path.open("rb") as stream:
            head = stream.read(32)
    except OSError:
        return ""
    if head[4:8] == b"ftyp":
        return _BRANDS.get(head[8:12], "video")
    if head[:4] == b"RIFF" and head[8:12] == b"AVI ":
        return "video"
    return next((kind for start, kind in _FIRST_BYTES if head.startswith(start)), "" if kind == _OTHER else kind)


def remedies(kind: str) -> tuple[Remedy, ...]:
    """What makes a file of this kind readable."""
    return {
        "HEIC": (Remedy("install", "pillow-heif"),),
        "AVIF": (Remedy("install", "a Pillow with AVIF"),),
        "video": (Remedy("give", "frames as JPEG or PNG"),),
    }.get(kind, ())


def _by_suffix(path: Path) -> str:
    return next((kind for suffixes, kind in _KINDS if path.suffix.lower() in suffixes), _OTHER)


def walked(folder: Path, used: frozenset[str]) -> tuple[list[Path], Counter[str]]:
    """Photographs below a folder, sorted, and the number of other files by kind, such as "broken link" or "other (.txt)".

    `used` are names of files beside photographs that are read, too. Links to folders are not followed.
    """
    photographs, passed = [], Counter[str]()
    for path in sorted(_below(folder)):
        if path.is_symlink() and not path.exists():
            passed["broken link"] += 1
        elif path.is_dir():
            passed["link to a folder"] += 1
        elif path.suffix.lower() in readable() and path.is_file():
            photographs.append(path)
        elif path.name not in used:
            kind = _by_suffix(path)
            passed[kind if kind != _OTHER else f"other ({path.suffix.lower() or 'no suffix'})"] += 1
    return photographs, passed


def _below(folder: Path) -> Iterator[Path]:
    """All files below a folder, and links to folders."""
    for place, folders, files in os.walk(folder):
        here = Path(place)
        yield from (here / name for name in files)
        yield from (here / name for name in folders if (here / name).is_symlink())
