"""Messages of a client that wait to be sent, and contributions that a server acknowledged."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from veil.errors import FileFormatError
from veil.files.atomic import STALE_S, clear_leftovers, read_bytes, replacing
from veil.files.service.blobs import FolderBlobs

FOLDER, WAITING, SENT = "client", "waiting", "sent"


@dataclass(frozen=True, kw_only=True)
class Sending:
    """One message for one map of a server.

    - `server`, `map_id`: where it goes.
    - `name`: of the image, for the user alone; it is not sent.
    - `message_sha256`: of the message.
    - `contribution`: the server's name of it; empty while it waits.
    - `receipts_head`: end of the server's chain of receipts when it was acknowledged.
    """

    server: str
    map_id: str
    name: str
    message_sha256: str
    contribution: str = ""
    receipts_head: str = ""


_NAMES = ("server", "map_id", "name", "message_sha256", "contribution", "receipts_head")


def _facts(sending: Sending) -> dict[str, str]:
    """Content of a note's file."""
    return {
        "server": sending.server,
        "map_id": sending.map_id,
        "name": sending.name,
        "message_sha256": sending.message_sha256,
        "contribution": sending.contribution,
        "receipts_head": sending.receipts_head,
    }


class Outbox:
    """Files of a client in `folder`: each message is there until it was acknowledged, and then a note that it was."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder / FOLDER
        self._messages = FolderBlobs(self._folder / "messages")
        self._messages.clear(older_than_s=STALE_S)
        for state in (WAITING, SENT):
            clear_leftovers(self._folder / state)
        with suppress(FileFormatError):  # a damaged note may name any of them
            self._drop_unnamed()

    def put(self, sending: Sending, message: bytes) -> None:
        """Keep a message that is going to be sent. Raises InputError if it cannot be written."""
        self._messages.put(message)
        self._write(WAITING, sending)
        self._messages.put(message)  # another process may have dropped it before it was named

    def waiting(self) -> Iterator[tuple[Sending, bytes]]:
        """Messages that are not acknowledged yet, with the very bytes. Raises FileFormatError if one is damaged."""
        for sending in self._read(WAITING):
            yield sending, self._messages.get(sending.message_sha256)

    def acknowledge(self, sending: Sending) -> None:
        """Note that a server has a message, which is then forgotten here; it can be made again under the client's secret."""
        self._write(SENT, sending)
        self._path(WAITING, sending).unlink(missing_ok=True)
        if all(other.message_sha256 != sending.message_sha256 for other in self._read(WAITING)):
            self._messages.delete(sending.message_sha256)

    def drop(self, sending: Sending) -> None:
        """Forget a message that a server refused."""
        self._path(WAITING, sending).unlink(missing_ok=True)
        if all(other.message_sha256 != sending.message_sha256 for other in self._read(WAITING)):
            self._messages.delete(sending.message_sha256)

    def sent(self) -> list[Sending]:
        """Contributions that servers have acknowledged."""
        return self._read(SENT)

    def forget(self, sending: Sending) -> None:
        """Forget that a server has a message, as it was deleted there."""
        self._path(SENT, sending).unlink(missing_ok=True)

    def _drop_unnamed(self) -> None:
        """Forget messages that no note has named for a minute: a kill came between. They can be made again."""
        named, latest = {sending.message_sha256 for sending in self._read(WAITING)}, time.time() - STALE_S
        for name in set(self._messages.names()) - named:
            with suppress(FileNotFoundError):
                if self._messages.path(name).stat().st_mtime <= latest:
                    self._messages.delete(name)

    def _write(self, state: str, sending: Sending) -> None:
        with replacing(self._path(state, sending), suffix="", private=True) as temporary:
            temporary.write_bytes(json.dumps(_facts(sending)).encode())

    def _read(self, state: str) -> list[Sending]:
        names = set(_NAMES)
        messages = []
        for path in sorted((self._folder / state).glob("*.json")):
            try:
                value = json.loads(read_bytes(path))
                if not isinstance(value, dict) or set(value) != names or not all(isinstance(v, str) for v in value.values()):
                    raise ValueError("it does not hold what it should")
                messages.append(Sending(**value))
            except ValueError as error:
                raise FileFormatError(f"{path} is damaged ({error}); delete it, and contribute the image again") from None
        return messages

    def _path(self, state: str, sending: Sending) -> Path:
        place = hashlib.sha256(f"{sending.server} {sending.map_id} {sending.message_sha256}".encode()).hexdigest()
        return self._folder / state / f"{place[:32]}.json"
