"""`veil plan map`: a record for machines and lines for people."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from veil.cli import main
from veil.places.maps.clusters.plans import UnitCosts
from worlds.schemas import validate

COSTS = UnitCosts(features=500, match_s=0.01, list_s=0.1, vote_s=1e-7, map_s=0.5)


def test_a_plan_is_printed(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Planted costs: 300 images match all pairs, 10,000 those that tracks name, and more machines take fewer days.

    Tracks take less time than features would.
    """
    monkeypatch.setattr("veil.places.unit_costs.measured_costs", lambda seconds: COSTS)
    records = []
    for words in (["300"], ["10000"], ["10000", "--machines", "8"], ["10000", "--pairs", "retrieval"]):
        out = tmp_path / "plan.json"
        assert main(["plan", "map", "--image-count", *words, "--cores", "2", "--json", str(out)]) == 0
        validate("plan-map", record := json.loads(out.read_text()))
        records.append(record)
    assert [record["pairs"] for record in records] == [44_850, 200_000, 200_000, 400_000]
    assert [record["pairs_by"] for record in records] == ["all", "tracks", "tracks", "retrieval"]
    assert records[2]["days"] < records[1]["days"] and records[1]["retrieval_s"] < records[3]["retrieval_s"] / 10
    said = capsys.readouterr().out
    assert re.search(r"pairs of images +200,000 +of 49,995,000", said) and "core-hours" in said
