"""What servers do in the background: jobs on maps, and what has to go when its time is over."""

from __future__ import annotations

import logging
import math
import os
import secrets
import shutil
import threading
import time
from pathlib import Path
from typing import Any

from veil.errors import CannotWrite, InputError, StorageTrouble, VeilError
from veil.files.match_store import MatchStore
from veil.pipelines.pair_matching import KIND
from veil.pipelines.removal import forgetting
from veil.server.backups import update_backups
from veil.server.earth_answers import PLACE
from veil.server.jobs import Job, end_job, is_held, queue_job
from veil.server.map_records import (
    Contribution,
    MapRecord,
    add_evidence,
    contributions_in,
    map_in,
    put_version,
    set_state,
)
from veil.server.processes import DeadlineExceeded, WorkerDied
from veil.server.processes import Worker as Process
from veil.server.receipts import deletion_receipt
from veil.server.service import CACHE, MATCHES, WORK, Service
from veil.server.suspects import doubted
from veil.server.tasks import MapOutcome, MapWork, change_map

log = logging.getLogger("veil.server")
# How often the queue of jobs is looked at, and what is over is looked for.
LOOK_S, SWEEP_S = 0.5, 600.0
# How long it waits after an error of the disk or the database.
PAUSE_S = 5.0
# Records of jobs and of use are kept for so long after their end.
KEPT_S = 7 * 86400.0
# What no map and no contribution names is deleted when it is so old: whoever should have deleted it was killed before it could.
STALE_S = 60.0
# Nothing expires in the sweep after one during which the clock was set by more than this: it may be wrong, and set right again.
CLOCK_S = 60.0


