"""Deletion of contributions and maps: their names first, then their bytes, also those that a kill left, then the receipt.

A receipt is written when the bytes are gone. A server that is killed before leaves the contribution "leaving", and a sweep, or
the job that took it out of its map, goes on.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from veil.errors import InputError
from veil.files.atomic import STALE_S, clear_leftovers, remove
from veil.files.service.served_tiles import clear_served
from veil.places.pairs.blocks import KIND
from veil.places.pairs.store import MatchStore
from veil.places.removal import forgetting
from veil.server.backups import clear_parts
from veil.server.jobs.queue import Job, cancel_jobs, is_held, queue_job
from veil.server.maps.contributions import Contribution, contributions_in, leaving_in, set_state
from veil.server.maps.receipts import deletion_receipt
from veil.server.maps.records import MapRecord, map_in
from veil.server.store.blob_use import loosen, sweep_loose, unnamed_in
from veil.server.store.identity import TILES
from veil.wire.receipts import Receipt

if TYPE_CHECKING:
    from veil.server.service import Service

CACHE, WORK, MATCHES = "cache", "work", "matches"
# Of a contribution's facts: what its removal took out of the map.
REMOVED = "removed"
log = logging.getLogger("veil.server")
# Records of jobs and of use are kept for so long after their end.
KEPT_S = 7 * 86400.0


def leave(service: Service, items: Sequence[Contribution], *, by: str, why: str) -> tuple[list[Receipt], Job | None]:
    """Delete contributions that are in no map, and the messages of the others, whose removal from their maps is queued.

    Raises InputError or StorageTrouble if bytes cannot be deleted; then they are leaving, and a sweep tries again.
    """
    job = None
    gone: list[Contribution] = []
    with service.database.transaction(durable=True) as statements:
        for item in items:
            present = map_in(statements, item.map_id)
            working = statements.one("SELECT id FROM jobs WHERE map = :map AND state = 'running'", map=item.map_id)
            set_state(statements, item.id, "leaving", f"{why} by {by}" if by else why)
            if present is not None and (present.files or working):
                job = queue_job(statements, item.map_id, "remove", by or item.token)
            else:
                gone.append(item)
        loosen(statements, [item.digest for item in items], "left")
    # No map needs the messages of what leaves it; on a full disk they are the room for its next version.
    service.records.drop_unused([item.digest for item in items], leaving={item.id for item in items})
    for map_id in {item.map_id for item in gone}:
        clear_work(service.folder, map_id)
    return erase(service, [item.id for item in gone]), job


def delete_map(service: Service, record: MapRecord, *, by: str) -> list[Receipt]:
    """Delete a map with all contributions to it, as `leave` says; returns their receipts."""
    with service.database.transaction(durable=True) as statements:
        items = contributions_in(statements, record.id)
        present = map_in(statements, record.id) or record
        loosen(statements, present.files.values(), "left", record.id)
        for item in items:
            set_state(statements, item.id, "leaving", f"the map was deleted by {by}" if by else "the map was deleted")
        statements.run("DELETE FROM maps WHERE id = :map", map=record.id)
        cancel_jobs(statements, record.id)
    clear_map(service, record.id)
    receipts = erase(service, [item.id for item in items])
    service.database.clear_log()
    return receipts


def erase(service: Service, ids: Collection[str], job: Job | None = None) -> list[Receipt]:
    """Delete the messages of contributions that are leaving and in no map (any more), and then write their receipts.

    `job` is the one that took them out of their map: if it is another server's meanwhile, that one writes the receipts. Raises
    what `leave` raises.
    """
    if not ids:
        return []
    with service.database.transaction(durable=True) as statements:
        items = [item for item in leaving_in(statements) if item.id in ids]
        for item in items:
            loosen(statements, [item.digest], "left", item.map_id)
    for map_id in {item.map_id for item in items}:
        clear_map(service, map_id, leaving=ids)
    clear_parts(service)
    receipts = []
    with service.database.transaction(durable=True) as statements:
        if job is not None and not is_held(statements, job):
            return []
        for item in [item for item in leaving_in(statements) if item.id in ids]:
            why, _, by = item.reason.partition(" by ")
            receipts.append(deletion_receipt(statements, item, by=by, why=why, more=item.facts.get(REMOVED, {})))
            statements.run("DELETE FROM contributions WHERE id = :id", id=item.id)
    # What was given again meanwhile by whoever deleted it; what others gave is named.
    service.records.drop_unused([item.digest for item in items])
    service.database.clear_log()
    return receipts


def go_on(service: Service) -> None:
    """Go on with deletions that a kill or the storage ended: of bytes, of maps that are gone, and of jobs that failed."""
    with service.database.transaction() as statements:
        leaving = leaving_in(statements)
        maps = {map_id: map_in(statements, map_id) for map_id in {item.map_id for item in leaving}}
    for map_id, present in maps.items():
        ids = [item.id for item in leaving if item.map_id == map_id]
        if present is None:
            erase(service, ids)
        elif all(job.kind != "remove" or job.ended is not None for job in service.jobs.of_map(map_id)):
            service.queue(map_id, "remove", "")


def expire(service: Service, now: float | None = None) -> int:
    """Delete the contributions whose time is over, and return their number."""
    now = time.time() if now is None else now
    over = [item for item in service.records.contributions() if item.expires is not None and item.expires <= now]
    for item in over:
        if item.state != "leaving":
            leave(service, [item], by="", why="its time was over")
    return len(over)


def clear_map(service: Service, map_id: str, *, leaving: Collection[str] = ()) -> None:
    """Delete what a map has no more, and what kills left of it: all if it is gone, else old versions and what is `leaving`.

    Raises InputError or StorageTrouble if something cannot be deleted.
    """
    present = service.records.get(map_id)
    if present is None:
        for name in (CACHE, MATCHES, WORK):
            remove(service.folder / name / map_id)
            clear_leftovers(service.folder / name, name=map_id, older_than_s=0.0)
    else:
        version = str(present.version)
        for path in (service.folder / CACHE / map_id).glob("*"):
            if path.name != version and not path.name.startswith(f".{version}."):  # that one is being laid out
                remove(path)
        forget_matches(service, map_id, leaving=leaving)
    service.records.drop_unused_of(map_id, leaving=leaving)
    service.database.clear_log()


def forget_matches(service: Service, map_id: str, *, leaving: Collection[str] = ()) -> None:
    """Delete this folder's matches of contributions that are gone or `leaving`."""
    folder = service.folder / MATCHES / map_id
    if not folder.is_dir():
        return
    kept = {item.id for item in service.records.contributions(map_id)} - set(leaving)
    if gone := [name for name in MatchStore(folder, KIND, read=False).names() if name not in kept]:
        try:
            forgetting(folder)(gone)
        except InputError:  # it cannot say whose matches it keeps
            remove(folder)


