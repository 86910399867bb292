"""Lists of pairs of images as text: two names a line, as hloc and COLMAP read and write them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from veil.errors import FileFormatError, InputError
from veil.files.atomic import read_bytes, write_text

# A list of ten thousand images with a hundred partners each has a million lines; more than this is no list of pairs.
MOST_BYTES = 1 << 30


def read_pairs(path: Path) -> list[tuple[str, str]]:
    """The pairs of names of a list: two names a line, separated by blanks; empty lines and comments (#) are skipped.

    Raises FileFormatError for a file that is missing or too large, is not text, or has a line of another form.
    """
    if path.is_file() and path.stat().st_size > MOST_BYTES:
        raise FileFormatError(f"{path} has more than {MOST_BYTES} bytes; it is no list of pairs")
    try:
        lines = read_bytes(path).decode().splitlines()
    except UnicodeDecodeError:
        raise FileFormatError(f"{path} is not text; a list of pairs has two names of images a line") from None
    pairs = []
    for number, line in enumerate(lines, start=1):
        words = line.split()
        if not words or words[0].startswith("#"):
            continue
        if len(words) != 2:
            raise FileFormatError(
                f"{path}, line {number}: a pair is two names of images with a blank between, got {line[:80]!r}"
            )
        pairs.append((words[0], words[1]))
    return pairs


def write_pairs(path: Path, pairs: Sequence[tuple[str, str]]) -> None:
    """Write pairs of names as a list, at once or not at all.

    Raises InputError if it cannot be written, or for a name with blanks, which a list cannot hold.
    """
    if blank := [name for pair in pairs for name in pair if len(name.split()) != 1]:
        raise InputError(f"a list of pairs cannot name {blank[0]!r}, which has blanks; rename the image")
    write_text(path, "".join(f"{a} {b}\n" for a, b in pairs))
