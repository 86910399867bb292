"""`veil map --add-to` of a map of positions: more images, the same map otherwise, and out again."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from veil.cli import main
from veil.files.features import write_features
from veil.files.maps.folders import file_digests, replace_models
from veil.files.maps.format import read_map
from veil.places.held_map import Map, point_index_of
from worlds import world
from worlds.line_worlds import features_of
from worlds.map_scenes import planted_map
from worlds.schemas import validate

FIRST, MORE = ("00", "01", "03", "04", "06"), ("02", "05")


def run(*arguments: object) -> int:
    return main([str(argument) for argument in arguments])


@pytest.mark.slow
def test_images_are_added_to_a_map_of_positions_and_removed_again(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Oracle: the map before, whose files and poses stay. Gravity stays too, as do the poses after a removal, nearly.

    Both maps are large enough here to be indexed.
    """
    monkeypatch.setattr("veil.cli.server.index.INDEXED_FROM", 5)
    place = world("added", images=7, points=250)
    features = features_of(place, "added")
    for name, keys in (("first", FIRST), ("more", MORE)):
        write_features(tmp_path / f"{name}.h5", [(f"{key}.jpg", features[key]) for key in keys])
    rows = [[f"{key}.jpg", *(place.poses[key].rotation @ [0, 1, 0])] for key in FIRST]
    (tmp_path / "g.csv").write_text("\n".join(["image,x,y,z", *(",".join(map(str, row)) for row in rows)]) + "\n")
    assert run("map", tmp_path / "first.h5", "-o", tmp_path / "map", "--gravity", tmp_path / "g.csv") == 0
    first = point_index_of(Map.read(tmp_path / "map"))
    assert first is not None and len(first.entries)
    other, _ = planted_map("another place", "public", images=4, points=80)
    replace_models(tmp_path / "map", [read_map(tmp_path / "map"), other])
    before, digests = read_map(tmp_path / "map"), file_digests(tmp_path / "map")
    add = ["map", tmp_path / "more.h5", "--add-to", tmp_path / "map"]
    assert run(*add, "-o", tmp_path / "map2", "--json", tmp_path / "added.json") == 0
    facts = json.loads((tmp_path / "added.json").read_text())
    validate("map", facts)
    assert facts["registered"] == facts["images"] == 7 and facts["check"]["left_out"] == {}
    after, grown = read_map(tmp_path / "map2"), point_index_of(Map.read(tmp_path / "map2"))
    assert grown is not None and grown.points == len(after.points) and grown.seen_from[-1] > first.seen_from[-1]
    assert file_digests(tmp_path / "map") == digests and set(after.images) == {f"{key}.jpg" for key in place.poses}
    assert set(read_map(tmp_path / "map2" / "models" / "2").images) == set(other.images), "a further model stays"
    assert before.measured_down is not None and after.measured_down is not None
    np.testing.assert_allclose(after.measured_down, before.measured_down, atol=1e-12)
    for name, image in before.images.items():
        np.testing.assert_allclose(after.images[name].cam_from_world.center, image.cam_from_world.center, atol=1e-9)
    capsys.readouterr()
    assert run("map", tmp_path / "more.h5", "--add-to", tmp_path / "map2", "-o", tmp_path / "map3") == 1
    assert "already has 02.jpg, 05.jpg" in capsys.readouterr().err and not (tmp_path / "map3").exists()
    assert run("map", "remove", tmp_path / "map2", "02.jpg", "05.jpg") == 0
    again = read_map(tmp_path / "map2")
    assert set(again.images) == set(before.images) and again.check is not None and again.check.removed == 2
    for name, image in before.images.items():
        assert np.linalg.norm(again.images[name].cam_from_world.center - image.cam_from_world.center) < 0.01 * before.extent
    assert again.measured_down is not None
    np.testing.assert_allclose(again.measured_down, before.measured_down, atol=1e-12)
