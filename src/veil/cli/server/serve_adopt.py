"""`veil serve adopt`: an administrator says that a database and blobs are one store."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from veil.cli.common import add_command, add_json, say, write_json
from veil.cli.server.serve import add_config, settings_of
from veil.errors import InputError

EXAMPLES = """\
  veil serve adopt store/                what the database and the blobs have of each other; nothing is changed
  veil serve adopt store/ --write        from now on they are one store
"""
# Names of blobs that are printed; --json has all.
SHOWN = 10


def register(commands) -> None:  # type: ignore[no-untyped-def]
    """Add `veil serve adopt` to the parser's commands."""
    parser = add_command(
        commands,
        "serve adopt",
        "say that a database and blobs are one store",
        "A server refuses blobs (messages, and files of maps) of another store, and keeps those that its database does not\n"
        "know: it may have been restored from an older copy. This command tells what the two have of each other. With --write\n"
        "both carry the database's id, and blobs that nothing names are deleted a day later. First look for the database that\n"
        "names them: what they hold is lost then (docs/reference/service.md#one-store).",
        EXAMPLES,
    )
    parser.add_argument("folder", type=Path, help="folder of the server")
    parser.add_argument("--write", action="store_true", help="make them one store; the blobs' other database loses them")
    add_config(parser)
    add_json(parser)
    parser.set_defaults(run=_adopt)


def _adopt(arguments: argparse.Namespace) -> int:
    settings = settings_of(arguments)
    if not arguments.folder.is_dir():
        raise InputError(f"{arguments.folder} is no folder of a server; `veil serve` makes one")
    from veil.server.storage import open_parts
    from veil.server.store.identity import adopt

    parts = open_parts(arguments.folder, settings, anew=arguments.write)
    try:
        found = adopt(parts, write=arguments.write)
    finally:
        parts.database.close()
    write_json(arguments.json, _record(found))
    say(arguments, f"the database names {found.named} blobs; {found.missing} of them are missing")
    owner = "no store" if found.owner is None else "this store" if found.owner == found.store else f"the store {found.owner}"
    say(arguments, f"the blobs say {owner}; {len(found.unnamed)} of them the database does not know")
    for name in found.unnamed[:SHOWN]:
        say(arguments, f"  {name}")
    if len(found.unnamed) > SHOWN:
        say(arguments, f"  and {len(found.unnamed) - SHOWN} more")
    if arguments.write:
        say(arguments, f"they are one store from now on, {found.store}; what nothing names is deleted in a day")
    else:
        say(arguments, "nothing was changed; --write makes them one store")
    return 0


def _record(found: Any) -> dict[str, Any]:
    """The stable record of docs/reference/json.md."""
    return {
        "store": found.store or None,
        "blobs_store": found.owner,
        "named": found.named,
        "missing": found.missing,
        "unknown": list(found.unnamed),
    }
