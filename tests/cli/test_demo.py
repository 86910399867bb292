"""The demo does what its page says, end to end."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from veil.cli import main
from veil.demo import DemoOptions, DemoResult, run_demo
from veil.files.features import read_features
from veil.pir.hintless_layout import hintless_layout
from worlds.schemas import validate
from worlds.small_pictures import small_door
from worlds.view_pages import read_page

# Photographs that the place lacks here.
LEFT_OUT = ("DSC_0001.jpg", "DSC_0008.jpg", "DSC_0012.jpg")


@pytest.mark.slow
@pytest.mark.usefixtures("unchecked")
def test_every_held_out_photograph_is_localized_and_the_other_place_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Raw, hardened on public and private maps, paper p-to-s at every m: localized; the median error of m = 2 near raw."""
    called: list[DemoResult] = []

    def kept(*arguments: Any, options: DemoOptions, **further: Any) -> DemoResult:
        called.append(run_demo(*arguments, options=replace(options, max_features=500), **further))
        return called[-1]

    monkeypatch.setattr("veil.cli.demo.run_demo", kept)
    monkeypatch.setattr("veil.demo.lund_door", lambda: small_door(tmp_path / "door", without=LEFT_OUT))
    code = main(["demo", "-o", str(tmp_path), "--json", str(tmp_path / "demo.json")])
    assert code == 0
    result = json.loads((tmp_path / "demo.json").read_text())
    validate("demo", result)
    # The command shows what the pipeline returned, and decides nothing.
    assert result == json.loads(json.dumps(called[0].as_json()))
    rows = result["queries"]
    keys = {"name", "form", "profile", "m", "distance", "status", "position_error", "rotation_error_deg"}
    keys |= {"inliers", "upload_bytes", "device_seconds", "seconds", "epsilon", "epsilon_image"}
    assert all(set(row) == keys for row in (*rows, *result["strangers"]))
    must = [row for row in rows if row["profile"] != "paper" or row["distance"] == "p2s"]
    assert len(must) == 3 * 9
    assert {row["status"] for row in must} == {"localized"}
    assert {row["status"] for row in result["strangers"]} == {"no pose"}
    assert len(result["strangers"]) == 11
    error = {
        m: np.median([r["position_error"] for r in must if (r["m"], r["distance"]) == (m, d)])
        for m, d in ((0, "point"), (2, "p2s"))
    }
    assert error[2] <= 2 * error[0]
    # From tiles, by each exit: as exact as raw features are, by the same tiles, and strangers are refused.
    tiles = result["tiles"]
    fetched = tiles["queries"]
    assert len(fetched) == 3 * 4 and {row["status"] for row in fetched} == {"localized"}
    assert [row["status"] for row in tiles["strangers"]] == ["no pose"] * 4
    assert np.median([row["position_error"] for row in fetched]) <= 2 * error[0]
    for name in {row["name"] for row in fetched}:
        own = {row["exit"]: row for row in fetched if row["name"] == name}
        assert len({row["position_error"] for row in own.values()}) == 1 and len(own) == 4
        record = tiles["tile_bytes"] + 32 * math.ceil(math.log2(tiles["tiles"]))
        asked = 2 * tiles["asked"]
        assert (own["region"]["up_bytes"], own["region"]["down_bytes"]) == (0, 0)
        assert own["two servers"]["down_bytes"] == asked * record
        assert own["two servers"]["up_bytes"] == asked * math.ceil(tiles["tiles"] / 8)
        assert own["region"]["once_bytes"] == own["two servers"]["once_bytes"] + tiles["tiles"] * record
        assert own["one server"]["once_bytes"] > own["two servers"]["once_bytes"] == own["hintless"]["once_bytes"]
        packed = hintless_layout(tiles["tiles"], record)
        assert own["hintless"]["up_bytes"] == tiles["asked"] * packed.parts * packed.query_bytes
        assert own["hintless"]["down_bytes"] == tiles["asked"] * packed.parts * packed.answer_bytes
    words = [row for row in rows if row["form"] == "words"]
    assert len(words) == 3 and all(row["epsilon"] == 10 and row["epsilon_image"] > 1000 for row in words)
    # What was uploaded is left to be audited.
    folders = sorted((tmp_path / "uploads").iterdir())
    assert {"hardened-m4", "hardened-m4-lines", "paper-m2", "paper-m16", "words"} <= {folder.name for folder in folders}
    assert all(len(list(folder.glob("*.veil"))) == 3 for folder in folders)
    assert [name for name, _ in read_features(tmp_path / "features.h5")] == sorted({row["name"] for row in rows})
    page = (tmp_path / "report.html").read_text()
    assert "four ways" in page and "keeps to itself what it receives" in page
    assert "2^146 operations" in page and "2^218 operations" in page
    assert "No proof" in page and "no promise about the photograph" in page and "SCIA 2011" in page
    assert "http://" not in page and "https://" not in page  # opens offline, calls nobody
    # The map in three dimensions lies beside the page, which leads to it: queries, photographs, and what descriptors give away.
    assert '<a href="view.html">' in page
    view = read_page((tmp_path / "view.html").read_text()).record
    names = [image["name"] for image in view["images"]]
    assert sum(image["query"] for image in view["images"]) == 3 and len(set(names)) == len(names) == 9
    assert all(image["photograph"] is not None for image in view["images"])
    assert sum(len(image["recovered"]) for image in view["images"]) == 6
    printed = capsys.readouterr().out
    assert "localized" in printed and "tiles, by exit" in printed
    assert f"veil audit {tmp_path / 'uploads' / 'hardened-m4'}" in printed
