"""`veil doctor`: what it says of a machine, for people and machines, and its exit code where a backend cannot serve."""

from __future__ import annotations

import json
import re
import warnings

import pytest

from veil.cli import main
from veil.cli.common import notes
from veil.distances import BACKENDS
from veil.distances.cpu import compile as compiler
from veil.distances.gpu import device
from veil.distances.measure import measure
from veil.errors import VeilWarning
from worlds.documents import section
from worlds.schemas import validate

DOCUMENTED = section("json.md", "veil doctor")


@pytest.mark.slow
def test_it_says_what_serves_and_how_fast(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor", "--seconds", "0.1", "--threads", "1", "--json", "-"]) == 0
    record = json.loads(capsys.readouterr().out)
    validate("doctor", record)
    assert {item["backend"] for item in record["backends"]} == set(BACKENDS) - {"auto"}
    assert record["serving"] in {item["backend"] for item in record["backends"] if item["serves"]}
    assert [rate["m"] for rate in record["rates"]] == [2, 4] and all(rate["seconds"] > 0 for rate in record["rates"])
    names = set(re.findall(r'[`"]([a-z0-9_]+)[`"]', DOCUMENTED))
    keys = {*record, *record["machine"], *record["backends"][0], *record["rates"][0]}
    assert keys <= names, keys - names
    assert main(["doctor", "--seconds", "0"]) == 0
    printed = capsys.readouterr().out
    assert "float64 least squares" in printed and "pip install 'veil[" in printed and "ms" not in printed


@pytest.mark.slow
def test_a_backend_that_cannot_serve_is_an_error(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """No fallback: the reason, and exit code 1; what else there is to know is told all the same."""
    monkeypatch.setattr(device, "obstacle", lambda: "torch finds no CUDA device")
    assert main(["doctor", "--backend", "gpu"]) == 1
    told = capsys.readouterr()
    assert re.search("gpu +no +torch finds no CUDA device", told.out) and "cannot serve: torch finds no CUDA device" in told.err
    assert main(["doctor", "--backend", "gpu", "--json", "-"]) == 1
    assert json.loads(capsys.readouterr().out)["serving"] is None


def test_it_says_that_the_compiler_fails(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """A kernel that LLVM refuses: which backend serves in its place, and why; by name it is an error."""
    for name, value in (("_cache", {}), ("_failure", None), ("_text", lambda shape, output: "no program")):
        monkeypatch.setattr(compiler, name, value)
    assert main(["doctor", "--seconds", "0"]) == 0
    told = capsys.readouterr().out
    assert (
        re.search("cpu +no +llvmlite .* cannot compile a kernel", " ".join(told.split()))
        and "'auto' is served by 'numpy'" in told
    )
    assert main(["doctor", "--seconds", "0", "--backend", "cpu"]) == 1
    assert "cannot compile a kernel" in capsys.readouterr().err


def test_a_note_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    """Veil's warnings reach people without a place in the code; others go where they went before."""
    with pytest.warns(UserWarning, match="something else") as others, notes():
        warnings.warn("computed by NumPy", VeilWarning, stacklevel=1)
        warnings.warn("something else", UserWarning, stacklevel=1)
    assert capsys.readouterr().err == "veil: note: computed by NumPy\n" and len(others) == 1


def test_a_rate_is_a_ratio() -> None:
    """Oracle: its own seconds."""
    rate = measure("numpy", 1, seconds=0.01)
    assert rate.share == rate.product_seconds / rate.seconds and rate.features > 0
