"""`veil doctor`: what it says of a machine, for people and machines, and its exit code where a backend cannot serve."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from veil.cli import main
from veil.kernels import BACKENDS
from veil.kernels.gpu import device
from veil.kernels.measure import measure

DOCUMENTED = (Path(__file__).parents[2] / "docs/reference/json.md").read_text().split("## veil doctor")[1]


def test_it_says_what_serves_and_how_fast(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor", "--seconds", "0.1", "--threads", "1", "--json", "-"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert {item["backend"] for item in found["backends"]} == set(BACKENDS) - {"auto"}
    assert found["serving"] in {item["backend"] for item in found["backends"] if item["serves"]}
    assert [rate["m"] for rate in found["rates"]] == [2, 4] and all(rate["seconds"] > 0 for rate in found["rates"])
    names = set(re.findall(r'[`"]([a-z0-9_]+)[`"]', DOCUMENTED))
    keys = {*found, *found["machine"], *found["backends"][0], *found["rates"][0]}
    assert keys <= names, keys - names
    assert main(["doctor", "--seconds", "0"]) == 0
    printed = capsys.readouterr().out
    assert "float64 least squares" in printed and "pip install 'veil[" in printed and "ms" not in printed


def test_a_backend_that_cannot_serve_is_an_error(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """No fallback: the reason, and exit code 1; what else there is to know is told all the same."""
    monkeypatch.setattr(device, "obstacle", lambda: "torch finds no CUDA device")
    assert main(["doctor", "--backend", "gpu"]) == 1
    told = capsys.readouterr()
    assert "no: torch finds no CUDA device" in told.out and "cannot serve: torch finds no CUDA device" in told.err
    assert main(["doctor", "--backend", "gpu", "--json", "-"]) == 1
    assert json.loads(capsys.readouterr().out)["serving"] is None


def test_a_rate_is_a_ratio() -> None:
    """Oracle: its own seconds."""
    rate = measure("numpy", 1, seconds=0.01)
    assert rate.share == rate.product_seconds / rate.seconds and rate.features > 0
