"""`veil map --locate`: images that no pair brings in are looked for, only where it is asked for."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from veil.cli import main
from veil.files.features import write_features
from veil.files.maps.format import write_map
from veil.places.built_maps import MappingOptions
from veil.places.maps import NoMap
from worlds import world
from worlds.line_worlds import features_of
from worlds.map_scenes import planted_map


@pytest.mark.parametrize("asked", [False, True])
@pytest.mark.parametrize("grows", [False, True])
def test_locate_reaches_the_mapper(
    asked: bool, grows: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The mapper is replaced by one that tells its options: what they do is tested in tests/places."""
    seen: list[MappingOptions] = []

    def told(*_: Any, options: MappingOptions, **__: Any) -> NoMap:
        seen.append(options)
        return NoMap(reason="not tried")

    monkeypatch.setattr("veil.cli.server.map." + ("add_positions" if grows else "map_positions"), told)
    place = world("locate", images=3, points=40)
    write_features(tmp_path / "f.h5", list(features_of(place, "locate").items()))
    more = ["--locate"] if asked else []
    if grows:
        write_map(tmp_path / "map", planted_map("locate", "public", images=4, points=80)[0])
        more += ["--add-to", str(tmp_path / "map")]
    assert main(["map", str(tmp_path / "f.h5"), "-o", str(tmp_path / "out"), *more]) != 0
    assert "not tried" in capsys.readouterr().err
    assert [options.locate for options in seen] == [asked]