def clear_work(folder: Path, map_id: str) -> None:
    """Delete the folders of jobs on a map that nobody works on, of a server's folder."""
    for path in (folder / WORK / map_id).glob("*"):
        remove(path)


def sweep(service: Service, *, expires: bool = True) -> None:
    """Delete what a killed server left, old records, and, if `expires`, contributions whose time is over.

    Deletions that a kill ended go on. Raises FileFormatError, and deletes nothing, where the parts of the store do not belong
    together; StorageTrouble where it would delete more than is plausible.
    """
    service.require_whole()
    if expires:
        expire(service)
    go_on(service)
    now = time.time()
    service.jobs.forget(now - KEPT_S)
    service.tokens.forget_usage(now - KEPT_S)
    clear_folder(service)
    service.records.blobs.clear(older_than_s=STALE_S)
    service.unnamed = unnamed_in(service.database, service.records.blobs)
    if service.unnamed:
        log.warning(
            "%d blobs are of another database, or of a later state of this one (%s ...); kept until the store is adopted",
            len(service.unnamed),
            service.unnamed[0],
        )
    sweep_loose(service.database, service.records.blobs)
    service.database.clear_log(left_over=True)


def clear_folder(service: Service) -> None:
    """Delete what a server's folder holds of maps that are gone, of old versions, and of jobs that nobody works on.

    All of that can be made again from the blobs. What cannot be deleted is logged, and keeps nothing else.
    """
    present = {record.id: str(record.version) for record in service.records.all()}
    idle = [map_id for map_id in present if all(job.state != "running" for job in service.jobs.of_map(map_id))]
    for name in (CACHE, MATCHES, WORK):
        for path in (service.folder / name).glob("*"):
            if path.name not in present:
                _logged(remove, path)
    for path in (service.folder / CACHE).glob("*/*"):
        if path.name != present.get(path.parent.name) and _age_s(path) > STALE_S:
            _logged(remove, path)
    for map_id in idle:
        _logged(clear_work, service.folder, map_id)
        _logged(clear_leftovers, service.folder / MATCHES / map_id)
        # Another server, with a folder of its own, may have removed some.
        _logged(forget_matches, service, map_id)
    _logged(clear_leftovers, service.folder)
    _logged(lambda: clear_leftovers(service.folder.parent, name=service.folder.name))  # of a restore
    _logged(clear_served, service.folder / TILES)


def _logged(delete: Callable[..., object], *given: object) -> None:
    """Delete something, or log why it cannot be deleted."""
    try:
        delete(*given)
    except InputError as error:
        log.warning("%s", error)


def _age_s(path: Path) -> float:
    """Seconds since a file or folder was changed; 0 if it is gone."""
    try:
        return time.time() - path.lstat().st_mtime
    except FileNotFoundError:
        return 0.0
