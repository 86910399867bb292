"""Requests that schemathesis makes from the service's own contract, and what it found."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

HOOKS = Path(__file__).parent / "contract_hooks.py"
# Every check is on. What a schema cannot say of a request that it calls valid is refused by 422 alone, on these routes alone.
CONFIG = """\
base-url = "{url}"
headers = {{ Authorization = "Bearer {token}" }}
request-timeout = 60

[generation]
exclude-header-characters = "\\u0000\\r\\n"

{more}
"""


@dataclass(frozen=True, kw_only=True)
class Found:
    """What a run found: number of requests, and the text of what failed (empty: nothing)."""

    requests: int
    failures: str


def run(url: str, token: str, folder: Path, *, examples: int, seed: int, env: Mapping[str, str], more: str = "") -> Found:
    """Run all phases and all checks on a server, as an administrator."""
    folder.mkdir(parents=True, exist_ok=True)
    config, report = folder / "schemathesis.toml", folder / "report.json"
    config.write_text(CONFIG.format(url=url, token=token, more=more))
    command = [str(Path(sys.executable).parent / "schemathesis"), "--config-file", str(config), "run", f"{url}/openapi.json"]
    command += ["--checks", "all", "--phases", "examples,coverage,fuzzing,stateful", "--seed", str(seed)]
    command += ["--max-examples", str(examples), "--continue-on-failure", "--generation-database", "none"]
    command += ["--report", "json", "--report-json-path", str(report), "--no-color"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=folder, env={**env, "SCHEMATHESIS_HOOKS": str(HOOKS)})
    (folder / "output.txt").write_text(done.stdout + done.stderr)
    told = json.loads(report.read_text()) if report.is_file() else {}
    return Found(requests=told.get("requests", 0), failures="" if done.returncode == 0 else done.stdout + done.stderr)
