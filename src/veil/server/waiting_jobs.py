"""Which jobs wait for room on the disk, and what is given up for the removal of a contribution."""

from __future__ import annotations

from collections.abc import Set

from veil.files.atomic import remove
from veil.files.reserve import LEAST, let_go
from veil.server.deletion import MATCHES
from veil.server.jobs.queue import Job
from veil.server.service import Service


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