class Runner:
    """A thread that takes jobs of a service's queue, one after another, each done in a process of its own.

    `name` is that of this server among several that share a folder.
    """

    def __init__(self, service: Service) -> None:
        self.service = service
        self.name = f"{os.getpid()}-{secrets.token_hex(4)}"
        self._stop = threading.Event()
        self._wake = threading.Event()
        self._process = Process(threads=service.settings.map_workers)
        self._thread = threading.Thread(target=self._run, name="veil jobs", daemon=True)

    def start(self) -> None:
        """Begin to work."""
        self._thread.start()

    def wake(self) -> None:
        """Look at the queue now."""
        self._wake.set()

    def stop(self) -> None:
        """End; a job that is being worked on goes back to the queue."""
        self._stop.set()
        self._wake.set()
        self._thread.join()
        self._process.kill()

    def work_once(self) -> Job | None:
        """Take a job and do it; None if there is none."""
        job = self.service.jobs.take(self.name)
        if job is not None:
            self._do(job)
        return job

    def _run(self) -> None:
        swept, woken, offset = -math.inf, False, _clock_offset()
        while not self._stop.is_set():
            try:
                if time.monotonic() - swept > SWEEP_S:
                    swept, woken, before, offset = time.monotonic(), True, offset, _clock_offset()
                    sweep(self.service, expires=abs(offset - before) < CLOCK_S)
                if self.work_once() is not None:
                    woken = True
                    continue
                if woken:  # something may have been deleted
                    woken = False
                    update_backups(self.service)
            except Exception as error:  # a full disk or a database that is away: the queue stays, and is looked at again
                log.warning("jobs: %s: %s", type(error).__name__, error)
                self._stop.wait(PAUSE_S)
            woken = self._wake.wait(LOOK_S) or woken
            self._wake.clear()

    def _do(self, job: Job) -> None:
        """Do a job, and record what came of it, if it is still this server's."""
        service = self.service
        record = service.records.get(job.map_id)
        if record is None:
            return
        folder = service.folder / WORK / record.id / f"{job.id}-{secrets.token_hex(4)}"
        # Of servers that were killed, or lost their lease: what they would still bring is not taken.
        for other in folder.parent.glob("*"):
            shutil.rmtree(other, ignore_errors=True)
        try:
            items = service.records.contributions(record.id)
            work = self._work(job, record, items, folder)
            outcome = self._changed(job, work)
            self._record(job, record, items, work, outcome)
        except WorkerDied as error:  # it is tried again
            log.warning("job %s: %s", job.id, error)
            self._release(job)
        except (CannotWrite, StorageTrouble):  # nobody's fault either: it is tried again when the storage answers
            self._release(job, counts=False)
            raise
        except DeadlineExceeded as error:
            if self._stop.is_set():  # nobody's fault: another server, or the next start, begins it again
                self._release(job, counts=False)
                return
            with service.database.transaction(durable=True) as found:
                end_job(found, job, "failed", {"reason": str(error)})
        except VeilError as error:
            if not folder.is_dir():  # another server took the job, and cleared up
                self._release(job)
                return
            with service.database.transaction(durable=True) as found:
                end_job(found, job, "failed", {"reason": str(error)})
        finally:
            if not self._stop.is_set():
                shutil.rmtree(folder, ignore_errors=True)

    def _work(self, job: Job, record: MapRecord, items: list[Contribution], folder: Path) -> MapWork:
        """The files of a job's work, laid out."""
        messages: Path | None = None
        entering = [item for item in items if _enters(item, job, record)]
        if entering and job.kind != "remove":
            messages = folder / "messages"
            names = {f"{item.id}.veil": item.digest for item in entering}
            self.service.records.lay_out(names, messages)
        folder.mkdir(parents=True, exist_ok=True)
        base = self.service.version_folder(record) if record.files and job.kind != "rebuild" else None
        if base is None and record.files and job.kind != "rebuild":
            raise InputError("the map was replaced or deleted meanwhile")
        return MapWork(
            base=base,
            messages=messages,
            remove=tuple(item.id for item in items if item.state == "leaving") if job.kind == "remove" else (),
            output=folder / "map",
            matches=self.service.folder / MATCHES / record.id,
            unfinished=folder / "unfinished",
            owners=tuple((item.id, item.token) for item in items),
            doubted=tuple(doubted(items)),
            engine=self.service.settings.engine,
            workers=self.service.settings.map_workers,
        )

    def _changed(self, job: Job, work: MapWork) -> MapOutcome:
        """The outcome of a job's work, from a process; while it works, the lease is kept."""
        if job.kind == "remove" and (not work.remove or work.base is None):
            return MapOutcome(written=False, reason="there was nothing to take out of the map")
        shown: list[tuple[str, int, int]] = [("starting", 0, 0)]
        beaten = [0.0]

        def proceed() -> bool:
            if self._stop.is_set():
                return False
            if time.monotonic() - beaten[0] > 5.0:
                beaten[0] = time.monotonic()
                try:
                    return self.service.jobs.beat(job, *shown[-1])
                except (
                    Exception
                ) as error:  # the database is away: the work goes on, and counts if the lease is there at its end
                    log.warning("job %s: %s: %s", job.id, type(error).__name__, error)
            return True

        def tell(step: str, done: int, total: int) -> None:
            shown[:] = [(step, done, total)]
            proceed()

        proceed()
        return self._process.call(change_map, work, deadline_s=self.service.settings.map_seconds, tell=tell, proceed=proceed)

    def _record(self, job: Job, record: MapRecord, items: list[Contribution], work: MapWork, outcome: MapOutcome) -> None:
        """Put the new version in the place of the old one, with the states of contributions and receipts, all at once."""
        service = self.service
        files = service.records.keep_files(work.output) if outcome.written else {}
        result: dict[str, Any] = {"reason": outcome.reason} if outcome.reason else {}
        gone: list[Contribution] = []
        with service.database.transaction(durable=True) as found:
            present = map_in(found, record.id)
            # Another version than the work began with: what was deleted from it meanwhile must not come back.
            if present is None or present.version != record.version or not is_held(found, job):
                held = False
            else:
                held = True
                states = {item.id: item.state for item in contributions_in(found, record.id)}
                if outcome.written or outcome.emptied:
                    service.records.require_kept(files)
                    # Growth and removal leave the cameras of a map where they are; a map that is made anew has another frame.
                    kept = {} if job.kind == "rebuild" or outcome.emptied else {PLACE: present.facts.get(PLACE)}
                    put_version(found, present, files, {**outcome.facts, **{k: v for k, v in kept.items() if v}})
                for number, model in enumerate(outcome.models, start=1):
                    for name in model:
                        if states.get(name) in ("pending", "left out"):
                            set_state(found, name, "mapped", "" if number == 1 else f"in model {number}")
                for name, reason in outcome.left_out.items():
                    if states.get(name) in ("pending", "mapped", "left out"):
                        set_state(found, name, "left out", reason)
                for name, evidence in outcome.evidence.items():
                    add_evidence(found, name, evidence)
                if outcome.emptied:
                    left = [name for name, state in states.items() if state in ("mapped", "left out")]
                    for name in left:
                        set_state(found, name, "pending", outcome.reason)
                    if left:
                        queue_job(found, record.id, "update", job.token)
                if job.kind == "remove":
                    gone = [item for item in items if item.id in work.remove or (item.state == "leaving" and not record.files)]
                    for item in gone:
                        more = {**outcome.removed, "map_versions": [record.version, record.version + outcome.written]}
                        why, _, by = item.reason.partition(" by ")
                        deletion_receipt(found, item, by=by, why=why, more=_of_item(item.id, more))
                        found.run("DELETE FROM contributions WHERE id = :id", id=item.id)
                mapped = sum(len(model) for model in outcome.models)
                result |= {"mapped": mapped, "left_out": len(outcome.left_out), "version": present.version + bool(files)}
                result |= {} if outcome.moved is None else {"moved": outcome.moved}
                end_job(found, job, "done", result)
        if held and (outcome.written or outcome.emptied):
            service.clear_map(record, [item.digest for item in gone])
        else:
            service.records.drop_unused([*files.values(), *(item.digest for item in gone)])
        if not held:
            self._release(job)

    def _release(self, job: Job, *, counts: bool = True) -> None:
        """Give a job back, so that it is taken again; `counts` says whether this was an attempt."""
        with self.service.database.transaction() as found:
            if is_held(found, job):
                found.run(
                    "UPDATE jobs SET lease = 0, attempts = :attempts, worker = '' WHERE id = :id",
                    attempts=job.attempts if counts else job.attempts - 1,
                    id=job.id,
                )


