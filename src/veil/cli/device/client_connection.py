"""The options of `veil client`, which name server and token, and the client that they give."""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from veil.cli.common import add_command, add_json, tell
from veil.client import Client
from veil.device.device import Device
from veil.errors import InputError
from veil.files.atomic import read_bytes


def add_connection(parser: argparse.ArgumentParser) -> None:
    """Add the options that name server and token, and --json, to `veil client`."""
    parser.add_argument("--server", default=os.environ.get("VEIL_SERVER"), help="address of the server (default: $VEIL_SERVER)")
    parser.add_argument("--token-file", type=Path, metavar="FILE", help="file that holds the token (default: $VEIL_TOKEN)")
    parser.add_argument("--plain", action="store_true", help="allow http to another machine; the token is then readable")
    add_json(parser)


def add_action(actions, name: str, summary: str, run, examples: str) -> argparse.ArgumentParser:  # type: ignore[no-untyped-def]
    """Add an action of `veil client`, and return its parser."""
    told = f"{summary[0].upper()}{summary[1:]}. The options of `veil client` go with it, too."
    action = add_command(actions, name, summary, told, examples)
    action.set_defaults(run=run)
    return action


@contextmanager
def connected(arguments: argparse.Namespace) -> Iterator[Client]:
    """The client that the arguments name. Raises InputError without a server or a token."""
    if not arguments.server:
        raise InputError("no server is named; give --server URL, or set VEIL_SERVER")
    token = os.environ.get("VEIL_TOKEN", "")
    if arguments.token_file:
        token = read_bytes(arguments.token_file).decode("utf-8", "replace").strip()
    if not token:
        raise InputError("no token is given; set VEIL_TOKEN, or give --token-file (not on the command line, which others see)")
    device = Device()
    for note in device.notes:
        tell(note)
    with Client(arguments.server, token, device, allow_plain=arguments.plain) as client:
        try:
            yield client
        finally:
            for note in client.notes:
                tell(note)
