"""The upkeep of a server by its administrator: `veil serve backup`, `restore`, `adopt` and `suspects`."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, TypedDict

from veil.cli.common import explain, say, say_table, write_json
from veil.cli.records import add_record_command, json_file, option, positional
from veil.cli.server.serve import AskedSettings, service_of, settings_of
from veil.errors import InputError
from veil.json_records.values import Digest, Limits
from veil.report.tables import Name, Table, numbers, percent
from veil.wire.names import chosen

BACKUP_EXAMPLES = """\
  veil serve backup store/ -o backups/monday.backup              while the server runs
  veil serve backup store/ --list                                the backups that the server knows
"""
RESTORE_EXAMPLES = """\
  veil serve restore backups/monday.backup store2/
  veil serve restore monday-copy.backup store2/ --newer store/veil.sqlite      with all deletions until then
"""
ADOPT_EXAMPLES = """\
  veil serve adopt store/                what the database and the blobs have of each other; nothing is changed
  veil serve adopt store/ --write        from now on they are one store
"""
# Names of blobs that are printed; --json has all.
SHOWN = 10
SUSPECTS_EXAMPLES = """\
  veil serve suspects store/ --map lobby                  what speaks against contributions, and how much each token gave
  veil serve suspects store/ --map lobby --json -         the same, with all numbers
