"""`veil map align` and `veil serve place`: a planted place comes back, and a server's answers name it."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from veil.cli import main
from veil.files.maps.format import write_map
from veil.geometry.earth import EarthFrame
from veil.server.service import Service
from worlds.map_scenes import planted_map


def run(*arguments: object) -> int:
    return main([str(argument) for argument in arguments])


@pytest.mark.slow
def test_a_map_is_placed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Planted: the map's own frame, three times as large, at Lund, and one position of seven that is wrong."""
    scene, _ = planted_map("aligned", "public", images=7)
    write_map(tmp_path / "map", scene)
    frame = EarthFrame(latitude_deg=55.7, longitude_deg=13.2, height_m=50.0)
    rows = ["image,latitude,longitude,height"]
    names = sorted(scene.images)
    for name in names:
        local = 3 * scene.images[name].cam_from_world.center + (np.array([500.0, 0, 0]) if name == names[2] else 0)
        rows.append(",".join([name, *(f"{value:.12f}" for value in frame.geodetic(local))]))
    (tmp_path / "p.csv").write_text("\n".join(rows) + "\n")
    place, told = tmp_path / "place.json", tmp_path / "told.json"
    assert run("map", "align", tmp_path / "map", tmp_path / "p.csv", "-o", place, "--json", told) == 0
    facts = json.loads(told.read_text())
    assert facts["left_out"] == [names[2]] and facts["agreeing"] == 6 and facts["largest_error_m"] < 1e-3
    assert facts["enu_from_map"]["scale"] == pytest.approx(3)
    assert f"left out {names[2]}" in capsys.readouterr().out
    service = Service(tmp_path / "store")
    record = service.import_map("lobby", tmp_path / "map")
    service.close()
    assert run("serve", "place", tmp_path / "store", place, "--map", "lobby") == 0
    service = Service(tmp_path / "store")
    kept = service.map_record(record.id).facts["place"]
    assert kept["enu_from_map"] == json.loads(place.read_text())["enu_from_map"]
    assert "place" not in service.set_place(record.id, None).facts
    service.close()
    assert run("serve", "place", tmp_path / "store", place, "--map", "window") == 1
    (tmp_path / "p.csv").write_text("image,latitude,longitude,height\nother.jpg,1,2,3\n")
    assert run("map", "align", tmp_path / "map", tmp_path / "p.csv", "-o", place) == 1
    assert "names none of the map's images" in capsys.readouterr().err
