"""Motions of the frames of a sequence, as a device's tracking wrote them into a table.

A file of its own: it is the one format in which motions come, and only frames of a sequence have them.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np

from veil.errors import FileFormatError, InputError, Remedy
from veil.files.tables import is_number, once, read_rows, require_single
from veil.geometry.rigid import Rigid
from veil.wire.sequence import require_motion

COLUMNS = ("frame", *(f"r{row}{column}" for row in "123" for column in "123"), "tx", "ty", "tz")


def read_frame_motions(path: Path | str) -> dict[str, Rigid]:
    """Motions cam_from_rig by the name of their frame, from a table whose first line names the columns.

    These are `frame`, `r11` to `r33`, the rotation row after row, and `tx`, `ty`, `tz`; other columns are not read. Raises
    FileFormatError, with the line at fault, for another table, a frame that is there twice, and a motion that is not rigid.
    """
    path = Path(path)
    motions = once(path, _rows(path))
    if len(motions) < 2:
        raise FileFormatError(f"{path} holds {len(motions)} motions, and a sequence has two frames or more")
    return motions


def _rows(path: Path) -> Iterator[tuple[str, str, Rigid]]:
    """The line, frame and motion of each row."""
    rows = read_rows(path)
    header = [cell.lower() for cell in rows[0][1]] if rows else []
    if missing := [name for name in COLUMNS if name not in header]:
        raise FileFormatError(f"{path} has no column {missing[0]}; its first line must name {','.join(COLUMNS)}")
    require_single(path, header, COLUMNS)
    places = [header.index(name) for name in COLUMNS]
    for number, row in rows[1:]:
        cells = [row[place] if place < len(row) else "" for place in places]
        if not cells[0] or not all(map(is_number, cells[1:])):
            raise FileFormatError(f"{path}, line {number}: expected a frame and twelve numbers, got {','.join(row)[:80]!r}")
        values = np.array([float(cell) for cell in cells[1:]])
        motion = Rigid(rotation=values[:9].reshape(3, 3), translation=values[9:])
        try:
            require_motion(motion, cells[0])
        except InputError as error:
            raise FileFormatError(f"{path}, line {number}: {error}") from None
        yield f"line {number}", cells[0].removesuffix(".veil"), motion


def motions_of(frames: list[str], motions: dict[str, Rigid], path: Path) -> list[Rigid]:
    """The motions of frames by their names, in their order. Raises InputError where one has none."""
    missing = [name for name in frames if name not in motions]
    if missing:
        told = ", ".join(sorted(motions)[:3])
        raise InputError(
            f"{path} has no motion of {missing[0]}, one of {len(missing)} that are missing; it has {told}",
            remedy=Remedy("give", "localize_sequence.sequence"),
        )
    return [motions[name] for name in frames]
