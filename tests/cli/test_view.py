"""`veil view`: pages, exports, records, and what it says of them."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from veil.cli import main
from veil.device.device import Device
from veil.device.doors import map_images
from veil.features import Features
from veil.files.features import write_features
from veil.files.maps.folders import write_models
from veil.files.maps.format import write_map
from veil.places.built_maps import BuiltMap
from veil.wire import decode
from worlds.documents import documented, keys
from worlds.map_scenes import planted_map
from worlds.schemas import validate
from worlds.view_pages import read_page


def run(*arguments: object) -> int:
    return main([str(argument) for argument in arguments])


@pytest.fixture(scope="module")
def work(door: dict[str, Features], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A public map of five photographs, and a sixth one as a hardened query with its features."""
    folder = tmp_path_factory.mktemp("view")
    *mapped, query = door
    built = map_images({name: door[name] for name in mapped})
    assert isinstance(built, BuiltMap)
    built.map.write(folder / "map")
    (folder / "query.veil").write_bytes(Device(folder / "home").release(door[query], name=query, purpose="map").message)
    write_features(folder / "query.h5", [(query, door[query])])
    return folder


@pytest.mark.slow
def test_a_page_shows_a_query_and_what_it_matched(work: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Oracle: `veil localize` of the same query: its pose and inliers; the device's own is not there until it is given."""
    assert run("localize", work / "map", work / "query.veil", "--json", tmp_path / "poses.json") == 0
    (row,) = json.loads((tmp_path / "poses.json").read_text())["queries"]
    output = tmp_path / "view.html"
    assert run("view", work / "map", "-o", output, "--queries", work / "query.veil", "--json", tmp_path / "view.json") == 0
    record = json.loads((tmp_path / "view.json").read_text())
    validate("view", record)
    assert keys(record) <= documented("veil view") and record["bytes"] == output.stat().st_size
    read = read_page(output.read_text())
    query = read.record["images"][-1]
    origin = np.array(read.record["points"]["origin"])
    assert query["query"] and np.array(query["pose"]["center"]) + origin == pytest.approx(row["camera_center"], abs=1e-9)
    assert (read.seen(query) >= 0).sum() == row["inliers"] and query["count"] == len(decode((work / "query.veil").read_bytes()))
    assert record["photographs"] == record["true_positions"] == record["recovered"] == 0 and read.record["pictures"] == []
    assert "keep it" not in capsys.readouterr().out
    given = ("--images", work / "query.h5", "--title", "A </title> of mine")
    assert run("view", work / "map", "-o", output, "--queries", work / "query.veil", *given) == 0
    told = capsys.readouterr().out
    assert "true positions of 1 images: keep it where the photographs may be" in told
    assert "A &lt;/title&gt; of mine" in output.read_text()


def test_further_models_are_told_and_can_be_viewed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Planted: a map of two models. Broken twin: the page of the first one alone, as if it were the whole map."""
    write_models(tmp_path / "map", [planted_map("one")[0], planted_map("other")[0]])
    assert run("view", tmp_path / "map", "-o", tmp_path / "first.html") == 0
    second = tmp_path / "map" / "models" / "2"
    assert f"the other does not join it: veil view {second}" in capsys.readouterr().out
    assert "does not join it" in (tmp_path / "first.html").read_text()
    assert run("view", second, "-o", tmp_path / "second.html") == 0
    assert "does not join it" not in capsys.readouterr().out + (tmp_path / "second.html").read_text()


@pytest.mark.parametrize("form", ["ply", "gltf", "colmap"])
def test_exports_are_written_and_told(form: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Each format is written, and its record counts points and images. tests/files/test_map_exports.py tests the contents."""
    scene, _ = planted_map("export")
    write_map(tmp_path / "map", scene)
    output = tmp_path / f"out.{form}"
    assert run("view", tmp_path / "map", "--export", form, "-o", output, "--json", "-") == 0
    record = json.loads(capsys.readouterr().out)
    validate("view", record)
    assert record["points"] == len(scene.points) and record["images"] == len(scene.images) and record["colored"] == 0
    first = (output if form != "colmap" else output / "points3D.bin").read_bytes()[:4]
    assert form == "colmap" or first in (b"ply\n", b"glTF")


def test_what_cannot_be_viewed_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Nothing is written, and the message says what to do."""
    scene, _ = planted_map("refused", "subspaces")
    write_map(tmp_path / "map", scene)
    (tmp_path / "page.html").write_text("<p>a page</p>")
    for arguments, told in (
        ((tmp_path / "none",), "is not a veil map"),
        ((tmp_path / "page.html",), "not the page of an audit"),
        ((tmp_path / "page.html", "--export", "ply"), "--export goes with a map"),
        ((tmp_path / "map", "--report", tmp_path / "page.html"), "not the page of an audit"),
        ((tmp_path / "map", "--invert", 1), "veil audit"),
        ((tmp_path / "map", "--images", tmp_path / "none"), "no file or folder"),
    ):
        output = tmp_path / "out.html"
        assert run("view", *arguments, "-o", output) == 1 and not output.exists()
        assert told in capsys.readouterr().err
