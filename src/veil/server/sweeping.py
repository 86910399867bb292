"""Deletion in the background: leftovers of kills, expired contributions and old records, and only in a whole store."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from pathlib import Path

from veil.errors import InputError
from veil.files.atomic import STALE_S, clear_leftovers, remove
from veil.files.served_tiles import clear_served
from veil.server.deletion import CACHE, MATCHES, WORK, clear_work, expire, forget_matches, go_on
from veil.server.service import Service
from veil.server.store.blob_use import sweep_loose, unnamed_in
from veil.server.store.identity import TILES

log = logging.getLogger("veil.server")
# Records of jobs and of use are kept for so long after their end.
KEPT_S = 7 * 86400.0


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
