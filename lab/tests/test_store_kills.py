"""A sample of the points at which `lab/benchmarks/store_kills.py` kills processes that write; all of them take hours."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from worlds import buckets, killing

PROGRAM = Path(__file__).parents[1] / "benchmarks" / "store_kills.py"


def killed(*given: str) -> tuple[int, dict[str, int], str]:
    """Exit code of the program, what it counted, and all that it printed."""
    if reason := killing.missing():
        pytest.skip(reason)
    command = [sys.executable, str(PROGRAM), "--forms", "words", *given]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    told = done.stdout + done.stderr
    assert done.stdout.strip(), told
    return done.returncode, json.loads(done.stdout.splitlines()[-1]), told


@pytest.mark.slow
def test_kills_lose_nothing_do_nothing_twice_and_leave_nothing() -> None:
    """Oracle: what clients were told, and a search for planted bytes in all files and objects of the store.

    Each kind of writer: contributions, a removal with its backup, and a device; the first two with blobs on S3, too.
    """
    storage = ["folder"] if buckets.missing() else ["folder", "bucket"]
    code, total, told = killed(
        "--scenarios", "contribute", "remove", "device", "--storage", *storage, "--most", "3", "--seed", "44"
    )
    assert code == 0, told
    assert total["killed"] == 3 * (3 if storage == ["folder"] else 5), told
    assert total["points"] > 500


@pytest.mark.slow
@pytest.mark.parametrize("twin", ["keep-leftovers", "receipts-first"])
def test_broken_twins_are_caught(twin: str) -> None:
    """Blobs that are deleted without halves of them that a kill left, and receipts that are written before the bytes go.

    Nine points of some twenty: of each kind of call one.
    """
    given = ("--scenarios", "contribute", "--writers", "blobs", "--endings", "map deleted", "--storage", "folder")
    code, total, told = killed(*given, "--most", "9", "--seed", "44", "--twin", twin)
    assert code == 1 and total["left"] > 0, told
