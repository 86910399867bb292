"""Background work of servers: jobs on maps, those of them that wait for room, and deletion of data whose time is over."""

from __future__ import annotations

import logging
import math
import os
import secrets
import shutil
import threading
import time
from collections.abc import Set
from functools import partial
from pathlib import Path
from typing import Any

from veil.errors import CannotWrite, InputError, NoRoom, StorageTrouble, VeilError, told_as_json
from veil.files.atomic import remove
from veil.files.service.reserve import LEAST, let_go
from veil.processes import DeadlineExceeded, WorkerDied
from veil.server.backups import update_backups
from veil.server.deletion import MATCHES, REMOVED, WORK, clear_map, clear_work, erase, sweep
from veil.server.jobs.processes import Worker as Process
from veil.server.jobs.queue import Job, end_job, is_held, note_result, noted_result, queue_job
from veil.server.jobs.tasks import MapOutcome, MapWork, change_map
from veil.server.maps.contributions import Contribution, add_facts, contributions_in, set_state
from veil.server.maps.earth import PLACE
from veil.server.maps.records import MapRecord, map_in, put_version
from veil.server.maps.suspects import doubted
from veil.server.service import Service
from veil.server.store.schema import Statements

log = logging.getLogger("veil.server")
# How often the queue of jobs is looked at, and what is over is looked for.
LOOK_S, SWEEP_S = 0.5, 600.0
# How long it waits after an error of the disk or the database.
PAUSE_S = 5.0
# Nothing expires in the sweep after one during which the clock was set by more than this: it may be wrong, and set right again.
CLOCK_S = 60.0


class WaitingJobs:
    """The jobs of a server's queue that wait for room: those that add to maps, and those that met a full disk.

    A job that adds to a map begins where the map's messages would fit once more: so large are its matches and the map, twice
    while it is made, about. A removal may use what is kept free, and begins whatever is left; if that was not enough, the
    reserve is given up for it, then the matches of its map, which can be made again. Then it waits until there is more.
    """

    def __init__(self, service: Service) -> None:
        self._service = service
        # Bytes that were free when a job met a full disk, by its id.
        self._not_enough: dict[str, int] = {}

    def ids(self) -> Set[str]:
        """Ids of the jobs that wait for room now."""
        room, jobs = self._service.room, self._service.jobs.open()
        free, left = room.free(), room.left()
        self._not_enough = {job.id: self._not_enough[job.id] for job in jobs if job.id in self._not_enough}
        return {
            job.id
            for job in jobs
            if free < self._not_enough.get(job.id, -LEAST) + LEAST
            or (job.kind != "remove" and left < self._service.records.bytes_of(map_id=job.map_id))
        }

    def met_full_disk(self, job: Job, free: int) -> None:
        """Note that a job needs more than was free when it began, and make room for a removal."""
        self._not_enough[job.id] = free
        if job.kind == "remove" and not let_go(self._service.room.reserve):
            remove(self._service.folder / MATCHES / job.map_id)


