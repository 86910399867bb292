"""Runs of schemathesis on the service's own contract, and their outcomes."""

from __future__ import annotations

import base64
import json
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from veil.files.codebooks import bundled_codebook
from veil.server.access.tokens import Quota
from veil.server.service import Service
from veil.server.settings import ServerSettings
from worlds.places import PLACE
from worlds.served_streets import EXITS, serve_street
from worlds.servers import Running, running

HOOKS = Path(__file__).parent / "contract_hooks.py"
# Tables of Unicode, which every run would otherwise compute.
KEPT = Path(__file__).parents[2] / ".hypothesis"
SETTINGS = ServerSettings(workers=1, map_workers=1, demo_page=True)
PLENTY = Quota(requests_per_minute=1 << 40, bytes_per_day=1 << 50)
# Every check is on. To what schemathesis takes for a refusal or for success by itself are added: 413 for a body that is invalid
# and too long; and 422 for valid requests on routes whose answer depends on more than the request: what a map accepts is the
# map's policy, a query may have no pose on Earth, and a map without images no place.
CONFIG = """\
headers = { Authorization = "Bearer ${CONTRACT_TOKEN}" }
request-timeout = 60

[checks.negative_data_rejection]
expected-statuses = ["400", "401", "403", "404", "405", "406", "409", "413", "415", "422", "428", "429", "5xx"]
"""
BY_STATE = """
[[operations]]
include-path = "%s"
checks.positive_data_acceptance.expected-statuses = ["2xx", "3xx", "401", "403", "404", "409", "422", "429", "5xx"]
"""
WITHOUT_COVERAGE = """
[[operations]]
include-path = "%s"
phases.coverage.enabled = false
"""
STATEFUL_ROUTES = (
    "/v1/maps/{map_id}/localize",
    "/v1/maps/{map_id}/contributions",
    "/v1/maps/{map_id}/place",
    "/v1/maps/{map_id}/geopose",
    "/geopose",
)


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """The outcome of a run: number of requests, number of failures and errors, and the output of schemathesis."""

    requests: int
    failures: int
    told: str


@contextmanager
def serving(folder: Path, messages: Sequence[bytes]) -> Iterator[tuple[Running, str]]:
    """A server that does no further work on maps, and the id of one of these messages, which is on Earth."""
    made = mapped(folder, messages)
    with running(Service(folder, SETTINGS), jobs=False) as server:
        yield server, made


def mapped(folder: Path, messages: Sequence[bytes]) -> str:
    """Make a server's folder with a map of messages on Earth; returns the map's id."""
    with running(Service(folder, SETTINGS)) as server:
        made = server.ask("POST", "/v1/maps", value={"name": "door"}).value["map"]
        for message in messages:
            job = server.ask("POST", f"/v1/maps/{made}/contributions", body=message).value["job"]
        assert server.done(job)["state"] == "done"
        assert server.ask("PUT", f"/v1/maps/{made}/place", value=PLACE).status == 200
    return str(made)


def prey(server: Running, messages: Sequence[bytes], map_id: str) -> dict[str, Any]:
    """Facts about a server for a run: messages and existing ids. Adds tiles to the server."""
    version, *lengths = serve_street(server.service)
    name, digest = version.split("/")[-2:]
    query_bytes = dict(zip(EXITS, lengths, strict=True))
    known = {
        "map_id": map_id,
        "digest": bundled_codebook().digest,
        "name": name,
        "version": digest,
        "path": "page.js",
        "/demo/photographs/{name}#name": "berlin.jpg",
    }
    return {"messages": [base64.b64encode(each).decode() for each in messages], "known": known, "query_bytes": query_bytes}


def run(
    server: Running,
    told: dict[str, Any],
    folder: Path,
    *,
    examples: int,
    seed: int,
    document: dict[str, Any] | None = None,
    covered: Sequence[str] = (),
) -> Outcome:
    """Run all phases and all checks on a server, as an administrator of a token of its own.

    `document` None is what the server sends. `covered`: paths without the phase of coverage, as another one takes their body.
    """
    folder.mkdir(parents=True, exist_ok=True)
    config, report, facts, where = (folder / name for name in ("schemathesis.toml", "report.json", "prey.json", "openapi.json"))
    parts = [BY_STATE % path for path in STATEFUL_ROUTES if document is None]
    parts += [WITHOUT_COVERAGE % path for path in covered]
    config.write_text(CONFIG + "".join(parts))
    facts.write_text(json.dumps(told))
    where.write_text(json.dumps(server.promises.document if document is None else document))
    _, secret = server.service.tokens.make("schemathesis", ["admin"], quota=PLENTY)
    command = [str(Path(sys.executable).parent / "schemathesis"), "--config-file", str(config), "run", str(where)]
    command += ["--url", server.url, "--checks", "all", "--phases", "examples,coverage,fuzzing,stateful"]
    command += ["--seed", str(seed), "--max-examples", str(examples), "--continue-on-failure", "--generation-database", "none"]
    command += ["--report", "json", "--report-json-path", str(report), "--no-color"]
    own = {"SCHEMATHESIS_HOOKS": str(HOOKS), "VEIL_CONTRACT_PREY": str(facts), "CONTRACT_TOKEN": secret}
    own["HYPOTHESIS_STORAGE_DIRECTORY"] = str(KEPT)
    done = subprocess.run(command, capture_output=True, text=True, cwd=folder, env={**os.environ, **own})
    assert report.is_file(), done.stdout + done.stderr
    results = json.loads(report.read_text())
    assert results["complete"] and results["operations"]["tested"] == results["operations"]["total"], done.stdout
    bad = len(results["failures"]) + len(results["errors"])
    return Outcome(requests=results["test_cases"]["generated"], failures=bad or done.returncode, told=done.stdout + done.stderr)
