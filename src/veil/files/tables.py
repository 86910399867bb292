"""Text from others: its encoding, rows of tables with their lines, and entries that stand twice."""

from __future__ import annotations

import codecs
import csv
import io
from collections.abc import Hashable, Iterable, Sequence
from pathlib import Path
from typing import TypeVar

from veil.errors import FileFormatError
from veil.files.atomic import read_bytes

Key = TypeVar("Key", bound=Hashable)
Value = TypeVar("Value")


def read_text(path: Path) -> str:
    """The text of a file in UTF-8, or in UTF-16 where a byte-order mark says so, without that mark.

    Raises FileFormatError if the file is missing, cannot be read, or is no such text.
    """
    data = read_bytes(path)
    encoding = "utf-16" if data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)) else "utf-8-sig"
    try:
        return data.decode(encoding)
    except UnicodeDecodeError as error:
        raise FileFormatError(f"{path} is not text in UTF-8 ({error}); save it as UTF-8") from None


def read_rows(path: Path, text: str | None = None) -> list[tuple[int, list[str]]]:
    """Cells of each row of a CSV that is not blank, without blanks around them, with the number of the row's last line.

    `text` is the file's, where it was read already. Raises FileFormatError for what is no table of text.
    """
    reader = csv.reader(io.StringIO(read_text(path) if text is None else text, newline=""), skipinitialspace=True)
    try:
        rows = [(reader.line_num, [cell.strip() for cell in row]) for row in reader]
    except csv.Error as error:
        raise FileFormatError(f"{path} is not a text table ({error})") from None
    return [(number, cells) for number, cells in rows if any(cells)]


def require_single(path: Path, header: Sequence[str], columns: Iterable[str]) -> None:
    """Raise FileFormatError if one of `columns` stands twice in the header of a table."""
    if twice := [name for name in columns if list(header).count(name) > 1]:
        raise FileFormatError(f"{path} has the column {twice[0]!r} twice; remove one")


def once(path: Path, entries: Iterable[tuple[str, Key, Value]]) -> dict[Key, Value]:
    """Values by their keys, of triples of a place in the file, a key and a value.

    Raises FileFormatError, with both places, for a key that stands twice: which of the two holds cannot be told.
    """
    places: dict[Key, str] = {}
    values: dict[Key, Value] = {}
    for place, key, value in entries:
        if key in places:
            raise FileFormatError(f"{path}, {place}: {key!r} is there twice, first in {places[key]}; remove one of them")
        places[key], values[key] = place, value
    return values
