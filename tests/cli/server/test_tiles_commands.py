"""`veil tiles cut` and `veil localize tiles:FOLDER`, on a planted street whose poses are known."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest

from veil.cli import main
from veil.files.features import write_features
from veil.files.maps.format import write_map
from veil.files.tiles import RECORDS, read_manifest
from veil.geometry.rigid import Rigid
from veil.places.tiles import measured_server_costs
from veil.server.service import Service
from veil.server.settings import ServerSettings
from veil.tiles.plans import ServerCosts, TileNumbers
from worlds.places import PLACE
from worlds.schemas import validate
from worlds.servers import running
from worlds.tile_streets import street

IN_MUNICH = PLACE | {
    "origin": {"lat": 48.0, "lon": 11.0, "h": 500.0},
    "enu_from_map": {**PLACE["enu_from_map"], "scale": 1.0},
    "median_error_m": 0.1,
    "largest_error_m": 0.2,
}


@pytest.fixture(scope="module")
def work(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Rigid]:
    """A folder with the street's map, its tiles, and the features of a photograph in it and of one elsewhere; and a pose."""
    folder = tmp_path_factory.mktemp("tiles")
    place = street("tiles commands", cameras=30)
    write_map(folder / "map", place.scene)
    (folder / "place.json").write_text(json.dumps(IN_MUNICH))
    query, pose = place.query(4.4)
    write_features(folder / "query.h5", [("here.jpg", query)])
    write_features(folder / "other.h5", [("elsewhere.jpg", street("elsewhere", cameras=3).query(1.0)[0])])
    words = ["--bytes", "30000", "--place", str(folder / "place.json"), "--json", str(folder / "cut.json")]
    assert main(["tiles", "cut", str(folder / "map"), "-o", str(folder / "tiles"), *words]) == 0
    return folder, pose


@pytest.mark.slow
def test_cutting_says_what_it_did(work: tuple[Path, Rigid], capsys: pytest.CaptureFixture[str]) -> None:
    folder, _ = work
    record = json.loads((folder / "cut.json").read_text())
    validate("tiles-cut", record)
    assert record["tiles"] > 4 and record["tile_bytes"] == 30000 and record["asked"] == 4
    assert (folder / "tiles" / RECORDS).stat().st_size == record["tiles"] * record["record_bytes"]
    assert main(["tiles", "cut", str(folder / "map"), "-o", str(folder / "small"), "--bytes", "4000"]) == 0
    printed = capsys.readouterr().out
    assert "left out" in printed and "were full" in printed and "inverted into pictures" in printed
    assert main(["tiles", "cut", str(folder / "map"), "-o", str(folder / "tiles")]) == 1
    assert "not empty" in capsys.readouterr().err


def localized(folder: Path, *words: str, name: str = "query") -> tuple[int, dict]:
    code = main(["localize", f"tiles:{folder / 'tiles'}", str(folder / f"{name}.h5"), "--json", str(folder / "o.json"), *words])
    record = json.loads((folder / "o.json").read_text())
    validate("localize", record)
    return code, record


