"""COLMAP is loaded without taking the signals of the process that loads it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

import pytest

PROGRAM = """
import os, signal, sys
signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(7))
{load}
print("loaded", flush=True)
os.kill(os.getpid(), signal.SIGTERM)
"""


def ended(load: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", PROGRAM.format(load=load)], capture_output=True, text=True, timeout=60)


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no SIGTERM that a handler sees")
def test_a_process_that_loaded_colmap_still_ends_by_its_own_handler() -> None:
    """Broken twin: `import pycolmap` by itself, after which the process aborts with a stack trace of C++."""
    kept = ended("from veil.colmap import pycolmap; pycolmap.Camera()")
    assert (kept.returncode, kept.stdout, kept.stderr) == (7, "loaded\n", "")
    lost = ended("import pycolmap")
    assert lost.returncode == -signal.SIGTERM and "stack trace" in lost.stderr


SILENT = """
{before}
import numpy as np, veil
from veil.extraction.picture import Picture
veil.extract(Picture.of(np.random.default_rng(0).integers(0, 255, (64, 64, 3), dtype=np.uint8), {{}}, None))
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("before", "tells"), [("", False), ("import pycolmap", True), ("import os; os.environ['GLOG_minloglevel'] = '0'", True)]
)
def test_colmaps_log_is_silent_unless_somebody_chose_otherwise(before: str, tells: bool) -> None:
    """The twins that tell are those of a user who loaded COLMAP, or set its level, first."""
    environment = {name: value for name, value in os.environ.items() if name != "GLOG_minloglevel"}
    done = subprocess.run(
        [sys.executable, "-c", SILENT.format(before=before)], capture_output=True, text=True, timeout=60, env=environment
    )
    assert done.returncode == 0 and ("SIFT" in done.stderr) == tells and (tells or done.stderr == "")