def _enters(item: Contribution, job: Job, record: MapRecord) -> bool:
    """Whether a contribution is entered by a job: what waits or was left out, and everything into a map that is made anew."""
    if item.state == "leaving":
        return False
    return job.kind == "rebuild" or not record.files or item.state in ("pending", "left out")


def _of_item(name: str, removed: dict[str, Any]) -> dict[str, Any]:
    """What a removal says of one contribution, without the names of others that went with it."""
    own = [row for row in removed.pop("removed", []) if row.get("name") == name]
    return {**removed, "features": own[0]["features"] if own else 0}


def _clock_offset() -> float:
    """How far the clock is ahead of one that nobody sets."""
    return time.time() - time.monotonic()


def sweep(service: Service, *, expires: bool = True) -> None:
    """Delete what a killed server left, old records, and, if `expires`, contributions whose time is over.

    Removals that failed are asked for again.
    """
    if expires:
        service.expire()
    service.remove_leaving()
    now = time.time()
    service.jobs.forget(now - KEPT_S)
    service.tokens.forget_usage(now - KEPT_S)
    present = {record.id: str(record.version) for record in service.records.all()}
    for folder in (CACHE, MATCHES, WORK):
        for path in (service.folder / folder).glob("*"):
            if path.name not in present:
                shutil.rmtree(path, ignore_errors=True)
    for path in (service.folder / CACHE).glob("*/*"):
        if path.name != present.get(path.parent.name) and now - path.stat().st_mtime > STALE_S:
            shutil.rmtree(path, ignore_errors=True)
    forget_matches(service)
    service.records.drop_unused(service.records.blobs.names(older_than_s=STALE_S))
    service.database.clear_log(left_over=True)


def forget_matches(service: Service) -> None:
    """Delete this folder's matches of contributions that are gone: another server, with a folder of its own, removed them."""
    for path in (service.folder / MATCHES).glob("*"):
        if any(job.state == "running" for job in service.jobs.of_map(path.name)):
            continue
        kept = MatchStore(path, KIND, read=False).names()
        present = {item.id for item in service.records.contributions(path.name)}
        if gone := [name for name in kept if name not in present]:
            try:
                forgetting(path)(gone)
            except InputError:  # it cannot say whose matches it keeps
                shutil.rmtree(path, ignore_errors=True)
