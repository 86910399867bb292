"""Indexes for queries by distance on disk: the inverse pair, and folders that no index was written to."""

from __future__ import annotations

import json
from dataclasses import fields
from pathlib import Path

import numpy as np
import pytest

from veil.errors import FileFormatError
from veil.files.maps.format import write_map
from veil.files.maps.indexes import read_point_index, write_point_index
from veil.matching.point_index import PointIndex
from veil.places.held_map import Map, point_index_of
from worlds.edges import scene, truncated
from worlds.random_forms import points


@pytest.fixture
def place(tmp_path: Path) -> tuple[Path, PointIndex]:
    """A map in subspaces with its index."""
    from veil.matching.point_indexing import index_points

    made = scene(2)
    write_map(tmp_path / "map", made)
    forms = {name: (image.form, image.point_rows) for name, image in made.images.items()}
    words = points(40, dim=made.space.dim, case="index on disk").astype(np.float32)
    index = index_points(forms, words, len(made.points))  # type: ignore[arg-type]
    assert write_point_index(tmp_path / "map", index) == tmp_path / "map" / "indexes" / "points"
    return tmp_path / "map", index


@pytest.mark.slow
def test_an_index_comes_back(place: tuple[Path, PointIndex]) -> None:
    """Inverse pair, to the bit, mapped into memory."""
    folder, index = place
    got = read_point_index(folder)
    assert got is not None and isinstance(got.views, np.memmap)
    for field in fields(index):
        if field.init:
            np.testing.assert_array_equal(getattr(got, field.name), getattr(index, field.name))
    assert point_index_of(Map.read(folder)) is not None


def test_a_map_without_index_has_none(tmp_path: Path) -> None:
    write_map(tmp_path / "map", scene(2))
    assert read_point_index(tmp_path / "map") is None
    assert point_index_of(Map.read(tmp_path / "map")) is None


def test_damaged_and_outdated_indexes_are_refused(place: tuple[Path, PointIndex]) -> None:
    """Every file cut short, of another map's state, or of another format: the error says to index again."""
    folder, _ = place
    for path in sorted((folder / "indexes" / "points").iterdir()):
        whole = path.read_bytes()
        for part in truncated(whole, 4):
            path.write_bytes(part)
            with pytest.raises(FileFormatError, match="make the index again"):
                read_point_index(folder)
        path.write_bytes(whole)
    header = folder / "indexes" / "points" / "header.json"
    known = json.loads(header.read_text())
    changes: list[dict] = [{"map": "another"}, {"format": 99}, {"image_names": []}, {"space": {}}]
    for change in changes:
        header.write_text(json.dumps(known | change))
        with pytest.raises(FileFormatError, match="make the index again"):
            read_point_index(folder)


@pytest.mark.parametrize("name", ["offsets", "entries", "starts", "seen_from", "images", "words", "views"])
def test_arrays_that_do_not_fit_together_are_refused(place: tuple[Path, PointIndex], name: str) -> None:
    """One array with one entry more, or with a number that is too large."""
    folder, _ = place
    path = folder / "indexes" / "points" / f"{name}.npy"
    array = np.load(path)
    np.save(path, np.concatenate([array, array[-1:]]))
    with pytest.raises(FileFormatError, match="make the index again"):
        read_point_index(folder)
    if name in ("entries", "images"):
        wrong = array.copy()
        wrong[0] = 1 << 20
        np.save(path, wrong)
        with pytest.raises(FileFormatError, match="not there"):
            read_point_index(folder)
