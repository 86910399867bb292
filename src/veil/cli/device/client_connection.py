"""The options of `veil client`, which name server and token, and the client that they give."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from veil.cli.common import Commands, tell
from veil.cli.records import Asked, Record, add_record_command, json_file, option
from veil.client import Client
from veil.device.device import Device
from veil.errors import InputError
from veil.files.tables import read_text


@dataclass(frozen=True, kw_only=True)
class AskedServer(Record):
    """Use a server. Photographs are extracted and privatized here, under the secret and the ledger in $VEIL_HOME; what
    is sent is a message, and the same bytes if it is sent again. Messages wait here while the server is away.
    VEIL_SERVER and VEIL_TOKEN name the server and the token; options of this group may stand before or after a command.
    """

    server: str | None = option("address of the server (default: $VEIL_SERVER)")
    token_file: Path | None = option("file that holds the token (default: $VEIL_TOKEN)", metavar="FILE")
    plain: bool = option("allow http to another machine; the token is then readable", default=False)
    json: Path | None = json_file()


def add_action(
    actions: Commands, name: str, summary: str, examples: str, record: type[Asked], run: Callable[[Asked], int]
) -> None:
    """Add an action of `veil client`, whose record inherits `AskedServer`."""
    parser = add_record_command(actions, name, summary, examples, record, run, group=AskedServer)
    parser.description = f"{record.description} The options of `veil client` go with it, too."


@contextmanager
def connected(arguments: AskedServer) -> Iterator[Client]:
    """The client that the arguments name. Raises InputError without a server or a token."""
    server, token = arguments.server or os.environ.get("VEIL_SERVER"), os.environ.get("VEIL_TOKEN", "")
    if not server:
        raise InputError("no server is named; give --server URL, or set VEIL_SERVER")
    if arguments.token_file:
        token = read_text(arguments.token_file).strip()
    if not token:
        raise InputError("no token is given; set VEIL_TOKEN, or give --token-file (not on the command line, which others see)")
    device = Device()
    for note in device.notes:
        tell(note)
    with Client(server, token, device, allow_plain=arguments.plain) as client:
        try:
            yield client
        finally:
            for note in client.notes:
                tell(note)
