"""The programs in examples/ run as users run them, and print what they promise."""

from __future__ import annotations

import ast
import os
import re
import runpy
import subprocess
import sys
import tempfile
from pathlib import Path

import matplotlib.pyplot as plt
import pytest

import veil

ROOT = Path(__file__).parents[1]
# What each prints among other things; camera.py asks a server that runs already.
PRINTED = {
    "attack_your_upload": "paper     lattice              100.0 %",
    "epsilon_of_an_image": "epsilon 10: the true word is sent with probability 0.729",
    "first_pose": "raw features",
    "poses_from_tiles": "DSC_0010.jpg: ",
    "serve_and_ask": "'why': 'asked'",
    "what_leaves": "repeated byte for byte: True",
}
# The one that is run in a process of its own.
AS_A_PROGRAM = "epsilon_of_an_image"


def test_every_example_is_run() -> None:
    assert {path.stem for path in (ROOT / "examples").glob("*.py")} == {*PRINTED, "camera"}


def python_of(path: Path) -> list[str]:
    """The Python that a file shows: itself, or the blocks of a page."""
    text = path.read_text()
    return [text] if path.suffix == ".py" else re.findall(r"^```(?:python|py)\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)


def test_what_is_shown_to_users_imports_veil_alone() -> None:
    """Oracle: Python's parser. No module below `veil` is imported, and every name of `veil` that they use is public."""
    pages = [ROOT / "README.md", ROOT / "docs" / "reference" / "python.md", *sorted((ROOT / "docs" / "tutorials").glob("*.md"))]
    shown = [(path, code) for path in [*sorted((ROOT / "examples").glob("*.py")), *pages] for code in python_of(path)]
    assert len(shown) >= 9
    for path, code in shown:
        for node in ast.walk(ast.parse(code)):
            below = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            below += [str(node.module)] if isinstance(node, ast.ImportFrom) else []
            assert not [
                name for name in below if name.startswith("veil.") or (isinstance(node, ast.ImportFrom) and name == "veil")
            ]
            if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "veil":
                assert node.attr in veil.__all__, f"{path}: veil.{node.attr}"


@pytest.mark.slow
def test_an_example_runs_as_a_program(tmp_path: Path) -> None:
    """A process of its own, as users start it, ends well and prints what it promises."""
    own = {"MPLBACKEND": "Agg", "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT / "src"), "TMPDIR": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, str(ROOT / "examples" / f"{AS_A_PROGRAM}.py")],
        cwd=tmp_path,
        env={**os.environ, **own},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    assert PRINTED[AS_A_PROGRAM] in done.stdout


@pytest.mark.slow
@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize("name", [name for name in PRINTED if name != AS_A_PROGRAM])
def test_an_example_runs(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
    """Its own assertions say what must hold of the numbers; here that it ends well, with its figures drawn."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    plt.switch_backend("Agg")
    monkeypatch.setattr(plt, "show", plt.close)
    runpy.run_path(str(ROOT / "examples" / f"{name}.py"), run_name="__main__")
    assert PRINTED[name] in capfd.readouterr().out