@pytest.mark.slow
@pytest.mark.parametrize("where", [[], ["--near", "4", "0", "0"], ["--fix", "48.0", "11.00006", "--within", "3"]])
def test_a_photograph_is_localized_on_the_device(
    work: tuple[Path, Rigid], where: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    """Oracle: the planted pose."""
    folder, pose = work
    code, record = localized(folder, *where)
    (row,) = record["queries"]
    assert code == 0 and np.linalg.norm(np.array(row["camera_center"]) - pose.center) < 0.02
    assert record["tiles"]["asked"] == 4 and record["tiles"]["refused"] == {}
    assert "No server learns which records" in capsys.readouterr().out


@pytest.mark.slow
def test_another_place_gets_no_pose_and_nothing_is_sent_offline(work: tuple[Path, Rigid], tmp_path: Path) -> None:
    folder, _ = work
    code, record = localized(folder, name="other")
    assert code == 3 and record["queries"][0]["status"] == "no pose" and record["tiles"]["asked"] == 4
    code, record = localized(folder, "--offline", "--cache", str(tmp_path / "kept"))
    assert code == 3 and record["tiles"]["asked"] == 0 and len(record["tiles"]["refused"]["here.jpg"]) == 4
    assert localized(folder, "--cache", str(tmp_path / "kept"))[0] == 0
    code, record = localized(folder, "--offline", "--cache", str(tmp_path / "kept"))
    assert code == 0 and record["tiles"] | {"asked": 0, "refused": {}} == record["tiles"]
    assert record["tiles"]["guarantee"] == "Nothing was sent."


@pytest.mark.slow
def test_a_text_that_is_no_ratio_is_refused(work: tuple[Path, Rigid], capsys: pytest.CaptureFixture[str]) -> None:
    """Planted slip, which ended in a traceback in tiles alone."""
    assert main(["localize", f"tiles:{work[0] / 'tiles'}", str(work[0] / "query.h5"), "--ratio", "much"]) == 1
    assert "--ratio takes none, auto or a number in (0, 1], got 'much'" in capsys.readouterr().err


@pytest.mark.slow
def test_changed_tiles_are_told_to_the_user(
    work: tuple[Path, Rigid], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder, _ = work
    shutil.copytree(folder / "tiles", tmp_path / "tiles")
    data = bytearray((tmp_path / "tiles" / RECORDS).read_bytes())
    data[100:-100:1000] = bytes(len(data[100:-100:1000]))
    (tmp_path / "tiles" / RECORDS).write_bytes(bytes(data))
    shutil.copy(folder / "query.h5", tmp_path / "query.h5")
    code, record = localized(tmp_path)
    assert code == 3 and len(record["tiles"]["refused"]["here.jpg"]) == 4
    assert "is not the one that the manifest names" in capsys.readouterr().err


@pytest.mark.slow
def test_a_plan_compares_the_exits(
    work: tuple[Path, Rigid], tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Planted costs; the tiles that a map would be cut to are planned as those that were cut.

    One localization asks each of two servers for 4 of the 14 tiles, which is less than all of them; two localizations do not.
    """
    folder, _ = work
    costs = ServerCosts(xor_s=1e-9, product_s=1e-9, hint_s=1e-6)
    monkeypatch.setattr("veil.places.tiles.measured_server_costs", lambda *_, **__: costs)
    records = []
    for words in ([str(folder / "tiles")], [str(folder / "map"), "--bytes", "30000"]):
        out = tmp_path / "plan.json"
        assert main(["tiles", "plan", *words, "--queries-a-day", "3", "--days", "2", "--json", str(out)]) == 0
        validate("tiles-plan", record := json.loads(out.read_text()))
        records.append({**record, "manifest_bytes": 0, "exits": []})
        assert record["localizations"] == 6 and record["tiles"] == 14 and record["exits"][0]["exit"] == "region"
    assert records[0] == records[1]
    assert "region: takes the fewest bytes from 2 localizations on" in capsys.readouterr().out
    assert main(["tiles", "plan", str(folder / "tiles"), "--bytes", "4000"]) == 1
    assert "cut already" in capsys.readouterr().err


@pytest.mark.slow
def test_costs_are_measured(work: tuple[Path, Rigid]) -> None:
    manifest = read_manifest(work[0] / "tiles")
    numbers = TileNumbers(tiles=len(manifest), record_bytes=manifest.record_bytes, manifest_bytes=1, asked=2)
    costs = measured_server_costs(numbers, 5, seconds=0.01)
    assert 0 < costs.xor_s < 1e-6 and 0 < costs.product_s < 1e-6 and costs.product_s < costs.hint_s < 1e-3
    assert 0 < costs.exact_s < 1e-6 and 0 <= costs.transform_s < 1e-3 and 1e-4 < costs.packing_s < costs.collapse_s


def test_slips_are_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for words, told in (
        (["localize", f"tiles:{tmp_path / 'none'}", "q.jpg"], "cannot read"),
        (["localize", f"tiles:{tmp_path}", "q.jpg", "--offline"], "--cache"),
        (["localize", "tiles:http://maps.example/tiles", "q.jpg"], "use https"),
        (["localize", "tiles:https://127.0.0.1:9/t", "q.jpg", "--offline", "--cache", str(tmp_path)], "at an address"),
        (["localize", "tiles:https://127.0.0.1:9/t", "q.jpg"], "does not answer"),
    ):
        assert main(words) == 1
        assert told in capsys.readouterr().err


@pytest.mark.slow
def test_a_photograph_is_localized_through_a_server(
    work: tuple[Path, Rigid], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Oracle: the planted pose, from tiles that one command gives a server and another fetches."""
    folder, pose = work
    store, record = str(tmp_path / "store"), tmp_path / "served.json"
    assert main(["serve", "tiles", store, str(folder / "tiles"), "--name", "street", "--json", str(record)]) == 0
    served = json.loads(record.read_text())
    validate("serve-tiles", served)
    assert [item["name"] for item in served["tiles"]] == ["street"]
    query, pose_file = str(folder / "query.h5"), tmp_path / "found.json"
    with running(Service(tmp_path / "store", ServerSettings(workers=1)), jobs=False) as server:
        place = f"tiles:{server.url}/v1/tiles/street"
        for exit in ("region", "one-server"):
            words = ["localize", place, query, "--exit", exit, "--cache", str(tmp_path / "kept"), "--json", str(pose_file)]
            assert main(words) == 0
            (row,) = json.loads(pose_file.read_text())["queries"]
            assert np.linalg.norm(np.array(row["camera_center"]) - pose.center) < 0.02
        assert "the server needs an estimated 2^146 operations" in capsys.readouterr().out
        assert main(["localize", place, query, "--exit", "two-servers"]) == 1
        assert "the addresses of two servers" in capsys.readouterr().err
    assert main(["serve", "tiles", store, "--list"]) == 0
    assert capsys.readouterr().out.startswith("street  ")
    assert main(["serve", "tiles", store, "--remove", "street"]) == 0
    for words in (["--remove", "street"], [str(folder / "tiles")], ["--list", "--remove", "x"], []):
        assert main(["serve", "tiles", store, *words]) == 1
