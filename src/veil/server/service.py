"""The service without HTTP: maps, contributions, queries, deletions, each for a token that was admitted."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from veil.errors import FileFormatError, InputError
from veil.files.atomic import remove, writing
from veil.files.maps.folders import model_folders
from veil.files.maps.format import read_map
from veil.processes import DeadlineExceeded, WorkerDied
from veil.server.access.tokens import Token, Tokens
from veil.server.deletion import CACHE, delete_map, leave
from veil.server.jobs.processes import Busy, WorkerPool
from veil.server.jobs.queue import Job, Jobs, Kind, queue_job
from veil.server.jobs.tasks import GUARDED, NOTHING_BESIDE, Beside, examine, localize_query, ready
from veil.server.maps.answerable import facts_of, require_form
from veil.server.maps.contributions import Contribution, add_contribution, contributions_in
from veil.server.maps.earth import PLACE, on_earth, put_place
from veil.server.maps.policy import MapPolicy
from veil.server.maps.receipts import Receipts
from veil.server.maps.records import MapRecord, MapRecords, add_map, map_in, put_version, require_free
from veil.server.maps.suspects import require_share
from veil.server.settings import ServerSettings
from veil.server.storage import open_parts
from veil.server.store.identity import StoreParts
from veil.server.store.room import REFUSED, Room
from veil.wire.receipts import Receipt

# How often a query begins again because its map was replaced meanwhile.
SWAPS = 5
# Guarded answers are given at the end of a whole step, in seconds (docs/theory/answers.md#the-attack).
TIME_STEP_S = 2.0


class NotFound(InputError):
    """A map, contribution, job or receipt that does not exist, or that the token may not know of."""


class Service:
    """A server's state in a folder, and what clients may do to it.

    - `folder`: made where it is missing; several servers may share it.
    - `settings`: of the server; None: the defaults.

    Attributes: `store`, the id of the store, `tokens`, `records`, `jobs`, `receipts`, `room`, that of the disk, and `unnamed`,
    names of blobs that are of another database (as the last sweep found them). `open_pool` starts the processes that look at
    messages; close it after use. Raises InputError or FileFormatError for a folder that cannot be used.
    """

    def __init__(self, folder: Path, settings: ServerSettings | None = None) -> None:
        self.folder = folder
        self.settings = settings or ServerSettings()
        with writing(folder):
            folder.mkdir(parents=True, exist_ok=True)
            folder.chmod(0o700)
        self.room = Room(folder)
        self._parts, self.store = self.room.acting(self._opened)
        self.database = self._parts.database
        self.records = MapRecords(self.database, self._parts.blobs)
        self.tokens = Tokens(self.database)
        self.jobs = Jobs(self.database)
        self.receipts = Receipts(self.database)
        self.pool: WorkerPool | None = None
        self.unnamed: list[str] = []

    def _opened(self) -> tuple[StoreParts, str]:
        """The parts of the store, and its id."""
        parts = open_parts(self.folder, self.settings)
        try:
            return parts, parts.begin()
        except BaseException:
            parts.database.close()
            raise

    def require_whole(self) -> None:
        """Raise FileFormatError unless database, blobs, folder and tiles still belong to one store."""
        self._parts.require_whole()

    def warnings(self) -> list[str]:
        """Warnings for the administrator, as sentences that everybody may read."""
        unknown = [f"{len(self.unnamed)} blobs are not known to the database and are kept until the store is adopted"]
        return [*(unknown if self.unnamed else []), *([REFUSED] if self.room.left() <= 0 else [])]

    def keep_room(self) -> None:
        """Hold the room again that was given up, if it is there, and count what could not be counted."""
        if self.room.keep():
            self.database.clear_log(left_over=True)
        self.tokens.count()

    def open_pool(self) -> WorkerPool:
        """Start the processes that look at messages, and return when they have loaded what they need."""
        if self.pool is None:
            self.pool = WorkerPool(self.settings.workers, waiting=self.settings.waiting, patience_s=self.settings.deadline_s)
            self.pool.warm(ready)
        return self.pool

    def close(self) -> None:
        """End the processes, and give the database back."""
        if self.pool is not None:
            self.pool.close()
            self.pool = None
        try:
            self.tokens.count()
        finally:
            self.database.close()

    def map(self, token: Token, map_id: str) -> MapRecord:
        """A map that a token may use. Raises NotFound for any other."""
        record = self.records.get(map_id) if token.may_use(map_id) else None
        if record is None:
            raise NotFound("there is no such map, or the token may not use it; GET /v1/maps lists those that it may use")
        return record

    def kept_by(self, token: Token) -> int:
        """Bytes of a token's contributions, as many as have to be left for others; 0 for one that may administrate."""
        return 0 if token.allows("admin") else self.records.bytes_of(token=token.id)

    def contribute(self, token: Token, map_id: str, message: bytes) -> tuple[Contribution, Job | None]:
        """Keep a message for a map, and the job that enters it; the same message of the same token is kept once.

        Raises NotFound for the map, Refused (TooMuch: of this token) or WireError for a message that is not
        accepted, Busy if nobody can look at it now.
        """
        record = self.map(token, map_id)
        record.policy.require_head(message)
        facts = self._examined(token.id, message, record.policy)
        if facts["form"] == "words" and record.facts.get("public"):
            raise InputError("the map is public and made by its owner; it takes queries in words and no contributions of them")
        digest = self.records.keep(message, map_id)
        with self.database.transaction(durable=True) as statements:
            present = map_in(statements, map_id)
            if present is None:  # the sweep takes what was kept
                raise NotFound("the map was deleted meanwhile")
            require_share(statements, present, token.id, digest)
            before = {item.id for item in contributions_in(statements, map_id)}
            contribution = add_contribution(
                statements, present, token=token.id, digest=digest, size_bytes=len(message), facts=facts
            )
            if contribution.id in before:
                return contribution, None
            # Again, as it may have been dropped as unused; nobody waits for more than a look if it is there.
            self.records.keep_again(message)
            job = queue_job(statements, map_id, "update", token.id)
        return contribution, job

    def localize(self, token: Token, map_id: str, message: bytes, beside: Beside = NOTHING_BESIDE) -> dict[str, Any]:
        """The answer to a query, as JSON values; the query is kept nowhere. `beside`: what else a request says of the image.

        Raises NotFound for the map, Refused, WireError or InputError for a query that cannot be answered, Busy if nobody can
        look at it now. A search that takes too long is no pose.
        """
        record = self.map(token, map_id)
        head = record.policy.require_head(message)
        answer: dict[str, Any]
        facts = {"map": record.id, "map_version": record.version, "coverage": _coverage(record)}
        if not record.files:
            return {"status": "no pose", "reason": "the map holds no image yet", **facts}
        require_form(head, record.policy, record.facts)
        try:
            answer = self._on_map(token.id, record, message, beside)
        except DeadlineExceeded as error:
            answer = {"status": "no pose", "reason": f"the search was ended: {error}"}
        except WorkerDied as error:
            answer = {"status": "no pose", "reason": f"the search failed: {error}"}
        place = record.facts.get(PLACE)
        if place is not None and answer["status"] == "localized" and answer.get("map_version") == record.version:
            answer = {**answer, **on_earth(place, answer["cam_from_world"])}
        return {**facts, "features": head.features, **answer}

    def delete(self, token: Token, contribution_id: str) -> tuple[Receipt | None, Job | None]:
        """Delete a contribution: the receipt if nothing of it was mapped, else the job whose end gives one.

        Raises NotFound for one that the token does not own, unless it may administrate.
        """
        item = self.records.contribution(contribution_id)
        owned = item is not None and (item.token == token.id or token.allows("admin"))
        if item is None or not owned:
            known = self.receipts.of_contribution(contribution_id, None if token.allows("admin") else token.id)
            if known is not None:
                return known, None
            raise NotFound("there is no such contribution, or it is not of this token")
        receipts, job = self.room.acting(lambda: leave(self, [item], by=token.id, why="asked"))
        return receipts[0] if receipts else None, job

    def delete_map(self, token: Token, map_id: str) -> list[Receipt]:
        """Delete a map with all contributions to it; returns their receipts. Raises NotFound for a map that does not exist."""
        record = self.map(token, map_id)
        return self.room.acting(lambda: delete_map(self, record, by=token.id))

    def import_map(self, name: str, folder: Path, policy: MapPolicy | None = None) -> MapRecord:
        """Take a map that `veil map` wrote into the server, whole.

        Raises FileFormatError for a folder that is no map, InputError for a name that cannot be one or is taken.
        """
        with self.database.transaction() as statements:
            require_free(statements, name)
        scenes = [read_map(model) for model in model_folders(folder)]
        files = self.records.keep_files(folder)
        with self.database.transaction(durable=True) as statements:
            record = add_map(statements, name, policy or MapPolicy())
            self.records.require_kept(files)
            put_version(statements, record, files, facts_of(scenes, folder))
        return self.map_record(record.id)

    def set_place(self, map_id: str, value: Mapping[str, Any] | None) -> MapRecord:
        """Say where on Earth a map is, as `veil map align` found it; None: it is not known.

        Raises NotFound for the map, InputError for what is no place, or a map without images.
        """
        with self.database.transaction(durable=True) as statements:
            present = map_in(statements, map_id)
            if present is None:
                raise NotFound("there is no such map")
            put_place(statements, present, value)
        return self.map_record(map_id)

    def map_record(self, map_id: str) -> MapRecord:
        """A map, whoever asks. Raises NotFound for one that does not exist."""
        record = self.records.get(map_id)
        if record is None:
            raise NotFound("there is no such map")
        return record

    def queue(self, map_id: str, kind: Kind, token: str) -> Job:
        """Queue a job for a map. Raises NotFound for one that does not exist."""
        with self.database.transaction(durable=True) as statements:
            if map_in(statements, map_id) is None:
                raise NotFound("there is no such map")
            return queue_job(statements, map_id, kind, token)

    def version_folder(self, record: MapRecord) -> Path | None:
        """The folder with the files of a map's version, laid out where it is missing; None if there is a newer version."""
        folder = self.folder / CACHE / record.id / str(record.version)
        try:
            self.room.acting(lambda: self.records.lay_out(record.files, folder))
        except (InputError, FileFormatError):
            if self._is_present(record):
                raise
            return None
        # A version that was replaced while it was laid out must not stay: whoever replaced it may have looked before.
        if not self._is_present(record):
            remove(folder)
            return None
        return folder

    def _is_present(self, record: MapRecord) -> bool:
        present = self.records.get(record.id)
        return present is not None and present.version == record.version

    def _examined(self, by: str, message: bytes, policy: MapPolicy) -> dict[str, Any]:
        """Content of a message, read by a process that is killed if it takes long.

        Raises DeadlineExceeded or WorkerDied: whose fault it was is not known, and a client that is told that its message is
        refused drops it.
        """
        return self.open_pool().call(examine, message, policy.as_json(), whose=by, deadline_s=self.settings.deadline_s)

    def _on_map(self, by: str, record: MapRecord, message: bytes, beside: Beside) -> dict[str, Any]:
        """The answer to a query on a version of a map, or on the next one if that takes its place meanwhile."""
        pool, deadline_s, begun = self.open_pool(), self.settings.deadline_s, time.monotonic()
        for _ in range(SWAPS):
            folder = self.version_folder(record)
            if folder is not None:
                asked = (message, record.policy.as_json(), str(folder), beside)
                answer = pool.call(localize_query, *asked, whose=by, deadline_s=deadline_s)
                if answer is not None:
                    if answer.pop(GUARDED, False):
                        answer["seconds"] = waited_for_step(begun)
                    return {**answer, "map_version": record.version, "coverage": _coverage(record)}
            record = self.map_record(record.id)
        raise Busy("the map changes all the time; ask again in a moment")


def waited_for_step(begun: float) -> float:
    """Wait for the end of the present step of time since `begun` (time.monotonic), and return the seconds since then."""
    spent = TIME_STEP_S * math.ceil((time.monotonic() - begun) / TIME_STEP_S)
    while (rest := begun + spent - time.monotonic()) > 0:
        time.sleep(rest)
    return spent


def _coverage(record: MapRecord) -> dict[str, Any]:
    """Coverage of a map."""
    return {"models": list(record.facts.get("models", []))}
