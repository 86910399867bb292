"""Text from others: its encoding, JSON, rows of tables with their lines, and entries that stand twice."""

from __future__ import annotations

import codecs
import csv
import io
import json
from collections.abc import Hashable, Iterable, Sequence
from pathlib import Path
from typing import Any, TypeVar

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


def read_json(path: Path) -> Any:
    """The value in a file of JSON, whose text is as in `read_text`.

    Raises FileFormatError for what is none, and for an object in which a key stands twice.
    """
    try:
        return json.loads(read_text(path), object_pairs_hook=object_of)
    except (ValueError, RecursionError) as error:
        raise FileFormatError(f"{path} is no JSON that can be read ({str(error)[:200]})") from None


def object_of(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """An object of JSON, for `json.loads`. Raises ValueError for a key that stands twice: others might read the first value."""
    entries = dict(pairs)
    if len(entries) < len(pairs):
        keys = [key for key, _ in pairs]
        twice = next(key for key in keys if keys.count(key) > 1)
        raise ValueError(f"the key {twice[:60]!r} stands twice")
    return entries


def is_number(text: str) -> bool:
    """Whether a text is a number."""
    try:
        float(text)
    except ValueError:
        return False
    return True


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


def read_table(path: Path, columns: Sequence[str]) -> list[tuple[int, dict[str, str]]]:
    """Rows of a CSV as cells by the names in its first line, with the number of each row's last line.

    `columns` must be there. Raises FileFormatError for another table, for a column that stands twice, and for a row of another
    number of cells.
    """
    rows = read_rows(path)
    header = rows[0][1] if rows else []
    if missing := [name for name in columns if name not in header]:
        raise FileFormatError(f"{path} has no column {missing[0]!r}; it has {', '.join(header)[:200] or 'no rows'}")
    require_single(path, header, header)
    for number, cells in rows[1:]:
        if len(cells) != len(header):
            raise FileFormatError(f"{path}, line {number}: expected {len(header)} cells, got {len(cells)}")
    return [(number, dict(zip(header, cells, strict=True))) for number, cells in rows[1:]]


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
