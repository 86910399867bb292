"""Table of photographs by the names of their messages: the device that released them keeps it, and no server needs it.

A file of its own: commands of devices and of servers read it, and only a device's writes it.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Mapping
from pathlib import Path

from veil.errors import FileFormatError, Remedy
from veil.files.atomic import write_text
from veil.files.photographs.gravity import require_names
from veil.files.tables import once, read_rows, require_single

COLUMNS = ("image", "photograph")


def write_names(path: Path | str, photographs: Mapping[str, str]) -> None:
    """Write the table that `read_names` reads: names of photographs by those of their messages without the suffix.

    `path` is its file (.csv), which is for its owner alone: it says what the messages' names hide. Raises InputError for names
    of photographs that a table cannot hold.
    """
    require_names(photographs.values())
    buffer = io.StringIO()
    table = csv.writer(buffer, lineterminator="\n")
    table.writerow(COLUMNS)
    table.writerows(photographs.items())
    write_text(Path(path), buffer.getvalue(), private=True)


def read_names(path: Path | str) -> dict[str, str]:
    """Names of photographs by those of their messages, from a table whose first line names the columns image and photograph.

    `path` is its file (.csv); other columns are not read. Raises FileFormatError, with the line at fault, for another table, an
    empty one, or an image that is there twice.
    """
    path = Path(path)
    photographs = once(path, _rows(path))
    if not photographs:
        raise FileFormatError(f"{path} names no image", remedy=Remedy("make", "table of names"))
    return photographs


def _rows(path: Path) -> Iterator[tuple[str, str, str]]:
    """The line, image and photograph of each row."""
    rows = read_rows(path)
    header = [cell.lower() for cell in rows[0][1]] if rows else []
    if missing := [name for name in COLUMNS if name not in header]:
        raise FileFormatError(
            f"{path} has no column {' and no column '.join(missing)}; its first line must name {','.join(COLUMNS)}",
            remedy=Remedy("make", "table of names"),
        )
    require_single(path, header, COLUMNS)
    image, photograph = (header.index(name) for name in COLUMNS)
    for number, row in rows[1:]:
        if len(row) <= max(image, photograph) or not row[image] or not row[photograph]:
            raise FileFormatError(f"{path}, line {number}: expected {','.join(COLUMNS)}, got {','.join(row)!r}")
        yield f"line {number}", row[image].removesuffix(".veil"), row[photograph]
