"""A server in a thread, as clients meet it over HTTP, and messages of bundled photographs for it."""

from __future__ import annotations

import atexit
import base64
import http.client
import io
import json
import sqlite3
import threading
import time
import zipfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import h5py
import uvicorn

from veil.device.device import Device
from veil.device.protection import HideInWords, Protection
from veil.features import Features
from veil.server.app import create_app
from veil.server.http.connections import connection_options
from veil.server.jobs.processes import WorkerPool
from veil.server.runner import Runner
from veil.server.service import Service
from veil.server.settings import ServerSettings
from veil.wire import decode
from worlds.promises import Promises
from worlds.releases import taken

MESSAGE_TYPE = "application/vnd.veil.message"
PRIVACY: dict[str, list[str]] = {
    "dataRetention": [],
    "dataAcceptableUse": [],
    "dataSanitizationApplied": [],
    "dataSanitizationRequested": [],
}


@dataclass(frozen=True)
class Answer:
    """An answer of a server: `value` is its JSON, None if the answer is not JSON."""

    status: int
    headers: dict[str, str]
    data: bytes

    @property
    def value(self) -> Any:
        return json.loads(self.data) if self.data else None


@dataclass(frozen=True)
class Running:
    """A running server: its service, port, the secret of an administrator's token, and what its contract promises."""

    service: Service
    port: int
    admin: str
    promises: Promises

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def ask(
        self,
        method: str,
        path: str,
        *,
        token: str | None = None,
        body: bytes | None = None,
        value: object = None,
        kind: str | None = None,
        headers: dict[str, str] | None = None,
    ) -> Answer:
        """Send one request as it stands; `token` None is the administrator's, "" none. The answer has to be a promised one."""
        said = dict(headers or {})
        secret = self.admin if token is None else token
        if secret:
            said.setdefault("Authorization", f"Bearer {secret}")
        if value is not None:
            body, kind = json.dumps(value).encode(), "application/json"
        if body is not None:
            said.setdefault("Content-Type", kind or MESSAGE_TYPE)
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        try:
            connection.request(method, path, body=body, headers=said)
            response = connection.getresponse()
            answer = Answer(response.status, {k.lower(): v for k, v in response.getheaders()}, response.read())
        finally:
            connection.close()
        self.promises.require(method, path, answer.status, answer.headers, answer.data)
        return answer

    def done(self, job: str) -> dict[str, Any]:
        """The end of a job."""
        for _ in range(1200):
            state = self.ask("GET", f"/v1/jobs/{job}").value
            if state["state"] not in ("queued", "running"):
                return state
            time.sleep(0.05)
        raise AssertionError(f"job {job} does not end: {state}")


class KeptPool(WorkerPool):
    """Processes for one service after another: a service that is closed does not end them."""

    def close(self) -> None:
        """Leave the processes to the next service."""

    @classmethod
    @cache
    def of_all(cls) -> KeptPool:
        """The one process for all services of one worker, which ends with the tests."""
        pool = cls(1, waiting=ServerSettings().waiting)
        atexit.register(super(KeptPool, pool).close)
        return pool


def with_pool(service: Service) -> Service:
    """A service whose messages are looked at by a process that starts with the first one, and not with a server.

    Services of one worker share it: each process takes a second until it has loaded what a query needs.
    """
    settings = service.settings
    if (settings.workers, settings.waiting) == (1, ServerSettings().waiting):
        service.pool = KeptPool.of_all()
    elif service.pool is None:
        service.pool = WorkerPool(settings.workers, waiting=settings.waiting, patience_s=settings.deadline_s)
    return service


@contextmanager
def running(service: Service, *, jobs: bool = True) -> Iterator[Running]:
    """A server of a service; `jobs` False does no work on maps. Its messages are looked at as `with_pool` says."""
    _, secret = service.tokens.make("tests", ["admin"])
    app = create_app(with_pool(service), Runner(service) if jobs else None)
    server = uvicorn.Server(uvicorn.Config(app, host="127.0.0.1", port=0, **connection_options(service.settings)))
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    try:
        while not server.started:
            assert thread.is_alive(), "the server did not start"
            time.sleep(0.02)
        port = server.servers[0].sockets[0].getsockname()[1]
        yield Running(service=service, port=port, admin=secret, promises=Promises(app.openapi()))
    finally:
        server.should_exit = True
        thread.join()


