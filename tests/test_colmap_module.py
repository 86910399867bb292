"""COLMAP is loaded without taking the signals of the process that loads it."""

from __future__ import annotations

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
