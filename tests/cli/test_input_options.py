"""Options that would do nothing to an input are refused, by one table a command that knows every option."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

from veil.cli import main
from veil.cli.device.client import Contribute
from veil.cli.device.extract import Extract
from veil.cli.device.gravity import AskedGravity
from veil.cli.input_options import CLIENT, EXTRACT, GRAVITY, LOCALIZE, MAP, MAP_IMPORT, Table, kind_of_input, require_applicable
from veil.cli.server.localize import Localize
from veil.cli.server.map_import import ImportMap
from veil.cli.server.map_options import MakeMap
from veil.errors import InputError
from veil.files.maps.format import write_map
from worlds import features, generator
from worlds.edges import colmap_database
from worlds.map_scenes import planted_map

HERE = Path("in")
ASKED: tuple[tuple[Any, Table], ...] = (
    (Extract(input=(HERE,), output=HERE), EXTRACT),
    (MakeMap(input=HERE, output=HERE), MAP),
    (Localize(map=HERE, queries=(HERE,)), LOCALIZE),
    (AskedGravity(input=(HERE,), output=HERE), GRAVITY),
    (ImportMap(model=HERE, output=HERE), MAP_IMPORT),
    (Contribute(input=(HERE,), map="m"), CLIENT),
)


def cases() -> Iterator[tuple[Any, Table, str, str]]:
    """Every option of every table with every kind of input that the table names."""
    for record, table in ASKED:
        for kind in sorted({kind for kinds in table.values() for kind in kinds}):
            yield from ((record, table, name, kind) for name in table)


@pytest.mark.parametrize(("record", "table"), ASKED[:5], ids=lambda value: type(value).__name__)
def test_every_option_has_a_row(record: Any, table: Table) -> None:
    """Enumeration of the record's fields: an option that is added must say to which inputs it applies."""
    options = {field.name for field in dataclasses.fields(record) if field.metadata["facts"].names}
    assert set(table) == options - {"output", "json"}


def test_what_does_not_apply_is_refused_and_the_rest_is_not() -> None:
    """The table itself, cell by cell; a value that equals the default is no request."""
    for record, table, name, kind in cases():
        require_applicable(record, table, kind, "x")
        asked = copy.copy(record)
        object.__setattr__(asked, name, "another value")
        if kind in table[name]:
            require_applicable(asked, table, kind, "x")
        else:
            with pytest.raises(InputError, match=rf"^--[a-z-]+ applies to .* not to {kind.split('(')[0]}.*leave it out for x"):
                require_applicable(asked, table, kind, "x")


def test_a_database_or_a_file_of_features_is_read_alone(tmp_path: Path) -> None:
    for name in ("a.db", "b.H5"):
        (tmp_path / name).touch()
        with pytest.raises(InputError, match=f"{name} is read alone"):
            kind_of_input((tmp_path, tmp_path / name))


def said(capsys: pytest.CaptureFixture[str], *words: object) -> str:
    """What a command that ends with exit code 1 prints on standard error."""
    assert main(list(map(str, words))) == 1
    return capsys.readouterr().err


@pytest.mark.parametrize(
    "choice",
    [("--camera", "SIMPLE_RADIAL,500,320,240,0"), ("--max-features", 10), ("--descriptor", "xfeat"), ("--first-octave", -1)],
    ids=lambda choice: choice[0],
)
def test_options_of_photographs_are_refused_for_imports(
    tmp_path: Path, choice: tuple[str, object], capsys: pytest.CaptureFixture[str]
) -> None:
    """The files are good: without the option they are imported."""
    item = features(generator("import"), 9)
    database = colmap_database(tmp_path / "c.db", {"a.jpg": (item.keypoints, item.descriptors)})
    with h5py.File(tmp_path / "h.h5", "w") as file:
        unit = item.descriptors.T / np.linalg.norm(item.descriptors.astype(float), axis=1)
        parts = {"keypoints": item.keypoints, "descriptors": unit, "image_size": np.array([640, 480])}
        for key, value in parts.items():
            file[f"a.jpg/{key}"] = value
    for path, usual in ((database, ("--normalization", "L2")), (tmp_path / "h.h5", ("--imported", "sift"))):
        words = ("extract", path, "-o", tmp_path / "o.h5", *usual)
        assert f"{choice[0]} applies to photographs" in said(capsys, *words, *choice)
        assert not (tmp_path / "o.h5").exists()
        assert main(list(map(str, words))) == 0
        (tmp_path / "o.h5").unlink()


def test_a_file_that_says_what_it_holds_is_not_overruled(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from veil.files.features import write_features

    write_features(tmp_path / "f.h5", [("a.jpg", features(generator("own"), 5))])
    words = ("extract", tmp_path / "f.h5", "-o", tmp_path / "o.h5")
    assert "leave out --imported" in said(capsys, *words, "--imported", "superpoint")
    assert "--normalization of a file of features goes with --imported" in said(capsys, *words, "--normalization", "L2")
    assert main(list(map(str, words))) == 0


def test_options_of_tiles_are_refused_on_a_map(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from veil.files.features import write_features

    write_map(tmp_path / "map", planted_map("options")[0])
    write_features(tmp_path / "q.h5", [("a.jpg", features(generator("query"), 30))])
    for choice in (("--camera", "PINHOLE,500,500,320,240"), ("--fix", 47, 12), ("--within", 3), ("--near", 1, 2, 3)):
        told = said(capsys, "localize", tmp_path / "map", tmp_path / "q.h5", *choice)
        assert f"{choice[0]} applies to" in told and "a.jpg" in told
