"""The programs in examples/ run as users run them, and print what they promise."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

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


def test_every_example_is_run() -> None:
    assert {path.stem for path in (ROOT / "examples").glob("*.py")} == {*PRINTED, "camera"}


@pytest.mark.slow
@pytest.mark.parametrize("name", PRINTED)
def test_an_example_runs(name: str, tmp_path: Path) -> None:
    """Its own assertions say what must hold of the numbers; here that it ends well, and in time."""
    own = {"MPLBACKEND": "Agg", "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT / "src"), "TMPDIR": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, str(ROOT / "examples" / f"{name}.py")],
        cwd=tmp_path,
        env={**os.environ, **own},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    assert PRINTED[name] in done.stdout