def messages_of(features: dict[str, Features], device: Device, *, most: int = 500) -> dict[str, bytes]:
    """Hardened messages of some features of each image."""
    return {name: device.release(_first(item, most), name=name, purpose="map").message for name, item in features.items()}


def words_of(features: Features, device: Device, *, epsilon: float = 10.0, most: int = 500) -> bytes:
    """A message in words."""
    protection = Protection(descriptors=HideInWords(epsilon=epsilon))
    return device.release(_first(features, most), protection, name="words", allow_second=True).message


def _first(features: Features, most: int) -> Features:
    import numpy as np

    return taken(features, np.arange(min(most, len(features))))


def geopose_request(message: bytes, *, said: tuple[str, ...] = (), **readings: Any) -> dict[str, Any]:
    """A request of the GeoPoseProtocol as the specification's interfaces have it."""
    size = decode(message).camera
    camera = {
        "timestamp": time.time() * 1000,
        "sensorId": "camera",
        "privacy": {**PRIVACY, "dataSanitizationApplied": list(said)},
        "sequenceNumber": 1,
        "imageFormat": MESSAGE_TYPE,
        "size": [size.width_px, size.height_px],
        "imageBytes": base64.b64encode(message).decode(),
    }
    return {
        "id": "a request",
        "timestamp": time.time() * 1000,
        "type": "geopose",
        "sensors": [{"id": "camera", "type": "camera"}],
        "sensorReadings": {"cameraReadings": [camera], **readings},
    }


@contextmanager
def working(service: Service) -> Iterator[Callable[[], list[str]]]:
    """A function that does all jobs that wait, by one process for all its calls, and returns their states."""
    runner = Runner(service)

    def work() -> list[str]:
        states = []
        while (job := runner.work_once()) is not None:
            ended = service.jobs.get(job.id)
            assert ended is not None
            states.append(f"{ended.kind} {ended.state}")
        return states

    try:
        yield work
    finally:
        runner._process.kill()


def work(service: Service) -> list[str]:
    """Do all jobs that wait, in this thread; returns their states."""
    with working(service) as done:
        return done()


def everything(folder: Path) -> Iterator[tuple[str, bytes]]:
    """All files of a server's folder, and what lies in them packed or in pieces: arrays, archives, values of a database."""
    paths = [path for path in sorted(folder.rglob("*")) if path.is_file()]
    yield from opened({str(path.relative_to(folder)): path.read_bytes() for path in paths})
    # Last, as a database's own log may be emptied when it is read.
    for path in sorted(folder.rglob("*.sqlite")):
        yield f"{path.relative_to(folder)} (values)", b"\n".join(values_of(path))


def opened(files: Mapping[str, bytes]) -> Iterator[tuple[str, bytes]]:
    """Files as they are, and what is packed in them: arrays of HDF5, members of archives."""
    for name, data in files.items():
        yield name, data
        if data.startswith(b"\x89HDF\r\n"):
            yield f"{name} (arrays)", b"".join(arrays_of(data))
        if zipfile.is_zipfile(io.BytesIO(data)):
            with zipfile.ZipFile(io.BytesIO(data)) as archive:
                yield f"{name} (members)", b"".join(archive.read(member) for member in archive.namelist())


def arrays_of(data: bytes) -> list[bytes]:
    """Bytes of all arrays of an HDF5 file."""
    arrays: list[bytes] = []
    with h5py.File(io.BytesIO(data)) as file:
        file.visititems(lambda _, item: arrays.append(item[()].tobytes()) if isinstance(item, h5py.Dataset) else None)
    return arrays


# The files that say to which store a server's folder, blobs and tiles belong, and the one that holds room on the disk.
NOTES = {"storage.json", "blobs/store.json", "tiles/store.json", "reserve"}


def values_of(path: Path) -> Iterator[bytes]:
    """Texts and blobs of all tables of an SQLite database, each in one piece; on disk a long one lies in several pages."""
    with closing(sqlite3.connect(path)) as connection:
        for (table,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall():
            for row in connection.execute(f'SELECT * FROM "{table}"'):
                yield from (item.encode() if isinstance(item, str) else item for item in row if isinstance(item, str | bytes))
