"""Work on maps that takes long: queued in the database, done by one server under a lease, taken up again after a kill."""

from __future__ import annotations

import json
import secrets
import time
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, cast

from veil.server.answers.of_maps import JobJson, JobResultJson
from veil.server.store.database import Database
from veil.server.store.schema import Row, Statements

Kind = Literal["update", "rebuild", "remove"]
JobState = Literal["queued", "running", "done", "failed", "cancelled"]
# Seconds without a sign of its server after which a job is taken up by another, and how often that happens at most.
LEASE_S, ATTEMPTS = 60.0, 5


@dataclass(frozen=True, kw_only=True)
class Job:
    """Work on one map.

    - `kind`: "update" enters contributions, "rebuild" makes the map anew from all of them, "remove" takes out those that leave.
    - `token`: id of the token that asked for it first.
    - `step`, `done`, `total`: progress.
    - `result`: what came of it, as JSON values.
    - `worker`: the server that works on it; `attempts`: how often one began.
    """

    id: str
    map_id: str
    kind: Kind
    token: str
    state: JobState
    step: str = ""
    done: int = 0
    total: int = 0
    result: Mapping[str, Any] = field(default_factory=dict)
    worker: str = ""
    attempts: int = 0
    created: float = 0.0
    ended: float | None = None

    def as_json(self) -> JobJson:
        """The job as JSON values."""
        return {
            "job": self.id,
            "map": self.map_id,
            "kind": self.kind,
            "state": self.state,
            "progress": {"step": self.step, "done": self.done, "total": self.total},
            "result": cast(JobResultJson, dict(self.result)),
            "created": self.created,
            "ended": self.ended,
        }


def queue_job(statements: Statements, map_id: str, kind: Kind, token: str) -> Job:
    """The waiting job of this kind for a map, or a new one: what comes while a job waits is done by it."""
    row = statements.one(
        "SELECT * FROM jobs WHERE map = :map AND kind = :kind AND state = 'queued' ORDER BY created", map=map_id, kind=kind
    )
    if row is not None:
        return _job(row)
    job = Job(id="j" + secrets.token_hex(8), map_id=map_id, kind=kind, token=token, state="queued", created=time.time())
    statements.run(
        "INSERT INTO jobs (id, map, kind, token, state, step, done, total, result, worker, lease, attempts, created, ended) "
        "VALUES (:id, :map, :kind, :token, 'queued', '', 0, 0, '{}', '', 0, 0, :created, NULL)",
        id=job.id,
        map=map_id,
        kind=kind,
        token=token,
        created=job.created,
    )
    return job


def is_held(statements: Statements, job: Job) -> bool:
    """Whether a job is still that of the server that took it."""
    row = statements.one("SELECT worker, attempts, state FROM jobs WHERE id = :id", id=job.id)
    return row is not None and (row["worker"], row["attempts"], row["state"]) == (job.worker, job.attempts, "running")


def end_job(statements: Statements, job: Job, state: JobState, result: Mapping[str, Any]) -> bool:
    """Record what came of a job, if it is still that of the server that took it; returns whether it is."""
    if not is_held(statements, job):
        return False
    statements.run(
        "UPDATE jobs SET state = :state, result = :result, ended = :now, lease = 0 WHERE id = :id",
        state=state,
        result=json.dumps(dict(result)),
        now=time.time(),
        id=job.id,
    )
    return True


def note_result(statements: Statements, job: Job, result: Mapping[str, Any]) -> None:
    """Note what came of a job that has not ended yet."""
    if is_held(statements, job):
        statements.run("UPDATE jobs SET result = :result WHERE id = :id", result=json.dumps(dict(result)), id=job.id)


def noted_result(statements: Statements, job: Job) -> dict[str, Any]:
    """Notes of a job; empty without any."""
    row = statements.one("SELECT result FROM jobs WHERE id = :id", id=job.id)
    return {} if row is None else dict(json.loads(row["result"]))


def cancel_jobs(statements: Statements, map_id: str) -> None:
    """Cancel all jobs of a map; what works on one stops at its next heartbeat, and its result is dropped."""
    statements.run(
        "UPDATE jobs SET state = 'cancelled', ended = :now WHERE map = :map AND state IN ('queued', 'running')",
        now=time.time(),
        map=map_id,
    )