class Runner:
    """A thread that takes jobs of a service's queue, one after another, each done in a process of its own.

    `name` is that of this server among several that share a folder.
    """

    def __init__(self, service: Service) -> None:
        self.service = service
        self.name = f"{os.getpid()}-{secrets.token_hex(4)}"
        self._waiting = WaitingJobs(service)
        self._looked = -math.inf
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
        job = self.service.jobs.take(self.name, but=self._waiting.ids())
        if job is not None:
            self._do(job)
        return job

    def _run(self) -> None:
        swept, woken, offset = -math.inf, False, _clock_offset()
        while not self._stop.is_set():
            try:
                self._keep_room()
                if time.monotonic() - swept > SWEEP_S:
                    swept, woken, before, offset = time.monotonic(), True, offset, _clock_offset()
                    self.service.room.acting(partial(sweep, self.service, expires=abs(offset - before) < CLOCK_S))
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

    def _keep_room(self) -> None:
        """Look now and then whether there is room for the reserve."""
        if time.monotonic() - self._looked > PAUSE_S:
            self._looked = time.monotonic()
            self.service.keep_room()

    def _do(self, job: Job) -> None:
        """Do a job, and record what came of it, if it is still this server's."""
        service = self.service
        record = service.records.get(job.map_id)
        if record is None:
            return
        folder = service.folder / WORK / record.id / f"{job.id}-{secrets.token_hex(4)}"
        free = service.room.free()
        try:
            # Of servers that were killed, or lost their lease: what they would still bring is not taken.
            clear_work(service.folder, record.id)
            items = service.records.contributions(record.id)
            if job.kind != "remove" or _to_take_out(items):
                work = self._work(job, record, items, folder)
                if not self._record(job, record, items, work, self._changed(job, work)):
                    return
            if job.kind == "remove":
                remove(folder)
                self._finish(job, items)
        except WorkerDied as error:  # it is tried again
            log.warning("job %s: %s", job.id, error)
            self._release(job, counts=not service.room.is_full())
        except NoRoom as error:  # it waits until there is more
            log.warning("job %s waits for room: %s", job.id, error)
            self._waiting.met_full_disk(job, free)
            self._release(job, counts=False)
        except (CannotWrite, StorageTrouble):  # nobody's fault either: it is tried again when the storage answers
            self._release(job, counts=False)
            raise
        except DeadlineExceeded as error:
            if self._stop.is_set():  # nobody's fault: another server, or the next start, begins it again
                self._release(job, counts=False)
                return
            with service.database.transaction(durable=True) as statements:
                end_job(statements, job, "failed", {"reason": error.cause, **told_as_json(error.remedy)})
        except VeilError as error:
            if not folder.is_dir():  # another server took the job, and cleared up
                self._release(job)
                return
            if service.room.is_full():  # libraries say it in many ways
                self._waiting.met_full_disk(job, free)
                self._release(job, counts=False)
                return
            with service.database.transaction(durable=True) as statements:
                end_job(statements, job, "failed", {"reason": error.cause, **told_as_json(error.remedy)})
        finally:
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
            remove=tuple(item.id for item in _to_take_out(items)) if job.kind == "remove" else (),
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
                    self._keep_room()
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

    def _record(self, job: Job, record: MapRecord, items: list[Contribution], work: MapWork, outcome: MapOutcome) -> bool:
        """Put the new version in the place of the old one, with the states of contributions, all at once.

        Returns whether the job is still this server's. A removal goes on with `_finish`.
        """
        service = self.service
        files = service.records.keep_files(work.output, record.id) if outcome.written else {}
        with service.database.transaction(durable=True) as statements:
            present = map_in(statements, record.id)
            # Another version than the work began with: what was deleted from it meanwhile must not come back.
            held = present is not None and present.version == record.version and is_held(statements, job)
            if held and present is not None:
                if outcome.written or outcome.emptied:
                    service.records.require_kept(files)
                    # Growth and removal leave the cameras of a map where they are; a map that is made anew has another frame.
                    kept = {} if job.kind == "rebuild" or outcome.emptied else {PLACE: present.facts.get(PLACE)}
                    put_version(statements, present, files, {**outcome.facts, **{k: v for k, v in kept.items() if v}})
                _set_states(statements, job, record, outcome)
                for item in _to_take_out(items) if job.kind == "remove" else ():
                    more = {**outcome.removed, "map_versions": [record.version, record.version + outcome.written]}
                    add_facts(statements, item.id, REMOVED, _of_item(item.id, more))
                result = _result(outcome, present.version + bool(files))
                if job.kind == "remove":
                    note_result(statements, job, result)
                else:
                    end_job(statements, job, "done", result)
        if held and (outcome.written or outcome.emptied):
            clear_map(service, record.id)
        else:
            service.records.drop_unused(files.values())
        if not held:
            self._release(job)
        return held

    def _finish(self, job: Job, items: list[Contribution]) -> None:
        """Write the receipts of what a removal took out, when its bytes are gone, and end the job."""
        erase(self.service, [item.id for item in items if item.state == "leaving"], job)
        with self.service.database.transaction(durable=True) as statements:
            end_job(
                statements, job, "done", noted_result(statements, job) or {"reason": "there was nothing to take out of the map"}
            )

    def _release(self, job: Job, *, counts: bool = True) -> None:
        """Give a job back, so that it is taken again; `counts` says whether this was an attempt."""
        with self.service.database.transaction() as statements:
            if is_held(statements, job):
                statements.run(
                    "UPDATE jobs SET lease = 0, attempts = :attempts, worker = '' WHERE id = :id",
                    attempts=job.attempts if counts else job.attempts - 1,
                    id=job.id,
                )


def _enters(item: Contribution, job: Job, record: MapRecord) -> bool:
    """Whether a contribution is entered by a job: what waits or was left out, and everything into a map that is made anew."""
    if item.state == "leaving":
        return False
    return job.kind == "rebuild" or not record.files or item.state in ("pending", "left out")


def _to_take_out(items: list[Contribution]) -> list[Contribution]:
    """The contributions that are leaving and were not taken out of their map yet."""
    return [item for item in items if item.state == "leaving" and REMOVED not in item.facts]


def _set_states(statements: Statements, job: Job, record: MapRecord, outcome: MapOutcome) -> None:
    """Set the states of contributions to a map after a change of it."""
    states = {item.id: item.state for item in contributions_in(statements, record.id)}
    for number, model in enumerate(outcome.models, start=1):
        for name in model:
            if states.get(name) in ("pending", "left out"):
                set_state(statements, name, "mapped", "" if number == 1 else f"in model {number}")
    for name, reason in outcome.left_out.items():
        if states.get(name) in ("pending", "mapped", "left out"):
            set_state(statements, name, "left out", reason)
    for name, evidence in outcome.evidence.items():
        add_facts(statements, name, "evidence", evidence)
    if outcome.emptied:
        left = [name for name, state in states.items() if state in ("mapped", "left out")]
        for name in left:
            set_state(statements, name, "pending", outcome.reason)
        if left:
            queue_job(statements, record.id, "update", job.token)


def _result(outcome: MapOutcome, version: int) -> dict[str, Any]:
    """Result of a job, as JSON values."""
    result: dict[str, Any] = {"reason": outcome.reason} if outcome.reason else {}
    result |= told_as_json(outcome.remedy)
    mapped = sum(len(model) for model in outcome.models)
    result |= {"mapped": mapped, "left_out": len(outcome.left_out), "version": version}
    return result if outcome.moved is None else {**result, "moved": outcome.moved}


def _of_item(name: str, removed: dict[str, Any]) -> dict[str, Any]:
    """Result of a removal for one contribution, without the names of others that went with it."""
    own = [row for row in removed.pop("removed", ()) if row.get("name") == name]
    return {**removed, "features": own[0]["features"] if own else 0}


def _clock_offset() -> float:
    """How far the clock is ahead of one that nobody sets."""
    return time.time() - time.monotonic()
