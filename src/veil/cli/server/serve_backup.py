"""`veil serve backup` and `veil serve restore`: a server's state in one file, and a server's folder from it."""

from __future__ import annotations

import argparse
import time
from pathlib import Path

from veil.cli.common import add_command, say
from veil.cli.server.serve import add_config, service_of, settings_of
from veil.errors import InputError

EXAMPLES = """\
  veil serve backup store/ -o backups/monday.backup              while the server runs
  veil serve backup store/ --list                                the backups that the server knows
"""
RESTORE_EXAMPLES = """\
  veil serve restore backups/monday.backup store2/
  veil serve restore monday-copy.backup store2/ --newer store/veil.sqlite      with all deletions until then
"""


def register(commands) -> None:  # type: ignore[no-untyped-def]
    """Add `veil serve backup` and `veil serve restore` to the parser's commands."""
    parser = add_command(
        commands,
        "serve backup",
        "write a server's state into a file, while it runs",
        "Write maps, contributions, tokens and receipts into one file that only you may read, whichever storage the server\n"
        "uses. The server knows the file from then on: what clients delete is deleted from it, too, as long as it stays\n"
        "where it was written. A copy elsewhere is not known (docs/reference/service.md#backups).",
        EXAMPLES,
    )
    parser.add_argument("folder", type=Path, help="folder of the server")
    parser.add_argument("-o", "--output", type=Path, metavar="FILE", help="a new file for the backup")
    parser.add_argument("--list", action="store_true", help="print the backups that the server knows")
    parser.add_argument("--forget", metavar="ID", help="forget the backup of this id, whose file you deleted")
    add_config(parser)
    parser.set_defaults(run=_backup)

    parser = add_command(
        commands,
        "serve restore",
        "a server's folder from a backup",
        "Make a server's folder from a backup, which is checked as a whole before. A folder that holds anything is never\n"
        "overwritten. The settings name the storage of the new server, which may be of another kind.",
        RESTORE_EXAMPLES,
    )
    parser.add_argument("backup", type=Path, help="a file that `veil serve backup` wrote")
    parser.add_argument("folder", type=Path, help="folder of the new server, missing or empty")
    parser.add_argument(
        "--newer", type=Path, metavar="FILE", help="a later veil.sqlite or backup of the server: its deletions are done, too"
    )
    add_config(parser)
    parser.set_defaults(run=_restore)


def _backup(arguments: argparse.Namespace) -> int:
    if sum([arguments.list, arguments.forget is not None, arguments.output is not None]) != 1:
        raise InputError("give -o FILE for a new backup, --list, or --forget ID")
    if not arguments.folder.is_dir():
        raise InputError(f"{arguments.folder} is no folder of a server; `veil serve` makes one")
    service = service_of(arguments)
    from veil.server.backups import forget_backup, known_backups, write_backup

    try:
        if arguments.list:
            for item in known_backups(service):
                state = "up to date" if not item.behind else f"{item.behind} deletions behind"
                made = time.strftime("%Y-%m-%d %H:%M", time.gmtime(item.created))
                say(arguments, f"{item.id}  {made}  {item.path}: {state if item.path.is_file() else f'missing, {state}'}")
        elif arguments.forget is not None:
            if not forget_backup(service, arguments.forget):
                raise InputError(f"there is no backup {arguments.forget!r}; `veil serve backup FOLDER --list` shows all")
            say(arguments, f"forgot {arguments.forget}")
        else:
            made_now = write_backup(service, arguments.output)
            say(arguments, f"{made_now.id}  {made_now.path}: {made_now.path.stat().st_size} bytes")
        return 0
    finally:
        service.close()


def _restore(arguments: argparse.Namespace) -> int:
    settings = settings_of(arguments)
    from veil.server.restoring import restore

    found = restore(arguments.backup, arguments.folder, settings, newer=arguments.newer)
    say(arguments, ", ".join(f"{number} {name}" for name, number in found.items()) + f" in {arguments.folder}")
    return 0
