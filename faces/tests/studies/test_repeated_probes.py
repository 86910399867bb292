"""Probes that a server keeps: fresh lifts close in on a person, parallel ones do not; fresh lifts of one picture show it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from face_worlds.crowd import SPACE, crowd
from veil.errors import InputError, SpaceError
from veil_faces.studies.repeated_probes import HistoryRow, history_study
from worlds import unit
from worlds.schemas import validate

DECOYS = crowd("decoys", 120, 1)


def by_key(rows: list[HistoryRow]) -> dict[tuple[str, int], HistoryRow]:
    return {(row.mode, row.probes): row for row in rows}


def test_fresh_probes_close_in_and_parallel_ones_do_not() -> None:
    """Planted people; oracle: the mean of the true descriptors. Identification of a stranger by chance would be 1 in 12."""
    rows = by_key(history_study(crowd("victims", 12, 7), DECOYS, m=8, lifting="random"))
    fresh, parallel = ([rows[mode, k].distance for k in (2, 3, 5)] for mode in ("fresh", "parallel"))
    assert fresh[0] > fresh[1] > fresh[2]  # type: ignore[operator]
    assert fresh[2] < 0.6 * parallel[2]  # type: ignore[operator]
    assert rows["fresh", 5].identified == 1 and rows["raw", 0].identified == 1
    validate("evaluate-histories", {"rows": [row.as_json() for row in rows.values()]})
    assert all(row.people == 12 and 0 <= row.equal_error <= 1 for row in rows.values())
    assert rows["parallel", 1].equal_error <= rows["fresh", 1].equal_error + 0.1


def test_one_picture_again_and_again_is_given_away() -> None:
    """Broken defense: five fresh lifts of one descriptor meet in it."""
    faces = crowd("victims", 6, 7, spread=0.0)
    rows = by_key(history_study(faces, DECOYS, m=4, lifting="random"))
    assert rows["fresh", 5].distance < 1e-3 < 0.05 < rows["parallel", 5].distance  # type: ignore[operator]


def test_what_cannot_be_studied_is_refused() -> None:
    with pytest.raises(InputError, match="0 people have 7 pictures"):
        history_study(crowd("victims", 12, 6), DECOYS, m=4)
    with pytest.raises(SpaceError, match="one network"):
        history_study(crowd("victims", 12, 7), replace(DECOYS, space=replace(SPACE, descriptor="x")), m=4)
    few = replace(DECOYS, vectors=unit(DECOYS.vectors[:, :32]).astype("float32"), space=replace(SPACE, dim=32))
    with pytest.raises(SpaceError, match="one network"):
        history_study(crowd("victims", 12, 7), few, m=4, centered=True)
