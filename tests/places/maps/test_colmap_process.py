"""The process that COLMAP runs in: whatever it says, and however it ends, its parent goes on."""

from __future__ import annotations

import math
import os
import subprocess
import sys
from pathlib import Path

import pytest

import veil.places.maps.colmap as module
from veil.errors import RangeError
from veil.places.maps.colmap import WORKER, Colmap, StageLimits, Stopped

# Reads requests as the worker does, and does what they say.
STAND_IN = """
import json, os, sys, time
for line in sys.stdin:
    request = json.loads(line)
    if request["do"] == "log":
        os.write(2, b"\\xff" * (1 << 18) + b"\\nRegistering image #7\\n")
    elif request["do"] == "die":
        os.kill(os.getpid(), 9)
    elif request["do"] == "wait":
        time.sleep(60)
    print(json.dumps({"pid": os.getpid()}), flush=True)
"""


@pytest.fixture
def stand_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "worker.py"
    path.write_text(STAND_IN)
    monkeypatch.setattr(module, "WORKER", path)


def test_a_log_that_is_no_text_stops_nobody(stand_in: None) -> None:
    """The log has more bytes than a pipe holds, none of them UTF-8: a reader that stopped would hang COLMAP."""
    with Colmap(StageLimits(max_seconds=20.0)) as colmap:
        assert isinstance(colmap.run({"do": "log"}), dict)
        assert isinstance(colmap.run({"do": "log"}), dict)


@pytest.mark.slow
def test_the_reason_is_the_one_it_ended_for(stand_in: None) -> None:
    """A process that the system kills, as for lack of memory, is not out of time; the next request gets another process."""
    with Colmap(StageLimits(max_seconds=30.0)) as colmap:
        answer = colmap.run({"do": "die"})
        assert isinstance(answer, Stopped) and "ended by itself (code -9)" in answer.reason and not answer.out_of_time
        assert isinstance(colmap.run({"do": "answer"}), dict)
    with Colmap(StageLimits(max_seconds=0.5)) as colmap:
        answer = colmap.run({"do": "wait"})
        assert isinstance(answer, Stopped) and "not done after 0.5 s" in answer.reason and answer.out_of_time


@pytest.mark.parametrize("wrong", [{"stall_s": 0.0}, {"max_seconds": -1.0}, {"max_seconds": math.nan}, {"memory_bytes": 0}])
def test_limits_are_positive(wrong: dict[str, float]) -> None:
    with pytest.raises(RangeError, match=next(iter(wrong))):
        StageLimits(**wrong)  # type: ignore[arg-type]


def test_the_worker_takes_nothing_but_its_own_folder_from_the_path(tmp_path: Path) -> None:
    """Under PYTHONSAFEPATH the first entry of the path is not the worker's folder; pycolmap must still be imported."""
    (tmp_path / "pycolmap.py").write_text("raise ValueError('found it')")
    environment = {**os.environ, "PYTHONPATH": str(tmp_path), "PYTHONSAFEPATH": "1"}
    request = '{"do": "verify", "memory_bytes": 0, "stall_s": 0, "seed": 0, "options": {}, "database": ""}\n'
    run = subprocess.run(
        [sys.executable, str(WORKER)], input=request, env=environment, capture_output=True, text=True, check=True
    )
    assert "found it" in run.stdout