class Jobs:
    """The jobs of a server."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def get(self, job_id: str) -> Job | None:
        """The job of this id, None without one."""
        with self._database.transaction() as statements:
            row = statements.one("SELECT * FROM jobs WHERE id = :id", id=job_id)
        return None if row is None else _job(row)

    def of_map(self, map_id: str) -> list[Job]:
        """The jobs of a map, oldest first."""
        with self._database.transaction() as statements:
            return [_job(row) for row in statements.all("SELECT * FROM jobs WHERE map = :map ORDER BY created, id", map=map_id)]

    def open(self) -> list[Job]:
        """The jobs that wait or are worked on, oldest first."""
        with self._database.transaction() as statements:
            rows = statements.all("SELECT * FROM jobs WHERE state IN ('queued', 'running') ORDER BY created, id")
        return [_job(row) for row in rows]

    def take(self, worker: str, *, but: Collection[str] = ()) -> Job | None:
        """The oldest job that nobody works on, of a map that no other job works on, and not one of `but`; None without one.

        It is `worker`'s for `LEASE_S` after each `beat`. A job that was taken `ATTEMPTS` times before is failed instead.
        """
        now = time.time()
        with self._database.transaction() as statements:
            rows = statements.all("SELECT * FROM jobs WHERE state IN ('queued', 'running') ORDER BY created, id")
            # A lease that ends later than any can was given before the clock was set back.
            running = {row["map"]: row for row in rows if row["state"] == "running" and row["worker"]}
            working = {name for name, row in running.items() if now < row["lease"] <= now + LEASE_S}
            for row in rows:
                if row["id"] in but:
                    # Whoever began it may still work on it, and its result counts no more: others of its map go before.
                    if row["map"] not in working and running.get(row["map"], {}).get("id") == row["id"]:
                        statements.run("UPDATE jobs SET worker = '', lease = 0 WHERE id = :id", id=row["id"])
                        del running[row["map"]]
                    continue
                # Whoever began one job of a map and was not heard of may still work on it: that one is taken first.
                if row["map"] in working or running.get(row["map"], row)["id"] != row["id"]:
                    continue
                if row["attempts"] >= ATTEMPTS:
                    reason = f"the work ended {row['attempts']} times without a result; it may need more memory"
                    statements.run(
                        "UPDATE jobs SET state = 'failed', result = :result, ended = :now WHERE id = :id",
                        result=json.dumps({"reason": reason}),
                        now=now,
                        id=row["id"],
                    )
                    continue
                statements.run(
                    "UPDATE jobs SET state = 'running', worker = :worker, lease = :lease, attempts = attempts + 1 "
                    "WHERE id = :id",
                    worker=worker,
                    lease=now + LEASE_S,
                    id=row["id"],
                )
                taken = statements.one("SELECT * FROM jobs WHERE id = :id", id=row["id"])
                assert taken is not None
                return _job(taken)
        return None

    def beat(self, job: Job, step: str, done: int, total: int) -> bool:
        """Say that a job is being worked on, and how far it is; returns whether it still is this server's."""
        with self._database.transaction() as statements:
            if not is_held(statements, job):
                return False
            statements.run(
                "UPDATE jobs SET step = :step, done = :done, total = :total, lease = :lease WHERE id = :id",
                step=step,
                done=done,
                total=total,
                lease=time.time() + LEASE_S,
                id=job.id,
            )
        return True

    def forget(self, before_s: float) -> None:
        """Delete records of jobs that ended before a moment (seconds since 1970)."""
        with self._database.transaction() as statements:
            statements.run("DELETE FROM jobs WHERE ended IS NOT NULL AND ended < :before", before=before_s)


def _job(row: Row) -> Job:
    return Job(
        id=row["id"],
        map_id=row["map"],
        kind=row["kind"],
        token=row["token"],
        state=row["state"],
        step=row["step"],
        done=row["done"],
        total=row["total"],
        result=json.loads(row["result"]),
        worker=row["worker"],
        attempts=row["attempts"],
        created=row["created"],
        ended=row["ended"],
    )
