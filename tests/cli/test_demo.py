"""The demo does what its page says, end to end."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from veil.cli import main
from veil.files.features import read_features
from veil.pipelines.demo import DemoResult, run_demo
from worlds.schemas import validate


@pytest.mark.slow
@pytest.mark.usefixtures("unchecked")
def test_every_held_out_photograph_is_localized_and_the_other_place_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Raw, hardened on public and private maps, paper p-to-s at every m: localized; the median error of m = 2 near raw."""
    called: list[DemoResult] = []

    def kept(*arguments: Any, **options: Any) -> DemoResult:
        called.append(run_demo(*arguments, **options))
        return called[-1]

    monkeypatch.setattr("veil.cli.demo.run_demo", kept)
    code = main(["demo", "-o", str(tmp_path), "--json", str(tmp_path / "demo.json"), "--max-features", "500"])
    assert code == 0
    result = json.loads((tmp_path / "demo.json").read_text())
    validate("demo", result)
    # The command shows what the pipeline returned, and decides nothing.
    assert result == json.loads(json.dumps(called[0].as_json()))
    rows = result["queries"]
    keys = {"name", "form", "profile", "m", "distance", "status", "position_error", "rotation_error_deg"}
    keys |= {"inliers", "upload_bytes", "seconds", "epsilon", "epsilon_image"}
    assert all(set(row) == keys for row in (*rows, *result["strangers"]))
    must = [row for row in rows if row["profile"] != "paper" or row["distance"] == "p2s"]
    assert len(must) == 3 * 8
    assert {row["status"] for row in must} == {"localized"}
    assert {row["status"] for row in result["strangers"]} == {"no pose"}
    assert len(result["strangers"]) == 10
    error = {
        m: np.median([r["position_error"] for r in must if (r["m"], r["distance"]) == (m, d)])
        for m, d in ((0, "point"), (2, "p2s"))
    }
    assert error[2] <= 2 * error[0]
    words = [row for row in rows if row["form"] == "words"]
    assert len(words) == 3 and all(row["epsilon"] == 10 and row["epsilon_image"] > 1000 for row in words)
    # What was uploaded is left to be audited.
    folders = sorted((tmp_path / "uploads").iterdir())
    assert {"hardened-m4", "paper-m2", "paper-m16", "words"} <= {folder.name for folder in folders}
    assert all(len(list(folder.glob("*.veil"))) == 3 for folder in folders)
    assert [name for name, _ in read_features(tmp_path / "features.h5")] == sorted({row["name"] for row in rows})
    page = (tmp_path / "report.html").read_text()
    assert "No proof" in page and "no promise about the photograph" in page and "SCIA 2011" in page
    assert "http://" not in page and "https://" not in page  # opens offline, calls nobody
    printed = capsys.readouterr().out
    assert "localized" in printed and f"veil audit {tmp_path / 'uploads' / 'hardened-m4'}" in printed