"""


@dataclass(frozen=True, kw_only=True)
class ServeBackup(AskedSettings):
    """Write maps, contributions, tokens and receipts into one file that only you may read, whichever storage the server
    uses. The server knows the file from then on: what clients delete is deleted from it, too, as long as it stays
    where it was written. A copy elsewhere is not known (docs/reference/service.md#backups).
    """

    folder: Path = positional("folder of the server")
    output: Path | None = option("a new file for the backup", short="-o", metavar="FILE")
    list: bool = option("print the backups that the server knows", default=False)
    forget: str | None = option("forget the backup of this id, whose file you deleted", metavar="ID")


@dataclass(frozen=True, kw_only=True)
class ServeRestore(AskedSettings):
    """Make a server's folder from a backup, which is checked as a whole before. A folder that holds anything is never
    overwritten. The settings name the storage of the new server, which may be of another kind.
    """

    backup: Path = positional("a file that `veil serve backup` wrote")
    folder: Path = positional("folder of the new server, missing or empty")
    newer: Path | None = option("a later veil.sqlite or backup of the server: its deletions are done, too", metavar="FILE")


@dataclass(frozen=True, kw_only=True)
class ServeAdopt(AskedSettings):
    """A server refuses blobs (messages, and files of maps) of another store, and keeps those that its database does not
    know: it may have been restored from an older copy. This command tells what the two have of each other. With --write
    both carry the database's id, and blobs that nothing names are deleted a day later. First look for the database that
    names them: what they hold is lost then (docs/reference/service.md#one-store).
    """

    folder: Path = positional("folder of the server")
    write: bool = option("make them one store; the blobs' other database loses them", default=False)
    json: Path | None = json_file()


@dataclass(frozen=True, kw_only=True)
class ServeSuspects(AskedSettings):
    """List contributions that are degenerate, contradict the map, repeat others or are seen by their own token alone, and
    how much of the map each token gave (docs/theory/contributions.md). Nothing is deleted: `DELETE` of the contribution
    does that, and a revoked token gives no more (`veil serve token`). Honest contributions can be listed, too.
    """

    folder: Path = positional("folder of the server")
    map: str = option("id of a map, or its name", required=True, metavar="MAP")
    json: Path | None = json_file()


def register(commands) -> None:  # type: ignore[no-untyped-def]
    """Add `veil serve backup`, `restore`, `adopt` and `suspects` to the parser's commands."""
    summary = "write a server's state into a file, while it runs"
    add_record_command(commands, "serve backup", summary, BACKUP_EXAMPLES, ServeBackup, _backup)
    add_record_command(commands, "serve restore", "a server's folder from a backup", RESTORE_EXAMPLES, ServeRestore, _restore)
    summary = "say that a database and blobs are one store"
    add_record_command(commands, "serve adopt", summary, ADOPT_EXAMPLES, ServeAdopt, _adopt)
    summary = "contributions to a server's map that its administrator should look at"
    add_record_command(commands, "serve suspects", summary, SUSPECTS_EXAMPLES, ServeSuspects, _suspects)


def _backup(arguments: ServeBackup) -> int:
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
            assert arguments.output is not None
            made_now = write_backup(service, arguments.output)
            say(arguments, f"{made_now.id}  {made_now.path}: {made_now.path.stat().st_size} bytes")
        return 0
    finally:
        service.close()


def _restore(arguments: ServeRestore) -> int:
    settings = settings_of(arguments)
    from veil.server.restoring import restore

    counts = restore(arguments.backup, arguments.folder, settings, newer=arguments.newer)
    say(arguments, ", ".join(f"{number} {name}" for name, number in counts.items()) + f" in {arguments.folder}")
    return 0


class AdoptionJson(TypedDict):
    """A database and its blobs, which are to be one store."""

    store: Annotated[str | None, Limits(pattern="^s[0-9a-f]{32}$")]
    blobs_store: str | None
    named: Annotated[int, Limits(minimum=0)]
    missing: Annotated[int, Limits(minimum=0)]
    unknown: list[Digest]


def _adopt(arguments: ServeAdopt) -> int:
    settings = settings_of(arguments)
    if not arguments.folder.is_dir():
        raise InputError(f"{arguments.folder} is no folder of a server; `veil serve` makes one")
    from veil.server.storage import open_parts
    from veil.server.store.identity import adopt

    parts = open_parts(arguments.folder, settings, anew=arguments.write)
    try:
        adoption = adopt(parts, write=arguments.write)
    finally:
        parts.database.close()
    write_json(arguments.json, _adoption(adoption))
    say(arguments, f"the database names {adoption.named} blobs; {adoption.missing} of them are missing")
    owner = (
        "no store"
        if adoption.owner is None
        else "this store"
        if adoption.owner == adoption.store
        else f"the store {adoption.owner}"
    )
    say(arguments, f"the blobs say {owner}; {len(adoption.unnamed)} of them the database does not know")
    for name in adoption.unnamed[:SHOWN]:
        say(arguments, f"  {name}")
    if len(adoption.unnamed) > SHOWN:
        say(arguments, f"  and {len(adoption.unnamed) - SHOWN} more")
    if arguments.write:
        say(arguments, f"they are one store from now on, {adoption.store}; what nothing names is deleted in a day")
    else:
        say(arguments, "nothing was changed; --write makes them one store")
    return 0


def _adoption(adoption: Any) -> AdoptionJson:
    """The stable record of docs/reference/json.md."""
    return {
        "store": adoption.store or None,
        "blobs_store": adoption.owner,
        "named": adoption.named,
        "missing": adoption.missing,
        "unknown": list(adoption.unnamed),
    }


def _suspects(arguments: ServeSuspects) -> int:
    service = service_of(arguments)
    try:
        from veil.server.maps.suspects import shares_of, suspects_of, suspects_record

        record = chosen(service.records.all(), arguments.map)
        items = service.records.contributions(record.id)
        write_json(arguments.json, suspects_record(record, items))
        names = {token.id: token.name for token in service.tokens.all()}
        rows = [
            (
                share.token,
                names.get(share.token, "?"),
                *(str(share.contributions), percent(share.share, 0), str(share.mapped), str(share.suspects)),
            )
            for share in shares_of(items)
        ]
        say_table(arguments, share_table(rows))
        suspects = suspects_of(items)
        for suspect in suspects:
            item = suspect.contribution
            weight = "" if suspect.weight is None else f", weight {suspect.weight:.2f}"
            say(arguments, f"{item.id}  of {item.token}, {item.state}{weight}")
            for reason in suspect.reasons:
                explain(arguments, f"    {reason.kind}: {reason.told}")
        if not suspects:
            say(arguments, f"nothing speaks against the {len(items)} contributions to {record.name!r}")
        return 0
    finally:
        service.close()


def share_table(rows: Sequence[tuple[str, ...]]) -> Table:
    """The table of tokens: what each contributed, the share of all contributions, and how many of them are suspect."""
    return Table(
        columns=[Name("token", least=99), Name("name"), *numbers("contributions", "share, %", "mapped", "suspect")], rows=rows
    )
